"""Blocks of producer ids: one request at a time, nobody waits for a controller that does not answer."""

from __future__ import annotations

import asyncio

import pytest

from kraft.broker.producer_ids import PATIENCE_S, ProducerIds
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.virtual_loop import VirtualLoop


def test_ids_of_many_who_ask_at_once_differ_and_take_as_few_blocks_as_they_can() -> None:
    blocks = iter([(0, 3), (1000, 3)])

    async def allocate() -> tuple[int, int]:
        await asyncio.sleep(0)
        return next(blocks)

    async def body() -> None:
        ids = ProducerIds(allocate)
        assert sorted(await asyncio.gather(*(ids.next_id() for _ in range(5)))) == [0, 1, 2, 1000, 1001]

    asyncio.run(body())


def test_a_controller_that_is_silent_makes_producers_ask_again_and_its_late_answer_counts() -> None:
    loop = VirtualLoop()
    answer: asyncio.Future[tuple[int, int]] = loop.create_future()

    async def allocate() -> tuple[int, int]:
        return await answer

    async def body() -> None:
        ids = ProducerIds(allocate)
        for _ in range(2):
            began = loop.time()
            with pytest.raises(BrokerError) as refused:
                await ids.next_id()
            assert refused.value.code is ErrorCode.COORDINATOR_LOAD_IN_PROGRESS
            assert loop.time() - began == pytest.approx(PATIENCE_S)
        answer.set_result((7, 1000))
        assert await ids.next_id() == 7

    loop.run_until_complete(body())
    loop.close()


def test_a_refusal_is_returned_and_the_next_one_asks_again() -> None:
    answers: list[tuple[int, int] | BrokerError] = [BrokerError(ErrorCode.STALE_BROKER_EPOCH), (5, 1)]

    async def allocate() -> tuple[int, int]:
        answer = answers.pop(0)
        if isinstance(answer, BrokerError):
            raise answer
        return answer

    async def body() -> None:
        ids = ProducerIds(allocate)
        with pytest.raises(BrokerError):
            await ids.next_id()
        assert await ids.next_id() == 5

    asyncio.run(body())
