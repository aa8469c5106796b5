"""The metadata log for those that fetch it here: how far each observer has come, and which fetches wait for
more.

committed records --node/controller_role--> MetadataReader.committed --> metadata_fetch.py answers
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from itertools import islice
from typing import Final, NamedTuple

from metadata_quorum.metadata.metadata_log import MetadataLog

OBSERVER_S: Final = 300.0
"""Who has not fetched for so long observes no more."""
MOST_OBSERVERS: Final = 10_000
"""Those that fetched last are kept, since a client may say any id."""
WOKEN_PER_TURN: Final = 100
"""Fetches that are answered in one turn of the loop; each takes some 50 to 100 microseconds."""


class ObserverState(NamedTuple):
    """How far an observer of the metadata log has come. Times in seconds on the loop's clock."""

    end_offset: int
    fetched_at: float
    caught_up_at: float | None


class MetadataReader:
    """The metadata log as it is fetched from this node; `committed` wakes the fetches that wait."""

    def __init__(self, log: MetadataLog, loop: asyncio.AbstractEventLoop) -> None:
        self.log = log
        self._observers: dict[int, ObserverState] = {}
        self._loop = loop
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
            now = self._loop.time()
            before = self._observers.pop(replica_id, None)
            caught_up = fetch_offset >= self.log.end_offset
            last = None if before is None else before.caught_up_at
            self._observers[replica_id] = ObserverState(fetch_offset, now, now if caught_up else last)
            self._forget_silent()

    def _forget_silent(self) -> None:
        since = self._loop.time() - OBSERVER_S
        while self._observers:
            oldest = next(iter(self._observers))
            if self._observers[oldest].fetched_at >= since and len(self._observers) <= MOST_OBSERVERS:
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
