"""Findings c, c': what a leader believes. An answer belongs to one leadership, a vote counts once."""

from __future__ import annotations

import pytest

from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.election import Votes
from metadata_quorum.raft.leading import Leading
from metadata_quorum.raft.messages import AppendReply, VoteReply, encode
from metadata_quorum.raft.replication import FollowerProgress
from tests.unit.raft.rig import Mutant, Rig, expecting

_heard = Leading._heard


def _heard_in_any_term(
    self: Leading, peer: int, term: int, seq: int, now: float | None
) -> FollowerProgress | None:
    return _heard(self, peer, self._core.term, seq, now)


@pytest.mark.row("Q7")
@pytest.mark.parametrize("mutant", [None, Mutant(Leading, "_heard", _heard_in_any_term)])
def test_an_answer_from_an_earlier_leadership_is_void(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """c: pure delay, five voters; stock PySyncObj commits with two copies of five."""
    with expecting(mutant, monkeypatch):
        rig = Rig(5)
        rig.elect(1)
        rig.held.add((2, 1))  # slow from now on
        rig.cut_between((1, 2), (3, 4, 5))
        rig.propose(1, b"x3", b"x4", b"x5")
        rig.tick(1)
        rig.deliver(1, 2)
        rig.tick(2)  # the answer "up to 5" is on its way to 1
        assert [entry[0] for entry in rig.log(2)][-1] == 5
        rig.elect(3, 3, 4, 5)
        rig.cut.clear()
        for _ in range(4):
            rig.tick(seconds=0.2)
            rig.settle()
        assert rig.log(1)[-1][:2] == rig.log(2)[-1][:2] == (3, 2)
        # 1 leads again, and only 4 gets its entries.
        rig.cut_between((3,), (1, 2, 4, 5))
        rig.elect(1)
        assert rig.leaders() == [1, 3]
        rig.held |= {(1, 2), (1, 5)}
        ends = rig.propose(1, b"y")
        rig.settle()
        holders = [i for i in rig.ids if any(entry[2] == b"y" for entry in rig.log(i))]
        assert holders == [1, 4]
        rig.deliver(2, 1)
        rig.settle()
        assert not rig.committed(ends)
        rig.held.clear()
        rig.settle()
        assert rig.committed(ends)


@pytest.mark.parametrize("mutant", [None, Mutant(Votes, "counts", lambda self, term, voter: True)])
def test_a_copy_of_a_vote_is_not_another_vote(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """c': else one voter's answer, arriving twice, makes a second leader in the term."""
    with expecting(mutant, monkeypatch):
        rig = Rig(5)
        rig.cut_between((1, 2), (3, 4, 5))
        rig.elect(1)
        (vote,) = rig.messages(2, 1, VoteReply)
        rig.inject(2, 1, vote)
        rig.tick(1)
        rig.elect(3)
        assert rig.leaders() == [3]


def test_an_answer_beyond_the_end_of_the_log_is_malformed() -> None:
    """A peer cannot talk the leader into committing what nobody has."""
    rig = Rig()
    rig.elect(1)
    follower = rig.rafts[1].leading.followers[2]
    lie = AppendReply(rig.rafts[1].term, follower.seq, 0, 1000, True)
    with pytest.raises(ValueError, match="acknowledges 999"):
        rig.rafts[1].receive(2, encode(rig.rafts[1].incarnations[2], lie))
    ends = rig.propose(1, b"x")
    rig.settle()
    assert rig.committed(ends)


@pytest.mark.row("Q7")
def test_an_entry_of_an_earlier_term_is_committed_by_one_of_the_own_term_only() -> None:
    """Raft's figure 8: a majority holds it, and yet another leader may replace it."""
    rig = Rig(config=RaftConfig(append_bytes=1))  # one entry per message
    rig.elect(1)
    rig.cut_between((1,), (2, 3))
    rig.propose(1, b"x")
    rig.tick(1)
    index = next(entry[0] for entry in rig.log(1) if entry[2] == b"x")
    rig.cut.clear()
    rig.cut_between((2,), (1, 3))
    rig.rafts[1].core.adopt_term(rig.rafts[1].core.term + 1)
    rig.rafts[1].core.start_election()
    for _ in range(100):
        rig.tick(1, seconds=0.05)
        rig.deliver(1, 3, 1)
        rig.tick(3)
        rig.deliver(3, 1, 1)
        rig.tick(1)
        own_term = rig.rafts[3].journal.last_term == rig.rafts[1].core.term
        assert rig.rafts[1].core.commit_index < index or own_term
    assert rig.rafts[1].core.commit_index > index
