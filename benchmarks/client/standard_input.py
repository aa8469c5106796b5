"""The next line of standard input, for jobs that run until it comes."""

from __future__ import annotations

import queue
import sys
import threading


def line_from_stdin() -> queue.Queue[str]:
    """A queue that gets the next line, once there is one; empty text when the bench has ended."""
    lines: queue.Queue[str] = queue.Queue()
    threading.Thread(target=lambda: lines.put(sys.stdin.readline()), daemon=True).start()
    return lines
