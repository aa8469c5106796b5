"""The v2 record batch: the same bytes on the wire and in the log.

Brokers read the fixed header and check the CRC; they touch the records inside only off the hot
path. Base offset and leader epoch are before the CRC, so that a leader can set them in place.

Lowest floor: the metadata log, the partition log, the coordinators and the tools all use it.
Path of the data: api/produce -> partition -> here (header, CRC, offset set in place) -> segment.

    offset size field
    0      8    base_offset             int64
    8      4    batch_length            int32   bytes that follow this field
    12     4    partition_leader_epoch  int32
    16     1    magic                   int8    2
    17     4    crc                     uint32  CRC-32C of everything from `attributes` on
    21     2    attributes              int16   0-2 codec, 3 log-append time, 4 transactional,
                                                5 control, 6 base_timestamp is a delete horizon
    23     4    last_offset_delta       int32
    27     8    base_timestamp          int64
    35     8    max_timestamp           int64
    43     8    producer_id             int64   -1: not idempotent
    51     2    producer_epoch          int16
    53     4    base_sequence           int32
    57     4    record_count            int32
    61     ...  records, compressed as one block if the attributes name a codec
"""

from __future__ import annotations

import struct
from collections.abc import Iterator, Sequence
from typing import Final, NamedTuple

from metadata_quorum.foundation.compression import MAX_DECOMPRESSED_BYTES, compress, decompress
from metadata_quorum.foundation.crc32c import crc32c
from metadata_quorum.foundation.primitives import Buffer

BATCH_OVERHEAD: Final = 61
LOG_OVERHEAD: Final = 12  # base offset and length, which `batch_length` does not count
MAGIC: Final = 2
MAGIC_POSITION: Final = 16
CRC_START: Final = 21  # where the bytes begin that the CRC covers

CODEC_MASK: Final = 0x07
LOG_APPEND_TIME_FLAG: Final = 0x08
TRANSACTIONAL_FLAG: Final = 0x10
CONTROL_FLAG: Final = 0x20
DELETE_HORIZON_FLAG: Final = 0x40

NO_TIMESTAMP: Final = -1
NO_PRODUCER_ID: Final = -1
NO_SEQUENCE: Final = -1

_HEADER: Final = struct.Struct(">qiibIhiqqqhii")
_OFFSET: Final = struct.Struct(">q")
_INT16: Final = struct.Struct(">h")
_INT32: Final = struct.Struct(">i")
_UINT32: Final = struct.Struct(">I")
_CRC_POSITION: Final = 17
_INT64_END: Final = 1 << 63
_AS_THEY_ARE: Final = "surrogateescape"
"""Keys of record headers should be UTF-8, but Kafka does not check: they are returned as they were."""
_ATTRIBUTES_LOW_BYTE: Final = 22
_MAX_TIMESTAMP_POSITION: Final = 35


class CorruptBatchError(ValueError):
    """Bytes that are not a batch: the only error of opening one, whatever the bytes."""


class BatchHeader(NamedTuple):
    """The 61 fixed bytes."""

    base_offset: int
    batch_length: int
    partition_leader_epoch: int
    magic: int
    crc: int
    attributes: int
    last_offset_delta: int
    base_timestamp: int
    max_timestamp: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    record_count: int

    @property
    def size(self) -> int:
        """Bytes of the whole batch."""
        return LOG_OVERHEAD + self.batch_length

    @property
    def last_offset(self) -> int:
        return self.base_offset + self.last_offset_delta

    @property
    def next_offset(self) -> int:
        return self.base_offset + self.last_offset_delta + 1

    @property
    def compression(self) -> int:
        return self.attributes & CODEC_MASK

    @property
    def is_transactional(self) -> bool:
        return self.attributes & TRANSACTIONAL_FLAG != 0

    @property
    def is_control(self) -> bool:
        return self.attributes & CONTROL_FLAG != 0

    @property
    def timestamp_type(self) -> int:
        """0: set by the producer (create time); 1: by the broker (log-append time)."""
        return (self.attributes & LOG_APPEND_TIME_FLAG) >> 3

    @property
    def has_delete_horizon(self) -> bool:
        return self.attributes & DELETE_HORIZON_FLAG != 0

    @property
    def last_sequence(self) -> int:
        """The sequence number of the last record; sequences wrap from 2^31 - 1 to 0."""
        if self.base_sequence == NO_SEQUENCE:
            return NO_SEQUENCE
        return (self.base_sequence + self.last_offset_delta) & 0x7FFFFFFF


