"""One end of a simulated connection: the asyncio transport that a protocol writes to, and reads from.

    protocol -> write -> Network.send … Network -> arrived -> inbox -> drain -> protocol

The host takes in what arrives, also for a process that is stopped; the process reads when it can. A writer is
paused when more than the hosts' buffers is under way.
"""

from __future__ import annotations

import asyncio
import errno
import socket
from collections import deque
from collections.abc import Callable, Iterable
from typing import Any, Final, Protocol

from chaos.simulator.scheduler import Process, Scheduler

HOST_BUFFER_BYTES: Final = 256 * 1024
HIGH_WATER_BYTES: Final = 64 * 1024
"""asyncio's default."""

SimulatedAddress = tuple[str, int]


class Carrier(Protocol):
    """What streams need of the network (network.py)."""

    scheduler: Scheduler

    def opened(self, stream: Stream) -> int:
        """It is open from now on; returns a number for its socket."""

    def ended(self, stream: Stream) -> None:
        """It is closed."""

    def closed(self, server: StreamServer) -> None:
        """It listens no longer."""

    def send(self, stream: Stream, kind: str, data: bytes) -> None:
        """Carry what one end of a connection writes to the other."""

    def is_silent(self, source: str, target: str) -> bool:
        """Whether nothing that `source` sends arrives at present."""


class SocketOptions:
    """What a transport shows as its socket."""

    def __init__(self, stream: Stream, number: int) -> None:
        self._stream = stream
        self._number = number

    def fileno(self) -> int:
        return self._number

    def setsockopt(self, level: int, option: int, value: int) -> None:
        if option == socket.TCP_USER_TIMEOUT and level == socket.IPPROTO_TCP:
            self._stream.user_timeout_s = value / 1000


class StreamServer:
    """A listening socket."""

    def __init__(
        self,
        loop: Process,
        factory: Callable[[], asyncio.BaseProtocol],
        address: SimulatedAddress,
        network: Carrier,
    ) -> None:
        self.loop = loop
        self.address = address
        self.sockets = (self,)
        self._factory = factory
        self._network = network

    def getsockname(self) -> SimulatedAddress:
        return self.address

    def accept(self, stream: Stream) -> None:
        if not stream.lost:
            stream.open(self._factory())

    def close(self) -> None:
        self._network.closed(self)

    async def wait_closed(self) -> None:
        pass


