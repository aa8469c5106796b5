"""A Python that Spark starts connects before it imports anything. PYTHONPATH leads it here (session.py).

Spark gives the process of a streaming source ten seconds to connect back and ten more to tell its secret,
and no setting changes that. The process does so when it has imported PySpark: on a machine that is busy
enough that takes longer. So both are done here, and PySpark is given a Unix socket, for which it has no
secret to tell: when it connects there, it is given this connection. No load stretches the start of a bare
interpreter so far.
"""

import os
import socket
from typing import Any

PORT = os.environ.get("PYTHON_WORKER_FACTORY_PORT")
SECRET = os.environ.get("PYTHON_WORKER_FACTORY_SECRET")
PLACE = "connected already"


def _connected(port: int, secret: bytes) -> socket.socket:
    """Authenticated, too: a string is its length in four bytes, and itself."""
    made = socket.create_connection(("127.0.0.1", port))
    made.sendall(len(secret).to_bytes(4, "big") + secret)
    answer = made.recv(6, socket.MSG_WAITALL)
    if answer != b"\0\0\0\2ok":
        raise ConnectionError(f"Spark answers {answer!r} to its own secret")
    return made


if PORT is not None and SECRET is not None:
    _early = _connected(int(PORT), SECRET.encode())
    _connect = socket.socket.connect
    os.environ["PYTHON_WORKER_FACTORY_SOCK_PATH"] = PLACE
    del os.environ["PYTHON_WORKER_FACTORY_PORT"], os.environ["PYTHON_WORKER_FACTORY_SECRET"]

    def _take_up(made: socket.socket, address: Any) -> None:
        if address == PLACE:
            os.dup2(_early.fileno(), made.fileno())
            _early.close()
        else:
            _connect(made, address)

    socket.socket.connect = _take_up  # type: ignore[method-assign, assignment]
