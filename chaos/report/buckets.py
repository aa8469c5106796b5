"""Time cut into equal pieces, and lists of changes made short enough to be drawn."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Final, TypeVar

MS: Final = 1_000_000  # ns
MAX_BUCKETS: Final = 480  # about one per two pixels of a wide screen
# Widths that people can read on an axis, in ms.
NICE_WIDTHS_MS: Final = (
    50,
    100,
    200,
    250,
    500,
    1_000,
    2_000,
    5_000,
    10_000,
    30_000,
    60_000,
    300_000,
    600_000,
)

Change = TypeVar("Change", bound=Sequence[object])


@dataclass(frozen=True)
class Buckets:
    width_ns: int
    count: int

    def of(self, time_ns: int) -> int:
        return min(max(time_ns, 0) // self.width_ns, self.count - 1)


def buckets_over(duration_ns: int) -> Buckets:
    """The finest nice buckets that are few enough."""
    for width_ms in NICE_WIDTHS_MS:
        count = -(-duration_ns // (width_ms * MS))
        if count <= MAX_BUCKETS:
            return Buckets(width_ms * MS, max(count, 1))
    return Buckets(-(-duration_ns // MAX_BUCKETS), MAX_BUCKETS)


def milliseconds(time_ns: int) -> float:
    """To the microsecond: the page's times are milliseconds since the start of the run."""
    return round(time_ns / MS, 3)


def thinned(changes: Sequence[Change], buckets: Buckets, limit: int) -> Sequence[Change]:
    """`changes` (each begins with its time in ms) as they are if there are at most `limit`; else the first
    and last of each bucket, so that every state that lasted longer than a bucket is still there."""
    if len(changes) <= limit:
        return changes
    kept = []
    for index, change in enumerate(changes):
        mine = _bucket(change, buckets)
        opens = index == 0 or _bucket(changes[index - 1], buckets) != mine
        closes = index + 1 == len(changes) or _bucket(changes[index + 1], buckets) != mine
        if opens or closes:
            kept.append(change)
    return kept


def _bucket(change: Sequence[object], buckets: Buckets) -> int:
    time_ms = change[0]
    assert isinstance(time_ms, int | float)
    return buckets.of(round(time_ms * MS))
