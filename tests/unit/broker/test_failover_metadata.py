"""What clients learn of a broker in the moments around its death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from data_plane.coordinator.topics import TRANSACTIONS_TOPIC
from kraft.broker.failover_metadata import (
    AFTER_FENCE_S,
    REPEATED_FAILURE_S,
    SUSPECT_LIMIT_S,
    FailoverMetadata,
)
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord, TopicRecord
from tests.support.virtual_loop import run_virtually

SESSION_TIMEOUT_S = 9.0


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtually(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def _failover_metadata() -> tuple[FailoverMetadata, MetadataImage]:
    """Two brokers, both unfenced."""
    failover = FailoverMetadata(asyncio.get_running_loop(), SESSION_TIMEOUT_S)
    delta = MetadataDelta(EMPTY_IMAGE)
    for broker_id in (1, 2):
        delta.replay(
            RegisterBrokerRecord(
                broker_id=broker_id, incarnation_id=UUID(int=broker_id), broker_epoch=broker_id, fenced=False
            )
        )
    image = delta.apply()
    failover.take(delta, image)
    return failover, image


def _fenced(image: MetadataImage, broker_id: int) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    delta.replay(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=1))
    return delta, delta.apply()


@virtual
async def test_answers_wait_until_a_broker_is_heard_again() -> None:
    failover, _ = _failover_metadata()
    failover.broker_lost(1)
    failover.broker_lost(7)  # unknown, or fenced long ago: nobody is sent there anyway
    assert set(failover.suspected) == {1}
    answer = asyncio.ensure_future(failover.settled())
    await asyncio.sleep(SUSPECT_LIMIT_S / 2)
    assert not answer.done()
    failover.broker_back(1)
    await answer
    assert not failover.suspected
    assert not failover.still_listed


@virtual
async def test_a_doubt_that_nobody_settles_ends() -> None:
    failover, image = _failover_metadata()
    failover.broker_lost(1)
    began = asyncio.get_running_loop().time()
    await failover.settled()
    assert asyncio.get_running_loop().time() - began < SUSPECT_LIMIT_S * 1.1
    assert failover.client_image(image) is image


@virtual
async def test_answers_wait_for_the_fence_and_list_the_dead_for_a_moment() -> None:
    failover, before = _failover_metadata()
    failover.broker_lost(2)
    answer = asyncio.ensure_future(failover.settled())
    await asyncio.sleep(SUSPECT_LIMIT_S / 2)
    delta, after = _fenced(before, 2)
    failover.take(delta, after)
    await answer
    assert failover.client_image(after) is after
    assert set(failover.still_listed) == {2}
    await asyncio.sleep(AFTER_FENCE_S * 1.1)
    assert not failover.still_listed


@pytest.mark.parametrize("noticed", [True, False])
def test_after_another_death_there_is_no_leader_for_a_moment(noticed: bool) -> None:
    async def test() -> None:
        failover, before = _failover_metadata()
        delta, after = _fenced(before, 2)
        failover.take(delta, after)
        await asyncio.sleep(REPEATED_FAILURE_S / 2)
        delta = MetadataDelta(after)
        delta.replay(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=-1))
        back = delta.apply()
        failover.take(delta, back)
        if noticed:
            failover.broker_lost(2)
            await failover.settled()
            assert set(failover.suspected) == {2}
        delta, after = _fenced(back, 2)
        failover.take(delta, after)
        assert set(failover.suspected) == {2}
        assert failover.client_image(after) is back
        assert not failover.still_listed
        await asyncio.sleep(AFTER_FENCE_S * 1.1)
        assert not failover.suspected
        assert failover.client_image(after) is after

    run_virtually(test())


@virtual
async def test_where_there_are_transactions_the_dead_are_listed_as_long_as_kafka_would_list_them() -> None:
    failover, image = _failover_metadata()
    delta = MetadataDelta(image)
    delta.replay(TopicRecord(name=TRANSACTIONS_TOPIC, topic_id=UUID(int=7)))
    image = delta.apply()
    for death in range(2):  # the second one comes soon after the first, and is listed no less
        delta, image = _fenced(image, 2)
        failover.take(delta, image)
        await asyncio.sleep(SESSION_TIMEOUT_S * 0.9)
        assert set(failover.still_listed) == {2}, death
        assert failover.client_image(image) is image
        delta = MetadataDelta(image)
        delta.replay(BrokerRegistrationChangeRecord(broker_id=2, broker_epoch=2, fenced=-1))
        image = delta.apply()
        failover.take(delta, image)
        assert not failover.still_listed
    delta, image = _fenced(image, 1)
    failover.take(delta, image)
    await asyncio.sleep(SESSION_TIMEOUT_S * 1.1)
    assert not failover.still_listed
