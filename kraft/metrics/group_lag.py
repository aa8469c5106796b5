"""How far the groups that are coordinated here are behind, in records and in seconds.

    coordinator's offsets ──┬─> lag
    end of the partition ───┘   its leader knows it; where that is elsewhere it is asked, once per scrape

The end is the high watermark: what a consumer could read. Seconds are told from when the partition's end was
last seen at the group's offset, as kafka-lag-exporter does: no record is read for it.
"""

from __future__ import annotations

import asyncio
from collections import deque
from dataclasses import dataclass, field
from itertools import groupby
from typing import Final, NamedTuple

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


@dataclass(slots=True)
class GroupLags:
    """See the module."""

    _broker: BrokerContext
    groups: list[GroupLag] = field(default_factory=list)
    """As of the last `refresh`."""
    _ends: dict[TopicPartition, deque[tuple[float, int]]] = field(default_factory=dict)
    """When each partition was seen to end where."""

    async def refresh(self) -> None:
        """Look at the groups and at their partitions."""
        groups = list(self._broker.group_coordinator.summaries())
        read = {partition for group in groups for partition in group.offsets}
        ends = {tp: end for tp in read if (end := self._local_end(tp)) is not None}
        ends |= await self._ask(read - ends.keys())
        now = self._broker.node.loop.time()
        for gone in self._ends.keys() - read:
            self._ends.pop(gone, None)
        for tp, end in ends.items():
            seen = self._ends.setdefault(tp, deque(maxlen=_ENDS_KEPT))
            if not seen or seen[-1][1] != end:
                seen.append((now, end))
        lags = []
        async for group in in_slices(
            self._broker.node.long_work, groups, POSITIONS_PER_SLICE, lambda group: 1 + len(group.offsets)
        ):
            positions = [self._lag(tp, kept.offset, ends.get(tp), now) for tp, kept in group.offsets.items()]
            lags.append(GroupLag(group, positions))
        self.groups = lags

    def _lag(self, tp: TopicPartition, offset: int, end: int | None, now: float) -> PartitionLag:
        if end is None:
            return PartitionLag(tp, offset, None, None, None)
        lag = max(end - offset, 0)
        if not lag:
            return PartitionLag(tp, offset, end, 0, 0.0)
        passed = [at for at, seen in self._ends[tp] if seen > offset]
        return PartitionLag(tp, offset, end, lag, now - passed[0] if passed else 0.0)

    def _local_end(self, tp: TopicPartition) -> int | None:
        try:
            partition = self._broker.replica_manager.get(*tp)
        except BrokerError:
            return None
        return None if partition.leader is None else partition.high_watermark

    async def _ask(self, partitions: set[TopicPartition]) -> dict[TopicPartition, int]:
        image = self._broker.node.image
        by_leader: dict[int, list[TopicPartition]] = {}
        for tp in sorted(partitions):
            known = image.partition(tp)
            if known is not None and known.leader >= 0:
                by_leader.setdefault(known.leader, []).append(tp)
        answers = await asyncio.gather(*(self._ask_leader(*item) for item in by_leader.items()))
        return {tp: end for answer in answers for tp, end in answer.items()}

    async def _ask_leader(self, leader: int, partitions: list[TopicPartition]) -> dict[TopicPartition, int]:
        topics = [
            {
                "name": topic,
                "partitions": [
                    {
                        "partition_index": each.partition,
                        "current_leader_epoch": -1,
                        "timestamp": LATEST_TIMESTAMP,
                    }
                    for each in its
                ],
            }
            for topic, its in groupby(partitions, key=lambda tp: tp.topic)
        ]
        fields = {"replica_id": _CONSUMER, "isolation_level": 0, "topics": topics}
        try:
            answer = await self._broker.console_channels.ask(
                leader, ApiKey.LIST_OFFSETS, _LIST_OFFSETS_VERSION, fields, _ASK_TIMEOUT_S
            )
        except OSError:
            return {}
        return {
            TopicPartition(topic.name, each.partition_index): each.offset
            for topic in answer.topics
            for each in topic.partitions
            if not each.error_code
        }
