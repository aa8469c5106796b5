"""Writes checkpoint files, and makes them and directory entries durable, in the executor.

Periodically: high watermarks and log start offsets every replica.high.watermark.checkpoint.interval.ms,
recovery points every log.flush.offset.checkpoint.interval.ms. Only replicas whose offsets have changed are
looked at. Soon (`sync_soon`): after a log was created, renamed or deleted, since a new topic may
take the name of a deleted one and must not start with that one's offsets. And before a log is truncated: no
checkpoint may claim more of it than will be left.

    LogManager (unsynced, checkpoints_stale) -> here -> LogDir.checkpoint, sync_dir, partition.metadata
"""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections import deque
from collections.abc import Callable, Mapping, Sequence, Set
from dataclasses import dataclass, field
from functools import partial
from typing import Final
from uuid import UUID

from data_plane.log.log import UnifiedLog
from data_plane.log_manager.background_work import VISITED_PER_TURN, BackgroundWork
from data_plane.log_manager.local_replica import LocalReplica
from data_plane.log_manager.log_dir_failures import LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from data_plane.log_manager.log_manager import LogManager
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import is_of_disk
from metadata_quorum.foundation.model import TopicPartition

logger = logging.getLogger(__name__)

RETRY_S: Final = 1.0
"""Pause before a directory is synced again after an error that was not the disk's."""
SYNCED_AT_ONCE: Final = 25
"""New logs whose identity is written at once: each costs an fsync or two, and a truncation waits for them."""
TRUNCATIONS_PER_TURN: Final = 20
"""Truncations that continue in one turn of the loop: each renames files and writes some."""


