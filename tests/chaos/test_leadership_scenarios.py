"""Scenarios of leaders, coordinators and controllers, each once, with a fixed seed, by the command line."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.support.chaos.scenario_runs import OF_LEADERSHIP, parameters, run_and_judge

pytestmark = pytest.mark.heavy


@pytest.mark.parametrize("name", parameters(OF_LEADERSHIP))
def test_a_scenario_is_what_it_says(name: str, tmp_path: Path) -> None:
    run_and_judge(name, tmp_path)
