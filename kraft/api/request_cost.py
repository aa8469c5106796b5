"""What one request costs, for the quotas: counted by dispatch.py, charged by throttling.py."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Coroutine, Generator
from typing import Generic, TypeVar

Result = TypeVar("Result")


class RequestCost:
    """A request's bytes, and how long it has kept the event loop busy (request_percentage)."""

    __slots__ = ("_since", "_spent_s", "_stopwatch", "request_bytes")

    def __init__(self, stopwatch: Callable[[], float], request_bytes: int) -> None:
        self.request_bytes = request_bytes
        self._stopwatch = stopwatch
        self._since: float | None = None
        self._spent_s = 0.0

    def __enter__(self) -> None:
        self._since = self._stopwatch()

    def __exit__(self, *_: object) -> None:
        if self._since is not None:
            self._spent_s += self._stopwatch() - self._since
            self._since = None

    @property
    def spent_s(self) -> float:
        """Until now, also while it runs."""
        return self._spent_s if self._since is None else self._spent_s + self._stopwatch() - self._since

    def watching(self, steps: Coroutine[object, object, Result]) -> Awaitable[Result]:
        """The same coroutine; its steps count, its waits do not."""
        return _TimedSteps(steps, self)


class _TimedSteps(Generic[Result]):
    """See `RequestCost.watching`."""

    def __init__(self, steps: Coroutine[object, object, Result], cost: RequestCost) -> None:
        self._steps = steps
        self._cost = cost

    def __await__(self) -> Generator[object, object, Result]:
        value: object = None
        error: BaseException | None = None
        try:
            while True:
                try:
                    with self._cost:
                        waits_for = self._steps.send(value) if error is None else self._steps.throw(error)
                except StopIteration as done:
                    result: Result = done.value
                    return result
                try:
                    value, error = (yield waits_for), None
                except BaseException as thrown:  # noqa: BLE001 (a cancellation goes where it was meant to)
                    value, error = None, thrown
        finally:
            del error  # its traceback has this frame
