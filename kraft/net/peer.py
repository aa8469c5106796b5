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
"""Takes one frame; returns its reply. Raises `ProtocolError` where the connection cannot go on."""

Prepare = Callable[[memoryview], asyncio.Future[None] | None]
"""Takes a frame before it is served; a future where that must wait for something, else None."""


def nothing_to_prepare(frame: memoryview) -> None:
    """For a server whose frames can all be served at once."""


class StartedRequest(Protocol):
    """A request that has been started, for those who learn what it takes in memory."""

    def charge(self, size: int) -> None:
        """It takes so many bytes more than its frame, until its reply."""

    def pause_others(self) -> None:
        """Nothing that comes after it on its connection is read or started before `resume_others`, or before
        it is answered."""

    def resume_others(self) -> None: ...

    def answer_first(self) -> None:
        """Nothing that comes after it on its connection is started before it is answered."""

    def counts_as(self, api: ApiMetrics) -> None:
        """It is one of those, too: a fetch by a follower, or by a consumer."""


class UncountedRequest:
    """A `StartedRequest` of a peer without a connection."""

    def charge(self, size: int) -> None:
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
    """What to call off when the connection is gone: replies that nobody waits for any longer."""
    gone: bool = False
    """The connection is."""
    mute: Callable[[float], None] = no_mute
    """Start nothing more that it asks for so many seconds. What has been started continues."""
    started: Callable[[], StartedRequest] = UncountedRequest
    """The request that is just being started."""
