"""What a leader accepts: the checks before an append, of each batch's header, CRC and every record.

A batch of a client is opened and walked over (metadata_quorum/foundation/record_walk.py), as Apache Kafka
does, so that its contents are what its header says.

    what is wrong                                               answer
    -----------------------------------------------------------------------------------------
    impossible length, magic above 2, CRC                       CORRUPT_MESSAGE
    magic 0 or 1 (none since Kafka 4), no whole batch           INVALID_RECORD
    unknown codec                                               UNSUPPORTED_COMPRESSION_TYPE
    record count against last offset delta or against the bytes,
    damaged or misnumbered records                              INVALID_RECORD
    a client's control batch, base offset, second batch,
    producer id without a sequence, record without a key on a
    compacted topic                                             INVALID_RECORD
    larger than max.message.bytes, or 32 times that when opened MESSAGE_TOO_LARGE
    larger than segment.bytes                                   RECORD_LIST_TOO_LARGE
    timestamp outside message.timestamp.*.max.ms, or a client's
    claim of log-append time where that is the broker's to give INVALID_TIMESTAMP

Records of a client that are wrong one by one (key, timestamp, offset) are named in the answer (KIP-467).
A wrong max timestamp in the header is put right, and what follows a client's batch without being a whole
one is cut off, as Kafka does.

How much of this may be done at once is the caller's to say (`WorkBudget`): what takes longer is done again,
in another thread. `check` depends on nothing but its arguments and changes nothing but the records' bytes.

Path of the data: api/produce (long ones), log.append_as_leader -> here -> producers -> segment.
"""

from __future__ import annotations

import struct
import sys
from collections.abc import Iterable, Iterator, Sequence
from enum import Enum
from itertools import islice
from typing import Final, NamedTuple

