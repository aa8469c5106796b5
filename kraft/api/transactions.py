"""Transactions: requests of producers to their coordinator, and of brokers to each other.

    EndTxn                                             -> TransactionCoordinator
    WriteTxnMarkers                                    -> MarkerWriter, on the partitions' leaders
    DescribeTransactions, ListTransactions             -> TransactionCoordinator
    DescribeProducers                                  -> what the log of a partition knows of its producers

Partitions are added in add_partitions.py; offsets are committed in a transaction in group_offsets.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterable, Iterator, Mapping, Sequence
from functools import partial
from typing import Any, Final

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import TransactionMetadata, TransactionState
from data_plane.log.producers import ProducerStateEntry
from kraft.api import partition_lookup
from kraft.api.authz.checks import (
    WRITE_TRANSACTIONAL_ID,
    AuthorizeRequest,
    FilterByAuthorized,
    authorize_names,
    authorize_topics,
)
from kraft.api.authz.group_checks import hide_topics
from kraft.api.context import BrokerContext
from kraft.api.request_context import RequestContext
from kraft.api.response import error_code_only
from kraft.api.row import ApiRow, Response
from kraft.api.slices import VALUES_PER_SLICE, each_once, each_within, in_slices, of_name
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.decisions.topics import name_problem
from metadata_quorum.foundation.client_pattern import ClientPattern
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH, ZERO_UUID, TopicPartition
from metadata_quorum.foundation.supervision import awaited
from metadata_quorum.security.acls import AclOperation, AclResourceType

FIRST_TO_SAY_FENCED: Final = {  # by API
    ApiKey.INIT_PRODUCER_ID: 4,
    ApiKey.ADD_PARTITIONS_TO_TXN: 2,
    ApiKey.ADD_OFFSETS_TO_TXN: 2,
    ApiKey.END_TXN: 2,
}
"""The first versions with PRODUCER_FENCED; clients of older ones get INVALID_PRODUCER_EPOCH."""

PARTS_PER_TURN: Final = 10
"""ListTransactions: of the coordinator's partitions."""

MARKERS_PER_SLICE: Final = 25
"""WriteTxnMarkers: each is an append, and the first one of a log opens its files."""

PARTS_AT_ONCE: Final = 1000
"""Of one WriteTxnMarkers request, written side by side: each takes some kilobytes until it is replicated. Our
own coordinators send fewer."""

NAMED_PER_SLICE: Final = 1000
"""Items that are only looked up, in one turn of the loop."""

PARTITIONS_PER_SLICE: Final = 20
PRODUCERS_PER_SLICE: Final = 1000
"""DescribeProducers."""
_FIRST_WITH_EPOCHS: Final = 5
"""EndTxn: every transaction has an epoch of its own (transaction.version 2)."""

NAMED_BEFOREHAND: Final = 0
NAMED_BY_WRITING: Final = 2
"""The transaction.version of a client, known from how it adds partitions."""


def error_for_version(ctx: RequestContext, code: ErrorCode) -> ErrorCode:
    """The error in the words of the request's version."""
    if code is ErrorCode.PRODUCER_FENCED and ctx.version < FIRST_TO_SAY_FENCED.get(ctx.api_key, 0):
        return ErrorCode.INVALID_PRODUCER_EPOCH
    return code


# ---- EndTxn ------------------------------------------------------------------------------------------


