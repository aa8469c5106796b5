"""Brokers that die, and what clients are told of them until the quorum has decided.

    a connection of theirs breaks --> lost()   in doubt: named as a node, not as a leader
    they are heard again -----------> back()   \\
    the quorum has fenced them -----> take()    > out of doubt
    or half a second passes -------->          /

A killed leader's clients see their connections break when we do, and ask for metadata at once. The answer
must not name the dead leader once more: librdkafka would be content with it, and ask again only in its
next round, up to a second later. It says LEADER_NOT_AVAILABLE instead, as for a partition that waits
for its election, and librdkafka asks again every 100, 200, 400 ms.

The fence itself is told a moment late, so that nobody misses this first answer whose question took its
time. For no client must learn of the broker's end and of the new leader from one answer: librdkafka from
2.10 on drops a broker that is no longer listed together with the partitions that still hang on it,
though it has just been told where these belong, and again waits for its next round.
"""

from __future__ import annotations

import asyncio
from collections.abc import Collection
from typing import Final

from metadata_quorum.image import MetadataDelta, MetadataImage

NEWS_FIRST_S: Final = 0.002
"""A question and the break that it comes from may be read in one turn of the loop, the question first."""
TOLD_LATE_S: Final = 0.05
"""From the fence to the first answers that name the new leaders: below the 100 ms after which
librdkafka asks for the second time."""
DOUBT_LIMIT_S: Final = 0.5
"""Longer than an election and a fence usually take; then clients are told what the metadata says."""


class Departures:
    """One per broker."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._unfenced: set[int] = set()
        self._doubts: dict[int, asyncio.TimerHandle] = {}
        self._before: MetadataImage | None = None

    async def heard(self) -> None:
        """Wait for what is just coming in."""
        await asyncio.sleep(NEWS_FIRST_S)

    def image_told(self, newest: MetadataImage) -> MetadataImage:
        """What clients are told of leaders and brokers: the newest image, a moment after a fence."""
        return newest if self._before is None else self._before

    @property
    def in_doubt(self) -> Collection[int]:
        """The brokers that nobody should be sent to just now."""
        return self._doubts.keys()

    def lost(self, broker_id: int) -> None:
        """The other end of a connection with that broker broke it off."""
        if broker_id in self._unfenced and broker_id not in self._doubts:
            self._doubt(broker_id, DOUBT_LIMIT_S)

    def back(self, broker_id: int) -> None:
        """It is there, or we have waited long enough."""
        doubt = self._doubts.pop(broker_id, None)
        if doubt is not None:
            doubt.cancel()
        if not self._doubts:
            self._before = None

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Committed metadata."""
        for broker_id in delta.changed_brokers:
            broker = image.brokers.get(broker_id)
            if broker is not None and not broker.fenced:
                self._unfenced.add(broker_id)
            elif broker_id in self._unfenced:
                self._unfenced.discard(broker_id)
                if self._before is None:
                    self._before = delta.image
                if broker_id in self._doubts:
                    self._doubts.pop(broker_id).cancel()
                self._doubt(broker_id, TOLD_LATE_S)

    def _doubt(self, broker_id: int, limit_s: float) -> None:
        self._doubts[broker_id] = self._loop.call_later(limit_s, self.back, broker_id)
