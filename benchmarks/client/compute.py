"""Job `compute`: takes CPU as a consumer would, and reads nothing. What it does to others, the cores do."""

from __future__ import annotations

import threading
import time
import zlib
from dataclasses import dataclass
from typing import Any

_PIECE = bytes(1 << 18)  # its checksum releases the interpreter's lock


@dataclass(frozen=True)
class ComputeJob:
    cpu_s: float
    threads: int


def compute(job: ComputeJob) -> dict[str, Any]:
    """So much CPU time, by that many threads."""

    def run() -> None:
        while time.thread_time() < job.cpu_s / job.threads:
            zlib.crc32(_PIECE)

    started = time.monotonic()
    threads = [threading.Thread(target=run, name=f"compute {n}") for n in range(job.threads)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return {"seconds": time.monotonic() - started}
