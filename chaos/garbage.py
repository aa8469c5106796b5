"""Python's garbage collector, disabled while a long history is read and checked."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from contextlib import contextmanager


@contextmanager
def collection_paused() -> Iterator[None]:
    """Millions of new objects and hardly any garbage: the collector would walk them all again and again,
    which takes as long as the work itself."""
    was_enabled = gc.isenabled()
    gc.disable()
    try:
        yield
    finally:
        if was_enabled:
            gc.enable()
