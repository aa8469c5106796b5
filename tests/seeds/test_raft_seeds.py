"""Random schedules of faults against 3 and 5 voters: some seeds, hundreds in `make test-long`;
the invariants of Raft, and agreement after the heal. One seed again: `run_seed(seed, voters)` of
chaos/sim/raft_world.py.

The simulator itself is on trial too: with a mitigation taken out, it has to find a bad seed.
"""

from __future__ import annotations

import dataclasses
import re

import pytest

from chaos.sim.disk import SimFile
from chaos.sim.raft_options import Options
from chaos.sim.raft_world import RaftWorld, run_seed
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.raft import following
from metadata_quorum.raft.admission import VoterAdmission
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.log_matching import Matched, Mismatch, judge_append
from metadata_quorum.raft.messages import Append, LogEntry
from metadata_quorum.raft.replication import FollowerProgress

BLOCK = 25
SOME = 8


@pytest.mark.long
@pytest.mark.parametrize("start", range(0, 24 * BLOCK, BLOCK))
def test_three_voters(start: int) -> None:
    for seed in range(start, start + BLOCK):
        run_seed(seed, 3)


@pytest.mark.long
@pytest.mark.parametrize("start", range(1000 + SOME, 1000 + 12 * BLOCK, BLOCK))
def test_five_voters(start: int) -> None:
    for seed in range(start, start + BLOCK):
        run_seed(seed, 5)


@pytest.mark.row("Q1", "Q7", "Q9")
def test_some_seeds_of_five_voters() -> None:
    for seed in range(1000, 1000 + SOME):
        run_seed(seed, 5)


def test_a_single_voter() -> None:
    for seed in range(40):
        run_seed(seed, 1)


def test_a_seed_gives_one_run() -> None:
    """What a failing seed shows, it shows again."""
    first, second = run_seed(17, 3), run_seed(17, 3)
    assert first.events == second.events
    assert first.acked == second.acked
    assert first.histories == second.histories


@pytest.mark.row("Q1", "Q7", "Q9")
def test_some_seeds_of_three_voters_reach_the_hard_parts() -> None:
    """Leaders change, snapshots travel, disks are lost, proposals commit: else the rest proves little."""
    worlds = [run_seed(seed, 3) for seed in range(75, 115)]
    assert sum(len(w.acked) for w in worlds) > 2000
    assert sum(len(w.leaders) for w in worlds) > 80
    assert sum(bool(w.wiped) for w in worlds) > 3
    assert sum(node.raft.journal.base_index > 1 for w in worlds for node in w.nodes.values()) > 40


def _always_truncate(log: RaftJournal, commit_index: int, message: Append) -> Matched | Mismatch:
    verdict = judge_append(log, commit_index, message)
    if isinstance(verdict, Matched) and log.last_index > message.prev_index:
        return Matched(message.prev_index + 1, message.entries, verdict.last_verified, verdict.commit_index)
    return verdict


def _commit_uncapped(log: RaftJournal, commit_index: int, message: Append) -> Matched | Mismatch:
    verdict = judge_append(log, commit_index, message)
    if isinstance(verdict, Matched):
        end = max(verdict.last_verified, log.last_index)
        return Matched(
            verdict.truncate_from, verdict.new, verdict.last_verified, min(message.commit_index, end)
        )
    return verdict


def _without_fsync(self: SimFile, may_block: MayBlock) -> None:
    self._check("sync")


def _believe_the_page_cache(self: RaftJournal, entries: list[LogEntry], commit: int) -> None:
    if hasattr(self, "_durable_bytes"):  # after a snapshot
        _rewrite(self, entries, commit)
        return
    self._file = self._disk.open(self._path)
    self._durable_bytes, self._durable_index = self._file.size(), self.last_index


_rewrite = RaftJournal._rewrite


def _rewind_always(self: FollowerProgress, seq: int, next_index: int) -> bool:
    self.next_index = next_index
    self.transfer = None
    return True


@pytest.mark.parametrize(
    ("owner", "name", "mutant", "first"),
    [
        (following, "judge_append", _always_truncate, 0),
        (following, "judge_append", _commit_uncapped, 42),
        (SimFile, "sync", _without_fsync, 0),
        (RaftJournal, "_rewrite", _believe_the_page_cache, 0),
        (VoterAdmission, "mute", False, 25),
    ],
)
def test_the_simulator_misses_a_mitigation(
    owner: object, name: str, mutant: object, first: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One seed in twenty to forty finds some of them: the search begins with the first such."""
    monkeypatch.setattr(owner, name, mutant)
    with pytest.raises((AssertionError, FatalError)) as found:
        _run_many(first)
    assert not re.search("TypeError|AttributeError|NameError", str(found.value)), "the mutant itself is wrong"


def _run_many(first: int) -> None:
    for seed in range(first, first + 150):
        RaftWorld(seed, dataclasses.replace(Options.from_seed(seed, 3), wipes=True)).run()
