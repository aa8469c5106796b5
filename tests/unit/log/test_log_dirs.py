"""A log directory at the start: what is wrong with one log is that log's affair, and what is missing is
said."""

from __future__ import annotations

import asyncio
import errno
import os
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import Killed, SimDisk
from data_plane.log.checkpoints import BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log_manager.found_logs import UnclaimedLogs
from data_plane.log_manager.log_dir_failures import LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from tests.support.logs import NOW_MS, flush, lead, read_all
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, boundary_of, in_loop, produce_outcome, until

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0)
BAD, GOOD = TopicPartition("bad", 0), TopicPartition("good", 0)
EPOCH = 7
RUN = BrokerRun(EPOCH, frozenset([UUID(int=1)]))

pytestmark = pytest.mark.row("L7")


def log_dir(disk: SimDisk) -> LogDir:
    return LogDir(disk, "/data", UUID(int=1), boot_id="this boot")


def filled(*, clean: bool, identified: bool = True) -> SimDisk:
    """Two logs of six segments, all of it durable, and what the checkpoints say of them. The first record is
    deleted."""
    disk = SimDisk()
    directory = log_dir(disk)
    directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    directory.mark_running(RUN)
    logs = {}
    for tp in (BAD, GOOD):
        log = logs[tp] = directory.open_log(tp, UUID(int=9), SMALL, NOW_MS, MAY_BLOCK)
        if identified:
            log.identify(MAY_BLOCK)
        for _ in range(6):
            lead(log, b"v" * 150)
        log.advance_log_start(1)
        work = log.prepare_flush()
        assert work is not None
        work.run(MAY_BLOCK)
        log.flush_done(work)
        if clean:
            log.close_clean(MAY_BLOCK)
    ends = {tp: log.log_end_offset for tp, log in logs.items()}
    directory.checkpoint(MAY_BLOCK, ends, ends, dict.fromkeys(logs, 1))
    if clean:
        directory.mark_clean(RUN, MAY_BLOCK)
    disk.kill()
    return disk


def wipe(disk: SimDisk, base: int, *without: str) -> None:
    """A segment's bytes read as zeros; files whose names end so are gone."""
    for name in disk.list("/data/bad-0", MAY_BLOCK):
        if without and name.endswith(without):
            disk.remove(f"/data/bad-0/{name}")
    path = f"/data/bad-0/{base:020d}.log"
    disk.open(path).write_at(0, bytes(disk.open(path).size()))


def swapped(disk: SimDisk) -> None:
    wipe(disk, 0)
    path = f"/data/bad-0/{0:020d}.log"
    disk.rename(path, path + ".swap")


DAMAGES: dict[str, tuple[bool, Callable[[SimDisk], None]]] = {
    "no snapshot of the producers": (True, lambda disk: wipe(disk, 1, ".snapshot")),
    "no epochs": (True, lambda disk: wipe(disk, 1, "leader-epoch-checkpoint")),
    "the segment before the last": (False, lambda disk: wipe(disk, 4)),
    "a cleaned segment": (False, swapped),
}


@pytest.mark.parametrize("name", DAMAGES)
def test_a_log_that_cannot_be_read_is_offline_alone(name: str) -> None:
    clean, damage = DAMAGES[name]
    disk = filled(clean=clean)
    damage(disk)
    logs, corrupt = log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert (logs.keys(), corrupt.keys()) == ({GOOD}, {BAD})


def test_a_log_for_which_there_is_no_file_is_offline_alone() -> None:
    disk = filled(clean=False)
    disk.fail("open", errno.EMFILE, path_part="/bad-0/")
    logs, corrupt = log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert (logs.keys(), corrupt.keys()) == ({GOOD}, {BAD})


