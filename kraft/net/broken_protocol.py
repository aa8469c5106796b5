"""Why a client closes its connection; by itself, because mypyc compiles no subclass of an `OSError`."""

from __future__ import annotations


class BrokenProtocol(ConnectionResetError):
    """What the other end sends is no answer to what was asked."""
