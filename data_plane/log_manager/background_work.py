"""Work on logs that runs beside the loop's other callers: tasks, and what blocks in the executor."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine

from data_plane.log_manager.log_dir_failures import LogDirFailures
from data_plane.log_manager.log_dirs import LogDir
from data_plane.purgatory.timing_wheel import WheelTimer
from metadata_quorum.foundation.blocking import Blocking, MayBlock
from metadata_quorum.foundation.supervision import supervised


class BackgroundWork:
    """The tasks of one broker's logs; at a shutdown they are waited for."""

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

    @property
    def idle(self) -> bool:
        """Whether no task runs."""
        return not self._tasks

    def spawn(self, work: Coroutine[None, None, None]) -> asyncio.Task[None]:
        task = supervised(self.loop, work, "work on logs")
        self._tasks[task] = None
        task.add_done_callback(self._tasks.pop)
        return task

    def run_in(self, directory: LogDir, work: Callable[[MayBlock], None]) -> None:
        """Run `work`, which touches that log directory, in the executor."""
        if directory.online and not self.closed:
            self.spawn(self._run_in(directory, work))

    async def _run_in(self, directory: LogDir, work: Callable[[MayBlock], None]) -> None:
        try:
            await self.blocking(work)
        except OSError as error:
            self._failures.report(directory, error)

    async def drain(self) -> None:
        """Wait for the tasks that run; set `closed` before."""
        if self._tasks:
            await asyncio.gather(*self._tasks, return_exceptions=True)
