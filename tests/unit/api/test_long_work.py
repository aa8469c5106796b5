"""Many long requests at once: turns stay short, little is half done, and nobody is left behind."""

from __future__ import annotations

import asyncio
from collections import Counter
from contextlib import ExitStack

import pytest

from kraft.api.long_work import AT_ONCE, LongWork
from kraft.api.slices import FIRST_SHARE, in_slices
from kraft.net.peer import Peer
from kraft.net.turn_budget import SHARE
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("P7")

REQUESTS = 100
PIECES = 5


class Pieces:
    """In which turn of the loop each request did its pieces."""

    def __init__(self) -> None:
        self.turn = 0
        self.work = LongWork(asyncio.get_running_loop())
        self.done: list[tuple[int, int]] = []

    async def request(self, number: int) -> None:
        async for _ in in_slices(self.work, range(PIECES), 1):
            self.done.append((self.turn, number))

    async def count_turns_until(self, work: asyncio.Future[object]) -> None:
        while not work.done():
            self.turn += 1
            await asyncio.sleep(0)


async def all_of_them() -> Pieces:
    pieces = Pieces()
    requests = [asyncio.ensure_future(pieces.request(number)) for number in range(REQUESTS)]
    await pieces.count_turns_until(asyncio.gather(*requests))
    return pieces


def test_of_many_long_requests_one_continues_per_turn() -> None:
    pieces = asyncio.run(all_of_them())
    assert len(pieces.done) == REQUESTS * PIECES
    assert max(Counter(turn for turn, _ in pieces.done).values()) == 1


def test_few_are_half_done_though_each_has_several_lists() -> None:
    """Each had another place for each of them, and all were half answered together."""

    async def test() -> None:
        pieces = Pieces()

        async def request(number: int) -> None:
            for _ in range(3):
                await pieces.request(number)

        requests = [
            pieces.work.serving(lambda number=number: asyncio.ensure_future(request(number)))
            for number in range(REQUESTS)
        ]
        await pieces.count_turns_until(asyncio.gather(*requests))
        begun: Counter[int] = Counter()
        for _, number in pieces.done:
            begun[number] += 1
            assert sum(0 < times < 3 * PIECES for times in begun.values()) <= AT_ONCE

    asyncio.run(test())


def test_few_are_half_done_and_the_oldest_are_done_first() -> None:
    pieces = asyncio.run(all_of_them())
    begun: Counter[int] = Counter()
    for _, number in pieces.done:
        begun[number] += 1
        assert sum(0 < times < PIECES for times in begun.values()) <= AT_ONCE
        assert number < REQUESTS - AT_ONCE or all(begun[each] for each in range(REQUESTS - AT_ONCE))


@on_a_loop
async def test_a_newcomer_takes_no_turn_of_one_that_is_half_done():
    """However many come, and whenever: each client's next request follows upon its answer."""
    pieces = Pieces()
    begun: Counter[int] = Counter()
    numbers = iter(range(10 * REQUESTS))
    coming = [asyncio.ensure_future(pieces.request(next(numbers))) for _ in range(AT_ONCE)]
    for _ in range(5 * REQUESTS):
        coming.append(asyncio.ensure_future(pieces.request(next(numbers))))
        await asyncio.sleep(0)
        done, pieces.done = pieces.done, []
        begun.update(number for _, number in done)
        assert sum(0 < times < PIECES for times in begun.values()) <= AT_ONCE
    for each in coming:
        each.cancel()


def test_who_waits_for_somebody_else_or_is_gone_keeps_nobody_from_going_on() -> None:
    async def scenario() -> None:
        pieces = Pieces()
        answer: asyncio.Future[None] = asyncio.get_running_loop().create_future()

        async def waits_for_the_controller() -> None:
            request = pieces.work.request()
            await request.pause()
            await answer
            await request.pause()

        waiting = [asyncio.ensure_future(waits_for_the_controller()) for _ in range(2 * AT_ONCE)]
        gone = [asyncio.ensure_future(pieces.request(number)) for number in range(AT_ONCE)]
        await asyncio.sleep(0)
        for each in gone:
            each.cancel()
        await asyncio.wait_for(pieces.request(0), 60)
        assert not any(each.done() for each in waiting)
        answer.set_result(None)
        await asyncio.wait_for(asyncio.gather(*waiting), 60)

    asyncio.run(scenario())