class CheckpointWriter:
    """The checkpoints of all log directories of one broker."""

    def __init__(self, logs: LogManager, background: BackgroundWork, failures: LogDirFailures) -> None:
        self._logs = logs
        self._background = background
        self._failures = failures
        self._writing = asyncio.Lock()
        self._syncing = asyncio.Lock()
        # Of truncations, which wait for checkpoints that are yet to begin, in the directory of their log.
        self._before_truncations: list[tuple[LogDir, asyncio.Future[bool]]] = []
        self._recovery_points_behind = True
        """Whether offsets have changed since they were written."""
        self._lost_at_end: set[UUID] = set()
        """Directories whose disk has failed while their logs were closed."""

    # --- checkpoints --------------------------------------------------------------------------

    async def write(self, *, everything: bool = False) -> Set[LogDir]:
        """Write high watermarks and log start offsets, with `everything` the recovery points too. Returns the
        directories in which that succeeded."""
        written: set[LogDir] = set()
        # One at a time: two would rename each other's temporary files.
        async with self._writing:
            self._take_uncheckpointed()
            if everything:
                self._recovery_points_behind = False
            for directory in self._logs.dirs:
                if directory.online:
                    # Log starts also move by DeleteRecords, which must survive the next crash.
                    offsets = await self._offsets_in(directory)
                    if await self._checkpoint(
                        partial(_checkpoint_in, directory, offsets, everything), directory
                    ):
                        written.add(directory)
        return written

    async def write_uncheckpointed(self) -> None:
        """Write high watermarks and log start offsets of the replicas whose offsets have changed. Raises
        nothing."""
        async with self._writing:
            changed = self._take_uncheckpointed()
            for directory in self._logs.dirs:
                if not directory.online:
                    continue
                if directory.is_checkpointed:
                    offsets = await self._offsets_of(changed, directory)
                    write = partial(_update_in, directory, offsets)
                else:
                    write = partial(_checkpoint_in, directory, await self._offsets_in(directory), False)
                await self._checkpoint(write, directory)

    def _take_uncheckpointed(self) -> Sequence[LocalReplica]:
        """Replicas whose offsets change from now on belong to the next checkpoints."""
        changed = list(self._logs.uncheckpointed)
        self._logs.uncheckpointed.clear()
        self._recovery_points_behind |= bool(changed)
        return changed

    async def _checkpoint(self, write: Callable[[MayBlock], None], directory: LogDir) -> bool:
        try:
            await self._background.blocking(write)
        except Exception as e:  # noqa: BLE001 - whatever it was, the offsets are still to be written
            if not self._failures.report(directory, e):
                self._logs.checkpoints_stale = True
            return False
        return True

    async def _offsets_of(self, replicas: Sequence[LocalReplica], directory: LogDir) -> _Offsets:
        offsets = _Offsets()
        for number, replica in enumerate(replicas, start=1):
            if self._logs.replicas.get(replica) is directory:
                offsets.add(replica.tp, replica.log, replica.high_watermark)
            if number % VISITED_PER_TURN == 0:
                await asyncio.sleep(0)
        return offsets

    async def _offsets_in(self, directory: LogDir) -> _Offsets:
        """The offsets of all logs in a directory, collected over several turns of the loop if there are many;
        each as it is when its turn comes. A log that comes or goes meanwhile makes the checkpoints stale
        again."""
        offsets = _Offsets()
        replicas = list(self._logs.replicas.items())
        known = directory.high_watermarks
        # Unclaimed ones, too: the checkpoints must not lose their offsets meanwhile.
        for number, (tp, log) in enumerate(self._logs.unclaimed.in_dir(directory).items(), start=1):
            offsets.add(tp, log, known.get(tp))
            if number % VISITED_PER_TURN == 0:
                await asyncio.sleep(0)
        for number, (replica, its_dir) in enumerate(replicas, start=1):
            if its_dir is directory and not replica.removed:
                offsets.add(replica.tp, replica.log, replica.high_watermark)
            if number % VISITED_PER_TURN == 0:
                await asyncio.sleep(0)
        return offsets

    def write_soon(self) -> None:
        """Periodic: high watermarks and log start offsets."""
        if self._logs.checkpoints_stale:  # one could not be written
            self.sync_soon()
        elif self._logs.uncheckpointed:
            self._background.spawn(self.write_uncheckpointed())

    def write_all_soon(self) -> None:
        """Periodic: everything."""
        if self._logs.uncheckpointed or self._recovery_points_behind:
            self._logs.checkpoints_stale = True
            self.sync_soon()

    async def written_after_now(self, directory: LogDir) -> bool:
        """Wait until the directory's checkpoints have been written with the recovery points of this moment or
        later ones. Returns whether they were; False once the broker closes. Many callers wait for the same
        write."""
        if self._background.closed:
            return False
        waiter: asyncio.Future[bool] = self._background.loop.create_future()
        self._before_truncations.append((directory, waiter))
        self._logs.checkpoints_stale = True
        if len(self._before_truncations) == 1:
            self._background.loop.call_soon(self.sync_soon)
        return await waiter

    # --- directory entries --------------------------------------------------------------------

    def sync_soon(self) -> None:
        """Make durable what was created or renamed, with checkpoints that agree."""
        if self._background.closed:
            return
        if self._logs.unsynced or self._logs.checkpoints_stale:
            self._background.spawn(self._sync())

    async def _sync(self) -> None:
        # One after another, and the checkpoints first: a log that is marked as known to them must not find
        # there what was written for an older log of its name.
        logs = self._logs
        async with self._syncing:
            if logs.checkpoints_stale:
                logs.checkpoints_stale = False
                await self._write_before_truncations()
            if logs.checkpoints_stale:  # again: whoever made them stale syncs the rest
                return
            directory = next(iter(logs.unsynced), None)
            if directory is not None:
                await self._sync_some(directory)
        self.sync_soon()  # the rest; whoever has asked for checkpoints meanwhile comes before it

    async def _sync_some(self, directory: LogDir) -> None:
        """Some of what was created there, so that a truncation need not wait for all of it."""
        unsynced = self._logs.unsynced
        rest = unsynced.pop(directory)
        created = [rest.popleft() for _ in range(min(len(rest), SYNCED_AT_ONCE))]
        if not directory.online:
            return
        if rest:
            unsynced[directory] = rest
        failed: Mapping[UnifiedLog, Exception]
        try:
            failed = await self._background.blocking(partial(_sync_in, directory, created))
        except Exception as e:  # noqa: BLE001 - whatever it was, they are still to be synced
            failed = dict.fromkeys(created, e)
            if not created and not self._failures.report(directory, e):
                self._sync_later(directory, [])
        again = [log for log, error in failed.items() if not self._failures.report(directory, error)]
        if again:
            self._sync_later(directory, again)

    def _sync_later(self, directory: LogDir, created: Sequence[UnifiedLog]) -> None:
        def again() -> None:
            self._logs.unsynced.setdefault(directory, deque()).extend(created)
            self.sync_soon()

        self._background.timer.call_later(RETRY_S, again)

    async def _write_before_truncations(self) -> None:
        waiters, self._before_truncations = self._before_truncations, []
        written: Set[LogDir] = frozenset()
        try:
            written = await self.write(everything=True)
        finally:
            for number, (directory, waiter) in enumerate(waiters, start=1):
                if not waiter.done():
                    waiter.set_result(directory in written)
                if number % TRUNCATIONS_PER_TURN == 0:
                    await asyncio.sleep(0)

    # --- shutdown -----------------------------------------------------------------------------

    def close(self) -> None:
        """The broker stops: no more logs are truncated."""
        for _, waiter in self._before_truncations:
            waiter.cancel()

    async def write_clean_shutdown(self, broker_epoch: int) -> None:
        """Flush, checkpoint and close every log, and mark its directory as cleanly shut down. A node that is
        stopped while it starts leaves directories as they are that it has not opened (KAFKA-15375)."""
        closed: list[LogDir] = []
        for directory in self._logs.dirs:
            if directory.online and directory.loaded:
                try:
                    if await self._background.blocking(partial(self._close_dir, directory)):
                        closed.append(directory)
                except Exception as e:  # noqa: BLE001 - the other directories are closed all the same
                    self._failures.report(directory, e)
        for directory in closed:  # now that it is known whether anything is lost
            run = self._logs.run_of(broker_epoch)
            if broker_epoch < 0:  # never registered: nothing has been written since the last run
                recovered = {each.directory_id for each in closed}
                run = directory.last_run._replace(failed=directory.last_run.failed - recovered)
            if self._lost_at_end or not self._logs.all_online:
                failed = self._logs.run_of(-1).failed | self._lost_at_end
                run = run._replace(broker_epoch=-1, failed=failed)
            try:
                await self._background.blocking(partial(directory.mark_clean, run))
            except OSError as e:
                logger.error("Log directory %s could not be marked as closed: %s", directory.path, e)
            except Exception as e:  # noqa: BLE001
                self._failures.report(directory, e)

    def _close_dir(self, directory: LogDir, may_block: MayBlock) -> bool:
        """Returns whether the next start need not recover."""
        logs, hws = self._logs.logs_in(directory)
        offsets = _Offsets()
        try:
            consistent = [log for log in logs.values() if not log.inconsistent]
            for log in consistent:
                log.close_clean(may_block)
            for tp, log in logs.items():
                offsets.add(tp, log, hws.get(tp))
            _checkpoint_in(directory, offsets, True, may_block)
            unidentified = [log for log in consistent if log.unidentified]
            if unidentified:  # until now the checkpoints may have had an older log's offsets for them
                failed = _sync_in(directory, unidentified, may_block)
                if failed:
                    raise next(iter(failed.values()))
        except OSError as e:
            logger.error("Log directory %s could not be closed cleanly: %s", directory.path, e)
            if is_of_disk(e):
                self._lost_at_end.add(directory.directory_id)
                with contextlib.suppress(OSError):
                    directory.mark_lost()
            return False
        # Where the disk has failed no sync keeps old names: who believed the mark after the next boot would
        # take what is left of the logs for all.
        is_whole = len(consistent) == len(logs) and not directory.unopened
        return is_whole and not directory.renewal_due