def test_the_checkpoints_go_on_telling_of_a_log_that_is_not_open() -> None:
    disk = filled(clean=False)
    disk.fail("open", errno.EMFILE, path_part="/bad-0/")
    directory = log_dir(disk)
    ((_, (good, _)),) = directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)[0].items()
    for end in (6, 7):  # again and again, as they change
        directory.checkpoint(MAY_BLOCK, {GOOD: end}, {GOOD: end}, {GOOD: good.log_start_offset})
    again = log_dir(disk)
    logs, _ = again.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert logs[BAD][0].log_start_offset == 1
    assert again.high_watermarks == {BAD: 6, GOOD: 7}


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("committed", [0, 6, 1000])
def test_a_log_start_of_which_nothing_else_knows_takes_no_records_away(committed: int, clean: bool) -> None:
    """Of a damaged file, or one that was copied from elsewhere. What was committed may have been deleted, and
    the log's end be lost."""
    disk = filled(clean=clean)
    both = (BAD, GOOD)
    log_dir(disk).checkpoint(
        MAY_BLOCK, {BAD: committed, GOOD: 6}, dict.fromkeys(both, 6), {BAD: 1000, GOOD: 1}
    )
    directory = log_dir(disk)
    logs, _ = directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    bad, good = (logs[tp][0] for tp in both)
    assert (good.log_start_offset, good.log_end_offset) == (1, 6)
    assert (bad.log_start_offset, bad.log_end_offset) == ((1000, 1000) if committed == 1000 else (0, 6))
    assert len(read_all(bad)) == (0 if committed == 1000 else 6)
    assert directory.last_run.broker_epoch == -1, "something may be lost in any case"


class SwitchingThreads(dict[TopicPartition, int]):
    """What the loop may do while the executor writes checkpoints, it does when they look for an offset."""

    def __init__(self, offsets: dict[TopicPartition, int], meanwhile: Callable[[], object]) -> None:
        super().__init__(offsets)
        self._meanwhile = [meanwhile]

    def __contains__(self, tp: object) -> bool:
        self.get(tp)  # type: ignore[call-overload]
        return super().__contains__(tp)

    def get(self, tp: TopicPartition, *default: int) -> int | None:  # type: ignore[override]
        while self._meanwhile:
            self._meanwhile.pop()()
        return super().get(tp)


def test_a_log_that_is_set_aside_while_the_checkpoints_are_written_is_no_fault() -> None:
    disk = filled(clean=False)
    disk.fail("open", errno.EMFILE, path_part="/bad-0/")
    disk.fail("open", errno.EMFILE, path_part="/good-0/")
    directory = log_dir(disk)
    assert not directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)[0]
    disk.heal()
    directory.high_watermarks = SwitchingThreads(
        directory.high_watermarks, lambda: directory.set_aside(BAD, None, UUID(int=7), "stray")
    )
    directory.checkpoint(MAY_BLOCK, {}, {})
    again = log_dir(disk)
    again.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert again.high_watermarks == {GOOD: 6}


@pytest.mark.parametrize("identified", [True, False])
@pytest.mark.parametrize("whole", [True, False])
def test_a_run_whose_last_durable_batch_reads_wrong_is_not_whole(whole: bool, identified: bool) -> None:
    disk = filled(clean=False, identified=identified)
    if not whole:
        path = f"/data/bad-0/{5:020d}.log"
        disk.flip_bit(path, disk.open(path).size() - 1)
    directory = log_dir(disk)
    logs, _ = directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert logs[BAD][0].log_end_offset == (6 if whole else 5)
    assert directory.last_run.broker_epoch == (EPOCH if whole else -1)


@pytest.mark.parametrize("clean", [True, False])
@pytest.mark.parametrize("by_hand", [True, False])
def test_a_run_of_which_somebody_has_removed_a_log_is_not_whole(by_hand: bool, clean: bool) -> None:
    """It is made anew, and empty; one that this broker was deleting is not missed."""
    disk = filled(clean=clean)
    if by_hand:
        disk.remove_tree("/data/bad-0", MAY_BLOCK)
    else:
        disk.rename("/data/bad-0", f"/data/bad-0.{UUID(int=7).hex}-delete")
    directory = log_dir(disk)
    logs, _ = directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert logs.keys() == {GOOD}
    assert directory.last_run.broker_epoch == (-1 if by_hand else EPOCH)


