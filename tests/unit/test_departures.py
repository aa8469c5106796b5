"""What clients are told of a broker in the moments around its death."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Coroutine
from typing import Any
from uuid import UUID

import pytest

from kraft.departures import DOUBT_LIMIT_S, TOLD_LATE_S, Departures
from metadata_quorum.image import EMPTY_IMAGE, MetadataDelta, MetadataImage
from metadata_quorum.records import BrokerRegistrationChangeRecord, RegisterBrokerRecord
from tests.virtual_loop import run_virtually


def virtual(test: Callable[[], Coroutine[Any, Any, None]]) -> Callable[[], None]:
    def run() -> None:
        run_virtually(test())

    run.__name__, run.__doc__ = test.__name__, test.__doc__
    return run


def _departures() -> tuple[Departures, MetadataImage]:
    """Two brokers, both unfenced."""
    departures = Departures(asyncio.get_running_loop())
    delta = MetadataDelta(EMPTY_IMAGE)
    for broker_id in (1, 2):
        delta.replay(
            RegisterBrokerRecord(
                broker_id=broker_id, incarnation_id=UUID(int=broker_id), broker_epoch=broker_id, fenced=False
            )
        )
    image = delta.apply()
    departures.take(delta, image)
    return departures, image


def _fenced(image: MetadataImage, broker_id: int) -> tuple[MetadataDelta, MetadataImage]:
    delta = MetadataDelta(image)
    delta.replay(BrokerRegistrationChangeRecord(broker_id=broker_id, broker_epoch=broker_id, fenced=1))
    return delta, delta.apply()


@virtual
async def test_a_broken_connection_puts_a_broker_in_doubt_until_it_is_heard() -> None:
    departures, _ = _departures()
    departures.lost(1)
    departures.lost(7)  # unknown, or fenced long ago: nobody is sent there anyway
    assert set(departures.in_doubt) == {1}
    departures.back(1)
    assert not departures.in_doubt


@virtual
async def test_a_doubt_that_nobody_settles_ends() -> None:
    departures, image = _departures()
    departures.lost(1)
    await asyncio.sleep(DOUBT_LIMIT_S * 1.1)
    assert not departures.in_doubt
    assert departures.image_told(image) is image


@pytest.mark.parametrize("noticed", [True, False])
def test_the_fence_is_told_a_moment_late(noticed: bool) -> None:
    """In that moment a client takes its partitions off the dead broker, which is still listed."""

    async def test() -> None:
        departures, before = _departures()
        if noticed:
            departures.lost(2)
        delta, after = _fenced(before, 2)
        departures.take(delta, after)
        assert set(departures.in_doubt) == {2}
        assert departures.image_told(after) is before
        await asyncio.sleep(TOLD_LATE_S * 1.1)
        assert not departures.in_doubt
        assert departures.image_told(after) is after

    run_virtually(test())
