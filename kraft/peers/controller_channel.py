"""A node's channel to the quorum: a connection to every voter, and requests to the active controller.

    broker/lifecycle -> heartbeat to every voter ------> the active one answers, the others note the link
    IsrChannel, … -> request --------------------------> the voter that last answered as the active one
    api/forwarding -> request, in an envelope ---------> the same, on connections apart
    broker/metadata_follower -> learn_active

Every broker keeps a connection to every voter, also to those that are not active: when the
controller changes, the new one already has the connected brokers and those that have failed
(a killed process closes its sockets), instead of waiting for a whole session timeout.

Answers come in the order of the requests, and a client's request may take many seconds: a heartbeat that
waits behind it comes too late, and ISR changes hold up producers. So what clients want has connections of
its own: one for long envelopes, which nobody else's request waits for, one for the others, one for topics
that are created on demand, a hundred at once. They are made when they are needed, again where they were idle
(no heartbeats show that the network still has them), and end with the first one, so that what waits for a
controller that is gone is sent to the next.

Controllers of Apache Kafka note no links, and to one that is not active any request is an ERROR in its log.
Those get requests only while they are known to be active, from the metadata that they serve.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Final

from kraft.net.client import Address, OnLost, PeerClient, UnsupportedVersion
from kraft.net.connection_security import PLAINTEXT, ConnectionSecurity, dial
from kraft.net.reconnect_backoff import ReconnectBackoff
from kraft.peers.broker_channels import BrokerChannels
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, MalformedMessage, Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.supervision import restarted

log = logging.getLogger(__name__)

CONNECT_TIMEOUT_S: Final = 1.0
UNREACHED_S: Final = 5.0
"""A controller that starts is reached before that."""

LONG_BYTES: Final = 2 * 1024
"""A client's request of more bytes may have thousands of items."""

OnConnected = Callable[[int], None]


class Outage:
    """A controller that is not reached: said once, where it lasts. Its address may be a wrong one."""

    def __init__(self) -> None:
        self._since: float | None = None
        self._is_told = False

    def failed(self, address: Address, error: OSError, now: float) -> None:
        """An attempt to connect, in seconds of the loop's time."""
        if self._since is None:
            self._since = now
        if not self._is_told and now - self._since >= UNREACHED_S:
            self._is_told = True
            why = error.strerror or str(error) or "it does not answer"
            log.warning("the controller at %s is not reached: %s", address, why)

    def over(self) -> None:
        """It is reached."""
        self._since, self._is_told = None, False


def _is_of_no_controller(answer: Message) -> bool:
    """CreateTopics has no error of its own: who is not active refuses each topic. (Other such answers come in
    envelopes, which have one.)"""
    answers = [answer] if hasattr(answer, "error_code") else answer.topics
    return any(each.error_code == ErrorCode.NOT_CONTROLLER for each in answers)


