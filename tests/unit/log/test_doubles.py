"""Two logs of a partition, in two directories: one is kept."""

from __future__ import annotations

import errno
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import Killed, SimDisk
from data_plane.log.checkpoints import BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log_manager.found_logs import UnclaimedLogs
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import NOW_MS, flush, lead
from tests.support.may_block import MAY_BLOCK

pytestmark = pytest.mark.row("L7")

FIRST, SECOND = TopicPartition("first", 0), TopicPartition("second", 0)
CONFIG = LogConfig()
RUN = BrokerRun(7, frozenset([UUID(int=1)]))


def both(disk: SimDisk) -> list[LogDir]:
    return [LogDir(disk, path, UUID(int=1), boot_id="a boot") for path in ("/a/logs", "/b/logs")]


def running(disk: SimDisk) -> list[LogDir]:
    directories = both(disk)
    for directory in directories:
        directory.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
        directory.mark_running(RUN)
    return directories


def filled(directory: LogDir, tp: TopicPartition, records: int, epoch: int = 0) -> None:
    log = directory.open_log(tp, UUID(int=9), CONFIG, NOW_MS, MAY_BLOCK)
    directory.sync(MAY_BLOCK)
    log.identify(MAY_BLOCK)
    for _ in range(records):
        lead(log, b"v", epoch=epoch)
    flush(log)
    directory.checkpoint(MAY_BLOCK, {tp: records}, {tp: records}, {}, {})


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
    unclaimed.load(both(disk), CONFIG, {}, NOW_MS, MAY_BLOCK)
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


def started(disk: SimDisk) -> tuple[list[LogDir], UnclaimedLogs]:
    directories = both(disk)
    unclaimed = UnclaimedLogs(Random(1), lambda directory, error: pytest.fail(f"{directory}: {error}"))
    unclaimed.load(directories, CONFIG, {}, NOW_MS, MAY_BLOCK)
    return directories, unclaimed
