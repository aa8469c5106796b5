"""What a broker asks the controller in the name of its current registration: by its id and epoch.

isr_channel, directory_channel, producer_ids -> here -> peers/controller_channel -> the active controller
"""

from __future__ import annotations

from kraft.broker.lifecycle import BrokerLifecycle
from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode


class ControllerRequests:
    """The requests of one broker to the controller."""

    def __init__(
        self, broker_id: int, lifecycle: BrokerLifecycle, controller_channel: ControllerChannel
    ) -> None:
        self._broker_id = broker_id
        self._lifecycle = lifecycle
        self._controller_channel = controller_channel

    async def request(self, api_key: ApiKey, version: int, fields: Fields, refusal: str) -> Message:
        """The response to these fields, with ours added. Raises `BrokerError`: the response's own error with
        `refusal` as its message, or REQUEST_TIMED_OUT."""
        registration = {"broker_id": self._broker_id, "broker_epoch": self._lifecycle.broker_epoch}
        answer = await self._controller_channel.request(api_key, version, {**registration, **fields})
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(answer.error_code), refusal)
        return answer
