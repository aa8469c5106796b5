"""OpenTelemetry's metrics, read from bytes that are put together by hand."""

from __future__ import annotations

import struct

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.wire.otlp import MAX_FIELDS, MAX_POINTS, Point, read_metrics

GAUGE, SUM, HISTOGRAM = 5, 7, 9
DELTA, CUMULATIVE = 1, 2


def varint(value: int) -> bytes:
    head = b""
    while value >= 0x80:
        head += bytes([value & 0x7F | 0x80])
        value >>= 7
    return head + bytes([value])


def message(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 2) + varint(len(body)) + body


def fixed64(number: int, body: bytes) -> bytes:
    return varint(number << 3 | 1) + body


def number(number: int, value: int) -> bytes:
    return varint(number << 3) + varint(value)


def attribute(place: int, key: str, value: bytes) -> bytes:
    return message(place, message(1, key.encode()) + message(2, value))


def metrics(*each: bytes) -> memoryview:
    return memoryview(message(1, message(2, b"".join(message(2, one) for one in each))))


def metric(name: str, kind: int, *points: bytes, temporality: int = CUMULATIVE) -> bytes:
    suffix = number(2, temporality) if kind != GAUGE else b""
    return message(1, name.encode()) + message(kind, b"".join(message(1, p) for p in points) + suffix)


DOUBLE = struct.pack("<d", 2.5)
INT = struct.pack("<q", -7)


def test_gauges_and_sums_are_numbers() -> None:
    data = metrics(
        metric("g", GAUGE, fixed64(4, DOUBLE)),
        metric("s", SUM, fixed64(6, INT), temporality=DELTA),
        metric("c", SUM, fixed64(6, INT)),
    )
    assert read_metrics(data) == [
        Point("g", (), 2.5, False),
        Point("s", (), -7.0, True),
        Point("c", (), -7.0, False),
    ]


def test_a_histogram_is_its_count_and_its_sum() -> None:
    point = fixed64(4, struct.pack("<q", 3)) + fixed64(5, DOUBLE) + attribute(9, "a", message(1, b"b"))
    assert read_metrics(metrics(metric("h", HISTOGRAM, point, temporality=DELTA))) == [
        Point("h.count", (("a", "b"),), 3.0, True),
        Point("h.sum", (("a", "b"),), 2.5, True),
    ]


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (message(1, b"word"), "word"),
        (number(2, 1), "True"),
        (number(3, 300), "300"),
        (fixed64(4, DOUBLE), "2.5"),
        (b"", ""),
    ],
)
def test_attributes_are_told_as_text(value: bytes, text: str) -> None:
    data = metrics(metric("g", GAUGE, fixed64(4, DOUBLE) + attribute(7, "k", value)))
    assert read_metrics(data) == [Point("g", (("k", text),), 2.5, False)]


def test_what_is_not_known_is_skipped() -> None:
    odd = number(99, 1) + varint(98 << 3 | 5) + bytes(4) + message(97, b"x")
    assert read_metrics(
        memoryview(odd + bytes(metrics(odd + metric("g", GAUGE, odd + fixed64(4, DOUBLE)))))
    ) == [Point("g", (), 2.5, False)]


def test_so_many_points_are_too_many() -> None:
    data = metrics(metric("g", GAUGE, *[b""] * (MAX_POINTS + 1)))
    with pytest.raises(ValueError, match="points"):
        read_metrics(data)


def test_so_many_fields_are_too_many() -> None:
    for data in (
        memoryview(number(99, 0) * (MAX_FIELDS + 1)),
        metrics(metric("g", GAUGE, message(7, b"") * (MAX_FIELDS + 1))),
    ):
        with pytest.raises(ValueError, match="fields"):
            read_metrics(data)


def test_a_value_of_another_kind_than_its_number_says_is_skipped() -> None:
    data = metrics(metric("g", GAUGE, fixed64(4, DOUBLE) + attribute(7, "k", message(4, b"abc"))))
    assert read_metrics(data) == [Point("g", (("k", ""),), 2.5, False)]


@given(st.binary(max_size=200), st.integers(0, 300))
def test_whatever_comes_it_is_read_or_refused(noise: bytes, cut: int) -> None:
    whole = bytes(metrics(metric("g", SUM, fixed64(4, DOUBLE) + attribute(7, "k", message(1, b"v")))))
    for data in (noise, whole[:cut], whole[:cut] + noise, noise + whole):
        try:
            read_metrics(memoryview(data))
        except ValueError:
            continue
