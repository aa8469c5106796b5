"""Record batches of the wire to record batches of Arrow, in bulk: no record is ever a Python object.

    Fetch answer -> whole_batches -> Decoder.decode -> pyarrow.RecordBatch with the columns of Spark's source

Per batch: header, CRC, decompression. Then, for as many batches at a time as make one Arrow batch: one walk
from record to record (record_walk.py), and every field of all records by numpy. Keys and values lie between
other fields, so they are seen as every second element of an Arrow array over the fetched bytes, and Arrow's
own `take` copies them out: the one copy that there is. What is the same in all rows (topic, partition) is
made once and sliced.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    CONTROL_ABORT,
    CRC_START,
    LOG_OVERHEAD,
    MAGIC,
    BatchHeader,
    CorruptBatchError,
    control_type,
    decode_batch,
    open_body,
    read_header,
)
from metadata_quorum.foundation.compression import MAX_DECOMPRESSED_BYTES
from metadata_quorum.foundation.crc32c import crc32c
from spark_connector.record_walk import SHORTEST_RECORD_BYTES, RecordSpan, record_ends
from spark_connector.varints import Bytes, Positions, read_varints

MAX_ROWS: Final = 64 * 1024
MAX_BYTES: Final = 8 * 1024 * 1024
"""Size of one Arrow batch: Spark's executor holds it as a whole."""
MAX_HEADERS_OF_A_RECORD: Final = 100_000
MAX_HEADERS_AT_ONCE: Final = 16_000_000
"""Two bytes are enough for a header: a batch of a MiB may claim tens of millions."""
_MAX_TIMESTAMP_MS: Final = (2**63 - 1) // 1000
_END_OF_OFFSETS: Final = 2**63 - 1
_MICROSECONDS_PER_MS: Final = 1000

_TIMESTAMP: Final = pa.timestamp("us", tz="UTC")
_HEADER: Final = pa.struct([("key", pa.string()), ("value", pa.binary())])
_HEADERS: Final = pa.list_(pa.field("element", _HEADER))  # the element's name as Spark writes it

SCHEMA: Final = pa.schema(
    [
        ("key", pa.binary()),
        ("value", pa.binary()),
        ("topic", pa.string()),
        ("partition", pa.int32()),
        ("offset", pa.int64()),
        ("timestamp", _TIMESTAMP),
        ("timestampType", pa.int32()),
    ]
)
SCHEMA_WITH_HEADERS: Final = SCHEMA.append(pa.field("headers", _HEADERS))

Aborted = Iterable[tuple[int, int]]
"""Aborted transactions as a Fetch answer lists them: (producer id, first offset)."""


class Batch(NamedTuple):
    """One whole batch inside a Fetch answer."""

    header: BatchHeader
    records: memoryview
    """All bytes of the answer's partition."""
    position: int
    """Where in them the batch begins."""

    @property
    def body(self) -> memoryview:
        return self.records[self.position + BATCH_OVERHEAD : self.position + self.header.size]


def whole_batches(records: memoryview) -> list[Batch]:
    """The batches in a Fetch answer's bytes; the last one may be cut off there, and is left out.
    Raises CorruptBatchError."""
    batches: list[Batch] = []
    position, size = 0, len(records)
    while size - position >= BATCH_OVERHEAD:
        header = read_header(records, position)
        if header.magic != MAGIC:
            raise CorruptBatchError(
                f"batch of magic {header.magic} at offset {header.base_offset}: written before Kafka 0.11"
                if 0 <= header.magic < MAGIC
                else f"batch of magic {header.magic} at offset {header.base_offset}"
            )
        if header.batch_length < BATCH_OVERHEAD - LOG_OVERHEAD:
            raise CorruptBatchError(f"batch at offset {header.base_offset} is shorter than its header")
        if position + header.size > size:
            break
        if not _is_plausible(header):
            raise CorruptBatchError(
                f"batch at offset {header.base_offset} claims {header.record_count} records"
                f" up to offset {header.last_offset} in {header.size} bytes"
            )
        batches.append(Batch(header, records, position))
        position += header.size
    return batches


