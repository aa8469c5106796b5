"""A replica is truncated while it is on its way to another log directory. In virtual time."""

from __future__ import annotations

import asyncio
from dataclasses import replace

import pytest

from data_plane.log.config import LogConfig
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.foundation.topic_configs import MOVES_RATE
from metadata_quorum.metadata.records import ConfigRecord
from tests.support.virtual_loop import run_virtually
from tests.unit.replication.cluster import Cluster, produce_outcome, until

A, B = "/data/a", "/data/b"
TP = TopicPartition("t", 0)
SMALL = replace(LogConfig(), segment_bytes=4_000, file_delete_delay_ms=1_000)
SLOWLY = ConfigRecord(resource_type=ResourceType.BROKER, resource_name="2", name=MOVES_RATE, value="8000")


async def _truncated(cluster: Cluster, offset: int) -> None:
    outcomes: list[bool] = []
    cluster.replica(2).truncate_to(offset, outcomes.append)
    await until(lambda: outcomes == [True])


def _contents(cluster: Cluster, broker: int) -> bytes:
    return b"".join(bytes(each.file.read(0, each.size)) for each in cluster.replica(broker).log.segments)


@pytest.mark.row("L8")
def test_a_copy_goes_back_as_far_as_its_log_did_whatever_came_after_that() -> None:
    """The log is truncated twice before the copy is, and less far the second time."""

    async def test() -> None:
        async with Cluster(2, directories=(A, B), log_defaults=SMALL) as cluster:
            cluster.create_topic("t", [[1, 2]])
            for _ in range(30):
                assert await produce_outcome(cluster, b"v" * 900) == ErrorCode.NONE
            cluster.commit(SLOWLY)
            partitions, replica = cluster.brokers[2].partitions, cluster.replica(2)
            target = B if partitions.logs.dir_of(replica).path == A else A
            partitions.move(TP, target)
            await asyncio.sleep(1)
            move = partitions.moves.of(replica)
            assert move is not None
            assert move.log.log_end_offset > 10
            await _truncated(cluster, 5)
            cluster.elect("t", 0, 2)
            for _ in range(20):
                assert await produce_outcome(cluster, b"another") == ErrorCode.NONE
            cluster.elect("t", 0, 1)
            await _truncated(cluster, 10)
            assert move.truncation_pending
            cluster.elect("t", 0, 1)
            await until(lambda: replica.log.log_end_offset == 25)
            await until(lambda: partitions.logs.dir_of(replica).path == target)
            assert _contents(cluster, 1) == _contents(cluster, 2)

    run_virtually(test())
