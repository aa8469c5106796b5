"""When a controller tells the active one what it is, and how often."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.node.controller_registrar import ControllerRegistrar
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import METADATA_VERSION
from metadata_quorum.foundation.model import ControllerRegistration, Endpoint
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from tests.support.virtual_loop import run_virtually

OURS, ANOTHER = UUID(int=7), UUID(int=8)


class Quorum:
    """Of the registrar's node, 2, and of voter 1; what it answers, and when it was asked."""

    def __init__(self) -> None:
        self.loop = asyncio.get_running_loop()
        self.leader = 1
        self.is_connected = True
        self.has_the_api = True
        self.answer: ErrorCode | Exception = ErrorCode.NONE
        self.asked_at: list[float] = []
        self.fields: dict[str, Any] = {}
        self.image = MetadataImage(epoch=1, features={METADATA_VERSION: 27})
        channel: Any = SimpleNamespace(
            connected=lambda voter: voter == 1 and self.is_connected,
            answers=lambda voter, api_key: self.has_the_api,
            ask=self._ask,
        )
        endpoints = [Endpoint("CONTROLLER", "n2", 9093)]
        self.registrar = ControllerRegistrar(
            self.loop, 2, OURS, endpoints, channel, lambda: self.leader, timeout_s=2.0
        )
        self.began = self.loop.time()

    async def _ask(
        self, voter: int, api_key: ApiKey, version: int, fields: dict[str, Any], timeout_s: float
    ) -> Any:
        self.asked_at.append(round(self.loop.time() - self.began, 3))
        self.fields = fields
        if isinstance(self.answer, Exception):
            raise self.answer
        return SimpleNamespace(error_code=self.answer, error_message=None)

    def commit(self, **changed: Any) -> None:
        before, self.image = self.image, replace(self.image, **changed)
        self.registrar.take(MetadataDelta.between(before, self.image), self.image)

    def registered(self, incarnation_id: UUID) -> None:
        self.commit(controllers={2: ControllerRegistration(2, incarnation_id)})


def registering(test: Callable[[Quorum], Awaitable[None]]) -> Callable[[], None]:
    async def run() -> None:
        quorum = Quorum()
        quorum.registrar.start()
        try:
            await test(quorum)
        finally:
            await quorum.registrar.close()

    def on_a_virtual_loop() -> None:
        run_virtually(run())

    on_a_virtual_loop.__name__ = test.__name__
    return on_a_virtual_loop


@registering
async def test_once_for_a_process(quorum: Quorum) -> None:
    await asyncio.sleep(1)
    assert quorum.asked_at == [], "before there is any metadata"
    quorum.registered(ANOTHER)
    await asyncio.sleep(1)
    assert quorum.asked_at == [1.0]
    assert (quorum.fields["controller_id"], quorum.fields["incarnation_id"]) == (2, OURS)
    quorum.registered(OURS)
    quorum.commit(epoch=2)
    await asyncio.sleep(100)
    assert quorum.asked_at == [1.0]


@registering
async def test_not_before_the_metadata_version_has_such_a_record(quorum: Quorum) -> None:
    quorum.commit(features={METADATA_VERSION: 14}, epoch=2)
    await asyncio.sleep(1)
    assert quorum.asked_at == []
    quorum.commit(features={METADATA_VERSION: 15})
    await asyncio.sleep(1)
    assert quorum.asked_at == [1.0]


@registering
async def test_who_takes_its_place_is_replaced_at_a_pace(quorum: Quorum) -> None:
    quorum.commit(epoch=2)
    await asyncio.sleep(1)
    for _ in range(20):
        quorum.registered(OURS)
        quorum.registered(ANOTHER)
        await asyncio.sleep(0.01)
    quorum.registered(OURS)
    await asyncio.sleep(10)
    assert quorum.asked_at[0] == 0.0
    assert 2 <= len(quorum.asked_at) <= 4


@registering
async def test_nothing_is_sent_and_no_pause_grows_while_there_is_nobody_to_ask(quorum: Quorum) -> None:
    quorum.leader = -1
    quorum.commit(epoch=2)
    await asyncio.sleep(3600)
    quorum.leader, quorum.is_connected = 1, False
    await asyncio.sleep(3600)
    assert quorum.asked_at == []
    quorum.is_connected = True
    await asyncio.sleep(0.2)
    assert len(quorum.asked_at) == 1


@pytest.mark.parametrize(
    "answer", [ErrorCode.UNKNOWN_SERVER_ERROR, ConnectionResetError(), BrokerError(ErrorCode.NOT_CONTROLLER)]
)
def test_a_leader_that_refuses_is_asked_ever_more_rarely_and_the_next_one_at_once(
    answer: ErrorCode | Exception,
) -> None:
    @registering
    async def ask(quorum: Quorum) -> None:
        quorum.answer = answer
        quorum.commit(epoch=2)
        await asyncio.sleep(1000)
        assert quorum.asked_at[:4] == [0.0, 0.1, 0.3, 0.7]
        assert 100 <= len(quorum.asked_at) <= 110
        quorum.answer = ErrorCode.NONE
        quorum.commit(epoch=3)
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert quorum.asked_at[-1] == 1000.0

    ask()


@registering
async def test_an_older_leader_is_not_asked(quorum: Quorum) -> None:
    """It would hang up, and take the broker of this node for dead."""
    quorum.has_the_api = False
    quorum.commit(epoch=2)
    await asyncio.sleep(100)
    assert quorum.asked_at == []
    quorum.has_the_api = True
    quorum.commit(epoch=3)
    await asyncio.sleep(1)
    assert quorum.asked_at == [100.0]
