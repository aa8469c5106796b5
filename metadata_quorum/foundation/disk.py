"""The disk as the node sees it: a port, and the operating system behind it.

Everything that is stored goes through a `Disk`, so that the simulator can swap in one that
loses unsynced pages, tears writes, fills up or fails an fsync. The rules that callers rely on:

* `write_at` and `append` reach the page cache: they survive the death of the process, not of
  the machine. `sync` makes a file's bytes durable, `sync_dir` a directory's entries.
* An `OSError` from any call means that the file's state is unknown. A failed `sync` is never
  retried (the kernel may have dropped the dirty pages); the caller takes the directory offline. An error
  that the process caused, and not the disk (`is_of_disk`), ends only the work that made the call.
* What waits for the device takes a `MayBlock` (blocking.py), which the event loop does not have.
* Paths are plain strings below a directory that the caller owns.
* Only the node's user may read what is created here (files 0600, directories 0700): records and credentials.

Lowest floor: used by the Raft journal (metadata_quorum/raft) and the partition log (data_plane/log).
"""

from __future__ import annotations

import ctypes
import errno
import os
import shutil
from collections.abc import Sequence
from typing import Final, Protocol

from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.primitives import Buffer

PRIVATE_FILE: Final = 0o600
PRIVATE_DIRECTORY: Final = 0o700

UNKNOWN_BYTES: Final = 64 * 1024
"""Up to here a read is tried where the file system does not tell whether it would wait for the device."""

_syncfs = getattr(ctypes.CDLL(None, use_errno=True), "syncfs", None)
"""Linux's: the whole file system. It reports errors of writing since 5.8."""

_NOT_OF_DISK: Final = frozenset(
    {
        errno.EMFILE,  # the process has all the files open that it may
        errno.ENFILE,
        errno.ENOMEM,
        errno.ENAMETOOLONG,
        errno.EINVAL,
        errno.EBADF,  # closed already
        errno.EOVERFLOW,
        errno.ENOTEMPTY,  # something is still being written into what is removed
    }
)


def is_of_disk(error: OSError) -> bool:
    """Whether the disk has failed or is full; otherwise the process is at fault."""
    return error.errno not in _NOT_OF_DISK


_GONE: Final = frozenset({errno.EBADF, errno.ENOENT})


def is_gone(error: OSError) -> bool:
    """Whether a reader's file was closed or removed while it was being read."""
    return error.errno in _GONE


