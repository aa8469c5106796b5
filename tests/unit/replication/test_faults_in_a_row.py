"""Two or three faults of a disk one after the other, at a broker that is killed or stopped in between: no
replica stays offline for something that was never synced, nothing that was flushed is lost, and a start that
claims to have everything tells the truth.
"""

from __future__ import annotations

import errno
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.checkpoints import RUNNING
from data_plane.log.config import LogConfig
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.errors import BrokerError
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Broker, Cluster, in_loop, until
from tests.unit.replication.unsynced_log import BATCHES, LOG, written

pytestmark = pytest.mark.row("L7")

EPOCH = 7  # of `written`


async def stop(cluster: Cluster) -> None:
    """In order, and registered."""
    broker = cluster.brokers.pop(1)
    await broker.fetchers.close()
    await broker.partitions.close(EPOCH)
    broker.timer.close()


async def let_a_flush_fail(cluster: Cluster, code: int, *, at_the_end: bool) -> None:
    cluster.disks[1].fail("sync", code, path_part=".log")
    if at_the_end:
        await stop(cluster)
        return
    broker = cluster.brokers[1]
    broker.partitions.executor.flush(cluster.replica(1))
    await until(lambda: not broker.dirs[0].online)
    await cluster.crash(1)


async def flush(cluster: Cluster, broker: Broker) -> None:
    partition = cluster.replica(1)
    broker.partitions.executor.flush(partition)
    await until(lambda: partition.log.recovery_point == partition.log.log_end_offset)
    await broker.partitions.checkpoints.write(everything=True)
    await until(lambda: broker.partitions.background.idle)


@pytest.mark.parametrize("at_the_end", [False, True], ids=["while it runs", "while it stops"])
@pytest.mark.parametrize("killed_before_registration", [False, True])
@pytest.mark.parametrize("code", [errno.EIO, errno.ENOSPC])  # of a file system that allocates late
@in_loop
async def test_what_a_failed_fsync_left_in_the_page_cache_is_written_by_the_next_process(
    at_the_end, killed_before_registration, code
):
    """It can be read, and counts as clean: a flush of the next process would have nothing to do and call it
    durable, and a loss of power would take it, with all that stands behind it."""
    async with Cluster(1) as cluster:
        await written(cluster, 2)
        await let_a_flush_fail(cluster, code, at_the_end=at_the_end)
        if killed_before_registration:
            assert cluster.start(1).partitions.logs.previous_broker_epoch == -1
            await cluster.crash(1)
        broker = cluster.start(1)
        assert broker.partitions.logs.previous_broker_epoch == -1
        assert cluster.replica(1).log.log_end_offset == BATCHES
        broker.partitions.logs.mark_running(EPOCH + 1)
        cluster.produce(b"z" * 1300, acks=1)
        await flush(cluster, broker)
        cluster.disks[1].power_loss(Random(1))
        await cluster.crash(1)
        cluster.boot_id = "second boot"
        cluster.start(1)
        assert cluster.replica(1).log.log_end_offset == BATCHES + 1


@in_loop
async def test_a_log_that_was_not_opened_after_a_loss_of_power_is_recovered_by_the_next_process():
    """For want of file descriptors, say. It lacks a page all the same."""
    async with Cluster(1) as cluster:
        await written(cluster, 2)
        cluster.disks[1].lose_page(LOG, 1)
        await cluster.crash(1)
        cluster.boot_id = "second boot"
        cluster.disks[1].fail("open", errno.EMFILE, path_part=".log")
        cluster.start(1).partitions.logs.mark_running(EPOCH + 1)
        with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            cluster.replica(1)
        await cluster.crash(1)
        broker = cluster.start(1)
        assert 2 <= cluster.replica(1).log.log_end_offset < BATCHES
        assert broker.partitions.logs.previous_broker_epoch == -1
        broker.partitions.logs.mark_running(EPOCH + 2)
        await cluster.crash(1)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == EPOCH + 2


