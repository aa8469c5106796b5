"""Many small things are done some per turn of the loop."""

from __future__ import annotations

import asyncio
from collections import deque

from metadata_quorum.foundation.turns import some_per_turn
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