class Record(NamedTuple):
    """One record. When encoding, an offset of -1 means the one after its predecessor."""

    offset: int = -1
    timestamp: int = NO_TIMESTAMP
    key: bytes | None = None
    value: bytes | None = None
    headers: tuple[tuple[str, bytes | None], ...] = ()


def read_header(buf: Buffer, pos: int = 0) -> BatchHeader:
    """The header at `pos`. Raises CorruptBatchError where fewer than 61 bytes are left."""
    try:
        return tuple.__new__(BatchHeader, _HEADER.unpack_from(buf, pos))  # `_make`, without its detour
    except struct.error as e:
        raise CorruptBatchError(f"{len(buf) - pos} bytes are too few for a batch header") from e


def iter_headers(buf: Buffer, pos: int = 0) -> Iterator[tuple[int, BatchHeader]]:
    """Position and header of every whole batch; an incomplete one at the end is left out.

    Raises CorruptBatchError on a length that no batch can have, since nothing after it can be found.
    """
    end = len(buf)
    while pos + BATCH_OVERHEAD <= end:
        header = read_header(buf, pos)
        size = LOG_OVERHEAD + header.batch_length
        if size < BATCH_OVERHEAD:
            raise CorruptBatchError(f"batch at byte {pos} claims a length of {header.batch_length}")
        if pos + size > end:
            return
        yield pos, header
        pos += size


def is_transactional(buf: Buffer) -> bool:
    """Whether the batch at the start of `buf` is part of a transaction; two bytes are read."""
    if len(buf) <= _ATTRIBUTES_LOW_BYTE or buf[MAGIC_POSITION] != MAGIC:
        return False
    return bool(buf[_ATTRIBUTES_LOW_BYTE] & TRANSACTIONAL_FLAG)


def codec_of(buf: Buffer) -> int:
    """The codec that the batch at the start of `buf` names; 0 where there is no whole header."""
    if len(buf) <= _ATTRIBUTES_LOW_BYTE or buf[MAGIC_POSITION] != MAGIC:
        return 0
    return buf[_ATTRIBUTES_LOW_BYTE] & CODEC_MASK


def set_offset_and_epoch(buf: bytearray | memoryview, pos: int, base_offset: int, epoch: int) -> None:
    """Set what a leader gives to a batch; both are outside the CRC."""
    _OFFSET.pack_into(buf, pos, base_offset)
    _INT32.pack_into(buf, pos + LOG_OVERHEAD, epoch)


def check_crc(buf: Buffer, pos: int, header: BatchHeader) -> bool:
    """Whether the stored CRC matches. The whole batch must be in `buf`."""
    view = memoryview(buf)
    return crc32c(view[pos + CRC_START : pos + LOG_OVERHEAD + header.batch_length]) == header.crc


def set_create_time(
    buf: bytearray | memoryview, pos: int, header: BatchHeader, timestamp: int
) -> BatchHeader:
    """Correct what a producer wrote in the header about the times of its records."""
    _INT16.pack_into(buf, pos + CRC_START, header.attributes & ~LOG_APPEND_TIME_FLAG)
    _OFFSET.pack_into(buf, pos + _MAX_TIMESTAMP_POSITION, timestamp)
    return _sealed(buf, pos, header)


