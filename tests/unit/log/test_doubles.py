"""Two logs of a partition, in two directories: one is kept."""

from __future__ import annotations

import errno
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import SimDisk
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


def filled(directory: LogDir, tp: TopicPartition, records: int) -> None:
    log = directory.open_log(tp, UUID(int=9), CONFIG, NOW_MS, MAY_BLOCK)
    directory.sync(MAY_BLOCK)
    log.identify(MAY_BLOCK)
    for _ in range(records):
        lead(log, b"v")
    flush(log)


def test_a_copy_outlives_the_directory_in_which_the_other_was_kept() -> None:
    """Another's copy there could not be put away: the directory failed, and the first's only readable log was
    removed all the same."""
    disk = SimDisk()
    a, b = both(disk)
    for directory in (a, b):
        directory.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
        directory.mark_running(RUN)
    for directory, records in ((a, 4), (b, 4)):
        filled(directory, FIRST, records)
    for directory, records in ((a, 4), (b, 6)):
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
