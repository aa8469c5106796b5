"""Many small things are done some per turn of the loop; and pieces of work take turns by their weight."""

from __future__ import annotations

import asyncio
from collections import deque

from metadata_quorum.foundation.turns import Turns, some_per_turn
from tests.support.virtual_loop import run_virtually


def test_what_fails_with_one_of_many_is_done_with_the_others_all_the_same() -> None:
    """Connections are closed so, and refused requests answered."""
    done: list[int] = []
    faults: list[object] = []

    def work(number: int) -> None:
        if number % 3 == 0:
            raise ValueError(number)
        done.append(number)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.set_exception_handler(lambda _, context: faults.append(context["exception"]))
        loop.call_soon(some_per_turn, loop, deque(range(10)), 4, work)
        await asyncio.sleep(1)

    run_virtually(test())
    assert done == [1, 2, 4, 5, 7, 8]
    assert len(faults) == 4


def granted(weights: list[int], most: int) -> list[list[int]]:
    """Of pieces that wait, which weigh so much: whose turn each turn of the loop is."""
    turns: list[list[int]] = []

    async def test() -> None:
        loop = asyncio.get_running_loop()
        pieces = Turns(loop, most)
        assert pieces.has_room(most)

        async def wait(number: int) -> None:
            await pieces.next(weights[number])
            turns[-1].append(number)

        waiting = [asyncio.ensure_future(wait(number)) for number in range(len(weights))]
        while not all(each.done() for each in waiting):
            turns.append([])
            await asyncio.sleep(0)

    run_virtually(test())
    return [turn for turn in turns if turn]


def test_what_weighs_little_does_not_wait_for_all_that_weighs_much() -> None:
    """Fifty small transactions were decided about after eight hundred large ones."""
    assert granted([1000, 1000, 1000, 25, 30], 100) == [[0], [3, 4, 1], [2]]
    assert granted([1000, 1000, 1000, *[25] * 8], 100) == [[0], [3, 4, 5, 6], [1], [7, 8, 9, 10], [2]]


def test_what_weighs_much_has_its_turn_while_what_weighs_less_comes() -> None:
    """It may itself be more than a turn."""
    assert granted([1000, *[25] * 9], 100) == [[0], [1, 2, 3, 4], [5, 6, 7, 8], [9]]
    assert granted([1500, 1500, 2500, 1500, 1500], 1000) == [[0], [1], [2], [3], [4]]


def test_what_weighs_as_much_goes_on_in_order() -> None:
    assert granted([1] * 4, 1) == [[0], [1], [2], [3]]
    assert granted([17, 31, 16], 20) == [[0, 1], [2]]
