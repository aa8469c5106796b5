"""Requests that come in a row, many at once, do not have the loop for themselves."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Callable
from functools import partial

import pytest

from kraft.monitoring.request_metrics import RequestMetrics
from kraft.net.budget import Account, Budget
from kraft.net.connection import CUT_AT_ONCE, SCRATCH_BYTES, FrameReader
from kraft.net.listener import OPEN, ListenerSecurity
from kraft.net.turn_budget import FEW, LONG_S, LONGEST_S, SHARE, SHARE_S, TurnBudget
from tests.unit.net.echo_node import framed, node
from tests.unit.net.harness import on_a_loop, until

pytestmark = pytest.mark.row("P7")

MANY = 2000


@pytest.mark.parametrize("security", [OPEN, ListenerSecurity(asks_login=True)], ids=["open", "before login"])
@on_a_loop
async def test_pipelined_requests_are_served_over_many_turns_and_answered_in_order(
    security: ListenerSecurity,
):
    async with node(CLIENTS=security) as served:
        per_turn: list[int] = []
        serve = served.server.services.serve

        async def later(answer):
            return answer

        def counted(peer, frame):
            per_turn[-1] += 1
            return served.loop.create_task(later(serve(peer, frame)))

        def turn() -> None:
            per_turn.append(0)
            served.loop.call_soon(turn)

        served.server.services.serve = counted
        turn()
        clients = [await served.connect("CLIENTS") for _ in range(3)]
        for _, writer in clients:
            writer.write(b"".join(framed(b"%06d" % number) for number in range(MANY)))
        for reader, _ in clients:
            for number in range(MANY):
                assert (await reader.readexactly(10))[4:] == b"%06d" % number
        assert sum(per_turn) == len(clients) * MANY
        # Two turns may be counted as one, and each connection's first request is extra.
        assert max(per_turn) <= 2 * (SHARE + 2 * len(clients))


def test_frames_are_cut_out_of_what_came_in_a_few_at_a_time():
    account = Account(Budget(SCRATCH_BYTES))
    scratch = memoryview(bytearray(SCRATCH_BYTES))
    reader = FrameReader(100, scratch, account)
    frames = [b"%d" % number for number in range(3 * CUT_AT_ONCE)]
    data = b"".join(struct.pack(">i", len(each)) + each for each in frames) + b"\0\0"
    scratch[: len(data)] = data
    came = list(reader.received(len(data)))
    assert len(came) == CUT_AT_ONCE
    assert account.held_bytes > len(data) / 2  # what is left counts, too
    scratch[: len(data)] = bytes(len(data))  # another connection reads
    while more := list(reader.cut_on()):
        assert len(more) <= CUT_AT_ONCE
        came += more
    assert came == frames
    assert account.held_bytes == sum(map(len, frames))
    scratch[:3] = b"\0\1x"
    assert list(reader.received(3)) == [b"x"]


@on_a_loop
async def test_a_turn_is_over_when_its_time_is_over_and_who_waits_continues_in_the_next():
    now = 0.0
    turns = TurnBudget(asyncio.get_running_loop(), lambda: now, lambda: now)
    went_on: list[str] = []
    assert turns.may_continue(lambda: None)
    now += SHARE_S
    for name in ("first", "second", "third"):

        def resume(name: str = name) -> None:
            nonlocal now
            went_on.append(name)
            now += SHARE_S

        assert not turns.may_continue(resume)
    for number in range(1, 4):
        await asyncio.sleep(0)
        assert len(went_on) <= number  # one is all that there is time for
    await until(lambda: went_on == ["first", "second", "third"])


@on_a_loop
async def test_time_that_the_machine_gave_to_others_does_not_count():
    now = cpu_s = 0.0
    turns = TurnBudget(asyncio.get_running_loop(), lambda: now, lambda: cpu_s)
    assert turns.may_continue(lambda: None)
    for _ in range(5):
        now += 1.5 * SHARE_S
        cpu_s += SHARE_S / 6
        assert turns.may_continue(lambda: None)
    now += SHARE_S
    cpu_s += SHARE_S / 3
    assert not turns.may_continue(lambda: None)


@on_a_loop
async def test_a_turn_that_waits_for_the_disk_ends_although_it_computes_nothing():
    now = 0.0
    turns = TurnBudget(asyncio.get_running_loop(), lambda: now, lambda: 0.0)
    assert turns.may_continue(lambda: None)
    now += LONGEST_S - SHARE_S
    assert turns.may_continue(lambda: None)
    now += SHARE_S
    assert not turns.may_continue(lambda: None)


@on_a_loop
async def test_first_requests_that_take_long_wait_for_each_other():
    """Each record that is appended may be news for thousands of consumers."""
    now = 0.0
    turns = TurnBudget(asyncio.get_running_loop(), lambda: now, lambda: now)
    began = 0

    def begin() -> None:
        nonlocal now, began
        began += 1
        now += 1.3 * LONG_S

    for _ in range(FEW):
        if turns.may_begin(now, partial(begin)):
            begin()
    for number in range(2, 5):
        assert began <= number
        await asyncio.sleep(0)


class Held:
    """Turns that are over, until the test resumes those who wait."""

    def __init__(self) -> None:
        self.waiting: list[Callable[[], None]] = []

    def may_begin(self, now: float, resume: Callable[[], None]) -> bool:
        return True

    def may_continue(self, resume: Callable[[], None]) -> bool:
        self.waiting.append(resume)
        return False

    def started(self) -> None:
        pass


@on_a_loop
async def test_a_reply_starts_nothing_on_a_connection_that_waits_for_its_turn():
    async with node(CLIENTS=OPEN) as served:
        began: list[asyncio.Future[tuple[bytes]]] = []

        def serve(peer, frame):
            began.append(served.loop.create_future())
            return began[-1]

        served.server.services.serve = serve
        served.server.services.turn_budget = turn_budget = Held()
        reader, writer = await served.connect("CLIENTS")
        writer.write(framed(b"first") + framed(b"second"))
        await until(lambda: bool(turn_budget.waiting))
        began[0].set_result((framed(b"1"),))
        assert (await reader.readexactly(5))[4:] == b"1"
        assert len(began) == 1
        turn_budget.waiting.pop()()
        assert len(began) == 2


@on_a_loop
async def test_where_the_turn_is_over_only_the_first_of_several_requests_is_served_until_it_is_resumed():
    """Also where the replies are there at once: that they have left starts nothing."""
    async with node(CLIENTS=OPEN) as served:
        began: list[bytes] = []

        def serve(peer, frame):
            began.append(bytes(frame))
            return (framed(bytes(frame)),)

        served.server.services.serve = serve
        served.server.services.turn_budget = turn_budget = Held()
        reader, writer = await served.connect("CLIENTS")
        writer.write(framed(b"first") + framed(b"second") + framed(b"third"))
        for so_far in ([b"first"], [b"first", b"second"], [b"first", b"second", b"third"]):
            assert await reader.readexactly(4 + len(so_far[-1])) == framed(so_far[-1])
            assert began == so_far
            for resume in turn_budget.waiting[:]:
                turn_budget.waiting.remove(resume)
                resume()
        assert not turn_budget.waiting


@on_a_loop
async def test_first_requests_of_very_many_connections_share_turns_too():
    async with node(CLIENTS=OPEN) as served:
        now = 0.0
        per_turn: list[int] = []
        spent_s = LONG_S / 4

        def serve(peer, frame):
            nonlocal now
            now += spent_s
            per_turn[-1] += 1
            return (framed(bytes(frame)),)

        def turn() -> None:
            per_turn.append(0)
            served.loop.call_soon(turn)

        services = served.server.services
        services.serve = serve
        services.requests = RequestMetrics(stopwatch=lambda: now)
        services.turn_budget = TurnBudget(served.loop, lambda: now, lambda: now)
        clients = [await served.connect("CLIENTS") for _ in range(60)]
        turn()
        for number, (_, writer) in enumerate(clients):
            writer.write(framed(b"%06d" % number))
        for number, (reader, _) in enumerate(clients):
            assert (await reader.readexactly(10))[4:] == b"%06d" % number
        assert sum(per_turn) == len(clients)
        # As they arrive, before it is looked at closely and after, and as they are resumed; two turns may be
        # counted as one.
        assert max(per_turn) <= 2 * (FEW + 1 + FEW + 4)
