"""Python's collector of cycles, paused while much is made and hardly any of it is garbage."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """For long histories and large imports: the collector would walk all that is there again and again, for a
    third of the CPU of Spark's imports, and for as long as a check itself takes."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
