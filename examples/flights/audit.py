"""The audit: was every flight acknowledged, and read exactly once and in order per key?

Pure: it gets each acknowledgement and each record, uses no client and reads no clock. Flights are identified
by their line, of which no two are equal, so a key's records must be that key's lines in their order: a lost,
doubled or swapped record each shows as a difference.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Sequence

from examples.flights.data import Columns, Flight

PROBLEMS_SHOWN = 10


class Problems:
    """Failures: all of them counted, the first few kept as text."""

    def __init__(self) -> None:
        self.count = 0
        self.shown: list[str] = []

    def add(self, text: str) -> None:
        self.count += 1
        if len(self.shown) < PROBLEMS_SHOWN:
            self.shown.append(text)


class ReadAudit:
    """Follows the consumer record by record."""

    def __init__(self, flights: Sequence[Flight], problems: Problems) -> None:
        self._problems = problems
        self._expected: dict[bytes, list[bytes]] = defaultdict(list)
        for flight in flights:
            self._expected[flight.key].append(flight.value)
        self._read_of_key: dict[bytes, int] = defaultdict(int)
        self._partition_of_key: dict[bytes, int] = {}
        self._next_offset: dict[int, int] = defaultdict(int)
        self.records = 0

    def saw(self, partition: int, offset: int, key: bytes, value: bytes) -> None:
        """One more record from the consumer."""
        self.records += 1
        where = f"partition {partition}, offset {offset}"
        if offset != self._next_offset[partition]:
            self._problems.add(f"{where}: offset {self._next_offset[partition]} was due")
        self._next_offset[partition] = offset + 1
        if self._partition_of_key.setdefault(key, partition) != partition:
            self._problems.add(f"{where}: key {key!r} was in partition {self._partition_of_key[key]} before")
        index = self._read_of_key[key]
        expected = self._expected.get(key, [])
        if index >= len(expected):
            self._problems.add(f"{where}: key {key!r} has only {len(expected)} flights")
        elif expected[index] != value:
            self._problems.add(f"{where}: not flight {index} of key {key!r}")
        self._read_of_key[key] = index + 1

    def next_offset(self, partition: int) -> int:
        """The offset behind the last record read of this partition."""
        return self._next_offset[partition]

    def missing(self) -> int:
        """Flights that were never read."""
        return sum(max(0, len(lines) - self._read_of_key[key]) for key, lines in self._expected.items())


class AckAudit:
    """Follows the acknowledgements, and how long they stopped after the kill."""

    def __init__(self, problems: Problems) -> None:
        self._problems = problems
        self._last_at: dict[int, float] = {}
        self._watched: frozenset[int] = frozenset()
        self.records = 0
        self.longest_gap_s = 0.0

    def watch(self, partitions: Sequence[int]) -> None:
        """From here on, measure the silence of these partitions (those that the killed node led)."""
        self._watched = frozenset(partitions)

    def acked(self, partition: int, now: float) -> None:
        self.records += 1
        if partition in self._watched and partition in self._last_at:
            self.longest_gap_s = max(self.longest_gap_s, now - self._last_at[partition])
        self._last_at[partition] = now

    def failed(self, reason: str) -> None:
        self._problems.add(f"not acknowledged: {reason}")


class DelayMeans:
    """Mean arrival delay per carrier, in minutes, over the flights that arrived."""

    def __init__(self, columns: Columns) -> None:
        self._arrival_delay, self._carrier = columns.at("arr_delay"), columns.at("carrier")
        self._sums: dict[str, int] = defaultdict(int)
        self._counts: dict[str, int] = defaultdict(int)

    def add(self, value: bytes) -> None:
        fields = value.decode().split(",")
        delay = fields[self._arrival_delay]
        if delay != "NA":
            carrier = fields[self._carrier]
            self._sums[carrier] += int(delay)
            self._counts[carrier] += 1

    def rows(self) -> list[tuple[str, int, float]]:
        """Carrier, flights, mean; the latest carrier first."""
        rows = [(carrier, count, self._sums[carrier] / count) for carrier, count in self._counts.items()]
        return sorted(rows, key=lambda row: -row[2])
