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
from collections.abc import Callable, Iterable
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
                elif header.compression:  # by a client, or by Apache Kafka
                    await self._take_compressed(data, position, header)
                else:
                    await self._take(iter_records(data, position, with_headers=False), header)
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

    async def _take_compressed(self, data: bytes, position: int, header: BatchHeader) -> None:
        async with self._loads.unpacking:  # until the last of its records is taken
            records = iter_records(data, position, with_headers=False)
            first = await self._loop.run_in_executor(None, next, records, None)
            await self._take(chain(() if first is None else (first,), records), header)

    async def _take(self, records: Iterable[Record], header: BatchHeader) -> None:
        at, machine, turn_bytes = self._instant(), self._state_machine, self._loads.turn_bytes
        is_transactional, producer_id = header.is_transactional, header.producer_id
        passed_over = 0
        for stored in records:
            key, value = stored.key or b"", stored.value
            value_size = len(value or b"")
            size = RECORD_OVERHEAD_BYTES + len(key) + value_size
            if self._left < size:
                await self._turn()
            self._left -= size
            try:
                record = machine.decode(key, value) if key else None
                if value_size > turn_bytes:  # a group of thousands of members
                    await self._turn()
                if record is not None and is_transactional:
                    machine.hold(record, producer_id)
                elif record is not None:
                    machine.replay(record, at)
            except ValueError as error:  # it is none of ours: a client wrote it
                passed_over += 1
                if passed_over <= NAMED:
                    kind, where = int.from_bytes(key[:2], signed=True), f"at offset {stored.offset}"
                    self._warn(f"a record of kind {kind}", f"{where} is passed over: {error}")
        if passed_over > NAMED:
            self._warn(f"{passed_over - NAMED} more records", f"before offset {header.next_offset}, too")

    def _warn(self, what: str, where: str) -> None:
        logger.warning("%s in the coordinator's partition %d %s", what, self._partition, where)
