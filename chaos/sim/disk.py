"""A disk that can lose power: page cache and durable image of every file, from a seed.

It implements the `Disk` port of metadata_quorum/foundation/disk.py and runs the same code above it as the
real one. What it models:

* `write_at` and `append` change the page cache; `sync` copies it to the durable image; names created,
  renamed or removed become durable with `sync_dir` of their directory, and a rename to another one with that
  of either.
* `kill()` kills the process: the page cache stays, every open handle is severed, so that a `finally` of
  the dead node cannot write afterwards. `kill_before(n)` kills it between two operations, an append half
  done.
* `power_loss(random)` loses the page cache: each unsynced page is kept, dropped or torn, at any byte or by
  sectors; each unsynced change of a directory is kept or dropped, and what lies in a directory whose own name
  is lost is lost with it.
  Only a directory of the root is durable at once: a disk is mounted there.
* `lose_page(...)` is a loss of power that takes one page alone.
* `fail(...)` plants an error; a failed fsync is reported once and its dirty pages count as clean: reading
  still shows them, to the next process too, but no later fsync writes them, as on Linux. Names
  likewise, after a failed `sync_dir`. `capacity` bytes fill the disk: ENOSPC.
* `spoil(random)` makes a page unreadable until it is written anew.
* `lose_device(path)` fails every operation below a directory, until `replace_device`.
* `durable_clone()` is the oracle of durability: the disk that a power loss would leave now if it lost
  everything that it may.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Sequence
from random import Random

from chaos.sim.disk_faults import CHANGES, DiskFaults, Fault
from chaos.sim.disk_tree import (
    PAGE,
    DirectoryNode,
    Inode,
    check_name,
    directories_below,
    disk_error,
    files_below,
    named_files_below,
    names_in,
    settle_inode,
)
from chaos.sim.name_changes import NameChanges
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import sync_each_below
from metadata_quorum.foundation.primitives import Buffer


class Killed(BaseException):
    """SIGKILL arrived inside a disk operation; nothing that the process may catch."""


class SimFile:
    """An open file of a `SimDisk`."""

    __slots__ = ("_disk", "_generation", "_inode", "_path")

    def __init__(self, disk: SimDisk, path: str, inode: Inode) -> None:
        self._disk = disk
        self._path = path
        self._inode = inode
        self._generation = disk.generation

    def size(self) -> int:
        return len(self._inode.cache)

    def append(self, buffers: Sequence[Buffer]) -> int:
        data = b"".join(buffers)
        try:
            self._check("append")
        except Killed:
            self._put(len(self._inode.cache), data[: len(data) // 2])
            raise
        self._write(len(self._inode.cache), data)
        return len(data)

    def write_at(self, offset: int, data: Buffer) -> None:
        self._check("write_at")
        self._write(offset, bytes(data))

    def _write(self, offset: int, data: bytes) -> None:
        cache = self._inode.cache
        grown = max(0, offset + len(data) - len(cache))
        room = self._disk.room()
        if grown > room:
            kept = max(0, len(data) - (grown - room))
            self._put(offset, data[:kept])
            raise disk_error(errno.ENOSPC, self._path)
        self._put(offset, data)

    def _put(self, offset: int, data: bytes) -> None:
        inode = self._inode
        if offset > len(inode.cache):
            inode.dirty.update(range(len(inode.cache) // PAGE, offset // PAGE + 1))
            inode.cache.extend(bytes(offset - len(inode.cache)))
        inode.cache[offset : offset + len(data)] = data
        if data:
            written = range(offset // PAGE, (offset + len(data) - 1) // PAGE + 1)
            inode.dirty.update(written)
            inode.bad.difference_update(written)

    def read(self, offset: int, length: int) -> bytes:
        """Raises OSError where a page is bad."""
        self._check("read")
        pages = range(offset // PAGE, (offset + max(length, 1) - 1) // PAGE + 1)
        if self._inode.bad and not self._inode.bad.isdisjoint(pages):
            self._disk.struck += 1
            raise disk_error(errno.EIO, self._path)
        data = bytes(self._inode.cache[offset : offset + length])
        self._disk.bytes_read += len(data)
        return data

    def read_cached(self, offset: int, length: int) -> bytes | None:
        return None if self._disk.misses() else self.read(offset, length)

    def truncate(self, size: int) -> None:
        self._check("truncate")
        inode = self._inode
        if size < len(inode.cache):
            inode.dirty.update(range(size // PAGE, len(inode.cache) // PAGE + 1))
            del inode.cache[size:]
        elif size > len(inode.cache):
            self._put(size, b"")

    def sync(self, may_block: MayBlock) -> None:
        inode = self._inode
        size = len(inode.cache)
        began = {page: inode.cache[page * PAGE : (page + 1) * PAGE] for page in sorted(inode.dirty)}
        try:
            self._check("sync")
        except OSError:
            inode.dirty.clear()
            raise
        self._disk.syncs += 1
        for page, piece in began.items():
            start = page * PAGE
            if len(inode.durable) < start:
                inode.durable.extend(bytes(start - len(inode.durable)))
            inode.durable[start : start + len(piece)] = piece
            if piece == inode.cache[start : start + PAGE]:  # else it was written while it was being synced
                inode.dirty.discard(page)
        del inode.durable[size:]

    def close(self) -> None:
        pass

    def _check(self, operation: str) -> None:
        if self._generation != self._disk.generation:
            raise Killed(f"the process that opened {self._path} is dead")
        self._disk.strike(operation, self._path)


class SimDisk:
    """One machine's file system. A path is any string; directories are its prefixes."""

    def __init__(self, capacity: int | None = None) -> None:
        self.capacity = capacity
        """Bytes that fit, None for no limit."""
        self.generation = 0
        """Grows with every kill; handles of an older one are severed."""
        self.syncs = 0
        """How many fsyncs there were; tests of batching read it."""
        self.bytes_read = 0
        self.struck = 0
        """How many of its operations have failed."""
        self.operations = 0
        """How many changes of the disk were started: `kill_before` counts the same."""
        self._root = DirectoryNode()
        self._names = NameChanges()
        self._faults = DiskFaults()
        self._kill_in: int | None = None

    # -- the port ------------------------------------------------------------------------------------

    def open(self, path: str, *, create: bool = False) -> SimFile:
        """Raises OSError."""
        self.strike("open", path)
        inode = self._find(path)
        if isinstance(inode, DirectoryNode):
            raise disk_error(errno.EISDIR, path)
        if inode is None:
            if not create:
                raise disk_error(errno.ENOENT, path)
            check_name(path)
            parent, name = self._parent_of(path)
            self.strike("create", path)
            inode = Inode()
            self._names.bind((parent, name, inode))
        return SimFile(self, path, inode)

    def exists(self, path: str) -> bool:
        self._look(path)
        return self._find(path) is not None

    def list(self, path: str, may_block: MayBlock) -> list[str]:
        self._look(path)
        directory = self._find(path)
        return sorted(directory.cache) if isinstance(directory, DirectoryNode) else []

    def sizes(self, path: str, may_block: MayBlock) -> dict[str, int]:
        self._look(path)
        directory = self._find(path)
        if not isinstance(directory, DirectoryNode):
            return {}
        return {name: len(e.cache) for name, e in sorted(directory.cache.items()) if isinstance(e, Inode)}

    def make_dirs(self, path: str) -> None:
        """Raises OSError."""
        check_name(path.rstrip("/"))
        directory = self._root
        for name in names_in(path):
            child = directory.cache.get(name)
            if child is None:
                self.strike("mkdir", path)
                child = DirectoryNode()
                self._names.bind((directory, name, child))
                if directory is self._root:
                    self._names.keep(list(self._root.unsynced)[-1:])
            if not isinstance(child, DirectoryNode):
                raise disk_error(errno.ENOTDIR, path)
            directory = child

    def remove(self, path: str) -> None:
        self.strike("remove", path)
        if isinstance(self._find(path), Inode):
            parent, name = self._parent_of(path)
            self._names.bind((parent, name, None))

    def remove_tree(self, path: str, may_block: MayBlock) -> None:
        """File by file. Raises OSError."""
        entry = self._find(path)
        if isinstance(entry, DirectoryNode):
            for name in sorted(entry.cache):
                self.remove_tree(f"{path.rstrip('/')}/{name}", may_block)
        if entry is not None:
            self.strike("rmdir" if isinstance(entry, DirectoryNode) else "remove", path)
            parent, name = self._parent_of(path)
            self._names.bind((parent, name, None))

    def rename(self, source: str, target: str) -> None:
        """Raises OSError."""
        self.strike("rename", target)
        check_name(target)
        entry = self._find(source)
        if entry is None:
            raise disk_error(errno.ENOENT, source)
        from_parent, from_name = self._parent_of(source)
        to_parent, to_name = self._parent_of(target)
        self._names.bind((from_parent, from_name, None), (to_parent, to_name, entry))

    def sync_dir(self, path: str, may_block: MayBlock) -> None:
        """Raises OSError."""
        directory = self._find(path)
        began = self._names.synced_with(directory) if isinstance(directory, DirectoryNode) else []
        try:
            self.strike("sync_dir", path)
        except OSError:
            self._names.lose(began)
            raise
        if not isinstance(directory, DirectoryNode):
            raise disk_error(errno.ENOENT, path)
        self.syncs += 1
        self._names.keep(began)

    def sync_below(self, path: str, may_block: MayBlock) -> None:
        sync_each_below(self, path, may_block)

    def volume(self, path: str) -> tuple[int, int]:
        self._look(path)
        room = self.room()
        return (room if self.capacity is None else self.capacity), room

    def read_bytes(self, path: str, may_block: MayBlock) -> bytes:
        file = self.open(path)
        return file.read(0, file.size())

    def write_atomic(self, path: str, data: Buffer, may_block: MayBlock) -> None:
        temporary = path + ".tmp"
        self.remove(temporary)
        file = self.open(temporary, create=True)
        file.append([data])
        file.sync(may_block)
        self.rename(temporary, path)
        self.sync_dir(os.path.dirname(path), may_block)

    # -- faults ----------------------------------------------------------------------------------------

    def kill(self) -> None:
        """Kill the process: its handles are closed, the page cache stays."""
        self.generation += 1
        self._kill_in = None

    def kill_before(self, operation: int | None) -> None:
        """The process is killed before the `operation`-th (from 0) change of the disk from now on:
        `Killed`."""
        self._kill_in = operation

    def power_loss(self, random: Random, *, names_in_order: bool = False) -> None:
        """The machine loses power. Unsynced data is kept, dropped or torn, page by page; of changed names
        any, or the first so many where the file system keeps a journal of them."""
        self.kill()
        changes = self._names.all()
        if names_in_order:
            self._names.keep(changes[: random.randrange(len(changes) + 1)])
        else:
            self._names.keep([change for change in changes if random.random() < 0.5])
        self._names.lose(changes)
        for directory in directories_below(self._root):
            directory.cache = dict(directory.durable)
        settled: set[int] = set()
        for inode in files_below(self._root):
            if id(inode) not in settled:
                settled.add(id(inode))
                settle_inode(inode, random)

    def lose_page(self, path: str, page: int, kept_bytes: int = 0) -> None:
        """The machine loses power; of all unsynced data only this page is lost, but for its first bytes."""
        self.kill()
        self._names.keep(self._names.all())
        lost = self._inode(path)
        if page in lost.dirty:
            start, end = page * PAGE + kept_bytes, min((page + 1) * PAGE, len(lost.cache))
            synced = bytes(lost.durable[start:end]).ljust(end - start, b"\0")
            lost.cache[start:end] = synced
        for inode in files_below(self._root):
            inode.durable = bytearray(inode.cache)
            inode.dirty.clear()

    def durable_clone(self) -> SimDisk:
        """The disk after a power loss now, if nothing unsynced survived."""
        clone = SimDisk(self.capacity)
        inodes: dict[int, Inode] = {}

        def copy(directory: DirectoryNode) -> DirectoryNode:
            made = DirectoryNode()
            for name, entry in directory.durable.items():
                left: Inode | DirectoryNode
                if isinstance(entry, DirectoryNode):
                    left = copy(entry)
                else:
                    data = bytearray(entry.durable)
                    left = inodes.setdefault(id(entry), Inode(data, bytearray(data)))
                made.cache[name] = made.durable[name] = left
            return made

        clone._root = copy(self._root)
        return clone

    def restore(self, backup: SimDisk) -> None:
        """What is on that one is on this, which is written to from now on, and that one is not."""
        self._root = backup._root
        self._names = NameChanges()

    def durable_files(self, directory: str) -> dict[str, bytes]:
        """The files right in a directory, as `durable_clone` would have them."""
        entry: Inode | DirectoryNode | None = self._root
        for name in names_in(directory):
            entry = entry.durable.get(name) if isinstance(entry, DirectoryNode) else None
        names = entry.durable if isinstance(entry, DirectoryNode) else {}
        return {name: bytes(inode.durable) for name, inode in names.items() if isinstance(inode, Inode)}

    def wipe(self) -> None:
        """A new, empty disk."""
        self.kill()
        self._root = DirectoryNode()
        self._names = NameChanges()

    def fail(
        self, operation: str, code: int, *, path_part: str = "", after: int = 0, count: int = 1
    ) -> Fault:
        """Let an operation on a path that contains `path_part` raise OSError(code)."""
        planted = Fault(operation, code, path_part, after, count)
        self._faults.planted.append(planted)
        return planted

    def lose_device(self, path: str) -> None:
        """A directory of the root, at which a device is mounted."""
        self._faults.lost_devices.add(path)

    def replace_device(self, path: str, *, is_empty: bool) -> None:
        """It works again; or a new one does in its place, of which only the directory is there."""
        self._faults.lost_devices.discard(path)
        if is_empty:
            parent, name = self._parent_of(path)
            parent.cache[name] = parent.durable[name] = DirectoryNode()

    @property
    def has_faults(self) -> bool:
        """Whether an error that was planted has yet to strike."""
        return any(fault.count for fault in self._faults.planted)

    def heal(self) -> None:
        """Nothing that was planted strikes any more, and every page can be read."""
        self._faults.clear()
        self._kill_in = None
        self.mend()

    def mend(self) -> None:
        """Every page can be read again."""
        for _, inode in named_files_below(self._root):
            inode.bad.clear()

    def misses(self) -> bool:
        """Whether the page cache lacks what is asked for now."""
        return False

    def spoil(self, random: Random) -> str:
        """A page of some file cannot be read any more, in the page cache neither; which one. Raises OSError
        where there is none."""
        files = [(path, inode) for path, inode in named_files_below(self._root) if inode.cache]
        if not files:
            raise disk_error(errno.ENOENT, "/")
        path, inode = random.choice(files)
        page = random.randrange((len(inode.cache) - 1) // PAGE + 1)
        inode.bad.add(page)
        return f"page {page} of {path}"

    def flip_bit(self, path: str, position: int) -> None:
        """The medium decays."""
        inode = self._inode(path)
        inode.cache[position] ^= 0x10
        if position < len(inode.durable):
            inode.durable[position] ^= 0x10

    def room(self) -> int:
        """Bytes that still fit."""
        if self.capacity is None:
            return 1 << 62
        return max(0, self.capacity - sum(len(inode.cache) for inode in files_below(self._root)))

    def strike(self, operation: str, path: str) -> None:
        """Raises OSError where an error is planted for this operation, and `Killed` where a kill is."""
        if operation in CHANGES:
            self.operations += 1
            if self._kill_in == 0:
                self.kill()
                raise Killed(f"{operation} {path}")
            if self._kill_in is not None:
                self._kill_in -= 1
        error = self._faults.error_of(operation, path)
        if error is not None:
            self.struck += 1
            raise error

    def _look(self, path: str) -> None:
        """Raises OSError where its device is lost."""
        if self._faults.is_lost(path):
            self.struck += 1
            raise disk_error(errno.EIO, path)

    # -- names -----------------------------------------------------------------------------------------

    def _find(self, path: str) -> Inode | DirectoryNode | None:
        entry: Inode | DirectoryNode | None = self._root
        for name in names_in(path):
            if not isinstance(entry, DirectoryNode):
                return None
            entry = entry.cache.get(name)
        return entry

    def _parent_of(self, path: str) -> tuple[DirectoryNode, str]:
        directory, _, name = path.rstrip("/").rpartition("/")
        parent = self._find(directory)
        if not isinstance(parent, DirectoryNode):
            raise disk_error(errno.ENOENT, directory)
        return parent, name

    def _inode(self, path: str) -> Inode:
        inode = self._find(path)
        if not isinstance(inode, Inode):
            raise disk_error(errno.ENOENT, path)
        return inode
