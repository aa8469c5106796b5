"""AddPartitionsToTxn, AddOffsetsToTxn: what a producer's transaction is to write to, told to its coordinator.

    producers, and brokers for theirs -> here -> TransactionCoordinator

Very many partitions are looked up, and answered, in pieces; they are added together, or none is.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from itertools import islice
from typing import Any, Final

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.topics import OFFSETS_TOPIC
from kraft.api.authz.checks import READ_GROUP, WRITE_TRANSACTIONAL_ID
from kraft.api.authz.group_checks import add_partitions
from kraft.api.context import BrokerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.response import error_code_only
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_within, in_slices
from kraft.api.transactions import NAMED_BEFOREHAND, NAMED_BY_WRITING, error_for_version
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition

ADDED_AT_ONCE: Final = 2000
"""AddPartitionsToTxn: partitions that are looked up, or answered, between two turns of the loop."""
TRANSACTIONS_AT_ONCE: Final = 100
"""The same, from version 4 on: each is a task."""
_FIRST_OF_BROKERS: Final = 4
"""AddPartitionsToTxn: many transactions at once, for brokers."""

_Outcomes = Callable[[TopicPartition], ErrorCode]
"""What became of a partition: to make a table of a hundred thousand takes as long as to make the answer."""


async def handle_add_partitions(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    if ctx.version >= _FIRST_OF_BROKERS:
        return await _add_for_brokers(broker, request)
    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    transactional_id = request.v3_and_below_transactional_id
    topics = request.v3_and_below_topics
    requested = await _partitions(broker.node, topics)
    if ctx.connection.gone:
        return {"results_by_topic_v3_and_below": []}  # to nobody: its transaction may have ended meanwhile
    outcomes = await _add(broker, transactional_id, producer, requested, NAMED_BEFOREHAND)
    answered = await _results(broker.node, topics, lambda tp: error_for_version(ctx, outcomes(tp)))
    return {"results_by_topic_v3_and_below": answered}


def add_partitions_error(request: Message, code: ErrorCode, message: str) -> Response:
    failed = [
        {
            "name": topic.name,
            "results_by_partition": [_result(number, code) for number in topic.partitions],
        }
        for topic in request.v3_and_below_topics or ()
    ]
    return {"error_code": int(code), "results_by_topic_v3_and_below": failed}


async def _add_for_brokers(broker: BrokerContext, request: Message) -> Response:
    """Together, since some wait until an earlier transaction has ended."""
    results: list[dict[str, Any]] = []
    turns = broker.node.long_work.request()
    left = iter(request.transactions)
    while part := list(islice(left, TRANSACTIONS_AT_ONCE)):
        if results:
            await turns.pause()
        results += await asyncio.gather(*(_add_for_broker(broker, each) for each in part))
    return {"error_code": 0, "results_by_transaction": results}


async def _add_for_broker(broker: BrokerContext, requested: Message) -> dict[str, Any]:
    producer = ProducerIdAndEpoch(requested.producer_id, requested.producer_epoch)
    partitions = await _partitions(broker.node, requested.topics)
    if requested.verify_only:
        outcomes = await _verify(broker, requested.transactional_id, producer, partitions)
    else:
        outcomes = await _add(broker, requested.transactional_id, producer, partitions, NAMED_BY_WRITING)
    return {
        "transactional_id": requested.transactional_id,
        "topic_results": await _results(broker.node, requested.topics, outcomes),
    }


async def _add(
    broker: BrokerContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Mapping[TopicPartition, bool],
    client_version: int,
) -> _Outcomes:
    """All of them, or none."""
    if not all(partitions.values()):
        return _unknown(partitions)
    try:
        await broker.transaction_coordinator.add_partitions(
            transactional_id, producer, partitions, client_version
        )
    except BrokerError as error:
        return _all_alike(error.code)
    return _all_alike(ErrorCode.NONE)


async def _verify(
    broker: BrokerContext,
    transactional_id: str,
    producer: ProducerIdAndEpoch,
    partitions: Mapping[TopicPartition, bool],
) -> _Outcomes:
    if not all(partitions.values()):
        return _unknown(partitions)
    try:
        found = await broker.transaction_coordinator.verify(transactional_id, producer, partitions)
    except BrokerError as error:
        return _all_alike(error.code)
    missing = frozenset(found)
    return lambda tp: ErrorCode.TRANSACTION_ABORTABLE if tp in missing else ErrorCode.NONE


async def handle_add_offsets(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    place = TopicPartition(OFFSETS_TOPIC, broker.group_coordinator.partition_for(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    try:
        await broker.transaction_coordinator.add_partitions(
            request.transactional_id, producer, [place], NAMED_BEFOREHAND
        )
    except BrokerError as error:
        return {"error_code": int(error_for_version(ctx, error.code))}
    return {"error_code": 0}


# ---- partitions ----------------------------------------------------------------------------------------


async def _partitions(node: NodeContext, topics: Iterable[Message]) -> dict[TopicPartition, bool]:
    """Each that is named, and whether it is there."""
    there: dict[TopicPartition, bool] = {}
    async for topic, number in in_slices(node.long_work, each_within(topics, _numbers), ADDED_AT_ONCE):
        if number is not None:
            there[TopicPartition(topic.name, number)] = _exists(node, topic.name, number)
    return there


def _numbers(topic: Message) -> list[int]:
    numbers: list[int] = topic.partitions
    return numbers


def _exists(node: NodeContext, name: str, number: int) -> bool:
    topic = node.image.topic(name)
    return topic is not None and number in topic.partitions


def _unknown(there: Mapping[TopicPartition, bool]) -> _Outcomes:
    """One of them is not there."""
    return lambda tp: ErrorCode.OPERATION_NOT_ATTEMPTED if there[tp] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _all_alike(code: ErrorCode) -> _Outcomes:
    return lambda tp: code


async def _results(node: NodeContext, topics: Iterable[Message], outcomes: _Outcomes) -> list[dict[str, Any]]:
    answered: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    async for topic, number in in_slices(node.long_work, each_within(topics, _numbers), ADDED_AT_ONCE):
        if number is None:
            rows = []
            answered.append({"name": topic.name, "results_by_partition": rows})
        else:
            rows.append(_result(number, outcomes(TopicPartition(topic.name, number))))
    return answered


def _result(number: int, code: ErrorCode) -> dict[str, Any]:
    return {"partition_index": number, "partition_error_code": int(code)}


ROWS: Final = (
    ApiRow(
        ApiKey.ADD_PARTITIONS_TO_TXN,
        (0, 5),
        (add_partitions(add_partitions_error),),
        broker=handle_add_partitions,
        on_error=add_partitions_error,
        concurrent=True,
        from_broker=lambda version, _: version >= _FIRST_OF_BROKERS,
    ),
    ApiRow(
        ApiKey.ADD_OFFSETS_TO_TXN,
        (0, 4),
        (WRITE_TRANSACTIONAL_ID, READ_GROUP),
        broker=handle_add_offsets,
        on_error=error_code_only,
        concurrent=True,
    ),
)
