"""Where logs begin and end: ListOffsets, OffsetForLeaderEpoch, DeleteRecords."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from typing import Any, Final

from data_plane.coordinator.topics import INTERNAL_TOPICS
from data_plane.log.timestamps import TimestampAndOffset
from data_plane.purgatory.purgatory import DelayedOperation
from data_plane.replication.delayed_produce import add_deletion
from data_plane.replication.offset_lookup import OffsetSearch, list_offset, offset_for_leader_epoch
from data_plane.replication.partition import Partition
from kraft.api import partition_lookup
from kraft.api.authz.checks import authorize_topics
from kraft.api.authz.topic_checks import authorize_epochs
from kraft.api.context import BrokerContext
from kraft.api.offset_partitions import is_still_there
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_within, in_slices
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH, ZERO_UUID, TopicPartition
from metadata_quorum.foundation.offset_timestamps import (
    EARLIEST_LOCAL_TIMESTAMP,
    EARLIEST_TIMESTAMP,
    LATEST_TIERED_TIMESTAMP,
    LATEST_TIMESTAMP,
    MAX_TIMESTAMP,
)
from metadata_quorum.security.acls import AclOperation

NAMED_PER_SLICE: Final = 2000
PARTITIONS_PER_SLICE: Final = 100
"""Partitions answered in one turn of the loop: finding an offset may need a look into the log."""
WATERMARKS_PER_SLICE: Final = 2000
_CONSUMER: Final = -1
_DEBUGGING_CONSUMER: Final = -2
"""ListOffsets: replica ids of clients. The second may ask followers too, and is told where the log ends."""

_SEARCH: Final = "search"
"""Key of a pending search in the fields of an answer."""

_SINCE_VERSION: Final = {
    LATEST_TIMESTAMP: 1,
    EARLIEST_TIMESTAMP: 1,
    MAX_TIMESTAMP: 7,
    EARLIEST_LOCAL_TIMESTAMP: 8,
    LATEST_TIERED_TIMESTAMP: 9,
}
"""ListOffsets: negative timestamps with a special meaning, and the first version that has it."""

NEVER: Final = 1 << 15
"""Above any version."""
_FIRST_TO_KNOW_NOT_AVAILABLE: Final = 5
"""ListOffsets: clients of older versions do not know OFFSET_NOT_AVAILABLE."""


# ---- ListOffsets -------------------------------------------------------------------------------------


async def handle_list_offsets(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    named: Counter[tuple[str, int]] = Counter()
    async for topic, each in in_slices(
        broker.node.long_work, each_within(request.topics, "partitions"), NAMED_PER_SLICE
    ):
        if each is not None:
            named[topic.name, each.partition_index] += 1

    def answer(topic: str, wanted: Message) -> dict[str, Any]:
        if named[topic, wanted.partition_index] > 1:
            raise BrokerError(ErrorCode.INVALID_REQUEST)
        if wanted.timestamp < 0 and ctx.version < _SINCE_VERSION.get(wanted.timestamp, NEVER):
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION)
        partition = partition_lookup.find(broker, topic, ZERO_UUID, wanted.partition_index)
        leader_only = request.replica_id != _DEBUGGING_CONSUMER
        partition.check_epoch(wanted.current_leader_epoch, leader_only=leader_only)
        try:
            found = list_offset(
                partition,
                wanted.timestamp,
                replica=request.replica_id != _CONSUMER,
                committed_only=request.isolation_level == 1,
            )
        except BrokerError as error:
            raise BrokerError(_in_words_of(ctx.version, error.code)) from None
        return {_SEARCH: found} if isinstance(found, OffsetSearch) else _offset_fields(found)

    topics = await _each_partition(broker, request.topics, "name", "partition_index", answer)
    searched = [each for topic in topics for each in topic["partitions"] if _SEARCH in each]
    return await _with_found(broker, ctx, topics, searched) if searched else {"topics": topics}


async def _with_found(
    broker: BrokerContext, ctx: RequestContext, topics: list[dict[str, Any]], searched: list[dict[str, Any]]
) -> Response:
    """Run the searches, of a few requests at a time: the executor's threads are needed elsewhere too."""
    async with broker.searches:
        for fields in searched:
            search: OffsetSearch = fields.pop(_SEARCH)
            await broker.node.blocking(search.run)
            try:
                fields.update(_offset_fields(search.answer()))
            except BrokerError as error:
                fields["error_code"] = int(_in_words_of(ctx.version, error.code))
    return {"topics": topics}


def _in_words_of(version: int, code: ErrorCode) -> ErrorCode:
    """The error as clients of that version know it."""
    unknown = code is ErrorCode.OFFSET_NOT_AVAILABLE and version < _FIRST_TO_KNOW_NOT_AVAILABLE
    return ErrorCode.LEADER_NOT_AVAILABLE if unknown else code


def _offset_fields(found: TimestampAndOffset) -> dict[str, Any]:
    return {"timestamp": found.timestamp, "offset": found.offset, "leader_epoch": found.leader_epoch}


def _from_follower(_: int, request: Message) -> bool:
    """Whether it is a follower's, which sends it on the connection on which it fetches."""
    return bool(request.replica_id >= 0)


def list_offsets_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"topics": _all_failed(request.topics, "name", "partition_index", code)}


