"""The stalls of the nodes' loops, which their watches write into a file (kraft/monitoring/stall_watch.py)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import NamedTuple

from kraft.monitoring.stall_watch import RECORD_ENVIRONMENT


class Stalled(NamedTuple):
    """The longest one of a step."""

    cpu_ms: float
    where: str
    stalls: int


class StallFile:
    """Made before the nodes start: they inherit its name."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._read = 0
        os.environ[RECORD_ENVIRONMENT] = str(path)

    def longest(self) -> Stalled:
        """Since it was asked last."""
        lines = self._path.read_text().splitlines() if self._path.exists() else []
        stalls = [json.loads(line) for line in lines[self._read :]]
        self._read = len(lines)
        if not stalls:
            return Stalled(0.0, "", 0)
        worst = max(stalls, key=lambda stall: float(stall["cpu_ms"]))
        return Stalled(float(worst["cpu_ms"]), "\n".join(worst["stacks"]), len(stalls))
