"""A log's own view of the disk: its directory, whatever its present name.

A deleted topic's directory is renamed on the loop, and a new topic of that name gets one under the old name
at once, while a flush, a cleaning or an identification of the old log is still under way in the executor.
Their paths would point into the new topic's directory. Here a path means the directory in which the log was
opened: after `move` it points to its new place, and once that is removed it raises FileNotFoundError.

No fsync is waited for under the lock, so the loop waits for one open, rename or removal of a file at most.

Path of the data: log, segments, flush, cleaner -> here -> disk.
"""

from __future__ import annotations

import errno
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from threading import RLock
from typing import Final, TypeVar

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, File, write_in_steps
from metadata_quorum.foundation.primitives import Buffer

SPARE_FILES: Final = 4
"""More than a truncation has open at once."""
_NO_DESCRIPTOR: Final = frozenset({errno.EMFILE, errno.ENFILE})

Result = TypeVar("Result")


class PartitionDirectory:
    """A `Disk` for the files of one log."""

    def __init__(self, disk: Disk, directory: str) -> None:
        self._disk = disk
        self.lock = RLock()
        """Held while a file is opened, renamed or removed."""
        self._directory = directory
        self._names = {directory}
        self._spare: list[File] = []

    @contextmanager
    def spare_files(self, path: str) -> Iterator[None]:
        """For a change that must not stop half-way: what is opened inside gets a descriptor, even where the
        process has none left. Raises OSError at once where there are none to spare. `path` names any file
        that is there."""
        self._spare = [self._disk.open(self._now(path)) for _ in range(SPARE_FILES)]
        try:
            yield
        finally:
            for file in self._spare:
                file.close()
            self._spare = []

    def move(self, directory: str) -> None:
        """Rename the directory; paths that begin with any of its names lead there."""
        with self.lock:
            self._disk.rename(self._directory, directory)
            self._directory = directory
            self._names.add(directory)

    def _now(self, path: str) -> str:
        if path in self._names:
            return self._directory
        directory, _, name = path.rpartition("/")
        return f"{self._directory}/{name}" if directory in self._names else path

    def _with_spare(self, call: Callable[[], Result]) -> Result:
        while True:
            try:
                return call()
            except OSError as error:
                if error.errno not in _NO_DESCRIPTOR or not self._spare:
                    raise
                self._spare.pop().close()

    def open(self, path: str, *, create: bool = False) -> File:
        with self.lock:
            return self._with_spare(lambda: self._disk.open(self._now(path), create=create))

    def exists(self, path: str) -> bool:
        with self.lock:
            return self._disk.exists(self._now(path))

    def list(self, path: str, may_block: MayBlock) -> list[str]:
        with self.lock:
            return self._with_spare(lambda: self._disk.list(self._now(path), may_block))

    def sizes(self, path: str, may_block: MayBlock) -> dict[str, int]:
        with self.lock:
            return self._disk.sizes(self._now(path), may_block)

    def make_dirs(self, path: str) -> None:
        with self.lock:
            self._disk.make_dirs(self._now(path))

    def remove(self, path: str) -> None:
        with self.lock:
            self._disk.remove(self._now(path))

    def remove_tree(self, path: str, may_block: MayBlock) -> None:
        self._disk.remove_tree(self._now(path), may_block)

    def rename(self, source: str, target: str) -> None:
        with self.lock:
            self._disk.rename(self._now(source), self._now(target))

    def sync_dir(self, path: str, may_block: MayBlock) -> None:
        # Not under the lock. Where the directory is renamed meanwhile another one may be synced, without
        # harm: a log that was set aside needs nothing durable, one that moves is not being flushed.
        self._disk.sync_dir(self._now(path), may_block)

    def sync_below(self, path: str, may_block: MayBlock) -> None:
        self._disk.sync_below(self._now(path), may_block)

    def volume(self, path: str) -> tuple[int, int]:
        return self._disk.volume(self._now(path))

    def read_bytes(self, path: str, may_block: MayBlock) -> bytes:
        with self.lock:
            return self._disk.read_bytes(self._now(path), may_block)

    def write_atomic(self, path: str, data: Buffer, may_block: MayBlock) -> None:
        """As the disk's, in steps that each find the directory where it lies then."""
        write_in_steps(self, path, data, may_block)
