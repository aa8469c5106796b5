"""What a worker fetched beyond the end of a range: the next ranges of the partition begin there.

A broker sends whole batches, and one may hold ten thousand records. Where tasks read a hundred each (small
micro-batches, or `minPartitions`), every one of them would fetch the same megabyte again. Spark's own source
keeps such data as well (its FetchedDataPool).

Kept data counts only while the driver, which asks the leaders before each micro-batch, sees the topic and the
leader's epoch that it was fetched in: another epoch's log may have other records at the same offsets.
"""

from __future__ import annotations

from typing import Final, NamedTuple

from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition
from spark_connector.leaders import PartitionLeader

MAX_KEPT_BYTES: Final = 8 * 1024 * 1024
"""Kept for all partitions that a worker reads."""
KEPT_FOR_S: Final = 300.0
"""As long as Spark's own source does: the log may have deleted the records since."""
NO_EPOCH: Final = -1


class FetchedData(NamedTuple):
    """Whole batches, one after the other."""

    leader: PartitionLeader
    data: bytes
    first_offset: int
    next_offset: int
    fetched_at: float


class FetchedDataPool:
    """What one process keeps of one cluster. Times are seconds of a monotonic clock."""

    def __init__(self, max_bytes: int = MAX_KEPT_BYTES) -> None:
        self._max_bytes = max_bytes
        self._kept: dict[TopicPartition, FetchedData] = {}  # the one that was kept last comes last

    def keep(self, partition: TopicPartition, fetched: FetchedData) -> None:
        """In place of what was kept of the partition before."""
        leader = fetched.leader
        if (
            leader.topic_id == ZERO_UUID or leader.epoch == NO_EPOCH or len(fetched.data) > self._max_bytes
        ):  # an old broker's, or more than there is room for
            return
        self._kept.pop(partition, None)
        self._kept[partition] = fetched
        while sum(len(each.data) for each in self._kept.values()) > self._max_bytes:
            del self._kept[next(iter(self._kept))]

    def at(
        self, partition: TopicPartition, leader: PartitionLeader, offset: int, now: float
    ) -> memoryview | None:
        """Batches that were fetched from that leader's log, with the one that holds the offset among them."""
        kept = self._kept.get(partition)
        if kept is None:
            return None
        if now - kept.fetched_at > KEPT_FOR_S or not kept.leader.is_same_log(leader):
            del self._kept[partition]
            return None
        return memoryview(kept.data) if kept.first_offset <= offset < kept.next_offset else None
