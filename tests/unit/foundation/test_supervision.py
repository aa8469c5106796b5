"""What a fault ends: the node, where an invariant is broken or the environment forbids to go on; else only
the work in which it happened, which is counted, and logged now and then."""

from __future__ import annotations

import asyncio
import itertools
import logging
from collections.abc import Callable
from typing import Any

import pytest
import uvloop

from data_plane.purgatory.timing_wheel import WheelTimer
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.foundation.supervision import (
    ELSEWHERE,
    LOG_AGAIN_S,
    MAX_PLACES,
    ErrorBoundary,
    bounded,
    restarted,
    settle,
    supervised,
)
from tests.support.virtual_loop import VirtualLoop


@pytest.fixture
def loop() -> Any:
    made = VirtualLoop()
    yield made
    made.close()


@pytest.fixture
def reported(loop: asyncio.AbstractEventLoop) -> list[dict[str, Any]]:
    contexts: list[dict[str, Any]] = []
    loop.set_exception_handler(lambda _, context: contexts.append(context))
    return contexts


async def _fails() -> None:
    raise KeyError("a bug")


def test_an_error_that_escapes_from_background_work_is_reported(loop, reported):
    supervised(loop, _fails(), "some-work")
    loop.run_until_complete(asyncio.sleep(1))
    (context,) = reported
    assert context["message"] == "some-work has failed"
    assert isinstance(context["exception"], KeyError)


def test_cancelled_and_finished_work_is_not(loop, reported):
    running = supervised(loop, asyncio.sleep(10), "some-work")
    supervised(loop, asyncio.sleep(0), "short-work")
    loop.call_later(1, running.cancel)
    loop.run_until_complete(asyncio.sleep(20))
    assert reported == []


def test_a_deadline_that_fails_takes_no_other_with_it(loop, reported):
    timer = WheelTimer(loop)
    called: list[str] = []
    timer.call_later(1, lambda: called.append("before"))
    timer.call_later(1, lambda: {}["a bug"])
    timer.call_later(1, lambda: called.append("after"))
    timer.call_later(2, lambda: called.append("later"))
    loop.run_until_complete(asyncio.sleep(3))
    assert called == ["before", "after", "later"]
    assert [type(context["exception"]) for context in reported] == [KeyError]


def test_work_that_must_continue_is_restarted_until_it_is_cancelled(loop, reported):
    turns: list[float] = []

    async def work() -> None:
        turns.append(loop.time())
        raise KeyError("a bug")

    task = restarted(loop, work, "a-link")
    loop.run_until_complete(asyncio.sleep(60))
    pauses = [after - before for before, after in itertools.pairwise(turns)]
    assert 10 < len(turns) < 30
    assert pauses == sorted(pauses)
    assert len(reported) == len(turns)
    task.cancel()
    loop.run_until_complete(asyncio.gather(task, return_exceptions=True))
    assert len(reported) == len(turns)


