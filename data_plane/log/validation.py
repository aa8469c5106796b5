"""What a leader accepts: the checks before an append, once per batch, on the header and the CRC.

Nothing looks at single records, but where a topic's settings ask for it: a compacted topic wants
keys, a topic with a codec of its own wants other bytes than the producer sent.

    what is wrong                                               answer
    -----------------------------------------------------------------------------------------
    cut short, impossible length, CRC                           CORRUPT_MESSAGE
    magic 0 or 1 (gone since Kafka 4)                           INVALID_RECORD
    unknown codec                                               UNSUPPORTED_COMPRESSION_TYPE
    record count against last offset delta or against the bytes INVALID_RECORD
    a client's control batch, base offset, second batch,
    producer id without a sequence, record without a key on a
    compacted topic                                             INVALID_RECORD
    larger than max.message.bytes                               MESSAGE_TOO_LARGE
    larger than segment.bytes                                   RECORD_LIST_TOO_LARGE
    timestamp outside message.timestamp.*.max.ms, or a client's
    claim of log-append time                                    INVALID_TIMESTAMP

Way of the data: log.append_as_leader -> here -> producers -> segment.
"""

from __future__ import annotations

from enum import Enum
from typing import Final

from data_plane.log.config import COMPRESSION_NAMES, COMPRESSION_PRODUCER, LogConfig
from metadata_quorum.batch import (
    BATCH_OVERHEAD,
    CODEC_MASK,
    CONTROL_FLAG,
    LOG_APPEND_TIME_FLAG,
    LOG_OVERHEAD,
    MAGIC,
    MAGIC_POSITION,
    NO_TIMESTAMP,
    BatchHeader,
    CorruptBatchError,
    check_crc,
    decode_batch,
    encode_batch,
    read_header,
    set_log_append_time,
)
from metadata_quorum.compression import MAX_DECOMPRESSED_BYTES, Codec
from metadata_quorum.errors import BrokerError, ErrorCode
from metadata_quorum.topic_configs import LOG_APPEND_TIME

Writable = bytearray | memoryview
Batches = list[tuple[int, BatchHeader]]

# length, attributes, timestamp and offset delta, key and value length, header count: a byte each
_LEAST_RECORD_BYTES: Final = 7


class Origin(Enum):
    """Who appends: what a client may not do, the node's own coordinators may."""

    CLIENT = "client"
    COORDINATOR = "coordinator"


def validate(records: Writable, config: LogConfig, now_ms: int, origin: Origin) -> Batches:
    """Position and header of every batch in `records`. Raises BrokerError with the table's code."""
    batches: Batches = []
    position, end = 0, len(records)
    if end > config.segment_bytes:
        raise BrokerError(
            ErrorCode.RECORD_LIST_TOO_LARGE,
            f"Message batch size is {end} bytes, which exceeds segment.bytes {config.segment_bytes}",
        )
    while position < end:
        header = _whole_batch(records, position, end)
        size = LOG_OVERHEAD + header.batch_length
        if size > config.max_message_bytes:
            raise BrokerError(
                ErrorCode.MESSAGE_TOO_LARGE,
                f"The record batch size is {size} bytes, "
                f"which exceeds the maximum configured value of {config.max_message_bytes}",
            )
        _check_header(header, origin)
        _check_timestamps(header, config, now_ms)
        if not check_crc(records, position, header):
            raise BrokerError(ErrorCode.CORRUPT_MESSAGE, "Record is corrupt: its CRC does not match")
        batches.append((position, header))
        position += size
    if not batches or (origin is Origin.CLIENT and len(batches) > 1):
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"A produce request must hold exactly one record batch per partition, not {len(batches)}",
        )
    if origin is Origin.CLIENT and config.compact:
        _check_keys(records, batches)
    return batches


def _whole_batch(records: Writable, position: int, end: int) -> BatchHeader:
    left = end - position
    if left > MAGIC_POSITION and records[position + MAGIC_POSITION] in (0, 1):
        raise BrokerError(
            ErrorCode.INVALID_RECORD,
            f"Record batches must have magic version 2, not {records[position + MAGIC_POSITION]}",
        )
    if left < BATCH_OVERHEAD:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"{left} bytes are too few for a record batch")
    header = read_header(records, position)
    if header.magic != MAGIC:
        raise BrokerError(
            ErrorCode.INVALID_RECORD, f"Record batches must have magic version 2, not {header.magic}"
        )
    if not BATCH_OVERHEAD <= LOG_OVERHEAD + header.batch_length <= left:
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE,
            f"Record batch claims {LOG_OVERHEAD + header.batch_length} bytes, {left} are there",
        )
    return header


