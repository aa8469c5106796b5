"""An answer over HTTP that is no success: raised anywhere below, sent by server.py."""

from __future__ import annotations


class Refused(Exception):
    """The request is refused; says why."""

    def __init__(self, status: int, message: str, *, retry_after_s: int | None = None) -> None:
        super().__init__(message)
        self.status = status
        self.message = message
        self.retry_after_s = retry_after_s
