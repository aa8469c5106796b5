"""The client's end of one connection to a node: requests out, answers in, many at a time.

    await request(api_key, version, fields) -> Message          (by their schema)
    await exchange(api_key, version, body)  -> memoryview       (bodies read and written by the caller)

For our own nodes, the command line and the Spark connector; users have their own clients. One `PeerClient` is
one connection: when that ends, all pending requests get `ConnectionError`, and its owner makes a new one. A
server answers in order, so responses find their requests by position.
"""

from __future__ import annotations

import asyncio
import errno
import socket
import ssl
import struct
import threading
from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Final, NamedTuple, TypeVar, cast

from kraft.net.broken_protocol import BrokenProtocol
from kraft.net.budget import Account, Budget
from kraft.net.connection import (
    SCRATCH_BYTES,
    Allocate,
    BytesLike,
    FrameReader,
    ProtocolError,
)
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, MalformedMessage, Message, decode_response, encode_request
from kraft.wire.decoding import Meter
from kraft.wire.header import request_header, response_body
from kraft.wire.software import API_VERSIONS_FIELDS
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.supervision import report_fault

_INT32: Final = struct.Struct(">i")
_NO_LINGER: Final = struct.pack("ii", 1, 0)
"""struct linger: on, for no time."""

MAX_RESPONSE_BYTES: Final = 2**31 - 1
"""Of a node of our own cluster."""
MAX_STRANGERS_RESPONSE_BYTES: Final = 101 * 1024 * 1024
"""Of whomever the command line or Spark is told to ask: more than the largest batch that brokers take by
default (socket.request.max.bytes)."""
DECODED_PER_BYTE: Final = 8
"""In memory, of the longest response. Empty structs take a hundred times what they are in a frame."""
TRUSTED_FRAME_BYTES: Final = 64 * 1024 * 1024
"""Up to here the buffer for an answer is made whole on the word of its length alone."""
API_VERSIONS_VERSION: Final = 3

FOREVER: Final = float("inf")

Answer = TypeVar("Answer")
OnLost = Callable[[bool], None]
"""Told that the connection has ended; True where the other end closed or lost it."""


@dataclass(frozen=True, slots=True)
class Address:
    host: str
    port: int

    def __str__(self) -> str:
        return f"{self.host}:{self.port}"


async def connected(
    loop: asyncio.AbstractEventLoop,
    protocol: Callable[[], asyncio.BaseProtocol],
    address: Address,
    tls: ssl.SSLContext | None = None,
) -> asyncio.Transport:
    """Raises `OSError`, also where the address is none, whatever Python makes of it: that of a broker is what
    it, or who claims to be it, has registered."""
    try:
        transport, _ = await loop.create_connection(protocol, address.host, address.port, ssl=tls)
    except OSError:
        raise
    except (ValueError, OverflowError) as error:
        raise OSError(errno.EINVAL, f"{str(address)!a:.300} is no address: {error}") from None
    return transport


class _PendingRequest(NamedTuple):
    """A request whose answer is not here yet."""

    correlation_id: int
    api_key: ApiKey
    version: int
    read: Callable[[memoryview], Any]
    due: float
    answer: asyncio.Future[Any]


_of_threads: Final = threading.local()


def _scratch_of_this_thread() -> memoryview:
    """What its connections receive into: nothing stays there beyond one call of their readers."""
    scratch: memoryview | None = getattr(_of_threads, "scratch", None)
    if scratch is None:
        scratch = _of_threads.scratch = memoryview(bytearray(SCRATCH_BYTES))
    return scratch


class UnsupportedVersion(Exception):
    """The other end and we have no version of that API in common."""


