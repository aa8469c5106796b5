"""What an append must know of a run of batches before the write, and what it returns.

Nothing here changes a log. Checks of a client's records are in validation.py.

Path of the data: log.append_as_leader, log.append_as_follower -> here -> log's one write.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Final, NamedTuple, NoReturn

from data_plane.log import validation
from data_plane.log.producers import BatchMetadata, ProducerStateManager
from data_plane.log.validation import CLIENT, AppendOrigin, Batches, Writable
from metadata_quorum.foundation.batch import (
    LOG_OVERHEAD,
    Record,
    decode_batch,
    iter_headers,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH
from metadata_quorum.foundation.primitives import Buffer

ANY_EPOCH: Final = 2**31 - 1
_NO_MARKERS: Final[Mapping[int, Record]] = {}


class AppendInfo(NamedTuple):
    """The outcome of an append."""

    first_offset: int
    last_offset: int
    log_append_time_ms: int  # -1 where the topic keeps the producer's times; of a duplicate, its newest
    log_start_offset: int
    duplicate: bool = False  # nothing was written; the offsets are those of the first time
    rolled: bool = False  # a segment was closed: flush it soon
    size: int = 0


LeaderRun = tuple[Batches, int, int]
"""Whole batches from a leader: with the offset behind the last one, and the bytes of all."""


def first_offset_expected(records: Buffer, log_start_offset: int, log_end_offset: int) -> int:
    """Where a leader's run has to begin: at the log's end. But an empty log may start inside one of the
    leader's batches (DeleteRecords): then the run begins with that whole batch."""
    if log_start_offset != log_end_offset:
        return log_end_offset
    first = next(iter_headers(records), None)
    if first is not None and first[1].base_offset < log_end_offset <= first[1].last_offset:
        return first[1].base_offset
    return log_end_offset


def check_leader_run(
    records: Buffer, expected: int, leader_epoch: int = ANY_EPOCH, last_epoch: int = NO_EPOCH
) -> LeaderRun:
    """The whole batches of a run that begins at offset `expected`, behind a record of `last_epoch`; a batch
    that is cut off at the end is left for the next fetch. So is one of a newer epoch than `leader_epoch`: the
    leader that we asked became a follower, and its log another's, before all of its answer had left the file
    (KAFKA-18723). Where that log's records are of an older epoch than ours, its part before differs, too.

    Raises CorruptBatchError, and BrokerError (CORRUPT_MESSAGE; OFFSET_OUT_OF_RANGE where the offsets are not
    the expected ones; UNKNOWN_LEADER_EPOCH where the first batch is of a newer epoch; FENCED_LEADER_EPOCH
    where one is of an older epoch than what is before it)."""
    batches: Batches = []
    size = 0
    for position, header in iter_headers(records):
        if header.partition_leader_epoch > leader_epoch:
            if batches:
                break
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{header.partition_leader_epoch} in a batch")
        if NO_EPOCH < header.partition_leader_epoch < last_epoch:
            raise BrokerError(
                ErrorCode.FENCED_LEADER_EPOCH, f"{header.partition_leader_epoch} behind {last_epoch}"
            )
        last_epoch = header.partition_leader_epoch
        validation.check_from_leader(records, position, header, expected)
        batches.append((position, header))
        expected = header.base_offset + header.last_offset_delta + 1
        size = position + LOG_OVERHEAD + header.batch_length
    return batches, expected, size


def refuse_until_flushed(directory: str) -> NoReturn:
    """If records were written over a truncation that is not durable, a loss of power could leave pages of
    both. Leader and follower try again; by then a flush is done. Raises BrokerError."""
    raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"{directory}: the truncation is not durable yet")


def check_producer(
    producers: ProducerStateManager, records: Writable, batches: Batches, origin: AppendOrigin
) -> BatchMetadata | None:
    """The earlier batch that a client's batch repeats, None for a new one. Raises BrokerError for an epoch or
    sequence number that does not follow on."""
    if origin is CLIENT:
        return producers.check(batches[0][1])
    for position, header in batches:
        marker = decode_batch(records, position)[0] if header.is_control else None
        producers.check_coordinated(header, marker)
    return None


def transaction_markers(records: Buffer, batches: Batches) -> Mapping[int, Record]:
    """Markers by the position of their batch. Raises CorruptBatchError."""
    markers: dict[int, Record] | None = None
    for position, header in batches:
        if header.producer_id < 0 or not header.is_control:
            continue
        inside = decode_batch(records, position)
        if inside:  # compaction may have left a control batch empty
            markers = markers or {}
            markers[position] = inside[0]
    return markers or _NO_MARKERS
