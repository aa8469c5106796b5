"""What a finished wait leaves behind: nothing. It may hold a whole produce request, with its frame."""

from __future__ import annotations

import asyncio
import gc
import weakref
from collections.abc import Iterator

import pytest

from data_plane.purgatory.completion_turns import PER_TURN, CompletionTurns
from data_plane.purgatory.purgatory import DelayedOperation, ThresholdPurgatory
from data_plane.purgatory.timing_wheel import WheelTimer
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.bytecodes import cost
from tests.support.jumping_loop import JumpingLoop
from tests.support.virtual_loop import run_virtually


def _raise(work: str, error: Exception) -> None:
    raise error


class Request:
    """Stands for what the callback of a wait holds."""

    def done(self, outcomes: list[ErrorCode]) -> None: ...


@pytest.fixture(autouse=True)
def no_collections() -> Iterator[None]:
    gc.disable()
    yield
    gc.enable()


def waiting(waits: ThresholdPurgatory, timer: WheelTimer) -> weakref.ref[Request]:
    request = Request()
    wait = DelayedOperation(request.done)
    wait.add(waits, 5)
    wait.start(timer, 30.0)
    return weakref.ref(request)


@pytest.mark.row("P1")
@pytest.mark.parametrize("ending", ["reached", "failed", "expired"])
def test_a_wait_that_is_over_is_freed_at_once(ending: str):
    loop = JumpingLoop()
    timer, waits = WheelTimer(loop), ThresholdPurgatory(_raise)
    held = waiting(waits, timer)
    assert held() is not None
    if ending == "reached":
        waits.reached(5)
    elif ending == "failed":
        waits.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    else:
        loop.run()
    assert held() is None


def test_a_callback_that_fails_takes_neither_the_others_with_it_nor_who_made_the_number_rise():
    faults: list[Exception] = []
    waits = ThresholdPurgatory(lambda work, error: faults.append(error))
    codes: list[ErrorCode] = []
    waits.add(5, codes.append)
    waits.add(5, lambda outcome: {}["a bug"])
    waits.add(5, codes.append)
    assert waits.reached(5) == 3
    assert codes == [ErrorCode.NONE] * 2
    assert [type(error) for error in faults] == [KeyError]


@pytest.mark.row("P1")
def test_who_waits_beyond_the_end_that_is_left_waits_for_that_end():
    waits = ThresholdPurgatory(_raise)
    codes: list[int] = []
    for offset in (3, 5, 7, 9):
        waits.add(offset, lambda _, offset=offset: codes.append(offset))  # type: ignore[misc]
    cancelled = waits.add(8, lambda _: codes.append(8))
    waits.lower(5)
    cancelled.cancel()
    waits.reached(4)
    assert codes == [3]
    waits.reached(5)
    assert sorted(codes) == [3, 5, 7, 9]
    assert not waits


@pytest.mark.row("P1")
def test_to_give_up_costs_the_same_however_many_wait_for_that_offset():
    """A producer that repeats its batch waits for the same offset each time, as long as it says."""

    def give_up(waiting: int) -> int:
        waits = ThresholdPurgatory(_raise)
        every = [waits.add(5, lambda _: None) for _ in range(waiting)]
        spent = cost(lambda: [each.cancel() for each in reversed(every)])
        assert not waits
        return spent

    assert give_up(800) <= 4.5 * give_up(200)


def test_who_gives_up_while_others_are_called_back_is_not_counted_again():
    waits = ThresholdPurgatory(_raise)
    later = [waits.add(9, lambda _: None) for _ in range(3)]
    called: list[str] = []

    def first(outcome: ErrorCode) -> None:
        called.append("first")
        second.cancel()

    waits.add(5, first)
    second = waits.add(5, lambda _: called.append("second"))
    later[0].cancel()
    assert waits.reached(5) == 2
    assert (called, len(waits)) == (["first"], 2)
    assert waits.reached(9) == 2
    assert not waits


@pytest.mark.row("P1", "P7")
@pytest.mark.parametrize("ending", ["reached", "failed"])
def test_very_many_that_wait_for_one_offset_are_called_back_some_per_turn_and_not_overtaken(ending: str):
    """A follower stood still for a second, and hundreds of connections produce with acks=all."""

    async def scenario() -> None:
        turns = CompletionTurns(asyncio.get_running_loop())
        waits, others = ThresholdPurgatory(_raise, turns), ThresholdPurgatory(_raise, turns)
        called: list[int] = []
        many = 3 * PER_TURN + 1
        for number in range(many):
            waits.add(5, lambda _, number=number: called.append(number))
        given_up = waits.add(5, lambda _: called.append(-1))
        for number in (many, many + 1):
            others.add(number, lambda _, number=number: called.append(number))
        if ending == "reached":
            waits.reached(5)
        else:
            waits.fail_all(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        assert not waits
        given_up.cancel()
        others.reached(many)
        before = 0
        while len(called) <= many:
            await asyncio.sleep(0)
            assert before < len(called) <= before + PER_TURN
            before = len(called)
        assert called == list(range(many + 1))
        others.reached(many + 1)  # nothing is left of the others: at once again
        assert called == list(range(many + 2))

    run_virtually(scenario())


def test_what_one_that_was_put_off_completes_comes_behind_the_others():
    async def scenario() -> None:
        turns = CompletionTurns(asyncio.get_running_loop())
        waits = ThresholdPurgatory(_raise, turns)
        called: list[int] = []
        for number in range(PER_TURN + 1):
            waits.add(1, lambda _, number=number: (called.append(number), waits.reached(2)))
        waits.add(2, lambda _: called.append(-1))
        waits.reached(1)
        for _ in range(4):
            await asyncio.sleep(0)
        assert called == [*range(PER_TURN + 1), -1]

    run_virtually(scenario())
