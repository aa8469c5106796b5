"""The metadata log as it is fetched from this node: how far each observer has come, and who waits for more.

committed records --node/controller_role--> MetadataReader.committed --> metadata_fetch.py answers
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import NamedTuple

from metadata_quorum.metadata.metadata_log import MetadataLog


class ObserverState(NamedTuple):
    """How far an observer of the metadata log has come."""

    end_offset: int
    fetched_at_ms: int
    caught_up_at_ms: int


class MetadataReader:
    """The metadata log as it is fetched from this node; `committed` wakes the fetches that wait."""

    def __init__(self, log: MetadataLog, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self.log = log
        self.observers: dict[int, ObserverState] = {}
        """Brokers that fetch from this node, by id."""
        self._loop = loop
        self._now_ms = now_ms
        self._waiting: dict[asyncio.Future[None], None] = {}

    def committed(self) -> None:
        """The log has grown."""
        waiting, self._waiting = self._waiting, {}
        for each in waiting:
            if not each.done():
                each.set_result(None)

    def note(self, replica_id: int, fetch_offset: int) -> None:
        """A broker has everything before `fetch_offset`. A replica id below 0 is no broker's."""
        if replica_id >= 0:
            now_ms = self._now_ms()
            before = self.observers.get(replica_id)
            caught_up = fetch_offset >= self.log.end_offset
            last = -1 if before is None else before.caught_up_at_ms
            self.observers[replica_id] = ObserverState(fetch_offset, now_ms, now_ms if caught_up else last)

    def more(self, timeout_s: float) -> asyncio.Future[None]:
        """Done when something is committed, or after `timeout_s`."""
        wait: asyncio.Future[None] = self._loop.create_future()
        self._waiting[wait] = None
        timer = self._loop.call_later(timeout_s, self._time_is_up, wait)

        def ended(done: asyncio.Future[None]) -> None:
            timer.cancel()
            self._waiting.pop(done, None)

        wait.add_done_callback(ended)
        return wait

    def _time_is_up(self, wait: asyncio.Future[None]) -> None:
        if not wait.done():
            wait.set_result(None)
