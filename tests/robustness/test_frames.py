"""Bytes that no client should send, against a node that runs: an answer with an error or a closed
connection, and stock clients are served as before."""

from __future__ import annotations

import asyncio
import struct
import zlib
from pathlib import Path
from typing import Any, Final

import cramjam
import crc32c
import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.local.free_ports import HOST
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.compression import CompressionType
from metadata_quorum.foundation.errors import ErrorCode
from tests.robustness.live_node import MIB, TOPIC, LiveNode
from tests.robustness.traffic import QUIET
from tests.support.clients.wire_client import Wire
from tests.support.suite.examples import examples

pytestmark = pytest.mark.row("P7")

WITHIN_S: Final = 60.0
RECORDED = list(map(bytes.fromhex, (Path(__file__).parent / "recorded_frames.txt").read_text().split()))


def send_raw(port: int, data: bytes) -> bytes:
    """Send, say no more, and read until the node hangs up."""

    async def talk() -> bytes:
        reader, writer = await asyncio.open_connection(HOST, port)
        answer = b""
        try:
            writer.write(data)
            writer.write_eof()
            answer = await asyncio.wait_for(reader.read(-1), WITHIN_S)
        except ConnectionError:
            pass
        writer.close()
        return answer

    return asyncio.run(talk())


def framed(frame: bytes) -> bytes:
    return struct.pack(">i", len(frame)) + frame


# --- frames ------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(struct.pack(">i", 2**31 - 1) + bytes(1000), id="2-gigabytes"),
        pytest.param(struct.pack(">i", -1), id="negative-length"),
        pytest.param(struct.pack(">i", -(2**31)), id="most-negative-length"),
        pytest.param(struct.pack(">i", 0), id="empty"),
        pytest.param(framed(b"\x00\x12\x00"), id="shorter-than-a-header"),
        pytest.param(framed(struct.pack(">hhih", 999, 0, 1, -1)), id="unknown-api"),
        pytest.param(framed(struct.pack(">hhih", -1, 0, 1, -1)), id="negative-api"),
        pytest.param(framed(struct.pack(">hhih", ApiKey.METADATA, 32767, 1, -1)), id="absurd-version"),
        pytest.param(framed(struct.pack(">hhih", ApiKey.METADATA, -32768, 1, -1)), id="negative-version"),
        pytest.param(
            framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, 32767)), id="client-id-beyond-the-end"
        ),
        pytest.param(framed(struct.pack(">hhih", ApiKey.METADATA, 1, 1, -7)), id="negative-client-id"),
        pytest.param(framed(struct.pack(">hhihi", ApiKey.METADATA, 1, 1, -1, 2**31 - 1)), id="huge-array"),
        pytest.param(
            framed(struct.pack(">hhih", ApiKey.METADATA, 12, 1, -1) + b"\xff" * 20), id="endless-varint"
        ),
        pytest.param(
            framed(struct.pack(">hhih", ApiKey.METADATA, 9, 1, -1) + b"\0\xff\xff\xff\xff\x7f"),
            id="claimed-array",
        ),
        pytest.param(
            framed(struct.pack(">hhih", ApiKey.RAFT_FRAME, 0, 1, -1) + bytes(99)), id="raft-on-a-client-port"
        ),
        pytest.param(b"GET / HTTP/1.1\r\nHost: kraft\r\n\r\n", id="http"),
        pytest.param(b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500), id="tls"),
    ],
)
def test_frames_that_no_client_sends(live: LiveNode, data: bytes):
    before = live.rss
    assert send_raw(live.port, data) == b""
    live.serves_stock_clients()
    assert live.rss - before < 16 * MIB


@settings(max_examples=examples(100), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.binary(min_size=1, max_size=600), as_frame=st.booleans())
def test_random_bytes(live: LiveNode, data: bytes, as_frame: bool):
    send_raw(live.port, framed(data) if as_frame else data)


@settings(max_examples=examples(250), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    frame=st.sampled_from(RECORDED),
    changes=st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), max_size=4),
    kept=st.floats(0, 1) | st.just(1.0),
    lie=st.integers(-2, 4) | st.just(0),
)
def test_recorded_frames_damaged(
    live: LiveNode, frame: bytes, changes: list[tuple[float, int]], kept: float, lie: int
):
    damaged = bytearray(frame)
    for place, value in changes:
        damaged[int(place * len(damaged))] = value
    damaged = damaged[: max(1, int(kept * len(damaged)))]
    send_raw(live.port, struct.pack(">i", len(damaged) + lie) + damaged)
    assert live.process.is_running(), live.node.said


