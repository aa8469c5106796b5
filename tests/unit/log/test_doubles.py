"""Two logs of a partition, in two directories: one is kept."""

from __future__ import annotations

import errno
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import Killed, SimDisk
from data_plane.log.checkpoints import BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.found_logs import UnclaimedLogs
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import NOW_MS, flush, lead
from tests.support.may_block import MAY_BLOCK

pytestmark = pytest.mark.row("L7")

FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)
CONFIG = LogConfig(segment_bytes=400, index_interval_bytes=100)
RUN = BrokerRun(7, frozenset([UUID(int=1)]))


def running(disk: SimDisk) -> tuple[LogDir, LogDir]:
    directories = both(disk, "a boot")
    for directory in directories:
        directory.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
        directory.mark_running(RUN)
    return directories


def filled(directory: LogDir, tp: TopicPartition, records: int, epoch: int = 0) -> UnifiedLog:
    log = directory.open_log(tp, UUID(int=9), CONFIG, NOW_MS, MAY_BLOCK)
    directory.sync(MAY_BLOCK)
    log.identify(MAY_BLOCK)
    for _ in range(records):
        lead(log, b"v" * 100, epoch=epoch)
    flush(log)
    directory.checkpoint(MAY_BLOCK, {tp: records}, {tp: records}, {}, {})
    return log


def started(disk: SimDisk) -> tuple[tuple[LogDir, LogDir], UnclaimedLogs]:
    directories = both(disk, "a boot")
    unclaimed = UnclaimedLogs(Random(1), lambda directory, error: pytest.fail(f"{directory}: {error}"))
    unclaimed.load(directories, CONFIG, {}, NOW_MS, MAY_BLOCK)
    return directories, unclaimed


def moved(disk: SimDisk) -> LogDir:
    """From /b/logs to /a/logs, which is returned; the sync that is to keep the new name is still to come."""
    a, b = running(disk)
    log = filled(b, FIRST, 10)
    copy = a.open_future(FIRST, UUID(int=5), UUID(int=9), CONFIG, NOW_MS, MAY_BLOCK)
    while copy.log_end_offset < log.log_end_offset:
        piece = log.read(copy.log_end_offset, 1 << 20, at_least_one_batch=True)
        copy.append_as_follower(piece.read(MAY_BLOCK), now_ms=NOW_MS)
    flush(copy)
    copy.move_to(a.partition_path(FIRST))
    return a


def moved_with_a_failed_sync() -> tuple[SimDisk, LogDir]:
    """Where it was moved to; its new name is not durable there, and the broker has ended."""
    disk = SimDisk()
    for mount in ("/a", "/b"):
        disk.make_dirs(mount)
    directory = moved(disk)
    disk.fail("sync_dir", errno.EIO)
    with pytest.raises(OSError, match="error"):
        disk.sync_dir(directory.path, MAY_BLOCK)
    directory.mark_lost()
    disk.kill()
    return disk, directory


def remove_first_segment(disk: SimDisk, path: str) -> None:
    first, *_ = (name for name in disk.list(path, MAY_BLOCK) if name.endswith(".log"))
    disk.remove(f"{path}/{first}")


def both(disk: SimDisk, boot_id: str) -> tuple[LogDir, LogDir]:
    a, b = (LogDir(disk, f"/{name}/logs", UUID(int=1), boot_id=boot_id) for name in "ab")
    return a, b


def found(disk: SimDisk, boot_id: str) -> tuple[UnifiedLog, set[BrokerRun]]:
    """The one that is kept of the two, and what the directories know of the last run."""
    unclaimed = UnclaimedLogs(Random(1), lambda directory, error: pytest.fail(f"{directory}: {error}"))
    directories = both(disk, boot_id)
    unclaimed.load(directories, CONFIG, {}, NOW_MS, MAY_BLOCK)
    (kept,) = unclaimed.take(FIRST)
    return kept.log, {directory.last_run for directory in directories}


@pytest.mark.parametrize("power", [False, True])
def test_the_copy_that_is_kept_is_durable_before_the_other_goes(power: bool) -> None:
    """A move had ended with a failed sync. The copy in the directory that failed was kept, and its name was
    lost with the next loss of power, when the other had been removed."""
    dies_before, died = 0, True
    while died:
        (disk, _), boot_id = moved_with_a_failed_sync(), "a boot"
        disk.kill_before(dies_before)
        try:
            found(disk, boot_id)
            died = False
        except Killed:
            if power:
                disk.power_loss(Random(dies_before))
                boot_id = "another boot"
        disk.kill()
        for left, boot in ((disk, boot_id), (disk.durable_clone(), "one more boot")):
            log, _ = found(left, boot)
            assert log.log_end_offset == 10
        dies_before += 1
    assert dies_before > 50


