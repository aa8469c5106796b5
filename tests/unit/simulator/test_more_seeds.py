"""More seeds of every profile hold: two of most in `make test`, hundreds in `make test-long`."""

from __future__ import annotations

import pytest

from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation

SECONDS = 20.0
HEAVY = {"five", "groups", "groups-harsh", "changing", "upgrade", "fifty"}
"""A seed of them costs more than a second of CPU."""


@pytest.mark.row("C7")
@pytest.mark.parametrize("profile", sorted(PROFILES.keys() - HEAVY))
def test_a_second_seed_holds(profile: str) -> None:
    assert Simulation(2, PROFILES[profile], SECONDS).run().violations == []


@pytest.mark.long
@pytest.mark.parametrize("first", range(3, 3 + 20 * len(PROFILES), len(PROFILES)))
def test_many_seeds_hold(first: int) -> None:
    visited = set()
    for seed, profile in enumerate(PROFILES.values(), first):
        outcome = Simulation(seed, profile, SECONDS).run()
        assert outcome.violations == [], (seed, profile.name)
        visited |= outcome.story.visited.keys()
    assert {"election", "isr shrink", "isr expand", "fence", "raft leader"} <= visited
