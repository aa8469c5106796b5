"""Of what was not synced a loss of power may take any page by itself: what stands behind it is truncated, and
the replica does not claim to be whole. Under the same boot of the machine, or in what was synced, damage is
real.
"""

from __future__ import annotations

import errno
import logging

import pytest

from chaos.sim.disk import PAGE
from data_plane.log.config import LogConfig
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_loop
from tests.unit.replication.unsynced_log import BATCHES, LOG, written


@pytest.mark.row("L7")
@pytest.mark.parametrize("kept_bytes", [0, 1, 100, PAGE - 1])
@in_loop
async def test_a_page_that_a_loss_of_power_took_truncates_the_log_there(caplog, kept_bytes):
    for page in range(5):
        for synced in (0, 2, 3, 6):
            async with Cluster(1) as cluster:
                synced_bytes = await written(cluster, synced)
                size = cluster.replica(1).log.size // BATCHES
                cluster.disks[1].lose_page(LOG, page, kept_bytes)
                await cluster.crash(1)
                cluster.boot_id = "second boot"
                caplog.clear()
                with caplog.at_level(logging.WARNING, "data_plane.log.recovery"):
                    broker = cluster.start(1)
                lost_from = max(page * PAGE + kept_bytes, synced_bytes)
                survived = min(lost_from // size, BATCHES)
                if lost_from >= (page + 1) * PAGE or lost_from >= size * BATCHES:
                    survived = BATCHES  # it held nothing that was not synced
                assert cluster.replica(1).log.log_end_offset in (survived, survived + 1), (page, synced)
                assert cluster.replica(1).log.log_end_offset >= synced
                assert broker.partitions.logs.previous_broker_epoch == -1
                if page < 3 and survived < BATCHES:
                    assert f"(offset {survived}), " in caplog.text
                    assert f"nothing from offset {synced} on had been synced" in caplog.text
                assert cluster.produce(b"next", acks=1) == cluster.replica(1).log.log_end_offset


async def offline(cluster: Cluster) -> bool:
    before = cluster.disks[1].read_bytes(LOG, MAY_BLOCK)
    broker = cluster.start(1)
    with pytest.raises(BrokerError) as refused:
        broker.partitions.get("t", 0)
    assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
    return cluster.disks[1].read_bytes(LOG, MAY_BLOCK) == before


@pytest.mark.row("L7")
@in_loop
async def test_under_the_same_boot_damage_is_truncated_nowhere():
    async with Cluster(1) as cluster:
        await written(cluster, 2)
        await cluster.crash(1)
        cluster.disks[1].flip_bit(LOG, 2 * PAGE)
        assert await offline(cluster)


@pytest.mark.row("L7")
@pytest.mark.parametrize("boot_id", ["first boot", "second boot"])
@in_loop
async def test_after_a_failure_of_the_disk_pages_that_were_not_synced_may_be_gone(boot_id):
    """A sync that fails takes them; the next loss of power does: neither takes the log offline for good."""
    async with Cluster(1) as cluster:
        await written(cluster, 2)
        broker = cluster.brokers[1]
        broker.partitions.log_dir_failures.fail(broker.dirs[0], OSError(errno.EIO, "a failed fsync"))
        cluster.disks[1].lose_page(LOG, 1)
        await cluster.crash(1)
        cluster.boot_id = boot_id
        broker = cluster.start(1)
        assert 2 <= cluster.replica(1).log.log_end_offset < BATCHES
        assert broker.partitions.logs.previous_broker_epoch == -1


FULL = 1  # byte
SECOND_SEGMENT = "/data/t-0/00000000000000000005.log"


@pytest.mark.row("L7")
@pytest.mark.parametrize("full", ["before the loss of power", "while the log recovers"])
@in_loop
async def test_a_full_disk_does_not_hide_that_pages_may_be_gone(full):
    """What says so takes no room: else the log would be damaged for no reason, and offline for good."""
    async with Cluster(1, log_defaults=LogConfig(segment_bytes=8192)) as cluster:
        await written(cluster, 2)
        disk = cluster.disks[1]
        if full == "before the loss of power":
            disk.capacity = FULL
            with pytest.raises(BrokerError):
                cluster.produce(b"y", acks=1)
        disk.lose_page(SECOND_SEGMENT, 0)
        await cluster.crash(1)
        if full == "while the log recovers":
            cluster.boot_id = "second boot"
            disk.capacity = FULL
            assert not cluster.start(1).dirs[0].online
            await cluster.crash(1)
        disk.capacity = None
        cluster.start(1)
        assert cluster.replica(1).log.log_end_offset == 5


@pytest.mark.row("L7")
@in_loop
async def test_where_it_is_not_known_which_boot_it_was_damage_is_truncated_nowhere():
    async with Cluster(1) as cluster:
        await written(cluster, 2, boot_id_kept=False)
        cluster.disks[1].lose_page(LOG, 1)
        await cluster.crash(1)
        cluster.boot_id = "second boot"
        assert await offline(cluster)


@pytest.mark.row("L7")
@in_loop
async def test_what_was_synced_is_damaged_by_no_loss_of_power():
    async with Cluster(1) as cluster:
        await written(cluster, 6)
        await cluster.crash(1)
        cluster.disks[1].flip_bit(LOG, PAGE)
        cluster.boot_id = "second boot"
        assert await offline(cluster)
