"""OpenTelemetry's metrics as clients push them (KIP-714): as much of the protobuf messages as they use.

    MetricsData  1 ResourceMetrics: 2 ScopeMetrics: 2 Metric
    Metric       1 name | 5 Gauge: 1 point | 7 Sum, 9 Histogram: 1 point, 2 temporality
    number       7 attribute | 4 as double | 6 as fixed64
    histogram    9 attribute | 4 count, fixed64 | 5 sum, double
    attribute    1 key | 2 value: 1 string, 2 bool, 3 int, 4 double

All fields that are not named here are skipped, as protobuf asks for.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

_VARINT, _FIXED64, _LENGTH, _FIXED32 = 0, 1, 2, 5
_DOUBLE: Final = struct.Struct("<d")
_SFIXED64: Final = struct.Struct("<q")
_DELTA: Final = 1

MAX_POINTS: Final = 10_000
"""Data points of one push."""
MAX_FIELDS: Final = 50_000
"""Of one push, in all its messages: a quarter of a second. An empty field takes two bytes, and when it is
compressed a thousand times less."""

_Field = tuple[int, int, memoryview | int]
"""Number, wire type, and value: a varint as it is, anything else as its bytes."""


class Point(NamedTuple):
    """One figure."""

    name: str
    attributes: tuple[tuple[str, str], ...]
    value: float
    is_delta: bool
    """What was counted since the last push; else the figure as it is."""


def read_metrics(data: memoryview) -> list[Point]:
    """Raises `ValueError` for what is no MetricsData, or too much."""
    points: list[Point] = []
    walk = _Walk()
    for resource in walk.messages(data, 1):
        for scope in walk.messages(resource, 2):
            for metric in walk.messages(scope, 2):
                points += _points(walk, metric)
                if len(points) > MAX_POINTS:
                    raise ValueError(f"more than {MAX_POINTS} points in one push")
    return points


def _points(walk: _Walk, metric: memoryview) -> Iterator[Point]:
    name = ""
    kinds: list[tuple[int, memoryview]] = []
    for number, wire_type, value in walk.fields(metric):
        if number == 1 and isinstance(value, memoryview):
            name = str(value, "utf-8")
        elif number in (5, 7, 9) and wire_type == _LENGTH and isinstance(value, memoryview):
            kinds.append((number, value))
    for kind, body in kinds:
        is_delta = kind != 5 and any(
            number == 2 and value == _DELTA for number, _, value in walk.fields(body)
        )
        for point in walk.messages(body, 1):
            if kind == 9:
                yield from _histogram(walk, name, point, is_delta)
            else:
                yield _number(walk, name, point, is_delta)


def _number(walk: _Walk, name: str, point: memoryview, is_delta: bool) -> Point:
    amount = 0.0
    for number, wire_type, value in walk.fields(point):
        if wire_type == _FIXED64 and isinstance(value, memoryview):
            if number == 4:
                (amount,) = _DOUBLE.unpack(value)
            elif number == 6:
                (amount,) = _SFIXED64.unpack(value)
    return Point(name, _attributes(walk, point, 7), float(amount), is_delta)


def _histogram(walk: _Walk, name: str, point: memoryview, is_delta: bool) -> Iterator[Point]:
    """The count and the sum of a histogram."""
    attributes = _attributes(walk, point, 9)
    for number, wire_type, value in walk.fields(point):
        if wire_type == _FIXED64 and isinstance(value, memoryview):
            if number == 4:
                yield Point(f"{name}.count", attributes, float(_SFIXED64.unpack(value)[0]), is_delta)
            elif number == 5:
                yield Point(f"{name}.sum", attributes, _DOUBLE.unpack(value)[0], is_delta)


def _attributes(walk: _Walk, point: memoryview, number: int) -> tuple[tuple[str, str], ...]:
    found = []
    for pair in walk.messages(point, number):
        key, text = "", ""
        for place, wire_type, value in walk.fields(pair):
            if wire_type == _LENGTH and isinstance(value, memoryview):
                if place == 1:
                    key = str(value, "utf-8")
                elif place == 2:
                    text = _any_value(walk, value)
        found.append((key, text))
    return tuple(found)


def _any_value(walk: _Walk, message: memoryview) -> str:
    for number, wire_type, value in walk.fields(message):
        if isinstance(value, int):
            return str(bool(value)) if number == 2 else str(value)
        if number == 1:
            return str(value, "utf-8")
        if number == 4 and wire_type == _FIXED64:
            return str(_DOUBLE.unpack(value)[0])
    return ""


# ---- protobuf ----------------------------------------------------------------------------------------


class _Walk:
    """Through the messages of one push, field by field."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def messages(self, data: memoryview, wanted: int) -> Iterator[memoryview]:
        for number, wire_type, value in self.fields(data):
            if number == wanted and wire_type == _LENGTH and isinstance(value, memoryview):
                yield value

    def fields(self, data: memoryview) -> Iterator[_Field]:
        """Raises `ValueError` where the bytes end in the middle of a field."""
        pos, end = 0, len(data)
        while pos < end:
            self._left -= 1
            if self._left < 0:
                raise ValueError(f"more than {MAX_FIELDS} fields in one push")
            tag, pos = _varint(data, pos)
            number, wire_type = tag >> 3, tag & 7
            if wire_type == _VARINT:
                value, pos = _varint(data, pos)
                yield number, wire_type, value
                continue
            if wire_type == _LENGTH:
                size, pos = _varint(data, pos)
            elif wire_type in (_FIXED64, _FIXED32):
                size = 8 if wire_type == _FIXED64 else 4
            else:
                raise ValueError(f"protobuf has no wire type {wire_type}")
            if pos + size > end:
                raise ValueError("a field runs over the end of its message")
            yield number, wire_type, data[pos : pos + size]
            pos += size


def _varint(data: memoryview, pos: int) -> tuple[int, int]:
    value = 0
    for shift in range(0, 70, 7):
        if pos >= len(data):
            raise ValueError("a number runs over the end of its message")
        byte = data[pos]
        pos += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, pos
    raise ValueError("a number of more than ten bytes")
