"""Schedules a Raft voter's ticks as timers of the node's event loop.

Raft itself reads no clock (metadata_quorum/raft/port.py); this is the one place that calls
`tick`. Everything that gives Raft work (a proposal, a frame, a connection made or lost) passes
through here, so that the work is done in the same turn of the event loop: proposals of one
turn share one append, one fsync and one message per voter.

    controller -> RaftDriver.propose -> Raft.propose … tick -> apply -> on_done
    raft_transport -> RaftDriver.receive -> Raft.receive … tick
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeVar

from metadata_quorum.raft.port import Applied, ProposalOutcome, QuorumState, Raft

T = TypeVar("T")


class BackgroundThreads:
    """Raft's `Background`: a thread, and back. Threads of its own, so that a fence never waits for what cold
    reads or the cleaner do to the others: for a snapshot that is written, one that is read, and a command."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self._loop = loop
        self._threads = ThreadPoolExecutor(3, "raft")
        self._running: dict[asyncio.Future[Any], None] = {}
        self.driver: RaftDriver | None = None

    async def close(self) -> None:
        """Return when nothing of it runs any more: what they write into is closed next."""
        self._threads.shutdown(wait=False, cancel_futures=True)
        if self._running:
            await asyncio.wait(self._running)

    def __call__(self, work: Callable[[], T], done: Callable[[T], None]) -> None:
        def ended(future: asyncio.Future[T]) -> None:
            del self._running[future]
            if future.cancelled():
                return
            with suppress(Exception):  # the voter keeps the error: its next tick raises it
                done(future.result())
            if self.driver is not None:
                self.driver.wake()

        future = self._loop.run_in_executor(self._threads, work)
        self._running[future] = None
        future.add_done_callback(ended)


@dataclass(slots=True)
class RaftTraffic:
    """What a voter has exchanged with the others, and how long its proposals took, since it started."""

    frames_in: int = 0
    bytes_in: int = 0
    frames_out: int = 0
    bytes_out: int = 0
    commits: int = 0
    commit_s: float = 0.0
    """Time from a proposal until it was applied here, in total over all that were committed."""


class RaftDriver:
    """A `Raft` that ticks itself. An error out of it is a bug or a dead disk, and leaves a voter that does
    not know what it has promised: `on_fatal`."""

    def __init__(
        self, raft: Raft, loop: asyncio.AbstractEventLoop, on_fatal: Callable[[BaseException], None]
    ) -> None:
        self._raft = raft
        self._loop = loop
        self._on_fatal = on_fatal
        self._timer: asyncio.Handle | None = None
        self._due = False
        self._closed = False
        self.node_id = raft.node_id
        self.traffic = RaftTraffic()

    @property
    def is_leader(self) -> bool:
        return self._raft.is_leader

    @property
    def leader_id(self) -> int:
        return self._raft.leader_id

    @property
    def term(self) -> int:
        return self._raft.term

    @property
    def is_mute(self) -> bool:
        return self._raft.is_mute

    def state(self) -> QuorumState:
        return self._raft.state()

    def propose(self, command: bytes, on_done: Callable[[Applied], None]) -> None:
        proposed_at = self._loop.time()

        def done(applied: Applied) -> None:
            if applied.outcome is ProposalOutcome.COMMITTED:
                self.traffic.commits += 1
                self.traffic.commit_s += self._loop.time() - proposed_at
            on_done(applied)

        self._raft.propose(command, done)
        self.wake()

    def receive(self, peer: int, frame: bytes) -> None:
        """Raises `ValueError` for a malformed frame; anything else that escapes is fatal."""
        if self._closed:
            return
        self.traffic.frames_in += 1
        self.traffic.bytes_in += len(frame)
        try:
            self._raft.receive(peer, frame)
        except ValueError:
            raise
        except Exception as e:  # noqa: BLE001 - whatever it is, it must stop the node, not the timer
            self._fail(e)
            return
        self.wake()

    def sent(self, size: int) -> None:
        self.traffic.frames_out += 1
        self.traffic.bytes_out += size

    def connected(self, peer: int) -> None:
        self._notify(lambda: self._raft.connected(peer))

    def disconnected(self, peer: int, *, broken: bool) -> None:
        self._notify(lambda: self._raft.disconnected(peer, broken=broken))

    def refused(self, peer: int) -> None:
        self._notify(lambda: self._raft.refused(peer))

    def wake(self) -> None:
        """Tick at the end of this turn of the event loop."""
        if self._due or self._closed:
            return
        self._due = True
        if self._timer is not None:
            self._timer.cancel()
        self._timer = self._loop.call_soon(self.tick)

    def tick(self, now: float | None = None) -> None:
        """Tick now and arm the timer for the next time."""
        if self._closed:
            return
        self._due = False
        try:
            self._raft.tick(self._loop.time() if now is None else now)
            delay = self._raft.next_tick_in()
        except Exception as e:  # noqa: BLE001 - whatever it is, it must stop the node, not the timer
            self._fail(e)
            return
        if self._due:  # something woke us from inside the tick
            return
        if delay <= 0.0:
            self.wake()
        else:
            self._timer = self._loop.call_later(delay, self.tick)

    def next_tick_in(self) -> float:
        return self._raft.next_tick_in()

    def close(self) -> None:
        if self._closed:
            return
        self._closed = True
        if self._timer is not None:
            self._timer.cancel()
        self._raft.close()

    def _notify(self, news: Callable[[], None]) -> None:
        if self._closed:
            return
        try:
            news()
        except Exception as e:  # noqa: BLE001 - as in `tick`
            self._fail(e)
            return
        self.wake()

    def _fail(self, error: BaseException) -> None:
        self._closed = True
        self._on_fatal(error)