def _check_header(header: BatchHeader, origin: Origin) -> None:
    """Everything that a header can say of itself, as one expression on the hot path."""
    count = header.record_count
    attributes = header.attributes
    codec = attributes & CODEC_MASK
    if codec > Codec.ZSTD:
        raise BrokerError(ErrorCode.UNSUPPORTED_COMPRESSION_TYPE, f"Unknown compression codec {codec}")
    if (
        count > 0
        and header.last_offset_delta == count - 1
        and count * _LEAST_RECORD_BYTES
        <= (MAX_DECOMPRESSED_BYTES if codec else header.batch_length + LOG_OVERHEAD - BATCH_OVERHEAD)
        and (
            origin is Origin.COORDINATOR
            or (
                header.base_offset == 0
                and not attributes & CONTROL_FLAG
                and (header.producer_id < 0 or (header.base_sequence >= 0 and header.producer_epoch >= 0))
            )
        )
    ):
        return
    raise BrokerError(ErrorCode.INVALID_RECORD, _what_is_wrong(header))


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
            f"Invalid sequence number {header.base_sequence} or epoch {header.producer_epoch} "
            f"in record batch with producerId {header.producer_id}"
        )
    return f"{header.record_count} records do not fit into a batch of {header.size} bytes"


def _check_timestamps(header: BatchHeader, config: LogConfig, now_ms: int) -> None:
    if config.message_timestamp_type == LOG_APPEND_TIME:
        return
    if header.attributes & LOG_APPEND_TIME_FLAG:
        raise BrokerError(
            ErrorCode.INVALID_TIMESTAMP,
            "Invalid timestamp type in message. Producer should not set timestamp type to LogAppendTime",
        )
    newest, oldest = header.max_timestamp, header.base_timestamp
    latest = now_ms + config.message_timestamp_after_max_ms
    if (
        newest > latest
        or oldest > latest
        or (oldest != NO_TIMESTAMP and now_ms - oldest > config.message_timestamp_before_max_ms)
    ):
        raise BrokerError(
            ErrorCode.INVALID_TIMESTAMP,
            f"Timestamps {oldest} to {newest} of the batch are out of range. They should be within "
            f"[{now_ms - config.message_timestamp_before_max_ms}, "
            f"{now_ms + config.message_timestamp_after_max_ms}]",
        )


def _check_keys(records: Writable, batches: Batches) -> None:
    for position, header in batches:
        try:
            decoded = decode_batch(records, position)
        except CorruptBatchError as e:
            raise BrokerError(ErrorCode.INVALID_RECORD, str(e)) from e
        if any(record.key is None for record in decoded):
            raise BrokerError(
                ErrorCode.INVALID_RECORD,
                f"Compacted topic cannot accept message without key (producer {header.producer_id})",
            )


def check_from_leader(
    records: Writable | bytes, position: int, header: BatchHeader, expected_offset: int
) -> None:
    """What a follower still checks of a batch that its leader has accepted."""
    if header.magic != MAGIC or not check_crc(records, position, header):
        raise BrokerError(
            ErrorCode.CORRUPT_MESSAGE, f"The batch at offset {header.base_offset} from the leader is corrupt"
        )
    if header.base_offset < expected_offset or header.last_offset_delta < 0:
        raise BrokerError(
            ErrorCode.OFFSET_OUT_OF_RANGE,
            f"The leader sent a batch at offset {header.base_offset}, the log ends at {expected_offset}",
        )


# --- settings that change the bytes ------------------------------------------------------------


def target_codec(config: LogConfig) -> Codec | None:
    """The codec that the topic demands; None where it keeps the producer's."""
    if config.compression_type == COMPRESSION_PRODUCER:
        return None
    return COMPRESSION_NAMES[config.compression_type]


def recompress(records: Writable, batches: Batches, config: LogConfig) -> bytearray:
    """The batches in the topic's codec. Work per record, on the loop: a topic whose codec is
    not its producers' pays for that."""
    codec = target_codec(config)
    out = bytearray()
    for position, header in batches:
        if codec is None or header.compression == codec or header.is_control:
            out += records[position : position + header.size]
            continue
        try:
            decoded = decode_batch(records, position)
        except CorruptBatchError as e:
            raise BrokerError(ErrorCode.INVALID_RECORD, str(e)) from e
        out += encode_batch(
            decoded,
            compression=codec,
            compression_level=_level(codec, config),
            producer_id=header.producer_id,
            producer_epoch=header.producer_epoch,
            base_sequence=header.base_sequence,
            transactional=header.is_transactional,
            base_offset=header.base_offset,
        )
    return out


def _level(codec: Codec, config: LogConfig) -> int | None:
    if codec is Codec.GZIP and config.compression_gzip_level > 0:
        return config.compression_gzip_level
    if codec is Codec.ZSTD:
        return config.compression_zstd_level
    return None


def stamp(records: Writable, batches: Batches, now_ms: int) -> Batches:
    """Give every batch the broker's time; headers only."""
    for position, header in batches:
        set_log_append_time(records, position, header, now_ms)
    return [(position, read_header(records, position)) for position, _ in batches]
