"""ISR changes of all partitions on their way to the controller (Kafka's AlterPartitionManager).

One request is in flight at a time, with every partition that has submitted a change meanwhile. A partition
has at most one change in flight (leader_state.py), so a queued item is never replaced; it is dropped when the
partition no longer waits for it.

    Partition -> AlterPartitionManager -> IsrChannel (kraft/broker/isr_channel.py) -> AlterPartition
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import islice
from typing import Final, Protocol

from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult, IsrOutcome
from data_plane.replication.request_size import RequestSize
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import ended, report_fault, supervised

FIRST_RETRY_SECONDS: Final = 0.02
LAST_RETRY_SECONDS: Final = 0.5
MAYBE_EXPAND_SECONDS: Final = 0.3  # after a definite refusal; an idle follower does not ask again

_NO_ANSWER: Final = AlterPartitionResult(ErrorCode.UNKNOWN_SERVER_ERROR)


class IsrChannel(Protocol):
    """The way to the active controller."""

    async def alter_partitions(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        """The answers, in the order of `items`. Raises BrokerError, OSError or TimeoutError where the
        controller cannot be reached, is not active, or refuses the request as a whole."""


class IsrRequester(Protocol):
    """A partition that has a change of its ISR in flight (partition.py)."""

    tp: TopicPartition
    removed: bool

    def awaits(self, item: AlterPartitionItem) -> bool:
        """Whether `item` is still the change in flight."""

    def handle_alter_partition_response(
        self, item: AlterPartitionItem, answer: AlterPartitionResult, now: float
    ) -> IsrOutcome:
        """Take the controller's answer to `item`. `now` in seconds of the loop."""

    def maybe_expand_isr(self, now: float) -> None:
        """Ask again for a follower that may join the ISR."""

    def maybe_shrink_isr(self, now: float) -> None:
        """Ask for the changes that lagging followers, and followers that may join, make necessary."""

    @property
    def is_settled(self) -> bool:
        """Whether its ISR stays as it is until something is appended, or a follower falls back."""


@dataclass(slots=True)
class IsrStats:
    """Changes that leaders on this broker have asked for, as Kafka counts them."""

    shrinks: int = 0
    expands: int = 0
    failed: int = 0

    def count(self, item: AlterPartitionItem, error: ErrorCode) -> None:
        if error is not ErrorCode.NONE:
            self.failed += 1
        elif item.change.joining is None:
            self.shrinks += 1
        else:
            self.expands += 1


MOST_IN_REQUEST: Final = 500
"""Changes in one request; it takes some 15 ms to encode."""


class AlterPartitionManager:
    """The queue in front of the channel."""

    def __init__(self, channel: IsrChannel, loop: asyncio.AbstractEventLoop) -> None:
        self._channel = channel
        self._loop = loop
        self._queue: dict[IsrRequester, AlterPartitionItem] = {}
        self._task: asyncio.Task[None] | None = None
        self._retry_after = FIRST_RETRY_SECONDS
        self._size = RequestSize(MOST_IN_REQUEST)
        self._closed = False
        self.stats = IsrStats()

    def submit(self, partition: IsrRequester, item: AlterPartitionItem) -> None:
        self._queue[partition] = item
        if self._task is None and not self._closed:
            # The task starts in the loop's next turn and takes everything from this one.
            self._task = supervised(self._loop, self._drain(), "isr-requests")

    async def close(self) -> None:
        self._closed = True
        await ended(self._task)

    async def _drain(self) -> None:
        try:
            while self._queue:
                size = self._size.items
                taken = islice(self._queue.items(), size)
                batch = {p: item for p, item in taken if p.awaits(item)}
                self._queue = dict(islice(self._queue.items(), size, None))
                if batch and await self._send(batch):
                    await asyncio.sleep(self._retry_after)
                    self._retry_after = min(self._retry_after * 2, LAST_RETRY_SECONDS)
                else:
                    self._retry_after = FIRST_RETRY_SECONDS
        finally:
            self._task = None

    def _reconsider(self, partition: IsrRequester) -> None:
        if not self._closed and not partition.removed:
            partition.maybe_expand_isr(self._loop.time())

    async def _send(self, batch: dict[IsrRequester, AlterPartitionItem]) -> bool:
        """Returns whether some items must be sent again; they are back in the queue."""
        items = list(batch.values())
        try:
            answers = await self._channel.alter_partitions(items)
            self._size.taken()
        except Exception as error:  # noqa: BLE001
            if not isinstance(error, BrokerError | OSError):
                report_fault(self._loop, "asking for ISRs", error)
            answers = [_NO_ANSWER] * len(items)
            self._size.refused(len(items))
        again = False
        now = self._loop.time()
        for (partition, item), answer in zip(batch.items(), answers, strict=True):
            self.stats.count(item, answer.error)
            try:
                outcome = partition.handle_alter_partition_response(item, answer, now)
            except Exception as error:  # noqa: BLE001
                report_fault(self._loop, f"an answer about the ISR of {partition.tp}", error)
                continue
            if outcome is IsrOutcome.ASK_AGAIN:
                # A commit above may already have queued a newer change of the same partition.
                self._queue.setdefault(partition, item)
                again = True
            elif outcome is IsrOutcome.ROLLED_BACK:
                self._loop.call_later(MAYBE_EXPAND_SECONDS, self._reconsider, partition)
        return again
