"""What a broker says of itself to the quorum."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

from kraft.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.virtual_loop import run_virtually


def test_the_epoch_of_a_clean_stop_is_shown_at_the_registration():
    """Without it the quorum takes the broker to have lost records, and no longer elects it from the ELR. So
    it should where a log directory fails while the session of an earlier process is waited for."""
    asked: list[tuple[int, int]] = []
    previous_epochs = iter((42, -1))
    refusals = iter((ErrorCode.DUPLICATE_BROKER_REGISTRATION, ErrorCode.NONE))

    async def request(api_key: ApiKey, version: int, fields: dict[str, Any]) -> Message:
        asked.append((api_key, fields["previous_broker_epoch"]))
        return cast(Message, SimpleNamespace(error_code=int(next(refusals)), broker_epoch=50))

    async def register() -> None:
        loop = asyncio.get_running_loop()
        controller_channel: Any = SimpleNamespace(request=request, voters=(), connected=lambda voter: False)
        identity = BrokerIdentity(1, "cluster", UUID(int=1), (), (), None, ())
        lifecycle = BrokerLifecycle(
            loop, controller_channel, identity, heartbeat_interval_s=1, session_timeout_s=9
        )
        lifecycle.start(lambda: 0, lambda: next(previous_epochs), lambda broker_epoch: None)
        await asyncio.sleep(1)
        await lifecycle.close()

    run_virtually(register())
    assert asked == [(ApiKey.BROKER_REGISTRATION, 42), (ApiKey.BROKER_REGISTRATION, -1)]


def test_an_answer_to_a_heartbeat_of_an_earlier_epoch_says_nothing_of_this_one():
    """Several voters are asked. What one refuses, the broker has mended by the time that another does; and it
    is not unfenced because it was."""
    answers: list[asyncio.Future[Message]] = []
    epochs = iter((50, 60, 70))

    async def request(api_key: ApiKey, version: int, fields: dict[str, Any]) -> Message:
        return cast(Message, SimpleNamespace(error_code=0, broker_epoch=next(epochs)))

    async def ask(
        voter: int, api_key: ApiKey, version: int, fields: dict[str, Any], timeout_s: float
    ) -> Message:
        answers.append(asyncio.get_running_loop().create_future())
        return await answers[-1]

    def heartbeat(code: ErrorCode = ErrorCode.NONE) -> Message:
        fields = {"error_code": int(code), "is_fenced": False, "is_caught_up": True}
        return cast(Message, SimpleNamespace(should_shut_down=False, **fields))

    async def beat() -> None:
        controller_channel: Any = SimpleNamespace(
            request=request, ask=ask, voters=(1, 2, 3), may_ask=lambda voter: True
        )
        identity = BrokerIdentity(1, "cluster", UUID(int=1), (), (), None, ())
        lifecycle = BrokerLifecycle(
            asyncio.get_running_loop(),
            controller_channel,
            identity,
            heartbeat_interval_s=1,
            session_timeout_s=9,
        )
        lifecycle.start(lambda: 0, lambda: 42, lambda broker_epoch: None)
        await asyncio.sleep(0.5)
        first, late, unfenced = answers
        first.set_result(heartbeat(ErrorCode.STALE_BROKER_EPOCH))
        await asyncio.sleep(0.1)
        assert lifecycle.broker_epoch == 60
        late.set_result(heartbeat(ErrorCode.STALE_BROKER_EPOCH))
        unfenced.set_result(heartbeat())
        await asyncio.sleep(0.1)
        assert lifecycle.broker_epoch == 60
        assert not lifecycle.running.is_set()
        await lifecycle.close()

    run_virtually(beat())


def test_while_it_registers_again_a_broker_fetches_by_its_last_epoch():
    """By none a leader would put it into ISRs, though another process may have its number by now."""
    fetched_by: list[tuple[int, int]] = []

    async def beat() -> None:
        async def request(api_key: ApiKey, version: int, fields: dict[str, Any]) -> Message:
            fetched_by.append((lifecycle.broker_epoch, lifecycle.fetch_epoch))
            return cast(Message, SimpleNamespace(error_code=0, broker_epoch=50 + len(fetched_by)))

        async def ask(*_: object) -> Message:
            return cast(Message, SimpleNamespace(error_code=int(ErrorCode.STALE_BROKER_EPOCH)))

        controller_channel: Any = SimpleNamespace(
            request=request, ask=ask, voters=(1,), may_ask=lambda voter: len(fetched_by) < 2
        )
        identity = BrokerIdentity(1, "cluster", UUID(int=1), (), (), None, ())
        lifecycle = BrokerLifecycle(
            asyncio.get_running_loop(),
            controller_channel,
            identity,
            heartbeat_interval_s=1,
            session_timeout_s=9,
        )
        lifecycle.start(lambda: 0, lambda: 42, lambda broker_epoch: None)
        await asyncio.sleep(3)
        assert lifecycle.fetch_epoch == lifecycle.broker_epoch == 52
        await lifecycle.close()

    run_virtually(beat())
    assert fetched_by == [(-1, -1), (-1, 51)]
