"""The directory of a log that goes is emptied once its old name is gone for certain: a loss of power that
brought the name back would bring a log that lacks any of its files."""

from __future__ import annotations

import asyncio
import errno
from dataclasses import replace

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.metadata.records import PartitionChangeRecord
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_virtual_time, produce_outcome, turns
from tests.unit.replication.held_executor import HeldExecutor

pytestmark = pytest.mark.row("L7")

AT_ONCE = replace(LogConfig(), file_delete_delay_ms=0)


class WatchfulDisk(SimDisk):
    """Notes whether a loss of power would bring the old name back when a directory begins to be emptied."""

    def __init__(self, capacity: int | None = None) -> None:
        super().__init__(capacity)
        self.old_name_was_durable: list[bool] = []

    def remove_tree(self, path: str, may_block: MayBlock) -> None:
        if path.endswith("-delete"):
            self.old_name_was_durable.append(self.durable_clone().exists("/data/t-0"))
        super().remove_tree(path, may_block)


async def removed(cluster: Cluster, *, sync_fails: bool) -> WatchfulDisk:
    """The replica has left the second broker, where what removes files may be chosen before what was begun
    earlier."""
    topic_id = cluster.create_topic("t", [[1, 2]])
    await produce_outcome(cluster, b"x")
    await turns(100)
    disk = cluster.disks[2]
    assert isinstance(disk, WatchfulDisk)
    assert disk.durable_clone().exists("/data/t-0")
    if sync_fails:
        disk.fail("sync_dir", errno.EIO, path_part="/data")
    held = cluster.brokers[2].executor = HeldExecutor()
    try:
        cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1,), replicas=(1,)))
        await asyncio.sleep(1)
        while held.waiting:
            held.waiting.insert(0, held.waiting.pop())
            await held.run_next()
    finally:
        held.release()
    return disk


@in_virtual_time
async def test_the_old_name_is_gone_before_files_are_removed() -> None:
    async with Cluster(2, log_defaults=AT_ONCE, disk=WatchfulDisk) as cluster:
        disk = await removed(cluster, sync_fails=False)
        assert disk.old_name_was_durable == [False]
        assert not [name for name in disk.list("/data", MAY_BLOCK) if name.startswith("t-0")]


@in_virtual_time
async def test_where_that_cannot_be_written_nothing_is_removed() -> None:
    async with Cluster(2, log_defaults=AT_ONCE, disk=WatchfulDisk) as cluster:
        disk = await removed(cluster, sync_fails=True)
        assert not cluster.brokers[2].dirs[0].online
        assert disk.old_name_was_durable == []
