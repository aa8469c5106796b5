"""Which log is compacted next: the dirtiest of those that are due, one at a time.

Runs behind everything else: the reading and writing is done in the executor, the loop only puts the
new segments in the place of the old ones. How far each log has been cleaned is in the log dir's
`cleaner-offset-checkpoint`; without it a log is cleaned again from its start, which loses nothing.

Off the path of the data: replica_manager's timer -> here -> log/compact_log.py, log/cleaner.py.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Mapping
from functools import partial

from data_plane.log.cleaner import CleanWork, LogToClean, UncleanableError
from data_plane.log.compact_log import cleanable, finish_replacing, plan_cleaning, replace_segments
from data_plane.log.consistency import InconsistentLogError
from data_plane.log.log import UnifiedLog
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.checkpoint_writer import CheckpointWriter
from data_plane.log_manager.local_replica import LocalReplica, ReplicaFailures
from data_plane.log_manager.log_dirs import LogDir
from data_plane.log_manager.log_executor import RETRY_S, LogExecutor
from data_plane.log_manager.log_manager import LogManager
from metadata_quorum.foundation.disk import is_of_disk

logger = logging.getLogger(__name__)


class LogCleaner:
    """The cleaner of one broker."""

    def __init__(
        self,
        logs: LogManager,
        executor: LogExecutor,
        checkpoints: CheckpointWriter,
        background: BackgroundWork,
        failures: ReplicaFailures,
        now_ms: Callable[[], int],
        max_map_bytes: int,
    ) -> None:
        """`max_map_bytes`: memory for the keys of one pass (log.cleaner.dedupe.buffer.size)."""
        self._logs = logs
        self._executor = executor
        self._checkpoints = checkpoints
        self._background = background
        self._failures = failures
        self._now_ms = now_ms
        self.max_map_bytes = max_map_bytes
        self._running = False
        self._work: CleanWork | None = None
        self._uncleanable: dict[LocalReplica, str] = {}  # and why

    @property
    def uncleanable(self) -> Mapping[LocalReplica, str]:
        """Logs that are not compacted any more until the next start, and why
        (uncleanable-partitions-count)."""
        return {p: why for p, why in self._uncleanable.items() if not p.removed}

    def uncleanable_in(self, directory: LogDir) -> int:
        """How many logs there are not compacted any more (uncleanable-partitions-count)."""
        return sum(self._logs.replicas.get(replica) is directory for replica in self.uncleanable)

    async def sweep(self) -> None:
        """Clean until nothing is due. A call while another one runs does nothing."""
        if self._running:
            return
        self._running = True
        try:
            self._uncleanable = dict(self.uncleanable)
            cleaned: set[LocalReplica] = set()
            while (replica := await self._dirtiest(cleaned)) is not None and not self._background.closed:
                cleaned.add(replica)
                to_clean = self._due(replica)  # again: looking at all of them took many turns of the loop
                if to_clean is not None:
                    await self._clean(replica, to_clean)
        finally:
            self._running = False

    def close(self) -> None:
        """A stop does not wait until a large log has been read to its end."""
        if self._work is not None and not self._work.replacing:
            self._work.give_up()

    async def _dirtiest(self, cleaned: set[LocalReplica]) -> LocalReplica | None:
        """The log with the highest share of dirty bytes among those that are due."""
        dirtiest, highest = None, 0.0
        async for replica in self._background.each(self._logs.replicas):
            if not replica.log.config.compact or replica in cleaned:  # most are not compacted
                continue
            to_clean = self._due(replica)
            if to_clean is not None and (dirtiest is None or to_clean.ratio > highest):
                dirtiest, highest = replica, to_clean.ratio
        return dirtiest

    def _due(self, replica: LocalReplica) -> LogToClean | None:
        """What is to be cleaned of the replica's log, if anything. Nothing while it is copied to another
        directory: the cleaner would overtake the copy."""
        directory = self._logs.replicas.get(replica)
        config = replica.log.config
        if directory is None or not directory.online or not config.compact:
            return None
        if replica.removed or replica.offline or replica.move is not None or replica in self._uncleanable:
            return None
        now_ms = self._now_ms()
        try:
            to_clean = cleanable(replica.log, replica.last_stable_offset, now_ms)
        except OSError as error:
            self._failures.storage_failed(replica, error)
            return None
        except Exception as error:  # noqa: BLE001
            self._give_up(replica, error)
            return None
        return to_clean if to_clean.is_due(config) else None

    async def _clean(self, replica: LocalReplica, to_clean: LogToClean) -> None:
        log = replica.log
        now_ms = self._now_ms()
        work = plan_cleaning(log, to_clean, now_ms, self.max_map_bytes)
        self._work = work
        try:
            await self._background.blocking(work.run)
            gone = replica.removed or replica.offline or replica.log is not log
            if gone or not replace_segments(log, work):
                await self._background.blocking(work.discard)
                return
            is_synced = await self._sync_names(replica, log)
            if is_synced and not replica.removed and replica.log is log:
                finish_replacing(log, work)
                self._executor.delete_files(replica, log.take_deletions())
                await self._checkpoints.write()
        except OSError as error:
            here = not replica.removed and replica.log is log and not work.cancelled
            if here:  # else its files went away meanwhile
                log.inconsistent |= work.replacing
                self._failures.storage_failed(replica, error)
            await self._discard(work)
        except InconsistentLogError as error:
            self._failures.storage_failed(replica, error)
        except Exception as error:  # noqa: BLE001 - a batch that it cannot take, or a bug
            if work.replacing:
                self._failures.give_up(replica, "the cleaning", error)
            else:
                self._give_up(replica, error)
                await self._discard(work)
        else:
            logger.info("%s", _summary(replica, work))
        finally:
            self._work = None

    async def _sync_names(self, replica: LocalReplica, log: UnifiedLog) -> bool:
        """Let the old segments' names be gone for good. Where the process has no file descriptor for that, it
        is tried again later: the new ones serve under any name. False once the broker closes: then the next
        start gives them their names. Raises OSError of the disk."""
        while not self._background.closed:
            try:
                await self._background.blocking(partial(log.disk.sync_dir, log.directory))
                return True
            except OSError as error:
                if is_of_disk(error):
                    raise
                self._failures.fault(f"the cleaning of {replica.tp}, which goes on later,", error)
                await asyncio.sleep(RETRY_S)
        return False

    def _give_up(self, replica: LocalReplica, error: Exception) -> None:
        """Leave that log as it is until the next start; the others are compacted all the same."""
        self._uncleanable[replica] = str(error)
        if isinstance(error, UncleanableError):
            logger.error("%s is not compacted any more: %s", replica.tp, error)
        else:
            self._failures.fault(f"the cleaning of {replica.tp}, which is not compacted any more,", error)

    async def _discard(self, work: CleanWork) -> None:
        try:
            await self._background.blocking(work.discard)
        except OSError as error:
            logger.warning("unfinished files of the cleaner are left in %s: %s", work.directory, error)


def _summary(replica: LocalReplica, work: CleanWork) -> str:
    before = sum(segment.size for r in work.replacements for segment in r.old)
    after = sum(r.new.size for r in work.replacements)
    return f"Compacted {replica.tp} up to offset {work.cleaned_to}: {before} bytes are now {after}"
