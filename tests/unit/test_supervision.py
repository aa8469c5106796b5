"""What dies in the background is told to the loop's handler, and stops the process where it must."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Any

import pytest

from data_plane.timing_wheel import WheelTimer
from kraft import serve
from metadata_quorum.invariants import InvariantViolation
from metadata_quorum.supervision import supervised
from tests.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Any:
    made = VirtualLoop()
    yield made
    made.close()


@pytest.fixture
def told(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    return contexts


async def _fails() -> None:
    raise KeyError("a bug")


def test_an_error_that_escapes_from_background_work_is_told(loop, told):
    task = supervised(loop, _fails(), "some-work")
    loop.run_until_complete(asyncio.sleep(1))
    (context,) = told
    assert context["task"] is task
    assert context["message"] == "some-work has died"
    assert isinstance(context["exception"], KeyError)


def test_cancelled_and_finished_work_is_not(loop, told):
    running = supervised(loop, asyncio.sleep(10), "some-work")
    supervised(loop, asyncio.sleep(0), "short-work")
    loop.call_later(1, running.cancel)
    loop.run_until_complete(asyncio.sleep(20))
    assert told == []


def test_a_deadline_that_fails_takes_no_other_with_it(loop, told):
    timer = WheelTimer(loop)
    called: list[str] = []
    timer.call_later(1, lambda: called.append("before"))
    timer.call_later(1, lambda: {}["a bug"])
    timer.call_later(1, lambda: called.append("after"))
    timer.call_later(2, lambda: called.append("later"))
    loop.run_until_complete(asyncio.sleep(3))
    assert called == ["before", "after", "later"]
    assert [type(context["exception"]) for context in told] == [KeyError]


def _broken_invariant() -> None:
    raise InvariantViolation("P5", "")


def _bug() -> None:
    raise KeyError("a bug")


@pytest.mark.parametrize(
    ("start", "stops"),
    [
        (lambda loop: supervised(loop, _fails(), "work"), True),
        (lambda loop: loop.call_later(1, _bug), True),
        (lambda loop: loop.call_soon(_broken_invariant), True),
        (lambda loop: loop.call_soon(_bug), False),  # one request's affair
    ],
)
def test_the_process_ends_with_work_that_would_have_gone_on(
    loop: asyncio.AbstractEventLoop,
    start: Callable[[asyncio.AbstractEventLoop], object],
    stops: bool,
    monkeypatch: pytest.MonkeyPatch,
):
    deaths: list[BaseException] = []
    monkeypatch.setattr(serve, "_die", deaths.append)
    loop.set_exception_handler(serve._on_loop_error)
    started = start(loop)
    loop.run_until_complete(asyncio.sleep(2))
    assert bool(deaths) == stops
    del started
