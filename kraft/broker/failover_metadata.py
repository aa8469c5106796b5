"""Brokers that die, and what clients are told of them until the quorum has decided.

    a connection of theirs breaks --> lost()   in doubt
    they are heard again -----------> back()   \\
    the quorum has fenced them -----> take()    > out of doubt
    or half a second passes -------->          /

A killed leader's clients see their connections break when we do, and ask for metadata at once. What they
hear then decides how long they stand still, for librdkafka asks by itself only once a second:

* An answer that names the dead leader once more contents it. So the answer waits for the fence, a few
  hundredths of a second as a rule, and names the new leaders.
* An answer that no longer lists the dead broker makes it (from 2.10 on) throw the broker away, together
  with the partitions that still hang on it, though the same answer says where these belong. So the broker
  is still listed, as a node, in the first moment after its fence.
* A transactional producer of librdkafka that keeps a group's coordinator in mind, and whose metadata does not
  list it, waits for it without end (librdkafka's issue 5511): it looks for another one only when the state of
  some broker changes. Where there are transactions, a dead broker is therefore listed for as long as Apache
  Kafka would list it, until its session would have timed out; meanwhile the producer tries to reach it, and
  looks around.
* A broker that stays in its list keeps its reconnect backoff, up to ten seconds, and where broker after
  broker dies it may soon be the leader again. Deaths soon after another are therefore told differently:
  LEADER_NOT_AVAILABLE first, as for a partition that waits for its election, which takes the partitions
  off the broker; and when the client asks again, the new leaders, without the dead.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from data_plane.coordinator.transactions.service import TRANSACTIONS_TOPIC
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

READ_AHEAD_S: Final = 0.002
"""A question and the break that it comes from may be read in one turn of the loop, the question first."""
AFTER_FENCE_S: Final = 0.05
"""After a fence: for questions that took their time, and below the 100 ms after which they are repeated."""
SUSPECT_LIMIT_S: Final = 0.5
"""Longer than an election and a fence usually take; then clients are told what the metadata says."""
REPEATED_FAILURE_S: Final = 20.0
"""Another death: twice librdkafka's longest reconnect backoff."""


class FailoverMetadata:
    """One per broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop, session_timeout_s: float) -> None:
        self._loop = loop
        self._session_timeout_s = session_timeout_s
        self._unfenced: set[int] = set()
        self._last_death = float("-inf")
        self._suspects: dict[int, asyncio.TimerHandle] = {}
        self._waiting: list[asyncio.Future[None]] = []
        self._still_listed: dict[int, asyncio.TimerHandle] = {}
        self._image_before: MetadataImage | None = None

    # --- what happens -------------------------------------------------------------------------

    def broker_lost(self, broker_id: int) -> None:
        """The other end of a connection with that broker broke it off."""
        if broker_id in self._unfenced and broker_id not in self._suspects:
            self._suspect(broker_id, SUSPECT_LIMIT_S)

    def broker_back(self, broker_id: int) -> None:
        """It is there, or we have waited long enough."""
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
        self._last_death = self._loop.time()
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
        return self._loop.time() - self._last_death < REPEATED_FAILURE_S

    # --- what is told -------------------------------------------------------------------------

    @property
    def suspected(self) -> Collection[int]:
        """The brokers that nobody should be sent to just now."""
        return self._suspects.keys()

    @property
    def still_listed(self) -> Collection[int]:
        """Brokers that are fenced, and yet named as nodes."""
        return self._still_listed.keys()

    def client_image(self, newest: MetadataImage) -> MetadataImage:
        """The newest image; in the first moment after one more death the one before."""
        return newest if self._image_before is None else self._image_before

    async def settled(self) -> None:
        """Wait with an answer that names leaders: for what is just coming in and, where this is not one
        death after another, for the quorum's decision."""
        await asyncio.sleep(READ_AHEAD_S)
        while self._suspects and not self._is_repeated_failure:
            future: asyncio.Future[None] = self._loop.create_future()
            self._waiting.append(future)
            await future


def _has_transactions(image: MetadataImage) -> bool:
    return TRANSACTIONS_TOPIC in image.topics_by_name
