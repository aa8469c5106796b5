"""Framing and order hold however the bytes arrive and however the handlers finish."""

from __future__ import annotations

import struct
import tracemalloc
from collections import deque
from functools import partial

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from kraft.net.budget import Account, Budget
from kraft.net.connection import (
    FIRST_BUFFER_BYTES,
    SCRATCH_BYTES,
    SMALL_FRAME_BYTES,
    ConnectionLimits,
    FrameReader,
    Pipeline,
    ProtocolError,
    Slot,
)


def reader(
    max_frame_bytes: int = 1 << 30, scratch_bytes: int = 64, budget: Budget | None = None
) -> FrameReader:
    scratch = memoryview(bytearray(scratch_bytes))
    return FrameReader(max_frame_bytes, scratch, Account(budget if budget is not None else Budget(1 << 30)))


def feed(target: FrameReader, data: bytes, chunks: list[int] | None = None) -> list[bytes]:
    """Let `data` arrive in chunks of at most those sizes, as a socket would write it."""
    frames: list[bytes] = []
    sizes = iter(chunks or [])
    pos = 0
    while pos < len(data):
        buffer = target.get_buffer()
        count = min(len(buffer), next(sizes, len(buffer)), len(data) - pos)
        buffer[:count] = data[pos : pos + count]
        del buffer
        pos += count
        frames += [bytes(frame) for frame in target.received(count)]
    return frames


def framed(frames: list[bytes]) -> bytes:
    return b"".join(struct.pack(">i", len(frame)) + frame for frame in frames)


@settings(deadline=None)
@given(
    frames=st.lists(st.binary(min_size=1, max_size=200), max_size=12),
    chunks=st.lists(st.integers(1, 90), max_size=80),
    scratch_bytes=st.integers(1, 300),
)
def test_any_chunking_gives_the_same_frames(frames, chunks, scratch_bytes):
    budget = Budget(1 << 30)
    assert feed(reader(scratch_bytes=scratch_bytes, budget=budget), framed(frames), chunks) == frames
    assert budget.used_bytes == sum(map(len, frames))


@pytest.mark.parametrize("length", [0, -1, -(2**31), 101, 2**31 - 1])
def test_a_length_that_no_frame_may_have_is_refused_before_it_is_read(length):
    budget = Budget(1 << 30)
    with pytest.raises(ProtocolError):
        feed(reader(max_frame_bytes=100, budget=budget), struct.pack(">i", length))
    assert budget.used_bytes == 0


def test_frames_are_writable_and_their_own():
    data = framed([b"abc", b"def"])
    target = reader()
    target.get_buffer()[: len(data)] = data
    first, second = target.received(len(data))
    first[0] = ord("x")
    assert (bytes(first), bytes(second)) == (b"xbc", b"def")


def test_a_mere_claim_of_size_costs_no_memory_like_it():
    target = reader(max_frame_bytes=1 << 30)
    feed(target, struct.pack(">i", 1 << 30) + b"x")
    assert len(target.get_buffer()) < FIRST_BUFFER_BYTES


