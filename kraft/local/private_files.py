"""Files of a local cluster: their owner's alone, and changed by one process at a time."""

from __future__ import annotations

import fcntl
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.disk import OsDisk


def write_private(path: Path, text: str) -> None:
    """A new file in its place: none keeps the mode of an older one."""
    OsDisk().write_atomic(str(path), text.encode(), NOT_SERVING)


@contextmanager
def alone_in(directory: Path) -> Iterator[None]:
    """No other process is in such a block of that directory. Raises OSError."""
    fd = os.open(directory, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(fd, fcntl.LOCK_EX)
        yield
    finally:
        os.close(fd)
