"""Finding e, and failover: who asks for votes when, and who helps."""

from __future__ import annotations

import dataclasses
from contextlib import nullcontext
from random import Random

import pytest

from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.election import Elections
from metadata_quorum.raft.messages import Ack, Append, AppendReply, decode
from tests.unit.raft.rig import Mutant, Rig, expecting


def _free(voters: int = 3, config: RaftConfig | None = None) -> Rig:
    """A rig in which elections happen by themselves; with a leader."""
    rig = Rig(voters, config)
    rig.elections_held = False
    for i in rig.ids:
        rig.rafts[i].elections.due_at = rig.now + i * 0.1
    rig.run(1.0)
    assert len(rig.leaders()) == 1
    return rig


@pytest.mark.row("Q1")
@pytest.mark.parametrize("voters", [1, 3, 5])
def test_a_quorum_elects_and_commits_with_a_minority_down(voters: int) -> None:
    rig = _free(voters)
    (leader,) = rig.leaders()
    ends = rig.propose(leader, b"x")
    rig.settle()
    assert rig.committed(ends)
    for i in rig.ids[-(voters // 2) :] if voters > 1 else []:
        rig.kill(i)
    rig.run(3.0)
    (leader,) = rig.leaders()
    ends = rig.propose(leader, b"y")
    rig.settle()
    assert rig.committed(ends)


@pytest.mark.row("Q1")
def test_a_minority_side_commits_nothing() -> None:
    rig = _free(5)
    (leader,) = rig.leaders()
    friend = next(i for i in rig.ids if i != leader)
    rest = tuple(i for i in rig.ids if i not in (leader, friend))
    rig.cut_between((leader, friend), rest)
    minority = rig.propose(leader, b"lost")
    rig.run(5.0)
    (new,) = rig.leaders()
    assert new in rest
    majority = rig.propose(new, b"kept")
    rig.settle()
    assert rig.committed(majority)
    assert not rig.committed(minority)
    rig.cut.clear()
    rig.run(3.0)
    assert all(machine.values == [b"kept"] for machine in rig.machines.values())


@pytest.mark.parametrize("check_quorum_ms", [2000, 10**9])
def test_a_deaf_leader_steps_down(check_quorum_ms: int) -> None:
    """e: it hears nobody, everybody hears it. Without the check it would lead for ever."""
    with pytest.raises(AssertionError) if check_quorum_ms == 10**9 else nullcontext():
        rig = _free(config=RaftConfig(check_quorum_ms=check_quorum_ms))
        (deaf,) = rig.leaders()
        others = [i for i in rig.ids if i != deaf]
        rig.cut |= {(other, deaf) for other in others}
        rig.run(8.0)
        (leader,) = rig.leaders()
        assert leader in others
        ends = rig.propose(leader, b"x")
        rig.settle()
        assert rig.committed(ends)
        assert rig.rafts[leader].term <= 4


@pytest.mark.parametrize(
    "mutant",
    [
        None,
        Mutant(Elections, "won", lambda self, majority: True),
        Mutant(Elections, "sticks", lambda self, now: False),
    ],
)
def test_a_follower_that_does_not_hear_the_leader_disturbs_nobody(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """e: pre-vote and stickiness; else terms grow for as long as the cut lasts."""
    with expecting(mutant, monkeypatch):
        rig = _free()
        (leader,) = rig.leaders()
        term = rig.rafts[leader].term
        poor = next(i for i in rig.ids if i != leader)
        rig.cut.add((leader, poor))
        rig.run(20.0, 0.05)
        assert rig.leaders() == [leader]
        assert {raft.term for raft in rig.rafts.values()} == {term}
        ends = rig.propose(leader, b"x")
        rig.settle()
        assert rig.committed(ends)


def test_a_voter_with_a_higher_term_is_taken_back() -> None:
    """Pre-vote keeps it from deposing the leader; the answer to the leader's append tells the term,
    so that it does not stay outside for ever."""
    rig = _free()
    (leader,) = rig.leaders()
    other = next(i for i in rig.ids if i != leader)
    rig.rafts[other].core.adopt_term(7)
    rig.run(4.0)
    assert len(rig.leaders()) == 1
    assert len({raft.term for raft in rig.rafts.values()}) == 1
    assert rig.rafts[leader].term > 7


@pytest.mark.row("Q7")
@pytest.mark.parametrize("mutant", [None, Mutant(Elections, "leader_link_broken", lambda self, now: None)])
def test_a_killed_leader_is_replaced_in_a_third_of_a_second(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its connections break; nobody waits for the election timeout."""
    with expecting(mutant, monkeypatch):
        gaps = []
        for seed in range(15):
            rig = _free()
            for i in rig.ids:
                rig.rafts[i].elections.random = Random(seed * 10 + i)
            (leader,) = rig.leaders()
            ends = rig.propose(leader, b"x")
            rig.settle()
            assert rig.committed(ends)
            rig.kill(leader)
            died = rig.now
            while not rig.leaders():
                rig.run(0.01, 0.01)
                assert rig.now < died + 5.0
            (new,) = rig.leaders()
            assert rig.machines[new].values == [b"x"]
            gaps.append(rig.now - died)
        assert sorted(gaps)[7] < 0.3
        assert max(gaps) < 1.0


@pytest.mark.row("Q7")
@pytest.mark.parametrize("mutant", [None, Mutant(Elections, "leader_gone", lambda self, now: None)])
def test_a_leader_that_is_proved_dead_is_replaced_without_grace(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Its host refuses connections to it: there is nothing to wait for but each other."""
    with expecting(mutant, monkeypatch):
        gaps = []
        for seed in range(15):
            rig = _free()
            for i in rig.ids:
                rig.rafts[i].elections.random = Random(seed * 10 + i)
            (leader,) = rig.leaders()
            rig.kill(leader)
            died = rig.now
            for i in rig.ids:
                if i != leader:
                    rig.rafts[i].refused(leader)
            while not rig.leaders():
                rig.run(0.005, 0.005)
                assert rig.now < died + 5.0
            gaps.append(rig.now - died)
        assert sorted(gaps)[7] < 0.1


def test_to_be_refused_by_a_leader_that_is_heard_means_nothing() -> None:
    rig = _free()
    (leader,) = rig.leaders()
    for i in rig.ids:
        if i != leader:
            rig.rafts[i].refused(leader)
    term = rig.rafts[leader].term
    rig.run(3.0)
    assert rig.leaders() == [leader]
    assert rig.rafts[leader].term == term


def test_a_broken_connection_that_comes_back_deposes_nobody() -> None:
    """A reset on the way, not a death: the leader stays, in the same term."""
    rig = _free()
    (leader,) = rig.leaders()
    term = rig.rafts[leader].term
    for _ in range(5):
        for peer in rig.ids:
            if peer != leader:
                rig.rafts[peer].disconnected(leader, broken=True)
                rig.rafts[leader].disconnected(peer, broken=True)
        rig.run(0.05)
        for peer in rig.ids:
            if peer != leader:
                rig.rafts[peer].connected(leader)
                rig.rafts[leader].connected(peer)
        rig.run(1.5)
    assert rig.leaders() == [leader]
    assert rig.rafts[leader].term == term


def test_one_broken_link_does_not_convince_the_others() -> None:
    """Only one follower lost its connection: the others still hear the leader and stick to it."""
    rig = _free()
    (leader,) = rig.leaders()
    term = rig.rafts[leader].term
    poor = next(i for i in rig.ids if i != leader)
    rig.rafts[poor].disconnected(leader, broken=True)
    rig.cut_between((leader,), (poor,))
    rig.run(10.0, 0.05)
    assert rig.leaders() == [leader]
    assert rig.rafts[leader].term == term


def test_a_restarted_leader_says_so() -> None:
    """It comes back before anybody noticed, without its leadership: no one waits for its heartbeats."""
    rig = _free()
    (leader,) = rig.leaders()
    rig.kill(leader)
    rig.start(leader)
    started = rig.now
    while not rig.leaders():
        rig.run(0.01)
    assert rig.now < started + 0.9


def test_figures_that_cannot_work_are_refused() -> None:
    for wrong in (
        {"election_timeout_min_ms": 2000},
        {"heartbeat_ms": 400},
        {"check_quorum_ms": 300},
        {"append_bytes": 0},
    ):
        with pytest.raises(ValueError):
            dataclasses.replace(RaftConfig(), **wrong)


def test_a_link_that_keeps_coming_back_is_no_sign_of_life() -> None:
    """Before a dead leader stands a proxy that accepts and hangs up; its followers stand all the same."""
    config = RaftConfig()
    elections = Elections(config, Random(3), 0.0, alone=False)
    elections.heard_leader(0.0)
    now = 0.0
    while now < elections.due_at:
        elections.leader_link_broken(now)
        elections.leader_link_back()
        now += 0.03
    assert config.election_timeout_min_ms / 1000 <= now <= config.election_timeout_max_ms / 1000 + 0.03


@pytest.mark.parametrize("late", ["vote first", "pre-vote first"])
def test_a_pre_vote_that_comes_late_arms_no_sitting_leader(late: str) -> None:
    """Armed, it would raise its term alone as soon as it is cut off, and depose whoever leads then."""
    rig = Rig()
    rig.elections_held = False

    def due(i: int) -> None:
        rig.rafts[i].elections.due_at = rig.now
        rig.tick(i)

    for i in rig.ids:
        rig.rafts[i].elections.due_at = float("inf")
    due(1)
    rig.deliver(1, 2)
    rig.tick(2)
    rig.deliver(2, 1)
    rig.tick(1)  # a candidate in term 1; its vote is slow
    rig.now += 0.5
    rig.tick(1)  # it has lived that long: time in which it stood still would not count
    due(1)  # so it asks for term 2
    rig.deliver(1, 2)
    rig.tick(2)
    assert len(rig.queue[2, 1]) > 1, "a vote and a pre-vote are on their way"
    if late == "pre-vote first":
        rig.queue[2, 1].reverse()
    rig.deliver(2, 1)
    rig.tick(1)
    assert rig.rafts[1].is_leader
    term = rig.rafts[1].term
    rig.run(0.5, 0.05)
    rig.cut_between((1,), (2, 3))
    rig.run(6.0, 0.05)
    assert rig.rafts[1].term == term


def test_the_first_message_of_a_leader_brings_its_first_entry() -> None:
    """Not a question first, and the entry after the answer."""
    rig = Rig()
    rig.elect(1)
    rig.propose(1, b"a")
    rig.settle()
    rig.sent.clear()
    rig.rafts[2].core.start_election()
    rig.settle()
    first, *_ = rig.messages(2, 3, Append)
    (entry,) = decode(first).message.entries
    assert entry[1] == rig.rafts[2].journal.last_index
    assert [decode(f).message.ack for f in rig.messages(3, 2, AppendReply)] == [Ack.MATCHED] * 2


@pytest.mark.parametrize("first", ["timers", "sockets"])
@pytest.mark.parametrize("stall_s", [1.5, 2.2, 20.0])
def test_to_stand_still_together_deposes_nobody(stall_s: float, first: str) -> None:
    """A busy machine, a large snapshot at the same entry: silence is what was lived through."""
    rig = _free()
    (leader,) = rig.leaders()
    term = rig.rafts[leader].term
    for _ in range(3):
        rig.run(0.7, 0.02)
        rig.tick(leader, seconds=0.16)  # a heartbeat is on its way
        rig.now += stall_s
        if first == "timers":
            rig.tick(*rig.ids)
        rig.run(1.0, 0.02)
        assert rig.leaders() == [leader]
        assert {raft.term for raft in rig.rafts.values()} == {term}


def test_who_goes_on_before_the_leader_does_not_depose_it() -> None:
    """All waited for a disk, and the leader longest: the others hear of each other first."""
    rig = _free()
    (leader,) = rig.leaders()
    term = rig.rafts[leader].term
    rig.run(0.5, 0.02)
    rig.now += 5.0
    rig.settle(*(i for i in rig.ids if i != leader))
    rig.run(1.0, 0.02)
    assert rig.leaders() == [leader]
    assert {raft.term for raft in rig.rafts.values()} == {term}


def test_a_leader_that_died_while_all_stood_still_is_replaced() -> None:
    rig = _free()
    (leader,) = rig.leaders()
    rig.run(0.5, 0.02)
    rig.cut_between((leader,), tuple(i for i in rig.ids if i != leader))  # nothing tells them
    rig.now += 5.0
    rig.run(2.5, 0.02)
    (new,) = (i for i in rig.leaders() if i != leader)
    ends = rig.propose(new, b"x")
    rig.run(0.1, 0.02)
    assert rig.committed(ends)
