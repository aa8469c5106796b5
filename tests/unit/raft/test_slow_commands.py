"""Commands that take long are decided beside the loop: in their order, once, and nobody is deposed."""

from __future__ import annotations

import pytest

from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.messages import Ack, AppendReply, decode
from metadata_quorum.raft.port import QUICK_WEIGHT, ProposalOutcome
from tests.unit.raft.rig import Rig


def _deciding(config: RaftConfig | None = None) -> tuple[Rig, list]:
    """A slow command is being decided everywhere, two quick ones wait behind it."""
    rig = Rig(config=config)
    rig.elect(1)
    rig.jobs = []
    ends = rig.propose(1, b"first", b"slow", b"second", b"third")
    rig.run(0.4, 0.05)
    return rig, ends


def test_what_follows_waits_its_turn() -> None:
    rig, ends = _deciding()
    assert len(ends) == 1
    assert rig.machines[1].values == [b"first"]
    rig.run(6.0, 0.05)  # longer than any timeout but the proposals'
    assert rig.leaders() == [1]
    assert len(ends) == 1
    rig.run_jobs()  # the leader's; followers hear of the commit then
    rig.run(0.5, 0.05)
    rig.run_jobs()
    rig.run(0.5, 0.05)
    assert rig.committed(ends)
    assert len(ends) == 4
    for machine in rig.machines.values():
        assert machine.values == [b"first", b"slow", b"second", b"third"]


def test_a_leader_is_deposed_while_it_decides() -> None:
    rig, ends = _deciding()
    rig.cut_between((1,), (2, 3))
    rig.elect(2, 2, 3)
    rig.cut.clear()
    rig.run(1.0, 0.05)
    assert [end.outcome for end in ends[1:]] == [ProposalOutcome.UNKNOWN] * 3
    for _ in range(3):
        rig.run_jobs()
        rig.run(0.5, 0.05)
    for machine in rig.machines.values():
        assert machine.values == [b"first", b"slow", b"second", b"third"]
    assert len(ends) == 4


@pytest.mark.parametrize("victim", [1, 2])
def test_killed_while_it_decides(victim: int) -> None:
    rig, _ = _deciding()
    rig.jobs = None
    rig.kill(victim)
    rig.start(victim)
    rig.elect(3)
    rig.run(1.0, 0.05)
    assert rig.machines[victim].values == [b"first", b"slow", b"second", b"third"]


def test_a_snapshot_waits_for_who_decides() -> None:
    """It lags by more than the log holds, and is still deciding."""
    config = RaftConfig(snapshot_entries=10, snapshot_chunk_bytes=1 << 16)
    rig = Rig(config=config)
    rig.elect(1)
    rig.propose(1, b"slow")
    held: list = []
    rig.jobs = held
    rig.settle(1)
    rig.jobs = None
    rig.run(0.3, 0.05, 1, 2)
    rig.jobs = list(held)
    rig.run_jobs()
    rig.jobs = []
    rig.run(0.3, 0.05)
    deciding, rig.jobs = rig.jobs, None
    rig.cut_between((3,), (1, 2))
    values = [b"%d" % n for n in range(30)]
    rig.propose(1, *values)
    rig.run(0.5, 0.05)
    rig.cut.clear()
    rig.run(1.0, 0.05)
    for work, done in deciding:
        done(work())
    rig.run(2.0, 0.05)
    for machine in rig.machines.values():
        assert machine.values == [b"slow", *values]


def test_busy_is_no_answer_about_the_log() -> None:
    rig = Rig()
    rig.elect(1)
    rig.propose(1, b"a")
    rig.settle()
    follower = rig.rafts[1].leading.followers[2]
    before = follower.next_index
    busy = AppendReply(rig.rafts[1].term, follower.seq, Ack.BUSY, 0, True)
    rig.rafts[1].leading.append_reply(2, busy, rig.now)
    assert follower.next_index == before
    assert rig.rafts[1].is_leader
    assert not [f for f in rig.messages(2, 1, AppendReply) if decode(f).message.ack == Ack.BUSY]


def test_what_a_restart_brings_is_shared_out_over_many_turns() -> None:
    """Each as quick as may be, together they would stop the loop."""
    rig = Rig(voters=1)
    rig.elect(1)
    rig.machines[1].weight = lambda command: QUICK_WEIGHT // 10
    values = [b"%d" % n for n in range(100)]
    ends = rig.propose(1, *values)
    rig.tick(1)
    raft, machine = rig.rafts[1], rig.machines[1]
    turns = 0
    while len(machine.values) < len(values):
        applied = len(machine.values)
        assert raft.next_tick_in() == 0.0
        rig.tick(1)
        assert 0 < len(machine.values) - applied <= 10
        turns += 1
    assert turns >= 9
    assert machine.values == values
    rig.tick(1)
    assert rig.committed(ends)
