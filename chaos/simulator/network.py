"""Streams between simulated hosts: in order within a connection, late, cut one way, refused, reset.

    Stream.write -> OneWay (source to target): a delay from its stream of chance -> the other Stream

A cut link loses nothing that TCP would retransmit: what was sent meanwhile arrives after the heal, unless one
end gave the connection up. A host without power sends nothing at all; a connection that it has forgotten is
reset when the other end sends next.
"""

from __future__ import annotations

import asyncio
import errno
from collections import Counter, deque
from collections.abc import Callable
from dataclasses import dataclass, field
from random import Random
from typing import Final

from chaos.simulator.draws import Draws
from chaos.simulator.scheduler import Process, ScheduledCall, Scheduler
from chaos.simulator.stream import Stream, StreamServer

LEAST_S: Final = 100e-6
"""One way, without faults."""
SPREAD_S: Final = 600e-6
"""How much longer it may take."""
RETRANSMIT_S: Final = 1.0
"""After this a connection attempt without an answer is repeated, and by then what was lost is
retransmitted."""
SPLIT_PROBABILITY: Final = 0.05
"""That a write arrives in two pieces."""
FIRST_PORT: Final = 32_768

Address = tuple[str, int]
Tap = Callable[[Stream, bytes], None]


@dataclass(slots=True)
class OneWay:
    """The link from one host to another, in this direction."""

    source: str
    target: str
    random: Random
    back: OneWay = field(init=False, repr=False)
    """The other direction."""
    cuts: int = 0
    """How many faults cut it."""
    healed: int = 0
    """How often the last of them was taken away."""
    extra_s: float = 0.0
    """On top of the usual delay."""
    held: list[tuple[Stream, str, bytes]] = field(default_factory=list)
    """Sent while it was cut."""
    caught: list[tuple[Stream, str, bytes]] = field(default_factory=list)
    """Sent before, and under way when it was cut."""
    rates: list[int] = field(default_factory=list)
    """Bytes that pass in a second, as each fault that makes it narrow has it; the least counts."""
    waiting: deque[tuple[Stream, str, bytes]] = field(default_factory=deque)
    """Sent, and not through yet: the first is under way."""
    passing: ScheduledCall | None = None
    """The end of its way through."""


