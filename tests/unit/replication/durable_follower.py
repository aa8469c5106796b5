"""A follower whose records are durable, and the recovery point that says so."""

from __future__ import annotations

from data_plane.replication.partition import Partition
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, produce_outcome, until

CHECKPOINT = "/data/recovery-point-offset-checkpoint"


def checkpointed(cluster: Cluster) -> str:
    """The line of t-0 in broker 2's checkpoint: topic, partition, recovery point."""
    return cluster.disks[2].read_bytes(CHECKPOINT, MAY_BLOCK).decode().splitlines()[2]


async def follower_with_three_durable_records(cluster: Cluster) -> Partition:
    cluster.create_topic("t", [[1, 2]])
    for _ in range(3):
        await produce_outcome(cluster, b"x")
    broker, follower = cluster.brokers[2], cluster.replica(2)
    broker.partitions.executor.flush(follower)
    await until(lambda: follower.log.recovery_point == 3)
    await broker.partitions.checkpoints.write(everything=True)
    assert checkpointed(cluster) == "t 0 3"
    return follower
