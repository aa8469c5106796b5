"""What a node does not make itself: the machine's, made in serve.py."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import Executor
from dataclasses import dataclass
from random import Random

from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.supervision import ErrorBoundary


@dataclass(frozen=True, slots=True)
class NodeEnvironment:
    """Time and network (the loop), disk, chance and errors of one node."""

    loop: asyncio.AbstractEventLoop
    disk: Disk
    random: Random
    now_ms: Callable[[], int]
    """The wall clock."""
    boundary: ErrorBoundary
    """The loop's exception handler."""
    blocking_threads: Executor | None = None
    """For what may wait for a device; None: the loop's default executor, which is for what computes."""
    boot_id: str = ""
    """The machine's present boot; a node that is killed under it has lost nothing."""
    which_copy: Callable[[str], str] = lambda directory: ""
    """Tells a log directory from a copy of it, which may lack what the node has written since, and have files
    of different moments: as after another boot."""
    stopwatch: Callable[[], float] = lambda: 0.0
    """Seconds, finely enough to measure one request."""
    cpu_time: Callable[[], float] = lambda: 0.0
    """Seconds of CPU that the loop's thread has used; whoever gives the one gives the other, too."""
