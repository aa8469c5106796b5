"""The error boundary: the one place that decides what a fault ends.

    timer, callback ----------.
    supervised task ----------+--> the loop's exception handler --> ErrorBoundary --> the node ends, or:
    `report_fault`: request, cleaning, '                                              one line, one counter
    load, move, change of metadata

A broken invariant ends the node, and so does an environment that does not let it go on (`FatalError`: a disk
that failed with nowhere to go). Anything else is a bug in serving one request, in cleaning one
partition, in one call of a timer: it ends that, and nothing more. What that means (an error for the
client, a closed connection, a partition that is offline) is decided where the work was started, beside the
call of `report_fault`. Work that must continue for as long as the node runs is started again (`restarted`).

Faults reach the boundary through the event loop, which is injected everywhere and passes on what escapes
from its callbacks. kraft/node/serve.py installs the boundary; simulators and tests install their own handler.

Lowest floor: used by every room that starts tasks.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine
from typing import Any, Final, Protocol, TypeVar

from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.invariants import InvariantViolation

log = logging.getLogger(__name__)

Result = TypeVar("Result")

LOG_AGAIN_S: Final = 10.0
"""Shortest time between two log lines about faults at one place in the code."""
MAX_PLACES: Final = 500
"""Faults at further places in the code are counted together."""
ELSEWHERE: Final = "elsewhere"

RESTART_FIRST_S: Final = 0.1
RESTART_LAST_S: Final = 5.0
"""Pause before work is started again: the first one, and the longest."""


def ends_node(error: BaseException) -> bool:
    """Whether a node must not go on after `error`."""
    return isinstance(error, InvariantViolation | FatalError)


class ExceptionHandlerLoop(Protocol):
    """The part of an event loop that takes faults."""

    def call_exception_handler(self, context: dict[str, Any], /) -> None: ...


def report_fault(loop: ExceptionHandlerLoop, work: str, error: BaseException) -> None:
    """`error` has ended `work`, which its caller has given up. Does not return if it ends the node."""
    loop.call_exception_handler({"message": f"{work} has failed", "exception": error})


def bounded(
    loop: ExceptionHandlerLoop, work: str, action: Callable[..., Result], *args: object
) -> Result | None:
    """Run one action among several: a fault in it is reported, and does not keep the others from running.
    What the action returns; None after a fault."""
    try:
        return action(*args)
    except Exception as error:  # noqa: BLE001
        report_fault(loop, work, error)
        return None


class ErrorBoundary:
    """One per node; see the module."""

    def __init__(self, end_node: Callable[[BaseException], None], now: Callable[[], float]) -> None:
        """`now`: seconds on a monotonic clock."""
        self.end_node = end_node
        self._now = now
        self._logged_at: dict[str, float] = {}
        self._unlogged: dict[str, int] = {}
        self.faults: dict[str, int] = {}
        """Number of faults by their place in the code; for /status."""

    def loop_error(self, loop: asyncio.AbstractEventLoop, context: dict[str, Any]) -> None:
        """The loop's exception handler."""
        error = context.get("exception")
        if not isinstance(error, Exception):
            loop.default_exception_handler(context)
        elif "transport" in context and isinstance(error, OSError):
            log.info("a connection has ended: %s", error)
        else:
            self.fault(context.get("message") or "unnamed work", error)

    def fault(self, what: str, error: Exception) -> None:
        """End the node if it must not continue, else count and log the fault."""
        if ends_node(error):
            self.end_node(error)
            return
        place = self._known(place_of(error))
        self.faults[place] = self.faults.get(place, 0) + 1
        now = self._now()
        if now - self._logged_at.get(place, float("-inf")) < LOG_AGAIN_S:
            self._unlogged[place] = self._unlogged.get(place, 0) + 1
            return
        self._logged_at[place] = now
        more = self._unlogged.pop(place, 0)
        also = f" (and {more} more at this place)" if more else ""
        log.error("%.300s%s", what, also, exc_info=error)

    def _known(self, place: str) -> str:
        return place if place in self.faults or len(self.faults) < MAX_PLACES else ELSEWHERE


def place_of(error: BaseException) -> str:
    """Where in the code it was raised: `data_plane/log/cleaner.py:144 ValueError`."""
    step = error.__traceback__
    while step is not None and step.tb_next is not None:
        step = step.tb_next
    kind = type(error).__name__
    if step is None:
        return kind
    path = "/".join(step.tb_frame.f_code.co_filename.split("/")[-3:])
    return f"{path}:{step.tb_lineno} {kind}"


def supervised(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result], name: str
) -> asyncio.Task[Result]:
    """Run `work`, which ends by itself, in a task; an error that escapes from it is reported."""
    task = loop.create_task(work, name=name)
    task.add_done_callback(_report_task_error)
    return task


def awaited(
    loop: asyncio.AbstractEventLoop, work: Coroutine[Any, Any, Result], name: str
) -> asyncio.Task[Result]:
    """Run `work` in a task whose errors are raised in the task that awaits it; only what ends the node is
    reported as well."""
    task = loop.create_task(work, name=name)
    task.add_done_callback(_retrieve_task_error)
    return task


def restarted(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]], name: str
) -> asyncio.Task[None]:
    """Run work that must continue for as long as the node runs: after an error it is started again."""
    return supervised(loop, _restarting(loop, work, name), name)


async def _restarting(
    loop: asyncio.AbstractEventLoop, work: Callable[[], Coroutine[Any, Any, None]], name: str
) -> None:
    pause_s = RESTART_FIRST_S
    while True:
        began = loop.time()
        try:
            await work()
            return
        except Exception as error:
            if ends_node(error):
                raise
            report_fault(loop, name, error)
        held = loop.time() - began > RESTART_LAST_S
        pause_s = RESTART_FIRST_S if held else min(pause_s * 2, RESTART_LAST_S)
        await asyncio.sleep(pause_s)


async def ended(task: asyncio.Task[Any] | None) -> None:
    """Cancel a task, where there is one, and wait until it has ended, however it does."""
    if task is not None:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def settle(answer: asyncio.Future[Result], make: Callable[[], Result]) -> None:
    """Give `answer` the result of `make`, or its error, so that nobody waits for it for ever."""
    if answer.done():
        return
    try:
        result = make()
    except Exception as error:  # noqa: BLE001
        answer.set_exception(error)
    else:
        answer.set_result(result)


def _report_task_error(task: asyncio.Task[Any]) -> None:
    if task.cancelled():
        return
    error = task.exception()
    if error is not None:
        report_fault(task.get_loop(), task.get_name(), error)


def _retrieve_task_error(task: asyncio.Task[Any]) -> None:
    if not task.cancelled():
        error = task.exception()
        if error is not None and ends_node(error):
            report_fault(task.get_loop(), task.get_name(), error)
