"""Something that is done again and again beside a run, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(do: Callable[[], None], every_s: float, name: str) -> Iterator[None]:
    """Each `every_s` until it is left, when the last one has ended. `name`: of the thread."""
    stopping = threading.Event()

    def run() -> None:
        while not stopping.wait(every_s):
            do()

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