def test_of_two_logs_that_are_alike_the_one_that_begins_earlier_is_kept() -> None:
    """The other may have lost files."""
    disk = SimDisk()
    moved(disk)
    remove_first_segment(disk, "/a/logs/first-0")
    log, _ = found(disk, "a boot")
    assert (log.log_start_offset, log.log_end_offset) == (0, 10)


def test_a_copy_that_goes_is_no_loss_though_the_start_dies_on_the_way() -> None:
    """The checkpoints beside it still had its offsets, and nothing said any more why it was gone."""
    dies_before, died = 0, True
    while died:
        disk = SimDisk()
        moved(disk)
        disk.kill()
        disk.kill_before(dies_before)
        try:
            found(disk, "a boot")
            died = False
        except Killed:
            disk.kill()
        disk.kill_before(None)
        log, runs = found(disk, "a boot")
        assert (log.log_end_offset, runs) == (10, {RUN}), dies_before
        dies_before += 1
    assert dies_before > 50


def test_a_copy_outlives_the_directory_in_which_the_other_was_kept() -> None:
    """Another's copy there could not be put away: the directory failed, and the first's only readable log was
    removed all the same."""
    disk = SimDisk()
    a, b = running(disk)
    for directory, records in ((a, 4), (b, 6)):
        filled(directory, FIRST, 4)
        filled(directory, SECOND, records)
    disk.kill()
    disk.fail("rename", errno.EIO, path_part="/a/logs/second-0.")

    def fail(directory: LogDir, error: OSError) -> None:
        directory.online = False
        unclaimed.directory_failed(directory, error)

    unclaimed = UnclaimedLogs(Random(1), fail)
    unclaimed.load(both(disk, "a boot"), CONFIG, {}, NOW_MS, MAY_BLOCK)
    assert unclaimed.why_offline(FIRST) is not None
    (left,) = (name for name in disk.durable_clone().list("/b/logs", MAY_BLOCK) if name.startswith("first-0"))
    assert left.endswith("-stray")
    assert f"{0:020d}.log" in disk.list(f"/b/logs/{left}", MAY_BLOCK)
    assert [kept.log.log_end_offset for kept in unclaimed.take(SECOND)] == [6]


def test_an_older_log_that_is_set_aside_is_no_loss_though_the_start_dies_on_the_way() -> None:
    """The checkpoints still had its offsets, and a stray log's name excuses nobody."""
    dies_before, died = 0, True
    while died:
        disk = SimDisk()
        a, b = running(disk)
        filled(a, FIRST, 9, epoch=3)
        filled(b, FIRST, 6, epoch=1)
        disk.kill()
        disk.kill_before(dies_before)
        try:
            started(disk)
            died = False
        except Killed:
            pass
        disk.kill()
        directories, unclaimed = started(disk)
        assert [kept.log.log_end_offset for kept in unclaimed.take(FIRST)] == [9]
        assert [directory.last_run for directory in directories] == [RUN, RUN], dies_before
        assert any(name.endswith("-stray") for name in disk.list("/b/logs", MAY_BLOCK))
        dies_before += 1
    assert dies_before > 30


def test_of_two_logs_that_are_alike_the_one_is_kept_whose_name_is_durable() -> None:
    """The other one's disk had failed, and was full. It was kept where its directory came first, and a loss
    of power took it when the durable one had been set aside."""
    disk, directory = moved_with_a_failed_sync()
    disk.fail("mkdir", errno.ENOSPC, path_part=f"{directory.path}/renewed.")
    kept, _ = found(disk, "a boot")
    assert kept.log_end_offset == 10
    for path in ("/a/logs", "/b/logs"):
        disk.sync_dir(path, MAY_BLOCK)
    log, _ = found(disk.durable_clone(), "another boot")
    assert log.log_end_offset == 10


def test_the_other_copy_stays_while_the_disk_of_the_kept_one_is_full() -> None:
    """Its name need not be durable: a loss of power took it, and the other had been removed."""
    disk, directory = moved_with_a_failed_sync()
    remove_first_segment(disk, "/b/logs/first-0")
    disk.fail("mkdir", errno.ENOSPC, path_part=f"{directory.path}/renewed.")
    kept, _ = found(disk, "a boot")
    assert kept.log_start_offset == 0
    log, _ = found(disk.durable_clone(), "another boot")
    assert (log.log_start_offset > 0, log.log_end_offset) == (True, 10)
