"""Work of a log that may block: small objects whose `run` the owner gives to an executor.

`run` touches files only. What follows from it (the new recovery point) is told to the log by the
owner, on the loop. An OSError from `run` means that the log dir's state is unknown: it goes
offline, and nothing is tried twice.

Way of the data: log -> these -> replica_manager's executor -> log.flush_done.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, File


@dataclass(frozen=True, slots=True)
class FlushWork:
    """Make a log durable up to `offset` (exclusive). The log must not be closed while it runs."""

    disk: Disk
    directory: str
    offset: int
    files: Sequence[File]
    snapshots: Sequence[str]
    epochs_path: str
    epochs: bytes | None  # new contents of leader-epoch-checkpoint where the file is behind
    new_files: bool
    new_directory: bool  # the log's own: its name has to be durable in the log directory
    generation: int  # of the log's truncations: a flush that began before one counts for less

    def run(self, may_block: MayBlock) -> None:
        for data in self.files:
            data.sync(may_block)
        for path in self.snapshots:
            try:
                file = self.disk.open(path)
            except FileNotFoundError:  # its segment has gone meanwhile
                continue
            file.sync(may_block)
            file.close()
        if self.epochs is not None:
            self.disk.write_atomic(self.epochs_path, self.epochs, may_block)
        elif self.new_files:
            self.disk.sync_dir(self.directory, may_block)
        if self.new_directory:
            self.disk.sync_dir(os.path.dirname(self.directory) or ".", may_block)


@dataclass(frozen=True, slots=True)
class Deletion:
    """Remove files that were renamed to `*.deleted`, once `file.delete.delay.ms` is over.

    The delay lets reads end that hold a slice of them.
    """

    disk: Disk
    paths: Sequence[str]
    due_ms: int
    size: int

    def run(self, may_block: MayBlock) -> None:
        for path in self.paths:
            self.disk.remove(path)
