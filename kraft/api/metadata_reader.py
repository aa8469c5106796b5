"""The metadata log for those that fetch it here: how far each observer has come, and which fetches wait for
more.

committed records --node/controller_role--> MetadataReader.committed --> metadata_fetch.py answers
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import islice
from typing import Final, NamedTuple

from metadata_quorum.metadata.metadata_log import MetadataLog

OBSERVER_MS: Final = 300_000
"""Who has not fetched for so long observes no more."""
MOST_OBSERVERS: Final = 10_000
"""Those that fetched last are kept, since a client may say any id."""
WOKEN_PER_TURN: Final = 100
"""Fetches that are answered in one turn of the loop; each takes some 50 to 100 microseconds."""


class ObserverState(NamedTuple):
    """How far an observer of the metadata log has come."""

    end_offset: int
    fetched_at_ms: int
    caught_up_at_ms: int


class MetadataReader:
    """The metadata log as it is fetched from this node; `committed` wakes the fetches that wait."""

    def __init__(self, log: MetadataLog, loop: asyncio.AbstractEventLoop, now_ms: Callable[[], int]) -> None:
        self.log = log
        self._observers: dict[int, ObserverState] = {}
        self._loop = loop
        self._now_ms = now_ms
        self._waiting: dict[asyncio.Future[None], None] = {}
        self._woken: dict[asyncio.Future[None], None] = {}
        """There is more for them, and they are told in one of the next turns."""
        self._wakes_soon = False

    @property
    def observers(self) -> Mapping[int, ObserverState]:
        """Brokers that fetch from this node, by id; first those that fetched longest ago."""
        self._forget_silent()
        return self._observers

    def committed(self) -> None:
        """The log has grown."""
        self._woken.update(self._waiting)
        self._waiting = {}
        if not self._wakes_soon:
            self._wake_some()

    def _wake_some(self) -> None:
        self._wakes_soon = len(self._woken) > WOKEN_PER_TURN
        if self._wakes_soon:
            self._loop.call_soon(self._wake_some)
        for each in list(islice(self._woken, WOKEN_PER_TURN)):
            del self._woken[each]
            if not each.done():
                each.set_result(None)

    def note(self, replica_id: int, fetch_offset: int) -> None:
        """A broker has everything before `fetch_offset`. A replica id below 0 is no broker's."""
        if replica_id >= 0:
            now_ms = self._now_ms()
            before = self._observers.pop(replica_id, None)
            caught_up = fetch_offset >= self.log.end_offset
            last = -1 if before is None else before.caught_up_at_ms
            self._observers[replica_id] = ObserverState(fetch_offset, now_ms, now_ms if caught_up else last)
            self._forget_silent()

    def _forget_silent(self) -> None:
        since = self._now_ms() - OBSERVER_MS
        while self._observers:
            oldest = next(iter(self._observers))
            if self._observers[oldest].fetched_at_ms >= since and len(self._observers) <= MOST_OBSERVERS:
                break
            del self._observers[oldest]

    def more(self, timeout_s: float) -> asyncio.Future[None]:
        """Done when something is committed, or after `timeout_s`."""
        wait: asyncio.Future[None] = self._loop.create_future()
        self._waiting[wait] = None
        timer = self._loop.call_later(timeout_s, self._time_is_up, wait)

        def ended(done: asyncio.Future[None]) -> None:
            timer.cancel()
            self._waiting.pop(done, None)
            self._woken.pop(done, None)

        wait.add_done_callback(ended)
        return wait

    def _time_is_up(self, wait: asyncio.Future[None]) -> None:
        if not wait.done():
            wait.set_result(None)
