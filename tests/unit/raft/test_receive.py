"""Findings b and i: what a follower does with late copies, lost windows and conflicting tails."""

from __future__ import annotations

import pytest

from metadata_quorum.raft import following
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.log_matching import Matched, Mismatch, judge_append
from metadata_quorum.raft.messages import Append
from metadata_quorum.raft.replication import FollowerProgress
from tests.unit.raft.rig import Mutant, Rig, expecting

SMALL = RaftConfig(append_bytes=1)


def _always_truncate(log: RaftJournal, commit_index: int, message: Append) -> Matched | Mismatch:
    verdict = judge_append(log, commit_index, message)
    if isinstance(verdict, Matched) and log.last_index > message.prev_index:
        start = message.prev_index + 1
        return Matched(start, message.entries, verdict.last_verified, verdict.commit_index)
    return verdict


def _commit_uncapped(log: RaftJournal, commit_index: int, message: Append) -> Matched | Mismatch:
    verdict = judge_append(log, commit_index, message)
    if isinstance(verdict, Matched):
        end = max(log.last_index, verdict.last_verified)
        return Matched(
            verdict.truncate_from, verdict.new, verdict.last_verified, min(message.commit_index, end)
        )
    return verdict


def _one_step_back(log: RaftJournal, commit_index: int, message: Append) -> Matched | Mismatch:
    verdict = judge_append(log, commit_index, message)
    if isinstance(verdict, Mismatch) and message.prev_index <= log.last_index:
        return Mismatch(message.prev_index)
    return verdict


def _rewind_always(self: FollowerProgress, seq: int, next_index: int) -> bool:
    self.next_index = next_index
    return True


