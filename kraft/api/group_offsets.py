"""A group's committed offsets: OffsetCommit, TxnOffsetCommit, OffsetFetch, OffsetDelete.

The group's coordinator stores them (data_plane/coordinator/groups). Here requests of any version become calls
of it; a request with very many partitions becomes several calls. From version 10 on, which is unstable in
Kafka 4.1 and therefore not in the table of APIs yet, topics are named by id.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from itertools import islice
from typing import Any, Final

from data_plane.coordinator.groups.messages import (
    NO_OFFSET,
    CommitOffsets,
    FetchOffsets,
    OffsetsReply,
    OffsetToCommit,
)
from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.state_machine import ProducerIdAndEpoch, weight_of
from data_plane.coordinator.topics import OFFSETS_TOPIC
from kraft.api.authz.checks import (
    READ_GROUP,
    WRITE_TRANSACTIONAL_ID,
    AuthorizeRequest,
    authorize_topics,
    authorize_topics_or_ids,
)
from kraft.api.authz.group_checks import offset_fetch
from kraft.api.context import BrokerContext
from kraft.api.offset_partitions import (
    OFFSETS_PER_SLICE,
    all_names,
    all_offsets,
    error_of,
    is_more_than,
    is_still_there,
    is_there,
    named_partitions,
    offsets_to_commit,
    per_partition,
    per_partition_in_pieces,
    same_name,
    still_there,
    topic_name,
)
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import FIRST_SHARE, GROUPS_PER_SLICE, each_once, each_within, in_slices, of_name
from kraft.api.txn_offset_errors import FIRST_TO_ADD, as_group_coordinator, in_words_of
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH, ZERO_UUID, TopicPartition
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.security.acls import AclOperation, AclResourceType

_FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITH_EPOCHS: Final = 9
"""OffsetCommit: a generation may be a member's epoch."""
_FIRST_WITH_GROUPS: Final = 8
"""OffsetFetch: many groups at once."""
PIECE: Final = 1000
"""Partitions that are committed or deleted at once; each takes some 7 microseconds, half of that in the
coordinator."""

COMMITTED_PER_SLICE: Final = 250
"""Partitions, and topics, that are committed in some milliseconds: their records are encoded, appended and
applied, too."""


# ---- OffsetCommit ------------------------------------------------------------------------------------


