"""A disk that can be made to fail: full, broken, slow, or unable to fsync, everywhere or below one path.

`FaultyDisk` wraps another `Disk` and passes every call on unless `faults` has one for it. A fault is data:
which operations it affects, below which path, and what happens to them.

    full        what would make a file longer          ENOSPC, after half of it was written
    error       reads, writes, fsyncs, names           EIO
    slow        all of these                           wait first, on the thread that calls
    fail_sync   fsync of files and directories         EIO: once, or each time

A read of cached data only is never delayed and never fails: while its file is affected, nothing counts as
cached, and the read that may wait gets the fault.

Path of a fault: chaos/live/disk_switch.py (outside) -> chaos/live/control.py -> here, inside the node.
"""

from __future__ import annotations

import errno
import os
import time
from collections.abc import Sequence
from dataclasses import dataclass
from threading import Lock
from typing import Final

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import Disk, File
from metadata_quorum.foundation.primitives import Buffer

READ: Final = "read"
WRITE: Final = "write"
"""In place, or of names: it needs no room."""
GROW: Final = "grow"
SYNC: Final = "sync"
WRITES: Final = (WRITE, GROW, SYNC)
ALL: Final = (READ, *WRITES)


@dataclass(frozen=True, slots=True)
class DiskFault:
    """One thing that is wrong with a disk."""

    operations: tuple[str, ...]
    below: str = ""
    """The file or directory that it strikes, with all below it; empty for everything."""
    code: int = 0
    """errno that the operations end with; 0 where they succeed."""
    delay_ms: float = 0.0
    times: int | None = None
    """How many operations end with the code; None for all."""
    lasting: bool = False
    """Still there when the node is started again."""
    number: int = 0
    """Tells a fault from one that was like it."""

    def strikes(self, operation: str, path: str) -> bool:
        return operation in self.operations and (
            not self.below or path == self.below or path.startswith(self.below + "/")
        )

    def like(self, other: DiskFault) -> bool:
        """Whether it takes the place of `other`."""
        return (self.operations, self.below, self.code) == (other.operations, other.below, other.code)


class FaultyFile:
    """An open file of a `FaultyDisk`."""

    __slots__ = ("_disk", "_file", "_path")

    def __init__(self, disk: FaultyDisk, path: str, file: File) -> None:
        self._disk = disk
        self._path = path
        self._file = file

    def size(self) -> int:
        return self._file.size()

    def append(self, buffers: Sequence[Buffer]) -> int:
        if self._disk.faults:
            try:
                self._disk.strike(GROW, self._path)
            except OSError as error:
                if error.errno == errno.ENOSPC:
                    self._disk.append_half(self._path, buffers)
                raise
        return self._file.append(buffers)

    def write_at(self, offset: int, data: Buffer) -> None:
        if self._disk.faults:
            grows = offset + len(data) > self._file.size()
            self._disk.strike(GROW if grows else WRITE, self._path)
        self._file.write_at(offset, data)

    def read(self, offset: int, length: int) -> bytes:
        if self._disk.faults:
            self._disk.strike(READ, self._path)
        return self._file.read(offset, length)

    def read_cached(self, offset: int, length: int) -> bytes | bytearray | None:
        if self._disk.faults and self._disk.struck(READ, self._path):
            return None
        return self._file.read_cached(offset, length)

    def truncate(self, size: int) -> None:
        if self._disk.faults:
            self._disk.strike(WRITE, self._path)
        self._file.truncate(size)

    def sync(self, may_block: MayBlock) -> None:
        if self._disk.faults:
            self._disk.strike(SYNC, self._path)
        self._file.sync(may_block)

    def close(self) -> None:
        self._file.close()


class FaultyDisk:
    """See the module. `faults` may be set at any time from any thread."""

    def __init__(self, disk: Disk) -> None:
        self._disk = disk
        self.faults: tuple[DiskFault, ...] = ()
        self._strikes: dict[DiskFault, int] = {}
        self._counting = Lock()

    # -- faults ----------------------------------------------------------------------------------------

    def struck(self, operation: str, path: str) -> bool:
        """Whether a fault lies in wait for the operation."""
        return any(fault.strikes(operation, path) for fault in self.faults)

    def strike(self, operation: str, path: str) -> None:
        """Apply every fault of the operation. Raises OSError where one is an error."""
        for fault in self.faults:
            if fault.strikes(operation, path):
                if fault.delay_ms:
                    time.sleep(fault.delay_ms / 1000)
                if fault.code and self._is_due(fault):
                    raise OSError(fault.code, os.strerror(fault.code), path)

    def _is_due(self, fault: DiskFault) -> bool:
        if fault.times is None:
            return True
        with self._counting:
            count = self._strikes.get(fault, 0) + 1
            self._strikes[fault] = count
        return count <= fault.times

    def append_half(self, path: str, buffers: Sequence[Buffer]) -> None:
        """A device that runs full: it writes a part of the data. The writer does not learn how much, so this
        bypasses the writer's handle."""
        data = b"".join(buffers)
        file = self._disk.open(path)
        try:
            file.append([data[: len(data) // 2]])
        finally:
            file.close()

    # -- the port --------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> FaultyFile:
        if self.faults:
            self.strike(READ, path)
        return FaultyFile(self, path, self._disk.open(path, create=create))

    def exists(self, path: str) -> bool:
        return self._disk.exists(path)

    def list(self, path: str, may_block: MayBlock) -> list[str]:
        if self.faults:
            self.strike(READ, path)
        return self._disk.list(path, may_block)

    def sizes(self, path: str, may_block: MayBlock) -> dict[str, int]:
        if self.faults:
            self.strike(READ, path)
        return self._disk.sizes(path, may_block)

    def make_dirs(self, path: str) -> None:
        if self.faults:
            self.strike(WRITE, path)
        self._disk.make_dirs(path)

    def remove(self, path: str) -> None:
        if self.faults:
            self.strike(WRITE, path)
        self._disk.remove(path)

    def remove_tree(self, path: str, may_block: MayBlock) -> None:
        if self.faults:
            self.strike(WRITE, path)
        self._disk.remove_tree(path, may_block)

    def rename(self, source: str, target: str) -> None:
        if self.faults:
            self.strike(WRITE, source)
        self._disk.rename(source, target)

    def sync_dir(self, path: str, may_block: MayBlock) -> None:
        if self.faults:
            self.strike(SYNC, path)
        self._disk.sync_dir(path, may_block)

    def sync_below(self, path: str, may_block: MayBlock) -> None:
        if self.faults:
            self.strike(SYNC, path)
        self._disk.sync_below(path, may_block)

    def volume(self, path: str) -> tuple[int, int]:
        return self._disk.volume(path)

    def read_bytes(self, path: str, may_block: MayBlock) -> bytes:
        if self.faults:
            self.strike(READ, path)
        return self._disk.read_bytes(path, may_block)

    def write_atomic(self, path: str, data: Buffer, may_block: MayBlock) -> None:
        if self.faults:
            for operation in WRITES:
                self.strike(operation, path)
        self._disk.write_atomic(path, data, may_block)
