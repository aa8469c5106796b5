"""RecordCounts, an API of ours: how many records a reader still gets from given offsets on.

JSON both ways. Asked are {topic: {partition: [offset ...]}}; of the partitions that the node leads it answers
{topic: {partition: [high watermark, [[records, whether exactly] ...]]}}, an item per offset.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple

from kraft.wire import long_json
from metadata_quorum.foundation.model import TopicPartition

VERSION: Final = 0

Offsets = Mapping[TopicPartition, Sequence[int]]
Left = tuple[int, bool]
"""Records from an offset to the high watermark; an upper bound if it is not exact."""


class PartitionCount(NamedTuple):
    """The counts of one partition."""

    high_watermark: int
    left: Sequence[Left]
    """The records from each requested offset on."""


Counts = Mapping[TopicPartition, PartitionCount]


def encode_offsets(asked: Offsets) -> bytes:
    """A request."""
    return _encode(asked)


def decode_offsets(body: memoryview) -> Offsets:
    """Raises `ValueError`."""
    asked = _decode(body)
    if not all(type(each) is int for offsets in asked.values() for each in offsets):
        raise ValueError("an offset is no number")
    return asked


def encode_counts(counts: Counts) -> bytes:
    """A response."""
    return _encode(counts)


def decode_counts(body: memoryview) -> Counts:
    """Raises `ValueError`."""
    try:
        return {
            tp: PartitionCount(int(end), [(int(records), bool(exact)) for records, exact in left])
            for tp, (end, left) in _decode(body).items()
        }
    except TypeError as error:
        raise ValueError(f"these are no counts: {error}") from None


def _encode(by_partition: Mapping[TopicPartition, Any]) -> bytes:
    by_topic: dict[str, dict[int, Any]] = {}
    for tp, value in by_partition.items():
        by_topic.setdefault(tp.topic, {})[tp.partition] = value
    return long_json.encode(by_topic)


def _decode(body: memoryview) -> dict[TopicPartition, list[Any]]:
    """Raises `ValueError`."""
    try:
        by_topic = long_json.decode(bytes(body))
        found = {TopicPartition(t, int(p)): value for t, its in by_topic.items() for p, value in its.items()}
    except (TypeError, AttributeError, RecursionError) as error:
        raise ValueError(f"no JSON by topic and partition: {error}") from None
    if not all(isinstance(value, list) for value in found.values()):
        raise ValueError("not a list for every partition")
    return found
