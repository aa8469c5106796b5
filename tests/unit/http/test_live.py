"""The live stream: those that are told of the same event are told in turns."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any, cast

import pytest
import uvloop

from kraft.http import live
from kraft.http.live import LiveStreams
from kraft.http.unread import UnreadAnswers

READERS = 10


def test_readers_are_told_of_an_event_in_turns_of_their_own(monkeypatch: pytest.MonkeyPatch) -> None:
    """The events of one change of the metadata may be a hundred."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        turn, told = 0, Counter[int]()
        all_told, may_end = asyncio.Event(), asyncio.Event()

        def count() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(count)

        def since(service: object, visitor: object, number: int) -> list[dict[str, Any]]:
            told[turn] += 1
            if told.total() == READERS:
                all_told.set()
            if told.total() == 2 * READERS:
                may_end.set()
            return []

        async def snapshot(visitor: object, told: Callable[[dict[str, Any]], bytes]) -> bytes:
            return told({})

        async def nothing(*_: object) -> None:
            pass

        monkeypatch.setattr(live, "events_since", since)
        events = SimpleNamespace(listeners={}, newest=0)
        service = SimpleNamespace(
            sources=SimpleNamespace(events=events, node=SimpleNamespace(loop=loop)),
            view=SimpleNamespace(snapshot=snapshot),
        )
        streams = LiveStreams(cast(Any, service), UnreadAnswers())
        visitor = SimpleNamespace(is_logged_in=True, may_see_cluster=lambda: not may_end.is_set())
        request, response = SimpleNamespace(headers={}), SimpleNamespace(prepare=nothing, write=nothing)
        count()
        tasks = [
            asyncio.ensure_future(streams.serve(cast(Any, request), cast(Any, visitor), cast(Any, response)))
            for _ in range(READERS)
        ]
        await all_told.wait()
        for tell in list(events.listeners):
            tell()
        await may_end.wait()
        for tell in list(events.listeners):
            tell()
        await asyncio.gather(*tasks)
        assert set(told.values()) == {1}

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(asyncio.wait_for(test(), 60))
