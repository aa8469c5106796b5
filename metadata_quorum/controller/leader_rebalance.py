"""Leaders return to the preferred replicas: `auto.leader.rebalance.enable`, on the active controller.

timer -> image: who is led by another, though the preferred replica is in sync -> ElectLeaders
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.blocking import Blocking
from metadata_quorum.foundation.supervision import supervised
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol.commands import ELECTION_PREFERRED, Command, ElectLeaders, PartitionName

MAX_REBALANCED_AT_ONCE: Final = 1000
"""Partitions in one command; the others wait for the next round."""


def imbalanced_partitions(image: MetadataImage) -> list[PartitionName]:
    """Partitions that their preferred replica could lead, and does not."""
    return [
        PartitionName(topic=topic.name, partition=partition_id)
        for topic, partition_id, p in image.each_partition()
        if p.leader != p.preferred_replica
        and p.preferred_replica in p.isr
        and image.is_active(p.preferred_replica)
    ]


class LeaderRebalance:
    """The timer, which runs from `begin` to `end`. All partitions are looked at beside the loop."""

    def __init__(
        self,
        interval_s: float,
        loop: asyncio.AbstractEventLoop,
        state_machine: MetadataStateMachine,
        submit: Callable[[Command[object]], None],
        blocking: Blocking,
    ) -> None:
        self._interval_s = interval_s
        self._loop = loop
        self._state_machine = state_machine
        self._submit = submit
        self._blocking = blocking
        self._timer: asyncio.TimerHandle | None = None

    def begin(self) -> None:
        """This controller has become active."""
        self._timer = self._loop.call_later(self._interval_s, self._rebalance)

    def end(self) -> None:
        """This controller is not active any more."""
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None

    def _rebalance(self) -> None:
        self.begin()
        supervised(self._loop, self._look(self._state_machine.image), "leader-rebalance")

    async def _look(self, image: MetadataImage) -> None:
        partitions = await self._blocking(lambda _: imbalanced_partitions(image)[:MAX_REBALANCED_AT_ONCE])
        if partitions and self._timer is not None:
            self._submit(ElectLeaders(election_type=ELECTION_PREFERRED, partitions=tuple(partitions)))
