"""All fetchers of a broker: which one follows which partition (num.replica.fetchers per leader).

kraft/node/metadata_publisher.py calls `follow` for every partition whose leader or leader epoch changed. A
fetcher lives as long as it has a partition.
"""

from __future__ import annotations

import zlib
from collections import deque
from collections.abc import Callable, Iterator
from typing import Final

from data_plane.replication.partition import Partition
from fetch.fetcher import FetcherContext, ReplicaFetcher
from fetch.leader_endpoint import LeaderEndpoint
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import NO_LEADER
from metadata_quorum.foundation.turns import some_per_turn

MOVED_PER_TURN: Final = 100
"""Partitions, from one fetcher to another."""


class ReplicaFetcherManager:
    """Assigns partitions to fetchers."""

    def __init__(
        self,
        context: FetcherContext,
        connect: Callable[[int, int], LeaderEndpoint],
        *,
        fetchers_per_leader: int = 1,
    ) -> None:
        """`connect(leader id, fetcher id)` makes an endpoint; it connects at the first request."""
        self._context = context
        self._connect = connect
        self._per_leader = fetchers_per_leader
        self._fetchers: dict[tuple[int, int], ReplicaFetcher] = {}
        self._assigned: dict[Partition, tuple[int, int]] = {}
        self._closed = False

    def __iter__(self) -> Iterator[ReplicaFetcher]:
        return iter(self._fetchers.values())

    def __len__(self) -> int:
        return len(self._assigned)

    def resize(self, fetchers_per_leader: int) -> None:
        """Use that many fetchers per leader from now on; partitions move to those that are now theirs, some
        in each turn of the loop."""
        if fetchers_per_leader != self._per_leader:
            self._per_leader = fetchers_per_leader
            some_per_turn(self._context.loop, deque(self._assigned), MOVED_PER_TURN, self._move)

    def _move(self, partition: Partition) -> None:
        if partition in self._assigned:  # else it is not followed any more
            self.follow(partition)

    def follow(self, partition: Partition) -> None:
        """Follow the partition's leader, after the leader or its epoch has changed."""
        if partition.leader_id == NO_LEADER or partition.leader is not None:
            self.unfollow(partition)
            return
        partition.on_stopped = self.unfollow
        if partition.flushes_each_append and partition.log.unflushed_records:
            # To ask for more says that all before is kept: also what an earlier process has written.
            self.unfollow(partition)
            partition.when_flushed(lambda error: self._follow_durable(partition, error))
            return
        place = (partition.leader_id, self._fetcher_id(partition))
        if self._assigned.get(partition, place) != place:
            self.unfollow(partition)
        self._assigned[partition] = place
        fetcher = self._fetchers.get(place)
        if fetcher is None:
            fetcher = ReplicaFetcher(place[0], self._connect(*place), self._context)
            self._fetchers[place] = fetcher
        fetcher.add(partition)

    def _follow_durable(self, partition: Partition, error: ErrorCode) -> None:
        if error is ErrorCode.NONE and not self._closed:  # else its role has changed meanwhile
            self.follow(partition)

    def unfollow(self, partition: Partition) -> None:
        """Stop following a partition: it leads now, has no leader, or is gone."""
        place = self._assigned.pop(partition, None)
        if place is None:
            return
        fetcher = self._fetchers[place]
        fetcher.remove(partition)
        if not len(fetcher):
            del self._fetchers[place]
            fetcher.stop()

    async def close(self) -> None:
        self._closed = True
        fetchers = list(self._fetchers.values())
        self._fetchers.clear()
        self._assigned.clear()
        for fetcher in fetchers:
            await fetcher.close()

    def _fetcher_id(self, partition: Partition) -> int:
        return (zlib.crc32(partition.tp.topic.encode()) + partition.tp.partition) % self._per_leader