@pytest.mark.parametrize("mutant", [None, Mutant(following, "judge_append", _always_truncate)])
def test_a_late_copy_of_an_append_takes_nothing_back(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b, first way: the old message arrives again after later entries were acknowledged."""
    with expecting(mutant, monkeypatch):
        rig = Rig()
        rig.elect(1)
        rig.cut_between((1, 2), (3,))
        ends = rig.propose(1, b"x")
        rig.settle()
        old = rig.messages(1, 2, Append)[-2:]
        later = rig.propose(1, b"y", b"z")
        rig.tick(1)
        rig.deliver(1, 2)
        rig.tick(2)
        rig.deliver(2, 1)
        rig.tick(1)  # commits; the news of it does not reach 2 any more
        assert rig.committed(ends)
        assert rig.committed(later)
        for frame in old:
            rig.inject(1, 2, frame)
        rig.kill(1)
        rig.cut.clear()
        rig.drop_all()
        rig.elect(2)
        assert rig.leaders() == [2]
        assert rig.machines[2].values == [b"x", b"y", b"z"] == rig.machines[3].values


@pytest.mark.parametrize("mutant", [None, Mutant(following, "judge_append", _always_truncate)])
def test_a_second_resend_takes_nothing_back(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """b, second way, no copies at all: a lost window makes the leader send twice, then it dies."""
    with expecting(mutant, monkeypatch):
        rig = Rig(config=SMALL)
        rig.elect(1)
        rig.cut_between((1, 2), (3,))
        ends = rig.propose(1, *(b"%d" % n for n in range(6)))
        rig.cut.add((1, 2))
        rig.tick(1)  # lost on the way
        rig.cut.discard((1, 2))
        rig.held |= {(1, 2), (2, 1)}
        rig.tick(1, seconds=0.2)  # two heartbeats behind the gap
        rig.tick(1, seconds=0.2)
        rig.deliver(1, 2)
        rig.tick(2)
        rig.deliver(2, 1, 1)  # the first asks to go back: everything is sent again
        rig.tick(1)
        rig.deliver(1, 2)
        rig.tick(2)
        rig.deliver(2, 1, 1)  # the second one is old
        rig.tick(1)
        rig.deliver(2, 1)
        rig.tick(1)
        assert rig.committed(ends)
        assert len(ends) == 6
        first = next(f for f in rig.messages(1, 2, Append)[::-1] if b"\x000" in f)
        rig.inject(1, 2, first)  # what the mutant's second resend would begin with
        rig.tick(2)
        rig.kill(1)
        rig.cut.clear()
        rig.held.clear()
        rig.drop_all()
        rig.elect(2)
        assert rig.machines[3].values == [b"%d" % n for n in range(6)]


@pytest.mark.parametrize("mutant", [None, Mutant(following, "judge_append", _commit_uncapped)])
def test_commit_follows_no_further_than_what_the_message_verified(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """b and g1: a heartbeat behind a gap must not commit the follower's own, conflicting tail."""
    with expecting(mutant, monkeypatch):
        rig = Rig(config=SMALL)
        rig.elect(1)
        rig.cut_between((1,), (2, 3))
        ghosts = rig.propose(1, b"ghost-1", b"ghost-2", b"ghost-3")
        rig.tick(1)
        rig.elect(2, 2, 3)
        ends = rig.propose(2, b"a", b"b")
        rig.settle(2, 3)
        assert rig.committed(ends)
        rig.cut.clear()
        rig.drop_all()
        rig.held |= {(1, 2)}
        rig.rafts[2].leading.followers[1].next_index = 3  # both logs agree up to 2
        frames = rig.messages(2, 3, Append)
        # The leader's news of its commit index comes with an append that verifies index 2 only.
        news = Append(term=2, seq=1, prev_index=2, prev_term=1, commit_index=5, digest=0, entries=())
        assert frames
        monkeypatch.setattr(rig.rafts[1].applier, "compare", lambda index, digest: None)
        rig.rafts[1].dispatch(2, news, rig.now)
        rig.tick(1)
        assert b"ghost-1" not in rig.machines[1].values
        assert not rig.committed(ghosts)


@pytest.mark.parametrize(
    "mutant",
    [
        None,
        Mutant(following, "judge_append", _one_step_back),
        Mutant(FollowerProgress, "rewind", _rewind_always),
    ],
)
def test_a_conflicting_tail_and_a_long_backlog_converge_in_few_messages(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """i: stock PySyncObj never gets there, with no fault active at all."""
    with expecting(mutant, monkeypatch):
        rig = Rig(config=RaftConfig(append_bytes=1, appends_in_flight=32))
        rig.elect(1)
        rig.cut_between((1,), (2, 3))
        rig.propose(1, *(b"old%d" % n for n in range(30)))
        rig.tick(1)
        rig.elect(2, 2, 3)
        new = [b"new%d" % n for n in range(40)]
        rig.propose(2, *new)
        rig.settle(2, 3)
        rig.cut.clear()
        rig.rafts[1].disconnected(2, broken=False)
        rig.rafts[1].connected(2)
        before = len(rig.messages(2, 1, Append))
        # The leader believes that 1 is up to date, and has many messages on the way before it learns.
        rig.rafts[2].leading.followers[1].next_index = 34
        rig.held |= {(2, 1), (1, 2)}
        for _ in range(4):
            rig.tick(2, seconds=0.2)
        rig.held.clear()
        rig.settle()
        assert rig.machines[1].values == new
        assert len(rig.messages(2, 1, Append)) - before < 120


def test_entries_below_the_commit_index_never_change() -> None:
    """Whatever a message says, a committed entry stays."""
    rig = Rig()
    rig.elect(1)
    rig.propose(1, b"x")
    rig.settle()
    log = rig.rafts[2].journal
    wrong = Append(
        term=9, seq=1, prev_index=1, prev_term=0, commit_index=0, digest=0, entries=((b"\x01", 2, 9),)
    )
    with pytest.raises(AssertionError, match="LEADER_COMPLETENESS"):
        judge_append(log, rig.rafts[2].state().commit_index, wrong)
