"""What is known of how many records the logs hold that are led here: a counter per partition asked for.

api/record_counts -> here -> data_plane/log/record_count
"""

from __future__ import annotations

from collections import OrderedDict
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.log.record_count import Counted, RecordCounter
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.model import TopicPartition

MOST_KEPT: Final = 1_000
"""How many counters are kept: those that were used last."""
MOST_GAPS_TOGETHER: Final = 1_000_000
"""Gaps that they keep, some 25 MB: every transaction leaves one in each of its partitions."""


class _Known(NamedTuple):
    """A counter, and of what: another leader may have truncated, and compaction takes records."""

    topic_id: UUID
    leader_epoch: int
    cleaned_to: int
    counter: RecordCounter


class RecordCounters:
    """The record counters of one broker."""

    def __init__(self) -> None:
        self._known: OrderedDict[TopicPartition, _Known] = OrderedDict()

    def counter_of(self, partition: Partition, offset: int) -> RecordCounter:
        """One that counts from that offset on: a new one where the known one begins behind it, or has not
        come there yet."""
        log = partition.log
        start = min(max(offset, log.log_start_offset), partition.high_watermark)
        identity = (partition.topic_id, partition.leader_epoch, log.cleaned_to)
        known = self._known.pop(partition.tp, None)
        if known is None or known[:3] != identity or not known.counter.serves(start):
            known = _Known(*identity, RecordCounter(start))
        self._known[partition.tp] = known
        if len(self._known) > MOST_KEPT:
            self._known.popitem(last=False)
        return known.counter

    def add(self, counter: RecordCounter, counted: Counted) -> None:
        """What a look has found. Those that were used longest ago make room for it."""
        counter.add(counted)
        gaps = sum(each.counter.gaps for each in self._known.values())
        while gaps > MOST_GAPS_TOGETHER:
            _, oldest = self._known.popitem(last=False)
            gaps -= oldest.counter.gaps