from data_plane.log.config import COMPRESSION_NAMES, COMPRESSION_PRODUCER, LogConfig
from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    control_type,
    coordinator_epoch,
    decode_batch,
    read_header,
    set_create_time,
    set_log_append_time,
    with_other_codec,
)
from metadata_quorum.foundation.compression import (
    MAX_DECOMPRESSED_BYTES,
    CompressionType,
    TooLargeError,
    compress,
    decompress,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.record_walk import RecordDeltas, record_deltas, survey
from metadata_quorum.foundation.topic_configs import LOG_APPEND_TIME

Writable = bytearray | memoryview
Batches = list[tuple[int, BatchHeader]]
RecordError = tuple[int, str]
"""Which record of the batch, and what is wrong with it."""

# length, attributes, timestamp and offset delta, key and value length, header count: a byte each
_LEAST_RECORD_BYTES: Final = 7

_INT32: Final = struct.Struct(">i")
_LEAST_LENGTH: Final = 14
"""What a batch of any magic has behind its length."""

_MAX_EXPANSION: Final = 32
_LEAST_MESSAGE_BYTES: Final = 1024 * 1024
_NAMED_RECORDS: Final = 1000
"""More bad ones are not named: the response to a small batch must not be huge."""
_MAX_TIMESTAMP: Final = 2**63 - 1
_EVER_MS: Final = 2**65  # beyond whatever a base timestamp and a delta add up to


class AppendOrigin(Enum):
    """Who appends: what a client may not do, the node's own coordinators may."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


# For whatever every request passes: to look up a member of an enum takes Python 0.1 to 0.3 us.
CLIENT: Final = AppendOrigin.CLIENT
COORDINATOR: Final = AppendOrigin.COORDINATOR
_LAST_CODEC: Final = int(CompressionType.ZSTD)


class InvalidRecords(BrokerError):
    """What is in a batch is wrong, and none of it is appended. Without `record_errors`: as a whole."""

    def __init__(self, code: ErrorCode, message: str, record_errors: Sequence[RecordError] = ()) -> None:
        super().__init__(code, message)
        self.record_errors = record_errors


class BudgetExceeded(Exception):
    """There is more to do than the effort allows. Nothing was changed."""


class WorkBudget:
    """How much may be done, in steps of about half a microsecond: a record to walk over is one."""

    __slots__ = ("left",)

    def __init__(self, steps: int = sys.maxsize) -> None:
        self.left = steps

    def spend(self, steps: int) -> None:
        """Raises BudgetExceeded."""
        if steps > self.left:
            raise BudgetExceeded
        self.left -= steps


INLINE_STEPS: Final = 10_000
"""About 5 ms, what one request may take of the loop's time."""

_STEPS_PER_BATCH: Final = 20
_CHECKED_BYTES_PER_STEP: Final = 2048  # CRC and a copy
_OPENED_BYTES_PER_STEP: Final = 128  # gzip, the slowest
_NAMING_STEPS_PER_RECORD: Final = 4
_COMPRESSED_BYTES_PER_STEP: Final = 2  # zstd at its highest levels


class ValidatedRecords(NamedTuple):
    """What may be appended: the records, in the topic's codec, with position and header of every batch."""

    records: Writable
    batches: Batches


def check(
    records: Writable,
    config: LogConfig,
    now_ms: int,
    origin: AppendOrigin,
    budget: WorkBudget | None = None,
    tp: TopicPartition | None = None,
) -> ValidatedRecords:
    """Raises BrokerError with the table's code; BudgetExceeded, before anything was changed. `tp`: whose."""
    if budget is None:
        budget = WorkBudget()
    budget.spend(_STEPS_PER_BATCH + len(records) // _CHECKED_BYTES_PER_STEP)
    batches = check_headers(records, config, origin)
    codec = target_codec(config)
    opened: bytes | None = None
    if origin is CLIENT:
        position, header = batches[0]
        if LOG_OVERHEAD + header.batch_length < len(records):
            records = memoryview(records)[: header.size]
        opened = _opened(records, position, header, config, budget)
        if codec is not None and codec != header.compression:
            budget.spend(len(opened) // _COMPRESSED_BYTES_PER_STEP)
        newest = _check_records(opened, header, config, now_ms, budget, tp)
        if newest != header.max_timestamp or header.attributes & LOG_APPEND_TIME_FLAG:
            batches[0] = position, set_create_time(records, position, header, newest)
    if codec is None:
        return ValidatedRecords(records, batches)
    out = bytearray()
    for position, header in batches:
        out += _in_codec(codec, records, position, header, opened, config)
    return ValidatedRecords(out, check_headers(out, config, origin))


def _in_codec(
    codec: CompressionType,
    records: Writable,
    position: int,
    header: BatchHeader,
    opened: bytes | None,
    config: LogConfig,
) -> memoryview | bytearray:
    """One batch in the topic's format. `opened`: its records' bytes, where they are known."""
    if header.compression == codec or header.is_control:
        return memoryview(records)[position : position + header.size]
    if opened is None:
        opened = _opened(records, position, header, config, WorkBudget())
    payload = compress(codec, opened, _level(codec, config))
    return with_other_codec(records, position, header, codec, payload)


def check_headers(records: Writable, config: LogConfig, origin: AppendOrigin) -> Batches:
    """Position and header of every batch in `records`. Raises BrokerError with the table's code."""
    batches: Batches = []
    position, end = 0, len(records)
    if end > config.segment_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {end} bytes, which exceeds segment.bytes {config.segment_bytes}",
        )
    while position < end:
        left = end - position
        header = read_header(records, position) if left >= BATCH_OVERHEAD else None
        if (
            header is None
            or header.magic != MAGIC
            or not BATCH_OVERHEAD <= LOG_OVERHEAD + header.batch_length <= left
        ):
            _refuse_no_batch(records, position, left, origin)
            break
        size = LOG_OVERHEAD + header.batch_length
        if size > config.max_message_bytes:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size is {size} bytes, "
                f"which exceeds the maximum configured value of {config.max_message_bytes}",
            )
        _check_header(header, config, origin)
        if not check_crc(records, position, header):
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "Record is corrupt: its CRC does not match")
        batches.append((position, header))
        position += size
    if not batches or (origin is CLIENT and len(batches) > 1):
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"A produce request must hold exactly one record batch per partition, not {len(batches)}",
        )
    return batches


def _refuse_no_batch(records: Writable, position: int, left: int, origin: AppendOrigin) -> None:
    """At `position` is no whole batch. Returns where a client's bytes end before it does."""
    size = LOG_OVERHEAD
    if left >= LOG_OVERHEAD:
        (length,) = _INT32.unpack_from(records, position + LOG_OVERHEAD - _INT32.size)
        if length < _LEAST_LENGTH:
            message = f"Record size {length} is less than the minimum record overhead ({_LEAST_LENGTH})"
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, message)
        size += length
    if left > MAGIC_POSITION and (magic := records[position + MAGIC_POSITION]) != MAGIC:
        if magic in (0, 1):
            message = f"Record batches must have magic version 2, not {magic}"
            raise BrokerError(ErrorCode.INVALID_RECORD, message)
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"Invalid magic found in record: {magic}")
    if origin is COORDINATOR or LOG_OVERHEAD < size <= left:
        message = f"Record batch claims {size} bytes, {left} are there, {BATCH_OVERHEAD} is the least"
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, message)


