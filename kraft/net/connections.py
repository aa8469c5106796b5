"""All connections of a node: how many there may be, and which of them the node closes.

accepted -> arrived: counted, refused, or let in at the expense of the idlest client's connection
a timer  -> sweep: closes idle connections, those that read no replies, those whose requests come too slowly,
            and those whose other end has gone while they are not read: nothing else would notice it
"""

from __future__ import annotations

import asyncio
import logging
import select
from collections import Counter, deque
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import islice
from typing import Final, Protocol

from kraft.monitoring.rate_limited_log import rate_limited
from kraft.net.connection_quotas import ConnectionQuotas, ListenerKind
from kraft.net.listener import ListenerSecurity, ServerLimits
from kraft.net.peer import Peer
from kraft.net.unread import Unread
from metadata_quorum.foundation.turns import some_per_turn

log = rate_limited(logging.getLogger(__name__))

SWEEP_S: Final = 10.0
PER_TURN: Final = 200
"""Connections that are looked at in one turn of the loop; to close one takes some 20 microseconds."""

_RDHUP: Final[int] = getattr(select, "POLLRDHUP", 0)
"""A system that does not have this flag reports broken connections, but not closed ones."""

Admit = Callable[[str], float]
"""Called with the host of every new connection. Returns 0 to let it in, or for how many seconds to keep it
waiting before it is closed."""


class OpenConnection(Protocol):
    """A connection, as the sweep sees it."""

    listener_kind: ListenerKind
    peer: Peer

    @property
    def last_active(self) -> float:
        """When it was last active, by the loop's clock, in seconds."""

    @property
    def name(self) -> str: ...

    @property
    def idle(self) -> bool: ...

    @property
    def listener(self) -> str: ...

    @property
    def waiting_requests(self) -> int: ...

    @property
    def waiting_replies(self) -> int: ...

    def unread_handle(self, since: float) -> int | None:
        """Of its socket, where nothing was read since then, and not because of a quota."""

    def is_deaf(self, now: float) -> bool: ...

    def too_slow(self, now: float) -> int | None: ...

    def abort(self) -> None: ...

    def hung_up(self) -> None:
        """The other end has gone."""


class Connections:
    """The open connections of one node, on all of its listeners."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, limits: ServerLimits, admit: Admit, unread: Unread
    ) -> None:
        self._unread = unread
        self.limits = limits
        """May be replaced while connections are open."""
        self._loop = loop
        self._admit = admit
        self._open: dict[OpenConnection, None] = {}  # a dict, because sets have no stable order
        self.opened: Counter[str] = Counter()
        self.closed: Counter[str] = Counter()
        """By listener, since the node started."""
        shared = ConnectionQuotas()
        self.counts = dict.fromkeys(ListenerKind, shared) | {ListenerKind.CONTROLLERS: ConnectionQuotas()}
        self._sweep_timer: asyncio.TimerHandle | None = None
        self._swept = loop.time()

    def __iter__(self) -> Iterator[OpenConnection]:
        return iter(self._open)

    def __len__(self) -> int:
        return len(self._open)

    def add(self, connection: OpenConnection) -> None:
        self._open[connection] = None
        self.opened[connection.listener] += 1

    def remove(self, connection: OpenConnection, host: str) -> None:
        """It is gone."""
        del self._open[connection]
        self.closed[connection.listener] += 1
        self.counts[connection.listener_kind].left(host)

    def arrived(self, security: ListenerSecurity, host: str, handle: int) -> float | None:
        """Count a connection that has just been accepted. Returns None to let it in, or in how many seconds
        to close it."""
        counts, limits = self.counts[security.listener_kind], self.limits
        max_connections = (
            limits.max_controller_connections
            if security.listener_kind is ListenerKind.CONTROLLERS
            else limits.max_connections
        )
        if (refusal := counts.arrived(host, handle, max_connections, security.listener_kind)) is not None:
            log.warning("refusing %s: %s", host, refusal)
            return 0.0
        if counts.total > max_connections.connections:
            self._make_room()
        return self._admit(host) or None

    def _make_room(self) -> None:
        """There is one more than allowed: close the client that has been silent for longest, as in Kafka."""
        shared = (each for each in self._open if each.listener_kind is ListenerKind.SHARED)
        if (idlest := min(shared, key=lambda each: each.last_active, default=None)) is not None:
            log.warning(
                "closing %s: max.connections=%d", idlest.name, self.limits.max_connections.connections
            )
            idlest.abort()

    def start_sweeping(self) -> None:
        """Look at all connections from time to time."""
        if self._sweep_timer is None:
            self._schedule_sweep()

    async def close(self) -> None:
        """End all of them."""
        if self._sweep_timer is not None:
            self._sweep_timer.cancel()
            self._sweep_timer = None
        for part in self._in_parts():
            for connection in part:
                connection.abort()
            await asyncio.sleep(0)

    def _in_parts(self) -> Iterator[list[OpenConnection]]:
        """All of them, those of one turn of the loop together."""
        left = iter(list(self._open))
        while part := list(islice(left, PER_TURN)):
            yield part

    def _schedule_sweep(self) -> None:
        period = min(self.limits.max_idle_s / 10, SWEEP_S)
        self._sweep_timer = self._loop.call_later(period, self._sweep)

    def _sweep(self) -> None:
        self._schedule_sweep()
        since, self._swept = self._swept, self._loop.time()
        some_per_turn(self._loop, deque(self._in_parts()), 1, partial(self._sweep_part, since))

    def _sweep_part(self, since: float, part: list[OpenConnection]) -> None:
        now = self._loop.time()
        still_open = [each for each in part if each in self._open]
        for connection in _hung_up(still_open, since):
            connection.hung_up()
        room_is_scarce = self._unread.is_scarce
        for connection in still_open:
            is_deaf = connection.is_deaf(now)
            if is_deaf and room_is_scarce:
                log.warning("closing %s: it does not read its replies, and others need room", connection.name)
                connection.abort()
            elif now - connection.last_active > self.limits.max_idle_s and (connection.idle or is_deaf):
                connection.abort()
            elif (least := connection.too_slow(now)) is not None:
                log.warning("closing %s: its request comes at less than %d bytes/s", connection.name, least)
                connection.abort()


def _hung_up(connections: Iterable[OpenConnection], since: float) -> list[OpenConnection]:
    """Connections that were not read since then, and whose other end has gone. Others are read to their end:
    who produces with acks=0 sends all that it has, and goes. (With TLS the loop drops what it has decrypted
    when the other end says that it goes while nothing is read.)"""
    by_handle = {each.unread_handle(since): each for each in connections}
    poll = select.poll()
    for handle in by_handle:
        if handle is not None:
            poll.register(handle, _RDHUP)
    return [by_handle[handle] for handle, _ in poll.poll(0)]
