"""A partition's leader, as the metadata has it and as the driver sends it to a task; and the errors that
another leader, or the same one later, may not return."""

from __future__ import annotations

from typing import Final, NamedTuple
from uuid import UUID

from metadata_quorum.foundation.errors import ErrorCode

UNKNOWN_TOPIC: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INCONSISTENT_TOPIC_ID,
    }
)
RETRIABLE: Final = UNKNOWN_TOPIC | frozenset(
    {
        ErrorCode.LEADER_NOT_AVAILABLE,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.REPLICA_NOT_AVAILABLE,
        ErrorCode.BROKER_NOT_AVAILABLE,
        ErrorCode.OFFSET_NOT_AVAILABLE,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.REQUEST_TIMED_OUT,
        ErrorCode.NETWORK_EXCEPTION,
        ErrorCode.LISTENER_NOT_FOUND,
        ErrorCode.THROTTLING_QUOTA_EXCEEDED,
        ErrorCode.UNKNOWN_SERVER_ERROR,
    }
)


class PartitionLeader(NamedTuple):
    """The leader of one partition according to the metadata, or the replica to which it has sent us."""

    topic_id: UUID
    node_id: int
    epoch: int

    def is_same_log(self, other: PartitionLeader) -> bool:
        """Whether what both have at an offset is the same record: the topic and the leader's epoch are."""
        return (self.topic_id, self.epoch) == (other.topic_id, other.epoch)


class KnownLeader(NamedTuple):
    """The leader that the driver planned with: a task starts there, without a Metadata request of its own."""

    leader: PartitionLeader
    host: str
    port: int
