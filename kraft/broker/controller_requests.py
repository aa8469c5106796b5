"""What a broker asks the controller in the name of its current registration: by its id and epoch.

isr_channel, directory_channel, producer_ids -> here -> peers/controller_channel -> the active controller
"""

from __future__ import annotations

from typing import Final

from kraft.broker.lifecycle import BrokerLifecycle
from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message, encode_request
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

HEADER_BYTES: Final = 256
"""What is sent besides the request, at most."""
NEVER_TOO_LONG: Final = 1024 * 1024
"""More than any request from here has."""


class ControllerRequests:
    """The requests of one broker to the controller."""

    def __init__(
        self,
        broker_id: int,
        lifecycle: BrokerLifecycle,
        controller_channel: ControllerChannel,
        max_bytes: int = NEVER_TOO_LONG,
    ) -> None:
        """`max_bytes`: of a request that the controllers take (`socket.request.max.bytes`; as ours)."""
        self._max_bytes = max_bytes
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._controller_channel = controller_channel

    async def request(self, api_key: ApiKey, version: int, fields: Fields, refusal: str) -> Message:
        """The response to these fields, with ours added. Raises `BrokerError`: the response's own error with
        `refusal` as its message, REQUEST_TIMED_OUT, or POLICY_VIOLATION for what is too long to be sent."""
        registration = {"broker_id": self._broker_id, "broker_epoch": self._lifecycle.broker_epoch}
        whole = {**registration, **fields}
        if (
            self._max_bytes < NEVER_TOO_LONG
            and len(encode_request(api_key, version, whole)) + HEADER_BYTES > self._max_bytes
        ):
            # The controller would end the connection, on which all that this node asks of it waits.
            raise BrokerError(ErrorCode.POLICY_VIOLATION, f"more than {self._max_bytes} bytes")
        answer = await self._controller_channel.request(api_key, version, whole)
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(answer.error_code), refusal)
        return answer