def _is_plausible(header: BatchHeader) -> bool:
    """Whether reading continues behind the batch, and it has an offset for every record."""
    base, last = header.base_offset, header.last_offset_delta
    return base >= 0 and last >= 0 and base + last < _END_OF_OFFSETS and 0 <= header.record_count <= last + 1


class _Opened(NamedTuple):
    """A batch whose records are readable: `buffer[begin:end]` holds them."""

    header: BatchHeader
    buffer: memoryview
    begin: int
    end: int


class Decoder:
    """Decodes one partition's batches."""

    def __init__(
        self,
        topic: str,
        partition: int,
        *,
        include_headers: bool = False,
        check_crc: bool = True,
        max_rows: int = MAX_ROWS,
        max_bytes: int = MAX_BYTES,
    ) -> None:
        self._name = f"{topic}-{partition}"
        self._include_headers = include_headers
        self._check_crc = check_crc
        self._max_rows = max_rows
        self._max_bytes = max_bytes
        self._constants = _Constants(topic, partition)

    def decode(
        self, batches: Iterable[Batch], start: int, end: int, aborted: Aborted = ()
    ) -> Iterator[pa.RecordBatch]:
        """The records with offsets from `start` up to, not including, `end`. Batches of `aborted`
        transactions are left out. Raises CorruptBatchError."""
        opened: list[_Opened] = []
        rows = size = 0
        for batch in _visible(map(self._undamaged, batches), start, end, aborted):
            next_batch = self._open(batch)
            if opened and (
                rows + next_batch.header.record_count > self._max_rows
                or size + next_batch.end - next_batch.begin > self._max_bytes
            ):
                yield from self._arrow(opened, start, end)
                opened, rows, size = [], 0, 0
            opened.append(next_batch)
            rows += next_batch.header.record_count
            size += next_batch.end - next_batch.begin
        if opened:
            yield from self._arrow(opened, start, end)

    def _undamaged(self, batch: Batch) -> Batch:
        """Before anything is concluded from its header: one wrong bit would make it invisible."""
        header = batch.header
        end = batch.position + header.size
        if self._check_crc and crc32c(batch.records[batch.position + CRC_START : end]) != header.crc:
            raise CorruptBatchError(f"{self._name}: CRC of the batch at offset {header.base_offset} is wrong")
        return batch

    def _open(self, batch: Batch) -> _Opened:
        header = batch.header
        begin, end = batch.position + BATCH_OVERHEAD, batch.position + header.size
        opened = _Opened(header, batch.records, begin, end)
        if header.compression:
            try:
                records = memoryview(open_body(batch.records, batch.position, header, MAX_DECOMPRESSED_BYTES))
            except CorruptBatchError as error:
                raise CorruptBatchError(f"{self._name}: {error}") from error
            opened = _Opened(header, records, 0, len(records))
        if header.record_count * SHORTEST_RECORD_BYTES > opened.end - opened.begin:
            raise CorruptBatchError(
                f"{self._name}: batch at offset {header.base_offset} claims {header.record_count} records"
                f" in {opened.end - opened.begin} bytes"
            )
        return opened

    def _arrow(self, opened: Sequence[_Opened], start: int, end: int) -> Iterator[pa.RecordBatch]:
        """The batches as one, cut only where a single batch alone is larger than it should be."""
        try:
            found = _Found(opened)
            for first in range(0, found.count, self._max_rows):
                records = found.read(first, first + self._max_rows).within(start, end)
                if len(records.offsets):
                    yield from self._cut(self._columns(records))
        except (IndexError, CorruptBatchError) as error:
            offset = opened[0].header.base_offset
            raise CorruptBatchError(f"{self._name}: batches from offset {offset} on: {error}") from error

    def _cut(self, whole: pa.RecordBatch) -> Iterator[pa.RecordBatch]:
        """Where its rows are large; a little more than requested is better than a small rest."""
        rows = whole.num_rows
        at_once = rows
        if whole.nbytes > 2 * self._max_bytes:
            at_once = min(rows, max(1, rows * self._max_bytes // whole.nbytes))
        for first in range(0, rows, max(1, at_once)):
            yield whole.slice(first, at_once)

    def _columns(self, records: _Records) -> pa.RecordBatch:
        count = len(records.offsets)
        same, types = self._constants.of(count), records.timestamp_types
        columns = [
            _binary(records.data, records.keys),
            _binary(records.data, records.values),
            same.topic,
            same.partition,
            _numbers(records.offsets, pa.int64()),
            _numbers(records.timestamps, _TIMESTAMP),
            same.create_time if types is None else _numbers(types, pa.int32()),
        ]
        if not self._include_headers:
            return pa.RecordBatch.from_arrays(columns, schema=SCHEMA)
        columns.append(_read_headers(records))
        return pa.RecordBatch.from_arrays(columns, schema=SCHEMA_WITH_HEADERS)


def _visible(batches: Iterable[Batch], start: int, end: int, aborted: Aborted) -> Iterator[Batch]:
    """Without control batches, without those of aborted transactions, without what lies beside the range.

    A producer's aborted transaction begins at its first offset and ends at its abort marker.
    """
    to_come = sorted(aborted, key=lambda each: each[1], reverse=True)
    aborting: set[int] = set()
    for batch in batches:
        header = batch.header
        while to_come and to_come[-1][1] <= header.last_offset:
            aborting.add(to_come.pop()[0])
        if header.is_control:
            if header.producer_id in aborting and _is_abort(batch):
                aborting.discard(header.producer_id)
        elif (
            header.record_count
            and start < header.next_offset
            and header.base_offset < end
            and not (header.is_transactional and header.producer_id in aborting)
        ):
            yield batch


def _is_abort(batch: Batch) -> bool:
    markers = decode_batch(batch.records, batch.position)
    return bool(markers) and control_type(markers[0]) == CONTROL_ABORT


# ---- fields ------------------------------------------------------------------------------------------


class _Slices(NamedTuple):
    """Byte strings inside a buffer, in ascending order: where each begins, and its length (-1: null)."""

    at: Positions
    lengths: Positions

    @property
    def ends(self) -> Positions:
        return self.at + np.maximum(self.lengths, 0)


class _Records(NamedTuple):
    """The fields of all records of some batches."""

    data: memoryview
    offsets: Positions
    timestamps: Positions
    """Microseconds."""
    timestamp_types: npt.NDArray[np.int32] | None
    """None where all were set by producers."""
    keys: _Slices
    values: _Slices
    ends: Positions

    def within(self, start: int, end: int) -> _Records:
        """Those with offsets from `start` up to, not including, `end`."""
        if self.offsets[0] >= start and self.offsets[-1] < end:
            return self
        inside = slice(*np.searchsorted(self.offsets, [start, end]))
        return _Records(
            self.data,
            self.offsets[inside],
            self.timestamps[inside],
            self.timestamp_types[inside] if self.timestamp_types is not None else None,
            _Slices(self.keys.at[inside], self.keys.lengths[inside]),
            _Slices(self.values.at[inside], self.values.lengths[inside]),
            self.ends[inside],
        )


class _Found:
    """Where the records of some batches lie. Their fields are read a piece at a time: as numbers they take
    many times the bytes they have, and a batch of a MiB may hold millions."""

    def __init__(self, opened: Sequence[_Opened]) -> None:
        self._buffer, spans = _in_one_buffer(opened)
        self._data = np.frombuffer(self._buffer, np.uint8)
        self._headers = [each.header for each in opened]
        self._firsts = np.cumsum([0, *(span.rows for span in spans)])  # of each batch, and the end
        self._begins = np.array([span.begin for span in spans])
        self._ends = record_ends(self._data, spans)

    @property
    def count(self) -> int:
        return len(self._ends)

    def read(self, first: int, end: int) -> _Records:
        """The records of those numbers."""
        ends = self._ends[first:end]
        bounds = np.clip(self._firsts, first, first + len(ends)) - first
        counts = np.diff(bounds)  # of each batch
        begins = np.empty_like(ends)
        begins[1:] = ends[:-1]
        begins[0] = self._ends[first - 1] if first else 0
        whole = (self._firsts[:-1] >= first) & (counts > 0)
        begins[bounds[:-1][whole]] = self._begins[whole]
        data = self._data
        sizes, at = read_varints(data, begins)
        if (sizes <= 0).any() or (at + sizes != ends).any():
            raise CorruptBatchError("the records' lengths contradict the batch")
        timestamps, at = read_varints(data, at + 1)  # after the attributes, none of which is defined
        deltas, at = read_varints(data, at)
        keys = _read_slices(data, at, ends)
        values = _read_slices(data, keys.ends, ends)
        timestamps, types = self._timestamps(timestamps, counts)
        offsets = self._offsets(deltas, counts)
        return _Records(self._buffer, offsets, timestamps, types, keys, values, ends)

    def _offsets(self, deltas: Positions, counts: Positions) -> Positions:
        """Ascending, because ranges are cut by them, and within the bounds of the batch's header."""
        last = np.repeat(np.array([each.last_offset_delta for each in self._headers], np.uint64), counts)
        if (deltas.view(np.uint64) > last).any():  # or below 0
            raise CorruptBatchError("an offset lies outside its batch")
        deltas += np.repeat([header.base_offset for header in self._headers], counts)
        if (deltas[1:] <= deltas[:-1]).any():
            raise CorruptBatchError("offsets do not ascend")
        return deltas

    def _timestamps(
        self, deltas: Positions, counts: Positions
    ) -> tuple[Positions, npt.NDArray[np.int32] | None]:
        """In microseconds, and of which type where that is not the producers' for all."""
        types = None
        if any(header.timestamp_type for header in self._headers):
            appended = np.repeat([header.timestamp_type == 1 for header in self._headers], counts)
            deltas[appended] = 0
            types = appended.astype(np.int32)
        _check_times(deltas)
        bases = [h.max_timestamp if h.timestamp_type else h.base_timestamp for h in self._headers]
        deltas += np.repeat(bases, counts)
        _check_times(deltas)
        deltas *= _MICROSECONDS_PER_MS
        return deltas, types


def _check_times(milliseconds: Positions) -> None:
    if milliseconds.min() < -_MAX_TIMESTAMP_MS or milliseconds.max() > _MAX_TIMESTAMP_MS:
        raise CorruptBatchError("a timestamp is beyond those that Spark has")


def _in_one_buffer(opened: Sequence[_Opened]) -> tuple[memoryview, list[RecordSpan]]:
    """Uncompressed batches lie in the answer already; others are put one after the other."""
    buffer = opened[0].buffer
    if all(each.buffer is buffer for each in opened):
        return buffer, [RecordSpan(each.begin, each.end, each.header.record_count) for each in opened]
    joined = memoryview(b"".join([each.buffer[each.begin : each.end] for each in opened]))
    spans: list[RecordSpan] = []
    begin = 0
    for each in opened:
        end = begin + each.end - each.begin
        spans.append(RecordSpan(begin, end, each.header.record_count))
        begin = end
    return joined, spans


def _read_slices(data: Bytes, at: Positions, ends: Positions) -> _Slices:
    """Byte strings with their lengths before them, none of which may reach beyond its record."""
    lengths, at = read_varints(data, at)
    if (lengths < -1).any() or (lengths > ends - at).any():
        raise CorruptBatchError("a field reaches beyond its record")
    return _Slices(at, lengths)


# ---- headers -----------------------------------------------------------------------------------------


def _read_headers(records: _Records) -> pa.Array:
    """A list of headers per record; null, as with Spark's own source, where a record has none."""
    data = np.frombuffer(records.data, np.uint8)
    counts, at = read_varints(data, records.values.ends)
    if (counts < 0).any() or (counts > records.ends - at).any():
        raise CorruptBatchError("a record's count of headers is impossible")
    if counts.max() > MAX_HEADERS_OF_A_RECORD or counts.sum() > MAX_HEADERS_AT_ONCE:
        raise CorruptBatchError(f"{counts.max()} headers of one record, {counts.sum()} of {len(counts)}")
    if not counts.any():
        if (at != records.ends).any():
            raise CorruptBatchError("a record has bytes after its last field")
        return pa.nulls(len(counts), _HEADERS)
    firsts = np.zeros(len(counts) + 1, np.int32)
    np.cumsum(counts, out=firsts[1:])
    names, values = (
        _Slices(np.empty(firsts[-1], np.int64), np.empty(firsts[-1], np.int64)) for _ in range(2)
    )
    which = np.flatnonzero(counts)
    for nth in range(counts.max()):  # the nth header of all records that have so many
        which = which[counts[which] > nth]
        slots = firsts[which] + nth
        name = _read_slices(data, at[which], records.ends[which])
        if (name.lengths < 0).any():
            raise CorruptBatchError("a record header without a key")
        value = _read_slices(data, name.ends, records.ends[which])
        names.at[slots], names.lengths[slots] = name
        values.at[slots], values.lengths[slots] = value
        at[which] = value.ends
    if (at != records.ends).any():
        raise CorruptBatchError("a record has bytes after its last field")
    pairs = pa.StructArray.from_arrays(
        [_text(_binary(records.data, names)), _binary(records.data, values)], fields=list(_HEADER)
    )
    validity = pa.py_buffer(np.packbits(counts > 0, bitorder="little"))
    return pa.Array.from_buffers(_HEADERS, len(counts), [validity, pa.py_buffer(firsts)], children=[pairs])


def _text(names: pa.Array) -> pa.Array:
    try:
        return names.cast(pa.string())
    except pa.ArrowInvalid:  # as Java decodes what is no UTF-8
        return pa.array([name.decode(errors="replace") for name in names.to_pylist()], pa.string())


# ---- columns -----------------------------------------------------------------------------------------


def _numbers(numbers: npt.NDArray[Any], kind: pa.DataType) -> pa.Array:
    """Not by `pa.array`, which imports numpy's masked arrays to ask whether this is one."""
    return pa.Array.from_buffers(kind, len(numbers), [None, pa.py_buffer(numbers)])


def _binary(data: memoryview, slices: _Slices) -> pa.Array:
    count = len(slices.at)
    nulls = slices.lengths < 0
    if nulls.all():
        return pa.nulls(count, pa.binary())
    bounds = np.empty(2 * count + 1, np.int32)  # slice, gap, slice, gap, ...
    bounds[0:-1:2] = slices.at
    bounds[1::2] = slices.ends
    bounds[-1] = bounds[-2]
    with_gaps = pa.Array.from_buffers(
        pa.binary(), 2 * count, [None, pa.py_buffer(bounds), pa.py_buffer(data)]
    )
    taken = with_gaps.take(_numbers(np.arange(0, 2 * count, 2, dtype=np.int32), pa.int32()))
    if not nulls.any():
        return taken
    _, offsets, values = taken.buffers()
    validity = pa.py_buffer(np.packbits(~nulls, bitorder="little"))
    return pa.Array.from_buffers(pa.binary(), count, [validity, offsets, values])


class _Same(NamedTuple):
    """Columns of one value each."""

    topic: pa.Array
    partition: pa.Array
    create_time: pa.Array


class _Constants:
    """Made for as many rows as were ever needed, and sliced."""

    def __init__(self, topic: str, partition: int) -> None:
        self._topic = topic.encode()
        self._partition = partition
        self._held = self._make(0)

    def of(self, count: int) -> _Same:
        if count > len(self._held.topic):
            self._held = self._make(count)
        return _Same._make(column.slice(0, count) for column in self._held)

    def _make(self, count: int) -> _Same:
        size = len(self._topic)
        ends = np.arange(0, (count + 1) * size, size, dtype=np.int32)
        topic = [None, pa.py_buffer(ends), pa.py_buffer(self._topic * count)]
        return _Same(
            pa.Array.from_buffers(pa.string(), count, topic),
            _numbers(np.full(count, self._partition, np.int32), pa.int32()),
            _numbers(np.zeros(count, np.int32), pa.int32()),
        )
