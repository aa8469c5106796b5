"""The tree of a simulated disk: files and directories, each as processes see it and as a loss of power
leaves it.

Used by disk.py, which is the port, and its name_changes.py.
"""

from __future__ import annotations

import errno
import os
from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from random import Random
from typing import Final

PAGE: Final = 4096
SECTOR: Final = 512
MAX_NAME_BYTES: Final = 255


@dataclass(slots=True)
class Inode:
    """A file's contents, whatever its name."""

    cache: bytearray = field(default_factory=bytearray)
    durable: bytearray = field(default_factory=bytearray)
    dirty: set[int] = field(default_factory=set)
    """Page numbers that differ from the durable image."""
    bad: set[int] = field(default_factory=set)
    """Page numbers that the medium does not give back, until they are written again."""


@dataclass(slots=True, eq=False)
class DirectoryNode:
    """Names and what they mean, whatever its own name."""

    cache: dict[str, Inode | DirectoryNode] = field(default_factory=dict)
    durable: dict[str, Inode | DirectoryNode] = field(default_factory=dict)
    unsynced: dict[NameChange, None] = field(default_factory=dict)
    """In their order."""


Binding = tuple[DirectoryNode, str, Inode | DirectoryNode | None]
"""What a name in a directory means."""


@dataclass(slots=True, eq=False)
class NameChange:
    """One unsynced change of names: they now mean something else, or nothing. All their directories have
    it."""

    bindings: tuple[Binding, ...]
    """A rename binds two names at once, all or nothing."""


def disk_error(code: int, path: str) -> OSError:
    return OSError(code, os.strerror(code), path)


def check_name(path: str) -> None:
    """Raises OSError."""
    if len(os.path.basename(path)) > MAX_NAME_BYTES:
        raise disk_error(errno.ENAMETOOLONG, path)


@lru_cache(maxsize=8192)
def names_in(path: str) -> tuple[str, ...]:
    return tuple(name for name in path.split("/") if name)


def bind_name(
    names: dict[str, Inode | DirectoryNode], name: str, meant: Inode | DirectoryNode | None
) -> None:
    if meant is None:
        names.pop(name, None)
    else:
        names[name] = meant


def files_below(directory: DirectoryNode) -> Iterator[Inode]:
    for _, entry in sorted(directory.cache.items()):
        if isinstance(entry, Inode):
            yield entry
        else:
            yield from files_below(entry)


def named_files_below(directory: DirectoryNode, path: str = "") -> Iterator[tuple[str, Inode]]:
    """With their paths."""
    for name, entry in sorted(directory.cache.items()):
        if isinstance(entry, Inode):
            yield f"{path}/{name}", entry
        else:
            yield from named_files_below(entry, f"{path}/{name}")


def directories_below(directory: DirectoryNode) -> Iterator[DirectoryNode]:
    """As a loss of power leaves them."""
    yield directory
    for entry in directory.durable.values():
        if isinstance(entry, DirectoryNode):
            yield from directories_below(entry)


def torn_by_sector(old: bytearray, new: bytearray, random: Random) -> bytearray:
    """A page of which any sectors were written."""
    left = old.ljust(len(new), b"\0")
    for start in range(0, len(new), SECTOR):
        if random.random() < 0.5:
            left[start : start + SECTOR] = new[start : start + SECTOR]
    return left


def settle_inode(inode: Inode, random: Random) -> None:
    """After power loss the durable image, with some of the dirty pages, is all there is."""
    image = bytearray(inode.durable)
    # Each of nothing, everything and anything between is worth trying often.
    loses_all = random.random() < 0.25
    keeps_length = random.random() < 0.5
    for page in () if loses_all else sorted(inode.dirty):
        fate = random.random()
        if fate < 0.4:
            continue
        start = page * PAGE
        piece = inode.cache[start : start + PAGE]
        if len(image) < start:
            image.extend(bytes(start - len(image)))
        if fate < 0.5 and len(piece) > 1:
            piece = piece[: random.randrange(1, len(piece))]
        elif fate < 0.6:
            piece = torn_by_sector(image[start : start + len(piece)], piece, random)
        image[start : start + len(piece)] = piece
    if inode.dirty and not loses_all and keeps_length and len(image) < len(inode.cache):
        image.extend(bytes(len(inode.cache) - len(image)))
    inode.cache = image
    inode.durable = bytearray(image)
    inode.dirty.clear()
