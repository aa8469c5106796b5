"""A fetch, asked and answered, as plain data: without versions, without bytes of a protocol.

The same shapes serve both ends. On the leader, kraft/api/fetch.py makes a `FetchRequest` from the
wire and writes a `FetchResponse` to it; on the follower, kraft/peers/leader_endpoint.py does the reverse.
A partition is named by topic id, by topic name, or both (`uses_topic_ids` says which counts).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final
from uuid import UUID

from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH

if TYPE_CHECKING:  # a process that only sends fetches (a Spark task) starts sooner without the log
    from data_plane.log.segment import LogSlice
    from data_plane.replication.partition import Partition
    from metadata_quorum.foundation.file_region import FileRegion

CONSUMER: Final = -1
"""The replica id of a fetch that is no follower's."""

NO_SESSION: Final = 0
SESSIONLESS_EPOCH: Final = -1  # do not keep a session (and close the one that is named)
INITIAL_EPOCH: Final = 0  # open a session; the request is full
LAST_EPOCH: Final = 0x7FFFFFFF


def next_session_epoch(epoch: int) -> int:
    """Epochs count a session's requests: 1, 2, ... and after the last 1 again."""
    return 1 if epoch == LAST_EPOCH else epoch + 1


@dataclass(slots=True)
class FetchPartition:
    """What is asked of one partition."""

    topic_id: UUID
    topic: str
    partition: int
    fetch_offset: int
    max_bytes: int
    current_leader_epoch: int = NO_EPOCH
    last_fetched_epoch: int = NO_EPOCH
    log_start_offset: int = -1


@dataclass(slots=True)
class FetchRequest:
    """A whole fetch. Without a session, or when it opens one, `partitions` is all that is wanted;
    within a session only what changed."""

    partitions: list[FetchPartition]
    forgotten: list[tuple[UUID, str, int]] = field(default_factory=list)
    replica_id: int = CONSUMER
    replica_epoch: int = NO_EPOCH
    max_wait_ms: int = 500
    min_bytes: int = 1
    max_bytes: int = 0x7FFFFFFF
    committed_only: bool = False
    session_id: int = NO_SESSION
    session_epoch: int = SESSIONLESS_EPOCH
    rack_id: str = ""
    cluster_id: str | None = None  # as followers of the metadata log name it
    uses_topic_ids: bool = True
    leader_only: bool = False  # consumers older than version 11 cannot read from followers

    @property
    def from_follower(self) -> bool:
        return self.replica_id >= 0


@dataclass(slots=True)
class FetchParams:
    """How the broker serves a request (Kafka's FetchParams): its limits lowered to the broker's, and what
    its client may read."""

    request: FetchRequest
    min_bytes: int
    max_bytes: int
    may_read: Callable[[str, UUID], bool] | None = None
    """Whether the client may read the topic of that name or id, now; None: it may."""
    preferred_replica_of: Callable[[Partition, int], int] | None = None
    """Asked with a partition that we lead and an offset: the broker to read it from instead, -1 for none."""
    meter: Callable[[int], int] | None = None
    """Asked with the bytes of records found; how many ms the consumer must pause, 0 to hand them out."""


@dataclass(slots=True)
class FetchedPartition:
    """What is answered for one partition. The leader answers with `slice` (a piece of a file): it has read it
    (`records`), or sends it from the file (`region`). The follower gets `records`."""

    topic_id: UUID
    topic: str
    partition: int
    error: ErrorCode = ErrorCode.NONE
    high_watermark: int = -1
    last_stable_offset: int = -1
    log_start_offset: int = -1
    diverging_epoch: tuple[int, int] | None = None  # (epoch, end offset)
    aborted_transactions: tuple[tuple[int, int], ...] = ()  # (producer id, first offset)
    preferred_read_replica: int = -1
    slice: LogSlice | None = None
    records: memoryview | None = None
    region: FileRegion | None = None


@dataclass(slots=True)
class FetchResponse:
    """A whole answer; an `error` other than NONE stands for all of it."""

    error: ErrorCode = ErrorCode.NONE
    session_id: int = NO_SESSION
    partitions: list[FetchedPartition] = field(default_factory=list)
    throttle_time_ms: int = 0


@dataclass(slots=True)
class LogBounds:
    """Where a leader's log begins and ends (ListOffsets as a replica: earliest and latest)."""

    start: int
    end: int
