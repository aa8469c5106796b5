"""The event loop of one simulated process: asyncio's, as far as a node and a client use it.

    call_soon, call_at -> Scheduler        create_server, create_connection -> Network
    time -> the machine's clock            run_in_executor -> Pool, Job

A process that is killed never runs again: its loop takes no calls, its connections are closed. `hold` stops
it as SIGSTOP does, or for as long as it waits for its disk on the loop."""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import Callable, Coroutine
from concurrent.futures import Executor, ThreadPoolExecutor
from contextvars import Context, copy_context
from random import Random
from typing import Any, Final, TypeVar

from chaos.sim.disk import Killed
from chaos.simulator.jobs import Pool
from chaos.simulator.machine_clock import MachineClock
from chaos.simulator.network import Network
from chaos.simulator.scheduler import Process, ScheduledCall
from metadata_quorum.foundation.supervision import ErrorBoundary

T = TypeVar("T")

LATE_S: Final = 1e-3
"""By how much a timer is late at most: selectors count in milliseconds."""
EXECUTOR_THREADS: Final = 4
"""As kraft/node/serve.py gives a node."""


class OrderedTask(asyncio.Task[T]):
    """One that sets keep in an order of its own, and not in that of addresses: client libraries have sets of
    tasks."""

    _number = 0

    def __hash__(self) -> int:
        """Numbered when it is first asked for."""
        return self._number or _numbered(self)


class OrderedFuture(asyncio.Future[T]):
    """As `OrderedTask`."""

    _number = 0

    def __hash__(self) -> int:
        return self._number or _numbered(self)


def _numbered(awaitable: OrderedTask[Any] | OrderedFuture[Any]) -> int:
    loop = awaitable.get_loop()
    assert isinstance(loop, ProcessLoop)
    loop.hashed += 1
    awaitable._number = loop.hashed
    return loop.hashed


