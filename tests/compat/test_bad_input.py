"""Damaged frames and damaged batches against real nodes: an error or a closed connection, nothing else."""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Iterator
from typing import Any

import pytest
from crc32c import crc32c
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kraft.api.request_context import Role
from kraft.api.table import ROWS
from kraft.local.local_cluster import LocalCluster
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, encode_request
from kraft.wire.header import request_header
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.compression import compress
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.suite.examples import examples

WITHIN_S = 60.0


def recorded_frames() -> Iterator[bytes]:
    """A well-formed request of every API in its oldest and newest version, without its length. All these
    schemas are loaded by who sends them, and not by every worker that collects the test."""
    for row in ROWS.values():
        if Role.BROKER in row.listeners and not row.internal:
            for version in {row.min_version, row.max_version}:
                body = encode_request(row.key, version, {})
                yield request_header(row.key, version, 1, "fuzz") + body


frames = st.deferred(lambda: st.sampled_from(sorted(recorded_frames())))
damage = st.lists(st.tuples(st.floats(0, 0.999), st.integers(0, 255)), min_size=1, max_size=4)


def client_address(cluster: LocalCluster) -> Address:
    host, _, port = cluster.bootstrap.split(",")[0].rpartition(":")
    return Address(host, int(port))


async def still_serves(address: Address) -> None:
    client = await PeerClient.connect(asyncio.get_running_loop(), address, "test")
    await client.request(ApiKey.METADATA, 12, {"topics": []}, timeout_s=WITHIN_S)
    client.close()


async def send_raw(address: Address, data: bytes) -> None:
    """Send, say no more, and wait until the server has nothing more to say either."""
    reader, writer = await asyncio.open_connection(address.host, address.port)
    with contextlib.suppress(ConnectionError):
        writer.write(data)
        writer.write_eof()
        await asyncio.wait_for(reader.read(-1), WITHIN_S)
    writer.close()