async def handle_commit(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    """Commits of one connection are carried out in the order in which they came, so that the last offset of a
    partition stays."""
    state = ctx.connection.state
    if is_more_than(PIECE, request.topics):
        async with state.behind_commits():
            return await _commit_in_pieces(broker, ctx, request)
    takes = _slices(request)
    takes_turn = takes > 1 / FIRST_SHARE  # sixty-four may commit at once
    if takes_turn or state.are_commits_ahead:
        async with state.behind_commits():  # what came before is committed
            if takes_turn:
                await broker.node.long_work.first(takes)
        if ctx.connection.gone:
            return {"topics": []}  # nobody reads it
    by_id = ctx.version >= _FIRST_WITH_TOPIC_IDS
    names = [topic_name(broker.node.image, topic, by_id) for topic in request.topics]
    offsets = tuple(offsets_to_commit(broker.node.image, request.topics, names, by_id=by_id))
    errors = await _commit(broker, request, offsets, ctx.version) if offsets else {}
    return per_partition(
        request.topics, lambda name, index: error_of(errors, name, index), names, by_id=by_id
    )


def _slices(request: Message) -> float:
    """How many slices of work it is to commit its offsets: each is a record with the name of the group."""
    offsets = sum(1 + len(topic.partitions) for topic in request.topics)
    return offsets * weight_of(request.group_id) / COMMITTED_PER_SLICE


async def _commit_in_pieces(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    """Each piece is decided and replicated before the next one, and may be refused although others were not.
    Ends when the connection has gone: what its client commits on another connection is newer."""
    by_id, image = ctx.version >= _FIRST_WITH_TOPIC_IDS, broker.node.image
    names = await all_names(broker, request.topics, by_id=by_id)
    offsets = await all_offsets(broker, request, names, by_id=by_id)
    errors: dict[TopicPartition, ErrorCode] = {}
    turns = broker.node.long_work.request()
    for start in range(0, len(offsets), PIECE):
        await turns.pause()  # where there is one copy, nothing else is waited for
        if ctx.connection.gone:
            return {"topics": []}  # nobody reads it
        if piece := still_there(image, broker.node.image, offsets[start : start + PIECE]):
            errors |= await _commit(broker, request, piece, ctx.version)
    return await per_partition_in_pieces(broker, request.topics, errors, names, by_id=by_id)


async def _commit(
    broker: BrokerContext, request: Message, offsets: tuple[OffsetToCommit, ...], version: int
) -> dict[TopicPartition, ErrorCode]:
    try:
        reply = await broker.group_coordinator.commit_offsets(
            CommitOffsets(
                group_id=request.group_id,
                offsets=offsets,
                member_id=request.member_id,
                generation=request.generation_id_or_member_epoch,
                instance_id=request.group_instance_id,
                retention_time_ms=request.retention_time_ms,
                knows_epochs=version >= _FIRST_WITH_EPOCHS,
            )
        )
    except BrokerError as error:
        return {wanted.partition: error.code for wanted in offsets}
    return dict(reply.errors)


def commit_error(request: Message, code: ErrorCode, message: str) -> Response:
    names = [topic.name for topic in request.topics]
    by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics)
    return per_partition(request.topics, lambda _topic, _index: code, names, by_id=by_id)


# ---- TxnOffsetCommit ---------------------------------------------------------------------------------


async def handle_transactional_commit(
    broker: BrokerContext, ctx: RequestContext, request: Message
) -> Response:
    """Offsets that take effect when the producer's transaction commits. In order, as above; the end of the
    transaction, too, waits until its coordinator has been asked for them."""
    state = ctx.connection.state
    is_long = is_more_than(PIECE, request.topics)
    takes = 1.0 if is_long else _slices(request)
    takes_turn = takes > 1 / FIRST_SHARE and not is_long
    waits = takes_turn or state.are_commits_ahead
    async with state.behind_commits():
        if takes_turn:
            await broker.node.long_work.first(takes)
        if waits and ctx.connection.gone:
            return {"topics": []}  # nobody reads it, and its transaction may have ended meanwhile
        return await _transactional_commit(broker, ctx, request, is_long=is_long)


async def _transactional_commit(
    broker: BrokerContext, ctx: RequestContext, request: Message, *, is_long: bool
) -> Response:
    image = broker.node.image
    names = await all_names(broker, request.topics, by_id=False)
    offsets: Sequence[OffsetToCommit]
    if is_long:
        offsets = await all_offsets(broker, request, names, by_id=False)
        if ctx.connection.gone:
            return {"topics": []}  # nobody reads it, and its transaction may have ended meanwhile
    else:
        offsets = tuple(offsets_to_commit(image, request.topics, names, by_id=False))
    errors: Mapping[TopicPartition, ErrorCode] = {}
    if offsets:
        try:
            errors = await _commit_in_transaction(broker, ctx, request, offsets, image)
        except BrokerError as error:
            errors = dict.fromkeys((each.partition for each in offsets), in_words_of(ctx.version, error.code))
    if is_long:
        return await per_partition_in_pieces(broker, request.topics, errors, names)
    return per_partition(request.topics, lambda name, index: error_of(errors, name, index), names)


async def _commit_in_transaction(
    broker: BrokerContext,
    ctx: RequestContext,
    request: Message,
    offsets: Sequence[OffsetToCommit],
    image: MetadataImage,
) -> Mapping[TopicPartition, ErrorCode]:
    """Commit all offsets in the same transaction: where it has ended in between, the rest is refused. Those
    of topics that are gone since `image` are left out. Raises `BrokerError`."""
    service, verifier = broker.group_coordinator, broker.transaction_verifier
    if not request.group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
    service.check_serving(request.group_id)
    place = TopicPartition(OFFSETS_TOPIC, service.partition_for(request.group_id))
    producer = ProducerIdAndEpoch(request.producer_id, request.producer_epoch)
    guard = verifier.guards.begin(place, producer.producer_id)
    try:
        partition = broker.replica_manager.get(*place)
        leader_epoch = partition.leader_epoch
        asks = verifier.verifies or ctx.version >= FIRST_TO_ADD
        if asks and not partition.log.producers.has_open_transaction(*producer):
            add = ctx.version >= FIRST_TO_ADD
            outcomes = await verifier.ask(request.transactional_id, producer, {place: guard}, add=add)
            if outcomes[place] is not ErrorCode.NONE:
                raise BrokerError(as_group_coordinator(outcomes[place], ctx.version))
            # A marker was written in between, perhaps under another leader: what was verified is over.
            if not guard.holds or partition.leader_epoch != leader_epoch:
                raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
        errors: dict[TopicPartition, ErrorCode] = {}
        turns = broker.node.long_work.request()
        for start in range(0, len(offsets), PIECE):
            if start:
                await turns.pause()
                if ctx.connection.gone:
                    break
                if not guard.holds or partition.leader_epoch != leader_epoch:
                    raise BrokerError(ErrorCode.COORDINATOR_LOAD_IN_PROGRESS)
            if piece := still_there(image, broker.node.image, offsets[start : start + PIECE]):
                errors |= await _commit_piece(service, request, producer, piece)
        return errors
    finally:
        verifier.guards.end(place, producer.producer_id, guard)


async def _commit_piece(
    service: GroupCoordinator,
    request: Message,
    producer: ProducerIdAndEpoch,
    offsets: tuple[OffsetToCommit, ...],
) -> Mapping[TopicPartition, ErrorCode]:
    reply = await service.commit_offsets(
        CommitOffsets(
            group_id=request.group_id,
            offsets=offsets,
            member_id=request.member_id,
            generation=request.generation_id,
            instance_id=request.group_instance_id,
            producer=producer,
        )
    )
    return reply.errors


def transactional_commit_error(request: Message, code: ErrorCode, message: str) -> Response:
    names = [topic.name for topic in request.topics]
    return per_partition(request.topics, lambda _topic, _index: code, names)


# ---- OffsetFetch -------------------------------------------------------------------------------------


async def handle_fetch(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    await ctx.connection.state.earlier_commits()
    if ctx.version >= _FIRST_WITH_GROUPS:
        groups = each_once(
            broker.node.long_work,
            request.groups,
            GROUPS_PER_SLICE,
            lambda group: group.group_id,
            lambda group: of_name(group.group_id),
        )
        return {"groups": [await _fetch_group(broker, ctx, request, group) async for group in groups]}
    wanted = FetchOffsets(request.group_id, None, request.require_stable)
    return {"error_code": 0, "topics": await _fetch(broker, wanted, request.topics, by_id=False)}


def fetch_error(request: Message, code: ErrorCode, message: str) -> Response:
    """Version 1 has room for the error only at the partitions."""
    failed = [
        {"name": topic.name, "partitions": [_no_offset(index, code) for index in topic.partition_indexes]}
        for topic in request.topics or ()
    ]
    groups = [
        {"group_id": group.group_id, "topics": [], "error_code": int(code)} for group in request.groups or ()
    ]
    return {"error_code": int(code), "topics": failed, "groups": groups}


async def _fetch_group(
    broker: BrokerContext, ctx: RequestContext, request: Message, group: Message
) -> dict[str, Any]:
    by_id = ctx.version >= _FIRST_WITH_TOPIC_IDS
    try:
        wanted = FetchOffsets(
            group.group_id, None, request.require_stable, group.member_id, group.member_epoch
        )
        topics = await _fetch(broker, wanted, group.topics, by_id=by_id)
    except BrokerError as error:
        return {"group_id": group.group_id, "topics": [], "error_code": int(error.code)}
    return {"group_id": group.group_id, "topics": topics, "error_code": 0}


async def _fetch(
    broker: BrokerContext, wanted: FetchOffsets, topics: list[Message] | None, *, by_id: bool
) -> list[dict[str, Any]]:
    """The topics of the response, in the order of the request. `topics` None: all of them."""
    service = broker.group_coordinator
    if topics is None:
        reply = await service.fetch_offsets(wanted)
        return await _all_topics(broker, reply, by_id=by_id)
    answered: list[dict[str, Any]] = []
    wanted_rows: dict[TopicPartition, list[dict[str, Any]]] = {}  # of those that are looked up next
    seen: dict[str | None, set[int]] = {}  # numbers: freeing as many partitions at once stalls the loop
    has_looked, name = False, None
    rows: list[dict[str, Any]] = []
    async for topic, index in in_slices(
        broker.node.long_work, each_within(topics, "partition_indexes"), OFFSETS_PER_SLICE
    ):
        if index is None:
            rows = []
            answered.append({**same_name(topic, by_id=by_id), "partitions": rows})
            name = topic_name(broker.node.image, topic, by_id)
        elif name is None:
            rows.append(_no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID))
        elif index not in (numbers := seen.setdefault(name, set())):
            numbers.add(index)
            wanted_rows[TopicPartition(name, index)] = rows
        if len(wanted_rows) == OFFSETS_PER_SLICE:
            await _look_up(service, wanted, wanted_rows)
            wanted_rows, has_looked = {}, True
    if wanted_rows or not has_looked:
        await _look_up(service, wanted, wanted_rows)
    return answered


async def _look_up(
    service: GroupCoordinator, wanted: FetchOffsets, rows: Mapping[TopicPartition, list[dict[str, Any]]]
) -> None:
    reply = await service.fetch_offsets(replace(wanted, partitions=tuple(rows)))
    for place, its_rows in rows.items():
        its_rows.append(_offset(reply, place))


def _in_order(
    places: Mapping[str, Iterable[TopicPartition]],
) -> Iterator[tuple[str, TopicPartition | None]]:
    """Each topic, and behind it its partitions."""
    for name in sorted(places):
        yield name, None
        for each in sorted(places[name]):
            yield name, each


async def _all_topics(broker: BrokerContext, reply: OffsetsReply, *, by_id: bool) -> list[dict[str, Any]]:
    image, work = broker.node.image, broker.node.long_work
    places: dict[str, list[TopicPartition]] = {}
    async for place in in_slices(work, reply.offsets, OFFSETS_PER_SLICE):
        places.setdefault(place.topic, []).append(place)
    topics: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    async for name, each in in_slices(work, _in_order(places), OFFSETS_PER_SLICE):
        if each is not None:
            rows.append(_offset(reply, each))
            continue
        rows, topic = [], image.topic(name)
        if by_id and topic is None:
            continue  # gone, and there is no other way to name it
        named = {"topic_id": topic.id} if by_id and topic is not None else {"name": name}
        topics.append({**named, "partitions": rows})
    return topics


def _offset(reply: OffsetsReply, place: TopicPartition) -> dict[str, Any]:
    if place in reply.unstable:
        return _no_offset(place.partition, ErrorCode.UNSTABLE_OFFSET_COMMIT)
    kept = reply.offsets[place]
    if kept is None:
        return _no_offset(place.partition, ErrorCode.NONE)
    return {
        "partition_index": place.partition,
        "committed_offset": kept.offset,
        "committed_leader_epoch": kept.leader_epoch,
        "metadata": kept.metadata,
        "error_code": 0,
    }


def _no_offset(index: int, code: ErrorCode) -> dict[str, Any]:
    return {
        "partition_index": index,
        "committed_offset": NO_OFFSET,
        "committed_leader_epoch": NO_EPOCH,
        "metadata": "",
        "error_code": int(code),
    }


# ---- OffsetDelete ------------------------------------------------------------------------------------


async def handle_delete(broker: BrokerContext, ctx: RequestContext, request: Message) -> Response:
    """In order with the commits of its connection: what comes behind it is not deleted."""
    async with ctx.connection.state.behind_commits():
        return await _delete(broker, request)


async def _delete(broker: BrokerContext, request: Message) -> Response:
    """In pieces, since a client that was interrupted repeats its request. A group may end with its last
    offset; and a topic meanwhile, whose name another one has."""
    image = broker.node.image
    names = await all_names(broker, request.topics, by_id=False)
    known: dict[TopicPartition, None] = {}
    named = named_partitions(request.topics, names)
    async for _, name, each in in_slices(broker.node.long_work, named, PIECE):
        if each is not None and name is not None and is_there(broker.node.image, name, each.partition_index):
            known[TopicPartition(name, each.partition_index)] = None
    errors: dict[TopicPartition, ErrorCode] = {}
    left = iter(known)
    turns = broker.node.long_work.request()
    piece = tuple(islice(left, PIECE))
    while True:
        try:
            its = [place for place in piece if is_still_there(image, broker.node.image, place)]
            errors |= (await broker.group_coordinator.delete_offsets(request.group_id, its)).errors
        except BrokerError as error:
            if not errors or error.code is not ErrorCode.GROUP_ID_NOT_FOUND:
                raise
            errors |= dict.fromkeys(piece, ErrorCode.NONE)  # the group ended with an earlier piece
        if not (piece := tuple(islice(left, PIECE))):
            break
        await turns.pause()
    return {"error_code": 0, **await per_partition_in_pieces(broker, request.topics, errors, names)}


def delete_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "topics": []}


