"""What a visitor writes to a partition, or reads of it: asked of its leader in the visitor's name.

    writes, messages -> Client.ask -> ClientEnvelope -> leader (kraft/api/client_envelope.py)

So the visitor's rights count at the leader too, and its quotas as those of any client. A Kafka client's
connection is muted while it must pause; here its next requests are refused until then.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from math import ceil
from typing import Any, Final

from kraft.api.client_envelope import VERSION
from kraft.api.context import BrokerContext
from kraft.api.envelope import ENVELOPE_VERSION, encode_address, encode_principal
from kraft.http.login import Visitor
from kraft.http.refused import Refused
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message, decode_response, encode_request
from kraft.wire.header import request_header

CLIENT_ID: Final = "kraft-console"
MS_PER_S: Final = 1000

Who = tuple[str, str]
"""A principal, and its host."""


@dataclass(slots=True)
class Pauses:
    """The pauses of visitors that are over a quota, on one node."""

    until: dict[Who, float] = field(default_factory=dict)
    """The end of each pause, by the loop's clock."""

    def check(self, who: Who, now: float) -> None:
        """Raises `Refused` for whoever must pause."""
        self.until = {each: until for each, until in self.until.items() if until > now}
        if who in self.until:
            wait_s = ceil(self.until[who] - now)
            raise Refused(429, f"{who[0]} is over its quota: again in {wait_s} s", retry_after_s=wait_s)


@dataclass(frozen=True, slots=True)
class Client:
    """A visitor, as leaders see it."""

    broker: BrokerContext
    visitor: Visitor
    pauses: Pauses

    @property
    def who(self) -> Who:
        return self.visitor.principal, self.visitor.host

    async def ask(
        self, leader: int, api_key: ApiKey, version: int, fields: Mapping[str, Any], timeout_s: float
    ) -> Message:
        """Raises `Refused` where the visitor must pause, OSError (a timeout is one) where no whole answer
        came: it may have been carried out all the same."""
        loop = self.broker.node.loop
        self.pauses.check(self.who, loop.time())
        header = request_header(api_key, version, 0, CLIENT_ID)
        envelope = {
            "request_data": header + encode_request(api_key, version, fields),
            "request_principal": encode_principal(self.visitor.principal),
            "client_host_address": encode_address(self.visitor.host),
        }
        body = encode_request(ApiKey.ENVELOPE, ENVELOPE_VERSION, envelope)
        received = await self.broker.console_channels.exchange(
            leader, ApiKey.CLIENT_ENVELOPE, VERSION, (body,), timeout_s
        )
        try:
            answer = decode_response(api_key, version, received)
        except MalformedMessage as error:
            raise ConnectionResetError(str(error)) from None
        if answer.throttle_time_ms > 0:
            self.pauses.until[self.who] = loop.time() + answer.throttle_time_ms / MS_PER_S
        return answer

    def check(self) -> None:
        """After an answer that a quota has kept back. Raises `Refused` where the visitor must pause."""
        self.pauses.check(self.who, self.broker.node.loop.time())
