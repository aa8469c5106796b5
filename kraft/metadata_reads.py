"""The metadata log as others read it from a controller: Fetch of `__cluster_metadata`-0, and FetchSnapshot.

    broker-only node, Kafka's tools -> api/metadata_fetch -> here -> metadata log
    state machine -> published -> whoever waits at the end of the log

Every controller serves it, active or not: what is in the log is committed. A reader of it is an observer of
the quorum; where it stands is remembered for DescribeQuorum.
"""

from __future__ import annotations

import asyncio
from dataclasses import dataclass

from metadata_quorum.image import MetadataDelta, MetadataImage
from metadata_quorum.metadata_log import MetadataLog


@dataclass(frozen=True, slots=True)
class Observer:
    """A reader with a replica id. Times in wall-clock milliseconds, -1 where never."""

    log_end_offset: int
    last_fetch_ms: int
    last_caught_up_ms: int


class MetadataReads:
    """Readers of one controller's metadata log."""

    def __init__(self, log: MetadataLog, loop: asyncio.AbstractEventLoop) -> None:
        self.log = log
        self._loop = loop
        self._waiting: dict[asyncio.Future[None], None] = {}
        self.observers: dict[int, Observer] = {}

    def published(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """There is more to read."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def note_observer(self, replica_id: int, offset: int, now_ms: int) -> None:
        """A replica asks for what begins at `offset`, so it has all before."""
        known = self.observers.get(replica_id)
        caught_up = known.last_caught_up_ms if known is not None else -1
        if offset >= self.log.end_offset:
            caught_up = now_ms
        self.observers[replica_id] = Observer(offset, now_ms, caught_up)

    async def wait_beyond(self, offset: int, timeout_s: float) -> None:
        """Return when there is something at `offset`, or when time is up."""
        if offset < self.log.end_offset or timeout_s <= 0:
            return
        news: asyncio.Future[None] = self._loop.create_future()
        self._waiting[news] = None
        timer = self._loop.call_later(timeout_s, self._time_up, news)
        try:
            await news
        finally:
            timer.cancel()
            self._waiting.pop(news, None)

    @staticmethod
    def _time_up(news: asyncio.Future[None]) -> None:
        if not news.done():
            news.set_result(None)
