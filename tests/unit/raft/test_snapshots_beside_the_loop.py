"""Snapshots are written, read and taken in beside the loop, while Raft goes on."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.sim.disk import SimDisk
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.raft import snapshots
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.journal import GENESIS
from metadata_quorum.raft.messages import SnapshotChunk, decode
from metadata_quorum.raft.snapshots import Snapshot
from tests.support.may_block import MAY_BLOCK
from tests.unit.raft.lagging import CHUNKED, lagging_follower, some_values
from tests.unit.raft.rig import DIRECTORY, Rig


def test_the_pieces_of_a_snapshot_are_put_together_beside_the_loop() -> None:
    rig, values = lagging_follower(CHUNKED)
    rig.jobs = []
    rig.run(1.0)
    installs = len(rig.jobs)
    assert installs == 1
    assert rig.machines[1].values != values
    rig.run_jobs()
    rig.jobs = None
    rig.run(1.0)
    assert rig.machines[1].values == values


def _taken(index: int, rig: Rig) -> bool:
    return rig.rafts[index].journal.base_index > GENESIS[1]


def test_entries_go_on_while_a_snapshot_is_written_beside_the_loop() -> None:
    rig = Rig(config=CHUNKED)
    rig.elect(1)
    rig.jobs = []
    values = some_values(15)
    rig.propose(1, *values)
    rig.settle()
    assert len(rig.jobs) == 3  # one each, however long it takes
    more = rig.propose(1, *some_values(15, 15))
    rig.settle()
    assert rig.committed(more)
    assert len(rig.jobs) == 3
    assert not any(_taken(i, rig) for i in rig.ids)
    rig.run_jobs()
    assert all(_taken(i, rig) for i in rig.ids)
    rig.settle()
    rig.jobs = None
    for i in rig.ids:
        rig.kill(i, power=True, seed=i)
        rig.start(i)
    rig.elect(2)
    assert rig.machines[2].values == some_values(30)


def test_a_snapshot_that_is_written_when_a_newer_one_of_the_leader_has_come_changes_nothing() -> None:
    """A slow disk, and a follower that was cut off meanwhile. The log is not what it was when it began."""
    rig = Rig(config=CHUNKED)
    rig.elect(1)
    rig.jobs = []
    rig.held.add((1, 3))
    rig.propose(1, *some_values(15))
    rig.settle(1, 2)
    rig.run_jobs()
    rig.held.clear()
    rig.settle()
    ((work, done),) = rig.jobs
    rig.jobs = None
    rig.cut_between((3,), (1, 2))
    rig.propose(1, *some_values(30, 15))
    rig.settle()
    rig.cut.clear()
    rig.rafts[1].disconnected(3, broken=False)
    rig.rafts[1].connected(3)
    rig.run(1.0)
    base = rig.rafts[3].journal.base_index
    assert rig.machines[3].values == some_values(45)
    done(work())
    assert rig.rafts[3].journal.base_index == base
    more = rig.propose(1, b"more")
    rig.run(0.5)
    assert rig.committed(more)
    assert rig.log(3) == rig.log(1)


@pytest.mark.parametrize("died", ["before it was written", "before it was noticed"])
def test_killed_while_a_snapshot_is_written(died: str) -> None:
    rig = Rig(1, config=CHUNKED)
    rig.elect(1)
    rig.jobs = []
    rig.propose(1, *some_values(15))
    rig.settle()
    ((work, _),) = rig.jobs
    if died == "before it was noticed":
        work()
    rig.jobs = None
    rig.kill(1)
    rig.start(1)
    rig.elect(1)
    assert rig.machines[1].values == some_values(15)


@pytest.mark.parametrize("how", ["done", "killed", "deposed"])
def test_a_follower_takes_a_snapshot_in_beside_the_loop(how: str) -> None:
    """For longer than any timeout; the leader hears meanwhile that it lives, and sends nothing again."""
    rig, values = lagging_follower()
    rig.jobs = []
    rig.cut_between((3,), (1, 2))  # so that 2 needs 1's answers to stay
    rig.run(0.1)
    rig.run_jobs()  # the leader has read what it sends
    rig.run(0.5)
    assert len(rig.jobs) == 1
    sent = len(rig.messages(2, 1, SnapshotChunk))
    rig.run(5.0)
    assert rig.leaders() == [2]
    assert all(decode(f).message.data == b"" for f in rig.messages(2, 1, SnapshotChunk)[sent:]), (
        "nothing but probes"
    )
    assert rig.machines[1].values == []
    if how == "deposed":
        rig.cut.clear()
        rig.elect(3)
        rig.run(0.5)
    if how == "killed":
        ((work, _),) = rig.jobs
        work()
        rig.jobs = None
        rig.kill(1)
        rig.start(1)
    else:
        rig.run_jobs()
    rig.run(1.0)
    assert rig.machines[1].values == values
    (leader,) = rig.leaders()
    more = rig.propose(leader, b"more")
    rig.run(0.5)
    assert rig.committed(more)
    assert rig.log(1) == rig.log(leader)


def test_a_snapshot_is_read_beside_the_loop_while_heartbeats_go_on() -> None:
    rig, values = lagging_follower()
    rig.jobs = []
    rig.cut_between((3,), (1, 2))  # so that 2 needs 1's answers to stay
    rig.elections_held = False
    rig.run(5.0, 0.05)  # longer than any timeout
    assert len(rig.jobs) == 1
    assert not rig.messages(2, 1, SnapshotChunk)
    assert rig.leaders() == [2]
    assert rig.rafts[1].leader_id == 2
    rig.run_jobs()
    rig.jobs = None
    rig.run(1.0, 0.05)
    assert rig.machines[1].values == values


def test_a_snapshot_that_was_read_for_nobody_is_dropped() -> None:
    """Another leads meanwhile."""
    rig, values = lagging_follower()
    rig.jobs = []
    rig.run(0.5, 0.05)
    held, rig.jobs = rig.jobs, None
    assert held
    rig.elect(3)
    for work, done in held:
        done(work())
    rig.run(1.0, 0.05)
    assert not rig.messages(2, 1, SnapshotChunk)
    assert rig.machines[1].values == values


def test_a_snapshot_whose_place_a_newer_one_takes_while_it_is_read() -> None:
    disk = SimDisk()
    disk.make_dirs(DIRECTORY)
    store = snapshots.SnapshotStore(disk, DIRECTORY)
    store.save(Snapshot.of(1, 1, 0, b"old"))
    read = disk.read_bytes

    def late(path: str, may_block: MayBlock) -> bytes:
        disk.read_bytes = read
        store.save(Snapshot.of(2, 1, 0, b"new"))
        store.prune(2)
        return read(path, may_block)

    disk.read_bytes = late
    latest = store.latest()
    assert latest is not None
    assert latest.data == b"new"


def test_what_a_killed_write_left_is_removed_at_the_start() -> None:
    disk = SimDisk()
    disk.make_dirs(DIRECTORY)
    for name in ("snapshot-00000000000000000007.tmp", "snapshot-00000000000000000009.tmp"):
        disk.open(f"{DIRECTORY}/{name}", create=True)
    snapshots.SnapshotStore(disk, DIRECTORY)
    assert disk.list(DIRECTORY, MAY_BLOCK) == []


def _lead_alone(rig: Rig) -> None:
    """2 wins with the vote of 3, which hears nothing of it afterwards."""
    rig.rafts[2].core.start_election()
    rig.tick(2)
    rig.deliver(2, 3)
    rig.tick(3)
    rig.deliver(3, 2)
    rig.tick(2)
    assert rig.leaders() == [2]
    rig.drop_all()


def test_who_takes_a_snapshot_in_does_not_seek_to_lead_meanwhile() -> None:
    """1 could: it has what is committed, and more. But it was killed before it knew that, and is given a
    snapshot by a leader whose own entries are others."""
    rig = Rig(config=RaftConfig(append_bytes=1, appends_in_flight=15))
    rig.kill(2)
    rig.config = replace(rig.config, snapshot_entries=10)
    rig.start(2)
    rig.config = replace(rig.config, snapshot_entries=1000)
    rig.elect(1)
    rig.propose(1, *some_values(18))
    rig.tick(1)
    for peer in (2, 3):  # fifteen of them
        rig.deliver(1, peer)
        rig.tick(peer)
        rig.deliver(peer, 1)
    rig.tick(1)
    rig.deliver(1, 2, 1)  # one more, and that the fifteen are committed
    rig.tick(2)
    base = rig.rafts[2].journal.base_index
    assert base > 10
    rig.kill(1)
    rig.drop_all()
    _lead_alone(rig)
    rig.kill(2)
    rig.start(2)
    _lead_alone(rig)
    rig.cut_between((3,), (2,))
    rig.start(1)
    rig.jobs = []
    rig.settle(1, 2)
    rig.run_jobs()  # 2 has read what it sends
    rig.settle(1, 2)
    assert len(rig.jobs) == 1
    assert rig.rafts[1].journal.last_index > base
    rig.kill(2)
    rig.cut.clear()
    rig.elections_held = False
    rig.run(5.0, 0.05, 1, 3)
    assert rig.leaders() == []
    rig.run_jobs()
    rig.jobs = None
    rig.run(3.0, 0.05, 1, 3)
    assert rig.leaders() == [1]
    assert rig.machines[3].values == some_values(18)
