"""Long answers while they are sent: all of them together take so much of the node's memory.

    body -> pieces -> transport     the next piece when the reader has taken those before

Who reads slowly holds a whole answer meanwhile, and nobody needs a right for that. Where there is no room for
another answer, those that have been sent for longest end, with their connections: a reader that reads has its
own within a moment.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

if TYPE_CHECKING:
    from aiohttp import web

MOST_BYTES: Final = 64 * 1024 * 1024
"""Of all answers that are being sent; one that is alone may be longer."""
MOST_OF_A_SCRAPE: Final = MOST_BYTES // 4
"""As much counts, whatever it takes: beside one of a very large broker others are answered, too."""
PIECE_BYTES: Final = 64 * 1024


@dataclass(frozen=True, slots=True, eq=False)
class _Answer:
    request: web.BaseRequest
    size: int


class UnreadAnswers:
    """Those of one node."""

    def __init__(self) -> None:
        self._sent: dict[_Answer, None] = {}
        """The oldest first."""

    @contextmanager
    def held(self, request: web.BaseRequest, size: int) -> Iterator[None]:
        """While the answer to it, which takes so much, is being sent."""
        while self._sent and sum(each.size for each in self._sent) + size > MOST_BYTES:
            oldest = next(iter(self._sent))
            del self._sent[oldest]
            if oldest.request.transport is not None:
                oldest.request.transport.abort()
        answer = _Answer(request, size)
        self._sent[answer] = None
        try:
            yield
        finally:
            self._sent.pop(answer, None)

    async def send(
        self, request: web.BaseRequest, response: web.StreamResponse, body: bytes
    ) -> web.StreamResponse:
        """Returns when it has been taken. Raises OSError where the reader has gone."""
        response.content_length = len(body)
        with self.held(request, len(body)):
            await response.prepare(request)
            for at in range(0, len(body), PIECE_BYTES):
                await response.write(memoryview(body)[at : at + PIECE_BYTES])
            await response.write_eof()
        return response
