"""Leaders as their followers reach them: the `LeaderEndpoint` port over a socket.

    fetch/fetcher -> SocketLeaderEndpoint.fetch -> Fetch v17 on one connection -> the leader's api/fetch
    fetch/fetcher <- records as slices of the frame they came in <------- its answer

The leader's address is looked up for every new connection, so a leader that restarts at another address is
found there. Any error of a connection reaches the caller as OSError or TimeoutError, and the next call makes
a new one.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from functools import partial
from typing import Final

from fetch.messages import FetchRequest, FetchResponse, LogBounds
from kraft.net.client import Address, PeerClient
from kraft.net.connection_security import PLAINTEXT, ConnectionSecurity, dial
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from kraft.wire.fast_fetch import FETCH_VERSION, read_fetch_response
from kraft.wire.fast_fetch_request import write_fetch_request
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP
from metadata_quorum.foundation.supervision import awaited

LIST_OFFSETS_VERSION: Final = 9

CONNECT_TIMEOUT_S: Final = 1.0

FindLeader = Callable[[], Address | None]
"""Where the leader is now; None where the metadata does not know it."""


_read_answer: Final = partial(read_fetch_response, FETCH_VERSION)


class SocketLeaderEndpoint:
    """A leader, as one fetcher of broker `replica_id` sees it."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        replica_id: int,
        find: FindLeader,
        *,
        client_id: str,
        timeout_s: float,
        on_lost: Callable[[], None],
        security: ConnectionSecurity = PLAINTEXT,
    ) -> None:
        """`timeout_s`: how long to wait for a response beyond the wait that the fetch itself allows the
        leader (replica.socket.timeout.ms). `on_lost` is called when the leader's end breaks a connection
        off."""
        self._loop = loop
        self._replica_id = replica_id
        self._find = find
        self._client_id = client_id
        self._timeout_s = timeout_s
        self._on_lost = on_lost
        self._security = security
        self._client: PeerClient | None = None
        self._connecting: asyncio.Task[PeerClient] | None = None
        self._closed = False

    def fetch(self, request: FetchRequest) -> Awaitable[FetchResponse]:
        client = self._client
        if client is not None and client.connected:
            # Sent before we return: a second fetch may overtake no first one.
            return self._ask(client, request)
        return self._connect_and_fetch(request)

    def log_bounds(self, topic: str, partition: int, current_leader_epoch: int) -> Awaitable[LogBounds]:
        client = self._client
        if client is not None and client.connected:
            return self._ask_bounds(client, topic, partition, current_leader_epoch)
        return self._connect_and_ask_bounds(topic, partition, current_leader_epoch)

    def close(self) -> None:
        self._closed = True
        if self._connecting is not None:
            self._connecting.cancel()
        if self._client is not None:
            self._client.close()

    async def _connect_and_fetch(self, request: FetchRequest) -> FetchResponse:
        return await self._ask(await self._connected(), request)

    def _ask(self, client: PeerClient, request: FetchRequest) -> asyncio.Future[FetchResponse]:
        body = (write_fetch_request(FETCH_VERSION, request),)
        patience = self._timeout_s + request.max_wait_ms / 1000
        return client.ask(ApiKey.FETCH, FETCH_VERSION, body, _read_answer, patience)

    async def _connect_and_ask_bounds(self, topic: str, partition: int, epoch: int) -> LogBounds:
        return await self._ask_bounds(await self._connected(), topic, partition, epoch)

    def _ask_bounds(self, client: PeerClient, topic: str, partition: int, epoch: int) -> Awaitable[LogBounds]:
        """Both are asked before either is answered: an answer may wait behind that of a fetch."""
        start = self._ask_offset(client, topic, partition, epoch, EARLIEST_TIMESTAMP)
        end = self._ask_offset(client, topic, partition, epoch, LATEST_TIMESTAMP)
        return _bounds(start, end)

    def _ask_offset(
        self, client: PeerClient, topic: str, partition: int, epoch: int, timestamp: int
    ) -> asyncio.Future[Message]:
        wanted = {"partition_index": partition, "current_leader_epoch": epoch, "timestamp": timestamp}
        fields = {
            "replica_id": self._replica_id,
            "isolation_level": 0,
            "topics": [{"name": topic, "partitions": [wanted]}],
        }
        return client.ask_message(ApiKey.LIST_OFFSETS, LIST_OFFSETS_VERSION, fields, self._timeout_s)

    async def _connected(self) -> PeerClient:
        if self._client is not None and self._client.connected:
            return self._client
        if self._closed:
            raise ConnectionResetError("this endpoint is closed")
        if self._connecting is None:
            self._connecting = awaited(self._loop, self._connect(), self._client_id)
        # Shielded: of two that wait for the connection, one may be cancelled.
        return await asyncio.shield(self._connecting)

    def _lost(self, broken: bool) -> None:
        if broken:
            self._on_lost()

    async def _connect(self) -> PeerClient:
        try:
            address = self._find()
            if address is None:
                raise ConnectionRefusedError("the leader's address is not known yet")
            self._client = await dial(
                self._loop,
                address,
                self._client_id,
                self._security,
                timeout_s=CONNECT_TIMEOUT_S,
                on_lost=self._lost,
            )
            return self._client
        finally:
            self._connecting = None


async def _bounds(start: asyncio.Future[Message], end: asyncio.Future[Message]) -> LogBounds:
    return LogBounds(_offset_in(await start), _offset_in(await end))


def _offset_in(answer: Message) -> int:
    """The offset of the one partition that was asked for. Raises BrokerError."""
    try:
        found = answer.topics[0].partitions[0]
    except IndexError:
        raise BrokerError(ErrorCode.UNKNOWN_SERVER_ERROR, "an answer without the partition") from None
    if found.error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(found.error_code))
    return int(found.offset)
