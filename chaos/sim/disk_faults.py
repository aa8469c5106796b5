"""What goes wrong on a simulated disk (disk.py): errors that wait for an operation, devices that are gone."""

from __future__ import annotations

import errno
from dataclasses import dataclass
from typing import Final

from chaos.sim.disk_tree import disk_error

CHANGES: Final = frozenset(
    {
        "append", "write_at", "truncate", "sync", "create", "mkdir", "rename", "remove", "rmdir", "sync_dir",
    }
)  # fmt: skip
"""The operations that change the disk: a kill between any two of them leaves another state."""


@dataclass(slots=True)
class Fault:
    """An error waiting for the operation that it hits."""

    operation: str
    """append, write_at, read, truncate, sync, open, create, mkdir, rename, remove, rmdir or sync_dir."""
    code: int
    path_part: str
    after: int
    """Matching operations that still pass."""
    count: int
    """How often it strikes yet; then it is spent."""


class DiskFaults:
    """See the module."""

    def __init__(self) -> None:
        self.planted: list[Fault] = []
        self.lost_devices: set[str] = set()
        """Directories of the root, at each of which a device is mounted."""

    def clear(self) -> None:
        """Nothing strikes any more."""
        self.planted.clear()
        self.lost_devices.clear()

    def is_lost(self, path: str) -> bool:
        """Whether its device is."""
        return bool(self.lost_devices) and f"/{path.split('/')[1]}" in self.lost_devices

    def error_of(self, operation: str, path: str) -> OSError | None:
        """Of this operation, which is done now."""
        if self.is_lost(path):
            return disk_error(errno.EIO, path)
        for fault in self.planted:
            if fault.operation != operation or fault.path_part not in path or fault.count == 0:
                continue
            if fault.after:
                fault.after -= 1
                continue
            fault.count -= 1
            return disk_error(fault.code, path)
        return None