class Stream(asyncio.Transport):
    """One end of a connection. Compared by identity."""

    peer: Stream

    def __init__(
        self,
        network: Carrier,
        loop: Process,
        local: SimulatedAddress,
        remote: SimulatedAddress,
    ) -> None:
        super().__init__()
        self.loop = loop
        self.local = local
        self.remote = remote
        self.last_arrival = self.last_departure = 0.0
        self.user_timeout_s: float | None = None
        self.lost = False
        """`connection_lost` was called, or never will be."""
        self._network = network
        self._protocol: asyncio.BaseProtocol | None = None
        self._is_closing = False
        self._is_paused = False
        self._inbox: deque[tuple[str, bytes]] = deque()
        self._unread = 0
        """Bytes that we wrote and the other process has not read."""
        self._high = HIGH_WATER_BYTES
        self._is_blocked = False
        self._unacknowledged_since: float | None = None
        self._socket = SocketOptions(self, network.opened(self))

    # ---- asyncio.Transport

    def get_extra_info(self, name: str, default: Any = None) -> Any:
        return {"peername": self.remote, "sockname": self.local, "socket": self._socket}.get(name, default)

    def set_protocol(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol

    def get_protocol(self) -> asyncio.BaseProtocol:
        assert self._protocol is not None
        return self._protocol

    def is_closing(self) -> bool:
        return self._is_closing

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        self._high = HIGH_WATER_BYTES if high is None else high

    def get_write_buffer_size(self) -> int:
        return max(0, self._unread - HOST_BUFFER_BYTES)

    def is_reading(self) -> bool:
        return not self._is_paused

    def pause_reading(self) -> None:
        self._is_paused = True

    def resume_reading(self) -> None:
        if self._is_paused:
            self._is_paused = False
            self.loop.post(self._drain)

    def write(self, data: Any) -> None:
        if self._is_closing or not data:
            return
        piece = bytes(data)
        self._unread += len(piece)
        self._network.send(self, "data", piece)
        if self._unread > HOST_BUFFER_BYTES + self._high and not self._is_blocked:
            self._is_blocked = True
            self.get_protocol().pause_writing()

    def writelines(self, list_of_data: Iterable[Any]) -> None:
        self.write(b"".join(list_of_data))

    def can_write_eof(self) -> bool:
        return False

    def close(self) -> None:
        self._end("eof")

    def abort(self) -> None:
        self._end("reset")

    def _end(self, kind: str) -> None:
        if not self._is_closing:
            self._is_closing = True
            self._network.send(self, kind, b"")
            self.loop.post(self._lose, None)

    def _lose(self, error: OSError | None) -> None:
        if self.lost:
            return
        self.lost = self._is_closing = True
        self._forget()
        if self._protocol is not None:
            self._protocol.connection_lost(error)

    # ---- the network's side

    def open(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol = protocol
        protocol.connection_made(self)
        if self._inbox:
            self.loop.post(self._drain)

    def arrived(self, kind: str, data: bytes) -> None:
        """At this host: its process reads it when it can."""
        if self.lost:
            if kind != "reset" and not self.peer.lost:
                self._network.send(self, "reset", b"")
            return
        self._inbox.append((kind, data))
        if self._protocol is not None and not self._is_paused:
            loop = self.loop
            if loop.alive and not loop.held:
                self._network.scheduler.within(loop, self._drain)
            else:
                loop.post(self._drain)

    def unacknowledged(self) -> None:
        """What was just written will not be acknowledged while the link stays as it is (TCP_USER_TIMEOUT)."""
        if self._unacknowledged_since is None and self.user_timeout_s is not None:
            self._unacknowledged_since = self._network.scheduler.now
            self._network.scheduler.at(self._unacknowledged_since + self.user_timeout_s, self._give_up)

    def _give_up(self) -> None:
        self._unacknowledged_since = None
        here, there = self.local[0], self.remote[0]
        if self._network.is_silent(here, there) or self._network.is_silent(there, here):
            self.fail(TimeoutError(errno.ETIMEDOUT, "nothing is acknowledged"))

    def die(self, *, silently: bool) -> None:
        """Its process has ended."""
        if not self._is_closing and not silently:
            self._network.send(self, "reset", b"")
        self.lost = self._is_closing = True
        self._forget()

    def fail(self, error: OSError) -> None:
        """The host ends it."""
        self._is_closing = True
        self.loop.post(self._lose, error)

    def _forget(self) -> None:
        self._inbox.clear()
        self._network.ended(self)

    def _drain(self) -> None:
        while self._inbox and not self._is_paused and not self._is_closing:
            kind, data = self._inbox.popleft()
            if kind == "data":
                self._hand_over(data)
            elif kind == "reset":
                self._lose(ConnectionResetError(errno.ECONNRESET, "Connection reset by peer"))
            else:
                protocol = self.get_protocol()
                if not protocol.eof_received():  # type: ignore[attr-defined]  # of every protocol of streams
                    self.close()

    def _hand_over(self, data: bytes) -> None:
        protocol = self.get_protocol()
        if isinstance(protocol, asyncio.BufferedProtocol):
            read, written = 0, len(data)
            while read < written and not self._is_closing:
                if self._is_paused:
                    self._inbox.appendleft(("data", data[read:]))
                    break
                buffer = memoryview(protocol.get_buffer(-1))
                size = min(len(buffer), written - read)
                buffer[:size] = data[read : read + size]
                read += size
                protocol.buffer_updated(size)
            self.peer.was_read(read)
        else:
            assert isinstance(protocol, asyncio.Protocol)
            protocol.data_received(data)
            self.peer.was_read(len(data))

    def was_read(self, size: int) -> None:
        """The other process has taken so much of what we wrote."""
        self._unread -= size
        if self._is_blocked and self.get_write_buffer_size() <= self._high // 4 and not self._is_closing:
            self._is_blocked = False
            self.loop.post(self.get_protocol().resume_writing)
