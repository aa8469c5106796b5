"""From offsets to the tasks of a micro-batch: how far to read, and in how many pieces.

    latest -> BatchDelay -> rate_limited -> end of the micro-batch
    start, end -> ranges_between -> split -> a range for each task

The arithmetic is that of Spark's own Kafka source, so that a query moved here runs in the same steps.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.offsets import OffsetRange, Offsets


def rate_limited(
    limit: int, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int]
) -> Offsets:
    """At most about `limit` records from `start` on, shared out in proportion to what each partition has; a
    partition that has records at all gets at least one. `start` has every partition."""
    backlog = {
        partition: end - start[partition]
        for partition, end in latest.items()
        if partition in start and end > start[partition]
    }
    total = sum(backlog.values())
    if not total:
        return dict(latest)
    return {
        partition: min(end, start[partition] + _share(limit, backlog[partition], total))
        if partition in backlog
        else end
        for partition, end in latest.items()
    }


def _share(limit: int, size: int, total: int) -> int:
    """Small partitions are not starved."""
    share = limit * (size / total)
    return math.ceil(share) if share < 1 else math.floor(share)


@dataclass(slots=True)
class BatchDelay:
    """Holds a micro-batch back until there are enough records, or the last one is long enough ago."""

    min_offsets: int
    max_delay_ms: int
    _last_batch_ms: int | None = None

    def holds_back(
        self, start: Mapping[TopicPartition, int], latest: Mapping[TopicPartition, int], now_ms: int
    ) -> bool:
        """Never the first micro-batch: how long its records have waited is not known."""
        backlog = sum(end - start.get(partition, 0) for partition, end in latest.items())
        overdue = self._last_batch_ms is None or now_ms - self._last_batch_ms >= self.max_delay_ms
        if not overdue and backlog < self.min_offsets:
            return True
        self._last_batch_ms = now_ms
        return False


def split(
    ranges: Sequence[OffsetRange], min_partitions: int | None = None, max_records: int | None = None
) -> list[OffsetRange]:
    """A range for each task: none empty, none longer than `max_records`, and about `min_partitions` of them
    (rounding decides)."""
    pieces = [
        piece
        for each in ranges
        if each.size > 0
        for piece in _divided(each, 1 if max_records is None else math.ceil(each.size / max_records))
    ]
    if min_partitions is None or len(pieces) >= min_partitions or not pieces:
        return pieces
    return _split_large(pieces, min_partitions)


def _split_large(ranges: Sequence[OffsetRange], min_partitions: int) -> list[OffsetRange]:
    """Small ranges stay whole; the tasks they leave are shared out among the large ones by size."""
    total = sum(each.size for each in ranges)
    whole = {each for each in ranges if _pieces(each.size, total, min_partitions) == 1}
    large_total = total - sum(each.size for each in whole)
    left = max(min_partitions - len(whole), 1)
    return [
        piece
        for each in ranges
        for piece in _divided(each, 1 if each in whole else _pieces(each.size, large_total, left))
    ]


def _pieces(size: int, total: int, pieces: int) -> int:
    """In proportion, halves rounded up as Java does."""
    return max(math.floor(size / total * pieces + 0.5), 1)


def _divided(whole: OffsetRange, pieces: int) -> list[OffsetRange]:
    """The last pieces take what is left over; none is empty, however many are wanted."""
    pieces = min(pieces, whole.size)
    divided = []
    start = whole.start
    for piece in range(pieces):
        end = start + (whole.end - start) // (pieces - piece)
        divided.append(OffsetRange(whole.partition, start, end))
        start = end
    return divided
