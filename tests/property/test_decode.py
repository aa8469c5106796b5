"""The bulk decoder finds the records that the plain decoder finds, whatever the batches hold."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import UTC, datetime, timedelta

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    CorruptBatchError,
    Record,
    decode_batch,
    encode_batch,
    read_header,
)
from metadata_quorum.foundation.compression import CompressionType
from spark_connector.decode import SCHEMA, SCHEMA_WITH_HEADERS, Decoder, whole_batches

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
NOW_MS = 1_700_000_000_000

small = st.binary(max_size=40)
maybe = (
    st.none() | small | st.sampled_from([b"x" * size for size in (63, 64, 127, 128, 8_190, 8_192, 70_000)])
)
headers = st.lists(st.tuples(st.text(max_size=6), st.none() | small), max_size=4).map(tuple)


@dataclass(frozen=True)
class Stored:
    """A batch, and the rows that a reader should find in it."""

    data: bytes
    rows: list[tuple[object, ...]]


@st.composite
def batches(draw: st.DrawFn) -> list[Stored]:
    """What a partition may hold: gaps inside batches and between them, any codec, times that go back."""
    offset = draw(st.integers(0, 2**40))
    stored = []
    for _ in range(draw(st.integers(1, 4))):
        base = offset
        records = []
        for _ in range(draw(st.integers(1, 12))):
            offset += draw(st.sampled_from([0, 0, 0, 1, 200, 10_000]))
            time_ms = NOW_MS + draw(st.integers(-(10**12), 10**12) | st.integers(-3, 3))
            records.append(Record(offset, time_ms, draw(maybe), draw(maybe), draw(headers)))
            offset += 1
        offset += draw(st.sampled_from([0, 0, 5]))
        append_time = draw(st.none() | st.just(NOW_MS + 5))
        data = encode_batch(
            records,
            base_offset=base,
            last_offset=offset - 1,
            compression=draw(st.sampled_from(CompressionType)),
            log_append_time_ms=append_time,
        )
        stored.append(Stored(data, [row(each, append_time is not None) for each in decode_batch(data)]))
        offset += draw(st.sampled_from([0, 0, 7]))
    return stored


def row(record: Record, appended: bool) -> tuple[object, ...]:
    time = EPOCH + timedelta(milliseconds=record.timestamp)
    pairs = [{"key": key, "value": value} for key, value in record.headers] or None
    return (record.key, record.value, "flights", 3, record.offset, time, int(appended), pairs)


def rows_of(decoded: list[pa.RecordBatch]) -> list[tuple[object, ...]]:
    for batch in decoded:
        batch.validate(full=True)
    return [tuple(row.values()) for batch in decoded for row in batch.to_pylist()]


@given(batches(), st.data(), st.sampled_from([1, 5, 1_000]), st.sampled_from([64, 2**20]))
def test_same_records(stored: list[Stored], data: st.DataObject, max_rows: int, max_bytes: int) -> None:
    expected = [row for batch in stored for row in batch.rows]
    offsets = [row[4] for row in expected]
    start = data.draw(st.sampled_from(offsets) | st.just(0), "start")
    end = data.draw(st.sampled_from(offsets) | st.just(2**62), "end")
    raw = b"".join(batch.data for batch in stored)
    decoder = Decoder("flights", 3, include_headers=True, max_rows=max_rows, max_bytes=max_bytes)

    decoded = list(decoder.decode(whole_batches(memoryview(raw)), start, end))

    assert rows_of(decoded) == [row for row in expected if start <= row[4] < end]
    for batch in decoded:
        assert batch.schema.equals(SCHEMA_WITH_HEADERS)
        assert 0 < batch.num_rows <= max_rows


@given(batches())
def test_without_headers(stored: list[Stored]) -> None:
    raw = b"".join(batch.data for batch in stored)
    decoded = list(Decoder("flights", 3).decode(whole_batches(memoryview(raw)), 0, 2**62))
    assert rows_of(decoded) == [row[:-1] for batch in stored for row in batch.rows]
    assert all(batch.schema.equals(SCHEMA) for batch in decoded)


@given(batches(), st.data())
def test_a_torn_tail_is_left_for_the_next_answer(stored: list[Stored], data: st.DataObject) -> None:
    raw = b"".join(batch.data for batch in stored)
    whole = len(raw) - len(stored[-1].data)
    cut = data.draw(st.integers(whole, len(raw) - 1), "cut")
    assert [each.header for each in whole_batches(memoryview(raw[:cut]))] == [
        read_header(batch.data) for batch in stored[:-1]
    ]


@given(batches(), st.data())
def test_a_flipped_bit_is_noticed(stored: list[Stored], data: st.DataObject) -> None:
    raw = bytearray(stored[0].data)
    at = data.draw(st.integers(21, len(raw) - 1), "at")
    raw[at] ^= 1 << data.draw(st.integers(0, 7), "bit")
    with pytest.raises(CorruptBatchError):
        list(Decoder("flights", 3).decode(whole_batches(memoryview(raw)), 0, 2**62))


@pytest.mark.parametrize(("position", "bit"), [(22, 0x20), (60, 0x01), (26, 0x01)])
def test_a_bit_that_would_hide_a_batch_is_noticed(position: int, bit: int) -> None:
    """Control batch; no records; an earlier end."""
    raw = bytearray(encode_batch([Record(1, 1, b"k", b"v")], base_offset=0, last_offset=1))
    raw[position] ^= bit
    with pytest.raises(CorruptBatchError, match="CRC"):
        list(Decoder("flights", 3).decode(whole_batches(memoryview(raw)), 1, 2**62))


@given(batches(), st.data())
def test_nonsense_under_a_good_crc_is_an_error_or_harmless(stored: list[Stored], data: st.DataObject) -> None:
    """The decoder never reads beyond the batch, whatever lengths it finds."""
    raw = bytearray(stored[0].data)
    for _ in range(data.draw(st.integers(1, 4), "flips")):
        raw[data.draw(st.integers(BATCH_OVERHEAD, len(raw) - 1), "at")] = data.draw(
            st.integers(0, 255), "byte"
        )
    decoder = Decoder("flights", 3, include_headers=True, check_crc=False)
    try:
        decoded = list(decoder.decode(whole_batches(memoryview(raw)), -(2**62), 2**62))
    except CorruptBatchError:
        return
    for batch in decoded:
        batch.drop_columns(["headers"]).validate(full=True)
