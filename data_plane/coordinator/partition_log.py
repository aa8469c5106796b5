"""What a coordinator needs of the partitions of its internal topic: a port; internal_topic.py implements it.

runtime.Shard appends to it and waits for its high watermark while it serves, and reads it while it loads.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol


class PartitionLog(Protocol):
    """All partitions of the topic that are on this broker."""

    def append(self, partition: int, leader_epoch: int, batch: bytearray) -> int:
        """Append as the leader of that epoch under acks=all rules; return the offset behind the
        batch. Raises BrokerError where this broker may not or cannot."""

    def max_batch_bytes(self, partition: int) -> int:
        """How large a batch may be. Raises BrokerError where this broker has no such partition."""

    def when_replicated(self, partition: int, offset: int, callback: Callable[[bool], None]) -> None:
        """Call with True once the high watermark has reached `offset`; at once where it already has. With
        False, if the wait is broken off: leadership is lost, or the ISR has become too small. Never, where
        this broker does not lead."""

    def bounds(self, partition: int) -> tuple[int, int]:
        """Log start and log end offset."""

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Whole batches, the first one holding `offset`; at least one, however large."""
