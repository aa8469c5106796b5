"""Sends ISR changes to the controller: the data plane's `IsrChannel` port over the controller channel.

partition -> isr_requests -> here, with our broker id and epoch -> AlterPartition -> the active controller
"""

from __future__ import annotations

from collections.abc import Sequence

from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult
from kraft.broker.lifecycle import BrokerLifecycle
from kraft.peers.controller_channel import ControllerChannel


class BrokerIsrChannel:
    """Asks in the name of this broker's current registration."""

    def __init__(self, broker_id: int, lifecycle: BrokerLifecycle, links: ControllerChannel) -> None:
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._links = links

    async def alter_partitions(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        return await self._links.alter_partitions(self._broker_id, self._lifecycle.broker_epoch, items)
