"""An event loop for several nodes in one process: connections are memory, time passes when all wait.

What a script of requests makes the nodes do is then always the same: no read of a socket is shorter than
another, and no timer fires because the machine is busy. Blocking work runs at once.
"""

from __future__ import annotations

import asyncio
import selectors
from collections.abc import Callable
from typing import Any, Final

Address = tuple[str, int]
_START_S: Final = 1000.0
_CLIENT_PORT: Final = 60_000


class _NoSockets(selectors.DefaultSelector):
    """Instead of waiting, the clock advances."""

    now = _START_S

    def select(self, timeout: float | None = None) -> list[Any]:
        if timeout is None:
            raise RuntimeError("nothing is scheduled: the loop would wait for ever")
        self.now += max(timeout, 0.0)
        return []


class MemoryLoop(asyncio.SelectorEventLoop):
    """Servers are found by their port."""

    def __init__(self) -> None:
        self._clock = _NoSockets()
        self._listening: dict[int, Callable[[], asyncio.BaseProtocol]] = {}
        super().__init__(self._clock)

    def time(self) -> float:
        return self._clock.now

    # As much of the loop's signatures as nodes use.
    async def create_server(self, make: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        self._listening[port] = make
        return _MemoryServer(self._listening, port)

    async def create_connection(self, make: Any, host: Any = None, port: Any = None, **_: Any) -> Any:  # type: ignore[override]
        if port not in self._listening:
            raise ConnectionRefusedError(f"nothing listens on port {port}")
        here, there = _Half(self, (host, port)), _Half(self, (host, _CLIENT_PORT))
        here.other, there.other = there, here
        there.begin(self._listening[port]())
        here.begin(protocol := make())
        return here, protocol

    def run_in_executor(self, executor: Any, work: Any, *arguments: Any) -> Any:  # type: ignore[override]
        """No future in this frame: an error refers to the frame, and would with it be a cycle."""
        try:
            return self._done(work(*arguments))
        except Exception as error:  # noqa: BLE001 - it belongs to the caller that awaits the result
            return self._failed(error)

    def _done(self, result: Any) -> asyncio.Future[Any]:
        done = self.create_future()
        done.set_result(result)
        return done

    def _failed(self, error: Exception) -> asyncio.Future[Any]:
        done = self.create_future()
        done.set_exception(error)
        return done


class _MemoryServer:
    def __init__(self, listening: dict[int, Callable[[], asyncio.BaseProtocol]], port: int) -> None:
        self._listening, self._port = listening, port
        self.sockets = [_Socket(("127.0.0.1", port))]

    def close(self) -> None:
        self._listening.pop(self._port, None)

    async def wait_closed(self) -> None: ...


class _Socket:
    """As much of a socket as nodes use."""

    def __init__(self, name: Address) -> None:
        self._name = name

    def getsockname(self) -> Address:
        return self._name

    def fileno(self) -> int:
        return 0

    def setsockopt(self, *_: Any) -> None: ...


class _Half(asyncio.Transport):
    """One end of a connection. What is written in one turn of the loop arrives together, in the next."""

    other: _Half

    def __init__(self, loop: MemoryLoop, peer: Address) -> None:
        super().__init__({"peername": peer, "socket": _Socket(peer)})
        self._loop = loop
        self._arriving = bytearray()
        self._scheduled = self._paused = self._closing = False

    def begin(self, protocol: asyncio.BaseProtocol) -> None:
        self._protocol: Any = protocol
        protocol.connection_made(self)

    def write(self, data: bytes | bytearray | memoryview) -> None:
        if not self._closing:
            self.other.arrive(data)

    def arrive(self, data: bytes | bytearray | memoryview) -> None:
        self._arriving += data
        self._schedule()

    def _schedule(self) -> None:
        if not self._scheduled and not self._paused and self._arriving:
            self._scheduled = True
            self._loop.call_soon(self._deliver)

    def _deliver(self) -> None:
        self._scheduled = False
        if self._closing or self._paused:
            return
        if not isinstance(self._protocol, asyncio.BufferedProtocol):
            data, self._arriving = bytes(self._arriving), bytearray()
            self._protocol.data_received(data)
            return
        room: Any = self._protocol.get_buffer(-1)
        count = min(len(room), len(self._arriving))
        room[:count] = self._arriving[:count]
        del self._arriving[:count]
        self._protocol.buffer_updated(count)
        self._schedule()

    def pause_reading(self) -> None:
        self._paused = True

    def resume_reading(self) -> None:
        self._paused = False
        self._schedule()

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None: ...

    def get_write_buffer_size(self) -> int:
        return 0

    def is_closing(self) -> bool:
        return self._closing

    def close(self) -> None:
        for half in (self, self.other):
            if not half._closing:
                half._closing = True
                self._loop.call_soon(half._protocol.connection_lost, None)

    abort = close
