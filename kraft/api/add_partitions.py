"""AddPartitionsToTxn, AddOffsetsToTxn: tell the coordinator to which partitions a transaction will write.

    producers, or brokers for them -> here -> TransactionCoordinator

Very many partitions are looked up and answered in pieces; either all of them are added, or none, and before
what comes behind them on their connection ends their transaction.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import nullcontext
from itertools import islice
from typing import Any, Final

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.topics import INTERNAL_TOPICS, OFFSETS_TOPIC
from kraft.api.authz.checks import READ_GROUP, WRITE_TRANSACTIONAL_ID
from kraft.api.authz.group_checks import add_partitions
from kraft.api.context import BrokerContext, NodeContext
from kraft.api.offset_partitions import is_more_than
from kraft.api.request_context import RequestContext
from kraft.api.response import error_code_only
from kraft.api.row import ApiRow, Response
from kraft.api.slices import FIRST_SHARE, each_within, in_slices
from kraft.api.transactions import NAMED_BEFOREHAND, NAMED_BY_WRITING, error_for_version
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition

ADDED_AT_ONCE: Final = 2000
"""AddPartitionsToTxn: partitions that are looked up, or answered, in one turn of the loop."""
TRANSACTIONS_AT_ONCE: Final = 100
"""AddPartitionsToTxn from version 4 on: transactions that are handled at once, each in a task."""
_FIRST_OF_BROKERS: Final = 4
"""AddPartitionsToTxn: from here on it is for brokers, with many transactions at once."""

_Outcomes = Callable[[TopicPartition], ErrorCode]
"""The outcome for a partition. A function, because a table of a hundred thousand would take as long to make
as the response."""


async def handle_add_partitions(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    if ctx.version >= _FIRST_OF_BROKERS:
        return await _add_for_brokers(broker, request)
    topics = request.v3_and_below_topics
    state = ctx.connection.state
    if is_more_than(ADDED_AT_ONCE // FIRST_SHARE, topics):  # the end of its transaction may come behind it
        state.behind_commits()
    async with state.long_commits or nullcontext():
        outcomes = await _add_for_producer(broker, ctx, request)
    if outcomes is None:
        return {"results_by_topic_v3_and_below": []}  # nobody reads it
    named = outcomes
    answered = await _results(broker.node, topics, lambda tp: error_for_version(ctx, named(tp)))
    return {"results_by_topic_v3_and_below": answered}


async def _add_for_producer(broker: BrokerContext, ctx: RequestContext, request: Message) -> _Outcomes | None:
    """None where its connection has gone: its transaction may have ended meanwhile."""
    producer = ProducerIdAndEpoch(request.v3_and_below_producer_id, request.v3_and_below_producer_epoch)
    requested = await _partitions(broker.node, request.v3_and_below_topics)
    if ctx.connection.gone:
        return None
    if any(tp.topic in INTERNAL_TOPICS for tp in requested):
        return _only_for_coordinators
    transactional_id = request.v3_and_below_transactional_id
    return await _add(broker, transactional_id, producer, requested, NAMED_BEFOREHAND)


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
    """At the same time, since some wait until an earlier transaction has ended."""
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
    """Add all of them or none."""
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
    """Each partition that is named, and whether it exists."""
    there: dict[TopicPartition, bool] = {}
    async for topic, number in in_slices(node.long_work, each_within(topics, "partitions"), ADDED_AT_ONCE):
        if number is not None:
            tp = TopicPartition(topic.name, number)
            there[tp] = node.image.partition(tp) is not None
    return there


def _unknown(there: Mapping[TopicPartition, bool]) -> _Outcomes:
    """The outcomes if at least one of the partitions does not exist."""
    return lambda tp: ErrorCode.OPERATION_NOT_ATTEMPTED if there[tp] else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def _only_for_coordinators(tp: TopicPartition) -> ErrorCode:
    """Whatever rights a client has; AddOffsetsToTxn names a group."""
    refused = tp.topic in INTERNAL_TOPICS
    return ErrorCode.TOPIC_AUTHORIZATION_FAILED if refused else ErrorCode.OPERATION_NOT_ATTEMPTED


def _all_alike(code: ErrorCode) -> _Outcomes:
    return lambda tp: code


async def _results(node: NodeContext, topics: Iterable[Message], outcomes: _Outcomes) -> list[dict[str, Any]]:
    answered: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    async for topic, number in in_slices(node.long_work, each_within(topics, "partitions"), ADDED_AT_ONCE):
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