class ControllerChannel:
    """Connections to the voters, and requests to the active controller."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        voters: Mapping[int, Address],
        random: random.Random,
        *,
        client_id: str,
        request_timeout_s: float,
        attempt_timeout_s: float,
        retry_backoff_s: float,
        security: ConnectionSecurity = PLAINTEXT,
    ) -> None:
        """`attempt_timeout_s` is how long one controller may take to answer a request of our own (it may be
        paused, and another one active); a client's request in an envelope has all of `request_timeout_s`."""
        self._loop = loop
        self._voters = dict(voters)
        self.discovers: Final = any(voter < 0 for voter in voters)
        """Bootstrap servers are all that is configured: which voters there are is learned."""
        self._random = random
        self._client_id = client_id
        self._request_timeout_s = request_timeout_s
        self._attempt_timeout_s = attempt_timeout_s
        self._retry_backoff_s = retry_backoff_s
        self._security = security
        self._clients: dict[int, PeerClient] = {}
        self._for_clients = self._for_short, self._for_long, self._on_demand = tuple(
            BrokerChannels(loop, self._voters.get, client_id, security) for _ in range(3)
        )
        self._of_kafka: set[int] = set()
        """Voters that are Apache Kafka's."""
        self._tasks: list[asyncio.Task[None]] = []
        self.active: int = -1
        """The voter that last answered as the active controller; -1 where none is known."""
        self.on_connected: OnConnected | None = None
        """Called at every new connection, and with every new active controller: the broker introduces itself
        by a heartbeat at once."""

    @property
    def voters(self) -> Sequence[int]:
        return tuple(self._voters)

    def start(self) -> None:
        for voter in self._voters:
            self._start_link(voter)

    def _start_link(self, voter: int) -> None:
        work = partial(self._keep_connected, voter)
        self._tasks.append(restarted(self._loop, work, f"controller-link-{voter}"))

    def learn_address(self, voter: int, address: Address) -> None:
        """Take a voter's address from another one; for nodes that know only bootstrap servers."""
        if not self.discovers:
            return
        known = self._voters.get(voter)
        self._voters[voter] = address
        if known is None:
            self._start_link(voter)
        elif known != address and voter in self._clients:
            self._clients[voter].close()

    async def close(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        for client in self._clients.values():
            client.close()
        for channels in self._for_clients:
            channels.close()

    def connected(self, voter: int) -> bool:
        client = self._clients.get(voter)
        return client is not None and client.connected

    def answers(self, voter: int, api_key: ApiKey) -> bool:
        """Whether it is connected, and its software has that API."""
        client = self._clients.get(voter)
        return client is not None and client.connected and client.answers(api_key)

    def may_ask(self, voter: int) -> bool:
        """Whether the voter takes it well where it is not active. A bootstrap server (its id is below 0) is
        asked for metadata alone."""
        return self.connected(voter) and (
            voter == self.active or (voter >= 0 and voter not in self._of_kafka)
        )

    def learn_active(self, voter: int) -> None:
        """Ask that voter from now on: it is the active controller, according to the metadata log."""
        if voter in self._voters and voter != self.active:
            self.active = voter
            if self.on_connected is not None:
                self.on_connected(voter)

    def forget_active(self, voter: int) -> None:
        """That controller leads no more, as the metadata log tells it: it is asked nothing until another
        one is known to be active."""
        if self.active == voter:
            self.active = -1

    async def ask(
        self, voter: int, api_key: ApiKey, version: int, fields: Fields, timeout_s: float
    ) -> Message:
        """Ask one voter once. Raises OSError, TimeoutError, BrokerError (NOT_CONTROLLER)."""
        client = self._clients.get(voter)
        if client is None or not client.connected:
            raise ConnectionRefusedError(f"no connection to controller {voter}")
        try:
            channels = self._apart(api_key, fields)
            if channels is None:
                answer = await client.request(api_key, version, fields, timeout_s=timeout_s)
            else:
                answer = await channels.ask(voter, api_key, version, fields, timeout_s)
        except MalformedMessage as error:
            client.close()
            raise ConnectionResetError(str(error)) from None
        if _is_of_no_controller(answer):
            if self.active == voter:
                self.active = -1
            raise BrokerError(ErrorCode.NOT_CONTROLLER, f"{voter} is not the active controller")
        self.active = voter
        return answer

    def _apart(self, api_key: ApiKey, fields: Fields) -> BrokerChannels | None:
        """By which connections a client's wish is asked for; None where it is the broker's own."""
        if api_key == ApiKey.CREATE_TOPICS:
            return self._on_demand
        if api_key == ApiKey.ENVELOPE:
            assert isinstance(fields, Mapping)  # as forwarding.py seals them
            return self._for_long if len(fields["request_data"]) > LONG_BYTES else self._for_short
        return None

    async def connect_apart(self, voter: int, client_id: str, timeout_s: float) -> PeerClient:
        """A connection to a voter for its caller alone. Raises `OSError`."""
        return await dial(self._loop, self._voters[voter], client_id, self._security, timeout_s=timeout_s)

    async def request(self, api_key: ApiKey, version: int, fields: Fields) -> Message:
        """Send a request to the active controller, and look for the new one where it has changed. A request
        whose connection broke may have been processed already, and is sent again all the same, as in Apache
        Kafka: the quorum checks brokers' commands against epochs; a client's may be told the second time that
        what it wants is there. Raises BrokerError(REQUEST_TIMED_OUT)."""
        deadline = self._loop.time() + self._request_timeout_s
        while (left := deadline - self._loop.time()) > 0:
            patience = left if api_key == ApiKey.ENVELOPE else min(left, self._attempt_timeout_s)
            for voter in self._candidates():
                try:
                    return await self.ask(voter, api_key, version, fields, patience)
                except OSError as error:
                    is_silent = isinstance(error, TimeoutError) and self._apart(api_key, fields) is None
                    if self.active == voter and (is_silent or not self.connected(voter)):
                        self.active = -1  # else only a connection for clients has ended
                except BrokerError as error:
                    if error.code != ErrorCode.NOT_CONTROLLER:
                        raise
            await asyncio.sleep(self._retry_backoff_s)
        raise BrokerError(ErrorCode.REQUEST_TIMED_OUT, "no controller answered in time")

    def _candidates(self) -> list[int]:
        """The voter believed to be active, else all that may be asked, in one order; only those that are
        connected."""
        if self.active >= 0 and self.connected(self.active):
            return [self.active]
        return [voter for voter in self._voters if self.may_ask(voter)]

    async def _keep_connected(self, voter: int) -> None:
        redial, outage = ReconnectBackoff(self._random), Outage()
        while True:
            lost = asyncio.Event()
            began = self._loop.time()
            try:
                client = await self._dial(voter, on_lost=lambda _, lost=lost: lost.set())  # type: ignore[misc]
            except OSError as error:
                held_s = 0.0
                outage.failed(self._voters[voter], error, self._loop.time())
            else:
                outage.over()
                try:
                    self._clients[voter] = client
                    if self.on_connected is not None:
                        self.on_connected(voter)
                    await lost.wait()
                finally:
                    client.close()
                    for channels in self._for_clients:
                        channels.disconnect(voter)
                    if self.active == voter:
                        self.active = -1
                held_s = self._loop.time() - began
            await asyncio.sleep(redial.pause_s(held_s))

    async def _dial(self, voter: int, on_lost: OnLost) -> PeerClient:
        """A connection, and whose it is. Raises `OSError`."""
        client = await dial(
            self._loop,
            self._voters[voter],
            self._client_id,
            self._security,
            timeout_s=CONNECT_TIMEOUT_S,
            on_lost=on_lost,
        )
        try:
            await client.negotiate(timeout_s=CONNECT_TIMEOUT_S)
        except (UnsupportedVersion, MalformedMessage) as error:
            client.close()
            raise ConnectionAbortedError(str(error)) from None
        except BaseException:
            client.close()
            raise
        if client.answers(ApiKey.VOTE):  # Kafka's own Raft
            self._of_kafka.add(voter)
        else:
            self._of_kafka.discard(voter)
        return client
