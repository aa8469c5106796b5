"""Where produces and fetches find a partition of this broker, by name or by topic id.

A log can be on disk and not be served: damaged, or in a directory that cannot be read. Its partition is not
in here, and asking for it says so (KAFKA_STORAGE_ERROR), not that it is unknown.
"""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

from data_plane.log_manager.found_logs import UnclaimedLogs
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition


class PartitionRegistry:
    """The partitions of one broker, in the order in which they came."""

    def __init__(self, unclaimed: UnclaimedLogs) -> None:
        self._unclaimed = unclaimed
        self._by_name: dict[tuple[str, int], Partition] = {}
        self._by_id: dict[tuple[int, int], Partition] = {}
        """Topic ids as numbers: a UUID is hashed by a function in Python."""

    def get(self, topic: str, partition: int) -> Partition:
        """Raises UNKNOWN_TOPIC_OR_PARTITION or KAFKA_STORAGE_ERROR."""
        found = self._by_name.get((topic, partition))
        if found is not None:
            return found
        tp = TopicPartition(topic, partition)
        reason = self._unclaimed.why_offline(tp)
        if reason is not None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, reason)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))

    def get_by_id(self, topic_id: UUID, partition: int) -> Partition:
        """Raises UNKNOWN_TOPIC_ID or KAFKA_STORAGE_ERROR."""
        found = self._by_id.get((topic_id.int, partition))
        if found is not None:
            return found
        offline = self._unclaimed.offline_by_id(topic_id, partition)
        if offline is not None:
            return self.get(*offline)
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_ID, f"{topic_id}:{partition}")

    def find(self, tp: TopicPartition) -> Partition | None:
        return self._by_name.get(tp)

    def find_by_id(self, topic_id: UUID, partition: int) -> Partition | None:
        return self._by_id.get((topic_id.int, partition))

    def __contains__(self, tp: TopicPartition) -> bool:
        return tp in self._by_name

    def __iter__(self) -> Iterator[Partition]:
        return iter(self._by_name.values())

    def __len__(self) -> int:
        return len(self._by_name)

    def add(self, partition: Partition) -> None:
        self._by_name[partition.tp] = partition
        self._by_id[partition.topic_id.int, partition.tp.partition] = partition

    def remove(self, partition: Partition) -> None:
        del self._by_name[partition.tp]
        del self._by_id[partition.topic_id.int, partition.tp.partition]