@pytest.mark.parametrize("has_descriptors_later", [False, True])
@in_loop
async def test_a_process_that_can_open_no_file_does_not_forget_that_pages_may_be_gone(has_descriptors_later):
    async with Cluster(1) as cluster:
        await written(cluster, 2)
        disk = cluster.disks[1]
        disk.lose_page(LOG, 1)
        await cluster.crash(1)
        cluster.boot_id = "second boot"
        for _ in range(2):
            disk.fail("open", errno.EMFILE, count=100)
            assert not cluster.start(1).dirs[0].online
            await cluster.crash(1)
            disk.heal()
            if has_descriptors_later:
                break
        broker = cluster.start(1)
        assert 2 <= cluster.replica(1).log.log_end_offset < BATCHES
        assert broker.partitions.logs.previous_broker_epoch == -1
        broker.partitions.logs.mark_running(EPOCH + 1)
        await cluster.crash(1)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == EPOCH + 1


@in_loop
async def test_what_tells_of_a_loss_of_power_is_not_lost_by_it():
    """The name of the file, in a new directory: without it, a page that is gone looks like damage."""
    async with Cluster(1) as cluster:
        disk = cluster.disks[1]
        assert RUNNING in disk.durable_files("/data")
        await cluster.crash(1)
        disk.remove(f"/data/{RUNNING}")  # as by Apache Kafka, or by a version before it
        cluster.start(1)
        assert RUNNING in disk.durable_files("/data")


def lose(disk: SimDisk, directory: LogDir, cluster: Cluster) -> None:
    """Nothing can be written there any more, not even that it has failed."""
    disk.lose_device(directory.path)
    with pytest.raises(BrokerError):
        cluster.produce(b"z" * 1300, acks=1)
    assert not directory.online


ENDS = ["killed", "stopped", "killed at the next start", "stopped at the next start"]


@pytest.mark.parametrize("end", ENDS)
@pytest.mark.parametrize("is_missing_once_more", [False, True])
@in_loop
async def test_a_device_that_failed_and_comes_back_is_remembered_by_the_other_directories(
    end, is_missing_once_more
):
    """It could not be marked itself, and lacks of what was not synced a page when it is mounted anew."""
    async with Cluster(1, directories=("/data", "/other")) as cluster:
        await written(cluster, 2)
        broker, disk = cluster.brokers[1], cluster.disks[1]
        if end.endswith("at the next start"):
            await cluster.crash(1)
            disk.lose_device("/data")
            broker = cluster.start(1)
            assert not broker.dirs[0].online
        else:
            lose(disk, broker.dirs[0], cluster)
        if end == "stopped":
            await stop(cluster)
        elif end == "stopped at the next start":  # before it is registered
            await broker.fetchers.close()
            await broker.partitions.close(-1)
            broker.timer.close()
            del cluster.brokers[1]
        else:
            await cluster.crash(1)
        disk.lose_page(LOG, 1)
        disk.replace_device("/data", is_empty=False)
        if is_missing_once_more:
            disk.lose_device("/data")
            cluster.start(1).partitions.logs.mark_running(EPOCH + 1)
            await cluster.crash(1)
            disk.replace_device("/data", is_empty=False)
        broker = cluster.start(1)
        assert broker.partitions.logs.previous_broker_epoch == -1
        assert 2 <= cluster.replica(1).log.log_end_offset < BATCHES
        broker.partitions.logs.mark_running(EPOCH + 2)
        await cluster.crash(1)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == EPOCH + 2