def _refused_deletions(request: Message, code: ErrorCode, message: str) -> Response:
    """The answer for topics whose offsets the principal may not delete, of a group that it may change."""
    topics = [
        {
            "name": topic.name,
            "partitions": [
                {"partition_index": each.partition_index, "error_code": int(code)}
                for each in topic.partitions
            ],
        }
        for topic in request.topics
    ]
    return {"topics": topics}


ROWS: Final = (
    ApiRow(
        ApiKey.OFFSET_COMMIT,
        (2, 9),
        (READ_GROUP, authorize_topics_or_ids(AclOperation.READ, commit_error)),
        broker=handle_commit,
        on_error=commit_error,
        concurrent=True,
    ),
    ApiRow(
        ApiKey.OFFSET_FETCH, (1, 9), (offset_fetch(fetch_error),), broker=handle_fetch, on_error=fetch_error
    ),
    ApiRow(
        ApiKey.TXN_OFFSET_COMMIT,
        (0, 5),
        (WRITE_TRANSACTIONAL_ID, READ_GROUP, authorize_topics(AclOperation.READ, transactional_commit_error)),
        broker=handle_transactional_commit,
        on_error=transactional_commit_error,
        concurrent=True,
    ),
    ApiRow(
        ApiKey.OFFSET_DELETE,
        (0, 0),
        (
            AuthorizeRequest((AclOperation.DELETE,), AclResourceType.GROUP, "group_id"),
            authorize_topics(AclOperation.READ, _refused_deletions),
        ),
        broker=handle_delete,
        on_error=delete_error,
    ),
)