@dataclass(slots=True)
class _Offsets:
    """The contents of a directory's checkpoints."""

    high_watermarks: dict[TopicPartition, int] = field(default_factory=dict)
    recovery_points: dict[TopicPartition, int] = field(default_factory=dict)
    log_starts: dict[TopicPartition, int] = field(default_factory=dict)
    cleaned_to: dict[TopicPartition, int] = field(default_factory=dict)

    def add(self, tp: TopicPartition, log: UnifiedLog, high_watermark: int | None) -> None:
        """What is about to be truncated is claimed no more: the log may be filled again before the next
        checkpoint, and an old beginning in the middle of new records would hide them."""
        truncation = log.prepared_truncation
        kept = sys.maxsize if truncation is None else truncation.end
        if high_watermark is not None:
            self.high_watermarks[tp] = min(high_watermark, kept)
        self.recovery_points[tp] = log.recovery_point
        if (log_start := min(log.log_start_offset, kept)) > 0:
            self.log_starts[tp] = log_start
        if log.cleaned_to > 0:
            self.cleaned_to[tp] = log.cleaned_to


def _checkpoint_in(directory: LogDir, offsets: _Offsets, everything: bool, may_block: MayBlock) -> None:
    points = offsets.recovery_points if everything else None
    directory.checkpoint(may_block, offsets.high_watermarks, points, offsets.log_starts, offsets.cleaned_to)


def _update_in(directory: LogDir, offsets: _Offsets, may_block: MayBlock) -> None:
    directory.update_checkpoints(may_block, offsets.high_watermarks, offsets.log_starts, offsets.cleaned_to)


def _sync_in(
    directory: LogDir, created: Sequence[UnifiedLog], may_block: MayBlock
) -> Mapping[UnifiedLog, Exception]:
    """Sync the directory, then write each log's partition.metadata: a log that has one has a durable name.
    Returns the logs for which that failed."""
    directory.sync(may_block)
    failed: dict[UnifiedLog, Exception] = {}
    for log in created:
        try:
            log.identify(may_block)
        except Exception as error:  # noqa: BLE001 - the others have their own
            failed[log] = error
    return failed