class Network:
    """All hosts, and what is between them."""

    def __init__(self, scheduler: Scheduler, draws: Draws) -> None:
        self.scheduler = scheduler
        self.taps: list[Tap] = []
        """They see every write of a living process as it leaves."""
        self.refused: Counter[Address] = Counter()
        """Where a firewall answers with a reset, by how many faults."""
        self.dark: set[str] = set()
        """Hosts without power."""
        self.streams: dict[Stream, None] = {}
        """Both ends of every open connection."""
        self._draws = draws
        self._links: dict[tuple[str, str], OneWay] = {}
        self._servers: dict[Address, StreamServer] = {}
        self._sockets = 0
        self._ports = FIRST_PORT

    def link(self, source: str, target: str) -> OneWay:
        found = self._links.get((source, target))
        if found is None:
            found = self._one_way(source, target)
            found.back = found if source == target else self._one_way(target, source)
            found.back.back = found
        return found

    def _one_way(self, source: str, target: str) -> OneWay:
        made = OneWay(source, target, self._draws.stream(f"link {source} {target}"))
        self._links[source, target] = made
        return made

    # ---- faults

    def cut(self, source: str, target: str) -> None:
        """Nothing that `source` sends reaches `target`; the other direction is as before."""
        self.link(source, target).cuts += 1

    def heal(self, source: str, target: str) -> None:
        """Take one cut away. After the last one what was held back arrives, in its order, within the time of
        a retransmission."""
        link = self.link(source, target)
        if not link.cuts:
            return
        link.cuts -= 1
        if link.cuts:
            return
        link.healed += 1
        sent, link.caught, link.held = [*link.caught, *link.held], [], []
        again_s = link.random.uniform(0.0, RETRANSMIT_S)
        for stream, kind, data in sent:
            self._put_under_way(link, stream, kind, data, again_s)

    def heal_all(self) -> None:
        """No link is cut any more."""
        for (source, target), link in list(self._links.items()):
            while link.cuts:
                self.heal(source, target)

    def narrow(self, source: str, target: str, bytes_per_s: int) -> None:
        """No more passes in a second."""
        self.link(source, target).rates.append(bytes_per_s)

    def widen(self, source: str, target: str, bytes_per_s: int) -> None:
        """Take one such fault away. After the last one all that waits is let through."""
        link = self.link(source, target)
        link.rates.remove(bytes_per_s)
        if not link.rates and link.passing is not None:
            link.passing.cancel()
            link.passing, waiting, link.waiting = None, link.waiting, deque()
            for stream, kind, data in waiting:
                self._put_under_way(link, stream, kind, data, 0.0)

    def reset(self, one: str, other: str) -> bool:
        """End all connections between two hosts, at both ends. False where there are none."""
        ended = [each for each in self.streams if {each.local[0], each.remote[0]} == {one, other}]
        for stream in ended:
            stream.fail(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
        return bool(ended)

    def is_silent(self, source: str, target: str) -> bool:
        """Whether nothing that `source` sends arrives at present."""
        return self.link(source, target).cuts > 0 or source in self.dark or target in self.dark

    # ---- connections

    def listen(
        self, loop: Process, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> StreamServer:
        """Raises OSError where another process listens there."""
        if port == 0:
            port = self._next_port()
        if (host, port) in self._servers:
            raise OSError(errno.EADDRINUSE, "Address already in use")
        server = self._servers[host, port] = StreamServer(loop, factory, (host, port), self)
        return server

    def closed(self, server: StreamServer) -> None:
        if self._servers.get(server.address) is server:
            del self._servers[server.address]

    async def connect(
        self, loop: Process, factory: Callable[[], asyncio.BaseProtocol], host: str, port: int
    ) -> tuple[Stream, asyncio.BaseProtocol]:
        """As a handshake of TCP: attempts without an answer are repeated for ever. Raises
        ConnectionRefusedError, and ConnectionResetError where the other end is lost meanwhile."""
        here = loop.host
        out, back = self.link(here, host), self.link(host, here)
        while True:
            await asyncio.sleep(self._delay(out))
            if self.is_silent(here, host) or self.is_silent(host, here):
                await asyncio.sleep(RETRANSMIT_S)
                continue
            break
        server = self._servers.get((host, port))
        if server is None or self.refused[host, port]:
            await asyncio.sleep(self._delay(back))
            raise ConnectionRefusedError(errno.ECONNREFUSED, f"{host}:{port} refuses the connection")
        ours = Stream(self, loop, (here, self._next_port()), server.address)
        theirs = Stream(self, server.loop, server.address, ours.local)
        ours.peer, theirs.peer = theirs, ours
        server.loop.post(server.accept, theirs)
        await asyncio.sleep(self._delay(back))
        if ours.lost:
            raise ConnectionResetError(errno.ECONNRESET, "reset during the handshake")
        protocol = factory()
        ours.open(protocol)
        return ours, protocol

    def opened(self, stream: Stream) -> int:
        self.streams[stream] = None
        self._sockets += 1
        return self._sockets

    def ended(self, stream: Stream) -> None:
        self.streams.pop(stream, None)

    def send(self, stream: Stream, kind: str, data: bytes) -> None:
        """After the fsync that its process waits for on the loop, where there is one."""
        now = self.scheduler.now
        leaves = max(now + stream.loop.busy_s, stream.last_departure)
        if leaves > now:
            stream.last_departure = leaves
            self.scheduler.at(leaves, self._send_later, stream, kind, data)
        else:
            self._send_now(stream, kind, data)

    def _send_later(self, stream: Stream, kind: str, data: bytes) -> None:
        if stream.loop.alive:  # else it died before the write
            self._send_now(stream, kind, data)

    def _send_now(self, stream: Stream, kind: str, data: bytes) -> None:
        link = self.link(stream.local[0], stream.remote[0])
        if kind == "data":
            for tap in self.taps:
                tap(stream, data)
            if len(data) > 1 and link.random.random() < SPLIT_PROBABILITY:
                at = link.random.randrange(1, len(data))
                self._carry(link, stream, kind, data[:at])
                data = data[at:]
        self._carry(link, stream, kind, data)

    def _carry(self, link: OneWay, stream: Stream, kind: str, data: bytes) -> None:
        if not link.rates:
            self._put_under_way(link, stream, kind, data, 0.0)
            return
        link.waiting.append((stream, kind, data))
        if link.passing is None:
            self._let_through(link)

    def _let_through(self, link: OneWay) -> None:
        """What waits first, in the time that it takes."""
        due = self.scheduler.now + len(link.waiting[0][2]) / min(link.rates)
        link.passing = self.scheduler.at(due, self._is_through, link)

    def _is_through(self, link: OneWay) -> None:
        link.passing = None
        self._put_under_way(link, *link.waiting.popleft(), 0.0)
        if link.waiting:
            self._let_through(link)

    def _put_under_way(self, link: OneWay, stream: Stream, kind: str, data: bytes, later_s: float) -> None:
        if link.cuts:
            link.held.append((stream, kind, data))
            stream.unacknowledged()
            return
        if link.target in self.dark:
            stream.unacknowledged()
            return
        if link.back.cuts or link.source in self.dark:
            stream.unacknowledged()
        self.scheduler.note(data)
        due = max(self.scheduler.now + later_s + self._delay(link), stream.last_arrival)
        stream.last_arrival = due
        self.scheduler.at(due, self._arrive, link, stream, kind, data)

    def _arrive(self, link: OneWay, stream: Stream, kind: str, data: bytes) -> None:
        if link.cuts:
            link.caught.append((stream, kind, data))
        elif link.target not in self.dark:
            stream.peer.arrived(kind, data)

    def _delay(self, link: OneWay) -> float:
        delay_s = LEAST_S + SPREAD_S * link.random.random()
        if link.extra_s:
            delay_s += link.random.uniform(0.5, 1.0) * link.extra_s
        return delay_s

    def _next_port(self) -> int:
        self._ports += 1
        return self._ports

    def forget(self, loop: Process, *, silently: bool) -> None:
        """Its process has ended: the host resets its connections, unless it has lost power."""
        for server in [each for each in self._servers.values() if each.loop is loop]:
            server.close()
        for stream in [each for each in self.streams if each.loop is loop]:
            stream.die(silently=silently)
