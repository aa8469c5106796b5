"""Background work on logs: tasks, blocking work in the executor, and sweeps over all replicas, which take
several turns of the loop if there are many.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Coroutine, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from data_plane.log_manager.log_dir_failures import LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from data_plane.purgatory.timing_wheel import WheelTimer
from metadata_quorum.foundation.blocking import Blocking, MayBlock
from metadata_quorum.foundation.supervision import supervised

VISITED_PER_TURN: Final = 500
"""Replicas that a sweep visits in one turn of the loop; each takes a few microseconds."""

RETRY_FIRST_S: Final = 1.0
RETRY_LAST_S: Final = 60.0
"""Pause before work in a directory is tried again that failed, but not because of the disk."""

T = TypeVar("T")
Steps = tuple[Callable[[MayBlock], None], ...]
Due = tuple[Steps, float]
"""Work, and the pause after which it is tried again."""


class BackgroundWork:
    """The tasks of one broker's logs; a shutdown waits for them."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        timer: WheelTimer,
        blocking: Blocking,
        failures: LogDirFailures,
    ) -> None:
        """`blocking` runs a piece of work in the executor."""
        self.loop = loop
        self.timer = timer
        self.blocking = blocking
        self.closed = False
        self._failures = failures
        self._tasks: dict[asyncio.Task[None], None] = {}  # a set has no order
        self._due: dict[LogDir, deque[Due]] = {}
        """Of each directory in which something is being done: what is done next."""

    @property
    def idle(self) -> bool:
        """Whether no task runs."""
        return not self._tasks

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = supervised(self.loop, work, "work on logs")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def run_in(
        self, directory: LogDir, *steps: Callable[[MayBlock], None], pause_s: float = RETRY_FIRST_S
    ) -> None:
        """Run work that touches that log directory in the executor, step by step while it is online, behind
        what is to be run there already: thousands of deletions may be due at once, and a flush waits behind
        one step of them at most. It is tried again where no file descriptor was left, or something was still
        being written into what it removes: until the next start nobody else would remove that."""
        if not directory.online or self.closed:
            return
        if directory in self._due:
            self._due[directory].append((steps, pause_s))
        else:
            due = self._due[directory] = deque([(steps, pause_s)])
            self.spawn(self._run_due(directory, due))

    async def _run_due(self, directory: LogDir, due: deque[Due]) -> None:
        try:
            while due and directory.online and not self.closed:
                await self._run_in(directory, *due.popleft())
        finally:
            del self._due[directory]

    async def _run_in(self, directory: LogDir, steps: Steps, pause_s: float) -> None:
        try:
            for step in steps:
                if directory.online:
                    await self.blocking(step)
        except Exception as error:  # noqa: BLE001 - what is due behind it is done all the same
            if not self._failures.report(directory, error) and isinstance(error, OSError):
                longer = min(2 * pause_s, RETRY_LAST_S)
                self.timer.call_later(pause_s, partial(self.run_in, directory, *steps, pause_s=longer))

    def remove_in(self, directory: LogDir, path: str) -> None:
        """Remove what was set aside there, in the executor. Two steps: the sync in which another name was
        lost may have been somebody else's, and then this one says nothing of it."""
        before = partial(directory.before_emptying, path)
        self.run_in(directory, before, partial(directory.disk.remove_tree, path))

    async def each(self, replicas: Iterable[T]) -> AsyncIterator[T]:
        """All `replicas` of this moment, over several turns of the loop; some may have been removed by their
        turn."""
        for number, replica in enumerate(list(replicas)):
            if number and number % VISITED_PER_TURN == 0:
                await asyncio.sleep(0)
                if self.closed:
                    return
            yield replica

    def sweep(self, replicas: Iterable[T], visit: Callable[[T], bool | None]) -> None:
        """Visit all `replicas` of this moment: the first ones at once, the others in later turns of the loop,
        when some may have been removed. If `visit` returns True, it did much and may have more to do: the
        next turn begins with the same replica."""
        every = list(replicas)
        visited = next(
            (at for at, each in enumerate(every[:VISITED_PER_TURN]) if visit(each)), VISITED_PER_TURN
        )
        if len(every) > visited:
            self.spawn(self._sweep(every[visited:], visit))

    async def _sweep(self, replicas: Sequence[T], visit: Callable[[T], bool | None]) -> None:
        visited = 0
        for each in replicas:
            there_is_more: bool | None = True
            while there_is_more:
                if visited % VISITED_PER_TURN == 0:
                    await asyncio.sleep(0)
                    if self.closed:
                        return
                there_is_more = visit(each)
                visited = 0 if there_is_more else visited + 1

    async def drain(self) -> None:
        """Wait for the tasks that run; set `closed` before."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
