"""Runs beside which others used the machine are marked."""

from __future__ import annotations

import pytest

from benchmarks.quiet import CpuUse, disturbed


def test_what_the_run_does_not_account_for_was_used_by_others() -> None:
    before, after = CpuUse(10.0, 100.0, 7.0), CpuUse(14.0, 107.0, 11.0)
    assert after.others_since(before) == pytest.approx(0.75)


def test_only_a_machine_that_was_not_the_runs_own_is_noted() -> None:
    assert disturbed(0.05) is None
    assert "0.8 cores" in (disturbed(0.75) or "")
