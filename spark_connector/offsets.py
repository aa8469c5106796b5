"""Offsets of partitions as Spark keeps them, and what starting and ending offsets mean in a cluster.

    {"flights": {"0": 23, "1": -1}}     in options: -1 is the latest offset, -2 the earliest one
    {"flights": {"0": 23, "1": 940}}    in checkpoints: the next offset to read, of every partition
    {"flights@H4s...Qw": {}}            in checkpoints: the topic's id, to recognize a re-created topic

The JSON is that of Spark's own Kafka source, so that a query can be moved with its checkpoint. To that source
an id is a topic without partitions, which it ignores; no topic's name has an @ in it.
`Bound` is an option's value; `resolve` queries the cluster for the offsets that it means now.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.uuids import parse_uuid, uuid_text
from spark_connector.errors import DataLossError, SourceError

LATEST: Final = -1
EARLIEST: Final = -2
"""Stand for an offset in options only, as in Spark's own source; ListOffsets has the same two numbers."""
_ID: Final = "@"
"""Between a topic's name and its id in checkpoints."""
NO_OFFSET: Final = -1
"""The cluster's answer where all records are older than the timestamp."""


Offsets: TypeAlias = dict[TopicPartition, int]
TopicIds: TypeAlias = Mapping[str, UUID]
"""By name, so far as they are known: checkpoints of Spark's own source and old brokers have none."""
SparkOffset: TypeAlias = dict[str, dict[str, int]]
"""The contents of checkpoints, by Spark's own JSON."""


class StreamOffset(NamedTuple):
    """How far a query is, and in which topics."""

    offsets: Offsets
    topic_ids: TopicIds

    def recreated_since(self, before: StreamOffset) -> frozenset[str]:
        """Topics that are others now, though they have their names."""
        ids = before.topic_ids
        return frozenset(name for name, each in self.topic_ids.items() if ids.get(name, each) != each)

    def without(self, topics: Collection[str]) -> StreamOffset:
        if not topics:
            return self
        return StreamOffset(
            {each: offset for each, offset in self.offsets.items() if each.topic not in topics},
            {name: each for name, each in self.topic_ids.items() if name not in topics},
        )


# ---- JSON ------------------------------------------------------------------------------------------


def to_spark(offsets: Mapping[TopicPartition, int], topic_ids: TopicIds | None = None) -> SparkOffset:
    """Ordered by topic and partition: Spark compares offsets by their text."""
    document: SparkOffset = {}
    for (topic, partition), offset in sorted(offsets.items()):
        document.setdefault(topic, {})[str(partition)] = offset
    return document | {
        f"{topic}{_ID}{uuid_text(each)}": {} for topic, each in sorted((topic_ids or {}).items())
    }


def from_spark(document: SparkOffset) -> Offsets:
    """From a checkpoint."""
    return {
        TopicPartition(topic, int(partition)): offset
        for topic, offsets in document.items()
        for partition, offset in offsets.items()
    }


def stream_offset_from_spark(document: SparkOffset) -> StreamOffset:
    """From a checkpoint, of this source or of Spark's own."""
    named = (key.split(_ID) for key in document if _ID in key)
    return StreamOffset(from_spark(document), {topic: parse_uuid(text) for topic, text in named})


def parse_offsets(text: str) -> Offsets:
    """Numbers by partition, as options have them (offsets, or times). Raises `ValueError`."""
    document = _object(json.loads(text))
    return {
        TopicPartition(topic, _partition(partition)): _whole_number(number)
        for topic, numbers in document.items()
        for partition, number in _object(numbers).items()
    }


def parse_partitions(text: str) -> frozenset[TopicPartition]:
    """{"topic": [0, 1]}. Raises `ValueError`."""
    document = _object(json.loads(text))
    return frozenset(
        TopicPartition(topic, _partition(partition))
        for topic, partitions in document.items()
        for partition in _array(partitions)
    )


def _object(value: Any) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise ValueError(f"{value!r} is no JSON object")
    return value


def _array(value: Any) -> list[Any]:
    if not isinstance(value, list):
        raise ValueError(f"{value!r} is no JSON array")
    return value


def _whole_number(value: Any) -> int:
    if not isinstance(value, int) or isinstance(value, bool):
        raise ValueError(f"{value!r} is no whole number")
    return value


def _partition(value: Any) -> int:
    partition = int(value) if isinstance(value, str) and value.isdecimal() else _whole_number(value)
    if partition < 0:
        raise ValueError(f"{partition} is no partition")
    return partition


# ---- where to start and to end -----------------------------------------------------------------------


class Edge(Enum):
    """An end of the log, whatever offset that is."""

    EARLIEST = EARLIEST
    LATEST = LATEST


@dataclass(frozen=True, slots=True)
class AtOffsets:
    """An offset for every partition, or `LATEST` or `EARLIEST`."""

    offsets: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTimes:
    """The first record of each partition that is as young as its time (ms since 1970)."""

    times_ms: Mapping[TopicPartition, int]


@dataclass(frozen=True, slots=True)
class AtTime:
    """The same time for every partition."""

    time_ms: int


Bound: TypeAlias = Edge | AtOffsets | AtTimes | AtTime


class OffsetLookup(Protocol):
    """What the cluster knows about its logs."""

    def earliest(self, partitions: Iterable[TopicPartition]) -> Offsets: ...

    def latest(self, partitions: Iterable[TopicPartition]) -> Offsets:
        """High watermarks, or last stable offsets for `read_committed`."""
        ...

    def at_times(self, times_ms: Mapping[TopicPartition, int]) -> Offsets:
        """First offsets as young as those times; `NO_OFFSET` where there is none."""
        ...


