"""What large requests leave behind in glibc's heaps.

By itself glibc maps a block of its own where it is large, and takes for large what is larger than any that
was freed before, up to 32 MB. So after one request of that size the heap of each thread keeps as much: eight
compressed batches of 1 MB left a node with 90 MB more, for ever. Limits that are set stay as they are.
"""

from __future__ import annotations

import ctypes
from collections.abc import Mapping
from typing import Final

_M_TRIM_THRESHOLD: Final = -1
_M_MMAP_THRESHOLD: Final = -3

MAPPED_FROM_BYTES: Final = 4 * 1024 * 1024
"""More than most frames and fetches take: to map a block anew costs as much as to fill it."""
TRIMMED_FROM_BYTES: Final = 2 * MAPPED_FROM_BYTES
"""The free end of a heap that goes back to the system."""


def give_large_blocks_back(environment: Mapping[str, str]) -> None:
    """For this process, where it has glibc and its operator has set nothing (MALLOC_MMAP_THRESHOLD_...)."""
    mallopt = getattr(ctypes.CDLL(None), "mallopt", None)
    if mallopt is not None and not any(name.startswith("MALLOC_") for name in environment):
        mallopt(_M_MMAP_THRESHOLD, MAPPED_FROM_BYTES)
        mallopt(_M_TRIM_THRESHOLD, TRIMMED_FROM_BYTES)