def _check_header(header: BatchHeader, config: LogConfig, origin: AppendOrigin) -> None:
    """Everything that a header can say of itself, as one expression on the hot path."""
    count = header.record_count
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec > _LAST_CODEC:
        raise InvalidRecords(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {codec}")
    if (
        count > 0
        and header.last_offset_delta == count - 1
        and count * _LEAST_RECORD_BYTES
        <= (MAX_DECOMPRESSED_BYTES if codec else header.batch_length + LOG_OVERHEAD - BATCH_OVERHEAD)
        and (
            origin is COORDINATOR
            or (
                header.base_offset == 0
                and not attributes & (CONTROL_FLAG | LOG_APPEND_TIME_FLAG)
                and (header.producer_id < 0 or header.base_sequence >= 0)
            )
        )
    ):
        return
    # As in Kafka: the claim is overlooked where the time that it gives the records is judged like any other.
    overlooked = config.message_timestamp_type != LOG_APPEND_TIME and header.max_timestamp != NO_TIMESTAMP
    if header.timestamp_type and overlooked:
        _check_header(header._replace(attributes=attributes & ~LOG_APPEND_TIME_FLAG), config, origin)
        return
    if header.timestamp_type and header.record_count > 0:
        text = "Producer should not set timestamp type to LogAppendTime"
        named = range(min(header.record_count, _NAMED_RECORDS))
        raise _rejected([(ErrorCode.INVALID_TIMESTAMP, (i, text)) for i in named])
    raise InvalidRecords(ErrorCode.INVALID_RECORD, _what_is_wrong(header))


def _what_is_wrong(header: BatchHeader) -> str:
    if header.is_control:
        return "Clients are not allowed to write control records"
    if header.record_count <= 0 or header.last_offset_delta != header.record_count - 1:
        return (
            f"Inconsistency between number of records {header.record_count} "
            f"and last offset delta {header.last_offset_delta} of the batch"
        )
    if header.base_offset != 0:
        return f"The baseOffset of the record batch should be 0, but it is {header.base_offset}"
    if header.producer_id >= 0:
        return (
            f"Invalid sequence number {header.base_sequence} "
            f"in record batch with producerId {header.producer_id}"
        )
    return f"{header.record_count} records do not fit into a batch of {header.size} bytes"


def _opened(
    records: Writable, position: int, header: BatchHeader, config: LogConfig, budget: WorkBudget
) -> bytes:
    """The records' bytes as they were before they were compressed."""
    body = memoryview(records)[position + BATCH_OVERHEAD : position + LOG_OVERHEAD + header.batch_length]
    if not header.attributes & CODEC_MASK:
        return bytes(body)
    most = min(_MAX_EXPANSION * max(config.max_message_bytes, _LEAST_MESSAGE_BYTES), MAX_DECOMPRESSED_BYTES)
    allowed = budget.left * _OPENED_BYTES_PER_STEP
    try:
        opened = bytes(decompress(header.compression, body, min(most, allowed)))
    except TooLargeError as e:
        if allowed < most:
            raise BudgetExceeded from None
        raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE, str(e)) from e
    except ValueError as e:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(e)) from e
    budget.spend(len(opened) // _OPENED_BYTES_PER_STEP)
    return opened


def _check_records(
    opened: bytes,
    header: BatchHeader,
    config: LogConfig,
    now_ms: int,
    budget: WorkBudget,
    tp: TopicPartition | None,
) -> int:
    """Every record against the header and the topic's settings. Returns the batch's max timestamp."""
    count = header.record_count
    try:
        found = survey(opened, count, budget.spend)
    except CorruptBatchError as e:
        raise InvalidRecords(ErrorCode.INVALID_RECORD, str(e)) from e
    newest = header.base_timestamp + found.greatest_delta
    stamped = config.message_timestamp_type == LOG_APPEND_TIME
    if (
        found.in_order
        and (found.all_keyed or not config.compact)
        and (
            stamped
            or (
                newest - now_ms <= config.message_timestamp_after_max_ms
                and newest <= _MAX_TIMESTAMP
                and now_ms - header.base_timestamp - found.least_delta
                <= config.message_timestamp_before_max_ms
            )
        )
    ):
        return header.max_timestamp if stamped else max(newest, NO_TIMESTAMP)
    budget.spend(_NAMING_STEPS_PER_RECORD * count)
    broken = _RecordRules.of(header, config, now_ms).broken(record_deltas(opened, count), tp)
    errors = list(islice(broken, _NAMED_RECORDS))
    if errors:
        raise _rejected(errors)
    return max(newest, NO_TIMESTAMP)  # some have no timestamp, and are not too old therefore


class _RecordRules(NamedTuple):
    """What records of a batch must be like. Times in ms since the epoch."""

    base_timestamp: int
    oldest: int
    latest: int
    wants_keys: bool

    @classmethod
    def of(cls, header: BatchHeader, config: LogConfig, now_ms: int) -> _RecordRules:
        base_timestamp = header.base_timestamp
        if config.message_timestamp_type == LOG_APPEND_TIME:
            return cls(base_timestamp, -_EVER_MS, _EVER_MS, config.compact)
        oldest = now_ms - config.message_timestamp_before_max_ms
        latest = min(now_ms + config.message_timestamp_after_max_ms, _MAX_TIMESTAMP)
        return cls(base_timestamp, oldest, latest, config.compact)

    def broken(
        self, found: Iterable[RecordDeltas], tp: TopicPartition | None
    ) -> Iterator[tuple[ErrorCode, RecordError]]:
        """By which record, and how."""
        keyless = f"Compacted topic cannot accept message without key in topic partition {tp}"
        for i, place in enumerate(found):
            timestamp = self.base_timestamp + place.timestamp_delta
            if place.offset_delta != i:
                yield ErrorCode.INVALID_RECORD, (i, f"Record {i} has the offset delta {place.offset_delta}")
            elif self.wants_keys and not place.has_key:
                yield ErrorCode.INVALID_RECORD, (i, keyless)
            elif timestamp != NO_TIMESTAMP and not self.oldest <= timestamp <= self.latest:
                within = f"[{self.oldest}, {self.latest}]"
                text = (
                    f"Timestamp {timestamp} of message with offset {i} is out of range. "
                    f"The timestamp should be within {within}"
                )
                yield ErrorCode.INVALID_TIMESTAMP, (i, text)


def _rejected(errors: list[tuple[ErrorCode, RecordError]]) -> InvalidRecords:
    named = [error for _, error in errors]
    if any(code is ErrorCode.INVALID_TIMESTAMP for code, _ in errors):
        message = "One or more records have been rejected due to invalid timestamp"
        return InvalidRecords(ErrorCode.INVALID_TIMESTAMP, message, named)
    first = ", ".join(f"RecordError(batchIndex={i}, message='{text}')" for i, text in named[:3])
    message = (
        f"One or more records have been rejected due to {len(named)} record errors in total, "
        f"and only showing the first three errors at most: [{first}]"
    )
    return InvalidRecords(ErrorCode.INVALID_RECORD, message, named)


def check_from_leader(
    records: Writable | bytes, position: int, header: BatchHeader, expected_offset: int
) -> None:
    """What a follower still checks of a batch that its leader has accepted. Raises BrokerError
    (CORRUPT_MESSAGE, or OFFSET_OUT_OF_RANGE for one below our end), and CorruptBatchError for a marker that
    is none, since it could not be taken in once it is written."""
    if header.magic != MAGIC or not check_crc(records, position, header):
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} from the leader is corrupt"
        )
    if header.base_offset < expected_offset or header.last_offset_delta < 0:
        raise BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The leader sent a batch at offset {header.base_offset}, the log ends at {expected_offset}",
        )
    if header.attributes & CONTROL_FLAG:
        for record in decode_batch(records, position)[:1]:
            if control_type(record) in (CONTROL_ABORT, CONTROL_COMMIT):
                coordinator_epoch(record)


# --- settings that change the bytes ------------------------------------------------------------


def target_codec(config: LogConfig) -> CompressionType | None:
    """The codec that the topic demands; None where it keeps the producer's."""
    if config.compression_type == COMPRESSION_PRODUCER:
        return None
    return COMPRESSION_NAMES[config.compression_type]


def _level(codec: CompressionType, config: LogConfig) -> int | None:
    if codec is CompressionType.GZIP and config.compression_gzip_level > 0:
        return config.compression_gzip_level
    if codec is CompressionType.ZSTD:
        return config.compression_zstd_level
    return None


def stamp(records: Writable, batches: Batches, now_ms: int) -> Batches:
    """Give every batch the broker's time; headers only."""
    for position, header in batches:
        set_log_append_time(records, position, header, now_ms)
    return [(position, read_header(records, position)) for position, _ in batches]
