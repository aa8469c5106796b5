"""The partitions that a request about a group's offsets names, and the row of the response for each of them.

    request -> group_offsets.py -> here: those that exist -> GroupCoordinator -> here: a row for each

Very many partitions are processed in pieces.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from data_plane.coordinator.groups.messages import OffsetToCommit
from kraft.api.context import BrokerContext
from kraft.api.slices import in_slices
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition
from metadata_quorum.metadata.image import MetadataImage

OFFSETS_PER_SLICE: Final = 1_000
"""Partitions that are looked up or answered at once."""


def is_more_than(limit: int, topics: Sequence[Message]) -> bool:
    """Whether there are more topics and partitions than `limit`."""
    return len(topics) > limit or sum(1 + len(topic.partitions) for topic in topics) > limit


async def all_names(broker: BrokerContext, topics: Sequence[Message], *, by_id: bool) -> list[str | None]:
    """The name of each topic; None for an id that no topic has. Very many are looked up in pieces."""
    image = broker.node.image
    if len(topics) <= OFFSETS_PER_SLICE:
        return [topic_name(image, topic, by_id) for topic in topics]
    return [
        topic_name(image, topic, by_id)
        async for topic in in_slices(broker.node.long_work, topics, OFFSETS_PER_SLICE)
    ]


async def all_offsets(
    broker: BrokerContext, request: Message, names: Iterable[str | None], *, by_id: bool
) -> list[OffsetToCommit]:
    """The offsets of existing partitions, only the last one of each, looked up in pieces."""
    offsets: dict[TopicPartition, OffsetToCommit] = {}
    named = named_partitions(request.topics, names)
    image = broker.node.image
    async for topic, name, each in in_slices(broker.node.long_work, named, OFFSETS_PER_SLICE):
        if each is not None and name is not None and is_there(image, name, each.partition_index):
            offset = _offset_to_commit(topic, name, each, by_id=by_id)
            offsets[offset.partition] = offset
    return list(offsets.values())


def named_partitions(
    topics: Iterable[Message], names: Iterable[str | None]
) -> Iterator[tuple[Message, str | None, Message | None]]:
    """Each topic with its name and None, followed by the topic with each of its partitions."""
    for topic, name in zip(topics, names, strict=True):
        yield topic, name, None
        for each in topic.partitions:
            yield topic, name, each


def offsets_to_commit(
    image: MetadataImage, topics: Iterable[Message], names: Iterable[str | None], *, by_id: bool
) -> Iterator[OffsetToCommit]:
    """The offsets of existing partitions."""
    for topic, name in zip(topics, names, strict=True):
        if name is None:
            continue
        for each in topic.partitions:
            if is_there(image, name, each.partition_index):
                yield _offset_to_commit(topic, name, each, by_id=by_id)


def _offset_to_commit(topic: Message, name: str, each: Message, *, by_id: bool) -> OffsetToCommit:
    return OffsetToCommit(
        TopicPartition(name, each.partition_index),
        each.committed_offset,
        each.committed_leader_epoch,
        each.committed_metadata,
        topic.topic_id if by_id else ZERO_UUID,
    )


def is_there(image: MetadataImage, name: str, number: int) -> bool:
    return image.partition(TopicPartition(name, number)) is not None


def still_there(
    then: MetadataImage, now: MetadataImage, offsets: Sequence[OffsetToCommit]
) -> tuple[OffsetToCommit, ...]:
    """The offsets of partitions that exist still, of topics that were not deleted and created again since."""
    if now is then:
        return tuple(offsets)
    return tuple(each for each in offsets if is_still_there(then, now, each.partition))


def is_still_there(then: MetadataImage, now: MetadataImage, place: TopicPartition) -> bool:
    """Whether the partition exists, and did so then, of the same topic."""
    known, topic = then.topic(place.topic), now.topic(place.topic)
    return (
        known is not None
        and topic is not None
        and topic.id == known.id
        and place.partition in topic.partitions
    )


def error_of(errors: Mapping[TopicPartition, ErrorCode], name: str | None, index: int) -> ErrorCode:
    """The outcome for a partition. The coordinator was not asked about those that do not exist."""
    if name is None:
        return ErrorCode.UNKNOWN_TOPIC_ID
    return errors.get(TopicPartition(name, index), ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)


def per_partition(
    topics: Iterable[Message],
    code: Callable[[str | None, int], ErrorCode],
    names: Iterable[str | None],
    *,
    by_id: bool = False,
) -> dict[str, Any]:
    return {
        "topics": [
            {
                **same_name(topic, by_id=by_id),
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


async def per_partition_in_pieces(
    broker: BrokerContext,
    topics: Iterable[Message],
    errors: Mapping[TopicPartition, ErrorCode],
    names: Iterable[str | None],
    *,
    by_id: bool = False,
) -> dict[str, Any]:
    answered: list[dict[str, Any]] = []
    rows: list[dict[str, Any]] = []
    named = named_partitions(topics, names)
    async for topic, name, each in in_slices(broker.node.long_work, named, OFFSETS_PER_SLICE):
        if each is None:
            rows = []
            answered.append({**same_name(topic, by_id=by_id), "partitions": rows})
        else:
            code = error_of(errors, name, each.partition_index)
            rows.append({"partition_index": each.partition_index, "error_code": int(code)})
    return {"topics": answered}


def same_name(topic: Message, *, by_id: bool) -> dict[str, Any]:
    """A topic of the response, named as the request named it."""
    return {"topic_id": topic.topic_id} if by_id else {"name": topic.name}


def topic_name(image: MetadataImage, topic: Message, by_id: bool) -> str | None:
    """None for an id that no topic has."""
    if not by_id:
        return str(topic.name)
    known = image.topic(topic.topic_id)
    return None if known is None else known.name
