"""Seeds of every profile hold: two hundred in `make test`, more of those that are dear in `make test-heavy`,
hundreds more in `make test-long`. Together they visit what they are there for: what was never visited was not
tested."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import count
from typing import Final

import pytest

from chaos.simulator.profile import PROFILES
from chaos.simulator.run import Simulation

SECONDS: Final = 20.0
HEAVY: Final = "fifty"
"""Its items come first, so that none is the last."""
SEEDS: Final[Mapping[str, int]] = {
    "combined": 10, "separate": 10, "transactions": 6, "combined-harsh": 16, "separate-harsh": 16,
    "stranded": 16, "blackout": 20, "one-controller": 30, "quiet": 51,
}  # fmt: skip
"""Of a profile that is not dear: for the same time on a processor more of those that cost little."""
FEW: Final = 2
"""Of one that is dear."""
MORE: Final = 3
"""The next ones of it, in `make test-heavy`."""
IN_AN_ITEM: Final = 3
"""Seeds: workers take items in turns (tests/support/suite/workers.py)."""
AT_MOST: Final = 8
"""Further seeds, until everything is visited."""
VISITS: Final[Mapping[str, frozenset[str]]] = {
    "stranded": frozenset({"election", "isr shrink", "isr expand", "elr", "fence"}),
    "partial": frozenset({"truncation", "raft leader"}),
    "transactions": frozenset({"aborted transaction", "coordinator move", "compaction", "snapshot"}),
    "transactions-v2": frozenset({"aborted transaction", "epoch of a transaction"}),
    "retention": frozenset({"log start moves", "log begins anew"}),
    "nearby": frozenset({"incremental fetch", "read from a follower"}),
    "groups": frozenset({"rebalance", "late commit refused"}),
    "groups-static": frozenset({"rebalance", "member is gone", "late commit refused"}),
    "disks": frozenset({"move", "shift between log directories", "fault dir-lost"}),
    "changing": frozenset({"move", "config", "partitions created", "records deleted", "topic deleted"}),
}
"""What the seeds of a profile come to."""


def items() -> Iterator[tuple[str, int, int]]:
    """Profile, first seed, number of seeds."""
    yield HEAVY, 1, 1
    for profile in sorted(PROFILES.keys() - {HEAVY}):
        seeds = SEEDS.get(profile, FEW)
        for first in range(1, seeds + 1, IN_AN_ITEM):
            yield profile, first, min(IN_AN_ITEM, seeds + 1 - first)


def visited(profile: str, seed: int) -> set[str]:
    """By a seed that holds."""
    outcome = Simulation(seed, PROFILES[profile], SECONDS).run()
    assert outcome.violations == [], (seed, profile)
    assert outcome.operations["send ok"] > 5
    return set(outcome.story.visited)


@pytest.mark.row("C7")
@pytest.mark.parametrize(("profile", "first", "seeds"), list(items()))
def test_seeds_hold_and_visit_what_they_are_there_for(profile: str, first: int, seeds: int) -> None:
    left = set(VISITS.get(profile, ())) if first == 1 else set()
    for seed in count(first):
        left -= visited(profile, seed)
        if seed + 1 >= first + seeds and not left:
            break
        assert seed < first + seeds + AT_MOST, f"{profile} never comes to {left}"


@pytest.mark.heavy
@pytest.mark.parametrize("profile", sorted(PROFILES.keys() - SEEDS.keys()))
def test_more_seeds_of_what_is_dear_hold(profile: str) -> None:
    for seed in range(FEW + 1, FEW + 1 + MORE):
        visited(profile, seed)


@pytest.mark.long
@pytest.mark.parametrize("first", range(11, 11 + 20 * len(PROFILES), len(PROFILES)))
def test_many_seeds_hold(first: int) -> None:
    for seed, profile in enumerate(PROFILES, first):
        visited(profile, seed)
