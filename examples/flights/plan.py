"""What the demo's processes share: topics, windows, and how far event times may lie apart.

No flight is late. They are sent in the order of their scheduled departures, and never one that departs
`LEAD` after a flight that is not acknowledged yet; so the partitions' ends lie at most `LEAD` apart, however
long a partition has no leader. Spark's limit per micro-batch is divided in proportion to what each
partition has, which brings them no further apart. The watermark waits three times as long.
"""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Final, NamedTuple

FLIGHTS: Final = "flights"
DELAYS: Final = "delays"
"""The second topic: Spark's results of the first."""

WINDOW: Final = timedelta(days=1)
LEAD: Final = timedelta(days=10)
WATERMARK: Final = 3 * LEAD

MARKER_DEPARTS: Final = datetime(2015, 1, 1, tzinfo=UTC)
MARKER_AIRPORT: Final = "none"
"""The last record is no flight: it departs a year after all others, so that the last windows are closed, from
an airport that there is not, so that the join drops it."""

MICRO_BATCHES: Final = 8
"""At least so many for all flights."""


class DayDelay(NamedTuple):
    """A row of the result: the flights of a day (UTC) that a carrier had scheduled from an airport."""

    day: str
    carrier: str
    airport: str
    flights: int
    departed: int
    mean_delay: float | None
    """Minutes, of those that departed."""

    @property
    def key(self) -> tuple[str, str, str]:
        return self.day, self.carrier, self.airport


@dataclass(frozen=True)
class QueryJob:
    """The arguments of the query's process."""

    bootstrap: str
    directory: str
    """For the checkpoints, the Parquet files and whatever Spark leaves behind."""
    airports: str
    per_batch: int

    def json(self) -> str:
        return json.dumps(asdict(self))

    def path(self, name: str) -> str:
        return str(Path(self.directory, name))