def resolve_start(
    bound: Bound, partitions: Iterable[TopicPartition], lookup: OffsetLookup, *, latest_if_unmatched: bool
) -> Offsets:
    """`latest_if_unmatched`: where no record is young enough, start at the end instead of failing."""
    return _resolve(bound, partitions, lookup, "starting", latest_if_unmatched=latest_if_unmatched)


def resolve_end(bound: Bound, partitions: Iterable[TopicPartition], lookup: OffsetLookup) -> Offsets:
    """Where no record is young enough for a time, that is the end of the log."""
    return _resolve(bound, partitions, lookup, "ending", latest_if_unmatched=True)


def depends_on_now(bound: Bound, *, latest_if_unmatched: bool) -> bool:
    """Whether the bound, resolved again later, may lie further on though no record was deleted."""
    match bound:
        case AtOffsets(offsets):
            return LATEST in offsets.values()
        case AtTimes() | AtTime():
            return latest_if_unmatched
    return bound is Edge.LATEST


def _resolve(
    bound: Bound,
    partitions: Iterable[TopicPartition],
    lookup: OffsetLookup,
    which: str,
    *,
    latest_if_unmatched: bool,
) -> Offsets:
    assigned = frozenset(partitions)
    match bound:
        case Edge.EARLIEST:
            return lookup.earliest(assigned)
        case Edge.LATEST:
            return lookup.latest(assigned)
        case AtOffsets(offsets):
            _require_all(offsets.keys(), assigned, "KAFKA_START_OFFSET_DOES_NOT_MATCH_ASSIGNED", which)
            return _with_edges(offsets, lookup)
        case AtTimes(times_ms):
            _require_all(times_ms.keys(), assigned, "KAFKA_TIMESTAMP_OFFSET_DOES_NOT_MATCH_ASSIGNED", which)
        case AtTime(time_ms):
            times_ms = dict.fromkeys(assigned, time_ms)
    by_time = lookup.at_times(times_ms)
    unmatched = sorted(partition for partition, offset in by_time.items() if offset == NO_OFFSET)
    if unmatched and not latest_if_unmatched:
        raise SourceError(
            "NO_OFFSET_FOR_TIMESTAMP",
            f"no record of {_names(unmatched)} is as young as {times_ms[unmatched[0]]}. Set the option"
            " 'startingOffsetsByTimestampStrategy' to 'latest' to start such partitions at their end.",
        )
    if not unmatched:
        return by_time
    return {each: at for each, at in by_time.items() if at != NO_OFFSET} | lookup.latest(unmatched)


def _with_edges(offsets: Mapping[TopicPartition, int], lookup: OffsetLookup) -> Offsets:
    """Without partitions that have been deleted meanwhile."""
    resolved = {each: offset for each, offset in offsets.items() if offset not in (LATEST, EARLIEST)}
    if latest := [partition for partition, offset in offsets.items() if offset == LATEST]:
        resolved |= lookup.latest(latest)
    if earliest := [partition for partition, offset in offsets.items() if offset == EARLIEST]:
        resolved |= lookup.earliest(earliest)
    return resolved


def _require_all(
    named: Iterable[TopicPartition], assigned: frozenset[TopicPartition], condition: str, which: str
) -> None:
    if frozenset(named) != assigned:
        raise SourceError(
            condition,
            f"the {which} offsets must name every partition of the topics read, and no other:"
            f" they name {_names(named)}; the query reads {_names(assigned)}",
        )


def _names(partitions: Iterable[TopicPartition]) -> str:
    return ", ".join(map(str, sorted(partitions))) or "none"


# ---- from one offset to the next -----------------------------------------------------------------------


class OffsetRange(NamedTuple):
    """Records `start` to `end` of a partition, `end` not among them."""

    partition: TopicPartition
    start: int
    end: int

    @property
    def size(self) -> int:
        return self.end - self.start


class DataLossReport(Protocol):
    """Raises, or logs and returns, as `failOnDataLoss` has it."""

    def __call__(self, error: DataLossError) -> None: ...


def ranges_between(
    start: Offsets, end: Offsets, lookup: OffsetLookup, report: DataLossReport
) -> list[OffsetRange]:
    """What a micro-batch reads. A partition that is not in `start` is new and is read from its earliest
    record; one that is not in `end` has been deleted."""
    new = sorted(end.keys() - start.keys())
    first = lookup.earliest(new) if new else {}
    if missing := [partition for partition in new if partition not in first]:
        report(
            DataLossError("INITIAL_OFFSET_NOT_FOUND_FOR_PARTITIONS", f"{_names(missing)} cannot be found.")
        )
    for partition, offset in first.items():
        if offset != 0:
            report(
                DataLossError(
                    "ADDED_PARTITION_DOES_NOT_START_FROM_OFFSET_ZERO",
                    f"partition {partition} is new and begins at {offset}, not at 0.",
                )
            )
    if deleted := start.keys() - end.keys():
        report(DataLossError("PARTITIONS_DELETED", f"{_names(deleted)} no longer exist."))
    ranges = []
    begin = start | first
    for partition in sorted(end.keys() & begin.keys()):
        each = OffsetRange(partition, begin[partition], end[partition])
        if each.size < 0:
            report(
                DataLossError(
                    "PARTITION_OFFSET_CHANGED",
                    f"partition {partition} went back from offset {each.start} to {each.end}: it was"
                    " re-created, lost records, or the start offset lies beyond its end.",
                )
            )
        ranges.append(each)
    return ranges
