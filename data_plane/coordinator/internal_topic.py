"""`__consumer_offsets` or `__transaction_state`, as its coordinator writes and reads it: the `PartitionLog`
port on our partitions.

A coordinator is the leader of its partition, so its appends are plain leader appends with acks=all,
and its loading reads the log of this broker, up to the end: what is not replicated yet belongs to
the epoch that starts now, and replies wait for it.

    coordinator/runtime -> here -> partition.append_as_leader, the high watermark's purgatory
    coordinator/runtime <- here <- partition.read (in the executor where it is not in the page cache)
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from data_plane.log.validation import AppendOrigin
from data_plane.replication.partition import ALL_REPLICAS, Partition
from data_plane.replication.replica_manager import ReplicaManager
from metadata_quorum.foundation.blocking import Blocking
from metadata_quorum.foundation.errors import BrokerError, ErrorCode


class InternalTopic:
    """One internal topic on this broker."""

    def __init__(
        self,
        topic: str,
        partitions: ReplicaManager,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        blocking: Blocking,
    ) -> None:
        self._topic = topic
        self._partitions = partitions
        self._loop = loop
        self._now_ms = now_ms
        self._blocking = blocking

    def append(self, partition: int, leader_epoch: int, batch: bytearray) -> int:
        found = self._get(partition)
        found.check_epoch(leader_epoch, leader_only=True)
        info = found.append_as_leader(
            batch,
            acks=ALL_REPLICAS,
            now=self._loop.time(),
            now_ms=self._now_ms(),
            origin=AppendOrigin.COORDINATOR,
        )
        found.stats.appended(info.last_offset - info.first_offset + 1, info.size)
        return info.last_offset + 1

    def max_batch_bytes(self, partition: int) -> int:
        config = self._get(partition).log.config
        return min(config.max_message_bytes, config.segment_bytes)

    def when_replicated(self, partition: int, offset: int, callback: Callable[[bool], None]) -> None:
        found = self._get(partition)
        if found.leader is None:
            return
        if found.high_watermark >= offset:
            callback(True)
            return
        found.high_watermark_purgatory.add(offset, lambda outcome: callback(outcome is ErrorCode.NONE))

    def bounds(self, partition: int) -> tuple[int, int]:
        log = self._get(partition).log
        return log.log_start_offset, log.log_end_offset

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        """Raises BrokerError."""
        found = self._get(partition)
        log_path = found.log.directory
        piece = found.read(offset, max_bytes, found.log.log_end_offset, at_least_one_batch=True)
        if piece is None:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE, f"{found.tp} at {offset}")
        try:
            cached = piece.read_cached()
            data = bytes(cached if cached is not None else await self._blocking(piece.read))
        except OSError as error:
            found.storage_failed(error, log_path)
        if piece.is_stale():
            found.refuse_as_not_leader()
        return data

    def _get(self, partition: int) -> Partition:
        return self._partitions.get(self._topic, partition)
