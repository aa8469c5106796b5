"""Waiting for a condition, never for a time."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Final, TypeVar

PATIENCE_S: Final = 180.0
"""Generous, because a busy machine turns seconds into minutes; only a test that fails waits this long."""
POLL_S: Final = 0.02

Value = TypeVar("Value")


def wait_until(
    condition: Callable[[], Value],
    what: str,
    patience_s: float = PATIENCE_S,
    *,
    on_failure: Callable[[], object] | None = None,
) -> Value:
    """Ask until the answer is true; that answer. Fails with `what` was waited for, and what there is instead
    (`on_failure`)."""
    deadline = time.monotonic() + patience_s
    while not (answer := condition()):
        if time.monotonic() > deadline:
            instead = "" if on_failure is None else f"; there is {on_failure()}"
            raise AssertionError(f"waited {patience_s:g} s in vain: {what}{instead}")
        time.sleep(POLL_S)
    return answer


def undisturbed(work: Callable[[], Value], within_s: float, patience_s: float = PATIENCE_S) -> Value:
    """Its result, from a try that took no longer than this. What has to happen soon after something else
    proves nothing where the machine has stood still in between: then it is tried again."""
    deadline = time.monotonic() + patience_s
    while True:
        began = time.monotonic()
        try:
            result = work()
        except AssertionError:
            if time.monotonic() - began <= within_s or time.monotonic() > deadline:
                raise
        else:
            if time.monotonic() - began <= within_s:
                return result
            assert time.monotonic() < deadline, f"no try of {patience_s:g} s took {within_s:g} s or less"
