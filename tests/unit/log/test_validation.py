"""What a leader refuses, and with which code."""

from __future__ import annotations

import struct

import pytest
from crc32c import crc32c

from data_plane.log.config import LogConfig
from data_plane.log.log import Log
from data_plane.log.validation import Origin
from metadata_quorum.batch import Record, check_crc, decode_batch, encode_batch, read_header
from metadata_quorum.errors import BrokerError, ErrorCode
from tests.logs import NOW_MS, batch, open_log, read_all

HOUR_MS = 3_600_000


def code_of(log: Log, records: bytearray, **arguments) -> ErrorCode:
    before = log.log_end_offset, log.size
    with pytest.raises(BrokerError) as caught:
        log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS, **arguments)
    assert (log.log_end_offset, log.size) == before, "a refused batch was written"
    return caught.value.code


def with_field(
    records: bytearray, position: int, layout: str, value: int, *, fix_crc: bool = True
) -> bytearray:
    struct.pack_into(layout, records, position, value)
    if fix_crc:
        struct.pack_into(">I", records, 17, crc32c(bytes(records[21:])))
    return records


@pytest.fixture
def log(tmp_path) -> Log:
    return open_log(tmp_path)


@pytest.mark.parametrize("position", [21, 30, 61, -1])
def test_wrong_crc(log: Log, position: int):
    records = batch(b"value")
    records[position] ^= 0x01 if position != 30 else 0x80
    assert code_of(log, records) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert log.log_end_offset == 0


def test_wrong_crc_field(log: Log):
    assert code_of(log, with_field(batch(b"v"), 17, ">I", 1, fix_crc=False)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [1, 11, 12, 60])
def test_cut_short(log: Log, size: int):
    records = batch(b"value")[:size]
    assert code_of(log, records) == ErrorCode.CORRUPT_MESSAGE
    assert code_of(log, batch(b"value")[:-1]) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("claimed", [-1, 0, 48, 2**31 - 1])
