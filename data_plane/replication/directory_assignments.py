"""Where this broker's replicas lie is reported to the controller, if the metadata says otherwise (KIP-858).

A replica is new and its broker chose the directory; or its disk was replaced and has another id; or the
directory failed before the controller knew what it holds. Without the report the controller knows neither
which replicas a failed directory takes offline nor which may come back.

One request at a time, for all replicas that are to be reported; repeated until it is answered.
Path of the data: delta_applier.py -> here -> `DirectoryChannel` -> AssignReplicasToDirs.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import islice
from typing import Final, NamedTuple, Protocol
from uuid import UUID

from data_plane.replication.request_size import RequestSize
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.supervision import ended, report_fault, supervised

MAX_IN_REQUEST: Final = 2000
FIRST_RETRY_SECONDS: Final = 0.05
LAST_RETRY_SECONDS: Final = 2.0


class ReplicaAssignment(NamedTuple):
    """A replica of this broker, and the id of the directory that it lies in."""

    topic_id: UUID
    partition: int
    directory: UUID


class DirectoryChannel(Protocol):
    """The way to the active controller."""

    async def assign_replicas(self, places: Sequence[ReplicaAssignment]) -> None:
        """Returns once the controller has decided on all; it refuses those that no longer exist. Raises
        BrokerError, OSError or TimeoutError where it cannot be reached or is not active."""


class AssignmentsManager:
    """The queue in front of the channel."""

    def __init__(self, channel: DirectoryChannel, loop: asyncio.AbstractEventLoop) -> None:
        self._channel = channel
        self._loop = loop
        self._queue: dict[tuple[UUID, int], ReplicaAssignment] = {}
        self._task: asyncio.Task[None] | None = None
        self._size = RequestSize(MAX_IN_REQUEST)
        self._closed = False

    def assign(self, place: ReplicaAssignment) -> None:
        """Report it; what was said of the replica before no longer counts."""
        self._queue[place.topic_id, place.partition] = place
        if self._task is None and not self._closed:
            # The task starts in the loop's next turn and takes everything from this one.
            self._task = supervised(self._loop, self._drain(), "directory-assignments")

    def cancel_assignment(self, topic_id: UUID, partition: int) -> None:
        """The replica is gone, or the metadata is right."""
        self._queue.pop((topic_id, partition), None)

    async def close(self) -> None:
        self._closed = True
        await ended(self._task)

    async def _drain(self) -> None:
        retry_after = FIRST_RETRY_SECONDS
        try:
            while self._queue:
                batch = list(islice(self._queue.values(), self._size.items))
                try:
                    await self._channel.assign_replicas(batch)
                except Exception as error:  # noqa: BLE001
                    if not isinstance(error, BrokerError | OSError):
                        report_fault(self._loop, "reporting where replicas lie", error)
                    self._size.refused(len(batch))
                    await asyncio.sleep(retry_after)
                    retry_after = min(retry_after * 2, LAST_RETRY_SECONDS)
                    continue
                retry_after = FIRST_RETRY_SECONDS
                self._size.taken()
                for place in batch:
                    if self._queue.get(place[:2]) == place:
                        del self._queue[place[:2]]
        finally:
            self._task = None
