"""Metadata responses while a broker fails, until the quorum has decided.

    a connection to it breaks -------> broker_lost()   suspected
    it is heard from again ----------> broker_back()   \\
    the quorum fences it ------------> take()           > no longer suspected
    or SUSPECT_LIMIT_S pass -------->                  /

Clients of a killed leader see their connections break when we do, and send a Metadata request at once. The
response decides how long they make no progress, because librdkafka refreshes by itself only once a second:

* If the response still names the failed leader, librdkafka is content with it. So the response waits for the
  fence, usually a few hundredths of a second, and names the new leaders.
* If the response no longer lists the failed broker, librdkafka (2.10 and later) removes the broker and the
  partitions that are still assigned to it, although the same response names their leaders. So the broker is
  still listed, as a node, for AFTER_FENCE_S.
* A transactional producer of librdkafka that has cached a group's coordinator, and whose metadata does not
  list it, waits for it without end (librdkafka's issue 5511): it looks for another one only when the state of
  some broker changes. Where there are transactions, a failed broker is therefore listed for as long as Apache
  Kafka would list it, until its session would have timed out; meanwhile the producer tries to connect to it,
  fails, and looks for the new coordinator.
* A broker that stays in librdkafka's list keeps its reconnect backoff, up to ten seconds, and where one
  broker fails after another it may soon lead again. A repeated failure is therefore reported differently:
  LEADER_NOT_AVAILABLE first, as for a partition that waits for its election, which takes the partitions off
  the broker; then, on the client's next request, the new leaders, without the failed broker.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from data_plane.coordinator.topics import TRANSACTIONS_TOPIC
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

READ_AHEAD_S: Final = 0.002
"""A Metadata request and the broken connection that causes it may be read in one turn of the event loop,
the request first."""
AFTER_FENCE_S: Final = 0.05
"""After a fence: long enough for late requests, shorter than the 100 ms after which clients repeat them."""
SUSPECT_LIMIT_S: Final = 0.5
"""Longer than an election and a fence usually take; then clients get the metadata as it is."""
REPEATED_FAILURE_S: Final = 20.0
"""A failure so soon after another is a repeated one: twice librdkafka's longest reconnect backoff."""


class FailoverMetadata:
    """One per broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, session_timeout_s: float) -> None:
        self._loop = loop
        self._session_timeout_s = session_timeout_s
        self._unfenced: set[int] = set()
        self._last_failure = float("-inf")
        self._suspects: dict[int, asyncio.TimerHandle] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._still_listed: dict[int, asyncio.TimerHandle] = {}
        self._image_before: MetadataImage | None = None

    # --- events -------------------------------------------------------------------------

    def broker_lost(self, broker_id: int) -> None:
        """The other end of a connection with that broker broke it off."""
        if broker_id in self._unfenced and broker_id not in self._suspects:
            self._suspect(broker_id, SUSPECT_LIMIT_S)

    def broker_back(self, broker_id: int) -> None:
        """The broker has been heard from again, or SUSPECT_LIMIT_S have passed."""
        suspect = self._suspects.pop(broker_id, None)
        if suspect is None:
            return
        suspect.cancel()
        if not self._suspects:
            self._image_before = None
        waiting, self._waiting = self._waiting, []
        for future in waiting:
            if not future.done():
                future.set_result(None)

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Committed metadata."""
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                self._unfenced.add(broker_id)
                self._list_no_longer(broker_id)
            elif broker_id in self._unfenced:
                self._unfenced.discard(broker_id)
                self._fenced(broker_id, delta.image, with_transactions=_has_transactions(image))

    def _fenced(self, broker_id: int, before: MetadataImage, *, with_transactions: bool) -> None:
        again = self._is_repeated_failure
        self._last_failure = self._loop.time()
        if again:
            self._image_before = self._image_before or before
            if broker_id in self._suspects:
                self._suspects.pop(broker_id).cancel()
            self._suspect(broker_id, AFTER_FENCE_S)
        else:
            self._list_still(broker_id, AFTER_FENCE_S)
            self.broker_back(broker_id)
        if with_transactions:
            self._list_still(broker_id, self._session_timeout_s)

    def _list_still(self, broker_id: int, limit_s: float) -> None:
        self._list_no_longer(broker_id)
        self._still_listed[broker_id] = self._loop.call_later(limit_s, self._list_no_longer, broker_id)

    def _list_no_longer(self, broker_id: int) -> None:
        timer = self._still_listed.pop(broker_id, None)
        if timer is not None:
            timer.cancel()

    def _suspect(self, broker_id: int, limit_s: float) -> None:
        self._suspects[broker_id] = self._loop.call_later(limit_s, self.broker_back, broker_id)

    @property
    def _is_repeated_failure(self) -> bool:
        return self._loop.time() - self._last_failure < REPEATED_FAILURE_S

    # --- what clients see ---------------------------------------------------------------------

    @property
    def suspected(self) -> Collection[int]:
        """Brokers that no client should be sent to for now."""
        return self._suspects.keys()

    @property
    def still_listed(self) -> Collection[int]:
        """Brokers that are fenced, and yet named as nodes."""
        return self._still_listed.keys()

    def client_image(self, newest: MetadataImage) -> MetadataImage:
        """The newest image; after a repeated failure, the one before it for AFTER_FENCE_S."""
        return newest if self._image_before is None else self._image_before

    async def settled(self) -> None:
        """Delay a response that names leaders: for broken connections that are just being read and, unless
        the failure is a repeated one, for the quorum's decision."""
        await asyncio.sleep(READ_AHEAD_S)
        while self._suspects and not self._is_repeated_failure:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(future)
            await future


def _has_transactions(image: MetadataImage) -> bool:
    return TRANSACTIONS_TOPIC in image.topics_by_name