@on_a_loop
async def test_requests_that_start_together_do_little_before_they_wait_for_their_turns():
    """None of them has more than one slice; together they would fill a turn of the loop."""
    loop = asyncio.get_running_loop()
    work = LongWork(loop)
    size, of_each = 500, 400
    done = this_turn = most = 0

    async def request() -> None:
        nonlocal done, this_turn, most
        async for _ in in_slices(work, (number for number in range(of_each)), size):
            done += 1
            this_turn += 1
            most = max(most, this_turn)

    async def turns() -> None:
        nonlocal this_turn
        while done < SHARE * of_each:
            this_turn = 0
            await asyncio.sleep(0)

    await asyncio.gather(turns(), *(request() for _ in range(SHARE)))
    assert most <= SHARE * size // FIRST_SHARE + size


@on_a_loop
async def test_nothing_more_is_begun_while_many_answers_wait_to_be_encoded():
    pieces = Pieces()
    with ExitStack() as answers:
        for _ in range(AT_ONCE - 1):
            answers.enter_context(pieces.work.in_a_thread())
        await asyncio.wait_for(pieces.request(0), 60)  # there is room for one
        with pieces.work.in_a_thread():
            waiting = asyncio.ensure_future(pieces.request(1))
            for _ in range(10 * PIECES):
                await asyncio.sleep(0)
            assert {number for _, number in pieces.done} == {0}
        await asyncio.wait_for(waiting, 60)


@on_a_loop
async def test_a_request_for_one_thing_waits_for_no_turn_however_much_that_weighs():
    """A transaction's marker in one partition, the configuration of one topic. Others are at work."""
    pieces = Pieces()
    with ExitStack() as answers:
        for _ in range(AT_ONCE):
            answers.enter_context(pieces.work.in_a_thread())
        for items in (["one"], iter(["one"])):
            async for _ in in_slices(pieces.work, items, 1, lambda _: 25):
                pass


@on_a_loop
async def test_a_request_that_is_long_from_the_beginning_keeps_its_place():
    """Decoded, it goes on before any that is not."""
    work = LongWork(asyncio.get_running_loop())
    begun: list[int] = []
    done: list[int] = []

    async def request(number: int) -> None:
        await work.begin(Peer("L", "h", 1), waits=True)
        with work.in_a_thread():
            begun.append(number)
            for _ in range(5):
                await asyncio.sleep(0)
        async for _ in in_slices(work, range(PIECES), 1):
            pass
        done.append(number)
        assert len(begun) - len(done) <= AT_ONCE + 2

    await asyncio.gather(*(asyncio.ensure_future(request(number)) for number in range(REQUESTS)))
    assert sorted(done) == begun == list(range(REQUESTS))


@on_a_loop
async def test_a_long_request_ends_when_its_client_goes():
    work, loop = LongWork(asyncio.get_running_loop()), asyncio.get_running_loop()
    stays, goes, is_gone = (Peer("L", "h", port) for port in range(3))
    goes_on = loop.create_future()

    async def request(client: Peer) -> None:
        await work.begin(client, waits=client is not is_gone)
        await goes_on
        await work.request().pause()

    is_gone.gone = True
    waiting = [asyncio.ensure_future(request(client)) for client in (stays, goes, goes, is_gone)]
    await asyncio.sleep(0)
    assert len(goes.parked) == 2
    goes.gone = True
    for call_off in list(goes.parked.values()):
        call_off()
    goes_on.set_result(None)
    await asyncio.wait(waiting)
    assert [each.cancelled() for each in waiting] == [False, True, True, True]
    assert not stays.parked
    assert not goes.parked
