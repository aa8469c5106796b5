"""The walk that a leader judges a batch by, against opening it record by record."""

from __future__ import annotations

import struct
import tracemalloc

import pytest
from crc32c import crc32c
from hypothesis import given
from hypothesis import strategies as st

from data_plane.log.config import LogConfig
from data_plane.log.validation import AppendOrigin, WorkBudget, check
from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    CorruptBatchError,
    Record,
    decode_batch,
    encode_batch,
    iter_records,
)
from metadata_quorum.foundation.compression import CompressionType, compress
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.record_walk import RecordDeltas, Survey, record_deltas, survey

NOW_MS = 1_700_000_000_000


def nothing(steps: int) -> None:
    pass


@st.composite
def records(draw: st.DrawFn) -> list[Record]:
    """Stretches of records of one shape, which are walked over as runs, among others."""
    found: list[Record] = []
    now = NOW_MS
    for _ in range(draw(st.integers(1, 4), "stretches")):
        key = draw(st.none() | st.binary(max_size=3) | st.just(b"k" * 70))
        value = draw(st.none() | st.binary(max_size=3) | st.just(b"v" * 100) | st.just(b"v" * 9000))
        headers = draw(st.just(()) | st.just((("h", b"1"), ("", None))))
        step = draw(st.sampled_from([0, 0, 1, -1, 40, 5000]))
        for _ in range(draw(st.sampled_from([1, 3, 40, 150]))):
            now += step
            found.append(Record(-1, now, key, value, headers))
    return found


def facts(batch: bytes) -> tuple[Survey, list[RecordDeltas]]:
    base = struct.unpack_from(">q", batch, 27)[0]
    found = [
        RecordDeltas(record.timestamp - base, record.offset, record.key is not None)
        for record in decode_batch(batch)
    ]
    deltas = [place.timestamp_delta for place in found]
    in_order = all(place.offset_delta == i for i, place in enumerate(found))
    return Survey(min(deltas), max(deltas), all(place.has_key for place in found), in_order), found


@given(records())
def test_the_walk_sees_what_opening_sees(written: list[Record]):
    batch = encode_batch(written)
    body = batch[BATCH_OVERHEAD:]
    expected, found = facts(batch)
    assert survey(body, len(written), nothing) == expected
    assert list(record_deltas(body, len(written))) == found


@given(records(), st.data())
def test_the_walk_refuses_what_cannot_be_opened(written: list[Record], data: st.DataObject):
    batch = bytearray(encode_batch(written))
    for _ in range(data.draw(st.integers(1, 3), "changes")):
        at = data.draw(st.integers(BATCH_OVERHEAD, len(batch) - 1), "at")
        batch[at] = data.draw(st.integers(0, 255), "byte")
    count = data.draw(st.sampled_from([len(written)] * 4 + [len(written) + 1, len(written) - 1]), "count")
    struct.pack_into(">i", batch, 57, count)
    try:
        found = survey(bytes(batch[BATCH_OVERHEAD:]), count, nothing)
    except CorruptBatchError:
        return
    assert len(decode_batch(batch)) == count
    if count:
        assert found == facts(batch)[0]


@given(st.binary(max_size=200), st.integers(-1, 30), st.sampled_from([*CompressionType, 5, 7]), st.data())
def test_any_bytes_under_a_good_crc(body: bytes, count: int, codec: int, data: st.DataObject):
    """Either they are a batch, or they are refused and opening them is one error."""
    fields = {
        name: data.draw(st.sampled_from([0, 1, -1, 2**63 - 1, -(2**63), NOW_MS]), name) for name in "bm"
    }
    packed = (
        compress(codec, body)
        if codec in tuple(CompressionType) and data.draw(st.booleans(), "packed")
        else body
    )
    batch = bytearray(
        struct.pack(
            ">qiibIhiqqqhii",
            0,
            49 + len(packed),
            -1,
            2,
            0,
            codec,
            count - 1,
            fields["b"],
            fields["m"],
            -1,
            -1,
            -1,
            count,
        )
        + packed
    )
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    policy = data.draw(st.sampled_from(["compact", "delete"]), "policy")
    try:
        check(batch, LogConfig(cleanup_policy=(policy,)), NOW_MS, AppendOrigin.CLIENT, WorkBudget())
    except BrokerError:
        try:
            encode_batch(decode_batch(batch))
        except CorruptBatchError:
            return
    else:
        decoded = decode_batch(batch)
        assert [record.offset for record in decoded] == list(range(count))
        assert decode_batch(encode_batch(decoded)) == decoded


@pytest.mark.parametrize("codec", [CompressionType.GZIP, CompressionType.LZ4, CompressionType.ZSTD])
def test_a_bomb_takes_no_more_memory_than_is_allowed(codec: CompressionType):
    count = 6_000_000  # 40 MiB
    batch = bytearray(encode_batch([Record(-1, NOW_MS, None, None)], compression=codec))[:BATCH_OVERHEAD]
    batch += compress(codec, b"\x0c\0\0\0\x01\x01\0" * count)
    for position, layout, value in ((8, ">i", len(batch) - 12), (23, ">i", count - 1), (57, ">i", count)):
        struct.pack_into(layout, batch, position, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[21:])))
    tracemalloc.start()
    try:
        with pytest.raises(BrokerError) as caught:
            check(batch, LogConfig(), NOW_MS, AppendOrigin.CLIENT, WorkBudget())
        refused = tracemalloc.get_traced_memory()[1]
        assert next(iter_records(batch)).offset == 0
        opened = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert caught.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert refused < 1024 * 1024
    assert opened < 48 * 1024 * 1024
