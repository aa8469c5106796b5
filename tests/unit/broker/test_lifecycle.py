"""What a broker says of itself to the quorum."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kraft.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from tests.support.virtual_loop import run_virtually


def test_the_epoch_of_a_clean_stop_is_shown_at_the_registration():
    """Without it the quorum takes the broker to have lost records, and no longer elects it from the ELR."""
    asked: list[tuple[int, dict[str, Any]]] = []

    async def request(api_key: ApiKey, version: int, fields: dict[str, Any]) -> Message:
        asked.append((api_key, fields))
        return cast(Message, SimpleNamespace(error_code=0, broker_epoch=50))

    async def register() -> None:
        loop = asyncio.get_running_loop()
        controller_channel: Any = SimpleNamespace(request=request, voters=(), connected=lambda voter: False)
        identity = BrokerIdentity(1, "cluster", UUID(int=1), (), (), None, ())
        lifecycle = BrokerLifecycle(
            loop, controller_channel, identity, heartbeat_interval_s=1, session_timeout_s=9
        )
        lifecycle.start(lambda: 0, lambda: 42, lambda broker_epoch: None)
        await asyncio.sleep(1)
        await lifecycle.close()

    run_virtually(register())
    ((api_key, fields),) = asked
    assert (api_key, fields["previous_broker_epoch"]) == (ApiKey.BROKER_REGISTRATION, 42)