@settings(max_examples=examples(60), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(frame=frames, changes=damage, cut=st.floats(0, 1), lie=st.integers(-1, 3))
def test_damaged_frames(
    shared_cluster: LocalCluster, frame: bytes, changes: list[tuple[float, int]], cut: float, lie: int
) -> None:
    address = client_address(shared_cluster)
    damaged = bytearray(frame)
    for place, value in changes:
        damaged[int(place * len(damaged))] = value
    damaged = damaged[: max(int(cut * len(damaged)), 1)]

    async def run() -> None:
        await send_raw(address, struct.pack(">i", len(damaged) + lie) + bytes(damaged))
        await still_serves(address)

    asyncio.run(run())


def batch(**more: Any) -> bytearray:
    return bytearray(encode_batch([Record(0, 1_700_000_000_000, b"k", b"v", ())], **more))


def with_crc_wrong() -> bytearray:
    data = batch()
    data[-1] ^= 1
    return data


def with_magic(magic: int) -> bytearray:
    data = batch()
    data[16] = magic
    return data


def with_length(delta: int) -> bytearray:
    data = batch()
    struct.pack_into(">i", data, 8, struct.unpack_from(">i", data, 8)[0] + delta)
    return data


def sealed(body: bytes, count: int, codec: int = 0, **fields: int) -> bytes:
    """Whatever the bytes are, under a header that fits and a good CRC."""
    packed = compress(codec, body) if codec else body
    data = (
        bytearray(encode_batch([Record(0, 1_700_000_000_000, None, None)], compression=codec))[:61] + packed
    )
    for name, value in {"length": len(data) - 12, "last": count - 1, "count": count, **fields}.items():
        position, layout = {"length": (8, ">i"), "last": (23, ">i"), "base": (27, ">q"), "count": (57, ">i")}[
            name
        ]
        struct.pack_into(layout, data, position, value)
    struct.pack_into(">I", data, 17, crc32c(bytes(data[21:])))
    return bytes(data)


TINY = b"\x0c\0\0\0\x01\x01\0"  # the shortest record there is; its offset delta is 0
TWO_TINY = TINY + b"\x0e\0\0\0\x01\x02x\0"
SIX_MILLION_TINY = sealed(TINY * 6_000_000, 6_000_000, codec=4)

BAD_BATCHES = {
    "bomb": (SIX_MILLION_TINY, {ErrorCode.MESSAGE_TOO_LARGE}),
    "long-walk": (sealed(TWO_TINY * 60_000, 120_000), {ErrorCode.INVALID_RECORD}),
    "long-walk-compressed": (sealed(TWO_TINY * 200_000, 400_000, codec=4), {ErrorCode.INVALID_RECORD}),
    "many-headers": (
        sealed(b"\xb0\xf1\x24\0\0\0\x01\x01\xa0\xf1\x24" + b"\0\x01" * 299_999 + b"\0", 1),
        {ErrorCode.INVALID_RECORD},
    ),
    "all-offsets": (sealed(TINY, 2**31 - 1, codec=4), {ErrorCode.INVALID_RECORD}),
    "two-in-one": (sealed(TINY, 2), {ErrorCode.INVALID_RECORD}),
    "garbage": (sealed(b"\xff" * 40, 1), {ErrorCode.INVALID_RECORD}),
    "garbage-compressed": (sealed(b"\xff" * 40, 1, codec=3), {ErrorCode.INVALID_RECORD}),
    "no-codec": (
        sealed(TINY, 1)[:22] + b"\6" + sealed(TINY, 1)[23:],
        {ErrorCode.UNSUPPORTED_COMPRESSION_TYPE},
    ),
    "beyond-time": (sealed(TINY, 1, base=2**63 - 1), {ErrorCode.INVALID_TIMESTAMP}),
    "crc": (with_crc_wrong(), {ErrorCode.CORRUPT_MESSAGE}),
    "magic-9": (with_magic(9), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "longer-than-it-is": (with_length(1000), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "shorter-than-it-is": (with_length(-1), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "truncated": (batch()[:40], {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "empty": (bytearray(), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "noise": (bytearray(range(200)), {ErrorCode.CORRUPT_MESSAGE, ErrorCode.INVALID_RECORD}),
    "two-batches": (batch() + batch(), {ErrorCode.INVALID_RECORD}),
}


async def produce(client: PeerClient, topic: str, records: bytes) -> Message:
    fields = {
        "acks": -1,
        "timeout_ms": 5000,
        "topic_data": [{"name": topic, "partition_data": [{"index": 0, "records": records}]}],
    }
    answer = await client.request(ApiKey.PRODUCE, 11, fields, timeout_s=WITHIN_S)
    result: Message = answer.responses[0].partition_responses[0]
    return result


@pytest.mark.parametrize("kind", BAD_BATCHES)
def test_damaged_batches(shared_cluster: LocalCluster, kind: str) -> None:
    records, expected = BAD_BATCHES[kind]
    topic = f"bad-{kind}"

    async def run() -> None:
        loop = asyncio.get_running_loop()
        client = await PeerClient.connect(loop, client_address(shared_cluster), "test")
        wanted = {"name": topic, "num_partitions": 1, "replication_factor": 3}
        await client.request(ApiKey.CREATE_TOPICS, 7, {"topics": [wanted]})
        leader = await leader_of(client, shared_cluster, topic)
        assert (await produce(leader, topic, bytes(records))).error_code in expected
        good = await produce(leader, topic, bytes(batch()))
        assert (good.error_code, good.base_offset) == (0, 0)
        client.close()
        leader.close()

    asyncio.run(asyncio.wait_for(run(), 30))


async def leader_of(client: PeerClient, cluster: LocalCluster, topic: str) -> PeerClient:
    while True:
        fields = {"topics": [{"name": topic}], "allow_auto_topic_creation": False}
        metadata = await client.request(ApiKey.METADATA, 12, fields)
        [found] = metadata.topics
        if found.error_code == 0 and found.partitions[0].leader_id >= 0:
            break
        await asyncio.sleep(0)
    [broker] = [each for each in metadata.brokers if each.node_id == found.partitions[0].leader_id]
    address = Address(broker.host, broker.port)
    return await PeerClient.connect(asyncio.get_running_loop(), address, "test")
