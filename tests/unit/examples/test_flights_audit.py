"""The demo's judge finds each way in which a stream can be wrong."""

from __future__ import annotations

import pytest

from examples.flights.audit import AckAudit, DelayMeans, Problems, ReadAudit
from examples.flights.data import Columns, Flight
from examples.flights.isr import Replicas, changes

FLIGHTS = [Flight(b"N1", b"a"), Flight(b"N2", b"b"), Flight(b"N1", b"c"), Flight(b"N1", b"d")]


@pytest.fixture
def problems() -> Problems:
    return Problems()


@pytest.fixture
def reads(problems: Problems) -> ReadAudit:
    return ReadAudit(FLIGHTS, problems)


def test_all_in_order_is_right(reads: ReadAudit, problems: Problems) -> None:
    # Keys may interleave in another order than they were sent in.
    for offset, (key, value) in enumerate([(b"N1", b"a"), (b"N1", b"c"), (b"N1", b"d")]):
        reads.saw(0, offset, key, value)
    reads.saw(1, 0, b"N2", b"b")
    assert (problems.count, reads.missing(), reads.records) == (0, 0, 4)


@pytest.mark.parametrize(
    ("records", "missing"),
    [
        pytest.param([(0, b"a"), (1, b"d")], 1, id="lost"),
        pytest.param([(0, b"a"), (1, b"a"), (2, b"c"), (3, b"d")], 0, id="doubled"),
        pytest.param([(0, b"a"), (1, b"d"), (2, b"c")], 0, id="swapped"),
        pytest.param([(0, b"a"), (2, b"c"), (3, b"d")], 0, id="offset skipped"),
        pytest.param([(0, b"a"), (1, b"c"), (1, b"c"), (2, b"d")], 0, id="read again"),
    ],
)
def test_wrong_streams_are_noticed(
    reads: ReadAudit, problems: Problems, records: list[tuple[int, bytes]], missing: int
) -> None:
    for offset, value in records:
        reads.saw(0, offset, b"N1", value)
    reads.saw(1, 0, b"N2", b"b")
    assert problems.count > 0
    assert reads.missing() == missing


def test_a_key_in_two_partitions_is_wrong(reads: ReadAudit, problems: Problems) -> None:
    reads.saw(0, 0, b"N1", b"a")
    reads.saw(1, 0, b"N1", b"c")
    assert "was in partition 0 before" in problems.shown[0]


def test_what_was_not_read_is_missing(reads: ReadAudit) -> None:
    reads.saw(0, 0, b"N1", b"a")
    assert reads.missing() == 3


def test_only_the_first_problems_are_kept_in_words(problems: Problems) -> None:
    for number in range(1000):
        problems.add(str(number))
    assert problems.count == 1000
    assert len(problems.shown) == 10


def test_the_gap_spans_the_kill_and_concerns_the_victims_partitions_only(problems: Problems) -> None:
    acks = AckAudit(problems)
    acks.acked(0, 1.0)
    acks.acked(1, 1.0)
    acks.watch([1])
    acks.acked(0, 9.0)
    acks.acked(1, 1.4)
    acks.acked(1, 1.5)
    assert acks.longest_gap_s == pytest.approx(0.4)
    assert acks.records == 5


def test_means_leave_out_flights_that_never_arrived() -> None:
    columns = Columns.of("carrier,arr_delay,tailnum")
    means = DelayMeans(columns)
    for line in (b"UA,10,N1", b"UA,-4,N1", b"UA,NA,N1", b"AA,30,N2"):
        means.add(line)
    assert means.rows() == [("AA", 1, 30.0), ("UA", 2, 3.0)]


def test_changes_of_the_replicas_in_words() -> None:
    everyone = frozenset({1, 2, 3})
    before = {0: Replicas(2, everyone), 1: Replicas(1, everyone), 2: Replicas(2, everyone)}
    after = {0: Replicas(3, frozenset({1, 3})), 1: Replicas(1, frozenset({1, 3})), 2: Replicas(-1, everyone)}
    assert changes(before, after) == [
        "leader 2 → none: partition 2",
        "leader 2 → 3: partition 0",
        "node 2 left the ISR: partitions 0, 1",
    ]
    assert changes(after, {1: Replicas(1, everyone)}) == ["node 2 joined the ISR: partition 1"]
    assert changes(before, before) == []