@pytest.mark.parametrize(("suffix", "epoch"), [("delete", EPOCH), ("stray", -1)])
def test_a_log_that_was_about_to_be_deleted_is_not_missed(suffix: str, epoch: int) -> None:
    """Its long name was cut short. A stray log may lie there since long before: it excuses nobody."""
    disk = SimDisk()
    directory = log_dir(disk)
    directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    directory.mark_running(RUN)
    tp = TopicPartition("n" * 249, 0)
    log = directory.open_log(tp, UUID(int=9), SMALL, NOW_MS, MAY_BLOCK)
    log.identify(MAY_BLOCK)
    lead(log, b"v")
    directory.checkpoint(MAY_BLOCK, {tp: 1}, {tp: 0}, {})
    directory.set_aside(tp, log, UUID(int=7), suffix)
    disk.kill()
    again = log_dir(disk)
    assert again.load(SMALL, {}, NOW_MS, MAY_BLOCK) == ({}, {})
    assert again.last_run.broker_epoch == epoch


@pytest.mark.parametrize("clean", [True, False])
def test_what_was_missed_is_remembered_if_the_node_dies_before_it_has_said_so(clean: bool) -> None:
    """From then on nothing on disk speaks of the log that is gone."""
    disk = filled(clean=clean)
    disk.remove_tree("/data/bad-0", MAY_BLOCK)
    log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
    again = log_dir(disk)
    again.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert again.last_run.broker_epoch == -1