# ---- OffsetForLeaderEpoch ----------------------------------------------------------------------------


async def handle_offset_for_leader_epoch(
    broker: BrokerContext, ctx: RequestContext, request: Message
) -> Response:
    def answer(topic: str, wanted: Message) -> dict[str, Any]:
        partition = partition_lookup.find(broker, topic, ZERO_UUID, wanted.partition)
        partition.check_epoch(wanted.current_leader_epoch, leader_only=True)  # whoever asks
        epoch, end_offset = offset_for_leader_epoch(partition, wanted.leader_epoch)
        return {"leader_epoch": epoch, "end_offset": end_offset}

    return {"topics": await _each_partition(broker, request.topics, "topic", "partition", answer)}


def offset_for_leader_epoch_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"topics": _all_failed(request.topics, "topic", "partition", code)}


# ---- DeleteRecords -----------------------------------------------------------------------------------


async def handle_delete_records(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    deleted: list[tuple[Partition, int]] = []
    done: asyncio.Future[list[ErrorCode]] = broker.node.loop.create_future()
    wait = DelayedOperation(lambda outcomes: None if done.done() else done.set_result(outcomes))
    then = broker.node.image

    def answer(topic: str, wanted: Message) -> dict[str, Any]:
        if topic in INTERNAL_TOPICS:  # whoever leads it
            known = broker.node.image.partition(TopicPartition(topic, wanted.partition_index))
            unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
            raise BrokerError(unknown if known is None else ErrorCode.INVALID_TOPIC_EXCEPTION)
        partition = partition_lookup.find(broker, topic, ZERO_UUID, wanted.partition_index)
        partition.check_epoch(NO_EPOCH, leader_only=True)
        now = broker.node.image
        if now is not then and not is_still_there(then, now, partition.tp):  # another one has its name
            raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
        if not partition.log.config.delete:
            raise BrokerError(ErrorCode.POLICY_VIOLATION, "the topic's cleanup.policy is not delete")
        offset = partition.delete_records(wanted.offset)
        add_deletion(wait, partition, offset)
        deleted.append((partition, offset))
        return {}

    try:
        topics = await _each_partition(
            broker, request.topics, "name", "partition_index", answer, {"low_watermark": -1}
        )
    finally:  # what waits already must end, also where the request is cancelled
        wait.start(broker.timer, max(request.timeout_ms, 0) / 1000)
    outcomes = await done
    found = [each for topic in topics for each in topic["partitions"] if not each["error_code"]]
    async for each, (partition, reached), outcome in in_slices(
        broker.node.long_work, zip(found, deleted, outcomes, strict=True), WATERMARKS_PER_SLICE
    ):
        each["error_code"] = int(outcome)
        if outcome is not ErrorCode.NONE:
            each["low_watermark"] = -1
        else:  # if leadership was lost since then, this broker does not know the other replicas any longer
            each["low_watermark"] = partition.low_watermark() if partition.is_leader else reached
    return {"topics": topics}


def delete_records_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"topics": _all_failed(request.topics, "name", "partition_index", code)}


# ---- topics with partitions --------------------------------------------------------------------------


async def _each_partition(
    broker: BrokerContext,
    topics: list[Message],
    topic_field: str,
    partition_field: str,
    answer: Callable[[str, Message], dict[str, Any]],
    failed: dict[str, Any] | None = None,
) -> list[dict[str, Any]]:
    """Answer for every partition of every topic; a `BrokerError` is that partition's alone."""
    result: list[dict[str, Any]] = []
    async for topic, wanted in in_slices(
        broker.node.long_work, each_within(topics, "partitions"), PARTITIONS_PER_SLICE
    ):
        name = getattr(topic, topic_field)
        if wanted is None:
            result.append({topic_field: name, "partitions": []})
            continue
        fields = {partition_field: getattr(wanted, partition_field), "error_code": 0}
        try:
            fields.update(answer(name, wanted))
        except BrokerError as error:
            fields.update(failed or {}, error_code=int(error.code))
        result[-1]["partitions"].append(fields)
    return result


def _all_failed(
    topics: list[Message], topic_field: str, partition_field: str, code: ErrorCode
) -> list[dict[str, Any]]:
    return [
        {
            topic_field: getattr(topic, topic_field),
            "partitions": [
                {partition_field: getattr(wanted, partition_field), "error_code": int(code)}
                for wanted in topic.partitions
            ],
        }
        for topic in topics
    ]


ROWS: Final = (
    ApiRow(
        ApiKey.LIST_OFFSETS,
        (1, 10),
        (authorize_topics(AclOperation.DESCRIBE, list_offsets_error),),
        broker=handle_list_offsets,
        from_broker=_from_follower,
        on_error=list_offsets_error,
    ),
    ApiRow(
        ApiKey.DELETE_RECORDS,
        (0, 2),
        (authorize_topics(AclOperation.DELETE, delete_records_error),),
        broker=handle_delete_records,
        on_error=delete_records_error,
    ),
    ApiRow(
        ApiKey.OFFSET_FOR_LEADER_EPOCH,
        (2, 4),
        (authorize_epochs(offset_for_leader_epoch_error),),
        broker=handle_offset_for_leader_epoch,
        from_broker=_from_follower,
        on_error=offset_for_leader_epoch_error,
    ),
)
