"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 180.0
"""Generous, because a busy machine turns seconds into minutes; only a test that fails waits this long."""
POLL_S: Final = 0.02

Value = TypeVar("Value")


def wait_until(condition: Callable[[], Value], what: str, patience_s: float = PATIENCE_S) -> Value:
    """Ask until the answer is true; that answer. Fails with `what` was waited for."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        assert time.monotonic() < deadline, f"waited {patience_s:g} s in vain: {what}"
        time.sleep(POLL_S)
    return answer
