"""Finding g: snapshots that are half there, late, damaged, or on their way."""

from __future__ import annotations

import errno
from random import Random

import pytest

from chaos.sim.disk import SimDisk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.invariants import InvariantViolation
from metadata_quorum.raft import snapshots
from metadata_quorum.raft.applier import Applier
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.following import Following
from metadata_quorum.raft.journal import GENESIS, RaftJournal
from metadata_quorum.raft.messages import AppendReply, MalformedFrame, SnapshotChunk, decode, encode
from metadata_quorum.raft.snapshots import Snapshot
from tests.support.may_block import MAY_BLOCK
from tests.unit.raft.lagging import CHUNKED, lagging_follower, some_values
from tests.unit.raft.rig import DIRECTORY, Mutant, Rig, expecting, last_message

_trim_to = RaftJournal.trim_to


class Died(BaseException):
    """The process was killed at this operation."""


def test_a_lagging_follower_gets_the_snapshot_in_chunks() -> None:
    rig, values = lagging_follower()
    rig.settle()
    assert rig.machines[1].values == values
    chunks = [decode(f).message for f in rig.messages(2, 1, SnapshotChunk)]
    assert len(chunks) > 5
    assert all(isinstance(c, SnapshotChunk) and len(c.data) <= 16 for c in chunks)
    assert rig.log(1) == rig.log(2)


def test_a_transfer_survives_lost_chunks_and_copies() -> None:
    rig, values = lagging_follower()
    rig.tick()
    rig.deliver(1, 2)
    random = Random(5)
    for _ in range(200):
        rig.tick(seconds=0.16)
        for link in ((2, 1), (1, 2)):
            if random.random() < 0.3:
                rig.queue[link].clear()
            for frame in list(rig.queue[link])[:1]:
                rig.inject(*link, frame)
            rig.deliver(*link)
        rig.deliver(2, 3)
        rig.deliver(3, 2)
    assert rig.machines[1].values == values


def _commits_its_tail(self: Following, peer: int, chunk: SnapshotChunk) -> None:
    self._learned_commit = min(chunk.index, self._journal.last_index)
    _snapshot_chunk(self, peer, chunk)


_snapshot_chunk = Following.snapshot_chunk


