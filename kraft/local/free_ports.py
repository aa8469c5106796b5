"""Free ports of the loopback, for clusters that must not reach a broker that is already there.

They are chosen below the kernel's ephemeral range: a port from within it can be lost to any outgoing
connection while its node is down, even to a client's own attempt to reach that node.

A port that is merely found free is somebody else's before the node listens there, sooner or later. So there
is no way to ask for one without keeping it.
"""

from __future__ import annotations

import contextlib
import random
import socket
from types import TracebackType
from typing import Final, Self

HOST: Final = "127.0.0.1"
FIRST_PORT: Final = 12_000
LAST_PORT: Final = 32_000
TRIES_PER_PORT: Final = 100
PARTS: Final = 16


class Ports:
    """Ask it for so many ports; they differ, and nobody else finds them free until it is closed.

    Until its node has started, and while it is down, no process listens at a port. So each is bound here,
    too, without listening: connections are refused as they would be without us. Whoever names one and sets
    SO_REUSEADDR could listen there in the node's place: the node itself must be able to. (So it is on Linux.)

    `part`: concurrent runs may take theirs from different parts of the range.
    """

    def __init__(self, part: int | None = None) -> None:
        self._kept = contextlib.ExitStack()
        self._rng = random.SystemRandom()
        self._first, self._last = FIRST_PORT, LAST_PORT
        if part is not None:
            size = (LAST_PORT - FIRST_PORT) // PARTS
            self._first += part % PARTS * size
            self._last = self._first + size - 1

    def __call__(self, count: int) -> list[int]:
        """Raises OSError if there are not so many."""
        ports: list[int] = []
        for _ in range(TRIES_PER_PORT * count):
            if len(ports) == count:
                break
            port = self._rng.randint(self._first, self._last)
            with contextlib.suppress(OSError):  # somebody has it, maybe we
                self._kept.enter_context(kept(port))
                ports.append(port)
        if len(ports) < count:
            raise OSError(f"no {count} free ports between {self._first} and {self._last}")
        return ports

    def close(self) -> None:
        """Give them back."""
        self._kept.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()


def kept(port: int) -> socket.socket:
    """Bound without listening, for as long as it is open. Raises OSError where another process has it."""
    keeper = socket.socket()
    try:
        keeper.bind((HOST, port))
    except OSError:
        keeper.close()
        raise
    # From here on the node may listen there, which sets it too. Not earlier: of two processes that bind with
    # it at once, each would believe the port its own.
    keeper.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    return keeper