class File(Protocol):
    """One open file. Offsets and sizes in bytes."""

    def size(self) -> int:
        """The file's length, appended bytes included."""

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Write the buffers one after another at the end; return the bytes written (all of them)."""

    def write_at(self, offset: int, data: Buffer) -> None:
        """Overwrite in place (used for index files and markers)."""

    def read(self, offset: int, length: int) -> bytes:
        """Up to `length` bytes from `offset`; shorter only at the end of the file.

        Takes no `MayBlock`: this is how the loop reads the headers behind an index entry and the metadata
        log's newest batches, some KB that were written or read just now; the executor would cost more than
        the read. What may be long or cold needs one further up: slices, time searches, whole files.
        """

    def read_cached(self, offset: int, length: int) -> bytes | bytearray | None:
        """Like `read`, but None if it would have to wait for the device."""

    def truncate(self, size: int) -> None:
        """Truncate the file to `size` bytes."""

    def sync(self, may_block: MayBlock) -> None:
        """Make contents and length durable (fdatasync)."""

    def close(self) -> None:
        """Release the handle; nothing is synced."""


class Disk(Protocol):
    """A file system below which the node keeps its directories."""

    def open(self, path: str, *, create: bool = False) -> File:
        """Open for reading and writing; `create` makes an empty file where there is none."""

    def exists(self, path: str) -> bool: ...

    def list(self, path: str, may_block: MayBlock) -> list[str]:
        """Names in a directory, sorted; an empty list where the directory does not exist."""

    def sizes(self, path: str, may_block: MayBlock) -> dict[str, int]:
        """The files in a directory, with their lengths; empty where the directory does not exist."""

    def make_dirs(self, path: str) -> None: ...

    def remove(self, path: str) -> None:
        """Remove a file; no error where it is already gone."""

    def remove_tree(self, path: str, may_block: MayBlock) -> None: ...

    def rename(self, source: str, target: str) -> None:
        """Atomically, replacing `target`; durable after `sync_dir` of the parent."""

    def sync_dir(self, path: str, may_block: MayBlock) -> None: ...

    def sync_below(self, path: str, may_block: MayBlock) -> None:
        """Make a directory durable with all that is in it, and what is in its directories. Where thousands
        of files need it, this waits for the device once."""

    def volume(self, path: str) -> tuple[int, int]:
        """Total and usable bytes of the volume that the path lies on."""

    def read_bytes(self, path: str, may_block: MayBlock) -> bytes: ...

    def write_atomic(self, path: str, data: Buffer, may_block: MayBlock) -> None:
        """Write a whole small file so that after a crash it is the old one or the new one, and
        durable on return: temporary file, sync, rename, sync of the directory."""


class OsFile:
    """A file of the operating system, by file descriptor."""

    __slots__ = ("_end", "fd")

    def __init__(self, fd: int) -> None:
        self.fd = fd
        self._end = os.fstat(fd).st_size

    def size(self) -> int:
        return self._end

    def append(self, buffers: Sequence[Buffer]) -> int:
        """Raises OSError."""
        if len(buffers) == 1:  # a partition's append, the hot path
            data = buffers[0]
            total = len(data)
            done = os.pwrite(self.fd, data, self._end)
        else:
            data = b""
            total = sum(len(b) for b in buffers)
            done = os.pwritev(self.fd, buffers, self._end)
        if done < total:
            rest = memoryview(data or b"".join(buffers))
            while done < total:
                n = os.pwrite(self.fd, rest[done:], self._end + done)
                if n == 0:
                    raise OSError(errno.EIO, "write returned 0 bytes")
                done += n
        self._end += total
        return total

    def write_at(self, offset: int, data: Buffer) -> None:
        rest = memoryview(data)
        while rest:
            n = os.pwrite(self.fd, rest, offset)
            rest = rest[n:]
            offset += n
        self._end = max(self._end, offset)

    def read(self, offset: int, length: int) -> bytes:
        data = os.pread(self.fd, length, offset)
        while len(data) < length:
            more = os.pread(self.fd, length - len(data), offset + len(data))
            if not more:
                break
            data += more
        return data

    def read_cached(self, offset: int, length: int) -> bytes | bytearray | None:
        # The bytearray itself is handed out: turning it into bytes costs 20 times the read at 1 MB,
        # zeroing it first a quarter of the read.
        buffer = bytearray(length)
        try:
            n = os.preadv(self.fd, [buffer], offset, os.RWF_NOWAIT)
        except BlockingIOError:
            return None
        except OSError as e:
            if e.errno == errno.EOPNOTSUPP:  # nobody knows; a little is read all the same
                return self.read(offset, length) if length <= UNKNOWN_BYTES else None
            raise
        if n == length:
            return buffer
        if offset + n >= self._end:
            del buffer[n:]
            return buffer
        return None

    def truncate(self, size: int) -> None:
        os.ftruncate(self.fd, size)
        self._end = size

    def sync(self, may_block: MayBlock) -> None:
        os.fdatasync(self.fd)

    def close(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)
            self.fd = -1

    def __del__(self) -> None:
        # A slice that is still being read keeps its file open; the last one to let go closes it.
        self.close()


class OsDisk:
    """The operating system's file system."""

    def open(self, path: str, *, create: bool = False) -> OsFile:
        flags = os.O_RDWR | os.O_CLOEXEC | (os.O_CREAT if create else 0)
        return OsFile(os.open(path, flags, PRIVATE_FILE))

    def exists(self, path: str) -> bool:
        try:
            os.stat(path)
        except (FileNotFoundError, NotADirectoryError):  # no other error means that the path does not exist
            return False
        return True

    def list(self, path: str, may_block: MayBlock) -> list[str]:
        try:
            return sorted(os.listdir(path))
        except FileNotFoundError:
            return []

    def sizes(self, path: str, may_block: MayBlock) -> dict[str, int]:
        try:
            with os.scandir(path) as entries:
                return {entry.name: entry.stat().st_size for entry in entries if entry.is_file()}
        except FileNotFoundError:
            return {}

    def make_dirs(self, path: str) -> None:
        if os.path.isdir(path):
            return
        parent = os.path.dirname(path.rstrip("/"))
        if parent:
            self.make_dirs(parent)
        try:
            os.mkdir(path, PRIVATE_DIRECTORY)
        except FileExistsError:  # another process was faster
            if not os.path.isdir(path):
                raise

    def remove(self, path: str) -> None:
        try:
            os.unlink(path)
        except FileNotFoundError:
            pass

    def remove_tree(self, path: str, may_block: MayBlock) -> None:
        for name in self.list(path, may_block):
            child = os.path.join(path, name)
            if os.path.isdir(child) and not os.path.islink(child):
                self.remove_tree(child, may_block)
            else:
                self.remove(child)
        try:
            os.rmdir(path)
        except FileNotFoundError:
            pass
        except NotADirectoryError:  # a link to one
            os.unlink(path)

    def rename(self, source: str, target: str) -> None:
        os.replace(source, target)

    def sync_dir(self, path: str, may_block: MayBlock) -> None:
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            os.fsync(fd)
        finally:
            os.close(fd)

    def sync_below(self, path: str, may_block: MayBlock) -> None:
        """Raises OSError."""
        if _syncfs is None:
            sync_each_below(self, path, may_block)
            return
        fd = os.open(path, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if _syncfs(fd):
                code = ctypes.get_errno()
                raise OSError(code, os.strerror(code), path)
        finally:
            os.close(fd)

    def volume(self, path: str) -> tuple[int, int]:
        usage = shutil.disk_usage(path)
        return usage.total, usage.free

    def read_bytes(self, path: str, may_block: MayBlock) -> bytes:
        with open(path, "rb", buffering=0) as f:
            return f.readall()

    def write_atomic(self, path: str, data: Buffer, may_block: MayBlock) -> None:
        write_in_steps(self, path, data, may_block)


def sync_each_below(disk: Disk, path: str, may_block: MayBlock) -> None:
    """`Disk.sync_below` by the disk's other operations."""
    sizes = disk.sizes(path, may_block)
    for name in disk.list(path, may_block):
        below = f"{path}/{name}"
        if name not in sizes:
            sync_each_below(disk, below, may_block)
            continue
        try:
            file = disk.open(below)
        except FileNotFoundError:  # removed meanwhile
            continue
        try:
            file.sync(may_block)
        finally:
            file.close()
    disk.sync_dir(path, may_block)


def directories_in(disk: Disk, path: str, may_block: MayBlock) -> list[str]:
    """The names of those right in a directory."""
    files = disk.sizes(path, may_block)
    return [name for name in disk.list(path, may_block) if name not in files]


def make_dirs_durably(disk: Disk, path: str, may_block: MayBlock) -> None:
    """Like `make_dirs`, and no loss of power takes the directories, and with them all that is written
    there. Raises OSError; then none is left that was made: no later sync would write its name."""
    missing: list[str] = []
    parent = path.rstrip("/")
    while parent and not disk.exists(parent):
        missing.append(parent)
        parent = os.path.dirname(parent)
    try:
        disk.make_dirs(path)
        for made in missing:
            disk.sync_dir(os.path.dirname(made) or ".", may_block)
    except OSError:
        for made in missing:
            if not disk.list(made, may_block):  # another process may have made something there
                disk.remove_tree(made, may_block)
        raise


def sync_way_to(disk: Disk, path: str, may_block: MayBlock) -> None:
    """Make the names durable by which a directory is found, where whoever made it may have died before it
    had done so. Raises OSError."""
    directory = os.path.abspath(path)
    while True:
        try:
            disk.sync_dir(directory, may_block)
        except OSError as error:
            if error.errno == errno.EIO:  # others: it is not ours to write, so nothing here is of our making
                raise
        if directory == os.path.dirname(directory):
            return
        directory = os.path.dirname(directory)


def write_in_steps(disk: Disk, path: str, data: Buffer, may_block: MayBlock) -> None:
    """`Disk.write_atomic` by the disk's other operations."""
    temporary = path + ".tmp"
    disk.remove(temporary)
    file = disk.open(temporary, create=True)
    try:
        file.append([data])
        file.sync(may_block)
    finally:
        file.close()
    disk.rename(temporary, path)
    disk.sync_dir(os.path.dirname(path) or ".", may_block)
