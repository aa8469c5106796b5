"""Channels from a broker to other nodes, for requests other than followers' fetches.

    txn_markers       -> BrokerChannels.ask -> one connection per broker, requests side by side
    txn_verification  -> BrokerChannels.ask -> others
    http, metrics     -> BrokerChannels.ask -> others
    controller_channel, envelopes -> BrokerChannels.ask -> others, to controllers

Answers come in the order of the requests: what may wait long has channels of its own, and holds up nobody.

A connection is made when it is needed and its address is looked up each time, so a broker that restarts at
another address is found there. It is made anew where nothing was asked for a while: a firewall may have
forgotten the old one, and says so to nobody.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Final

from kraft.net.client import Address, PeerClient, UnsupportedVersion
from kraft.net.connection import BytesLike
from kraft.net.connection_security import PLAINTEXT, ConnectionSecurity, dial
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, MalformedMessage, Message
from metadata_quorum.foundation.supervision import awaited

CONNECT_TIMEOUT_S: Final = 1.0
IDLE_S: Final = 5.0
"""So long after its last answer a connection is used again. Where the network has dropped it meanwhile, a
request would wait for its whole timeout; what drops idle connections does so after 30 s at the soonest."""

FindBroker = Callable[[int], Address | None]
"""Where a broker is now; None where the metadata does not know it."""


@dataclass(slots=True)
class _Link:
    client: PeerClient
    heard_at: float
    """When it was made, or the last answer came, in seconds of the loop's time."""


class BrokerChannels:
    """See the module."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        find: FindBroker,
        client_id: str,
        security: ConnectionSecurity = PLAINTEXT,
    ) -> None:
        self._loop = loop
        self._find = find
        self._client_id = client_id
        self._security = security
        self._links: dict[int, _Link] = {}
        self._connecting: dict[int, asyncio.Task[_Link]] = {}

    async def ask(
        self, broker_id: int, api_key: ApiKey, version: int, fields: Fields, timeout_s: float
    ) -> Message:
        """One request, sent once. Raises OSError (a timeout is one) where no whole answer came: it may have
        been carried out all the same."""
        link = await self._connected(broker_id)
        try:
            answer = await link.client.request(api_key, version, fields, timeout_s=timeout_s)
        except MalformedMessage as error:
            link.client.close()
            raise ConnectionResetError(str(error)) from None
        link.heard_at = self._loop.time()
        return answer

    async def version_of(
        self, broker_id: int, api_key: ApiKey, versions: tuple[int, int], timeout_s: float
    ) -> int:
        """The newest one in that range that the broker answers, which it is asked once per connection. Raises
        OSError."""
        client = (await self._connected(broker_id)).client
        try:
            if not client.answers(api_key):
                await client.negotiate(timeout_s=timeout_s)
            return client.version_of(api_key, *versions)
        except (UnsupportedVersion, MalformedMessage) as error:
            client.close()
            raise ConnectionAbortedError(str(error)) from None

    async def exchange(
        self, broker_id: int, api_key: ApiKey, version: int, body: Sequence[BytesLike], timeout_s: float
    ) -> memoryview:
        """As `ask`, with bodies of the caller's making."""
        link = await self._connected(broker_id)
        answer = await link.client.exchange(api_key, version, body, timeout_s)
        link.heard_at = self._loop.time()
        return answer

    def disconnect(self, broker_id: int) -> None:
        """That node is gone: what waits for its answers gets an OSError now."""
        link = self._links.pop(broker_id, None)
        if link is not None:
            link.client.close()

    def close(self) -> None:
        for connecting in self._connecting.values():
            connecting.cancel()
        for link in self._links.values():
            link.client.close()

    async def _connected(self, broker_id: int) -> _Link:
        link = self._links.get(broker_id)
        if link is not None and link.client.connected:
            if self._loop.time() - link.heard_at <= IDLE_S or link.client.is_waiting:
                return link
            del self._links[broker_id]
            link.client.cut_off()  # what was given up there shall not come behind what is sent now
        connecting = self._connecting.get(broker_id)
        if connecting is None:
            connecting = awaited(self._loop, self._connect(broker_id), f"link-to-{broker_id}")
            self._connecting[broker_id] = connecting
        # Shielded: of two that wait for the connection, one may be cancelled.
        return await asyncio.shield(connecting)

    async def _connect(self, broker_id: int) -> _Link:
        try:
            address = self._find(broker_id)
            if address is None:
                raise ConnectionRefusedError(f"the address of broker {broker_id} is not known")
            client = await dial(
                self._loop, address, self._client_id, self._security, timeout_s=CONNECT_TIMEOUT_S
            )
            link = self._links[broker_id] = _Link(client, self._loop.time())
            return link
        finally:
            del self._connecting[broker_id]