@pytest.mark.parametrize("kept", [0.0, 0.1, 0.5, 0.9])
def test_every_recorded_frame_cut_short(live: LiveNode, kept: float):
    """The length is right for the whole frame: the rest never comes."""
    for frame in RECORDED:
        assert send_raw(live.port, framed(frame)[: 4 + int(kept * len(frame))]) == b""
    live.serves_stock_clients()


# --- batches -----------------------------------------------------------------------------------

HEADER_AT = {"length": (8, ">i"), "magic": (16, ">b"), "crc": (17, ">I"), "attributes": (21, ">h"),
             "last delta": (23, ">i"), "count": (57, ">i")}  # fmt: skip


def batch(**changes: int) -> bytes:
    """Two records; a change of what the CRC covers comes with the right CRC."""
    records = [Record(offset, 1_700_000_000_000, b"key", b"value", ()) for offset in range(2)]
    data = bytearray(encode_batch(records))
    for name, value in changes.items():
        position, layout = HEADER_AT[name.replace("_", " ")]
        struct.pack_into(layout, data, position, value)
    if "crc" not in changes:
        struct.pack_into(">I", data, 17, crc32c.crc32c(bytes(data[21:])))
    return bytes(data)


def message_set(magic: int) -> bytes:
    """Kafka's older format: offset, size, crc, magic, attributes, (timestamp), key, value."""
    body = bytes([magic, 0]) + (bytes(8) if magic else b"") + struct.pack(">i5si5s", 5, b"older", 5, b"value")
    message = struct.pack(">I", zlib.crc32(body)) + body
    return struct.pack(">qi", 0, len(message)) + message


REFUSED = {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD, ErrorCode.UNSUPPORTED_FOR_MESSAGE_FORMAT}
BAD_BATCHES = {
    "wrong-crc": batch(crc=1),
    "magic-0": message_set(0),
    "magic-1": message_set(1),
    "magic-3": batch(magic=3),
    "magic-negative": batch(magic=-1),
    "count-too-high": batch(count=2_000_000_000),
    "count-too-low": batch(count=1),
    "count-negative": batch(count=-5),
    "last-delta-lies": batch(last_delta=1_000_000),
    "length-2-gigabytes": batch(length=2**31 - 1),
    "length-negative": batch(length=-100),
    "length-of-a-header": batch(length=49),
    "unknown-codec": batch(attributes=7),
    "from-a-broker": batch(attributes=0x20),
}


def produce(live: LiveNode, topic: str, records: bytes) -> Message:
    fields: dict[str, Any] = {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    with Wire() as wire:
        answer = wire.ask(live.port, ApiKey.PRODUCE, 11, **fields)
    result: Message = answer.responses[0].partition_responses[0]
    return result


@pytest.mark.parametrize("kind", BAD_BATCHES)
def test_batches_that_lie(live: LiveNode, kind: str):
    code = produce(live, TOPIC, BAD_BATCHES[kind]).error_code
    assert code in REFUSED or (kind == "unknown-codec" and code == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE)
    live.serves_stock_clients()


@pytest.fixture(scope="module")
def recompressed(live: LiveNode) -> str:
    """A topic whose broker must unpack every batch, because it wants another codec."""
    admin = AdminClient({"bootstrap.servers": f"{HOST}:{live.port}", **QUIET})
    topic = NewTopic("recompressed", 1, 1, config={"compression.type": "lz4"})
    admin.create_topics([topic])["recompressed"].result()
    return "recompressed"


def test_records_that_are_not_compressed_as_they_say(live: LiveNode, recompressed: str):
    """Where nothing needs unpacking, batches are stored as they came."""
    assert produce(live, recompressed, batch(attributes=CompressionType.ZSTD)).error_code in REFUSED
    live.serves_stock_clients()


@pytest.mark.row("L9")
def test_a_compressed_bomb_is_not_unpacked_whole(live: LiveNode, recompressed: str):
    """A gigabyte of zeros in a hundred kilobytes of zstd."""
    packed = bytes(cramjam.zstd.compress(bytes(1024 * MIB)))
    assert len(packed) < MIB
    plain = bytearray(encode_batch([Record(0, 1_700_000_000_000, None, b"", ())])[:61]) + packed
    struct.pack_into(">i", plain, 8, len(plain) - 12)
    struct.pack_into(">h", plain, 21, int(CompressionType.ZSTD))
    struct.pack_into(">I", plain, 17, crc32c.crc32c(bytes(plain[21:])))
    answer = produce(live, recompressed, bytes(plain))
    assert answer.error_code in REFUSED | {ErrorCode.MESSAGE_TOO_LARGE}
    live.serves_stock_clients()
    assert live.rss < 400 * MIB
