"""A log of broker 1 of which the first batches are synced, and no others."""

from __future__ import annotations

from data_plane.log.checkpoints import RUNNING
from tests.unit.replication.cluster import Cluster, until

BATCHES = 12
LOG = "/data/t-0/00000000000000000000.log"


async def written(cluster: Cluster, synced: int, *, boot_id_kept: bool = True) -> int:
    """Batches of about a third of a page, the first ones synced; returns how many bytes that is."""
    cluster.create_topic("t", [[1]])
    partitions = cluster.brokers[1].partitions
    if boot_id_kept:
        partitions.logs.mark_running(7)
    else:
        cluster.disks[1].remove(f"/data/{RUNNING}")
    partition = cluster.replica(1)
    for _ in range(synced):
        cluster.produce(b"x" * 1300, acks=1)
    synced_bytes = partition.log.size
    if synced:
        partitions.executor.flush(partition)
        await until(lambda: partition.log.recovery_point == synced)
    await partitions.checkpoints.write(everything=True)
    await until(lambda: partitions.background.idle)
    for _ in range(BATCHES - synced):
        cluster.produce(b"y" * 1300, acks=1)
    return synced_bytes
