"""Taking files out of the page cache, so that the next read of them waits for the disk."""

from __future__ import annotations

import os
from pathlib import Path


def evict(directory: Path, pattern: str) -> None:
    """All files that match, once what is dirty has been written: the kernel keeps dirty pages."""
    for path in directory.glob(pattern):
        with path.open("rb") as file:
            os.fsync(file.fileno())
            os.posix_fadvise(file.fileno(), 0, 0, os.POSIX_FADV_DONTNEED)
