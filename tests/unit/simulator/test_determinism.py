"""A seed decides everything: not the order of a set, not the process, not the machine."""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

from chaos.simulator.profile import COMBINED
from chaos.simulator.run import Simulation

PROGRAM = """
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation
print(Simulation(7, PROFILES[{profile!r}], {seconds}).run().digest)
"""
SECONDS = 4.0


def digest_under(hash_seed: int, profile: str) -> int:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(profile=profile, seconds=SECONDS)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed)},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(done.stdout)


@pytest.mark.row("C7")
def test_the_same_trace_under_any_hash_seed() -> None:
    here = Simulation(7, COMBINED, SECONDS).run()
    assert here.ok
    assert digest_under(1, COMBINED.name) == here.digest


def test_another_seed_is_another_run() -> None:
    assert Simulation(1, COMBINED, 1.0).run().digest != Simulation(2, COMBINED, 1.0).run().digest


def test_a_replay_that_stops_early_is_the_beginning_of_the_run() -> None:
    whole: list[str] = []
    part: list[str] = []
    Simulation(3, COMBINED, 2.0, trace=whole.append).run()
    Simulation(3, COMBINED, 2.0, trace=part.append, until=1.0).run()
    assert 100 < len(part) < len(whole)
    assert whole[: len(part)] == part
