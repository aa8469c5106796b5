"""The offsets that `kraft group reset-offsets` would move a group to: rules as data, and their results. Pure.

options of the command -> a Rule -> new_offset(rule, …) for each partition
"""

from __future__ import annotations

import csv
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Final

from kraft.cli.errors import CliError, UsageError
from metadata_quorum.foundation.model import TopicPartition

_DURATION: Final = re.compile(
    r"P(?=.)(?:(?P<days>\d+)D)?"
    r"(?:T(?=.)(?:(?P<hours>\d+)H)?(?:(?P<minutes>\d+)M)?(?:(?P<seconds>\d+(?:\.\d+)?)S)?)?"
)
_EVER_MS: Final = 2**63 - 1
_SECONDS: Final = {"days": 86_400, "hours": 3_600, "minutes": 60, "seconds": 1}


@dataclass(frozen=True, slots=True)
class ToEarliest:
    """The oldest record that is left."""


@dataclass(frozen=True, slots=True)
class ToLatest:
    """The end of the log."""


@dataclass(frozen=True, slots=True)
class ToCurrent:
    """What is committed; the end of the log where nothing is."""


@dataclass(frozen=True, slots=True)
class ToOffset:
    offset: int


@dataclass(frozen=True, slots=True)
class ShiftBy:
    count: int


@dataclass(frozen=True, slots=True)
class ToTime:
    """The first record that is not older; the end of the log where all are."""

    timestamp_ms: int


@dataclass(frozen=True, slots=True)
class FromFile:
    offsets: Mapping[TopicPartition, int]


Rule = ToEarliest | ToLatest | ToCurrent | ToOffset | ShiftBy | ToTime | FromFile


@dataclass(frozen=True, slots=True)
class PartitionOffsets:
    """What a rule has to know of one partition."""

    partition: TopicPartition
    earliest: int
    latest: int
    committed: int | None
    at_time: int | None = None
    """The offset for the rule's time, if any."""

    def clip(self, offset: int) -> int:
        return min(max(offset, self.earliest), self.latest)


def new_offset(rule: Rule, place: PartitionOffsets) -> int:
    """Always within the log. Raises CliError where the rule has nothing to start from."""
    name = f"{place.partition.topic}-{place.partition.partition}"
    match rule:
        case ToEarliest():
            return place.earliest
        case ToLatest():
            return place.latest
        case ToCurrent():
            return place.latest if place.committed is None else place.clip(place.committed)
        case ToOffset(offset):
            return place.clip(offset)
        case ShiftBy(count):
            if place.committed is None:
                raise CliError(f"{name}: nothing is committed that could be shifted")
            return place.clip(place.committed + count)
        case ToTime():
            return place.latest if place.at_time is None else place.at_time
        case FromFile(offsets):
            return place.clip(offsets[place.partition])


def parse_time(text: str) -> int:
    """`2026-11-21T09:00:00.000`, in UTC where it names no zone: ms since 1970, and not before: to ListOffsets
    -1 is the end of the log. Raises CliError."""
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise UsageError(
            f"{text}: a time is written as 2026-11-21T09:00:00.000, with or without a zone"
        ) from None
    return max(int((time if time.tzinfo else time.replace(tzinfo=UTC)).timestamp() * 1000), 0)


def parse_duration(text: str) -> int:
    """`P1DT2H3M4S`: ms. Raises CliError."""
    match = _DURATION.fullmatch(text)
    if match is None:
        raise UsageError(f"{text}: a duration is written as P1DT2H3M4S, any of its parts may be missing")
    parts = match.groupdict(default="0")
    ms = 1000 * sum(float(parts[name]) * seconds for name, seconds in _SECONDS.items())
    return int(min(ms, _EVER_MS))


def time_ago(text: str, now_ms: int) -> int:
    """As `parse_time`, of a time so long before now. Raises CliError."""
    return max(now_ms - parse_duration(text), 0)


def parse_selection(texts: Iterable[str]) -> dict[str, list[int]]:
    """`orders` or `orders:0,2`; no numbers: all partitions. Raises CliError."""
    selection: dict[str, list[int]] = {}
    for text in texts:
        topic, colon, numbers = text.partition(":")
        try:
            selection[topic] = [int(number) for number in numbers.split(",")] if colon else []
        except ValueError:
            raise UsageError(f"{text}: partitions are named as {topic}:0,2") from None
    return selection


def read_csv(lines: Iterable[str], group_id: str, name: str) -> dict[TopicPartition, int]:
    """`topic,partition,offset`, or with the group before them; lines of other groups are left out.
    Raises CliError."""
    offsets: dict[TopicPartition, int] = {}
    for number, line in enumerate(lines, start=1):
        try:
            for row in filter(None, csv.reader([line])):
                *groups, topic, partition, offset = (cell.strip() for cell in row)
                place, new = TopicPartition(topic, int(partition)), int(offset)
                if len(groups) > 1 or place.partition < 0 or new < 0:
                    raise ValueError
                if groups in ([], [group_id]):
                    offsets[place] = new
        except (ValueError, csv.Error):
            raise UsageError(f"{name}, line {number}: a line is topic,partition,offset") from None
    return offsets
