"""Flushes, truncations and deletions: work on a replica's log that waits for the disk, off the loop.

    Partition.append_as_leader -> flush -> FlushWork (executor) -> log.flush_done -> Partition.flushed
    Partition.truncate_to -> Truncation.run (executor) -> checkpoints -> truncate -> flush -> done

What a truncation has to heed is in truncation.py.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from functools import partial
from typing import Final

from data_plane.log.deletion import Deletion
from data_plane.log_manager.background_work import BackgroundWork
from data_plane.log_manager.checkpoint_writer import CheckpointWriter
from data_plane.log_manager.local_replica import LocalReplica, ReplicaFailures
from data_plane.log_manager.log_manager import LogManager
from data_plane.log_manager.truncation import Truncation
from metadata_quorum.foundation.disk import is_of_disk

RETRY_S: Final = 1.0
"""Pause before a flush is tried again that failed, but not because of the disk."""


class LogExecutor:
    """For all logs of one broker."""

    def __init__(
        self,
        logs: LogManager,
        checkpoints: CheckpointWriter,
        background: BackgroundWork,
        failures: ReplicaFailures,
    ) -> None:
        self._logs = logs
        self._checkpoints = checkpoints
        self._background = background
        self._failures = failures
        self._flushing: dict[LocalReplica, asyncio.Task[None]] = {}
        self.flushes = 0
        self.flush_s = 0.0
        """How many were done since the start, and their time: the disk's, and the executor's queue."""

    # --- flush --------------------------------------------------------------------------------

    def flush(self, replica: LocalReplica) -> None:
        """Make the replica's log durable soon; `flushed` is called then."""
        if replica not in self._flushing and not self._background.closed:
            self._flushing[replica] = self._background.spawn(self._flush(replica))

    async def _flush(self, replica: LocalReplica) -> None:
        """Flush until nothing is due: appends continue during a flush."""
        try:
            while not replica.offline and not replica.removed:
                log = replica.log
                work = log.prepare_flush()
                if work is not None:
                    try:
                        began = self._background.loop.time()
                        await self._background.blocking(work.run)
                        self.flushes += 1
                        self.flush_s += self._background.loop.time() - began
                    except OSError as e:
                        if replica.log is not log:  # it has moved to another directory meanwhile
                            if not isinstance(e, FileNotFoundError):
                                self._failures.storage_failed(replica, e, log.directory)
                            continue
                        log.flush_failed(work)
                        raise
                    log.flush_done(work)
                replica.flushed(self._background.loop.time())
                if work is not None and not replica.log.unflushed.truncation_is_durable:
                    continue  # truncated since it began: until that is durable the log takes no appends
                if replica.log.prepared_truncation is not None or not replica.is_flush_due:
                    return
        except Exception as e:  # noqa: BLE001 - those who wait for the flush must not wait forever
            if not replica.removed:  # else its directory was renamed meanwhile
                self._flush_failed(replica, e)
        finally:
            self._flushing.pop(replica, None)

    def _flush_failed(self, replica: LocalReplica, error: Exception) -> None:
        if not isinstance(error, OSError):
            self._failures.give_up(replica, "the flush", error)
        elif is_of_disk(error):
            self._failures.storage_failed(replica, error)
        else:  # the recovery point stays: only time is lost
            self._failures.fault(f"the flush of {replica.tp}, which is tried again,", error)
            self._background.timer.call_later(RETRY_S, partial(self._flush_again, replica))

    def _flush_again(self, replica: LocalReplica) -> None:
        if not replica.offline and not replica.removed:
            self.flush(replica)

    # --- truncation ---------------------------------------------------------------------------

    def truncate(self, truncation: Truncation) -> None:
        """Run it in the executor, write checkpoints with the log's present recovery point, truncate the log
        on the loop, and flush it. It is not `done` if the broker stops meanwhile."""
        if not self._background.closed:
            self._background.spawn(self._truncate(truncation))

    async def _truncate(self, truncation: Truncation) -> None:
        replica = truncation.replica
        ready = False
        try:
            await self._background.blocking(truncation.run)
            directory = self._logs.replicas.get(replica)
            if truncation.ready and directory is not None:
                ready = await self._checkpoints.written_after_now(directory)
        except OSError as e:
            self._failures.storage_failed(replica, e, truncation.log_path)
        except Exception as e:  # noqa: BLE001 - what is below the offset cannot be read
            self._failures.give_up(replica, "a truncation", e)
        was_truncated = truncation.truncate(ready, self._failures)
        replica.after_truncation()
        if was_truncated:
            self.delete_files(replica, replica.log.take_deletions())
            self.flush(replica)
            if replica in self._flushing:
                await asyncio.wait([self._flushing[replica]])
        truncation.done(was_truncated and replica.log.unflushed.truncation_is_durable)

    # --- deletion -----------------------------------------------------------------------------

    def delete_files(self, replica: LocalReplica, deletions: Sequence[Deletion]) -> None:
        """Remove files of the replica's log when they are due."""
        directory = self._logs.replicas.get(replica)
        if directory is None:
            return
        for deletion in deletions:
            self._background.timer.call_later(
                deletion.delay_ms / 1000,
                partial(self._background.run_in, directory, deletion.run),
            )
