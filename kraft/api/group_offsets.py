"""A group's committed offsets: OffsetCommit, OffsetFetch, OffsetDelete.

The store is the group's coordinator (data_plane/coordinator/groups); here requests of any version
are turned into what it is asked. From version 10 on topics are named by id.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any, Final

from data_plane.coordinator.groups.messages import (
    NO_OFFSET,
    CommitOffsets,
    CommittedOffset,
    FetchOffsets,
    OffsetToCommit,
)
from kraft.api.groups import coordinator
from kraft.api.row import BROKER, ApiRow, Response
from kraft.context import NodeContext, RequestContext
from kraft.wire.bridge import Message
from metadata_quorum.errors import BrokerError, ErrorCode
from metadata_quorum.image import MetadataImage
from metadata_quorum.model import NO_EPOCH, ZERO_UUID, TopicPartition

_FIRST_WITH_TOPIC_IDS: Final = 10
_FIRST_WITH_GROUPS: Final = 8
"""OffsetFetch: many groups at once."""


# ---- OffsetCommit ------------------------------------------------------------------------------------


async def handle_commit(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    by_id = ctx.version >= _FIRST_WITH_TOPIC_IDS
    offsets: list[OffsetToCommit] = []
    errors: dict[TopicPartition, ErrorCode] = {}
    names = [_topic_name(node.image, topic, by_id) for topic in request.topics]
    for topic, name in zip(request.topics, names, strict=True):
        if name is None or node.image.topic(name) is None:
            continue
        for each in topic.partitions:
            offsets.append(
                OffsetToCommit(
                    TopicPartition(name, each.partition_index),
                    each.committed_offset,
                    each.committed_leader_epoch,
                    each.committed_metadata,
                    topic.topic_id if by_id else ZERO_UUID,
                )
            )
    if offsets:
        errors = await _commit(node, request, tuple(offsets))
    unknown = ErrorCode.UNKNOWN_TOPIC_ID if by_id else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    return _per_partition(
        request.topics,
        lambda topic, index: errors.get(TopicPartition(topic or "", index), unknown),
        names,
        by_id=by_id,
    )


async def _commit(
    node: NodeContext, request: Message, offsets: tuple[OffsetToCommit, ...]
) -> dict[TopicPartition, ErrorCode]:
    try:
        reply = await coordinator(node).commit_offsets(
            CommitOffsets(
                group_id=request.group_id,
                offsets=offsets,
                member_id=request.member_id,
                generation=request.generation_id_or_member_epoch,
                instance_id=request.group_instance_id,
                retention_time_ms=request.retention_time_ms,
            )
        )
    except BrokerError as error:
        return {wanted.partition: error.code for wanted in offsets}
    return dict(reply.errors)


def commit_error(request: Message, code: ErrorCode, message: str) -> Response:
    names = [topic.name for topic in request.topics]
    by_id = any(topic.topic_id != ZERO_UUID for topic in request.topics)
    return _per_partition(request.topics, lambda _topic, _index: code, names, by_id=by_id)


def _per_partition(
    topics: Iterable[Message],
    code: Callable[[str | None, int], ErrorCode],
    names: Iterable[str | None],
    *,
    by_id: bool = False,
) -> Response:
    return {
        "topics": [
            {
                **_same_name(topic, by_id=by_id),
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "error_code": int(code(name, each.partition_index)),
                    }
                    for each in topic.partitions
                ],
            }
            for topic, name in zip(topics, names, strict=True)
        ]
    }


# ---- OffsetFetch -------------------------------------------------------------------------------------


async def handle_fetch(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    if ctx.version >= _FIRST_WITH_GROUPS:
        return {"groups": [await _fetch_group(node, ctx, group) for group in request.groups]}
    try:
        return {"error_code": 0, "topics": await _fetch(node, request.group_id, request.topics, by_id=False)}
    except BrokerError as error:
        return fetch_error(request, error.code, error.message)


def fetch_error(request: Message, code: ErrorCode, message: str) -> Response:
    """Version 1 has room for it at the partitions only."""
    failed = [
        {"name": topic.name, "partitions": [_no_offset(index, code) for index in topic.partition_indexes]}
        for topic in request.topics or ()
    ]
    groups = [
        {"group_id": group.group_id, "topics": [], "error_code": int(code)} for group in request.groups or ()
    ]
    return {"error_code": int(code), "topics": failed, "groups": groups}


async def _fetch_group(node: NodeContext, ctx: RequestContext, group: Message) -> dict[str, Any]:
    by_id = ctx.version >= _FIRST_WITH_TOPIC_IDS
    try:
        topics = await _fetch(node, group.group_id, group.topics, by_id=by_id)
    except BrokerError as error:
        return {"group_id": group.group_id, "topics": [], "error_code": int(error.code)}
    return {"group_id": group.group_id, "topics": topics, "error_code": 0}


async def _fetch(
    node: NodeContext, group_id: str, topics: list[Message] | None, *, by_id: bool
) -> list[dict[str, Any]]:
    """The topics of the response, in the order asked for; no list of them asks for all."""
    service = coordinator(node)
    if topics is None:
        reply = await service.fetch_offsets(FetchOffsets(group_id, None))
        return _all_topics(node.image, reply.offsets, by_id=by_id)
    names = [_topic_name(node.image, topic, by_id) for topic in topics]
    wanted = tuple(
        TopicPartition(name, index)
        for topic, name in zip(topics, names, strict=True)
        if name is not None
        for index in topic.partition_indexes
    )
    reply = await service.fetch_offsets(FetchOffsets(group_id, wanted))
    return [
        {
            **_same_name(topic, by_id=by_id),
            "partitions": [
                _no_offset(index, ErrorCode.UNKNOWN_TOPIC_ID)
                if name is None
                else _offset(index, reply.offsets[TopicPartition(name, index)])
                for index in topic.partition_indexes
            ],
        }
        for topic, name in zip(topics, names, strict=True)
    ]


def _all_topics(
    image: MetadataImage, offsets: Mapping[TopicPartition, CommittedOffset | None], *, by_id: bool
) -> list[dict[str, Any]]:
    partitions: dict[str, list[dict[str, Any]]] = {}
    for (name, index), kept in sorted(offsets.items()):
        partitions.setdefault(name, []).append(_offset(index, kept))
    topics = []
    for name, rows in partitions.items():
        topic = image.topic(name)
        if by_id and topic is None:
            continue  # gone, and there is no other way to name it
        named = {"topic_id": topic.id} if by_id and topic is not None else {"name": name}
        topics.append({**named, "partitions": rows})
    return topics


def _offset(index: int, kept: CommittedOffset | None) -> dict[str, Any]:
    if kept is None:
        return _no_offset(index, ErrorCode.NONE)
    return {
        "partition_index": index,
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


def _same_name(topic: Message, *, by_id: bool) -> dict[str, Any]:
    """A topic of the response, named as the request named it."""
    return {"topic_id": topic.topic_id} if by_id else {"name": topic.name}


def _topic_name(image: MetadataImage, topic: Message, by_id: bool) -> str | None:
    """None for an id that no topic has."""
    if not by_id:
        return str(topic.name)
    known = image.topic(topic.topic_id)
    return None if known is None else known.name


# ---- OffsetDelete ------------------------------------------------------------------------------------


async def handle_delete(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    names = [topic.name for topic in request.topics]
    known = [
        TopicPartition(topic.name, each.partition_index)
        for topic in request.topics
        if node.image.topic(topic.name) is not None
        for each in topic.partitions
    ]
    reply = await coordinator(node).delete_offsets(request.group_id, known)
    unknown = ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    outcomes = _per_partition(
        request.topics,
        lambda name, index: reply.errors.get(TopicPartition(name or "", index), unknown),
        names,
    )
    return {"error_code": 0, **outcomes}


def delete_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {"error_code": int(code), "topics": []}


ROWS: Final = (
    ApiRow(8, "OffsetCommit", 2, 9, BROKER, handle_commit, on_error=commit_error),
    ApiRow(9, "OffsetFetch", 1, 9, BROKER, handle_fetch, on_error=fetch_error),
    ApiRow(47, "OffsetDelete", 0, 0, BROKER, handle_delete, on_error=delete_error),
)