def _sealed(buf: bytearray | memoryview, pos: int, header: BatchHeader) -> BatchHeader:
    """Give a batch whose header was changed its new CRC."""
    end = pos + LOG_OVERHEAD + header.batch_length
    _UINT32.pack_into(buf, pos + _CRC_POSITION, crc32c(memoryview(buf)[pos + CRC_START : end]))
    return read_header(buf, pos)


def with_other_codec(buf: Buffer, pos: int, header: BatchHeader, codec: int, payload: Buffer) -> bytearray:
    """The same batch with its records as `payload`, compressed by `codec`."""
    batch = bytearray(memoryview(buf)[pos : pos + BATCH_OVERHEAD])
    batch += payload
    _INT32.pack_into(batch, _OFFSET.size, len(batch) - LOG_OVERHEAD)
    _INT16.pack_into(batch, CRC_START, header.attributes & ~CODEC_MASK | codec)
    _sealed(batch, 0, read_header(batch))
    return batch


def set_log_append_time(buf: bytearray | memoryview, pos: int, header: BatchHeader, now_ms: int) -> None:
    """Stamp a batch with the broker's time: type and max timestamp in the header, then a new CRC."""
    _INT16.pack_into(buf, pos + CRC_START, header.attributes | LOG_APPEND_TIME_FLAG)
    _OFFSET.pack_into(buf, pos + _MAX_TIMESTAMP_POSITION, now_ms)
    _sealed(buf, pos, header)


def encode_batch(
    records: Sequence[Record],
    *,
    base_offset: int = 0,
    last_offset: int | None = None,
    leader_epoch: int = -1,
    compression: int = 0,
    compression_level: int | None = None,
    producer_id: int = NO_PRODUCER_ID,
    producer_epoch: int = -1,
    base_sequence: int = NO_SEQUENCE,
    transactional: bool = False,
    control: bool = False,
    log_append_time_ms: int | None = None,
    delete_horizon_ms: int | None = None,
    max_timestamp_ms: int = NO_TIMESTAMP,
) -> bytes:
    """A whole batch. `last_offset` is for batches that lost their last records to compaction, and so is
    the delete horizon: when the tombstones (or the marker) inside may go (KIP-534). `max_timestamp_ms` is
    for one that lost all of them."""
    base_timestamp = records[0].timestamp if records else NO_TIMESTAMP
    if delete_horizon_ms is not None:
        base_timestamp = min(delete_horizon_ms, _INT64_END - 1)  # delete.retention.ms may be unlimited
    body = bytearray()
    delta = -1
    for record in records:
        delta = delta + 1 if record.offset < 0 else record.offset - base_offset
        _append_record(body, record, delta, _wrapped(record.timestamp - base_timestamp))
    max_timestamp = max((r.timestamp for r in records), default=max_timestamp_ms)
    attributes = compression
    if log_append_time_ms is not None:
        attributes |= LOG_APPEND_TIME_FLAG
        max_timestamp = log_append_time_ms
    if transactional:
        attributes |= TRANSACTIONAL_FLAG
    if control:
        attributes |= CONTROL_FLAG
    if delete_horizon_ms is not None:
        attributes |= DELETE_HORIZON_FLAG
    payload = compress(compression, body, compression_level) if compression else body
    batch = bytearray(BATCH_OVERHEAD)
    _HEADER.pack_into(
        batch,
        0,
        base_offset,
        BATCH_OVERHEAD - LOG_OVERHEAD + len(payload),
        leader_epoch,
        MAGIC,
        0,
        attributes,
        delta if last_offset is None else last_offset - base_offset,
        base_timestamp,
        max_timestamp,
        producer_id,
        producer_epoch,
        base_sequence,
        len(records),
    )
    batch += payload
    _UINT32.pack_into(batch, _CRC_POSITION, crc32c(memoryview(batch)[CRC_START:]))
    return bytes(batch)