def test_what_cannot_be_looked_at_is_not_called_missing(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    disk = OsDisk()
    assert not disk.exists(str(tmp_path / "nothing"))

    def stat(path: str) -> os.stat_result:
        raise OSError(errno.EIO, os.strerror(errno.EIO), path)

    monkeypatch.setattr(os, "stat", stat)
    with pytest.raises(OSError, match="Input/output error"):
        disk.exists("/any")
    monkeypatch.undo()


def test_what_may_lie_in_a_directory_that_failed_is_not_created_elsewhere() -> None:
    """A replica of an older partition would begin empty beside its records; a new one lies nowhere yet."""
    failed: list[LogDir] = []
    unclaimed = UnclaimedLogs(Random(1), lambda directory, _: failed.append(directory))
    disk = filled(clean=False)
    disk.fail("read", errno.EIO, count=1 << 30)
    broken = log_dir(disk)
    unclaimed.load([broken], SMALL, {}, NOW_MS, MAY_BLOCK)
    assert failed == [broken]
    older = PartitionRegistration((1, 2), (1, 2), 1, leader_epoch=3, partition_epoch=5)
    new = PartitionRegistration((1, 2), (1, 2), 1, leader_epoch=0, partition_epoch=0)
    for tp, registration in ((GOOD, older), (TopicPartition("new", 0), new)):
        unclaimed.suspect(tp, registration, 1)
    assert unclaimed.is_offline(GOOD, UUID(int=9))
    assert not unclaimed.is_offline(TopicPartition("new", 0), UUID(int=10))


def test_what_a_reassignment_adds_is_made_beside_a_directory_that_failed() -> None:
    """It was to wait for the next start; unless it had come so far that others count on it."""
    unclaimed = UnclaimedLogs(Random(1), lambda directory, _: None)
    disk = filled(clean=False)
    disk.fail("read", errno.EIO, count=1 << 30)
    unclaimed.load([log_dir(disk)], SMALL, {}, NOW_MS, MAY_BLOCK)
    added = PartitionRegistration((2, 1), (2,), 2, leader_epoch=3, partition_epoch=5, adding_replicas=(1,))
    for number, registration in enumerate(
        (added, replace(added, isr=(2, 1)), replace(added, isr=(), leader=-1, elr=(2, 1)))
    ):
        tp = TopicPartition("added", number)
        unclaimed.suspect(tp, registration, 1)
        assert unclaimed.is_offline(tp, UUID(int=10)) == (number > 0)


@in_loop
async def test_a_bug_where_one_is_told_of_a_failed_directory_keeps_it_from_no_other() -> None:
    """The controller is told last: the replicas' leaders would stay where they are."""
    loop, told, faults = asyncio.get_running_loop(), list[LogDir](), list[str]()
    loop.set_exception_handler(lambda _, context: faults.append(context["message"]))
    failures = LogDirFailures(loop)

    def breaks(directory: LogDir, error: OSError) -> None:
        raise ValueError

    failures.subscribe(breaks)
    failures.subscribe(lambda directory, error: told.append(directory))
    failed = log_dir(filled(clean=True))
    failures.fail(failed, OSError(errno.EIO, "a failed fsync"))
    assert told == [failed]
    assert faults


TWO = ("/data/a", "/data/b")


@pytest.mark.row("L8")
@in_loop
async def test_a_disk_that_comes_back_with_a_deleted_topic_takes_nothing_from_the_one_of_its_name() -> None:
    async with Cluster(1, directories=TWO) as cluster:
        old = cluster.create_topic("t", [[1]])
        for _ in range(9):
            await produce_outcome(cluster, b"old")
        away = await stopped_where_it_lies(cluster)
        cluster.directories = tuple(path for path in TWO if path != away)
        cluster.delete_topic(old)
        cluster.start(1)
        cluster.create_topic("t", [[1]])
        await produce_outcome(cluster, b"new")
        await stopped_where_it_lies(cluster)
        cluster.directories = TWO
        cluster.start(1)
        assert cluster.replica(1).log.log_end_offset == 1
        assert [n[-6:] for n in cluster.disks[1].list(away, MAY_BLOCK) if n.startswith("t-0")] == ["-stray"]


@pytest.mark.row("L8")
@in_loop
async def test_of_two_logs_of_a_partition_the_one_of_the_later_epoch_is_served_and_the_other_kept() -> None:
    async with Cluster(1, directories=TWO) as cluster:
        cluster.create_topic("t", [[1]])
        for _ in range(9):
            await produce_outcome(cluster, b"old")
        away = await stopped_where_it_lies(cluster)
        cluster.directories = tuple(path for path in TWO if path != away)
        cluster.start(1)
        await produce_outcome(cluster, b"new")
        await stopped_where_it_lies(cluster)
        cluster.directories = TWO
        cluster.start(1)
        assert cluster.replica(1).log.log_end_offset == 1
        assert [n[-6:] for n in cluster.disks[1].list(away, MAY_BLOCK) if n.startswith("t-0")] == ["-stray"]


async def stopped_where_it_lies(cluster: Cluster) -> str:
    """Stop the broker; in which directory its replica lies."""
    broker = cluster.brokers.pop(1)
    path = broker.partitions.logs.dir_of(broker.partitions.get("t", 0)).path
    await broker.close()
    return path


@pytest.mark.parametrize("clean", [True, False])
def test_what_is_said_of_a_log_that_is_gone_is_not_believed_of_the_next_one_of_its_name(clean: bool) -> None:
    """Its topic was deleted, and the node killed before the checkpoints were written without it. The next one
    is killed before they are written with it."""
    disk = filled(clean=clean)
    disk.remove_tree("/data/bad-0", MAY_BLOCK)
    directory = log_dir(disk)
    directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    log = directory.open_log(BAD, UUID(int=10), SMALL, NOW_MS, MAY_BLOCK)
    log.identify(MAY_BLOCK)
    lead(log, b"new")
    disk.kill()
    logs, _ = log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert read_all(logs[BAD][0]) == [(0, b"new")]
    assert logs[GOOD][0].log_start_offset == 1


async def new_log_after_a_killed_stop(operations: int) -> tuple[tuple[int, int], bool]:
    """A topic is made again while no checkpoint can be written, and the node stops; after so many operations
    of the disk it is killed. Where the new log begins and ends after that, and whether the stop had ended."""
    async with Cluster(1) as cluster:
        boundary_of(cluster)
        topic_id = cluster.create_topic("t", [[1]])
        for _ in range(5):
            await produce_outcome(cluster, b"old")
        cluster.leader().delete_records(5)
        disk, partitions = cluster.disks[1], cluster.brokers[1].partitions
        await partitions.checkpoints.write(everything=True)
        await until(lambda: partitions.background.idle)
        disk.fail("open", errno.EMFILE, path_part="-checkpoint.tmp", count=99)
        cluster.delete_topic(topic_id)
        cluster.create_topic("t", [[1]])
        for _ in range(6):
            await produce_outcome(cluster, b"new")
        await until(lambda: partitions.background.idle)
        disk.heal()
        disk.kill_before(operations)
        broker, stopped = cluster.brokers.pop(1), True
        try:
            await broker.partitions.close(broker_epoch=7)
        except Killed:
            stopped = False
        broker.timer.close()
        disk.kill()
        cluster.start(1)
        log = cluster.leader().log
        return (log.log_start_offset, log.log_end_offset), stopped


@in_loop
async def test_a_stop_that_is_killed_gives_no_log_the_offsets_of_an_older_one_of_its_name() -> None:
    operations, stopped = 0, False
    while not stopped:
        found, stopped = await new_log_after_a_killed_stop(operations)
        assert found == (0, 6), operations
        operations += 1
    assert operations > 10


def test_a_file_that_has_the_name_of_a_replica_is_none() -> None:
    disk = filled(clean=False)
    disk.open("/data/core-1234", create=True)
    logs, corrupt = log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert (logs.keys(), corrupt) == ({BAD, GOOD}, {})


@pytest.mark.parametrize(
    "name",
    ["photo s-2024", "caf\udce9-1", "line\nfeed-1", "good-00", "bad-1_0", "\u0663-\u0663", "x-9999999999"],
)
def test_what_no_broker_has_made_is_left_alone(name: str) -> None:
    """Its name could not be written into a checkpoint, or made that unreadable for all logs."""
    disk = filled(clean=False)
    disk.make_dirs(f"/data/{name}")
    disk.open(f"/data/{name}/{0:020d}.log", create=True).append([b"mine"])
    logs, corrupt = log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert (logs.keys(), corrupt) == ({BAD, GOOD}, {})
    assert log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)[0].keys() == {BAD, GOOD}
    assert disk.list(f"/data/{name}", MAY_BLOCK) == [f"{0:020d}.log"]


