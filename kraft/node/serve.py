"""A node as this process: its event loop, its signals, its end.

    process.py, `kraft start` -> run -> Node.start … a signal … Node.stop
    a failed disk, a broken invariant -> ErrorBoundary -> end_at_once: the process ends at once

The real loop, disk, clock and random source are made here, and nowhere else. A disk that can fail and a clock
that can be set may be passed in instead (chaos/live/process.py).
"""

from __future__ import annotations

import asyncio
import gc
import logging
import os
import random
import signal
import socket
import threading
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from typing import Any, Final

from kraft.config.node_config import Config
from kraft.monitoring.stall_watch import StallLog, StallWatch
from kraft.monitoring.standard_error import tell
from kraft.node.environment import NodeEnvironment
from kraft.node.node import Node
from kraft.storage.formatter import (
    Storage,
    boot_id,
    check_apart,
    hold_against_kafka,
    lock_storage,
    read_storage,
    which_copy,
    without_read_only,
)
from kraft.variant import described, refuse_stale_modules
from metadata_quorum.foundation.disk import Disk, OsDisk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.supervision import ErrorBoundary

log = logging.getLogger(__name__)

BLOCKING_THREADS: Final = 4
COMPUTING_THREADS: Final = 4
RESOLVER_THREADS: Final = 4
LAST_WORDS_S: Final = 2.0
"""How long a node that must end may take to say why."""
SIGNALS: Final = (signal.SIGTERM, signal.SIGINT, signal.SIGHUP)


def wall_clock_ms() -> int:
    """The time of day, in ms since 1970."""
    return time.time_ns() // 1_000_000


def run(config: Config, disk: Disk | None = None, now_ms: Callable[[], int] = wall_clock_ms) -> int:
    """Run a node until a signal ends it; the process's exit code. Raises FatalError at the start."""
    refuse_stale_modules()
    check_apart(config)
    disk = disk or OsDisk()
    storage = without_read_only(config, read_storage(disk, config))
    locks = lock_storage(config, storage.unusable)
    try:
        if config.is_controller:
            hold_against_kafka(disk, config)
        with (
            ThreadPoolExecutor(BLOCKING_THREADS, "blocking") as blocking,
            asyncio.Runner(loop_factory=new_loop) as runner,
        ):
            runner.run(_serve(config, storage, disk, now_ms, blocking))
    finally:
        for fd in locks:
            os.close(fd)
    return 0


def new_loop() -> asyncio.AbstractEventLoop:
    """uvloop's, where it is installed."""
    try:
        import uvloop
    except ImportError:
        return _PlainLoop()
    return uvloop.new_event_loop()


class _PlainLoop(asyncio.SelectorEventLoop):
    """Names are looked up in threads of their own, as uvloop does it: an answer may take many seconds where
    the name server is silent, and logs are read by the others."""

    def __init__(self) -> None:
        super().__init__()
        self._resolver = ThreadPoolExecutor(RESOLVER_THREADS, "resolver")

    async def getaddrinfo(self, host: Any, port: Any, **options: Any) -> Any:
        look_up = partial(socket.getaddrinfo, host, port, **options)
        return await self.run_in_executor(self._resolver, look_up)

    def close(self) -> None:
        self._resolver.shutdown(wait=False, cancel_futures=True)
        super().close()


async def _serve(
    config: Config, storage: Storage, disk: Disk, now_ms: Callable[[], int], blocking: ThreadPoolExecutor
) -> None:
    loop = asyncio.get_running_loop()
    boundary = ErrorBoundary(end_at_once, loop.time)
    loop.set_exception_handler(boundary.loop_error)
    loop.set_default_executor(ThreadPoolExecutor(COMPUTING_THREADS, "computing"))
    node = Node(
        config,
        storage,
        NodeEnvironment(
            loop,
            disk,
            random.SystemRandom(),
            now_ms,
            boundary,
            blocking_threads=blocking,
            boot_id=boot_id(),
            which_copy=which_copy,
            stopwatch=time.perf_counter,
            cpu_time=time.thread_time,
        ),
    )
    signals = _Signals(loop)
    try:
        await _until(signals.came, node.start(signals.take))
        if not signals.came.is_set():
            log.info("node %d is up (%s)", config.node_id, described())
            gc.freeze()  # not collected before: with very many partitions that would stop the loop for long
            watch = _watch_for_stalls(loop, node)
            await signals.came.wait()
            if watch is not None:
                watch.stop()
        log.info("node %d is stopping", config.node_id)
        await node.stop()
    finally:
        signals.ignore()


class _Signals:
    """SIGTERM, Ctrl-C and, as with Apache Kafka, a terminal that is closed (where nohup does not ignore it).

    Until the logs are open they end the process at once: that may take long after a crash, and there is
    nothing to put in order yet. Behind the node's end they are ignored: a loop that closes gives Ctrl-C back
    to Python, which would end what is in order with a traceback.
    """

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._taken: list[signal.Signals] = []
        self.came = asyncio.Event()

    def take(self) -> None:
        """From now on they set `came`."""
        for number in SIGNALS:
            if signal.getsignal(number) is not signal.SIG_IGN:
                self._loop.add_signal_handler(number, self.came.set)
                self._taken.append(number)

    def ignore(self) -> None:
        for number in self._taken:
            self._loop.remove_signal_handler(number)
            signal.signal(number, signal.SIG_IGN)


def _watch_for_stalls(loop: asyncio.AbstractEventLoop, node: Node) -> StallWatch | None:
    limit_ms = node.config.kraft_loop_stall_ms
    if limit_ms == 0:
        return None
    stall_log = StallLog(node.config.node_id, limit_ms, loop.time)
    watch = StallWatch(loop, limit_ms, stall_log, node.context.loop_health)
    watch.start()
    return watch


async def _until(stopping: asyncio.Event, work: Awaitable[None]) -> None:
    """Wait for `work`, but not beyond a signal."""
    tasks = (asyncio.ensure_future(work), asyncio.ensure_future(stopping.wait()))
    try:
        await asyncio.wait(tasks, return_when=asyncio.FIRST_COMPLETED)
        if tasks[0].done():
            tasks[0].result()
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)


def end_at_once(error: BaseException) -> None:
    """End at once: after a failed disk or a broken invariant nothing may follow from what we know. Whatever
    goes wrong with saying so: the log may lie on the same disk, or go to somebody who does not read it."""
    code = error.exit_code if isinstance(error, FatalError) else ExitCode.INVARIANT_BROKEN
    try:
        with suppress(RuntimeError):  # there is no room for another thread
            threading.Timer(LAST_WORDS_S, os._exit, (code,)).start()
        if isinstance(error, FatalError):
            tell(f"kraft: {error.reason}")
        else:
            log.critical("the node stops", exc_info=error)
        logging.shutdown()
    finally:
        os._exit(code)
