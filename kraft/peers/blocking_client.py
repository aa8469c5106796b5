"""Queries of a node about its cluster, by our own client, from code that has no event loop.

For `local/local_cluster.py` and those commands for which confluent-kafka has no call.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping, Sequence
from contextvars import ContextVar
from typing import Any, Final, NamedTuple, TypeVar

from kraft.net.client import MAX_STRANGERS_RESPONSE_BYTES, Address, PeerClient, UnsupportedVersion
from kraft.net.connection_security import PLAINTEXT, ConnectionSecurity, dial
from kraft.peers.interruptible import run
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message
from kraft.wire.malformed import only
from metadata_quorum.foundation.batch import iter_headers
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID

METADATA_VERSION: Final = 12
QUORUM_VERSIONS: Final = (0, 2)
QUORUM_FIELDS: Final[Mapping[str, Any]] = {
    "topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]
}
"""The fields of a DescribeQuorum request."""
CHUNK_BYTES: Final = 4 * 1024 * 1024
CLIENT_ID: Final = "kraft-cli"

T = TypeVar("T")


SECURITY: Final[ContextVar[ConnectionSecurity]] = ContextVar("connection security", default=PLAINTEXT)
"""How to connect to the nodes: set by the command line's options."""


async def _dial(address: Address, timeout_s: float) -> PeerClient:
    return await dial(
        asyncio.get_running_loop(),
        address,
        CLIENT_ID,
        SECURITY.get(),
        timeout_s=timeout_s,
        max_response_bytes=MAX_STRANGERS_RESPONSE_BYTES,
    )


async def _ask(
    address: Address, api_key: ApiKey, versions: tuple[int, int], fields: Mapping[str, Any], timeout_s: float
) -> Message:
    client = await _dial(address, timeout_s)
    try:
        await client.negotiate(timeout_s=timeout_s)
        version = client.version_of(api_key, *versions)
        return await client.request(api_key, version, fields, timeout_s=timeout_s)
    finally:
        client.close()


def ask(
    host: str,
    port: int,
    api_key: ApiKey,
    versions: tuple[int, int],
    fields: Mapping[str, Any],
    timeout_s: float = 10.0,
) -> Message:
    """One request on a connection of its own, in the newest version of that range both ends know.
    Raises `OSError` (`LoginRefused` and the errors of TLS are such), `UnsupportedVersion` or
    `MalformedMessage`."""
    return run(_ask(Address(host, port), api_key, versions, fields, timeout_s))


class Query(NamedTuple):
    """A request, and whom it is for."""

    address: Address
    api_key: ApiKey
    versions: tuple[int, int]
    fields: Mapping[str, Any]


def ask_each(queries: Sequence[Query], timeout_s: float) -> list[Message | Exception]:
    """All at the same time, each with that long; in their order the answers, or why there is none."""
    return run(_ask_each(queries, timeout_s))


async def _ask_each(queries: Sequence[Query], timeout_s: float) -> list[Message | Exception]:
    return list(await asyncio.gather(*(_answer(each, timeout_s) for each in queries)))


async def _answer(query: Query, timeout_s: float) -> Message | Exception:
    try:
        async with asyncio.timeout(timeout_s):
            return await _ask(*query, timeout_s)
    except (OSError, UnsupportedVersion, MalformedMessage) as error:
        return error


def exchange(address: Address, api_key: ApiKey, version: int, body: bytes, timeout_s: float) -> memoryview:
    """As `ask`, with a body of the caller's making, of an API that only some brokers have. Raises `OSError`,
    `UnsupportedVersion` or `MalformedMessage`."""
    return run(_exchange(address, api_key, version, body, timeout_s))


async def _exchange(
    address: Address, api_key: ApiKey, version: int, body: bytes, timeout_s: float
) -> memoryview:
    client = await _dial(address, timeout_s)
    try:
        await client.negotiate(timeout_s=timeout_s)
        client.version_of(api_key, version, version)
        return await client.exchange(api_key, version, (body,), timeout_s)
    finally:
        client.close()


def first_to_answer(addresses: Sequence[Address], timeout_s: float) -> Address | list[Exception]:
    """Whoever answers Metadata first; where nobody does, why not, in their order."""
    return run(_first_to_answer(addresses, timeout_s))


async def _first_to_answer(addresses: Sequence[Address], timeout_s: float) -> Address | list[Exception]:
    fields = {"topics": [], "allow_auto_topic_creation": False}
    versions = (METADATA_VERSION, METADATA_VERSION)

    async def ask_one(address: Address) -> tuple[Address, Message | Exception]:
        return address, await _answer(Query(address, ApiKey.METADATA, versions, fields), timeout_s)

    silent: dict[Address, Exception] = {}
    for next_answer in asyncio.as_completed([ask_one(each) for each in addresses]):
        address, answer = await next_answer
        if not isinstance(answer, Exception):
            return address
        silent[address] = answer
    return [silent[each] for each in addresses]


