"""A streaming query's driver: where it begins, how far the next micro-batch reads, and what that comes to.

    initial_offset -> latest(start) -> tasks(start, end) -> latest(end) -> ...

Spark asks for the latest offsets about every 15 ms while there is nothing to do. The leaders are asked every
`ASK_INTERVAL_S` at most; a question that comes earlier is answered from what is known where that is news, and
waits for its turn where it is not, which also keeps Spark from asking in vain.
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from typing import Final, Protocol

from spark_connector.assignment import TopicLookup, assigned_partitions, require_all
from spark_connector.errors import DataLossError
from spark_connector.offsets import (
    OffsetLookup,
    OffsetRange,
    Offsets,
    TopicPartition,
    depends_on_now,
    ranges_between,
    resolve_start,
)
from spark_connector.options import SourceOptions
from spark_connector.planning import BatchDelay, rate_limited, split

ASK_INTERVAL_S: Final = 0.05
TOPICS_INTERVAL_S: Final = 1.0
"""How often new topics and partitions are looked for."""

_log = logging.getLogger(__name__)


class ClusterView(OffsetLookup, TopicLookup, Protocol):
    """The cluster, and the time that goes by while it is asked."""

    def now(self) -> float:
        """Seconds; monotonic."""
        ...

    def pause(self, seconds: float) -> None: ...


class StreamPlanner:
    """Of one query, in one run of it."""

    def __init__(self, options: SourceOptions, cluster: ClusterView) -> None:
        self._options = options
        self._cluster = cluster
        self._ends = LogEnds(options, cluster)
        self._delay = (
            BatchDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
            if options.min_offsets_per_trigger is not None
            else None
        )
        self._initial: Offsets | None = None
        self._must_anchor = False
        self._position: Offsets | None = None
        self._target: Offsets | None = None
        self._until_available_now = False

    def initial_offset(self) -> Offsets:
        """Where a query without checkpoint begins."""
        if self._initial is None:
            partitions = assigned_partitions(self._options.topics, self._cluster)
            require_all(self._options.topics, partitions)
            matching = {"latest_if_unmatched": self._options.latest_if_unmatched}
            self._initial = resolve_start(self._options.starting, partitions, self._cluster, **matching)
            self._must_anchor = depends_on_now(self._options.starting, **matching)
        return self._initial

    def stop_at_what_is_there(self) -> None:
        """`Trigger.AvailableNow`: no further than the logs reach when the first micro-batch is planned."""
        self._until_available_now = True

    def latest(self, start: Offsets | None, *, limited: bool) -> Offsets:
        """The end of the next micro-batch, which is `start` where there is none yet. Spark 4.1 does not say
        where it is (`start` is None). `limited`: by the options `maxOffsetsPerTrigger` and
        `minOffsetsPerTrigger`."""
        if start is None:
            start = self._position if self._position is not None else self.initial_offset()
        ends = self._ends_after(start)
        if self._anchors(start):
            return start
        if not limited:
            return ends
        if self._delay is not None and not self._until_available_now:
            now_ms = round(self._cluster.now() * 1000)
            if self._delay.holds_back(start, ends, now_ms):
                return start
        if self._options.max_offsets_per_trigger is None:
            return ends
        new = self._cluster.earliest(ends.keys() - start.keys())
        return rate_limited(self._options.max_offsets_per_trigger, new | start, ends)

    def reported(self) -> Offsets | None:
        """How far the logs reached when they were last asked."""
        return self._target if self._target is not None else self._ends.known

    def tasks(self, start: Offsets, end: Offsets) -> list[OffsetRange]:
        """What the micro-batch reads, a range for each task."""
        self._position = end
        if start == self._initial and self._is_relative_to_now():
            # The first micro-batch, planned by an earlier run of the query, which began earlier: at its end.
            start = {
                partition: min(offset, end.get(partition, offset)) for partition, offset in start.items()
            }
        ranges = ranges_between(start, end, self._cluster, self._report)
        return split(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def committed(self, end: Offsets) -> None:
        self._position = end

    def _ends_after(self, start: Offsets) -> Offsets:
        if not self._until_available_now:
            return self._ends.after(start)
        if self._target is None:
            self._target = self._ends.after(start)
        return self._target

    def _is_relative_to_now(self) -> bool:
        return depends_on_now(self._options.starting, latest_if_unmatched=self._options.latest_if_unmatched)

    def _anchors(self, start: Offsets) -> bool:
        """Whether the micro-batch is to be the empty one that puts a start which depends on the time into the
        checkpoint. Without it a query that dies in its first micro-batch would begin later when it is started
        again, because Spark asks for the initial offset anew."""
        anchors = self._must_anchor and start == self._initial
        self._must_anchor = False
        return anchors

    def _report(self, error: DataLossError) -> None:
        report_data_loss(self._options, error)


class LogEnds:
    """How far the logs of all assigned partitions reach; asked for, but not too often."""

    def __init__(self, options: SourceOptions, cluster: ClusterView) -> None:
        self._options = options
        self._cluster = cluster
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._looked_for_topics_at = float("-inf")
        self._asked_at = float("-inf")
        self.known: Offsets | None = None

    def after(self, start: Mapping[TopicPartition, int]) -> Offsets:
        """Ends that were asked for just now, or those known where they differ from `start`."""
        wait_s = self._asked_at + ASK_INTERVAL_S - self._cluster.now()
        if wait_s > 0:
            if self.known is not None and self.known != start:
                return self.known
            self._cluster.pause(wait_s)
        ends = self._ask()
        for _ in range(self._options.fetch_offset_retries - 1):
            if not (behind := [each for each, end in ends.items() if end < start.get(each, 0)]):
                break
            _log.warning("offsets of %s are lower than before; asking again", sorted(behind))
            self._cluster.pause(self._options.fetch_offset_retry_interval_ms / 1000)
            ends = self._ask()
        self.known = ends
        return ends

    def _ask(self) -> Offsets:
        now = self._cluster.now()
        if now - self._looked_for_topics_at >= TOPICS_INTERVAL_S:
            self._partitions = assigned_partitions(self._options.topics, self._cluster)
            self._looked_for_topics_at = now
        ends = self._cluster.latest(self._partitions)
        self._asked_at = self._cluster.now()
        return ends


def report_data_loss(options: SourceOptions, error: DataLossError) -> None:
    """Raise, or tell the log and go on, as `failOnDataLoss` has it."""
    if options.fail_on_data_loss:
        raise error
    _log.warning("%s", error)
