"""Files of a local cluster: their owner's alone, and changed by one process at a time.

DIR/cluster.lock    held by whoever changes them
"""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import PRIVATE_DIRECTORY, PRIVATE_FILE, OsDisk

LOCK_FILE: Final = "cluster.lock"


def make_private(directory: Path) -> None:
    """Make a directory its owner's alone, also one that is there."""
    OsDisk().make_dirs(str(directory))
    directory.chmod(PRIVATE_DIRECTORY)


def write_private(path: Path, text: str) -> None:
    """A new file in its place: none keeps the mode of an older one. Raises OSError with the path."""
    try:
        OsDisk().write_atomic(str(path), text.encode(), NOT_SERVING)
    except OSError as error:  # a write that fails does not say where
        raise OSError(error.errno, error.strerror, str(path)) from None


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """No other process is in such a block of that directory. Raises OSError.

    A file, and opened for writing: NFS does not lock what is open for reading alone."""
    fd = os.open(directory / LOCK_FILE, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, PRIVATE_FILE)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
