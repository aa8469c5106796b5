"""The mark of a clean shutdown does not come back: whoever believed it would not recover the logs."""

from __future__ import annotations

import errno
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import Killed, SimDisk
from data_plane.log import checkpoints
from data_plane.log.checkpoints import CLEAN_SHUTDOWN, BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log_manager.log_dirs import LogDir
from tests.support.logs import NOW_MS
from tests.support.may_block import MAY_BLOCK

pytestmark = pytest.mark.row("L7")

RUN = BrokerRun(7, frozenset([UUID(int=1)]))
MARK = f"/data/{CLEAN_SHUTDOWN}"


def started(disk: SimDisk, boot_id: str = "a boot") -> LogDir:
    directory = LogDir(disk, "/data", UUID(int=1), boot_id=boot_id)
    try:
        directory.load(LogConfig(), {}, NOW_MS, MAY_BLOCK)
    except OSError:
        directory.mark_lost()
        raise
    return directory


def removed_with_a_failed_sync() -> SimDisk:
    """The mark is gone, and is not."""
    disk = SimDisk()
    disk.make_dirs("/data")
    directory = started(disk)
    directory.mark_running(RUN)
    directory.mark_clean(RUN, MAY_BLOCK)
    disk.kill()
    disk.fail("sync_dir", errno.EIO, path_part="/data", after=1)
    with pytest.raises(OSError, match="error"):
        started(disk)
    disk.kill()
    assert not disk.exists(MARK)
    assert disk.durable_clone().exists(MARK)
    return disk


def test_it_is_gone_for_certain_once_a_start_has_come_through() -> None:
    disk = removed_with_a_failed_sync()
    started(disk)
    assert not disk.durable_clone().exists(MARK)


@pytest.mark.parametrize("power", [False, True])
def test_nobody_believes_it_though_the_start_dies_on_the_way(power: bool) -> None:
    """Before that start has done anything, a loss of power may bring back the true one."""
    dies_before, died = 1, True
    while died:
        disk = removed_with_a_failed_sync()
        disk.kill_before(dies_before)
        try:
            started(disk)
            died = False
        except Killed:
            pass
        disk.kill()
        if power and died:
            disk.power_loss(Random(dies_before))
        ended = checkpoints.read_clean_shutdown(disk, "/data", MAY_BLOCK)
        assert ended == (RUN if ended and power else None)
        started(disk, "another boot" if power else "a boot")
        assert not disk.exists(MARK)
        assert not disk.durable_clone().exists(MARK)
        dies_before += 1
    assert dies_before > 10


def test_a_kafka_broker_that_ran_here_meanwhile_is_believed() -> None:
    """Though what is noted of our last run says that the disk had failed."""
    disk = removed_with_a_failed_sync()
    disk.write_atomic(MARK, b'{"version":0,"brokerEpoch":9}', MAY_BLOCK)
    assert started(disk).last_run.broker_epoch == 9
    disk.kill()
    disk = removed_with_a_failed_sync()
    disk.open(MARK, create=True)
    directory = LogDir(disk, "/data", UUID(int=1), boot_id="a boot")
    assert directory.look_up_last_run(MAY_BLOCK).broker_epoch == -1
    assert checkpoints.read_clean_shutdown(disk, "/data", MAY_BLOCK) is not None
