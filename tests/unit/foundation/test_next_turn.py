from __future__ import annotations

import asyncio

from metadata_quorum.foundation.next_turn import NextTurn


def test_work_is_done_once_in_the_next_turn_and_may_ask_for_the_one_after() -> None:
    async def test() -> None:
        done: list[str] = []

        def work() -> None:
            done.append("work")
            if done.count("work") < 2:
                next_turn.ask()
                next_turn.ask()

        next_turn = NextTurn(asyncio.get_running_loop(), work)
        next_turn.ask()
        next_turn.ask()
        assert not done
        for turn in range(4):
            done.append(f"turn {turn}")
            await asyncio.sleep(0)
        assert done == ["turn 0", "work", "turn 1", "work", "turn 2", "turn 3"]

    asyncio.run(test())