class ProcessLoop(Process):
    """See the module. What asyncio has besides raises NotImplementedError."""

    def __init__(
        self,
        name: str,
        number: int,
        host: str,
        clock: MachineClock,
        random: Random,
        network: Network,
        report: Callable[[str, dict[str, Any]], None],
    ) -> None:
        """`report(name, context)` is called with errors that nothing handled."""
        self.name = name
        self.number = number
        self.host = host
        self.clock = clock
        self.alive = True
        self.held = 0
        self.boundary: ErrorBoundary | None = None
        """Takes its errors, where it is a node's."""
        self.on_error: Callable[[str, Exception], None] = lambda work, error: None
        """Called for those that end some work, and not the process."""
        self._scheduler = network.scheduler
        self._network = network
        self._aside: deque[ScheduledCall] = deque()
        self._busy_until = -1.0
        self._disk_timer: ScheduledCall | None = None
        self.hashed = 0
        """Tasks and futures that are or were in a set."""
        self.context = copy_context()
        self._pools: dict[Executor | None, Pool] = {}
        self._random = random
        self._report = report

    def __repr__(self) -> str:
        return self.name

    # ---- life and death

    def kill(self) -> None:
        """It runs no more, from now on."""
        self.alive = False
        self._aside.clear()

    def abandon(self) -> None:
        """Finish the coroutines of a dead process, those that they begin in their `finally`, and the jobs of
        its executor: what they do on their way out reaches nothing."""
        abandoned: set[asyncio.Task[Any]] = set()
        while tasks := asyncio.all_tasks(self) - abandoned:
            for task in sorted(tasks, key=asyncio.Task.get_name):
                coroutine = task.get_coro()
                for _ in range(3):  # one that awaits something in its `finally` is closed again
                    try:
                        coroutine.close()
                        break
                    except (RuntimeError, OSError, Killed):
                        continue
                task._log_destroy_pending = False  # type: ignore[attr-defined]  # asyncio's own way to say so
            abandoned |= tasks
        for pool in self._pools.values():
            pool.abandon()

    def hold(self) -> None:
        """Until `go_on`; may be called by several."""
        self.held += 1

    def go_on(self) -> None:
        """What has become due meanwhile is called now, in its order."""
        self.held -= 1
        if not self.held and self.alive:
            self._scheduler.ready.extend(self._aside)
            self._aside.clear()

    def hold_for(self, seconds: float) -> None:
        """It waits for its disk, on the loop; one operation after the other."""
        now = self._scheduler.now
        if self._busy_until <= now:
            self.hold()
            self._disk_timer = self._scheduler.at(now + seconds, self._disk_is_done)
        self._busy_until = max(self._busy_until, now) + seconds

    def _disk_is_done(self) -> None:
        if self._busy_until > self._scheduler.now:
            self._disk_timer = self._scheduler.at(self._busy_until, self._disk_is_done)
        else:
            self.go_on()

    def disk_recovers(self) -> None:
        """What it still waits for on the loop is done at once."""
        now = self._scheduler.now
        if self._busy_until > now and self._disk_timer is not None:
            self._disk_timer.cancel()
            self._busy_until = now
            self.go_on()

    @property
    def is_stopped(self) -> bool:
        """By a signal; a process that only waits for its disk is not."""
        return self.held > (self._busy_until > self._scheduler.now)

    @property
    def busy_s(self) -> float:
        return max(0.0, self._busy_until - self._scheduler.now) if self.alive else 0.0

    def put_aside(self, call: ScheduledCall) -> None:
        if self.alive:
            self._aside.append(call)

    def post(self, callback: Callable[..., object], *args: object) -> None:
        if self.alive:
            self._scheduler.ready.append(ScheduledCall(self, callback, args, self.context))

    def call_after(self, seconds: float, callback: Callable[..., object], *args: object) -> None:
        if self.alive:
            call = ScheduledCall(self, callback, args, self.context)
            self._scheduler.add_timer(self._scheduler.now + seconds, call)

    # ---- asyncio: callbacks and time

    def time(self) -> float:
        clock = self.clock  # as `monotonic_s`, without a call: nothing is asked for more often
        return clock.uptime_s + self._scheduler.now * clock.rate

    def call_soon(  # type: ignore[override]  # callbacks of any arguments
        self, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.Handle:
        call = ScheduledCall(self, callback, args, context)
        if self.alive:
            self._scheduler.ready.append(call)
        return call  # type: ignore[return-value]  # used as one

    call_soon_threadsafe = call_soon  # type: ignore[assignment]

    def call_later(  # type: ignore[override]
        self, delay: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        return self.call_at(self.time() + delay, callback, *args, context=context)

    def call_at(  # type: ignore[override]
        self, when: float, callback: Callable[..., object], *args: Any, context: Context | None = None
    ) -> asyncio.TimerHandle:
        call = ScheduledCall(self, callback, args, context, when)
        if self.alive:
            late_s = self._random.random() * LATE_S
            self._scheduler.add_timer(self.clock.simulated(when) + late_s, call)
        return call  # type: ignore[return-value]  # used as one

    def create_future(self) -> asyncio.Future[Any]:
        return OrderedFuture(loop=self)

    def create_task(  # type: ignore[override]  # of coroutines alone
        self, coro: Coroutine[Any, Any, T], *, name: str | None = None, context: Context | None = None
    ) -> asyncio.Task[T]:
        return OrderedTask(coro, loop=self, name=name, context=context)

    def run_in_executor(  # type: ignore[override]  # asyncio returns a future too
        self, executor: Executor | None, func: Callable[..., T], *args: Any
    ) -> asyncio.Future[T]:
        result: asyncio.Future[T] = self.create_future()
        pool = self._pools.get(executor)
        if pool is None:
            threads = executor._max_workers if isinstance(executor, ThreadPoolExecutor) else EXECUTOR_THREADS
            pool = self._pools[executor] = Pool(self, threads, self._random)
        pool.submit(lambda: func(*args), result)
        return result

    # ---- asyncio: errors and state

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        if not self.alive:
            return
        if self.boundary is not None:
            self.boundary.loop_error(self, context)
            error = context.get("exception")
            if isinstance(error, Exception) and not ("transport" in context and isinstance(error, OSError)):
                self.on_error(str(context.get("message")), error)
        else:
            self.default_exception_handler(context)

    def default_exception_handler(self, context: dict[str, Any]) -> None:
        self._report(self.name, context)

    def get_debug(self) -> bool:
        return False

    def is_running(self) -> bool:
        return self.alive

    def is_closed(self) -> bool:
        return not self.alive

    async def shutdown_asyncgens(self) -> None:
        pass

    # ---- asyncio: network

    async def create_server(self, protocol_factory: Any, host: Any = None, port: Any = None, **_: Any) -> Any:
        return self._network.listen(self, protocol_factory, host or self.host, int(port))

    async def create_connection(
        self, protocol_factory: Any, host: Any = None, port: Any = None, *, ssl: Any = None, **_: Any
    ) -> Any:
        if ssl:
            raise NotImplementedError("simulated streams have no TLS")
        return await self._network.connect(self, protocol_factory, host, int(port))

    async def getaddrinfo(self, host: Any, port: Any, **_: Any) -> Any:
        return [(2, 1, 6, "", (host or self.host, int(port or 0)))]
