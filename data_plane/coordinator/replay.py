"""What a coordinator knows as it begins: its partition's log, replayed from the start to the end.

A piece per turn of the loop, measured by what is replayed, not by the bytes in the log. Clients that call
themselves administrators may write here, too: a batch of a few kilobytes may be a hundred megabytes and a
million records, a record may have a million headers, a transaction as many offsets. So what is compressed is
unpacked in another thread, and of one partition at a time; records are read one by one, without headers.

    runtime.Shard -> LogReplay.run -> Loads.turn, before each piece
                                   -> state machine: decode, replay, hold, end_transaction
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Iterator
from contextlib import nullcontext
from itertools import chain
from typing import Final, Generic, TypeVar

from data_plane.coordinator.loading import Loads
from data_plane.coordinator.partition_log import PartitionLog
from data_plane.coordinator.state_machine import RECORD_OVERHEAD_BYTES, CoordinatorStateMachine, Instant
from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    CONTROL_ABORT,
    CONTROL_COMMIT,
    BatchHeader,
    Record,
    check_crc,
    control_type,
    decode_batch,
    iter_headers,
    iter_records,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

RecordT = TypeVar("RecordT")

logger = logging.getLogger(__name__)

READS_PER_TURN: Final = 4
"""Of logs that are loaded: one reads up to `slice_bytes`, which takes some milliseconds."""
ENDED_PER_TURN: Final = 2000
"""Offsets of a transaction; each takes some 2 microseconds."""
NAMED: Final = 10
"""Records of a batch that are none of ours: in the log of the broker, one by one."""


class LogReplay(Generic[RecordT]):
    """Of one partition, once."""

    def __init__(
        self,
        partition: int,
        state_machine: CoordinatorStateMachine[RecordT],
        log: PartitionLog,
        loop: asyncio.AbstractEventLoop,
        instant: Callable[[], Instant],
        loads: Loads,
        slice_bytes: int,
    ) -> None:
        """`slice_bytes`: what is read at a time."""
        self._partition = partition
        self._state_machine = state_machine
        self._log = log
        self._loop = loop
        self._instant = instant
        self._loads = loads
        self._slice_bytes = slice_bytes
        self._left = 0
        """Of this turn of the loop, in bytes."""
        self._passed_over = 0
        """Records of the present batch that are not ours."""

    async def run(self) -> int:
        """From the start to the end, also above the high watermark: that will either be replicated, or
        leadership is lost. Returns the end. Raises BrokerError, ValueError or OSError."""
        offset, end = self._log.bounds(self._partition)
        while offset < end:
            await self._loads.turn(self._loads.turn_bytes // READS_PER_TURN)
            if (offset := max(offset, self._log.bounds(self._partition)[0])) >= end:
                break  # records were deleted meanwhile
            data = await self._log.read(self._partition, offset, self._slice_bytes)
            offset = await self._replay(data, offset, end)
        return end

    async def _replay(self, data: bytes, offset: int, end: int) -> int:
        """The batches that were read, from `offset` on; returns the offset behind them."""
        replayed = 0
        await self._turn(len(data))
        for position, header in iter_headers(data):
            if self._left <= 0:
                await self._turn(len(data) - replayed)
            self._left -= BATCH_OVERHEAD
            if header.next_offset > offset:
                if not check_crc(data, position, header):
                    raise BrokerError(ErrorCode.CORRUPT_MESSAGE, f"at offset {header.base_offset}")
                offset = header.next_offset
                if header.is_control:
                    await self._end_transaction(data, position, header)
                else:
                    await self._take_batch(data, position, header)
            replayed += header.size
        if not replayed:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"nothing at offset {offset} of {end}")
        return offset

    async def _turn(self, size: int | None = None) -> None:
        """Wait for one's turn. `size`: of what is to be replayed; None: as much as a turn takes."""
        turn_bytes = self._loads.turn_bytes
        await self._loads.turn(turn_bytes if size is None else min(size, turn_bytes))
        self._left = turn_bytes

    async def _end_transaction(self, data: bytes, position: int, header: BatchHeader) -> None:
        for marker in decode_batch(data, position):  # none, where compaction has been
            kind = control_type(marker)
            if kind in (CONTROL_ABORT, CONTROL_COMMIT):
                commit, end = kind == CONTROL_COMMIT, self._state_machine.end_transaction
                while end(header.producer_id, commit=commit, most=ENDED_PER_TURN):
                    await self._turn()

    async def _take_batch(self, data: bytes, position: int, header: BatchHeader) -> None:
        at = self._instant()
        records: Iterator[Record] = iter_records(data, position, with_headers=False)
        self._passed_over = 0
        async with self._loads.unpacking if header.compression else nullcontext():
            if header.compression:
                first = await self._loop.run_in_executor(None, next, records, None)
                records = chain(() if first is None else (first,), records)
            for stored in records:
                value_size = len(stored.value or b"")
                size = RECORD_OVERHEAD_BYTES + len(stored.key or b"") + value_size
                if self._left < size:
                    await self._turn()
                self._left -= size
                record = self._decoded(stored)
                if record is not None:
                    if value_size > self._loads.turn_bytes:  # a group of thousands of members
                        await self._turn()
                    self._take(record, stored, header, at)
        if self._passed_over > NAMED:
            logger.warning("so are %d more of that batch", self._passed_over - NAMED)

    def _decoded(self, stored: Record) -> RecordT | None:
        if stored.key is None:
            return None
        try:
            return self._state_machine.decode(stored.key, stored.value)
        except ValueError as error:
            self._pass_over(stored, error)
            return None

    def _take(self, record: RecordT, stored: Record, header: BatchHeader, at: Instant) -> None:
        try:
            if header.is_transactional:
                self._state_machine.hold(record, header.producer_id)
            else:
                self._state_machine.replay(record, at)
        except ValueError as error:
            self._pass_over(stored, error)

    def _pass_over(self, stored: Record, error: ValueError) -> None:
        """It is none of ours: a client wrote it."""
        self._passed_over += 1
        if self._passed_over <= NAMED:
            kind = int.from_bytes((stored.key or b"")[:2], signed=True)
            where = f"partition {self._partition} at offset {stored.offset}"
            logger.warning(
                "a record of kind %d in the coordinator's %s is passed over: %s", kind, where, error
            )