@pytest.mark.parametrize("mutant", [None, Mutant(Following, "snapshot_chunk", _commits_its_tail)])
def test_a_snapshot_on_its_way_commits_nothing(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """g1: the follower's own tail is not what the snapshot stands for."""
    with expecting(mutant, monkeypatch):
        rig, values = lagging_follower()
        before = rig.rafts[1].state().commit_index
        for _ in range(3):
            rig.tick()
            rig.deliver(2, 1)
            rig.deliver(1, 2)
            assert rig.rafts[1].state().commit_index == before
        rig.settle()
        assert not [value for value in rig.machines[1].values if value.startswith(b"ghost")]
        assert rig.machines[1].values == values


class _DyingDisk(SimDisk):
    """Dies at the nth operation from `arm` on."""

    left = -1

    def strike(self, operation: str, path: str) -> None:
        if self.left == 0:
            raise Died
        self.left -= 1
        super().strike(operation, path)


def _clear_all(self: RaftJournal, index: int, term: int) -> None:
    self._entries = self._entries[:1]
    _trim_to(self, index, term)


@pytest.mark.row("Q9")
@pytest.mark.parametrize("mutant", [None, Mutant(RaftJournal, "trim_to", _clear_all)])
@pytest.mark.parametrize("power", [False, True])
def test_death_at_any_moment_of_a_snapshot_loses_nothing(
    power: bool, mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """g2: between the snapshot's rename and the end of the trim, both together are the history."""
    with expecting(mutant, monkeypatch):
        for step in range(40):
            rig = Rig(1)
            disk = _DyingDisk()
            rig.disks[1] = disk
            rig.kill(1)
            rig.format(1, new_cluster=True)
            rig.start(1)
            rig.elect(1)
            first = rig.propose(1, *some_values(6))
            rig.settle()
            disk.left = step
            died = False
            try:
                rig.rafts[1].applier.take_snapshot()
            except Died:
                died = True
            disk.left = -1
            second: list[bytes] = []
            if not died:
                second = some_values(4, start=6)
                assert rig.committed(rig.propose(1, *second)) is False
                rig.settle()
            rig.kill(1, power=power, seed=step)
            rig.start(1)
            rig.elect(1)
            rig.settle()
            assert rig.committed(first)
            assert rig.machines[1].values == some_values(6) + second
            if not died:
                break
        assert step > 8


def test_what_was_committed_after_a_snapshot_survives_with_it() -> None:
    rig = Rig(1, RaftConfig(snapshot_entries=5))
    rig.elect(1)
    for n in range(23):
        rig.propose(1, b"%d" % n)
        rig.settle()
    rig.kill(1, power=True)
    rig.start(1)
    rig.elect(1)
    assert rig.machines[1].values == [b"%d" % n for n in range(23)]


@pytest.mark.row("Q9")
def test_a_damaged_snapshot_stops_the_voter() -> None:
    """g3: it must not lead, vote or acknowledge with an empty state."""
    rig = Rig(1, CHUNKED)
    rig.elect(1)
    rig.propose(1, *some_values(20))
    rig.settle()
    rig.kill(1)
    (name,) = [n for n in rig.disks[1].list(DIRECTORY, MAY_BLOCK) if n.startswith("snapshot")]
    rig.disks[1].flip_bit(f"{DIRECTORY}/{name}", 60)
    with pytest.raises(FatalError, match="damaged") as caught:
        rig.start(1)
    assert caught.value.exit_code is ExitCode.QUORUM_DISK_LOST


def test_a_missing_snapshot_stops_the_voter() -> None:
    rig = Rig(1, CHUNKED)
    rig.elect(1)
    rig.propose(1, *some_values(20))
    rig.settle()
    rig.kill(1)
    (name,) = [n for n in rig.disks[1].list(DIRECTORY, MAY_BLOCK) if n.startswith("snapshot")]
    rig.disks[1].remove(f"{DIRECTORY}/{name}")
    with pytest.raises(FatalError, match="missing"):
        rig.start(1)


def _install_whatever_comes(self: Following, peer: int, chunk: SnapshotChunk) -> None:
    snapshot = Snapshot(chunk.index, chunk.index_term, chunk.digest, chunk.data, chunk.crc)
    self._applier._adopt(snapshot, self._applier._read(snapshot))
    self._core.restored_to(snapshot.index)


@pytest.mark.parametrize("mutant", [None, Mutant(Following, "snapshot_chunk", _install_whatever_comes)])
def test_a_late_snapshot_takes_nothing_back(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """g3: it is behind what the follower committed; only its own index is acknowledged."""
    with expecting(mutant, monkeypatch):
        rig = Rig(config=RaftConfig(snapshot_entries=6))
        rig.elect(1)
        rig.propose(1, *some_values(6))
        rig.settle()
        old = rig.rafts[1].applier.store.latest()
        assert old is not None
        rig.propose(1, *some_values(3, start=6))
        rig.settle()
        late = snapshots.OutgoingSnapshot(old).chunk(rig.rafts[1].term, 1, 1 << 20)
        rig.rafts[2].dispatch(1, late, rig.now)
        rig.tick(2)
        answer = last_message(rig, 2, 1)
        assert isinstance(answer, AppendReply)
        assert answer.next_index == old.index + 1
        assert rig.machines[2].values == some_values(9)
        assert rig.rafts[2].state().commit_index == rig.rafts[1].state().commit_index


def test_a_snapshot_that_arrives_damaged_is_not_acknowledged(caplog: pytest.LogCaptureFixture) -> None:
    """g3: stock PySyncObj acknowledges its own, unverified end instead."""
    rig, values = lagging_follower(RaftConfig(snapshot_entries=10))
    rig.tick()
    rig.deliver(1, 2)
    rig.tick()
    chunk = next(
        m for m in map(decode, list(rig.queue[2, 1])) if isinstance(m.message, SnapshotChunk)
    ).message
    assert isinstance(chunk, SnapshotChunk)
    broken = SnapshotChunk(
        chunk.term, chunk.seq, chunk.index, chunk.index_term, chunk.digest, chunk.crc, chunk.total, 0,
        bytes(len(chunk.data)),
    )  # fmt: skip
    answers = len(rig.messages(1, 2, AppendReply))
    rig.rafts[1].receive(2, encode(rig.rafts[1].incarnations[2], broken))
    assert "damaged" in caplog.text
    rig.tick(1)
    assert len(rig.messages(1, 2, AppendReply)) == answers
    rig.run(1.0)  # the leader sends it again
    assert rig.machines[1].values == values


def test_a_snapshot_beyond_the_limit_is_refused() -> None:
    rig, _ = lagging_follower(RaftConfig(snapshot_entries=10, max_snapshot_bytes=20))
    with pytest.raises(MalformedFrame, match="claims"):
        rig.settle()


def test_a_leader_never_installs_a_snapshot() -> None:
    rig = Rig(1)
    rig.elect(1)
    chunk = snapshots.OutgoingSnapshot(Snapshot.of(50, 1, 0, b"")).chunk(rig.rafts[1].term, 1, 10)
    with pytest.raises(InvariantViolation, match="LEADER_INSTALLS_NO_SNAPSHOT"):
        rig.rafts[1].following.snapshot_chunk(2, chunk)


def test_a_history_that_differs_is_noticed() -> None:
    """A state machine fed with something else stops at the leader's next message."""
    rig = Rig()
    rig.elect(1)
    rig.propose(1, b"x")
    rig.settle()
    applier: Applier = rig.rafts[2].applier
    applier.digests[applier.index] ^= 1
    with pytest.raises(InvariantViolation, match="STATE_MACHINE_SAFETY"):
        rig.run(1.0)


def test_large_commands_make_a_snapshot_due_before_many_do() -> None:
    rig = Rig(1, RaftConfig(snapshot_bytes=1000))
    rig.elect(1)
    rig.propose(1, b"x" * 600)
    rig.settle()
    assert rig.rafts[1].journal.base_index == 1
    rig.propose(1, b"y" * 600)
    rig.settle()
    first = rig.rafts[1].journal.base_index
    assert first > 1
    rig.propose(1, b"z")
    rig.settle()
    assert rig.rafts[1].journal.base_index == first


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("name", ["snapshot-", "journal.tmp"])
def test_a_snapshot_for_which_there_is_no_file_is_put_off(name: str, code: int) -> None:
    rig = Rig(1, RaftConfig(snapshot_entries=5))
    rig.elect(1)
    rig.disks[1].fail("open", code, path_part=name)
    for i in range(20):
        rig.propose(1, b"%d" % i)
        rig.settle()
    assert rig.rafts[1].journal.base_index == 1
    for i in range(200):
        rig.propose(1, b"%d" % i)
        rig.settle()
    assert rig.rafts[1].journal.base_index > 100


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
@pytest.mark.parametrize("name", ["snapshot-", "journal.tmp"])
def test_a_leaders_snapshot_for_which_there_is_no_file_is_refused_and_sent_again(
    name: str, code: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig, values = lagging_follower(CHUNKED)
    rig.disks[1].fail("open", code, path_part=name)
    rig.settle()
    rig.run(2.0)
    assert "is refused" in caplog.text
    assert rig.machines[1].values == values
    rig.kill(1, power=True, seed=1)
    rig.start(1)
    rig.run(1.0)
    assert rig.machines[1].values == values


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE])
def test_a_leader_without_a_file_for_its_snapshot_sends_it_later(
    code: int, caplog: pytest.LogCaptureFixture
) -> None:
    rig, values = lagging_follower()
    rig.disks[2].fail("open", code, path_part="snapshot-", count=3)
    rig.settle()
    assert caplog.text.count("is sent later") == 1, "it waits for the next heartbeat"
    rig.run(2.0)
    assert caplog.text.count("is sent later") == 3
    assert rig.rafts[2].is_leader
    assert rig.machines[1].values == values


def test_every_log_begins_alike() -> None:
    assert all(rig_log[0] == (GENESIS[1], GENESIS[2], b"-") for rig_log in (Rig().log(1), Rig(1).log(1)))


def test_power_loss_after_a_transfer_keeps_it() -> None:
    rig, values = lagging_follower()
    rig.settle()
    rig.kill(1, power=True, seed=Random(3).getrandbits(10))
    rig.start(1)
    rig.run(1.0)
    assert rig.machines[1].values == values


def test_voters_that_decide_the_same_command_otherwise_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two versions of a decision, the commands are the same."""
    rig = Rig()
    rig.elect(1)
    machine = rig.machines[2]
    monkeypatch.setattr(machine, "values", [b"decided otherwise"])
    rig.propose(1, b"x")
    with pytest.raises(
        InvariantViolation, match=r"STATE_MACHINE_SAFETY.*run one build.*start again with empty directories"
    ):
        rig.run(1.0)


def test_a_voter_that_decided_otherwise_goes_on_with_another_build(monkeypatch: pytest.MonkeyPatch) -> None:
    """docs/OPERATIONS.md promises it of a node that an upgrade has stopped."""
    rig = Rig()
    rig.elect(1)
    monkeypatch.setattr(rig.machines[2], "values", [b"decided otherwise"])
    rig.propose(1, b"x")
    with pytest.raises(InvariantViolation, match="STATE_MACHINE_SAFETY"):
        rig.run(1.0)
    rig.kill(2)
    rig.start(2)
    ends = rig.propose(1, b"y")
    rig.run(1.0)
    assert rig.committed(ends)
    assert rig.machines[2].values == [b"x", b"y"]


def test_a_state_machine_whose_disk_fails_answers_nobody(monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even a hash that the others would stop for."""
    rig = Rig()
    rig.elect(1)
    rig.machines[1].raises = OSError(28, "No space left on device")
    rig.propose(1, b"x")
    with pytest.raises(FatalError, match="disk failed"):
        rig.settle()
    del rig.rafts[1]
    rig.elect(2)
    ends = rig.propose(2, b"y")
    rig.run(1.0, 0.05)
    assert rig.committed(ends)
    assert rig.machines[2].values == rig.machines[3].values == [b"x", b"y"]


def test_somebodys_copy_of_a_snapshot_is_none() -> None:
    """By its name it was the newest, and the voter did not start."""
    disk = SimDisk()
    disk.make_dirs(DIRECTORY)
    store = snapshots.SnapshotStore(disk, DIRECTORY)
    store.save(Snapshot.of(20, 1, 0, b"old"))
    old = disk.read_bytes(f"{DIRECTORY}/snapshot-{20:020d}", MAY_BLOCK)
    copies = [f"{DIRECTORY}/snapshot-old", f"{DIRECTORY}/snapshot-{20:020d}.bak"]
    for path in copies:
        disk.write_atomic(path, old, MAY_BLOCK)
    store.save(Snapshot.of(30, 1, 0, b"new"))
    store.prune(30)
    latest = store.latest()
    assert latest is not None
    assert latest.data == b"new"
    assert all(disk.exists(path) for path in copies)
