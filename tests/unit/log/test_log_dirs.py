"""A log directory at the start: what is wrong with one log is that log's affair, and what is missing is
said."""

from __future__ import annotations

import errno
import os
from collections.abc import Callable
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log_manager.found_logs import UnclaimedLogs
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from tests.support.logs import NOW_MS, lead
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_loop, produce_outcome

SMALL = LogConfig(segment_bytes=300, index_interval_bytes=0)
BAD, GOOD = TopicPartition("bad", 0), TopicPartition("good", 0)
EPOCH = 7

pytestmark = pytest.mark.row("L7")


def log_dir(disk: SimDisk) -> LogDir:
    return LogDir(disk, "/data", UUID(int=1), boot_id="this boot")


def filled(*, clean: bool, identified: bool = True) -> SimDisk:
    """Two logs of six segments, all of it durable, and what the checkpoints say of them. The first record is
    deleted."""
    disk = SimDisk()
    directory = log_dir(disk)
    directory.load(SMALL, {}, NOW_MS, MAY_BLOCK)
    directory.mark_running(EPOCH)
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
        directory.mark_clean(EPOCH, MAY_BLOCK)
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
    assert directory.whole_epoch == (EPOCH if whole else -1)


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
        unclaimed.suspect(tp, registration)
    assert unclaimed.is_offline(GOOD, UUID(int=9))
    assert not unclaimed.is_offline(TopicPartition("new", 0), UUID(int=10))


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
        assert [n[-7:] for n in cluster.disks[1].list(away, MAY_BLOCK) if n.startswith("t-0")] == ["-delete"]


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
