"""What a leader refuses, and with which code."""

from __future__ import annotations

import struct

import cramjam
import pytest
from crc32c import crc32c

from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.validation import AppendOrigin, BudgetExceeded, InvalidRecords, WorkBudget, check
from metadata_quorum.foundation.batch import Record, check_crc, decode_batch, encode_batch, read_header
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.record_walk import Survey, survey
from tests.support.logs import NOW_MS, batch, open_log, read_all
from tests.support.may_block import MAY_BLOCK

HOUR_MS = 3_600_000


def code_of(log: UnifiedLog, records: bytearray, **arguments) -> ErrorCode:
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
def log(tmp_path) -> UnifiedLog:
    return open_log(tmp_path)


@pytest.mark.parametrize("position", [21, 30, 61, -1])
def test_wrong_crc(log: UnifiedLog, position: int):
    records = batch(b"value")
    records[position] ^= 0x01 if position != 30 else 0x80
    assert code_of(log, records) in (ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD)
    assert log.log_end_offset == 0


def test_wrong_crc_field(log: UnifiedLog):
    assert code_of(log, with_field(batch(b"v"), 17, ">I", 1, fix_crc=False)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("size", [1, 11, 12, 60])
def test_cut_short(log: UnifiedLog, size: int):
    records = batch(b"value")[:size]
    assert code_of(log, records) == ErrorCode.INVALID_RECORD
    assert code_of(log, batch(b"value")[:-1]) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("rest", [b"\0\0\0", batch(b"another")[:-1], batch(b"another")[:16]])
def test_what_is_no_whole_batch_behind_one_is_cut_off(log: UnifiedLog, rest: bytes):
    first = batch(b"value")
    log.append_as_leader(first + rest, leader_epoch=0, now_ms=NOW_MS)
    assert len(log.read(0, 1000).read(MAY_BLOCK)) == len(first)
    assert code_of(log, batch(b"value") + b"\0" * 12) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize("claimed", [-1, 0, 13, 48])
def test_impossible_length(log: UnifiedLog, claimed: int):
    assert code_of(log, with_field(batch(b"v"), 8, ">i", claimed)) == ErrorCode.CORRUPT_MESSAGE


@pytest.mark.parametrize(
    ("magic", "code"),
    [
        (0, ErrorCode.INVALID_RECORD),
        (1, ErrorCode.INVALID_RECORD),
        (3, ErrorCode.CORRUPT_MESSAGE),
        (-1, ErrorCode.CORRUPT_MESSAGE),
    ],
)
def test_wrong_magic(log: UnifiedLog, magic: int, code: ErrorCode):
    assert code_of(log, with_field(batch(b"v"), 16, ">b", magic)) == code


@pytest.mark.parametrize("count", [-1, 0, 1, 3, 2**31 - 1])
def test_record_count_against_last_offset(log: UnifiedLog, count: int):
    assert code_of(log, with_field(batch(b"a", b"b"), 57, ">i", count)) == ErrorCode.INVALID_RECORD


def test_last_offset_beyond_the_records(log: UnifiedLog):
    """Offsets that no record has would be taken."""
    assert code_of(log, with_field(batch(b"v"), 23, ">i", 5)) == ErrorCode.INVALID_RECORD


def test_count_and_last_offset_lie_together(log: UnifiedLog):
    records = with_field(batch(b"a", b"b"), 57, ">i", 1000)
    assert code_of(log, with_field(records, 23, ">i", 999)) == ErrorCode.INVALID_RECORD


def test_nothing_and_too_much(log: UnifiedLog):
    assert code_of(log, bytearray()) == ErrorCode.INVALID_RECORD
    assert code_of(log, batch(b"a") + batch(b"b")) == ErrorCode.INVALID_RECORD


def test_what_only_brokers_may_write(log: UnifiedLog):
    assert code_of(log, batch(b"v", control=True)) == ErrorCode.INVALID_RECORD
    assert code_of(log, batch(b"v", base_offset=5)) == ErrorCode.INVALID_RECORD
    log.append_as_leader(
        batch(b"v", base_offset=5), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR
    )
    assert read_all(log) == [(0, b"v")]


def test_unknown_codec(log: UnifiedLog):
    for codec in (5, 7):
        assert (
            code_of(log, with_field(batch(b"v"), 21, ">h", codec)) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
        )


@pytest.mark.parametrize("codec", [1, 2, 3, 4])
def test_a_few_compressed_bytes_that_claim_all_offsets(log: UnifiedLog, codec: int):
    records = batch(b"v", compression=codec)
    with_field(records, 23, ">i", 2**31 - 2)
    assert code_of(log, with_field(records, 57, ">i", 2**31 - 1)) == ErrorCode.INVALID_RECORD


def test_a_few_compressed_bytes_that_become_very_many(log: UnifiedLog):
    """32 times what a message may have, or 32 MiB."""
    assert code_of(log, batch(bytes(33 * 1024 * 1024), compression=4)) == ErrorCode.MESSAGE_TOO_LARGE


@pytest.mark.parametrize("base", [2**63 - 1, 2**62, -(2**63)])
@pytest.mark.parametrize("policy", ["delete", "compact"])
def test_base_timestamp_beyond_all_times(tmp_path, base: int, policy: str):
    log = open_log(tmp_path, LogConfig(cleanup_policy=(policy,)))
    records = bytearray(encode_batch([Record(-1, NOW_MS, b"key", b"value")]))
    assert code_of(log, with_field(records, 27, ">q", base)) == ErrorCode.INVALID_TIMESTAMP


def test_producer_id_without_sequence(log: UnifiedLog):
    assert code_of(log, batch(b"v", producer_id=4, producer_epoch=0)) == ErrorCode.INVALID_RECORD
    log.append_as_leader(batch(b"v", producer_id=4, base_sequence=0), leader_epoch=0, now_ms=NOW_MS)


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


def test_client_claims_log_append_time(tmp_path):
    def claimed(at_ms: int = NOW_MS) -> bytearray:
        return batch(b"v", timestamp=NOW_MS - 5, log_append_time_ms=at_ms)

    stamping = open_log(tmp_path / "stamping", LogConfig(message_timestamp_type="LogAppendTime"))
    assert code_of(stamping, claimed()) == ErrorCode.INVALID_TIMESTAMP
    log = open_log(tmp_path / "log")
    assert code_of(log, claimed(at_ms=-1)) == ErrorCode.INVALID_TIMESTAMP
    log.append_as_leader(claimed(), leader_epoch=0, now_ms=NOW_MS)
    data = log.read(0, 1000).read(MAY_BLOCK)
    header = read_header(data)
    assert check_crc(data, 0, header)
    assert header.timestamp_type == 0
    assert header.max_timestamp == decode_batch(data)[0].timestamp


@pytest.mark.row("L9")
def test_log_append_time(tmp_path):
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    info = log.append_as_leader(batch(b"v", timestamp=5), leader_epoch=0, now_ms=NOW_MS)
    assert info.log_append_time_ms == NOW_MS
    data = log.read(0, 1000).read(MAY_BLOCK)
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
    data = log.read(0, 1 << 20).read(MAY_BLOCK)
    header = read_header(data)
    assert header.compression == codec
    assert header.partition_leader_epoch == 2


def test_recompression_keeps_the_producer(tmp_path):
    log = open_log(tmp_path, LogConfig(compression_type="zstd"))
    sent = batch(b"a", b"b", producer_id=4, producer_epoch=2, base_sequence=0)
    log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
    header = read_header(log.read(0, 1 << 20).read(MAY_BLOCK))
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


def crafted(*records: Record, deltas: list[int] | None = None, count: int | None = None, codec: int = 0):
    """A batch whose records lie about their offsets, or that lies about how many there are."""
    offsets = range(len(records)) if deltas is None else deltas
    count = len(records) if count is None else count
    made = [record._replace(offset=offset) for record, offset in zip(records, offsets, strict=True)]
    batch = bytearray(encode_batch(made, compression=codec, last_offset=count - 1))
    return with_field(batch, 57, ">i", count)


CODECS = pytest.mark.parametrize("codec", range(5))
RECORD = Record(-1, NOW_MS, b"key", b"value")


@CODECS
@pytest.mark.parametrize("count", [1, 3, 1000])
def test_a_count_that_is_not_that_of_the_records(log: UnifiedLog, codec: int, count: int):
    assert code_of(log, crafted(RECORD, RECORD, count=count, codec=codec)) == ErrorCode.INVALID_RECORD


@CODECS
def test_garbage_under_a_good_crc(log: UnifiedLog, codec: int):
    records = crafted(RECORD, codec=codec)
    records[61:] = b"\xff" * len(records[61:])
    assert code_of(log, with_field(records, 23, ">i", 0)) == ErrorCode.INVALID_RECORD


@CODECS
@pytest.mark.parametrize("deltas", [[1_000_000], [0, 0], [0, 2], [1, 0], [5, 0]])
def test_offset_deltas_are_the_records_places(log: UnifiedLog, codec: int, deltas: list[int]):
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(
            crafted(*[RECORD] * len(deltas), deltas=deltas, codec=codec), leader_epoch=0, now_ms=NOW_MS
        )
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [i for i, _ in caught.value.record_errors] == [i for i, d in enumerate(deltas) if i != d]


@CODECS
def test_timestamps_of_single_records(tmp_path, codec: int):
    log = open_log(tmp_path, LogConfig(message_timestamp_before_max_ms=HOUR_MS))
    times = [NOW_MS, NOW_MS + HOUR_MS + 1, NOW_MS - HOUR_MS - 1, -1]
    sent = crafted(*[RECORD._replace(timestamp=time) for time in times], codec=codec)
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_TIMESTAMP
    assert caught.value.message == "One or more records have been rejected due to invalid timestamp"
    assert [i for i, _ in caught.value.record_errors] == [1, 2]
    assert f"within [{NOW_MS - HOUR_MS}, {NOW_MS + HOUR_MS}]" in caught.value.record_errors[0][1]
    accepted = crafted(*[RECORD._replace(timestamp=time) for time in (NOW_MS, -1)], codec=codec)
    log.append_as_leader(accepted, leader_epoch=0, now_ms=NOW_MS)


@CODECS
def test_each_record_without_a_key_is_named_on_a_compacted_topic(tmp_path, codec: int):
    log = open_log(tmp_path, LogConfig(cleanup_policy=("compact",)))
    keyless = RECORD._replace(key=None)
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(crafted(keyless, RECORD, keyless, codec=codec), leader_epoch=0, now_ms=NOW_MS)
    assert caught.value.code is ErrorCode.INVALID_RECORD
    assert [i for i, _ in caught.value.record_errors] == [0, 2]


@CODECS
def test_a_wrong_max_timestamp_is_put_right(log: UnifiedLog, codec: int):
    sent = crafted(RECORD, RECORD._replace(timestamp=NOW_MS + 5), codec=codec)
    log.append_as_leader(with_field(sent, 35, ">q", NOW_MS - 1000), leader_epoch=0, now_ms=NOW_MS)
    header = read_header(sent)
    assert header.max_timestamp == NOW_MS + 5
    assert check_crc(sent, 0, header)


def test_more_than_a_thousand_bad_records_are_not_named(tmp_path):
    log = open_log(tmp_path, LogConfig(cleanup_policy=("compact",)))
    with pytest.raises(InvalidRecords) as caught:
        log.append_as_leader(batch(*[b""] * 5000), leader_epoch=0, now_ms=NOW_MS)
    assert len(caught.value.record_errors) == 1000


def test_header_keys_need_not_be_text(log: UnifiedLog):
    sent = crafted(RECORD._replace(headers=(("\udcff\udc80", b"1"),)))
    assert b"\xff\x80" in sent
    log.append_as_leader(sent, leader_epoch=0, now_ms=NOW_MS)
    assert encode_batch(decode_batch(sent))[61:] == sent[61:]


@CODECS
def test_too_much_for_at_once_changes_nothing(tmp_path, codec: int):
    log = open_log(tmp_path, LogConfig(compression_type="lz4"))
    sent = batch(*[b"v", b"longer"] * 1000, compression=codec)
    before = bytes(sent)
    for steps in (0, 10, 1000, 1999):
        with pytest.raises(BudgetExceeded):
            check(sent, log.config, NOW_MS, AppendOrigin.CLIENT, WorkBudget(steps))
        assert bytes(sent) == before
    checked = check(sent, log.config, NOW_MS, AppendOrigin.CLIENT, WorkBudget(100_000))
    log.append_as_leader(checked, leader_epoch=0, now_ms=NOW_MS)
    assert len(read_all(log)) == 2000


def test_headers_are_as_much_work_as_records(log: UnifiedLog):
    sent = crafted(RECORD._replace(headers=(("", None),) * 5000))
    with pytest.raises(BudgetExceeded):
        check(sent, log.config, NOW_MS, AppendOrigin.CLIENT, WorkBudget(5000))


def test_a_follower_takes_no_marker_that_is_none(log: UnifiedLog):
    marker = bytearray(
        encode_batch([Record(0, NOW_MS, b"", b"")], producer_id=1, producer_epoch=0, control=True)
    )
    with pytest.raises(BrokerError) as caught:
        log.append_as_follower(marker)
    assert caught.value.code is ErrorCode.CORRUPT_MESSAGE
    assert log.size == 0


def test_lz4_blocks_must_not_depend_on_each_other(log: UnifiedLog):
    """Kafka's clients could not read them."""
    sent = crafted(RECORD, codec=3)[:61] + bytes(cramjam.lz4.compress(bytes(crafted(RECORD)[61:])))
    assert code_of(log, with_field(sent, 8, ">i", len(sent) - 12)) == ErrorCode.INVALID_RECORD


@pytest.mark.parametrize("width", [1, 2, 8, 9, 10])
def test_a_timestamp_may_take_more_bytes_than_it_needs(width):
    def varint(number: int, width: int = 1) -> bytes:
        parts = [number >> 7 * i & 0x7F for i in range(width)]
        return bytes([*(part | 0x80 for part in parts[:-1]), parts[-1]])

    def record(place: int) -> bytes:
        body = b"\0" + varint(place % 50 * 2 if width > 1 else 0, width) + varint(place * 2) + b"\x01\x02v\0"
        return varint(len(body) * 2) + body

    found = survey(b"".join(map(record, range(60))), 60, lambda steps: None)
    assert found == Survey(0, 49 if width > 1 else 0, all_keyed=False, in_order=True)
