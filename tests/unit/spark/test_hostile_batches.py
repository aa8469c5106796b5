"""Batches that nobody should have written: one clear error each, and memory for what is there, not what is
claimed. The CRC is right; whoever made them has seen to that."""

from __future__ import annotations

import random
import struct
import tracemalloc

import pytest
from crc32c import crc32c

from metadata_quorum.foundation.batch import CRC_START, CorruptBatchError, Record, encode_batch
from metadata_quorum.foundation.compression import CompressionType, compress
from spark_connector.decode import Decoder, whole_batches

COUNT, LAST_DELTA, BASE_TIME, ATTRIBUTES, LENGTH = (57, ">i"), (23, ">i"), (27, ">q"), (21, ">h"), (8, ">i")
MIB = 1024 * 1024


def forged(data: bytes, *changes: tuple[tuple[int, str], int]) -> bytes:
    """Fields of the header changed, under a good CRC."""
    batch = bytearray(data)
    for (at, kind), value in changes:
        struct.pack_into(kind, batch, at, value)
    struct.pack_into(">I", batch, 17, crc32c(bytes(batch[CRC_START:])))
    return bytes(batch)


def with_body(count: int, body: bytes, codec: CompressionType) -> bytes:
    """A batch of these records, compressed."""
    packed = compress(codec, body)
    head = encode_batch([Record(0, 1_000)], base_offset=0)[:61]
    changes = (COUNT, count), (LAST_DELTA, count - 1), (ATTRIBUTES, int(codec)), (LENGTH, 49 + len(packed))
    return forged(head + packed, *changes)


def read(data: bytes, *, headers: bool = False) -> list[int]:
    decoder = Decoder("t", 0, include_headers=headers)
    found = decoder.decode(whole_batches(memoryview(data)), 0, 2**62)
    return [offset for batch in found for offset in batch["offset"].to_pylist()]


def batch(count: int = 3) -> bytes:
    return encode_batch([Record(7 + at, 1_000 + at, b"k", b"v") for at in range(count)], base_offset=7)


@pytest.mark.parametrize(
    ("changes", "says"),
    [
        ([(COUNT, 2**31 - 1), (LAST_DELTA, 2**31 - 2)], "claims 2147483647 records in"),
        ([(COUNT, -1)], "claims -1 records"),
        ([(COUNT, 4)], "claims 4 records up to offset 9"),
        ([(LAST_DELTA, -8)], "claims 3 records up to offset -1"),
        ([(LAST_DELTA, 1)], "claims 3 records"),
        ([(BASE_TIME, 2**63 - 1)], "a timestamp is beyond"),
        ([(BASE_TIME, -(2**63))], "a timestamp is beyond"),
        ([(ATTRIBUTES, 6)], "codec"),
        ([(ATTRIBUTES, 4)], "damaged|zstd"),
    ],
)
def test_a_header_that_lies(changes: list[tuple[tuple[int, str], int]], says: str):
    tracemalloc.start()
    try:
        with pytest.raises(CorruptBatchError, match=says):
            read(forged(batch(), *changes))
        assert tracemalloc.get_traced_memory()[1] < 8 * MIB
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("deltas", [(0, 0, 1), (0, 2, 1), (1, 2, 3), (-1, 0, 1)])
def test_offsets_that_do_not_ascend(deltas: tuple[int, ...]):
    """Ranges are cut by them: rows would come twice, or not at all."""
    body = b"".join(
        b"\x0c\x00\x00" + bytes([each * 2 if each >= 0 else 1]) + b"\x01\x01\x00" for each in deltas
    )
    with pytest.raises(CorruptBatchError, match="offset"):
        read(with_body(3, body, CompressionType.NONE))


@pytest.mark.parametrize("codec", [CompressionType.ZSTD, CompressionType.SNAPPY])
def test_a_bomb(codec: CompressionType):
    """Some KiB that would fill more memory than anybody should."""
    with pytest.raises(CorruptBatchError, match="hold more than 134217728 bytes"):
        read(with_body(1, bytes(129 * MIB), codec))


def test_millions_of_tiny_records_come_in_pieces():
    """As numbers they take many times the bytes they have."""
    count = 200_000
    record = b"\x0c\x00\x00%b\x01\x01\x00"
    body = b"".join(
        b"%b%b" % (b"\x0e" if at >= 64 else b"\x0c", record[1:] % _varint(at))
        if at < 8192
        else b"\x10" + record[1:] % _varint(at)
        if at < 1_048_576
        else b""
        for at in range(count)
    )
    data = with_body(count, body, CompressionType.ZSTD)
    rows = 0
    tracemalloc.start()
    try:
        for piece in Decoder("t", 0).decode(whole_batches(memoryview(data)), 0, 2**62):
            rows += piece.num_rows
            assert piece.num_rows <= 64 * 1024
        peak = tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()
    assert rows == count
    assert peak < 40 * MIB


def _varint(value: int) -> bytes:
    raw, out = value << 1, b""
    while raw >= 0x80:
        out += bytes([raw & 0x7F | 0x80])
        raw >>= 7
    return out + bytes([raw])


def test_a_record_of_very_many_headers():
    headers = _varint(150_000) + b"\x00\x01" * 150_000
    fields = b"\x00\x00\x00\x01\x01" + headers
    with pytest.raises(CorruptBatchError, match="150000 headers of one record"):
        read(with_body(1, _varint(len(fields)) + fields, CompressionType.ZSTD), headers=True)


@pytest.mark.parametrize("seed", range(4))
def test_any_change_is_an_error_or_harmless(seed: int):
    """Whatever bytes change in header and records."""
    rng = random.Random(seed)
    kinds = (0, ">q"), LENGTH, ATTRIBUTES, LAST_DELTA, BASE_TIME, (35, ">q"), (53, ">i"), COUNT
    values = (0, 1, -1, 5, 2**15 - 1)
    for _ in range(250):
        records = [
            Record(
                5 + at, 1_000, None if rng.random() < 0.2 else b"k", b"v" * rng.randrange(9), (("h", b"x"),)
            )
            for at in range(rng.choice((1, 3, 90)))
        ]
        data = bytearray(encode_batch(records, base_offset=5, compression=rng.choice(list(CompressionType))))
        for _ in range(rng.randrange(1, 4)):
            data[rng.randrange(61, len(data))] = rng.randrange(256)
        changes = [(rng.choice(kinds), rng.choice(values)) for _ in range(rng.randrange(2))]
        try:
            offsets = read(forged(bytes(data), *changes), headers=rng.random() < 0.5)
        except CorruptBatchError:
            continue
        assert offsets == sorted(set(offsets))
