"""Findings g4, j, k: what becomes of a proposal, and of a state machine that breaks its word."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

import pytest

from metadata_quorum.foundation.invariants import InvariantViolation
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.port import Applied, ProposalOutcome
from metadata_quorum.raft.proposals import Proposal, Proposals
from metadata_quorum.raft.voter import SyncObjRaft
from tests.unit.raft.rig import Mutant, Rig, expecting


def _take_all(self: Proposals, term: int) -> Iterator[Proposal]:
    while term >= 0 and self._queue:
        yield self._queue.popleft()


@contextmanager
def _unguarded(self: SyncObjRaft) -> Iterator[None]:
    self.core.read_clock(self._now())
    yield


def test_a_proposal_ends_committed_with_the_answer_of_apply() -> None:
    rig = Rig()
    rig.elect(1)
    (index, _, _) = rig.log(1)[-1]
    ends = rig.propose(1, b"x")
    assert ends == []  # never from inside propose
    rig.settle()
    assert ends == [Applied(ProposalOutcome.COMMITTED, index + 1, rig.rafts[1].term, b"did x")]


def test_a_follower_refuses() -> None:
    rig = Rig()
    rig.elect(1)
    ends = rig.propose(2, b"x")
    assert ends == []
    assert rig.rafts[2].next_tick_in() == 0.0
    rig.settle()
    assert [end.outcome for end in ends] == [ProposalOutcome.REFUSED]
    assert rig.machines[1].values == []


def test_a_command_beyond_the_limit_is_refused_and_one_beyond_a_batch_arrives() -> None:
    """l: stock PySyncObj cuts an entry larger than its batch into pieces that do not fit together."""
    rig = Rig(config=RaftConfig(append_bytes=100, max_command_bytes=5000))
    rig.elect(1)
    too_large = rig.propose(1, b"x" * 5001)
    values = [b"a" * 5000, b"b", b"c" * 101, b"d" * 100, b"e" * 99]
    ends = rig.propose(1, *values)
    rig.settle()
    assert [end.outcome for end in too_large] == [ProposalOutcome.TOO_LARGE]
    assert rig.committed(ends)
    assert all(machine.values == values for machine in rig.machines.values())


@pytest.mark.row("Q7")
@pytest.mark.parametrize("mutant", [None, Mutant(Proposals, "take", _take_all)])
def test_a_deposed_leaders_queue_is_refused(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """k: a decision of term 1 must not commit in term 3, nor under another leader."""
    with expecting(mutant, monkeypatch):
        rig = Rig()
        rig.elect(1)
        ends = rig.propose(1, b"decided in term 1")
        rig.elect(2, 2, 3)
        rig.elect(1)
        rig.run(1.0)
        assert [end.outcome for end in ends] == [ProposalOutcome.REFUSED]
        assert all(machine.values == [] for machine in rig.machines.values())


@pytest.mark.row("Q7")
def test_what_a_deposed_leader_had_in_its_log_ends_unknown_before_it_is_notified(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    rig = Rig()
    rig.elect(1)
    rig.cut_between((1,), (2, 3))
    ends = rig.propose(1, b"lost")
    rig.tick(1)
    rig.elect(2, 2, 3)
    told_with: list[int] = []
    machine = rig.machines[1]
    monkeypatch.setattr(machine, "lost_leadership", lambda term: told_with.append(len(ends)))
    rig.cut.clear()
    rig.run(1.0)
    assert [end.outcome for end in ends] == [ProposalOutcome.UNKNOWN]
    assert told_with == [1]
    assert machine.values == []


def test_a_proposal_without_an_end_becomes_unknown_once() -> None:
    """j: stock callbacks may never fire."""
    rig = Rig(config=RaftConfig(proposal_timeout_ms=1500))
    rig.elect(1)
    rig.cut_between((1,), (2, 3))
    ends = rig.propose(1, b"x")
    rig.tick(1)
    assert rig.rafts[1].next_tick_in() <= 1.5
    rig.run(1.6, 0.1, 1)
    assert [end.outcome for end in ends] == [ProposalOutcome.UNKNOWN]
    rig.cut.clear()
    rig.run(1.0)
    assert rig.machines[2].values == [b"x"]  # it did commit: nobody could have known
    assert len(ends) == 1


@pytest.mark.parametrize("mutant", [None, Mutant(SyncObjRaft, "_at_work", _unguarded)])
def test_an_apply_that_raises_ends_the_voter(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """j: stock PySyncObj applies the entry again, on this voter only."""
    with expecting(mutant, monkeypatch):
        rig = Rig()
        rig.elect(1)
        rig.machines[2].raises = RuntimeError("a bug")
        rig.propose(1, b"x")
        with pytest.raises(InvariantViolation, match="APPLY_NEVER_RAISES"):
            rig.settle()
        rig.machines[2].raises = None
        with pytest.raises(InvariantViolation):
            rig.tick(2)
        with pytest.raises(InvariantViolation):
            rig.rafts[2].receive(1, rig.sent[-1][2])
        assert rig.machines[2].values == []


def test_a_proposer_that_raises_is_called_once_and_nothing_is_applied_twice() -> None:
    rig = Rig(1)
    rig.elect(1)
    outcomes = []

    def bad(applied: Applied) -> None:
        outcomes.append(applied)
        raise RuntimeError("client gone")

    rig.rafts[1].propose(b"once", bad)
    with pytest.raises(InvariantViolation, match="RAFT_NEVER_RAISES"):
        rig.settle()
    with pytest.raises(InvariantViolation):
        rig.tick()
    assert len(outcomes) == 1
    rig.kill(1)
    rig.start(1)
    rig.elect(1)
    assert rig.machines[1].values == [b"once"]


def test_closing_ends_what_is_open() -> None:
    rig = Rig()
    rig.elect(1)
    appended = rig.propose(1, b"x")
    rig.tick(1)
    queued = rig.propose(1, b"y")
    rig.rafts[1].close()
    assert [end.outcome for end in (*appended, *queued)] == [ProposalOutcome.UNKNOWN, ProposalOutcome.REFUSED]


def test_voters_are_static() -> None:
    """g4: PySyncObj's membership and version commands reach neither the log nor the node set."""
    rig = Rig()
    rig.elect(1)
    core = rig.rafts[1].core
    before = rig.log(1)
    for command_type in (2, 3):
        core._applyCommand(b"", None, command_type)
    rig.run(1.0)
    assert rig.log(1) == before
    assert len(core.otherNodes) == 2
    assert len(rig.rafts) == 3


def test_state_reports_who_leads_and_who_lags() -> None:
    rig = Rig()
    rig.elect(1)
    rig.cut_between((3,), (1, 2))
    rig.propose(1, b"x")
    rig.settle()
    state = rig.rafts[1].state()
    assert state.leader_id == 1
    assert state.match_index == {1: state.last_index, 2: state.last_index, 3: state.last_index - 1}
    assert state.commit_index == state.last_index
    assert set(state.last_contact) == {1, 2, 3}
    follower = rig.rafts[2].state()
    assert (follower.leader_id, follower.term, follower.match_index) == (1, state.term, {})
