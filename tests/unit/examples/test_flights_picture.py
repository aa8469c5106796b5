"""The picture is drawn from rows, and is a file of its own."""

from __future__ import annotations

import re
from datetime import date
from xml.etree import ElementTree

import pytest

from examples.flights.picture import ChartMark, Mean, carriers, svg, week
from examples.flights.plan import DayDelay

ROWS = [
    DayDelay("2013-01-01", "UA", "Kennedy", 3, 3, 10.0),
    DayDelay("2013-01-07", "UA", "La Guardia", 1, 1, 2.0),
    DayDelay("2013-01-08", "UA", "Kennedy", 2, 2, -4.0),
    DayDelay("2013-01-08", "AA", "Kennedy", 1, 1, 90.0),
    DayDelay("2013-01-09", "AA", "Kennedy", 4, 0, None),
]
NAME = "A & <B>"


def test_means_are_weighted_by_flights_and_the_latest_is_first():
    late, other = carriers(ROWS, {"AA": NAME})
    assert (late.name, late.year, late.weeks) == (NAME, Mean(90.0, 1), {1: Mean(90.0, 1)})
    assert (other.name, other.year) == ("UA", Mean(4.0, 6))
    assert other.weeks == {0: Mean(8.0, 4), 1: Mean(-4.0, 2)}


@pytest.mark.parametrize(("day", "number"), [("2013-01-07", 0), ("2013-01-08", 1), ("2014-01-01", 52)])
def test_weeks_begin_on_the_first_of_january(day, number):
    assert week(date.fromisoformat(day)) == number


def test_the_file_is_well_formed_and_needs_no_other():
    text = svg(carriers(ROWS, {"AA": NAME}), [ChartMark(date(2013, 1, 4), "node 1 killed")])
    root = ElementTree.fromstring(text)
    titles = [element.text for element in root.iter("{http://www.w3.org/2000/svg}title")]
    assert titles == [
        f"{NAME}, week 2: 90.0 min, 1 flights",
        "UA, week 1: 8.0 min, 4 flights",
        "UA, week 2: -4.0 min, 2 flights",
    ]
    assert "✗ node 1 killed" in text
    assert not re.search(r"href|url\(|@import|<script", text)
    for number in re.findall(r' (?:x|y|width|height)="([^"]*)"', text):
        assert float(number) >= 0