def test_impossible_length(log: Log, claimed: int):
    assert code_of(log, with_field(batch(b"v"), 8, ">i", claimed)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("magic", [0, 1, 3])
def test_wrong_magic(log: Log, magic: int):
    assert code_of(log, with_field(batch(b"v"), 16, ">b", magic)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_record_count_against_last_offset(log: Log, count: int):
    assert code_of(log, with_field(batch(b"a", b"b"), 57, ">i", count)) == ErrorCode.INVALID_RECORD


def test_count_and_last_offset_lie_together(log: Log):
    records = with_field(batch(b"a", b"b"), 57, ">i", 1000)
    assert code_of(log, with_field(records, 23, ">i", 999)) == ErrorCode.INVALID_RECORD


def test_nothing_and_too_much(log: Log):
    assert code_of(log, bytearray()) == ErrorCode.INVALID_RECORD
    assert code_of(log, batch(b"a") + batch(b"b")) == ErrorCode.INVALID_RECORD


def test_what_only_brokers_may_write(log: Log):
    assert code_of(log, batch(b"v", control=True)) == ErrorCode.INVALID_RECORD
    assert code_of(log, batch(b"v", base_offset=5)) == ErrorCode.INVALID_RECORD
    log.append_as_leader(batch(b"v", base_offset=5), leader_epoch=0, now_ms=NOW_MS, origin=Origin.COORDINATOR)
    assert read_all(log) == [(0, b"v")]


def test_unknown_codec(log: Log):
    for codec in (5, 7):
        assert (
            code_of(log, with_field(batch(b"v"), 21, ">h", codec)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_few_compressed_bytes_that_claim_all_offsets(log: Log, codec: int):
    records = batch(b"v", compression=codec)
    with_field(records, 23, ">i", 2**31 - 2)
    assert code_of(log, with_field(records, 57, ">i", 2**31 - 1)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("base", [2**63 - 1, 2**62, -(2**63)])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_base_timestamp_beyond_all_times(tmp_path, base: int, policy: str):
    log = open_log(tmp_path, LogConfig(cleanup_policy=(policy,)))
    records = bytearray(encode_batch([Record(-1, NOW_MS, b"key", b"value")]))
    assert code_of(log, with_field(records, 27, ">q", base)) == ErrorCode.INVALID_TIMESTAMP


def test_producer_id_without_sequence(log: Log):
    assert code_of(log, batch(b"v", producer_id=4, producer_epoch=0)) == ErrorCode.INVALID_RECORD
    assert code_of(log, batch(b"v", producer_id=4, base_sequence=0)) == ErrorCode.INVALID_RECORD


@pytest.mark.row("L9")
def test_max_message_bytes(tmp_path):
    records = batch(b"x" * 100)
    log = open_log(tmp_path, LogConfig(max_message_bytes=len(records)))
    log.append_as_leader(records, leader_epoch=0, now_ms=NOW_MS)
    assert code_of(log, batch(b"x" * 101)) == ErrorCode.MESSAGE_TOO_LARGE


def test_larger_than_a_segment(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    assert code_of(log, batch(b"x" * 101)) == ErrorCode.RECORD_LIST_TOO_LARGE


def test_timestamps_out_of_range(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_before_max_ms=HOUR_MS))
    for timestamp in (NOW_MS + HOUR_MS + 1, NOW_MS - HOUR_MS - 1):
        assert code_of(log, batch(b"v", timestamp=timestamp)) == ErrorCode.INVALID_TIMESTAMP
    for timestamp in (NOW_MS + HOUR_MS, NOW_MS - HOUR_MS, -1):
        log.append_as_leader(batch(b"v", timestamp=timestamp), leader_epoch=0, now_ms=NOW_MS)


def test_client_claims_log_append_time(log: Log):
    assert code_of(log, batch(b"v", log_append_time_ms=NOW_MS)) == ErrorCode.INVALID_TIMESTAMP


@pytest.mark.row("L9")
def test_log_append_time(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(batch(b"v", timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    data = log.read(0, 1000).read()
    header = read_header(data)
    assert check_crc(data, 0, header)
    assert decode_batch(data)[0].timestamp == NOW_MS


@pytest.mark.row("L9")
@pytest.mark.parametrize(
    ("wanted", "codec"), [("gzip", 1), ("snappy", 2), ("lz4", 3), ("zstd", 4), ("uncompressed", 0)]
)
def test_topic_compression(tmp_path, wanted: str, codec: int):
    log = open_log(tmp_path, LogConfig(compression_type=wanted))
    sent = batch(*[b"%d" % i for i in range(200)], compression=3 if codec == 0 else 0)
    log.append_as_leader(sent, leader_epoch=2, now_ms=NOW_MS)
    assert read_all(log) == [(i, b"%d" % i) for i in range(200)]
    data = log.read(0, 1 << 20).read()
    header = read_header(data)
    assert header.compression == codec
    assert header.partition_leader_epoch == 2


def test_recompression_keeps_the_producer(tmp_path):
    log = open_log(tmp_path, LogConfig(compression_type="zstd"))
    sent = batch(b"a", b"b", producer_id=4, producer_epoch=2, base_sequence=0)
    log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
    header = read_header(log.read(0, 1 << 20).read())
    assert (header.producer_id, header.producer_epoch, header.base_sequence) == (4, 2, 0)
    assert log.producers.states[4].last_sequence == 1


def test_records_that_cannot_be_opened_for_recompression(tmp_path):
    log = open_log(tmp_path, LogConfig(compression_type="zstd"))
    records = batch(b"aaaa", compression=1)
    broken = with_field(records, len(records) - 12, ">Q", 0)
    assert code_of(log, broken) == ErrorCode.INVALID_RECORD


def test_compacted_topic_wants_keys(tmp_path):
    log = open_log(tmp_path, LogConfig(cleanup_policy=("compact",)))
    assert code_of(log, batch(b"v")) == ErrorCode.INVALID_RECORD
    keyed = bytearray(encode_batch([Record(-1, NOW_MS, b"k", b"v")]))
    log.append_as_leader(keyed, leader_epoch=0, now_ms=NOW_MS)


def test_follower_refuses_what_does_not_fit(tmp_path):
    log = open_log(tmp_path)
    good = bytes(batch(b"a", leader_epoch=0))
    log.append_as_follower(good)
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        log.append_as_follower(good)
    broken = batch(b"b", base_offset=1, leader_epoch=0)
    broken[-1] ^= 1
    with pytest.raises(BrokerError, match="CORRUPT_MESSAGE"):
        log.append_as_follower(broken)
    assert log.append_as_follower(good[:20]) is None
    assert log.log_end_offset == 1
