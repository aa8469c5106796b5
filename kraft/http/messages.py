"""The message browser: a few records of one partition, read from its leader as a consumer reads.

    /api/v1/topics/T/partitions/0/messages?offset=17 (or time_ms=...) -> ListOffsets, Fetch -> records as JSON

Bytes are given as text where they are UTF-8, else in base64; a long value is cut, with its length beside it,
and a page ends where it would hold too much: a few KB of a log may be gigabytes of headers in JSON. A batch
that cannot be opened is shown as one message with a problem, and those behind it are read.
"""

from __future__ import annotations

import asyncio
import base64
import codecs
from collections.abc import Callable, Iterator
from typing import Any, Final, TypeVar

from kraft.api.context import BrokerContext
from kraft.http.client_requests import Client
from kraft.http.finish import to_its_end
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import BatchHeader, CorruptBatchError, iter_headers, iter_records
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_LEADER, TopicPartition
from metadata_quorum.foundation.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

MAX_MESSAGES: Final = 200
MAX_VALUE_BYTES: Final = 4096
MAX_HEADERS: Final = 100
MAX_NAME: Final = 256
MAX_SHOWN_BYTES: Final = 1024 * 1024
"""Of all messages of a page together, though at least one is shown. In JSON a byte may become six."""
FETCH_BYTES: Final = 1024 * 1024
MAX_UNPACKED_BYTES: Final = 8 * 1024 * 1024
_TIMEOUT_S: Final = 5.0
_FETCH_VERSION: Final = 11
_LIST_OFFSETS_VERSION: Final = 7
_CONSUMER: Final = -1

Json = dict[str, Any]
Result = TypeVar("Result")


async def messages(
    client: Client,
    tp: TopicPartition,
    offset: int | None,
    time_ms: int | None,
    limit: int,
    opening: asyncio.Lock,
    told: Callable[[Json], Result],
) -> Result:
    """Messages from an offset or a time on, or the newest, as `told` writes them, beside the loop. Raises
    `Refused`, BrokerError, OSError."""
    broker = client.broker
    registration = broker.node.image.partition(tp)
    if registration is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, str(tp))
    leader = registration.leader
    if leader == NO_LEADER:
        raise BrokerError(ErrorCode.LEADER_NOT_AVAILABLE, f"{tp} has no leader")
    limit = min(max(limit, 1), MAX_MESSAGES)
    start = await _offset_at(broker, leader, tp, EARLIEST_TIMESTAMP)
    end = await _offset_at(broker, leader, tp, LATEST_TIMESTAMP)
    if time_ms is not None:
        at = await _offset_at(broker, leader, tp, time_ms)
        first = end if at < 0 else at
    else:
        first = max(end - limit, start) if offset is None else min(max(offset, start), end)

    def opened(records: bytes) -> Result:
        return told(
            {
                "topic": tp.topic,
                "partition": tp.partition,
                "start": start,
                "end": end,
                "from": first,
                "messages": _readable(records, first, limit),
            }
        )

    records = await _fetch(client, leader, tp, first) if first < end else b""
    async with opening:
        return await to_its_end(broker.node.loop.run_in_executor(None, opened, records))


async def _offset_at(broker: BrokerContext, leader: int, tp: TopicPartition, time_ms: int) -> int:
    partition = {"partition_index": tp.partition, "current_leader_epoch": -1, "timestamp": time_ms}
    fields = {
        "replica_id": _CONSUMER,
        "isolation_level": 0,
        "topics": [{"name": tp.topic, "partitions": [partition]}],
    }
    answer = await broker.console_channels.ask(
        leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields, _TIMEOUT_S
    )
    (answered,) = answer.topics[0].partitions
    if answered.error_code:
        raise BrokerError(ErrorCode(answered.error_code))
    return int(answered.offset)


async def _fetch(client: Client, leader: int, tp: TopicPartition, offset: int) -> bytes:
    partition = {
        "partition": tp.partition,
        "current_leader_epoch": -1,
        "fetch_offset": offset,
        "log_start_offset": -1,
        "partition_max_bytes": FETCH_BYTES,
    }
    fields = {
        "replica_id": _CONSUMER,
        "max_wait_ms": 0,
        "min_bytes": 0,
        "max_bytes": FETCH_BYTES,
        "isolation_level": 0,
        "session_id": 0,
        "session_epoch": -1,
        "topics": [{"topic": tp.topic, "partitions": [partition]}],
        "forgotten_topics_data": [],
        "rack_id": "",
    }
    try:
        answer = await client.ask(leader, ApiKey.FETCH, _FETCH_VERSION, fields, _TIMEOUT_S)
    except ConnectionError:  # a broker of another make, which knows no API of ours
        answer = await client.broker.console_channels.ask(
            leader, ApiKey.FETCH, _FETCH_VERSION, fields, _TIMEOUT_S
        )
    if not answer.responses:
        client.check()
    (answered,) = answer.responses[0].partitions
    if answered.error_code:
        raise BrokerError(ErrorCode(answered.error_code))
    return bytes(answered.records or b"")


def _readable(records: bytes, first: int, limit: int) -> list[Json]:
    """Raises BrokerError where no batch can be found in them."""
    found: list[Json] = []
    room = MAX_SHOWN_BYTES
    try:
        for position, header in iter_headers(records):
            for message in _of_batch(records, position, header):
                if message["offset"] < first:
                    continue
                room -= _shown_bytes(message)
                if room < 0 and found:
                    return found
                found.append(message)
                if len(found) == limit:
                    return found
    except CorruptBatchError as error:
        raise BrokerError(ErrorCode.CORRUPT_MESSAGE, str(error)) from None
    return found


def _of_batch(records: bytes, position: int, header: BatchHeader) -> Iterator[Json]:
    last = header.base_offset - 1
    try:
        for record in iter_records(records, position, max_bytes=MAX_UNPACKED_BYTES):
            last = record.offset
            yield {
                "offset": record.offset,
                "time_ms": record.timestamp,
                "key": _shown(record.key),
                "value": _shown(record.value),
                "headers": [[name[:MAX_NAME], _shown(value)] for name, value in record.headers[:MAX_HEADERS]],
                "more_headers": max(len(record.headers) - MAX_HEADERS, 0),
                "transactional": header.is_transactional,
                "control": header.is_control,
                "problem": None,
            }
    except CorruptBatchError as error:
        yield {
            "offset": header.last_offset,
            "time_ms": header.max_timestamp,
            "key": None,
            "value": None,
            "headers": [],
            "more_headers": 0,
            "transactional": header.is_transactional,
            "control": header.is_control,
            "problem": f"offsets {last + 1} to {header.last_offset} cannot be shown: {error}",
        }


def _shown_bytes(message: Json) -> int:
    names = sum(len(name) for name, _ in message["headers"])
    values = [message["key"], message["value"], *(value for _, value in message["headers"])]
    return names + sum(min(int(each["bytes"]), MAX_VALUE_BYTES) for each in values if each is not None)


def _shown(data: bytes | None) -> Json | None:
    if data is None:
        return None
    shown = bytes(data[:MAX_VALUE_BYTES])
    try:
        # A character that the cut has halved is left out.
        text, _ = codecs.utf_8_decode(shown, "strict", len(data) <= MAX_VALUE_BYTES)
    except UnicodeDecodeError:
        return {"base64": base64.b64encode(shown).decode(), "bytes": len(data)}
    return {"text": text, "bytes": len(data)}
