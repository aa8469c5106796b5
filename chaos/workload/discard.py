"""Closes dropped clients: that may take seconds, and no worker waits for it.

librdkafka cannot drop a consumer as a crash would: destroying one leaves its group, and waits for brokers
that may be down. Only a static member does not leave.
"""

from __future__ import annotations

import contextlib
import threading
import time
from collections.abc import Callable


class DiscardedClients:
    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def take(self, end: Callable[[], None]) -> None:
        """Call it on a thread of its own."""
        thread = threading.Thread(target=_ended, args=(end,), name="discarded-client", daemon=True)
        with self._lock:
            self._threads = [each for each in self._threads if each.is_alive()]
            self._threads.append(thread)
            thread.start()

    def wait(self, patience_s: float) -> int:
        """Wait for their ends; how many are left."""
        deadline = time.monotonic() + patience_s
        with self._lock:
            threads = list(self._threads)
        for thread in threads:
            thread.join(max(0.0, deadline - time.monotonic()))
        return sum(thread.is_alive() for thread in threads)


def _ended(end: Callable[[], None]) -> None:
    """A client that fails as it is closed is gone as well: the binding may raise even a SystemError then,
    where a callback failed in a client that had no group any more."""
    with contextlib.suppress(Exception):
        end()
