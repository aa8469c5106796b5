"""What Spark wrote is held against the file: every way in which rows can differ is noticed."""

from __future__ import annotations

import pytest

from examples.flights.audit import Problems
from examples.flights.data import Columns, Flight, marker
from examples.flights.plan import DayDelay
from examples.flights.results import SecondTopic, batch_computation, compare

COLUMNS = Columns.of("carrier,origin,dep_delay,time_hour,minute")
DAY = 24 * 60 * 60
AIRPORTS = {"JFK": "Kennedy", "LGA": "La Guardia"}
FLIGHTS = [
    Flight(b"N1", b"UA,JFK,10,,", DAY),
    Flight(b"N2", b"UA,JFK,-5,,", 2 * DAY - 1),
    Flight(b"N3", b"UA,JFK,NA,,", 2 * DAY - 1),
    Flight(b"N1", b"UA,JFK,7,,", 2 * DAY),
    Flight(b"N4", b"AA,LGA,NA,,", DAY),
]
ROWS = [
    DayDelay("1970-01-02", "UA", "Kennedy", 3, 2, 2.5),
    DayDelay("1970-01-03", "UA", "Kennedy", 1, 1, 7.0),
    DayDelay("1970-01-02", "AA", "La Guardia", 1, 0, None),
]


def problems_of(found: list[DayDelay]) -> list[str]:
    problems = Problems()
    compare("the topic", found, {row.key: row for row in ROWS}, problems)
    assert problems.count == len(problems.shown)
    return problems.shown


def test_the_computation_by_hand():
    assert list(batch_computation(FLIGHTS, COLUMNS, AIRPORTS).values()) == ROWS


def test_equal_rows_in_any_order_are_right():
    assert problems_of(ROWS[::-1]) == []


@pytest.mark.parametrize(
    ("found", "difference"),
    [
        (ROWS[1:], "lacks 1 of 3 rows"),
        ([*ROWS, ROWS[0]], "a row twice"),
        ([*ROWS, ROWS[0]._replace(carrier="B6")], "should not be"),
        ([ROWS[0]._replace(mean_delay=2.6), *ROWS[1:]], "mean_delay=2.6"),
        ([*ROWS[:2], ROWS[2]._replace(flights=2)], "flights=2"),
    ],
)
def test_rows_that_differ(found, difference):
    (only,) = problems_of(found)
    assert difference in only


def test_the_latest_record_of_a_key_is_the_row():
    topic = SecondTopic()
    for delay in (b'"mean_delay":1.0', b'"mean_delay":2.5'):
        topic.saw(
            b'{"day":"1970-01-02","carrier":"UA","airport":"Kennedy","flights":3,"departed":2,%b}' % delay
        )
    topic.saw(b'{"day":"1970-01-02","carrier":"AA","airport":"La Guardia","flights":1,"departed":0}')
    assert (topic.records, topic.doubled) == (3, 1)
    assert list(topic.latest.values()) == [ROWS[0], ROWS[2]]


def test_the_marker_is_a_line_like_others_but_from_nowhere():
    assert marker(COLUMNS).value == b"NA,none,NA,2015-01-01T00:00:00Z,0"
