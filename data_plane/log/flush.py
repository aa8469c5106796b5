"""What of a log is durable, and the work that makes the rest durable.

    recovery point   everything below it survives a loss of power; it rises with a flush that has been done
    Unflushed        what else awaits a flush: directory entries, producer snapshots, epochs
    FlushWork        one flush. `run` blocks, in an executor; then the owner calls `flush_done`

A flush that was prepared before a truncation does not raise the recovery point: what it made durable may
have been truncated and written again since.

Path of the data: log.prepare_flush -> FlushWork in replica_manager's executor -> log.flush_done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from data_plane.log import checkpoints, files
from data_plane.log.aborted import AbortedTransactions
from data_plane.log.epochs import EpochCache
from data_plane.log.log_segments import LogSegments
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, File


@dataclass(frozen=True, slots=True)
class FlushWork:
    """Make a log durable up to `offset` (exclusive). It holds its files open, also when the log is closed."""

    disk: Disk
    directory: str
    offset: int
    files: Sequence[File]
    all_files: bool  # sync the directory with all that is in it
    snapshots: Sequence[str]
    epochs_path: str
    epochs: bytes | None  # new contents of leader-epoch-checkpoint where the file is behind
    new_files: bool
    new_directory: bool  # the log's own: its name has to be durable in the log directory
    generation: int  # truncations of the log before this flush was prepared

    def run(self, may_block: MayBlock) -> None:
        """Touches files only. An OSError of the disk means that the log dir's state is unknown: it goes
        offline, and nothing is retried."""
        if self.all_files:
            self.disk.sync_below(self.directory, may_block)
        for data in self.files:
            data.sync(may_block)
        for path in self.snapshots:
            self._sync(path, may_block)
        if self.epochs is not None:
            self.disk.write_atomic(self.epochs_path, self.epochs, may_block)
        elif self.new_files:
            self.disk.sync_dir(self.directory, may_block)
        if self.new_directory:
            # Durable records of nobody would be those of the next topic of the name.
            self._sync(f"{self.directory}/{files.PARTITION_METADATA}", may_block)
            self.disk.sync_dir(os.path.dirname(self.directory) or ".", may_block)

    def _sync(self, path: str, may_block: MayBlock) -> None:
        try:
            file = self.disk.open(path)
        except FileNotFoundError:  # of a segment that has been deleted meanwhile; or nobody's log
            return
        file.sync(may_block)
        file.close()


class Unflushed:
    """See the module. Owned by one `UnifiedLog`."""

    def __init__(self, recovery_point: int, new_directory: bool) -> None:
        self.recovery_point = recovery_point
        self.new_directory = new_directory
        """The name of the log's directory is not known to be durable."""
        self.new_files = True
        """Entries of the log's directory have changed."""
        self.truncation_is_durable = True
        """The last truncation. Until it is, the log refuses appends."""
        self._snapshots: list[str] = []
        self._files: list[File] = []  # of a flush that failed
        self._all_files = False  # one failed that was to sync them
        self._truncations = 0

    @property
    def nothing_truncated(self) -> bool:
        """Since the log was opened."""
        return self._truncations == 0

    def add_snapshot(self, path: str) -> None:
        """A producer snapshot has been written to the page cache."""
        self._snapshots.append(path)

    def forget_snapshots(self) -> None:
        """All of them have been removed."""
        self._snapshots.clear()

    def lower_recovery_point(self, offset: int) -> None:
        self.recovery_point = min(self.recovery_point, offset)

    def truncated(self, active_base_offset: int) -> None:
        """The log ends in the segment at this offset now. That must itself be synced: otherwise what the
        truncation removed could come back later, beneath newer segments."""
        self._truncations += 1
        self.lower_recovery_point(active_base_offset)
        self.new_files = True

    def moved_to(self, directory: str) -> None:
        """The log's directory has been renamed."""
        self._snapshots = [f"{directory}/{path.rpartition('/')[2]}" for path in self._snapshots]
        self.new_files = True

    def prepare(
        self,
        disk: Disk,
        directory: str,
        log_end_offset: int,
        segments: LogSegments,
        epochs: EpochCache,
        aborted: AbortedTransactions,
    ) -> FlushWork | None:
        """All that must be synced so that nothing below `log_end_offset` can be lost; None if nothing."""
        behind = self.recovery_point < log_end_offset or epochs.dirty
        new = self.new_files or self.new_directory
        failed = self._files or self._all_files
        if not (behind or new or self._snapshots or segments.has_sealed_since_flush or failed):
            return None
        unsynced = segments.take_unsynced(self.recovery_point)
        work = FlushWork(
            disk,
            directory,
            log_end_offset,
            [*(unsynced or ()), *self._files, *aborted.take_unsynced()],
            unsynced is None or self._all_files,
            self._snapshots,
            f"{directory}/{files.LEADER_EPOCHS}",
            checkpoints.encode_epochs(epochs.entries) if epochs.dirty else None,
            self.new_files,
            self.new_directory,
            self._truncations,
        )
        self._snapshots = []
        self._files = []
        self._all_files = self.new_files = self.new_directory = False
        epochs.dirty = False
        return work

    def truncation_flushed(self, work: FlushWork) -> None:
        """`work.run` has returned: truncations before it was prepared are durable."""
        if work.generation == self._truncations:
            self.truncation_is_durable = True

    def done(self, work: FlushWork) -> None:
        """`work.run` has returned: raise the recovery point, unless the log was truncated meanwhile."""
        if work.generation == self._truncations and work.offset > self.recovery_point:
            self.recovery_point = work.offset

    def failed(self, work: FlushWork, epochs: EpochCache) -> None:
        """`work.run` failed for a reason other than the disk: all of it remains to be done."""
        self._files += work.files
        self._all_files |= work.all_files
        self._snapshots = [*work.snapshots, *self._snapshots]
        self.new_files |= work.new_files
        self.new_directory |= work.new_directory
        epochs.dirty |= work.epochs is not None