def live_brokers(host: str, port: int, timeout_s: float = 2.0) -> set[int]:
    """The brokers that a node knows as registered and unfenced; none where it does not answer in time, or
    knows no controller yet."""
    fields = {"topics": [], "allow_auto_topic_creation": False}
    try:
        answer = ask(host, port, ApiKey.METADATA, (METADATA_VERSION, METADATA_VERSION), fields, timeout_s)
    except (OSError, BrokerError):  # a node that is about to start may not let anybody in yet
        return set()
    if answer.error_code != ErrorCode.NONE or answer.controller_id < 0:
        return set()
    return {broker.node_id for broker in answer.brokers}


def out_of_sync(host: str, port: int) -> list[str]:
    """The partitions that do not have all their replicas in sync, as a node knows it. Raises `OSError`."""
    fields = {"topics": None, "allow_auto_topic_creation": False}
    answer = ask(host, port, ApiKey.METADATA, (METADATA_VERSION, METADATA_VERSION), fields)
    return [
        f"{topic.name}-{partition.partition_index}"
        for topic in answer.topics
        for partition in topic.partitions
        if set(partition.isr_nodes) != set(partition.replica_nodes)
    ]


def describe_quorum(host: str, port: int) -> Message:
    """The answer to DescribeQuorum for the metadata partition. Raises `OSError`, `BrokerError`."""
    answer = ask(host, port, ApiKey.DESCRIBE_QUORUM, QUORUM_VERSIONS, QUORUM_FIELDS)
    _raise_for(answer)
    _raise_for(only(only(answer.topics).partitions))
    return answer


def metadata_chunks(host: str, port: int) -> Iterator[bytes]:
    """Whole batches of the metadata log up to the high watermark, after its newest snapshot if the log does
    not begin at 0. `host` and `port` may be any node's; the active controller serves the chunks (of Apache
    Kafka's no other does, and it serves what is not committed, too). Raises `OSError`, `BrokerError`."""
    leader = _leader(describe_quorum(host, port))
    offset, epoch = 0, 0
    while True:
        partition = _fetch_metadata(leader, offset, epoch)
        snapshot = partition.snapshot_id
        if snapshot.end_offset >= 0:
            yield b"".join(_snapshot_pieces(leader, snapshot))
            offset, epoch = snapshot.end_offset, snapshot.epoch
            continue
        records = bytes(partition.records or b"")
        end = 0
        for position, header in iter_headers(records):
            if header.next_offset > partition.high_watermark:
                break
            end, offset, epoch = position + header.size, header.next_offset, header.partition_leader_epoch
        if end == 0:
            return
        yield records[:end]
        if offset >= partition.high_watermark:
            return


class _Leader(NamedTuple):
    """The active controller."""

    host: str
    port: int
    epoch: int


def _leader(quorum: Message) -> _Leader:
    """Raises `BrokerError` where the answer does not say where it listens, as Apache Kafka's before 3.9."""
    partition = only(only(quorum.topics).partitions)
    listeners = [at for each in quorum.nodes if each.node_id == partition.leader_id for at in each.listeners]
    if not listeners:
        raise BrokerError(
            ErrorCode.LEADER_NOT_AVAILABLE, "we are not told where the active controller listens"
        )
    listener = listeners[0]
    return _Leader(listener.host, listener.port, partition.leader_epoch)


def _fetch_metadata(leader: _Leader, offset: int, last_epoch: int) -> Message:
    """`last_epoch`: of the record before `offset`."""
    wanted = {
        "partition": 0, "fetch_offset": offset, "partition_max_bytes": CHUNK_BYTES, "log_start_offset": -1,
        "current_leader_epoch": leader.epoch, "last_fetched_epoch": last_epoch,
    }  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": CHUNK_BYTES,
        "session_id": 0, "session_epoch": -1,
        "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [wanted]}],
    }  # fmt: skip
    answer = ask(leader.host, leader.port, ApiKey.FETCH, (13, 17), fields)
    _raise_for(answer)
    partition: Message = only(only(answer.responses).partitions)
    _raise_for(partition)
    return partition


def _snapshot_pieces(leader: _Leader, snapshot: Message) -> Iterator[bytes]:
    position, size = 0, 1
    while position < size:
        wanted = {
            "partition": 0, "current_leader_epoch": leader.epoch, "position": position,
            "snapshot_id": {"end_offset": snapshot.end_offset, "epoch": snapshot.epoch},
        }  # fmt: skip
        fields = {
            "replica_id": -1, "max_bytes": CHUNK_BYTES,
            "topics": [{"name": METADATA_TOPIC, "partitions": [wanted]}],
        }  # fmt: skip
        answer = ask(leader.host, leader.port, ApiKey.FETCH_SNAPSHOT, (0, 1), fields)
        _raise_for(answer)
        partition = only(only(answer.topics).partitions)
        _raise_for(partition)
        piece = bytes(partition.unaligned_records)
        if not piece:
            raise BrokerError(ErrorCode.POSITION_OUT_OF_RANGE, "the snapshot ends before its size")
        yield piece
        position, size = position + len(piece), partition.size


def _raise_for(answer: Message) -> None:
    if answer.error_code != ErrorCode.NONE:
        message = answer.error_message if hasattr(answer, "error_message") else None
        raise BrokerError(ErrorCode(answer.error_code), message or "")
