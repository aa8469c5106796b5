"""Record batches: the fixed header, the CRC, the records inside."""

from __future__ import annotations

import struct

import pytest

from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    CorruptBatchError,
    Record,
    check_crc,
    decode_batch,
    encode_batch,
    encode_end_txn_marker,
    iter_headers,
    read_header,
    set_log_append_time,
    set_offset_and_epoch,
)
from metadata_quorum.foundation.compression import CompressionType, compress, decompress

RECORDS = [
    Record(-1, 1000, b"key", b"value", (("a", b"1"), ("b", None))),
    Record(-1, 1005, None, b"x" * 300),
    Record(-1, 990, b"", None),
]


def test_header_says_what_was_encoded():
    data = encode_batch(
        RECORDS, base_offset=40, leader_epoch=3, producer_id=9, producer_epoch=1, base_sequence=7
    )
    header = read_header(data)
    assert header.size == len(data)
    assert (header.base_offset, header.last_offset, header.next_offset) == (40, 42, 43)
    assert (header.base_timestamp, header.max_timestamp) == (1000, 1005)
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (9, 1, 7)
    assert header.last_sequence == 9
    assert (header.record_count, header.partition_leader_epoch, header.magic) == (3, 3, 2)
    assert check_crc(data, 0, header)


@pytest.mark.row("L9")
@pytest.mark.parametrize("codec", list(CompressionType))
def test_records_come_back_from_every_codec(codec: CompressionType):
    data = encode_batch(RECORDS * 500, base_offset=5, compression=codec)
    assert read_header(data).compression == codec
    decoded = decode_batch(data)
    assert [record.offset for record in decoded] == list(range(5, 1505))
    assert [record._replace(offset=-1) for record in decoded] == RECORDS * 500


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_decompression_stops_at_its_bound(codec: CompressionType):
    bomb = compress(codec, bytes(10_000_000))
    assert len(bomb) < 600_000
    with pytest.raises(ValueError, match="more than 1000000 bytes"):
        decompress(codec, bomb, 1_000_000)


@pytest.mark.parametrize(
    "codec", [CompressionType.GZIP, CompressionType.SNAPPY, CompressionType.LZ4, CompressionType.ZSTD]
)
def test_damaged_compression_is_a_value_error(codec: CompressionType):
    data = bytearray(compress(codec, b"some records, some records" * 100))
    for cut in (1, len(data) // 2, len(data) - 1):
        with pytest.raises(ValueError):
            decompress(codec, data[:cut])


def test_incompressible_and_empty_lz4():
    import random

    noise = random.Random(1).randbytes(200_000)
    assert bytes(decompress(CompressionType.LZ4, compress(CompressionType.LZ4, noise))) == noise
    assert bytes(decompress(CompressionType.LZ4, compress(CompressionType.LZ4, b""))) == b""


def test_offset_and_epoch_lie_outside_the_crc():
    data = bytearray(encode_batch(RECORDS))
    set_offset_and_epoch(data, 0, 12345, 8)
    header = read_header(data)
    assert (header.base_offset, header.partition_leader_epoch) == (12345, 8)
    assert check_crc(data, 0, header)


def test_log_append_time_changes_the_header_only():
    data = bytearray(encode_batch(RECORDS))
    before = bytes(data[BATCH_OVERHEAD:])
    set_log_append_time(data, 0, read_header(data), 77_000)
    header = read_header(data)
    assert (header.timestamp_type, header.max_timestamp) == (1, 77_000)
    assert check_crc(data, 0, header)
    assert bytes(data[BATCH_OVERHEAD:]) == before
    assert {record.timestamp for record in decode_batch(data)} == {77_000}


def test_iter_headers_leaves_out_the_torn_tail():
    one, two = encode_batch(RECORDS), encode_batch(RECORDS, base_offset=3)
    assert [p for p, _ in iter_headers(one + two)] == [0, len(one)]
    assert [p for p, _ in iter_headers(one + two[:-1])] == [0]
    assert list(iter_headers(one[:30])) == []


def test_iter_headers_refuses_an_impossible_length():
    data = bytearray(encode_batch(RECORDS))
    data[8:12] = (5).to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        list(iter_headers(data))


def test_offsets_with_gaps_as_compaction_leaves_them():
    data = encode_batch([Record(12, 1), Record(17, 2)], base_offset=10, last_offset=19)
    assert read_header(data).last_offset == 19
    assert [record.offset for record in decode_batch(data)] == [12, 17]


@pytest.mark.parametrize("claimed", [2, 4, 1 << 30])
def test_lying_record_count_is_found_when_opened(claimed: int):
    data = bytearray(encode_batch(RECORDS))
    data[57:61] = claimed.to_bytes(4, "big")
    with pytest.raises(CorruptBatchError):
        decode_batch(data)


def test_end_transaction_marker():
    data = encode_end_txn_marker(
        commit=True, coordinator_epoch=4, producer_id=8, producer_epoch=2, timestamp=50
    )
    header = read_header(data)
    assert header.is_control
    assert header.is_transactional
    assert decode_batch(data)[0].key == b"\x00\x00\x00\x01"


@pytest.mark.parametrize(
    ("base", "other"), [(2**63 - 1, -(2**63)), (-(2**63), 2**63 - 1), (2**62, -(2**62) - 1)]
)
def test_timestamps_at_both_ends_of_a_long(base: int, other: int):
    records = [Record(0, base, b"a", b""), Record(1, other, b"b", b"")]
    assert decode_batch(encode_batch(records)) == records


def test_whatever_timestamps_a_batch_holds_it_can_be_encoded_again():
    data = bytearray(encode_batch([Record(0, 0, b"z", b""), Record(1, 2**62, b"a", b"")]))
    struct.pack_into(">q", data, 27, 2**63 - 1)  # base timestamp
    decoded = decode_batch(data)
    assert [record.timestamp for record in decoded] == [2**63 - 1, 2**62 + 2**63 - 1 - 2**64]
    assert decode_batch(encode_batch(decoded)) == decoded


def test_a_delete_horizon_beyond_all_times():
    data = encode_batch([Record(0, 5, b"a", None)], delete_horizon_ms=2**63 + 5)
    assert read_header(data).base_timestamp == 2**63 - 1
    assert decode_batch(data)[0].timestamp == 5
