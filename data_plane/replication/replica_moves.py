"""Replicas on their way from one log directory of this broker to another (AlterReplicaLogDirs).

    topic-0.<uuid>-future in the new directory <- copied from the replica itself, at a limited rate
        -> flushed -> the rest copied, renamed, put in the replica's place, in one call of the loop
        -> the old directory becomes topic-0.<uuid>-delete; the new one is reported to the controller

The replica leads or follows all the while; where its log is truncated, so is the copy. A crash leaves the
replica where it was and an unfinished copy, which begins again at the next start; between the two renames it
leaves the same log twice, and the start drops one of them.

    api/log_dirs -> ReplicaManager.move -> here -> log
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
from collections.abc import Callable
from random import Random
from typing import Final
from uuid import UUID

from data_plane.log.config import LogConfig
from data_plane.log.consistency import InconsistentLogError
from data_plane.log.log import UnifiedLog
from data_plane.log.segment import LogSlice
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.directory_names import DELETED
from data_plane.log_manager.local_replica import ReplicaFailures
from data_plane.log_manager.log_dir_failures import LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from data_plane.log_manager.log_manager import LogManager
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.blocking import Blocking, MayBlock
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.foundation.supervision import supervised
from metadata_quorum.foundation.turns import Turns

logger = logging.getLogger(__name__)

CHUNK_BYTES: Final = 1024 * 1024
NEW_COPY: Final = MayBlock("opening an empty log waits for no device")
MOVE: Final = MayBlock(
    "before the old directory loses its name, the copy is durable as far as the log was, and so is its new "
    "name; once in a move"
)

MAX_PAUSE_S: Final = 0.5
"""Between two looks at the limit, which may be lifted meanwhile."""


class _SliceRead:
    """A slice read in the executor."""

    def __init__(self, piece: LogSlice) -> None:
        self._piece = piece
        self.data = b""

    def run(self, may_block: MayBlock) -> None:
        self.data = bytes(self._piece.read(may_block))


async def _flush(log: UnifiedLog, blocking: Blocking) -> None:
    work = log.prepare_flush()
    if work is not None:
        await blocking(work.run)
        log.flush_done(work)


class ReplicaMove:
    """One replica, and its copy in another directory."""

    def __init__(self, moves: ReplicaMoves, partition: Partition, directory: LogDir, log: UnifiedLog) -> None:
        self._moves = moves
        self.partition = partition
        self.directory = directory
        self.log = log
        self.task: asyncio.Task[None] | None = None
        self._truncate_at: int | None = None

    @property
    def lag(self) -> int:
        """Records that the copy lacks."""
        return max(self.partition.log.log_end_offset - self.log.log_end_offset, 0)

    def truncate(self, offset: int) -> None:
        """The replica's log is truncated there; the copy is too, before anything else is done to it."""
        self._truncate_at = offset if self._truncate_at is None else min(offset, self._truncate_at)

    def cancel(self) -> None:
        """Forget the copy; its files are removed."""
        self._moves.cancel(self.partition)

    @property
    def truncation_pending(self) -> bool:
        return self._truncate_at is not None

    async def align(self, blocking: Blocking) -> None:
        """Let the copy begin and end no farther than the log that it copies. No checkpoint names it yet."""
        offset, self._truncate_at = self._truncate_at, None
        work = None if offset is None else self.log.prepare_truncation(offset)
        if work is not None:
            await blocking(work.run)
            if not self.log.truncate_to(work):  # its files have changed meanwhile: the next step tries again
                self.truncate(work.end)
                return
            await _flush(self.log, blocking)
        start = self.partition.log.log_start_offset
        if self.log.log_end_offset < start or offset == 0:
            self.log.truncate_fully_and_start_at(start)


