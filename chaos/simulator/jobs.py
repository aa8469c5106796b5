"""What a process does beside its loop: the executor's threads, as code that can be left at disk operations.

    loop.run_in_executor(pool, work) -> Pool -> Job: runs, parks at a disk operation, goes on -> the future

A job is a greenlet: plain code that blocks nowhere can still be left in the middle, without a thread. Names
of files are changed without parking: the product holds a lock meanwhile
(data_plane/log/partition_directory.py), for which threads would wait.
"""

from __future__ import annotations

import asyncio
from asyncio import events
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, Final

from greenlet import getcurrent, greenlet

from chaos.sim.disk import Killed
from chaos.simulator.scheduler import Process

HAND_OVER_S: Final = (20e-6, 400e-6)
"""From one thread to another: at least, at most."""


class Job(greenlet):  # type: ignore[misc]  # which has no types
    """One piece of work in a pool."""

    def __init__(self, pool: Pool, work: Callable[[], Any], result: asyncio.Future[Any]) -> None:
        super().__init__()
        self._pool = pool
        self._work = work
        self._result = result

    def go_on(self) -> None:
        """Begin, or continue after `park`."""
        events._set_running_loop(None)
        try:
            self.switch()
        finally:
            events._set_running_loop(self._pool.process)

    def park(self, seconds: float) -> None:
        """Called inside the job: let others run for that long."""
        self._pool.process.call_after(seconds, self.go_on)
        with self._pool.parked(self):
            self.parent.switch()

    def run(self) -> None:
        """The work itself; `go_on` begins it."""
        try:
            result = self._work()
        except Killed:
            return
        except Exception as error:  # noqa: BLE001 - it is raised where the result is awaited
            self._pool.finished(self._result, None, error)
        else:
            self._pool.finished(self._result, result, None)


def current_job() -> Job | None:
    """Whose code runs now, where that is not a loop's."""
    running = getcurrent()
    return running if isinstance(running, Job) else None


class Pool:
    """The threads of one executor."""

    def __init__(self, process: Process, threads: int, random: Random) -> None:
        self.process = process
        self._free = threads
        self._random = random
        self._waiting: deque[Job] = deque()
        self._parked: dict[Job, None] = {}
        self._is_abandoned = False

    @contextmanager
    def parked(self, job: Job) -> Iterator[None]:
        """Raises Killed where nobody will call it to go on."""
        if self._is_abandoned:
            raise Killed("its process has ended")
        self._parked[job] = None
        try:
            yield
        finally:
            del self._parked[job]

    def abandon(self) -> None:
        """Finish the jobs of a dead process: of one that is left half-way nothing could ever be freed."""
        self._is_abandoned = True
        for job in list(self._parked):
            job.throw(Killed("its process has ended"))

    def submit(self, work: Callable[[], Any], result: asyncio.Future[Any]) -> None:
        job = Job(self, work, result)
        if self._free:
            self._free -= 1
            self._begin(job)
        else:
            self._waiting.append(job)

    def finished(self, result: asyncio.Future[Any], value: object, error: Exception | None) -> None:
        """A job has ended; its thread takes the next one."""
        self.process.call_after(self._random.uniform(*HAND_OVER_S), _settle, result, value, error)
        if self._waiting:
            self._begin(self._waiting.popleft())
        else:
            self._free += 1

    def _begin(self, job: Job) -> None:
        self.process.call_after(self._random.uniform(*HAND_OVER_S), job.go_on)


def _settle(result: asyncio.Future[Any], value: object, error: Exception | None) -> None:
    if result.done():
        return
    if error is not None:
        result.set_exception(error)
    else:
        result.set_result(value)