async def handle_end(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    version = NAMED_BY_WRITING if ctx.version >= _FIRST_WITH_EPOCHS else NAMED_BEFOREHAND
    state = ctx.connection.state
    if state.are_commits_ahead:
        await state.earlier_commits()  # they are part of the transaction
        if ctx.connection.gone:
            return {"error_code": int(ErrorCode.NETWORK_EXCEPTION)}  # to nobody; it may be another one by now
    try:
        following = await broker.transaction_coordinator.end(
            request.transactional_id, producer, commit=request.committed, client_version=version
        )
    except BrokerError as error:
        return {"error_code": int(error_for_version(ctx, error.code))}
    return {
        "error_code": 0,
        "producer_id": following.producer_id,
        "producer_epoch": following.epoch,
    }


# ---- WriteTxnMarkers ---------------------------------------------------------------------------------


async def handle_write_markers(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    work = broker.node.long_work
    named: list[list[TopicPartition]] = []  # by marker
    async for topic, number in in_slices(work, _each_marked(request.markers), NAMED_PER_SLICE):
        if topic is None:
            named.append([])
        elif number is not None:
            named[-1].append(TopicPartition(topic.name, number))
    outcomes: list[dict[TopicPartition, ErrorCode]] = [{} for _ in named]
    writing: dict[asyncio.Task[None], None] = {}
    room = asyncio.Semaphore(PARTS_AT_ONCE)

    def on_written(task: asyncio.Task[None]) -> None:
        if not task.cancelled() and task.exception() is None:  # else `gather` raises it
            del writing[task]
        room.release()

    async for place, part in in_slices(work, _parts(named), MARKERS_PER_SLICE, lambda each: len(each[1])):
        await room.acquire()
        written = _write_marker(broker, request.markers[place], part, outcomes[place])
        task = awaited(broker.node.loop, written, "WriteTxnMarkers")
        writing[task] = None
        task.add_done_callback(on_written)
    await asyncio.gather(*writing)
    markers: list[dict[str, Any]] = []
    async for topic, number in in_slices(work, _each_marked(request.markers), NAMED_PER_SLICE):
        if topic is None:
            markers.append({"producer_id": request.markers[len(markers)].producer_id, "topics": []})
        elif number is None:
            markers[-1]["topics"].append({"name": topic.name, "partitions": []})
        else:
            code = outcomes[len(markers) - 1][TopicPartition(topic.name, number)]
            markers[-1]["topics"][-1]["partitions"].append(_marked(number, code))
    return {"markers": markers}


def _each_marked(markers: Iterable[Message]) -> Iterator[tuple[Message | None, int | None]]:
    """(None, None) for each marker, followed by its topics and partitions as from `each_within`."""
    for marker in markers:
        yield None, None
        yield from each_within(marker.topics, "partition_indexes")


def _parts(named: Iterable[Sequence[TopicPartition]]) -> Iterator[tuple[int, Sequence[TopicPartition]]]:
    """The partitions of each marker, a slice at a time, with the marker's place in the request."""
    for place, partitions in enumerate(named):
        for start in range(0, len(partitions), MARKERS_PER_SLICE):
            yield place, partitions[start : start + MARKERS_PER_SLICE]


def _marked(number: int, code: ErrorCode) -> dict[str, int]:
    return {"partition_index": number, "error_code": int(code)}


def write_markers_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "markers": [
            {
                "producer_id": marker.producer_id,
                "topics": [
                    {
                        "name": topic.name,
                        "partitions": [_marked(number, code) for number in topic.partition_indexes],
                    }
                    for topic in marker.topics
                ],
            }
            for marker in request.markers
        ]
    }


async def _write_marker(
    broker: BrokerContext,
    marker: Message,
    partitions: Sequence[TopicPartition],
    outcomes: dict[TopicPartition, ErrorCode],
) -> None:
    outcomes |= await broker.marker_writer.write(
        ProducerIdAndEpoch(marker.producer_id, marker.producer_epoch),
        marker.coordinator_epoch,
        partitions,
        commit=marker.transaction_result,
        transaction_version=marker.transaction_version,
    )


# ---- DescribeTransactions, ListTransactions ----------------------------------------------------------


async def handle_describe(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    names = each_once(broker.node.long_work, request.transactional_ids, PARTITIONS_PER_SLICE, str, of_name)
    return {"transaction_states": [await _describe(broker, name) async for name in names]}


def describe_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"transaction_states": [_undescribed(name, code) for name in request.transactional_ids]}


async def _describe(broker: BrokerContext, transactional_id: str) -> dict[str, Any]:
    if not transactional_id:
        return _undescribed(transactional_id, ErrorCode.INVALID_REQUEST)
    try:
        known = await broker.transaction_coordinator.describe(transactional_id)
    except BrokerError as error:
        return _undescribed(transactional_id, error.code)
    topics: dict[str, list[int]] = {}
    async for tp in in_slices(broker.node.long_work, known.partitions, NAMED_PER_SLICE):
        topics.setdefault(tp.topic, []).append(tp.partition)
    return {
        "error_code": 0,
        "transactional_id": transactional_id,
        "transaction_state": known.state.label,
        "transaction_timeout_ms": known.timeout_ms,
        "transaction_start_time_ms": known.started_ms,
        "producer_id": known.producer_id,
        "producer_epoch": known.producer_epoch,
        "topics": [{"topic": topic, "partitions": sorted(topics[topic])} for topic in sorted(topics)],
    }


def _undescribed(transactional_id: str, code: ErrorCode) -> dict[str, Any]:
    return {
        "error_code": int(code),
        "transactional_id": transactional_id,
        "transaction_state": "",
        "topics": [],
    }


async def handle_list(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    states = {state.label: state for state in TransactionState}
    try:
        pattern = (
            ClientPattern(request.transactional_id_pattern) if request.transactional_id_pattern else None
        )
    except ValueError as error:
        raise BrokerError(ErrorCode.INVALID_REGULAR_EXPRESSION, str(error)) from None
    work = broker.node.long_work
    state_filters: set[str] = set()
    unknown: dict[str, None] = {}
    async for name in in_slices(work, request.state_filters, VALUES_PER_SLICE):
        state_filters.add(name)
        if name not in states:
            unknown[name] = None
    producer_ids = {each async for each in in_slices(work, request.producer_id_filters, VALUES_PER_SLICE)}
    now_ms, duration_ms = broker.node.now_ms(), request.duration_filter

    def requested(name: str, known: TransactionMetadata) -> bool:
        return (
            (not state_filters or known.state.label in state_filters)
            and (not producer_ids or known.producer_id in producer_ids)
            and (duration_ms < 0 or now_ms - known.started_ms > duration_ms)
            and (pattern is None or pattern.matches(name))
        )

    found = []
    turns = work.request()
    parts = 0
    async for listed in broker.transaction_coordinator.list():
        parts += 1
        if parts % PARTS_PER_TURN == 0:  # there are fifty, even where there is no transaction
            await turns.pause()
        async for name, known in in_slices(work, listed, 500, lambda each: 1 + len(each[0])):
            if requested(name, known):
                found.append(
                    {
                        "transactional_id": name,
                        "producer_id": known.producer_id,
                        "transaction_state": known.state.label,
                    }
                )
    return {"error_code": 0, "unknown_state_filters": list(unknown), "transaction_states": found}


# ---- DescribeProducers -------------------------------------------------------------------------------


async def handle_producers(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    topics: list[dict[str, Any]] = []
    seen: set[tuple[str, int]] = set()
    partitions = each_within(request.topics, "partition_indexes")
    async for topic, number in in_slices(
        broker.node.long_work, partitions, PARTITIONS_PER_SLICE, partial(_weight, broker)
    ):
        if number is None:
            topics.append({"name": topic.name, "partitions": []})
        elif (place := (topic.name, number)) not in seen:
            seen.add(place)
            topics[-1]["partitions"].append(await _producers(broker, *place))
    return {"topics": topics}


def producers_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "topics": [
            {
                "name": topic.name,
                "partitions": [
                    {"partition_index": number, "error_code": int(code), "active_producers": []}
                    for number in topic.partition_indexes
                ],
            }
            for topic in request.topics
        ]
    }


def _weight(broker: BrokerContext, place: tuple[Message, int | None]) -> int:
    """A client may write as anybody: a partition may have a hundred thousand producers of one batch each."""
    topic, number = place
    if number is None:
        return 1
    try:
        known = len(broker.replica_manager.get(topic.name, number).log.producers.states)
    except BrokerError:
        known = 0
    return 1 + min(known, PRODUCERS_PER_SLICE) * PARTITIONS_PER_SLICE // PRODUCERS_PER_SLICE


async def _producers(broker: BrokerContext, topic: str, number: int) -> dict[str, Any]:
    try:
        if problem := name_problem(topic):
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        partition = partition_lookup.find(broker, topic, ZERO_UUID, number)
        partition.check_epoch(NO_EPOCH, leader_only=False)  # any replica may be asked
    except BrokerError as error:
        return {
            "partition_index": number,
            "error_code": int(error.code),
            "error_message": error.message or None,
            "active_producers": [],
        }
    states: Mapping[int, ProducerStateEntry] = partition.log.producers.states
    return {
        "partition_index": number,
        "error_code": 0,
        "active_producers": [
            _producer(producer_id, state)
            async for producer_id in in_slices(broker.node.long_work, sorted(states), PRODUCERS_PER_SLICE)
            if (state := states.get(producer_id)) is not None  # it may expire meanwhile
        ],
    }


def _producer(producer_id: int, state: ProducerStateEntry) -> dict[str, int]:
    first_offset = state.current_txn_first_offset
    return {
        "producer_id": producer_id,
        "producer_epoch": state.epoch,
        "last_sequence": state.last_sequence,
        "last_timestamp": state.last_timestamp,
        "coordinator_epoch": state.coordinator_epoch,
        "current_txn_start_offset": -1 if first_offset is None else first_offset,
    }


ROWS: Final = (
    ApiRow(
        ApiKey.END_TXN,
        (0, 5),
        (WRITE_TRANSACTIONAL_ID,),
        broker=handle_end,
        on_error=error_code_only,
        concurrent=True,
    ),
    ApiRow(
        ApiKey.WRITE_TXN_MARKERS,
        (1, 2),
        (AuthorizeRequest((AclOperation.ALTER, AclOperation.CLUSTER_ACTION)),),
        broker=handle_write_markers,
        on_error=write_markers_error,
        exempt_from_quotas=True,
        concurrent=True,
    ),
    ApiRow(
        ApiKey.DESCRIBE_PRODUCERS,
        (0, 0),
        (authorize_topics(AclOperation.READ, producers_error),),
        broker=handle_producers,
        on_error=producers_error,
    ),
    ApiRow(
        ApiKey.DESCRIBE_TRANSACTIONS,
        (0, 0),
        (
            authorize_names(
                AclOperation.DESCRIBE,
                AclResourceType.TRANSACTIONAL_ID,
                "transactional_ids",
                "transaction_states",
                describe_error,
            ),
            hide_topics,
        ),
        broker=handle_describe,
        on_error=describe_error,
    ),
    ApiRow(
        ApiKey.LIST_TRANSACTIONS,
        (0, 2),
        (
            FilterByAuthorized(
                "transaction_states",
                "transactional_id",
                AclOperation.DESCRIBE,
                AclResourceType.TRANSACTIONAL_ID,
            ),
        ),
        broker=handle_list,
        on_error=error_code_only,
    ),
)
