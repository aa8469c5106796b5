"""Free ports for one run: never the same twice, and kept from others until the run ends."""

from __future__ import annotations

import contextlib
import random
import socket
from types import TracebackType
from typing import Final, Self

from kraft.local.free_ports import FIRST_PORT, HOST, LAST_PORT, free_ports

PARTS: Final = 16


class Ports:
    """A `TakePorts`, and a context in which what was taken stays taken.

    While a node is down no process listens at its ports, and another one would find them free. So each is
    bound here, too, without listening: that does not keep the node from listening there (both set
    SO_REUSEADDR), and connections are refused as they would be without us.

    `part`: concurrent runs take theirs from different parts of the range.
    """

    def __init__(self, part: int | None = None) -> None:
        self._held: dict[int, socket.socket] = {}
        self._first, self._last = FIRST_PORT, LAST_PORT
        if part is not None:
            size = (LAST_PORT - FIRST_PORT) // PARTS
            self._first += part % PARTS * size
            self._last = self._first + size - 1

    def __call__(self, count: int) -> list[int]:
        ports: list[int] = []
        while len(ports) < count:
            for port in free_ports(count - len(ports), random.SystemRandom(), self._first, self._last):
                with contextlib.suppress(OSError):  # another process was quicker
                    self._held[port] = held(port)
                    ports.append(port)
        return ports

    def close(self) -> None:
        """Give them back."""
        with contextlib.ExitStack() as closing:
            for holder in self._held.values():
                closing.callback(holder.close)
        self._held.clear()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def held(port: int) -> socket.socket:
    """Bound without listening, for as long as it is open. Raises OSError where another process has it."""
    with socket.socket() as probe:
        probe.bind((HOST, port))
    holder = socket.socket()
    holder.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    try:
        holder.bind((HOST, port))
    except OSError:
        holder.close()
        raise
    return holder