def decode_batch(buf: Buffer, pos: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES) -> list[Record]:
    """The records of the batch at `pos`. Raises CorruptBatchError where they contradict the header."""
    return list(iter_records(buf, pos, max_bytes=max_bytes))


def iter_records(
    buf: Buffer, pos: int = 0, *, max_bytes: int = MAX_DECOMPRESSED_BYTES, with_headers: bool = True
) -> Iterator[Record]:
    """As `decode_batch`, one by one: as objects they take many times the memory of their bytes. (So do the
    headers of one record, of which there may be millions.) Raises CorruptBatchError."""
    header = read_header(buf, pos)
    body = open_body(buf, pos, header, max_bytes)
    try:
        yield from _read_records(memoryview(body), header, with_headers)
    except CorruptBatchError:
        raise
    except (ValueError, IndexError, OverflowError) as e:
        raise CorruptBatchError(f"records of the batch at offset {header.base_offset}: {e}") from e


def open_body(buf: Buffer, pos: int, header: BatchHeader, max_bytes: int) -> bytes | memoryview:
    """The bytes of the records, as they were before they were compressed. Raises CorruptBatchError."""
    if header.magic != MAGIC:
        raise CorruptBatchError(f"batch of magic {header.magic} at offset {header.base_offset}")
    end = pos + header.size
    if header.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD or end > len(buf):
        raise CorruptBatchError(f"batch at offset {header.base_offset} is cut short")
    try:
        return decompress(header.compression, memoryview(buf)[pos + BATCH_OVERHEAD : end], max_bytes)
    except (ValueError, OverflowError) as e:
        raise CorruptBatchError(f"records of the batch at offset {header.base_offset}: {e}") from e


# --- control records ---------------------------------------------------------------------------
# key:   version int16 | type int16 (0 abort, 1 commit, 2 and up: KRaft's own)
# value: version int16 | coordinator epoch int32      (for abort and commit)

CONTROL_ABORT: Final = 0
CONTROL_COMMIT: Final = 1
CONTROL_KEY: Final = struct.Struct(">hh")  # version, type
_END_TXN_VALUE: Final = struct.Struct(">hi")


def encode_end_txn_marker(
    *, commit: bool, coordinator_epoch: int, producer_id: int, producer_epoch: int, timestamp: int
) -> bytes:
    """The control batch that ends a producer's transaction on one partition."""
    key = CONTROL_KEY.pack(0, CONTROL_COMMIT if commit else CONTROL_ABORT)
    return encode_batch(
        [Record(0, timestamp, key, _END_TXN_VALUE.pack(0, coordinator_epoch))],
        producer_id=producer_id,
        producer_epoch=producer_epoch,
        transactional=True,
        control=True,
    )


def control_type(record: Record) -> int:
    """Which control record this is, from its key. Raises CorruptBatchError."""
    if record.key is None or len(record.key) < CONTROL_KEY.size:
        raise CorruptBatchError(f"control record at offset {record.offset} without a whole key")
    return int(CONTROL_KEY.unpack_from(record.key)[1])


def coordinator_epoch(record: Record) -> int:
    """The coordinator epoch in an abort or commit marker. Raises CorruptBatchError."""
    if record.value is None or len(record.value) < _END_TXN_VALUE.size:
        raise CorruptBatchError(f"transaction marker at offset {record.offset} without a whole value")
    return int(_END_TXN_VALUE.unpack_from(record.value)[1])


# --- records -----------------------------------------------------------------------------------
# length varint | attributes int8 | timestamp delta varlong | offset delta varint
# | key length varint (-1: null) | key | value length varint | value
# | header count varint | { key length varint | key | value length varint | value }*
#
# Varints and varlongs are those of primitives.py, done here once more: a record has six or more, and with a
# bytes object or a second call for each it takes half as long again.


