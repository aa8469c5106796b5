"""Filters that Spark lets a batch query's source take over: on topic, partition, offset and timestamp.

    push_filters(filters) -> PushedFilters, and the filters that Spark must still apply

A partition that cannot match is not read, a range is cut to the offsets of the filter, and begins at the
first record that is not older than its timestamp. Later records can be older, so Spark checks timestamps
again.
"""

from __future__ import annotations

import operator
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Any, Final

from pyspark.sql.datasource import (
    EqualNullSafe,
    EqualTo,
    Filter,
    GreaterThan,
    GreaterThanOrEqual,
    In,
    IsNotNull,
    LessThan,
    LessThanOrEqual,
)

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.offsets import NO_OFFSET, OffsetLookup, OffsetRange

_COMPARISONS: Final[Mapping[type[Filter], str]] = {
    EqualTo: "==",
    EqualNullSafe: "==",
    GreaterThan: ">",
    GreaterThanOrEqual: ">=",
    LessThan: "<",
    LessThanOrEqual: "<=",
    In: "in",
}
_HOLDS: Final[Mapping[str, Callable[[Any, Any], bool]]] = {
    "==": operator.eq,
    ">": operator.gt,
    ">=": operator.ge,
    "<": operator.lt,
    "<=": operator.le,
    "in": lambda value, among: value in among,
}
_NEVER_NULL: Final = ("topic", "partition", "offset", "timestamp", "timestampType")
_EPOCH: Final = datetime(1970, 1, 1, tzinfo=UTC)
_MILLISECOND: Final = timedelta(milliseconds=1)


@dataclass(frozen=True, slots=True)
class Comparison:
    """`column operator value`."""

    column: str
    operator: str
    value: Any

    def holds(self, value: Any) -> bool:
        return _HOLDS[self.operator](value, self.value)

    def cut(self, whole: OffsetRange) -> OffsetRange:
        """The part of the range whose offsets can match: with `in`, others may be among them."""
        first, last = whole.start, whole.end - 1
        match self.operator:
            case "==":
                first, last = max(first, self.value), min(last, self.value)
            case "in":
                first, last = max(first, min(self.value)), min(last, max(self.value))
            case ">":
                first = max(first, self.value + 1)
            case ">=":
                first = max(first, self.value)
            case "<":
                last = min(last, self.value - 1)
            case "<=":
                last = min(last, self.value)
        return OffsetRange(whole.partition, first, max(first, last + 1))

    def earliest_ms(self) -> int | None:
        """The lowest timestamp that can match."""
        if self.operator not in ("==", ">", ">="):
            return None
        since_epoch: timedelta = self.value - _EPOCH
        whole, rest = divmod(since_epoch, _MILLISECOND)
        return whole + 1 if rest or self.operator == ">" else whole


@dataclass(frozen=True, slots=True)
class PushedFilters:
    """All of these must hold."""

    comparisons: tuple[Comparison, ...] = ()

    def partitions(self, assigned: Iterable[TopicPartition]) -> frozenset[TopicPartition]:
        return frozenset(
            each
            for each in assigned
            if all(
                comparison.holds(getattr(each, comparison.column))
                for comparison in self.comparisons
                if comparison.column in ("topic", "partition")
            )
        )

    def ranges(self, whole: Iterable[OffsetRange], lookup: OffsetLookup) -> list[OffsetRange]:
        """Cut by offset, and to the first record that is not too old."""
        ranges = list(whole)
        for comparison in self.comparisons:
            if comparison.column == "offset":
                ranges = [comparison.cut(each) for each in ranges]
        times = [each.earliest_ms() for each in self.comparisons if each.column == "timestamp"]
        if (earliest_ms := max((each for each in times if each is not None), default=None)) is None:
            return ranges
        if earliest_ms < 0:
            return ranges  # to a broker such a time is the name of an offset
        first = lookup.at_times({each.partition: earliest_ms for each in ranges})
        return [_not_before(each, first.get(each.partition, NO_OFFSET)) for each in ranges]


def _not_before(whole: OffsetRange, first: int) -> OffsetRange:
    start = whole.end if first == NO_OFFSET else min(max(whole.start, first), whole.end)
    return whole._replace(start=start)


def push_filters(filters: Iterable[Filter]) -> tuple[PushedFilters, list[Filter]]:
    """What the source applies, and what Spark must still apply."""
    comparisons: list[Comparison] = []
    left: list[Filter] = []
    for each in filters:
        match each:
            case IsNotNull(attribute=(name,)) if name in _NEVER_NULL:
                continue
        comparison = _comparison(each)
        if comparison is not None:
            comparisons.append(comparison)
        if comparison is None or not _is_exact(comparison):
            left.append(each)
    return PushedFilters(tuple(comparisons)), left


def _is_exact(comparison: Comparison) -> bool:
    return comparison.column != "timestamp" and (comparison.column, comparison.operator) != ("offset", "in")


def _comparison(pushed: Filter) -> Comparison | None:
    if type(pushed) not in _COMPARISONS:
        return None
    column, value = pushed.attribute, pushed.value  # type: ignore[attr-defined]
    values = value if isinstance(pushed, In) else (value,)
    kinds = {"topic": str, "partition": int, "offset": int, "timestamp": datetime}
    if len(column) != 1 or column[0] not in kinds or not values:
        return None
    if not all(isinstance(each, kinds[column[0]]) for each in values):
        return None
    return Comparison(column[0], _COMPARISONS[type(pushed)], value)