@in_loop
async def test_a_directory_that_fails_while_the_run_is_noted_is_remembered_by_those_that_come_after_it():
    """What is noted in these was written down before that."""
    async with Cluster(1, directories=("/data", "/other")) as cluster:
        await cluster.crash(1)
        cluster.directory_ids = (201, 202)
        cluster.start(1)
        await written(cluster, 2)
        broker, disk = cluster.brokers[1], cluster.disks[1]
        disk.lose_device("/data")
        broker.partitions.logs.mark_running(EPOCH)
        assert [each.online for each in broker.dirs] == [False, True]
        await cluster.crash(1)
        disk.lose_page(LOG, 1)
        disk.replace_device("/data", is_empty=False)
        broker = cluster.start(1)
        assert 2 <= cluster.replica(1).log.log_end_offset < BATCHES
        assert broker.partitions.logs.previous_broker_epoch == -1


@in_loop
async def test_a_directory_that_was_replaced_is_not_remembered_for_ever():
    async with Cluster(1, directories=("/data", "/other")) as cluster:
        cluster.directory_ids = (201, 202)
        await cluster.crash(1)
        cluster.start(1)
        await written(cluster, 2)
        disk = cluster.disks[1]
        lose(disk, cluster.brokers[1].dirs[0], cluster)
        await cluster.crash(1)
        cluster.start(1).partitions.logs.mark_running(EPOCH)  # it is still missing
        await cluster.crash(1)
        disk.replace_device("/data", is_empty=True)
        cluster.directory_ids = (203, 202)
        broker = cluster.start(1)
        assert broker.partitions.logs.previous_broker_epoch == -1
        broker.partitions.logs.mark_running(EPOCH)
        await stop(cluster)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == EPOCH


@in_loop
async def test_a_flush_that_fails_at_the_end_is_remembered_by_the_other_directories():
    async with Cluster(1, directories=("/data", "/other")) as cluster:
        await written(cluster, 2)
        disk = cluster.disks[1]
        disk.fail("sync", errno.EIO, path_part=".log")
        disk.fail("truncate", errno.EROFS, path_part="running")
        disk.fail("rename", errno.EROFS, path_part="lost")
        await stop(cluster)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == -1


@in_loop
async def test_a_start_that_is_killed_while_it_opens_logs_forgets_nothing_of_the_last_end():
    """What a directory says of its clean end, and of another one that had none, is removed once it is open;
    there may be minutes until all are."""
    async with Cluster(1, directories=("/data", "/other")) as cluster:
        cluster.directory_ids = (201, 202)
        await cluster.crash(1)
        cluster.start(1)
        await written(cluster, 2)
        disk = cluster.disks[1]
        disk.fail("sync", errno.EIO, path_part=".log")
        disk.fail("truncate", errno.EROFS, path_part="running")
        disk.fail("rename", errno.EROFS, path_part="lost")
        await stop(cluster)
        opened = LogDir(disk, "/other", UUID(int=202), cluster.boot_id)
        opened.load(LogConfig(), {}, 0, MAY_BLOCK)
        disk.kill()
        assert cluster.start(1).partitions.logs.previous_broker_epoch == -1


@pytest.mark.parametrize("registered", [False, True])
@in_loop
async def test_a_directory_that_cannot_be_read_at_a_start_is_remembered_by_the_others(registered):
    """Nor can its id, by which they know it: it was lost after the process had been killed."""
    async with Cluster(1, directories=("/data", "/other")) as cluster:
        await cluster.crash(1)
        cluster.directory_ids = (201, 202)
        cluster.start(1)
        await written(cluster, 2)
        disk = cluster.disks[1]
        await cluster.crash(1)
        disk.lose_device("/data")
        cluster.directory_ids = (None, 202)
        broker = cluster.start(1)
        if registered:
            broker.partitions.logs.mark_running(EPOCH + 1)
        await cluster.crash(1)
        disk.lose_page(LOG, 1)
        disk.replace_device("/data", is_empty=False)
        cluster.directory_ids = (201, 202)
        broker = cluster.start(1)
        assert broker.partitions.logs.previous_broker_epoch == -1
        assert 2 <= cluster.replica(1).log.log_end_offset < BATCHES
        broker.partitions.logs.mark_running(EPOCH + 2)
        await cluster.crash(1)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == EPOCH + 2