class ReplicaMoves:
    """All moves of a broker."""

    def __init__(
        self,
        logs: LogManager,
        log_dir_failures: LogDirFailures,
        failures: ReplicaFailures,
        background: BackgroundWork,
        now_ms: Callable[[], int],
        rng: Random,
        quota: ReplicationQuota,
        *,
        on_complete: Callable[[Partition, UnifiedLog, LogDir], None],
    ) -> None:
        """`on_complete` puts a copy, complete and under the replica's name, in the place of the replica's
        log."""
        self._logs = logs
        self._log_dir_failures = log_dir_failures
        self._failures = failures
        self._background = background
        self._loop = background.loop
        self._now_ms = now_ms
        self._rng = rng
        self._quota = quota
        self._on_complete = on_complete
        self._moves: dict[Partition, ReplicaMove] = {}
        self._ends = Turns(self._loop)
        """Of moves: to rename what is durable takes half a millisecond, and hundreds may be ready at once."""
        log_dir_failures.subscribe(self._log_dir_failed)

    def of(self, partition: Partition) -> ReplicaMove | None:
        return self._moves.get(partition)

    def begin(self, partition: Partition, directory: LogDir) -> bool:
        """Copy the replica into `directory`; another move of it is cancelled. Whether it is there, or on its
        way."""
        known = self._moves.get(partition)
        if known is not None and known.directory is directory:
            return True
        self.cancel(partition)
        if self._logs.dir_of(partition) is directory:
            return True
        log = self._open(partition, directory)
        if log is None:
            return False
        partition.log.cancel_cleaning()  # it would overtake the copy
        move = ReplicaMove(self, partition, directory, log)
        self._moves[partition] = partition.move = move
        name = f"move of {partition.tp} to {directory.path}"
        move.task = supervised(self._loop, self._run(move), name)
        return True

    def _open(self, partition: Partition, directory: LogDir) -> UnifiedLog | None:
        config: LogConfig = partition.log.config
        log: UnifiedLog | None = None
        tag = self._tag()
        try:
            while directory.disk.exists(directory.future_path(partition.tp, tag)):
                tag = self._tag()
            log = directory.open_future(
                partition.tp, tag, partition.topic_id, config, self._now_ms(), NEW_COPY
            )
            log.truncate_fully_and_start_at(partition.log.log_start_offset)
            before = directory.set_unfinished_aside(partition.tp, self._tag(), DELETED)
        except (OSError, InconsistentLogError) as e:
            if not self._log_dir_failures.report(directory, e):  # no file descriptor was left
                with contextlib.suppress(OSError):
                    if log is not None:
                        log.close()
                self._background.remove_in(directory, directory.future_path(partition.tp, tag))
            return None
        if before is not None:
            self._background.remove_in(directory, before)
        return log

    def resume(self, partition: Partition) -> None:
        """Begin again the copy that the last run had begun, if it had. One beside the replica has arrived: a
        loss of power has brought its name back."""
        for directory in self._logs.dirs:
            if not directory.online or partition.tp not in directory.unfinished:
                continue
            if self._logs.dir_of(partition) is directory:
                self._background.remove_in(directory, directory.unfinished.pop(partition.tp))
            else:
                self.begin(partition, directory)

    def cancel(self, partition: Partition) -> None:
        """Forget the copy, if there is one; its files are removed."""
        move = self._forget(partition)
        if move is None:
            return
        logger.info("Move of %s to %s is cancelled", partition.tp, move.directory.path)
        try:  # under a name with which no start goes on
            path = move.directory.set_aside(partition.tp, move.log, self._tag(), DELETED)
        except OSError as e:
            self._log_dir_failures.report(move.directory, e)
        else:
            self._background.remove_in(move.directory, path)

    def _log_dir_failed(self, directory: LogDir, error: OSError) -> None:
        """Copies in it, and of replicas in it, are of no use any more."""
        for partition, move in list(self._moves.items()):
            if move.directory is directory:
                self._forget(partition)
            elif self._logs.dir_of(partition) is directory:
                self.cancel(partition)

    async def close(self) -> None:
        """Leave the unfinished copies: the next start begins them again."""
        tasks = [move.task for move in self._moves.values() if move.task is not None]
        for partition in list(self._moves):
            self._forget(partition)
        await asyncio.gather(*tasks, return_exceptions=True)

    def _forget(self, partition: Partition) -> ReplicaMove | None:
        move = self._moves.pop(partition, None)
        partition.move = None
        if move is not None and move.task is not None:
            move.task.cancel()
        return move

    def _tag(self) -> UUID:
        return UUID(int=self._rng.getrandbits(128))

    async def _run(self, move: ReplicaMove) -> None:
        partition = move.partition
        try:
            await self._background.blocking(move.log.identify)
            while not await self._step(move):
                pass
        except (OSError, InconsistentLogError) as e:
            if self._log_dir_failures.report(move.directory, e):
                self._forget(partition)
            else:
                self.cancel(partition)
        except Exception as e:  # noqa: BLE001
            if not isinstance(e, BrokerError | CorruptBatchError):
                self._failures.fault(f"the move of {partition.tp} to {move.directory.path}", e)
            logger.error("%s cannot be moved to %s: %s", partition.tp, move.directory.path, e)
            self.cancel(partition)

    async def _step(self, move: ReplicaMove) -> bool:
        """Copy a piece; True once the replica has moved. Raises OSError of the new directory, BrokerError
        where the move cannot continue. Every step makes progress or yields to the loop."""
        await move.align(self._background.blocking)
        for deletion in move.log.take_deletions():
            await self._background.blocking(deletion.run)
        if move.truncation_pending:
            return False
        pause = self._quota.pause_s(self._loop.time())
        if pause > 0:
            await asyncio.sleep(min(pause, MAX_PAUSE_S))
            return False
        if move.lag:
            await self._copy(move)
            return False
        return await self._finish(move)

    async def _copy(self, move: ReplicaMove) -> None:
        current = move.partition.log
        offset = move.log.log_end_offset
        if offset < current.log_start_offset:  # it rose since the copy was aligned; the next step does so
            return
        try:
            piece = _SliceRead(current.read(offset, CHUNK_BYTES, at_least_one_batch=True))
            await self._background.blocking(piece.run)
        except OSError as e:
            if move.truncation_pending:  # its files were closed meanwhile
                return
            self._failures.storage_failed(move.partition, e)
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{current.directory}: {e}") from e
        if move.truncation_pending or move.partition.log is not current or move.log.log_end_offset != offset:
            return
        if move.log.append_as_follower(piece.data, now_ms=self._now_ms()) is None:
            raise BrokerError(ErrorCode.KAFKA_STORAGE_ERROR, f"{current.directory}: no batch at {offset}")
        move.log.producers.replicated_to(move.partition.high_watermark)
        self._quota.record(len(piece.data), self._loop.time())

    async def _finish(self, move: ReplicaMove) -> bool:
        """The copy is complete but for what is appended meanwhile: make it durable, then put it in place."""
        await _flush(move.log, self._background.blocking)
        await self._ends.next()
        if move.truncation_pending or not self._has_rest(move):
            return False
        partition, log = move.partition, move.log
        current = partition.log
        log.advance_log_start(current.log_start_offset)
        if log.recovery_point < current.recovery_point:  # with flush.messages=1 acknowledged, for instance
            rest = log.prepare_flush()
            if rest is not None:
                rest.run(MOVE)
                log.flush_done(rest)
        _take_state(log, current)
        log.move_to(move.directory.partition_path(partition.tp))
        move.directory.disk.sync_dir(move.directory.path, MOVE)
        self._moves.pop(partition, None)
        partition.move = None
        self._on_complete(partition, log, move.directory)
        logger.info("%s has moved to %s", partition.tp, move.directory.path)
        return True

    def _has_rest(self, move: ReplicaMove) -> bool:
        """Copy what was appended since, if it is little and in the page cache. Whether the copy is
        complete."""
        if move.lag:
            offset = move.log.log_end_offset
            if offset < move.partition.log.log_start_offset:  # as in `_copy`
                return False
            try:
                piece = move.partition.log.read(offset, CHUNK_BYTES, at_least_one_batch=True).read_cached()
            except OSError as e:
                self._failures.storage_failed(move.partition, e)
                return False
            if piece is None:
                return False
            move.log.append_as_follower(piece, now_ms=self._now_ms())
        return not move.lag


def _take_state(copy: UnifiedLog, log: UnifiedLog) -> None:
    """Give the copy the state that its batches no longer show: producers whose records are deleted, an epoch
    without records."""
    invariant(
        copy.log_end_offset == log.log_end_offset,
        Invariant.REPLICAS_AGREE,
        (copy.directory, log.directory),
    )
    copy.config = log.config
    copy.producers = log.producers
    copy.epochs = log.epochs
    copy.epochs.dirty = True
