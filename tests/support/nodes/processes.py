"""Whether a process has ended. Whose owner died is a zombie until somebody asks for its exit code, and the
first process of a container may never do so."""

from __future__ import annotations

import psutil


def runs(process: psutil.Process) -> bool:
    """And is not merely a name in the table of processes."""
    try:
        return process.is_running() and process.status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False
