"""A seed decides everything: not the order of a set, not the process, not the machine."""

from __future__ import annotations

import os
import subprocess
import sys
import weakref
from pathlib import Path

import pytest

from chaos.simulator.profile import COMBINED, PROFILES
from chaos.simulator.run import Simulation

PROGRAM = """
from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation
profile = PROFILES["{profile}"]
whole = Simulation(7, profile, {seconds})
faults = whole.player.faults
print(whole.run().digest, Simulation(7, profile, {seconds}, faults=faults[1:]).run().digest)
"""
SECONDS = 4.0


def digests_elsewhere(directory: Path, hash_seed: int, profile: str = "combined") -> list[int]:
    """Of the run and of one with a fault less, in a process that has another hash seed, module path and
    current directory."""
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM.format(seconds=SECONDS, profile=profile)],
        env={**os.environ, "PYTHONHASHSEED": str(hash_seed), "PYTHONPATH": str(directory)},
        cwd=directory,
        capture_output=True,
        text=True,
        check=True,
    )
    return [int(word) for word in done.stdout.split()]


@pytest.mark.row("C7")
def test_the_same_trace_under_any_hash_seed_and_in_any_directory(tmp_path: Path) -> None:
    whole = Simulation(7, COMBINED, SECONDS)
    here = whole.run()
    assert here.ok
    less = Simulation(7, COMBINED, SECONDS, faults=whole.player.faults[1:]).run()
    assert digests_elsewhere(tmp_path, 1) == [here.digest, less.digest]


@pytest.mark.row("C7")
def test_what_a_run_leaves_is_freed_when_the_next_begins() -> None:
    """A hundred seeds of a minute took four gigabytes."""
    simulation = Simulation(1, PROFILES["quiet"], 1.0)
    left = weakref.ref(simulation.cluster)
    simulation.run()
    del simulation
    Simulation(2, PROFILES["quiet"], 1.0).run()
    assert left() is None


@pytest.mark.long
@pytest.mark.parametrize("profile", sorted(PROFILES))
def test_every_profile_has_one_trace(tmp_path: Path, profile: str) -> None:
    first, second = (digests_elsewhere(tmp_path, hash_seed, profile) for hash_seed in (1, 2))
    assert first == second


def test_another_seed_is_another_run() -> None:
    assert Simulation(1, COMBINED, 1.0).run().digest != Simulation(2, COMBINED, 1.0).run().digest


def test_a_replay_that_stops_early_is_the_beginning_of_the_run() -> None:
    whole: list[str] = []
    part: list[str] = []
    Simulation(3, COMBINED, 2.0, trace=whole.append).run()
    Simulation(3, COMBINED, 2.0, trace=part.append, until=1.0).run()
    assert 100 < len(part) < len(whole)
    assert whole[: len(part)] == part
