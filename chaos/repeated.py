"""Something that is done again and again beside a run, on a thread of its own."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager


@contextmanager
def repeated(do: Callable[[], None], every_s: float, name: str) -> Iterator[None]:
    """Each `every_s` until it is left, when the last one has ended. `name`: of the thread. Raises what has
    ended it before: nothing was done since."""
    stopping = threading.Event()
    failed: list[Exception] = []

    def run() -> None:
        try:
            while not stopping.wait(every_s):
                do()
        except Exception as error:  # noqa: BLE001 - raised where it is left
            failed.append(error)

    thread = threading.Thread(target=run, name=name, daemon=True)
    thread.start()
    try:
        yield
    finally:
        stopping.set()
        thread.join()
    if failed:
        raise failed[0]