def _wrapped(value: int) -> int:
    """Wrap around as Java's long does: two timestamps may be further apart than a long can say."""
    return (
        value if -_INT64_END <= value < _INT64_END else (value + _INT64_END) % (2 * _INT64_END) - _INT64_END
    )


def _append_varint(out: bytearray, value: int) -> None:
    value = value << 1 if value >= 0 else (~value << 1) | 1
    while value > 0x7F:
        out.append((value & 0x7F) | 0x80)
        value >>= 7
    out.append(value)


def _append_bytes(out: bytearray, data: bytes | None) -> None:
    if data is None:
        out.append(1)  # -1, zigzag
    else:
        _append_varint(out, len(data))
        out += data


def _append_record(out: bytearray, record: Record, offset_delta: int, timestamp_delta: int) -> None:
    body = bytearray(1)  # attributes, none defined
    _append_varint(body, timestamp_delta)
    _append_varint(body, offset_delta)
    _append_bytes(body, record.key)
    _append_bytes(body, record.value)
    _append_varint(body, len(record.headers))
    for key, value in record.headers:
        _append_bytes(body, key.encode(errors=_AS_THEY_ARE))
        _append_bytes(body, value)
    _append_varint(out, len(body))
    out += body


def _read_varint(buf: Buffer, pos: int) -> tuple[int, int]:
    byte = buf[pos]
    pos += 1
    if byte < 0x80:
        return (byte >> 1) ^ -(byte & 1), pos
    raw = byte & 0x7F
    shift = 7
    while True:
        byte = buf[pos]
        pos += 1
        raw |= (byte & 0x7F) << shift
        if byte < 0x80:
            return (raw >> 1) ^ -(raw & 1), pos
        shift += 7
        if shift > 63:
            raise CorruptBatchError("varint of more than ten bytes")


def _read_bytes(buf: memoryview, pos: int, end: int) -> tuple[bytes | None, int]:
    size, pos = _read_varint(buf, pos)
    if size < 0:
        return None, pos
    if pos + size > end:
        raise CorruptBatchError(f"field of {size} bytes reaches beyond its record")
    return bytes(buf[pos : pos + size]), pos + size


def _read_records(view: memoryview, header: BatchHeader, with_headers: bool) -> Iterator[Record]:
    appended_at = header.max_timestamp if header.timestamp_type else None
    pos = 0
    for _ in range(header.record_count):
        size, pos = _read_varint(view, pos)
        end = pos + size
        if size < 0 or end > len(view):
            raise CorruptBatchError(f"record of {size} bytes reaches beyond its batch")
        timestamp_delta, pos = _read_varint(view, pos + 1)
        offset_delta, pos = _read_varint(view, pos)
        key, pos = _read_bytes(view, pos, end)
        value, pos = _read_bytes(view, pos, end)
        headers, pos = _read_record_headers(view, pos, end) if with_headers else ((), end)
        if pos != end:
            raise CorruptBatchError(f"record claims {size} bytes and ends {end - pos} bytes off")
        timestamp = _wrapped(header.base_timestamp + timestamp_delta) if appended_at is None else appended_at
        yield Record(header.base_offset + offset_delta, timestamp, key, value, headers)
    if pos != len(view):
        raise CorruptBatchError(f"{len(view) - pos} bytes left after {header.record_count} records")


def _read_record_headers(
    view: memoryview, pos: int, end: int
) -> tuple[tuple[tuple[str, bytes | None], ...], int]:
    count, pos = _read_varint(view, pos)
    if count == 0:
        return (), pos
    if count < 0 or count > end - pos:
        raise CorruptBatchError(f"record with {count} headers")
    headers: list[tuple[str, bytes | None]] = []
    for _ in range(count):
        key, pos = _read_bytes(view, pos, end)
        if key is None:
            raise CorruptBatchError("record header without a key")
        value, pos = _read_bytes(view, pos, end)
        headers.append((key.decode(errors=_AS_THEY_ARE), value))
    return tuple(headers), pos
