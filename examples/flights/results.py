"""What Spark wrote, held against the same computation over the source file, in plain Python.

Of a micro-batch that ran again the second topic has the rows twice; its reader takes the latest record of a
key. Parquet has each row once: its readers take the files that the sink's log has.
"""

from __future__ import annotations

import json
import time
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any

from confluent_kafka import OFFSET_BEGINNING, Consumer, KafkaError, TopicPartition

from examples.flights.audit import Problems
from examples.flights.data import Columns, Flight
from examples.flights.plan import DELAYS, WINDOW, DayDelay
from examples.flights.stream import StreamFailed

READ_TIMEOUT_S = 60.0
READ_MAX = 2000
WINDOW_S = int(WINDOW.total_seconds())
NOT_KNOWN = "NA"

Rows = Mapping[tuple[str, str, str], DayDelay]


def batch_computation(flights: Iterable[Flight], columns: Columns, airports: Mapping[str, str]) -> Rows:
    """The rows as they must be."""
    carrier, origin, delay = columns.at("carrier"), columns.at("origin"), columns.at("dep_delay")
    counts: dict[tuple[int, str, str], int] = defaultdict(int)
    delays: dict[tuple[int, str, str], list[int]] = defaultdict(list)
    for flight in flights:
        fields = flight.value.decode().split(",")
        group = flight.departs // WINDOW_S, fields[carrier], fields[origin]
        counts[group] += 1
        if fields[delay] != NOT_KNOWN:
            delays[group].append(int(fields[delay]))
    rows = (
        DayDelay(
            day=datetime.fromtimestamp(group[0] * WINDOW_S, UTC).date().isoformat(),
            carrier=group[1],
            airport=airports[group[2]],
            flights=count,
            departed=len(delays[group]),
            mean_delay=sum(delays[group]) / len(delays[group]) if delays[group] else None,
        )
        for group, count in counts.items()
    )
    return {row.key: row for row in rows}


@dataclass
class SecondTopic:
    """The topic as a reader sees it."""

    records: int = 0
    doubled: int = 0
    """Records of keys that had one already."""
    latest: dict[tuple[str, str, str], DayDelay] = field(default_factory=dict)

    def saw(self, value: bytes) -> None:
        """One more record, in the order of its partition."""
        found: dict[str, Any] = json.loads(value)
        row = DayDelay(**{"mean_delay": None, **found})  # Spark's JSON leaves out what is null
        self.records += 1
        self.doubled += row.key in self.latest
        self.latest[row.key] = row


def read_topic(bootstrap: str, partitions: int) -> SecondTopic:
    """From the beginning to the end, with a stock consumer."""
    consumer = Consumer(
        {
            "bootstrap.servers": bootstrap,
            "group.id": "delays-reader",
            "enable.partition.eof": True,
            "log_level": 0,
        }
    )
    topic, at_end, deadline = SecondTopic(), set[int](), time.monotonic() + READ_TIMEOUT_S
    try:
        consumer.assign([TopicPartition(DELAYS, number, OFFSET_BEGINNING) for number in range(partitions)])
        while len(at_end) < partitions:
            if time.monotonic() > deadline:
                raise StreamFailed(f"the topic {DELAYS} could not be read in {READ_TIMEOUT_S:.0f} s")
            for message in consumer.consume(READ_MAX, 0.1):
                error = message.error()
                if error is None:
                    topic.saw(message.value() or b"")
                elif error.code() == KafkaError._PARTITION_EOF:
                    at_end.add(message.partition() or 0)
    finally:
        consumer.close()
    return topic


def compare(where: str, found: Sequence[DayDelay], expected: Rows, problems: Problems) -> None:
    """Row for row, in any order."""
    rows: dict[tuple[str, str, str], DayDelay] = {}
    for row in found:
        if row.key in rows:
            problems.add(f"{where} has a row twice: {row}")
        elif row.key not in expected:
            problems.add(f"{where} has a row that should not be: {row}")
        elif row != expected[row.key]:
            problems.add(f"{where} has {row} instead of {expected[row.key]}")
        rows[row.key] = row
    if missing := expected.keys() - rows.keys():
        problems.add(f"{where} lacks {len(missing):,} of {len(expected):,} rows")