@pytest.mark.parametrize("name", ["\u00b2" * 20, "\u0663" * 20, "9" * 20])
def test_a_file_whose_name_is_no_offset_is_none_of_a_log(name: str) -> None:
    disk = filled(clean=False)
    disk.open(f"/data/bad-0/{name}.log", create=True)
    logs, corrupt = log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert (logs.keys(), corrupt) == ({BAD, GOOD}, {})


def test_of_two_unfinished_copies_of_a_replica_one_is_left() -> None:
    """The first one is removed when the second has been begun: the node died in between."""
    disk = filled(clean=False)
    copies = [f"/data/moved-0.{number:032x}-future" for number in (1, 2)]
    for copy in copies:
        disk.make_dirs(copy)
    directory = log_dir(disk)
    directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    assert list(directory.unfinished.values()) == [copy for copy in copies if disk.exists(copy)]


def test_durable_records_are_known_to_be_their_topics() -> None:
    """With flush.messages=1 they are acknowledged while the log may still wait for its identification. As
    records of nobody they would be those of the next topic of the name."""
    for seed in range(40):
        disk = SimDisk()
        directory = log_dir(disk)
        directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
        log = directory.open_log(GOOD, UUID(int=9), SMALL, NOW_MS, MAY_BLOCK)
        lead(log, b"v")
        flush(log)
        disk.power_loss(Random(seed))
        logs, _ = log_dir(disk).load(SMALL, {}, NOW_MS, MAY_BLOCK)
        log, topic_id = logs[GOOD]
        assert (log.log_end_offset, topic_id) == (1, UUID(int=9)), seed


@pytest.mark.parametrize(
    "fate", ["deleted", "deleted while it was down", "made again", "made again meanwhile"]
)
@in_loop
async def test_a_damaged_log_of_a_topic_that_is_gone_lies_in_nobodys_way(fate: str):
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        for _ in range(3):
            await produce_outcome(cluster, b"x" * 50)
        await until(lambda: not cluster.leader().log.unidentified)
        path, size = cluster.leader().log.segments[0].path, cluster.leader().log.size // 3
        await cluster.crash(1)
        cluster.disks[1].flip_bit(path, size + size // 2)
        if fate != "deleted":
            cluster.delete_topic(topic_id)
        if fate == "made again":
            cluster.create_topic("t", [[1]])
        broker = cluster.start(1)
        if fate == "deleted":
            cluster.delete_topic(topic_id)
        if fate == "made again meanwhile":
            cluster.create_topic("t", [[1]])
        broker.partitions.applier.remove_stray_replicas(cluster.image)
        if "again" in fate:
            assert await produce_outcome(cluster, b"new") == ErrorCode.NONE
            assert cluster.replica(1).log.log_end_offset == 1
        kept = [name for name in cluster.disks[1].list("/data", MAY_BLOCK) if name.endswith("-stray")]
        assert len(kept) == (fate != "deleted")
        await cluster.brokers.pop(1).partitions.close(broker_epoch=7)
        assert cluster.disks[1].exists("/data/.kafka_cleanshutdown")
