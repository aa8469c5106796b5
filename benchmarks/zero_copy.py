"""sendfile beside pread and write: `python -m benchmarks.zero_copy`.

Sends a file that lies in the page cache over a loopback TCP connection, in pieces of the sizes that
fetches have, and prints the sender's CPU per GB both ways. The reader is another process, which only
empties its socket. kraft sends fetched records by pread: this is the measurement behind that choice
(docs/PERFORMANCE.md).
"""

from __future__ import annotations

import os
import resource
import socket
import tempfile
import time
from collections.abc import Callable
from typing import Final

from rich.console import Console
from rich.table import Table

FILE_BYTES: Final = 256 << 20
SENT_BYTES: Final = 2 << 30
SIZES: Final = (16 << 10, 128 << 10, 1 << 20, 8 << 20)
REPEATS: Final = 3

Send = Callable[[socket.socket, int, int, int], None]
"""Sends a piece: socket, file descriptor, offset, length."""


def by_pread(connection: socket.socket, fd: int, offset: int, length: int) -> None:
    connection.sendall(os.pread(fd, length, offset))


def by_sendfile(connection: socket.socket, fd: int, offset: int, length: int) -> None:
    sent = 0
    while sent < length:
        sent += os.sendfile(connection.fileno(), fd, offset + sent, length - sent)


def measure(send: Send, fd: int, size: int) -> tuple[float, float]:
    """(CPU seconds of the sender, wall seconds) per GB."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        reader = os.fork()
        if reader == 0:
            _empty(listener.getsockname()[1])
            os._exit(0)
        connection, _ = listener.accept()
        with connection:
            before, started = resource.getrusage(resource.RUSAGE_SELF), time.monotonic()
            for sent in range(0, SENT_BYTES, size):
                send(connection, fd, sent % FILE_BYTES, size)
            after, took = resource.getrusage(resource.RUSAGE_SELF), time.monotonic() - started
        os.waitpid(reader, 0)
    cpu = after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime
    return cpu / SENT_BYTES * 1e9, took / SENT_BYTES * 1e9


def _empty(port: int) -> None:
    buffer = bytearray(1 << 20)
    with socket.create_connection(("127.0.0.1", port)) as connection:
        while connection.recv_into(buffer):
            pass


def main() -> None:
    table = Table(title="sender's cost per GB, hot file, least of three")
    for column in ("piece", "pread + write: CPU s", "wall s", "sendfile: CPU s", "wall s"):
        table.add_column(column, justify="right")
    with tempfile.TemporaryFile() as file:
        piece = os.urandom(1 << 20)
        for _ in range(FILE_BYTES >> 20):
            file.write(piece)
        file.flush()
        for size in SIZES:
            pread = min(measure(by_pread, file.fileno(), size) for _ in range(REPEATS))
            sendfile = min(measure(by_sendfile, file.fileno(), size) for _ in range(REPEATS))
            table.add_row(f"{size >> 10} KiB", *(f"{value:.2f}" for value in (*pread, *sendfile)))
    Console().print(table)


if __name__ == "__main__":
    main()
