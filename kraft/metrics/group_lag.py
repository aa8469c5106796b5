"""How far the groups that are coordinated here are behind, in records and in seconds.

    coordinator's offsets ──┬─> lag
    end of the partition ───┘   its leader knows it; where that is elsewhere it is asked, once per scrape

The end is the high watermark: what a consumer could read. Seconds are told from when the partition's end was
last seen at the group's offset, as kafka-lag-exporter does: no record is read for it.

There may be a million positions: it is done over many turns of the loop, once for all who scrape meanwhile.
"""

from __future__ import annotations

import asyncio
from collections import Counter, deque
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import groupby
from typing import Any, Final, NamedTuple

from data_plane.coordinator.groups.messages import GroupSummary
from kraft.api.context import BrokerContext
from kraft.api.slices import in_slices
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.offset_timestamps import LATEST_TIMESTAMP

_ENDS_KEPT: Final = 60
_ASK_TIMEOUT_S: Final = 1.0
_LIST_OFFSETS_VERSION: Final = 7
_CONSUMER: Final = -1
POSITIONS_PER_SLICE: Final = 1_000
"""Between two turns of the loop."""
ASKED_AT_ONCE: Final = 1_000
"""Partitions in one request to their leader."""

End = tuple[float, int]
"""When a partition was seen to end there."""
Ends = deque[End]


class PartitionLag(NamedTuple):
    """A group's position in a partition. `end` and what follows from it are None where no leader told it."""

    partition: TopicPartition
    offset: int
    end: int | None
    lag: int | None
    lag_s: float | None


class GroupLag(NamedTuple):
    group: GroupSummary
    partitions: list[PartitionLag]
    max_lag: int = 0
    max_lag_s: float = 0.0


@dataclass(slots=True)
class GroupLags:
    """See the module."""

    _broker: BrokerContext
    groups: list[GroupLag] = field(default_factory=list)
    """As of the last `refresh`."""
    counts: Counter[tuple[str, str]] = field(default_factory=Counter)
    """How many groups there are, by type and state."""
    _ends: Mapping[TopicPartition, Ends] = field(default_factory=dict)
    """When each partition was seen to end where."""
    _refreshing: asyncio.Lock = field(default_factory=asyncio.Lock)
    _begun: int = 0
    """How many looks have begun."""
    _newest: int = 0
    """Which of them has come to its end last."""

    async def refresh(self) -> None:
        """Look at the groups and at their partitions."""
        begun = self._begun
        async with self._refreshing:
            if self._newest <= begun:  # else somebody has looked since
                self._begun += 1
                await self._look()
                self._newest = self._begun

    async def _look(self) -> None:
        work = self._broker.node.long_work
        groups: list[GroupSummary] = []
        read: dict[TopicPartition, int | None] = {}  # where each ends
        summaries = self._broker.group_coordinator.summaries()
        async for group in in_slices(work, summaries, POSITIONS_PER_SLICE, _weight):
            groups.append(group)
            read.update(dict.fromkeys(group.offsets))
        elsewhere: list[TopicPartition] = []
        async for tp in in_slices(work, list(read), POSITIONS_PER_SLICE):
            read[tp] = end = self._local_end(tp)
            if end is None:
                elsewhere.append(tp)
        read |= await self._ask(elsewhere)
        now, ends = self._broker.node.loop.time(), {}
        async for tp, end in in_slices(work, read.items(), POSITIONS_PER_SLICE):
            seen = ends[tp] = self._ends.get(tp) or deque(maxlen=_ENDS_KEPT)
            if end is not None and (not seen or seen[-1][1] != end):
                seen.append((now, end))
        lags: list[GroupLag] = []
        counts: Counter[tuple[str, str]] = Counter()
        async for group in in_slices(work, groups, POSITIONS_PER_SLICE, _weight):
            counts[group.listed.type.value, group.listed.state] += 1
            positions = [
                _lag(tp, kept.offset, read.get(tp), ends.get(tp, ()), now)
                for tp, kept in group.offsets.items()
            ]
            most = max((each.lag or 0 for each in positions), default=0)
            longest = max((each.lag_s or 0.0 for each in positions), default=0.0)
            lags.append(GroupLag(group, positions, most, longest))
        self.groups, self.counts, self._ends = lags, counts, ends

    def _local_end(self, tp: TopicPartition) -> int | None:
        try:
            partition = self._broker.replica_manager.get(*tp)
        except BrokerError:
            return None
        return None if partition.leader is None else partition.high_watermark

    async def _ask(self, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        image = self._broker.node.image
        by_leader: dict[int, list[TopicPartition]] = {}
        async for tp in in_slices(self._broker.node.long_work, partitions, POSITIONS_PER_SLICE):
            known = image.partition(tp)
            if known is not None and known.leader >= 0:
                by_leader.setdefault(known.leader, []).append(tp)
        answers = await asyncio.gather(*(self._ask_leader(*item) for item in by_leader.items()))
        return {tp: end for answer in answers for tp, end in answer.items()}

    async def _ask_leader(self, leader: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        """What it has answered in time, of very many partitions one part after the other."""
        loop, found = self._broker.node.loop, dict[TopicPartition, int]()
        over = loop.time() + _ASK_TIMEOUT_S
        for start in range(0, len(partitions), ASKED_AT_ONCE):
            fields = {
                "replica_id": _CONSUMER,
                "isolation_level": 0,
                "topics": _topics(partitions[start : start + ASKED_AT_ONCE]),
            }
            try:
                answer = await self._broker.console_channels.ask(
                    leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields, max(over - loop.time(), 0.0)
                )
            except OSError:
                break
            for topic in answer.topics:
                for each in topic.partitions:
                    if not each.error_code:
                        found[TopicPartition(topic.name, each.partition_index)] = each.offset
        return found


def _weight(group: GroupSummary) -> int:
    return 1 + len(group.members) + len(group.offsets)


def _lag(tp: TopicPartition, offset: int, end: int | None, seen: Iterable[End], now: float) -> PartitionLag:
    if end is None:
        return PartitionLag(tp, offset, None, None, None)
    lag = max(end - offset, 0)
    if not lag:
        return PartitionLag(tp, offset, end, 0, 0.0)
    passed = next((at for at, each in seen if each > offset), now)
    return PartitionLag(tp, offset, end, lag, now - passed)


def _topics(partitions: list[TopicPartition]) -> list[dict[str, Any]]:
    newest = {"current_leader_epoch": -1, "timestamp": LATEST_TIMESTAMP}
    return [
        {"name": topic, "partitions": [{"partition_index": each.partition, **newest} for each in its]}
        for topic, its in groupby(sorted(partitions), key=lambda tp: tp.topic)
    ]
