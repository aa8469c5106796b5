"""The result as a picture: bars on the terminal, and an SVG file that needs nothing else.

Both are drawn from the rows that Spark wrote. In the SVG a line is a carrier, a column a week, and the colour
how late its flights left; the bars beside it are the year. Dashed lines are the kills, on the day of the
flights that were being sent.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from datetime import date
from html import escape
from typing import Final, NamedTuple

from rich.console import Console
from rich.table import Table
from rich.text import Text

from examples.flights.plan import DayDelay

BAR_CELLS: Final = 28

# Pixels.
LEFT: Final = 210
TOP: Final = 100
CELL: Final = 13
ROW: Final = 24
BAR: Final = 150
MARGIN: Final = 24
MINUTES_SHOWN: Final = 40.0
"""The colours end here."""
EARLY, ON_TIME, LATE = (49, 104, 163), (246, 241, 228), (178, 40, 36)
INK, FAINT = "#2b2b2b", "#8a8577"


class ChartMark(NamedTuple):
    """A kill, and the day of the flights that were being sent."""

    day: date
    text: str


class Mean(NamedTuple):
    """Of flights that departed."""

    minutes: float
    flights: int


class Carrier(NamedTuple):
    """A line of the picture."""

    name: str
    year: Mean
    weeks: Mapping[int, Mean]


def carriers(rows: Iterable[DayDelay], names: Mapping[str, str]) -> list[Carrier]:
    """The latest first."""
    of_year: dict[str, list[Mean]] = defaultdict(list)
    of_week: dict[str, dict[int, list[Mean]]] = defaultdict(lambda: defaultdict(list))
    for row in rows:
        if row.mean_delay is not None:
            mean = Mean(row.mean_delay, row.departed)
            of_year[row.carrier].append(mean)
            of_week[row.carrier][week(date.fromisoformat(row.day))].append(mean)
    found = [
        Carrier(
            names.get(code, code),
            _together(means),
            {number: _together(days) for number, days in of_week[code].items()},
        )
        for code, means in of_year.items()
    ]
    return sorted(found, key=lambda carrier: -carrier.year.minutes)


def _together(means: Sequence[Mean]) -> Mean:
    flights = sum(mean.flights for mean in means)
    return Mean(sum(mean.minutes * mean.flights for mean in means) / flights, flights)


def week(day: date) -> int:
    """Counted from the first of January 2013, from 0; few flights of its last night are in 2014 (UTC)."""
    return (day - date(2013, 1, 1)).days // 7


def print_bars(console: Console, lines: Sequence[Carrier]) -> None:
    table = Table(
        title="Mean departure delay per carrier, from what Spark wrote", title_justify="left", box=None
    )
    table.add_column("carrier")
    table.add_column("flights", justify="right")
    table.add_column("minutes", justify="right")
    table.add_column("")
    longest = max((abs(line.year.minutes) for line in lines), default=1.0) or 1.0
    for line in lines:
        cells = round(BAR_CELLS * max(line.year.minutes, 0.0) / longest)
        bar = Text("█" * cells, style=_hex(line.year.minutes))
        table.add_row(line.name, f"{line.year.flights:,}", f"{line.year.minutes:.2f}", bar)
    console.print(table)


# -- SVG ------------------------------------------------------------------------------------------


def svg(lines: Sequence[Carrier], marks: Sequence[ChartMark]) -> str:
    weeks = 1 + max((number for line in lines for number in line.weeks), default=0)
    right = LEFT + weeks * CELL
    width, height = right + BAR + 3 * MARGIN, TOP + len(lines) * ROW + 3 * MARGIN
    body = [
        *_title(lines),
        *_months(weeks),
        *(part for place, line in enumerate(lines) for part in _line(line, TOP + place * ROW, right)),
        *_marks(sorted(marks), TOP + len(lines) * ROW),
        *_legend(TOP + len(lines) * ROW + MARGIN),
    ]
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" width="{width}" height="{height}"'
        f' viewBox="0 0 {width} {height}" font-family="Helvetica, Arial, sans-serif" font-size="12">\n'
        f'<rect width="{width}" height="{height}" fill="#fffdf8"/>\n' + "\n".join(body) + "\n</svg>\n"
    )


def _text(x: float, y: float, text: str, more: str = "") -> str:
    return f'<text x="{x:g}" y="{y:g}" fill="{INK}" {more}>{escape(text)}</text>'


def _title(lines: Sequence[Carrier]) -> Iterator[str]:
    flights = sum(line.year.flights for line in lines)
    yield _text(MARGIN, 34, "How late they left New York, 2013", 'font-size="19"')
    below = f"mean departure delay of {flights:,} flights per week and carrier, by Spark from a stream"
    yield _text(MARGIN, 54, below, 'fill-opacity="0.7"')


def _months(weeks: int) -> Iterator[str]:
    for month in range(1, 13):
        day = date(2013, month, 1)
        if week(day) < weeks:
            yield _text(LEFT + _column(day), TOP - 6, f"{day:%b}", 'font-size="10" fill-opacity="0.7"')


def _column(day: date) -> float:
    return CELL * (day - date(2013, 1, 1)).days / 7


def _line(line: Carrier, y: int, right: int) -> Iterator[str]:
    yield _text(LEFT - 8, y + 16, line.name, 'text-anchor="end"')
    for number, mean in sorted(line.weeks.items()):
        about = f"{line.name}, week {number + 1}: {mean.minutes:.1f} min, {mean.flights:,} flights"
        yield (
            f'<rect x="{LEFT + number * CELL}" y="{y + 1}" width="{CELL - 1}" height="{ROW - 2}"'
            f' fill="{_hex(mean.minutes)}"><title>{escape(about)}</title></rect>'
        )
    length = BAR * max(line.year.minutes, 0.0) / MINUTES_SHOWN
    yield (
        f'<rect x="{right + MARGIN}" y="{y + 5}" width="{length:.1f}" height="{ROW - 10}"'
        f' fill="{_hex(line.year.minutes)}" stroke="{FAINT}" stroke-width="0.5"/>'
    )
    yield _text(right + MARGIN + length + 5, y + 16, f"{line.year.minutes:.1f} min")


def _marks(marks: Sequence[ChartMark], bottom: int) -> Iterator[str]:
    """The first has its text on its left, where the next one's does not run into it."""
    for place, mark in enumerate(marks):
        x = LEFT + _column(mark.day)
        yield f'<path d="M{x:.1f} {TOP - 30}V{bottom}" stroke="{INK}" stroke-dasharray="3 3"/>'
        side, anchor = (4, "start") if place else (-4, "end")
        yield _text(x + side, TOP - 22, f"✗ {mark.text}", f'font-size="11" text-anchor="{anchor}"')


def _legend(y: int) -> Iterator[str]:
    for place, minutes in enumerate((-10, 0, 10, 20, 30, 40)):
        x = LEFT + place * 70
        yield f'<rect x="{x}" y="{y}" width="14" height="14" fill="{_hex(minutes)}" stroke="{FAINT}"/>'
        yield _text(x + 20, y + 11, f"{minutes} min", 'font-size="10"')


def _hex(minutes: float) -> str:
    """Blue is early, red late."""
    far = min(abs(minutes) / MINUTES_SHOWN, 1.0)
    end = LATE if minutes > 0 else EARLY
    return "#" + "".join(f"{round(a + (b - a) * far):02x}" for a, b in zip(ON_TIME, end, strict=True))