class PeerClient(asyncio.BufferedProtocol):
    """One connection, made by `PeerClient.connect`."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        client_id: str,
        on_lost: OnLost | None = None,
        allocate: Allocate = bytearray,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> None:
        self._loop = loop
        self._client_id = client_id
        self._on_lost = on_lost
        self._max_decoded_bytes = DECODED_PER_BYTE * max_response_bytes
        self._reader = FrameReader(
            max_response_bytes,
            _scratch_of_this_thread(),
            Account(Budget(2**63)),  # what arrives are responses that we have requested
            first_buffer_bytes=TRUSTED_FRAME_BYTES,
            allocate=allocate,
        )
        self._transport: asyncio.Transport | None = None
        self._waiting: deque[_PendingRequest] = deque()
        self._next_correlation_id = 0
        self._watch: asyncio.TimerHandle | None = None
        self._watched_until = FOREVER
        self._closed_by_us = False
        self.lost_by: Exception | None = None
        """What ended the connection, where that was an error."""
        self._versions: dict[int, tuple[int, int]] = {}

    @classmethod
    async def connect(
        cls,
        loop: asyncio.AbstractEventLoop,
        address: Address,
        client_id: str,
        *,
        timeout_s: float = 5.0,
        on_lost: OnLost | None = None,
        tls: ssl.SSLContext | None = None,
        allocate: Allocate = bytearray,
        max_response_bytes: int = MAX_RESPONSE_BYTES,
    ) -> PeerClient:
        """`allocate`: of the buffers that answers are received into. Raises `OSError` (`TimeoutError`,
        refusals and the errors of TLS are such)."""
        client = cls(loop, client_id, on_lost, allocate, max_response_bytes)
        async with asyncio.timeout(timeout_s):
            await connected(loop, lambda: client, address, tls)
        return client

    @property
    def transport(self) -> asyncio.Transport:
        """For a caller that writes frames of its own (after `connect`)."""
        assert self._transport is not None
        return self._transport

    @property
    def connected(self) -> bool:
        return self._transport is not None and not self._transport.is_closing()

    @property
    def is_waiting(self) -> bool:
        """Whether anybody waits for an answer. A request whose caller has gone counts no more: whether the
        network still has this connection, nobody would ask."""
        return any(not each.answer.done() for each in self._waiting)

    def close(self) -> None:
        """End the connection; whatever waits gets `ConnectionError`."""
        self._closed_by_us = True
        if self._transport is not None:
            self._transport.abort()

    # ---- requests

    async def request(
        self, api_key: ApiKey, version: int, fields: Fields, *, timeout_s: float = 30.0
    ) -> Message:
        """Raises `ConnectionError`, `TimeoutError` (the connection is closed then: the response may still
        come, and would be taken for another's), or `MalformedMessage`. Where it is cancelled, its time goes
        on all the same: what comes behind it waits for its response, too."""
        body = await self.exchange(api_key, version, (encode_request(api_key, version, fields),), timeout_s)
        return self._decoded(api_key, version, body)

    async def exchange(
        self, api_key: ApiKey, version: int, body: Sequence[BytesLike], timeout_s: float
    ) -> memoryview:
        """Send a body of the caller's making; the answer's body."""
        # Kept nowhere here: an error's traceback has this frame, and the future has the error.
        return await self.ask(api_key, version, body, _raw_body, timeout_s)

    def send(self, api_key: ApiKey, version: int, body: Sequence[BytesLike]) -> asyncio.Future[memoryview]:
        """Send now; a future of the answer's body. Raises `ConnectionError`."""
        return self.ask(api_key, version, body, _raw_body, FOREVER)

    def ask(
        self,
        api_key: ApiKey,
        version: int,
        body: Sequence[BytesLike],
        read: Callable[[memoryview], Answer],
        timeout_s: float,
    ) -> asyncio.Future[Answer]:
        """Send now; returns a future of what `read` makes of the response's body. It costs neither a task nor
        a timer: followers fetch by it. After `timeout_s` the connection ends."""
        correlation_id = self._write(api_key, version, body)
        answer: asyncio.Future[Answer] = self._loop.create_future()
        due = self._loop.time() + timeout_s
        self._waiting.append(_PendingRequest(correlation_id, api_key, version, read, due, answer))
        if due < self._watched_until:
            self._watch_until(due)
        return answer

    def ask_message(
        self, api_key: ApiKey, version: int, fields: Fields, timeout_s: float
    ) -> asyncio.Future[Message]:
        """As `ask`, with messages by their fields."""
        body = (encode_request(api_key, version, fields),)
        return self.ask(api_key, version, body, partial(self._decoded, api_key, version), timeout_s)

    async def negotiate(self, *, timeout_s: float = 10.0) -> None:
        """Learn which versions the other end answers. Raises UnsupportedVersion if it refuses."""
        answer = await self.request(
            ApiKey.API_VERSIONS, API_VERSIONS_VERSION, API_VERSIONS_FIELDS, timeout_s=timeout_s
        )
        if answer.error_code != ErrorCode.NONE:
            raise UnsupportedVersion(f"ApiVersions was answered with {ErrorCode(answer.error_code).name}")
        self._versions = {row.api_key: (row.min_version, row.max_version) for row in answer.api_keys}

    def answers(self, api_key: ApiKey) -> bool:
        """Whether the other end has that API (after `negotiate`)."""
        return api_key in self._versions

    def version_of(self, api_key: ApiKey, lowest: int, highest: int) -> int:
        """The newest version in that range that the other end answers too (after `negotiate`).
        Raises UnsupportedVersion if there is none."""
        theirs = self._versions.get(api_key)
        if theirs is not None:
            version = min(highest, theirs[1])
            if version >= max(lowest, theirs[0]):
                return version
        raise UnsupportedVersion(f"{api_key.name} is not answered in versions {lowest} to {highest}")

    def _write(self, api_key: ApiKey, version: int, body: Sequence[BytesLike]) -> int:
        if self._transport is None or self._transport.is_closing():
            raise ConnectionResetError("the connection is closed")
        correlation_id = self._next_correlation_id
        self._next_correlation_id = (correlation_id + 1) & 0x7FFFFFFF
        header = request_header(api_key, version, correlation_id, self._client_id)
        prefix = _INT32.pack(len(header) + sum(map(len, body))) + header
        self._transport.writelines([prefix, *body])
        return correlation_id

    def _watch_until(self, due: float) -> None:
        """One timer for all requests, armed for the earliest; nearly all have been answered by then."""
        if self._watch is not None:
            self._watch.cancel()
        self._watched_until = due
        self._watch = None if due == FOREVER else self._loop.call_at(due, self._look_for_overdue)

    def _look_for_overdue(self) -> None:
        due = min((each.due for each in self._waiting), default=FOREVER)
        if due <= self._loop.time():
            self._end_waiting(TimeoutError("no answer in time"))
            self.cut_off()
        else:
            self._watch_until(due)

    def cut_off(self) -> None:
        """Close, and have the kernel forget what the other end has not taken: a request that was given up
        arrives when the network is well again, behind what was sent in its place. A transaction's marker
        would end the next transaction."""
        if self._transport is not None and not self._transport.is_closing():
            connected = self._transport.get_extra_info("socket")
            if connected is not None:
                connected.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _NO_LINGER)
        self.close()

    # ---- asyncio.BufferedProtocol

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = cast(asyncio.Transport, transport)

    def connection_lost(self, exc: Exception | None) -> None:
        self.lost_by = exc
        self._reader.close()
        self._watch_until(FOREVER)
        self._end_waiting(
            exc if isinstance(exc, OSError) else ConnectionResetError("the connection has ended")
        )
        if self._on_lost is not None:
            self._on_lost(not self._closed_by_us)

    def get_buffer(self, sizehint: int) -> memoryview:
        return self._reader.get_buffer()

    def buffer_updated(self, nbytes: int) -> None:
        try:
            frames = self._reader.received(nbytes)
            while frames:
                for frame in frames:
                    self._take(frame)
                frames = self._reader.cut_on()
        except (ProtocolError, MalformedMessage, ValueError) as error:
            self._fail(error)
        except Exception as error:  # noqa: BLE001
            self._fail(error)
            report_fault(self._loop, "reading an answer", error)

    def eof_received(self) -> bool:
        return False

    def _decoded(self, api_key: ApiKey, version: int, body: memoryview) -> Message:
        return decode_response(api_key, version, body, meter=Meter(self._max_decoded_bytes))

    def _take(self, frame: memoryview) -> None:
        if not self._waiting:
            raise ProtocolError("an answer that nobody waits for")
        waiting = self._waiting[0]
        if len(frame) < _INT32.size or _INT32.unpack_from(frame, 0)[0] != waiting.correlation_id:
            raise ProtocolError("an answer to another request")
        if not waiting.answer.done():
            body = frame[response_body(waiting.api_key, waiting.version, frame) :]
            waiting.answer.set_result(waiting.read(body))
        self._waiting.popleft()

    def _fail(self, error: Exception) -> None:
        self._end_waiting(BrokenProtocol(f"the other end broke the protocol: {error}"))
        self.close()

    def _end_waiting(self, error: OSError) -> None:
        waiting, self._waiting = self._waiting, deque()
        for each in waiting:
            if not each.answer.done():
                each.answer.set_exception(error)
                each.answer.exception()  # mark it as retrieved: the caller may have been cancelled


def _raw_body(body: memoryview) -> memoryview:
    return body
