"""Where clients end that were thrown away: that may take seconds, and no worker waits for it.

librdkafka has no way to drop a consumer dead: destroying one leaves its group, waiting for brokers that may
be gone. Only a static member says no goodbye.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Callable


class DiscardedClients:
    def __init__(self) -> None:
        self._threads: list[threading.Thread] = []
        self._lock = threading.Lock()

    def take(self, end: Callable[[], None]) -> None:
        """Call it on a thread of its own."""
        thread = threading.Thread(target=end, name="discarded-client", daemon=True)
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