def test_what_fails_among_several_is_reported_and_the_rest_is_done(loop, reported):
    done: list[int] = []
    for number in range(3):
        bounded(loop, "a part", lambda number=number: done.append(number // (1 - number) or number))
    assert len(done) == 2
    assert [type(context["exception"]) for context in reported] == [ZeroDivisionError]


def test_whoever_waits_for_an_answer_hears_why_there_is_none(loop):
    answer: asyncio.Future[int] = loop.create_future()
    settle(answer, lambda: 1 // 0)
    with pytest.raises(ZeroDivisionError):
        answer.result()
    settle(answer, lambda: 1)  # too late: nothing happens


# ---- what ends the node


def _broken_invariant() -> None:
    raise InvariantViolation(Invariant.OFFSETS_IN_ORDER, "")


def _failed_disk() -> None:
    raise FatalError(ExitCode.DISK_FAILED, "no directory is left")


def _bug() -> None:
    raise KeyError("a bug")


async def _breaks() -> None:
    _broken_invariant()


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("start", "ends"),
    [
        (lambda loop: supervised(loop, _fails(), "work"), False),
        (lambda loop: supervised(loop, _breaks(), "work"), True),
        (lambda loop: restarted(loop, _breaks, "work"), True),
        (lambda loop: loop.call_later(0.0, _bug), False),
        (lambda loop: loop.call_at(loop.time(), _broken_invariant), True),
        (lambda loop: loop.call_soon(_broken_invariant), True),
        (lambda loop: loop.call_soon(_failed_disk), True),
        (lambda loop: loop.call_soon(_bug), False),
        (lambda loop: WheelTimer(loop).call_later(0.0, _bug), False),
        (lambda loop: WheelTimer(loop).call_later(0.0, _broken_invariant), True),
        (lambda loop: bounded(loop, "a part", _bug), False),
        (lambda loop: bounded(loop, "a part", _broken_invariant), True),
    ],
)
def test_only_a_broken_invariant_and_a_failed_environment_end_the_node(
    make_loop: Callable[[], asyncio.AbstractEventLoop],
    start: Callable[[asyncio.AbstractEventLoop], object],
    ends: bool,
):
    """Whatever a loop runs of itself comes to the boundary, on both loops that a node may have."""
    loop = make_loop()
    try:
        deaths: list[BaseException] = []
        boundary = ErrorBoundary(deaths.append, loop.time)
        loop.set_exception_handler(boundary.loop_error)
        started: list[object] = []
        loop.call_soon(lambda: started.append(start(loop)))
        loop.run_until_complete(_until(lambda: deaths or boundary.faults))
        assert bool(deaths) == ends
        assert sum(boundary.faults.values()) == (0 if ends else 1)
    finally:
        loop.close()


async def _until(condition: Callable[[], object]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - anything may be the condition
            await asyncio.sleep(0.001)


# ---- what is counted, and what is logged


class _Times:
    now = 1000.0


def _caught(action: Callable[[], object]) -> Exception:
    try:
        action()
    except Exception as error:  # noqa: BLE001
        return error
    raise AssertionError


def test_every_fault_is_counted_by_its_place_and_logged_once_in_a_while(caplog: pytest.LogCaptureFixture):
    times = _Times()
    boundary = ErrorBoundary(lambda error: None, lambda: times.now)
    for _ in range(5):
        boundary.fault("a request", _caught(_bug))
    boundary.fault("another", _caught(lambda: 1 // 0))
    assert [place.split(" ")[1] for place in boundary.faults] == ["KeyError", "ZeroDivisionError"]
    assert list(boundary.faults.values()) == [5, 1]
    assert [record.getMessage() for record in caplog.records] == ["a request", "another"]
    assert all(record.exc_info is not None for record in caplog.records)
    times.now += LOG_AGAIN_S
    boundary.fault("a request", _caught(_bug))
    assert caplog.records[-1].getMessage() == "a request (and 4 more at this place)"


def test_a_fault_named_by_a_stranger_fills_no_log_and_no_table(caplog: pytest.LogCaptureFixture):
    boundary = ErrorBoundary(lambda error: None, lambda: 0.0)
    boundary.fault("x" * 1_000_000, _caught(_bug))
    assert len(caplog.records[-1].getMessage()) < 1000
    for number in range(2 * MAX_PLACES):
        boundary.fault("work", type(f"Error{number}", (Exception,), {})())
    assert len(boundary.faults) <= MAX_PLACES + 1
    assert boundary.faults[ELSEWHERE] > 0


def test_a_connection_that_the_system_ends_is_no_fault(
    loop: asyncio.AbstractEventLoop, caplog: pytest.LogCaptureFixture
):
    boundary = ErrorBoundary(lambda error: None, lambda: 0.0)
    with caplog.at_level(logging.WARNING):
        boundary.loop_error(loop, {"message": "", "exception": ConnectionResetError(), "transport": object()})
    assert not boundary.faults
    assert not caplog.records
