"""`__consumer_offsets` in memory, for coordinators: implements the port of coordinator/partition_log.py.

Replication is a switch: with `replicating` False the high watermark stands until `replicate()`.
Leadership is an epoch per partition; appends of an older one are refused, as a real leader would.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from metadata_quorum.foundation.batch import Record, decode_batch, iter_headers, set_offset_and_epoch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode


@dataclass
class MemoryPartition:
    data: bytearray = field(default_factory=bytearray)
    start: int = 0
    end: int = 0
    high_watermark: int = 0
    epoch: int = 0
    waiting: list[tuple[int, Callable[[bool], None]]] = field(default_factory=list)


class MemoryLog:
    def __init__(self) -> None:
        self.partitions: dict[int, MemoryPartition] = {}
        self.replicating = True
        self.refusal: ErrorCode | None = None
        """What every append is answered with, if anything."""
        self.max_bytes = 1 << 20
        self.reads = 0
        self.is_broken = False
        """Whether reads fail."""

    def partition(self, number: int) -> MemoryPartition:
        return self.partitions.setdefault(number, MemoryPartition())

    # --- while it serves

    def append(self, partition: int, leader_epoch: int, batch: bytearray) -> int:
        held = self.partition(partition)
        if self.refusal is not None:
            raise BrokerError(self.refusal)
        if leader_epoch < held.epoch:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        if len(batch) > self.max_bytes:
            raise BrokerError(ErrorCode.MESSAGE_TOO_LARGE)
        held.epoch = leader_epoch
        set_offset_and_epoch(batch, 0, held.end, leader_epoch)
        held.data += batch
        held.end = max(header.next_offset for _, header in iter_headers(batch))
        if self.replicating:
            self.replicate(partition)
        return held.end

    def max_batch_bytes(self, partition: int) -> int:
        return self.max_bytes

    def when_replicated(self, partition: int, offset: int, callback: Callable[[bool], None]) -> None:
        held = self.partition(partition)
        if held.high_watermark >= offset:
            callback(True)
        else:
            held.waiting.append((offset, callback))

    # --- while it loads

    def bounds(self, partition: int) -> tuple[int, int]:
        return self.partition(partition).start, self.partition(partition).end

    async def read(self, partition: int, offset: int, max_bytes: int) -> bytes:
        self.reads += 1
        if self.is_broken:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR)
        if offset < self.partition(partition).start:
            raise BrokerError(ErrorCode.OFFSET_OUT_OF_RANGE)
        data = bytes(self.partition(partition).data)
        taken = b""
        for position, header in iter_headers(data):
            if header.next_offset > offset and (not taken or len(taken) + header.size <= max_bytes):
                taken += data[position : position + header.size]
        return taken

    # --- the test's own

    def replicate(self, partition: int) -> None:
        held = self.partition(partition)
        held.high_watermark = held.end
        waiting, held.waiting = held.waiting, []
        for offset, callback in waiting:
            if offset <= held.high_watermark:
                callback(True)
            else:
                held.waiting.append((offset, callback))

    def break_off(self, partition: int) -> None:
        """The ISR becomes too small."""
        held = self.partition(partition)
        waiting, held.waiting = held.waiting, []
        for _, callback in waiting:
            callback(False)

    def truncate_unreplicated(self, partition: int) -> None:
        """A failover: what the ISR never had is gone."""
        held = self.partition(partition)
        data = bytes(held.data)
        kept = [data[p : p + h.size] for p, h in iter_headers(data) if h.next_offset <= held.high_watermark]
        held.data = bytearray(b"".join(kept))
        held.end = held.high_watermark
        held.waiting.clear()

    def records(self, partition: int) -> list[Record]:
        data = bytes(self.partition(partition).data)
        return [record for position, _ in iter_headers(data) for record in decode_batch(data, position)]
