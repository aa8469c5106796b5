"""A streaming query's driver: where it begins, how far the next micro-batch reads, and its tasks.

    initial_offset -> latest(start) -> tasks(start, end) -> latest(end) -> ...

Spark calls for the latest offsets about every 15 ms while there is nothing to do. ListOffsets is sent every
`ASK_INTERVAL_S` at most; an earlier call is answered from the cache if that has news, and otherwise waits for
the next request, which also slows Spark down while there are none.

The topics' ids belong to the offsets. A topic that was deleted and re-created is another topic: that is a
data loss, and with `failOnDataLoss` off the new one is read from its first record.
"""

from __future__ import annotations

import logging
from typing import Final, Protocol

from metadata_quorum.foundation.model import TopicPartition
from spark_connector.assignment import TopicLookup, assigned_partitions, ids_of, require_all
from spark_connector.errors import DataLossError
from spark_connector.offsets import (
    NO_OFFSET,
    OffsetLookup,
    OffsetRange,
    Offsets,
    StreamOffset,
    TopicIds,
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


class StreamCluster(OffsetLookup, TopicLookup, Protocol):
    """The cluster, and the time that passes during its requests."""

    def now(self) -> float:
        """Seconds; monotonic."""
        ...

    def pause(self, seconds: float) -> None: ...


class StreamPlanner:
    """Plans the micro-batches of one run of a query."""

    def __init__(self, options: SourceOptions, cluster: StreamCluster) -> None:
        self._options = options
        self._cluster = cluster
        self._ends = LogEnds(options, cluster)
        self._delay = (
            BatchDelay(options.min_offsets_per_trigger, options.max_trigger_delay_ms)
            if options.min_offsets_per_trigger is not None
            else None
        )
        self._initial: StreamOffset | None = None
        self._must_anchor = False
        self._position: StreamOffset | None = None
        self._target: StreamOffset | None = None
        self._until_available_now = False

    def initial_offset(self) -> StreamOffset:
        """Where a query without checkpoint begins."""
        if self._initial is None:
            partitions = assigned_partitions(self._options.topics, self._cluster)
            require_all(self._options.topics, partitions)
            matching = {"latest_if_unmatched": self._options.latest_if_unmatched}
            offsets = resolve_start(self._options.starting, partitions, self._cluster, **matching)
            self._initial = StreamOffset(offsets, ids_of(offsets, self._cluster))
            self._must_anchor = depends_on_now(self._options.starting, **matching)
        return self._initial

    def stop_at_what_is_there(self) -> None:
        """`Trigger.AvailableNow`: no further than the logs reach when the first micro-batch is planned."""
        self._until_available_now = True

    def latest(self, start: StreamOffset | None, *, limited: bool) -> StreamOffset:
        """The end of the next micro-batch, which is `start` where there is none yet. Spark 4.1 does not pass
        it (`start` is None). `limited`: by the options `maxOffsetsPerTrigger` and
        `minOffsetsPerTrigger`."""
        if start is None:
            start = self._position if self._position is not None else self.initial_offset()
        ends = self._ends_after(start)
        if self._anchors(start):
            return start
        if not limited:
            return ends
        begin = start.without(ends.recreated_since(start)).offsets
        if self._delay is not None and not self._until_available_now:
            now_ms = round(self._cluster.now() * 1000)
            if self._delay.holds_back(begin, ends.offsets, now_ms):
                self._ends.rest()  # the same answer at once would have Spark ask again at once
                return start
        if self._options.max_offsets_per_trigger is None:
            return ends
        new = self._cluster.earliest(ends.offsets.keys() - begin.keys())
        most = rate_limited(self._options.max_offsets_per_trigger, new | begin, ends.offsets)
        return ends._replace(offsets=most)

    def reported(self) -> StreamOffset | None:
        """Where the logs ended at the last request."""
        return self._target if self._target is not None else self._ends.known

    def tasks(self, start: StreamOffset, end: StreamOffset) -> list[OffsetRange]:
        """What the micro-batch reads, a range for each task."""
        self._position = end
        begin = self._without_recreated_topics(start, end).offsets
        if start == self._initial and self._ends.known is None:
            begin = self._as_planned_before(begin, end.offsets)
        ranges = ranges_between(begin, end.offsets, self._cluster, self._report)
        return split(ranges, self._options.min_partitions, self._options.max_records_per_partition)

    def _as_planned_before(self, begin: Offsets, end: Offsets) -> Offsets:
        """Of the first micro-batch, which an earlier run planned: Spark asks for the initial offset again, as
        it is now. Partitions that the plan does not know belong to the next micro-batch, and a start that
        depends on the time was earlier: at its end."""
        planned = {each: offset for each, offset in begin.items() if each in end}
        if depends_on_now(self._options.starting, latest_if_unmatched=self._options.latest_if_unmatched):
            return {each: min(offset, end[each]) for each, offset in planned.items()}
        return planned

    def _without_recreated_topics(self, start: StreamOffset, end: StreamOffset) -> StreamOffset:
        """Offsets of a deleted topic do not apply to a re-created one, which is read from its beginning."""
        recreated = end.recreated_since(start)
        if recreated:
            self._report(
                DataLossError(
                    "PARTITIONS_DELETED",
                    f"{', '.join(sorted(recreated))}: deleted and re-created; "
                    "what was not read before is gone.",
                )
            )
        return start.without(recreated)

    def committed(self, end: StreamOffset) -> None:
        self._position = end

    def _ends_after(self, start: StreamOffset) -> StreamOffset:
        if not self._until_available_now:
            return self._ends.after(start)
        if self._target is None:
            self._target = self._ends.after(start)
        return self._target

    def _anchors(self, start: StreamOffset) -> bool:
        """Whether the micro-batch must be the empty one that writes a start which depends on the time into
        the checkpoint. Without it a query that fails in its first micro-batch would begin later when it is
        restarted, because Spark calls for the initial offset again."""
        anchors = self._must_anchor and start == self._initial
        self._must_anchor = False
        return anchors

    def _report(self, error: DataLossError) -> None:
        report_data_loss(self._options, error)


class LogEnds:
    """The ends of the logs of all assigned partitions; requested at most every `ASK_INTERVAL_S`."""

    def __init__(self, options: SourceOptions, cluster: StreamCluster) -> None:
        self._options = options
        self._cluster = cluster
        self._partitions: frozenset[TopicPartition] = frozenset()
        self._topic_ids: TopicIds = {}
        self._looked_for_topics_at = float("-inf")
        self._asked_at = float("-inf")
        self.known: StreamOffset | None = None

    def after(self, start: StreamOffset) -> StreamOffset:
        """New ends, or the cached ones where they differ from `start`."""
        if self._too_soon_s > 0 and self.known is not None and self.known.offsets != start.offsets:
            return self.known
        self.rest()
        ends = self._ask(start)
        for _ in range(self._options.fetch_offset_retries - 1):
            if not (behind := _behind(start, ends)):
                break
            _log.warning("%s are gone, or end sooner than before; asking again", ", ".join(map(str, behind)))
            self._cluster.pause(self._options.fetch_offset_retry_interval_ms / 1000)
            self._looked_for_topics_at = float("-inf")
            ends = self._ask(start)
        self.known = ends
        return ends

    def rest(self) -> None:
        """Until the leaders may be asked again."""
        if (wait_s := self._too_soon_s) > 0:
            self._cluster.pause(wait_s)

    @property
    def _too_soon_s(self) -> float:
        return self._asked_at + ASK_INTERVAL_S - self._cluster.now()

    def _ask(self, start: StreamOffset) -> StreamOffset:
        now = self._cluster.now()
        if now - self._looked_for_topics_at >= TOPICS_INTERVAL_S:
            read_before = {each.topic for each in start.offsets}
            self._partitions = assigned_partitions(self._options.topics, self._cluster, read_before)
            self._topic_ids = ids_of(self._partitions, self._cluster)
            self._looked_for_topics_at = now
        ends = self._cluster.latest(self._partitions)
        self._asked_at = self._cluster.now()
        return StreamOffset(ends, self._topic_ids)


def _behind(start: StreamOffset, ends: StreamOffset) -> list[TopicPartition]:
    """Partitions that seem to be shorter than they were, or gone, or those of another topic. So a broker says
    that is cut off from the others, and the next one knows better. Believed at once, it would be a data loss;
    and without `failOnDataLoss`, all of the partition would be read again a moment later, as a new one's."""
    there = ends.without(ends.recreated_since(start)).offsets
    return sorted(each for each, offset in start.offsets.items() if there.get(each, NO_OFFSET) < offset)


def report_data_loss(options: SourceOptions, error: DataLossError) -> None:
    """Raise, or log it and continue, as `failOnDataLoss` says."""
    if options.fail_on_data_loss:
        raise error
    _log.warning("%s", error)
