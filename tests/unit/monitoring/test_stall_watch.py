"""What the watch over the loop sees, and what it does not."""

from __future__ import annotations

import asyncio
import gc
import json
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
import uvloop

from kraft.monitoring.stall_watch import LoopHealth, Stall, StallLog, StallWatch
from kraft.monitoring.yardstick import USUAL_S
from tests.support.suite.stalls import FAILS_FROM_MS, Stalls

LIMIT_MS = 30.0
TRIES = 5
"""In which the watch, which is a thread among others, is seen to look in time."""


@pytest.fixture(autouse=True)
def _no_garbage() -> Iterator[None]:
    """What other tests have left takes the collector as long as a stall."""
    gc.disable()
    yield
    gc.enable()


def burn(cpu_ms: float) -> None:
    """Use up so much of this thread's CPU time, however busy the machine is."""
    end = time.thread_time() + cpu_ms / 1000
    while time.thread_time() < end:
        pass


def watched(
    make_loop: Callable[[], asyncio.AbstractEventLoop], culprit: Callable[[], object], turns: int = 1
) -> tuple[list[Stall], LoopHealth]:
    """Run `culprit` on a loop that is not idle, so often; what was reported."""
    loop = make_loop()
    stalls: list[Stall] = []

    async def run() -> LoopHealth:
        watch = StallWatch(loop, LIMIT_MS, stalls.append)
        watch.start()
        for _ in range(turns):
            burn(2)  # the watch asks who has something to do
            await asyncio.sleep(LIMIT_MS / 1000)
            culprit()
            await asyncio.sleep(LIMIT_MS / 1000)
        watch.stop()
        return watch.health

    try:
        return stalls, loop.run_until_complete(run())
    finally:
        loop.close()


def no_stalls(reported: list[Stall]) -> bool:
    """But blocked calls: whoever stops this process or its machine for a while makes one of any call."""
    return all(each.cpu_ms < LIMIT_MS for each in reported)


@pytest.mark.parametrize("make_loop", [asyncio.new_event_loop, uvloop.new_event_loop])
def test_a_turn_that_takes_too_long_is_reported_with_its_culprit(make_loop):
    for _ in range(TRIES):
        stalls, health = watched(make_loop, lambda: burn(10 * LIMIT_MS))
        if stalls and any("burn" in stack.split(" < ")[0] for stack in stalls[0].stacks):
            break
    assert health.stalls == 1
    assert health.longest_ms > 5 * LIMIT_MS
    (stall,) = stalls
    assert any("burn" in stack.split(" < ")[0] for stack in stall.stacks)


def test_a_call_that_keeps_the_interpreter_to_itself_is_seen_too():
    for _ in range(TRIES):
        stalls, _ = watched(uvloop.new_event_loop, lambda: sum(range(8_000_000)))
        if stalls:
            break
    assert [stall.cpu_ms > LIMIT_MS for stall in stalls] == [True]


def test_neither_waiting_nor_many_short_turns_are_a_stall():
    stalls, health = watched(uvloop.new_event_loop, lambda: burn(3), turns=8)
    assert no_stalls(stalls)
    assert health.stalls == 0


def test_many_short_turns_are_no_stall_however_long_the_watch_is_kept_from_asking(
    monkeypatch: pytest.MonkeyPatch,
):
    def kept_waiting() -> float:
        time.sleep(3 * LIMIT_MS / 1000)
        return time.perf_counter()

    monkeypatch.setattr("kraft.monitoring.stall_watch._waiting_time", lambda: kept_waiting)

    async def busy() -> None:
        watch = StallWatch(asyncio.get_running_loop(), LIMIT_MS, stalls.append)
        watch.start()
        for _ in range(200):
            burn(3)
            await asyncio.sleep(0)
        watch.stop()

    stalls: list[Stall] = []
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(busy())
    assert no_stalls(stalls)


def test_a_blocking_call_is_reported_but_is_no_stall():
    stalls, health = watched(uvloop.new_event_loop, lambda: (burn(3), time.sleep(0.3)))
    assert health.stalls == 0
    assert no_stalls(stalls)


def test_a_stall_is_recorded_for_whoever_runs_the_node(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    record = tmp_path / "stalls"
    stall_log = StallLog(3, LIMIT_MS, lambda: 0.0, str(record))
    for _ in range(2):
        stall_log(Stall(73.0, 0.0, ("a.py:1 a < b.py:2 b",)))
    stall_log(Stall(1.0, 400.0, ()))  # blocked: only reported
    lines = [json.loads(line) for line in record.read_text().splitlines()]
    assert [(line["node"], line["cpu_ms"]) for line in lines] == [(3, 73.0)] * 2
    assert len(caplog.records) == 1
    assert "a.py:1 a" in caplog.text


def test_a_stall_is_logged_where_it_cannot_be_recorded(tmp_path: Path, caplog: pytest.LogCaptureFixture):
    """A node whose disk is full ends with a sentence, however slow the machine is just then."""
    StallLog(3, LIMIT_MS, lambda: 0.0, str(tmp_path))(Stall(73.0, 0.0, ("a.py:1 a",)))
    assert "a.py:1 a" in caplog.text


def test_what_fails_a_test(tmp_path: Path):
    record = tmp_path / "stalls"
    stalls = Stalls(record)

    def new() -> list[str]:
        return stalls.new(slowness=lambda: 1.0)

    assert new() == []
    stall_log = StallLog(3, LIMIT_MS, lambda: 0.0, str(record), lambda: USUAL_S)
    stall_log(Stall(FAILS_FROM_MS - 1, 0.0, ("a.py:1 slow",)))
    stall_log(Stall(FAILS_FROM_MS, 0.0, ("a.py:1 very_slow", "b.py:2 later")))
    stall_log(
        Stall(FAILS_FROM_MS, 0.0, ("c.py:3 schema < <frozen importlib._bootstrap>:1 _load", "b.py:2 later"))
    )
    with open(record, "a", encoding="utf-8") as file:
        file.write('{"node": 4, "cpu_')  # and goes on writing
    (failure,) = new()
    assert "node 3's loop stalled: 100.0 ms" in failure
    assert "very_slow" in failure
    with open(record, "a", encoding="utf-8") as file:
        file.write('ms": 200.0, "yardstick_ms": 0.1, "stacks": []}\n')
    assert len(new()) == 1
    assert new() == []
    stall_log(Stall(FAILS_FROM_MS, 0.0, ("a.py:1 slow",)))
    assert stalls.new(slowness=lambda: 2.0) == [], "on a machine that is half as fast it is none"
    slow_then = StallLog(3, LIMIT_MS, lambda: 0.0, str(record), lambda: 2 * USUAL_S)
    slow_then(Stall(FAILS_FROM_MS, 0.0, ("a.py:1 slow",)))
    assert new() == [], "nor on one that was it at that moment"
