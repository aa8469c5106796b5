"""Free ports of the loopback, for clusters that must not reach a broker that is already there.

They are chosen below the kernel's ephemeral range: a port from within it can be lost to any outgoing
connection while its node is down, even to a client's own attempt to reach that node.
"""

from __future__ import annotations

import contextlib
import random
import socket
from typing import Final

HOST: Final = "127.0.0.1"
FIRST_PORT: Final = 12_000
LAST_PORT: Final = 32_000
TRIES_PER_PORT: Final = 100


def free_ports(count: int, rng: random.Random, first: int = FIRST_PORT, last: int = LAST_PORT) -> list[int]:
    """`count` different ports on which nothing listened when they were checked.
    Raises OSError if there are not so many."""
    ports: list[int] = []
    # Held until all are found, so that they differ.
    with contextlib.ExitStack() as held:
        for _ in range(TRIES_PER_PORT * count):
            if len(ports) == count:
                break
            probe = held.enter_context(socket.socket())
            with contextlib.suppress(OSError):
                port = rng.randint(first, last)
                probe.bind((HOST, port))
                ports.append(port)
    if len(ports) < count:
        raise OSError(f"no {count} free ports between {first} and {last}")
    return ports
