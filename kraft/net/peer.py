"""The other end of a connection, as those who serve its requests see it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, Protocol

from kraft.monitoring.request_metrics import ApiMetrics
from kraft.net.connection import Buffers
from kraft.net.connection_state import ConnectionState
from kraft.net.delayed_reply import DelayedReply

Reply = Buffers | DelayedReply | asyncio.Future[Buffers]
"""The reply's buffers (none for no reply), or what will have them."""
Serve = Callable[["Peer", memoryview], Reply]
"""Takes one frame; returns its reply. Raises `ProtocolError` if the connection cannot go on."""

Prepare = Callable[[memoryview], asyncio.Future[None] | None]
"""Takes a frame before it is served. Returns a future if serving must wait for something, otherwise None."""


def nothing_to_prepare(frame: memoryview) -> None:
    """For a server that can serve all frames at once."""


class StartedRequest(Protocol):
    """A request that has been started: what its handler may change about how its connection treats it."""

    def charge(self, size: int) -> None:
        """Count `size` bytes beyond its frame for it, until it is answered."""

    def keep(self) -> None:
        """Its frame stays in memory until `let_go`: it counts, even if its connection ends. To be called
        before anything is charged."""

    def let_go(self) -> None:
        """What was kept is no longer."""

    def pause_others(self) -> None:
        """Read and start nothing more of its connection before `resume_others`, or before it is answered."""

    def resume_others(self) -> None: ...

    def answer_first(self) -> None:
        """Start nothing more of its connection before it is answered."""

    def counts_as(self, api: ApiMetrics) -> None:
        """Count it in another row of the metrics too: as a fetch by a follower, or by a consumer."""


class UncountedRequest:
    """A `StartedRequest` of a peer without a connection."""

    def charge(self, size: int) -> None:
        pass

    def keep(self) -> None:
        pass

    def let_go(self) -> None:
        pass

    def pause_others(self) -> None:
        pass

    def resume_others(self) -> None:
        pass

    def answer_first(self) -> None:
        pass

    def counts_as(self, api: ApiMetrics) -> None:
        pass


def no_mute(pause_s: float) -> None:
    """For a peer without a connection."""


@dataclass(slots=True, eq=False)
class Peer:
    """The client at the other end of a connection, and what handlers remember about it."""

    listener: str
    client_host: str
    client_port: int
    principal: str = "User:ANONYMOUS"
    authenticated: bool = True
    """False until it has logged in, where its listener asks for that."""
    state: ConnectionState = field(default_factory=ConnectionState)
    parked: dict[asyncio.Future[Any] | DelayedReply, Callable[[], object]] = field(default_factory=dict)
    """What waits, and how to call it off when the connection is gone and nobody waits for the reply."""
    gone: bool = False
    """Whether the connection is gone."""
    mute: Callable[[float], None] = no_mute
    """Start none of its requests for that many seconds. What has been started continues."""
    started: Callable[[], StartedRequest] = UncountedRequest
    """The request that is just being started."""

    def park(self, work: asyncio.Future[Any], call_off: Callable[[], object] | None = None) -> None:
        """Call it off when the connection is gone: nobody waits for the reply then. `call_off` does that;
        without it `work` is cancelled."""
        if call_off is None:
            call_off = work.cancel
        if self.gone:
            call_off()
            return
        self.parked[work] = call_off
        work.add_done_callback(lambda done: self.parked.pop(done, None))