def test_a_large_frame_grows_as_it_comes():
    frame = bytes(range(256)) * (FIRST_BUFFER_BYTES // 100)
    assert feed(reader(), framed([frame, b"next"])) == [frame, b"next"]


def test_a_large_frame_grows_without_being_copied_and_is_read_a_piece_at_a_time():
    """Else a turn of the loop would be as long as the frame is large."""
    size, largest_read = 12 * FIRST_BUFFER_BYTES, 0
    target = reader(scratch_bytes=SCRATCH_BYTES)
    feed(target, struct.pack(">i", size))
    piece = bytes(SCRATCH_BYTES)
    tracemalloc.start()
    try:
        for _ in range(size // SCRATCH_BYTES):
            buffer = target.get_buffer()
            largest_read = max(largest_read, len(buffer))
            count = min(len(buffer), len(piece))
            buffer[:count] = piece[:count]
            del buffer
            frames = target.received(count)
        _, most_copied = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert [len(frame) for frame in frames] == [size]
    assert largest_read == SCRATCH_BYTES
    assert most_copied < FIRST_BUFFER_BYTES


def test_what_was_in_a_buffer_before_is_not_in_the_frame():
    target = FrameReader(
        1 << 30,
        memoryview(bytearray(64)),
        Account(Budget(1 << 30)),
        allocate=lambda size: memoryview(bytearray(b"?" * size)),
    )
    frames = [b"whole", bytes(range(256)), b"next"]
    assert feed(target, framed(frames)) == frames


def test_frames_before_one_that_no_memory_is_left_for_are_not_counted():
    def nothing_left(size: int) -> bytearray:
        raise MemoryError

    budget = Budget(1 << 30)
    scratch = memoryview(bytearray(64))
    target = FrameReader(1 << 30, scratch, Account(budget), allocate=nothing_left)
    data = framed([b"whole"]) + struct.pack(">i", 1000)
    scratch[: len(data)] = data
    with pytest.raises(MemoryError):
        target.received(len(data))
    target.close()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("cut", range(1, 30))
def test_frames_are_counted_once_wherever_the_stream_is_cut(cut: int):
    budget = Budget(1 << 30)
    target, frames = reader(budget=budget), [b"first", b"second", b"third"]
    data = framed(frames)
    assert feed(target, data[:cut]) + feed(target, data[cut:]) == frames
    assert budget.used_bytes == sum(map(len, frames))


def test_a_large_frame_waits_for_the_budget_and_a_small_one_does_not():
    budget = Budget(10)
    other = Account(budget)
    other.take(15)
    large = bytes(SMALL_FRAME_BYTES + 1)
    small = Account(budget)
    target = FrameReader(1 << 30, memoryview(bytearray(64)), small)
    assert feed(target, framed([b"small"])) == [b"small"]
    small.give_back(5)
    target = reader(budget=budget)
    feed(target, struct.pack(">i", len(large)))
    assert target.needs_budget
    assert not target.resume()
    woken: list[bool] = []
    target.wait(lambda: woken.append(target.resume()))
    other.give_back(15)
    assert woken == [True]
    assert feed(target, large) == [large]
    assert budget.used_bytes == len(large)


def test_who_is_woken_sees_what_the_one_before_it_is_about_to_take():
    """Otherwise all that wait are let in together, and take their room with the next byte of each."""
    budget = Budget(FIRST_BUFFER_BYTES)
    other = Account(budget)
    other.take(FIRST_BUFFER_BYTES)
    woken: list[bool] = []
    targets = [reader(budget=budget) for _ in range(3)]
    for target in targets:
        feed(target, struct.pack(">i", FIRST_BUFFER_BYTES) + b"x")
        target.wait(lambda target=target: woken.append(target.resume()))
    other.give_back(FIRST_BUFFER_BYTES)
    assert woken == [True]
    assert budget.used_bytes == FIRST_BUFFER_BYTES + 2
    for target in targets:
        target.close()
    assert budget.used_bytes == 0


def test_a_claim_takes_of_the_budget_only_what_comes():
    budget = Budget(1 << 30)
    target = reader(max_frame_bytes=1 << 30, budget=budget)
    feed(target, struct.pack(">i", 1 << 30) + bytes(10 * FIRST_BUFFER_BYTES))
    assert 10 * FIRST_BUFFER_BYTES <= budget.used_bytes <= 20 * FIRST_BUFFER_BYTES
    target.close()
    assert budget.used_bytes == 0


@pytest.mark.parametrize("frames", [3, 6])
def test_halves_of_frames_do_not_wait_for_each_other(frames: int):
    """Large frames under way have used up the budget, or six of them more than it: they come in one after the
    other."""
    size, budget = 8 * FIRST_BUFFER_BYTES, Budget(4 * FIRST_BUFFER_BYTES)
    accounts = [Account(budget) for _ in range(frames)]
    targets = [FrameReader(1 << 30, memoryview(bytearray(64)), account) for account in accounts]
    for target in targets:
        feed(target, struct.pack(">i", size) + bytes(FIRST_BUFFER_BYTES))
    ready, whole = deque(range(frames)), list[int]()
    while ready:
        number = ready.popleft()
        target = targets[number]
        if not target.resume():
            target.wait(partial(ready.append, number))
        elif list(target.received(len(target.get_buffer()))):
            whole.append(number)
            accounts[number].give_back(size)  # answered
        else:
            ready.append(number)
    assert sorted(whole) == list(range(frames))
    assert budget.used_bytes == 0


def test_a_connection_that_moves_to_another_budget_takes_along_what_it_holds():
    before, after = Budget(100), Budget(100)
    account = Account(before)
    account.take(30)
    account.move_to(after)
    assert (before.used_bytes, after.used_bytes) == (0, 30)
    account.give_back(30)
    assert after.used_bytes == 0


class PipelineMachine(RuleBasedStateMachine):
    """Requests start in order, finish in any, and their replies leave in order. Kind 1 runs alone of its
    kind, kind 2 waits until all before it are answered, those behind kind 3 wait for its reply. Kinds 3 and 4
    continue in tasks."""

    def __init__(self) -> None:
        super().__init__()
        self.limits = ConnectionLimits(
            max_frame_bytes=1000, max_in_flight_bytes=50, max_in_flight_requests=5, max_in_flight_tasks=2
        )
        self.account = Account(Budget(1 << 30))
        self.pipeline = Pipeline(
            self.limits, self.account, lambda api_key: api_key >> 8 == 1, lambda api_key: api_key >> 8 == 2
        )
        self.enqueued = 0
        self.running: dict[int, Slot] = {}
        self.started = 0
        self.sent: list[int] = []

    @rule(kind=st.integers(0, 4), size=st.integers(2, 30))
    def request_arrives(self, kind: int, size: int) -> None:
        frame = bytearray(size)
        frame[0], frame[1] = kind, self.enqueued % 256
        self.account.take(size)
        self.pipeline.enqueue((memoryview(frame),))
        self.enqueued += 1
        self._start_what_may()

    @precondition(lambda self: self.running)
    @rule(data=st.data(), reply_size=st.integers(0, 40))
    def request_is_done(self, data: st.DataObject, reply_size: int) -> None:
        number = data.draw(st.sampled_from(sorted(self.running)))
        reply = number.to_bytes(4, "big") + bytes(reply_size)
        self.pipeline.fill(self.running.pop(number), (reply,))
        self.sent += [int.from_bytes(buffer[:4], "big") for buffer in self.pipeline.take_output()]
        self._start_what_may()

    @rule()
    def client_stops_reading(self) -> None:
        self.pipeline.output_blocked = True

    @rule()
    def client_reads_again(self) -> None:
        self.pipeline.output_blocked = False
        self._start_what_may()

    def _start_what_may(self) -> None:
        while (started := self.pipeline.next_frame()) is not None:
            frame, slot = started
            assert not self.pipeline.output_blocked
            assert frame[1] == self.started % 256
            assert frame[0] != 2 or len(self.sent) == self.started
            assert not any(slot.api_key >> 8 == 3 for slot in self.running.values())
            if frame[0] >= 3:
                self.pipeline.continues_in_task(slot)
            if frame[0] == 3:
                self.pipeline.answer_first(slot)
            self.running[self.started] = slot
            self.started += 1

    @invariant()
    def replies_leave_in_order(self) -> None:
        assert self.sent == list(range(len(self.sent)))

    @invariant()
    def limits_hold(self) -> None:
        sizes = sorted(slot.request_bytes for slot in self.running.values())
        assert sum(sizes[:-1]) < self.limits.max_in_flight_bytes
        assert len(self.running) <= self.limits.max_in_flight_requests
        assert sum(slot.exclusive for slot in self.running.values()) <= 1
        assert sum(slot.in_task for slot in self.running.values()) <= self.limits.max_in_flight_tasks

    @invariant()
    def nothing_is_read_while_something_waits(self) -> None:
        if self.started < self.enqueued:
            assert not self.pipeline.wants_input

    def teardown(self) -> None:
        self.pipeline.close()
        assert self.account.held_bytes == self.account.budget.used_bytes == 0
        for slot in self.running.values():
            self.pipeline.fill(slot, (b"late",))
        assert self.account.held_bytes == self.account.budget.used_bytes == 0


TestPipeline = PipelineMachine.TestCase
