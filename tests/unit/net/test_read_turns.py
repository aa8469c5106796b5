"""What is received in one turn of the loop is bounded, and all that send take part in it."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace

import pytest
import uvloop

from kraft.local.certificates import Authority
from kraft.net.connections import SWEEP_S
from kraft.net.frame_rate import SLOW_FRAME_S
from kraft.net.listener import OPEN, ListenerSecurity, ServerLimits
from kraft.net.read_turns import (
    CLEARED_BYTES,
    LEAST_SHARE_BYTES,
    PER_TURN_BYTES,
    READ_ON_AT_ONCE,
    ReadTurns,
    Taken,
)
from kraft.net.renewable_tls import RenewableTls
from kraft.net.room import Room
from kraft.net.server_connection import ServerConnection
from tests.unit.net.echo_node import Node, framed, node
from tests.unit.net.harness import WITHIN_S, on_a_loop, until

pytestmark = pytest.mark.row("P7")

MIB = 1024 * 1024
READS = 32
"""How often libuv reads one connection before it looks at the next."""


class Sender(asyncio.Transport):
    """The transport of a connection whose other end has sent all of it before it is read, as libuv does."""

    def __init__(self, running: Node, data: bytes) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": SimpleNamespace(fileno=lambda: 0)})
        self.left = memoryview(data)
        self.is_read = True
        self.is_over = False
        self.answers = b""
        self.connection = ServerConnection(running.server.services, "OPEN", OPEN)
        self.connection.connection_made(self)

    def read(self) -> int:
        """What one turn reads of it, in bytes."""
        before = len(self.left)
        for _ in range(READS):
            if not self.left or not self.is_read:
                break
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(self.left))
            is_full = size == len(buffer)
            buffer[:size] = self.left[:size]
            del buffer  # as the loops do: it may grow
            self.left = self.left[size:]
            self.connection.buffer_updated(size)
            if not is_full:
                break
        return before - len(self.left)

    def abort(self) -> None:
        if not self.is_over:
            self.is_over, self.is_read = True, False
            self.connection.connection_lost(None)

    def write(self, data: bytes) -> None:
        self.answers += bytes(data)

    def writelines(self, list_of_data: Iterable[bytes]) -> None:
        self.answers += b"".join(list_of_data)

    def is_closing(self) -> bool:
        return self.is_over

    def pause_reading(self) -> None:
        self.is_read = False

    def resume_reading(self) -> None:
        assert not self.is_over
        self.is_read = True

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


async def turn(senders: Sequence[Sender]) -> int:
    """What one turn reads, in bytes."""
    await asyncio.sleep(0)
    return sum(each.read() for each in senders)


@pytest.mark.parametrize("size", [100_000, MIB, 6 * MIB])
@on_a_loop
async def test_a_turn_receives_so_much_and_all_take_part(size: int):
    data = framed(bytes(size)) * (6 * MIB // size)
    async with node(ServerLimits(max_queued_bytes=1024 * MIB), OPEN=OPEN) as running:
        senders = [Sender(running, data) for _ in range(40)]
        turns: list[int] = []
        while any(each.left for each in senders):
            turns.append(await turn(senders))
        assert max(turns) <= 2 * PER_TURN_BYTES + len(senders) * LEAST_SHARE_BYTES + 2 * MIB
        assert min(turns[:-10]) >= PER_TURN_BYTES // 2
        for each in senders:
            assert each.answers == framed(bytes(10)) * (6 * MIB // size)
            each.abort()
        assert running.server.memory.queued["OPEN"].used_bytes == 0


class Buffers(ReadTurns):
    """Notes what it makes."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        super().__init__(loop)
        self.made: list[bytearray | Room] = []

    def buffer(self, size: int) -> bytearray | Room:
        self.made.append(super().buffer(size))
        return self.made[-1]


@pytest.mark.parametrize("size", [2 * MIB, 3 * MIB], ids=["whole", "in pieces"])
@on_a_loop
async def test_of_frames_that_begin_together_few_are_given_memory_at_once(size: int):
    """Two hundred connections had so much of it cleared, by ten bytes each, that it took a quarter second."""
    async with node(ServerLimits(max_queued_bytes=1024 * MIB), OPEN=OPEN) as running:
        running.server.services.read_turns = turns = Buffers(running.loop)
        senders = [Sender(running, framed(bytes(size))[:10]) for _ in range(100)]
        await turn(senders)
        assert len(turns.made) == len(senders)
        cleared = [each for each in turns.made if isinstance(each, bytearray)]
        assert CLEARED_BYTES // 2 <= sum(map(len, cleared)) <= CLEARED_BYTES
        for each in senders:
            each.left = memoryview(framed(bytes(size))[10:])
        while any(each.left for each in senders):
            await turn(senders)
        assert {each.answers for each in senders} == {framed(bytes(10))}


@on_a_loop
async def test_small_requests_wait_for_no_turn():
    async with node(OPEN=OPEN) as running:
        large = [Sender(running, framed(bytes(6 * MIB))) for _ in range(10)]
        small = Sender(running, b"")
        while any(each.left for each in large):
            await turn(large)
            small.left = memoryview(framed(b"small"))
            await turn([small])
            assert small.is_read
            assert small.answers == framed(b"small")
            small.answers = b""


@pytest.mark.parametrize("size", [5_000, 20_000])
@on_a_loop
async def test_requests_that_come_one_by_one_wait_for_at_most_a_turn(size: int):
    """However many there are at once, and for however long."""
    async with node(OPEN=OPEN) as running:
        senders = [Sender(running, b"") for _ in range(1200)]
        for _ in range(5):
            for each in senders:
                each.left, each.answers = memoryview(framed(bytes(size))), b""
            for _ in range(2):
                await turn(senders)
            await until(lambda: all(each.answers for each in senders))
            assert all(each.is_read for each in senders)
        for each in senders:
            each.abort()


@pytest.mark.parametrize("connections", [2, 12, 60])
@on_a_loop
async def test_all_that_send_without_end_have_the_same(connections: int):
    """Though the loop looks at the same ones first each time: they took thousands of times as much."""
    async with node(ServerLimits(max_queued_bytes=1024 * MIB), OPEN=OPEN) as running:
        many, one = framed(bytes(MIB)) * 20, framed(bytes(20 * MIB))
        senders = [Sender(running, each) for each in [many] * (connections - 1) + [one]]
        await turn(senders)  # they are not known yet
        left = [len(each.left) for each in senders]
        while min(len(each.left) for each in senders) > 14 * MIB:
            await turn(senders)
        taken = [before - len(each.left) for each, before in zip(senders, left, strict=True)]
        assert min(taken) >= max(taken) / 2.5
        for each in senders:
            each.abort()


@on_a_loop
async def test_where_more_wait_than_there_are_least_shares_they_take_turns():
    """A thousand were 60 MB in each turn, and of three thousand some went on three times as often."""
    connections, turns = 3 * READ_ON_AT_ONCE, 9
    async with node(ServerLimits(max_queued_bytes=1024 * MIB), OPEN=OPEN) as running:
        senders = [Sender(running, framed(bytes(60_000)) * 20) for _ in range(connections)]
        await turn(senders)  # they are not known yet: the first ones take more
        others = senders[-2 * READ_ON_AT_ONCE :]
        left = [len(each.left) for each in others]
        for _ in range(turns):
            assert await turn(senders) <= 2 * PER_TURN_BYTES
        taken = [before - len(each.left) for each, before in zip(others, left, strict=True)]
        assert min(taken) >= turns // 3 * LEAST_SHARE_BYTES
        assert max(taken) <= turns // 3 * 2 * LEAST_SHARE_BYTES
        for each in senders:
            each.abort()


@on_a_loop
async def test_very_many_that_wait_once_all_go_on():
    """Though none of those that have gone on asks for another turn."""
    turns, went_on = ReadTurns(asyncio.get_running_loop()), list[int]()
    for number in range(2 * READ_ON_AT_ONCE + 1):
        turns.wait(partial(went_on.append, number))
    for of_turn in (READ_ON_AT_ONCE, 2 * READ_ON_AT_ONCE, 2 * READ_ON_AT_ONCE + 1):
        await asyncio.sleep(0)
        assert went_on == [*range(of_turn)]


@on_a_loop
async def test_who_is_stopped_by_its_share_is_not_slow():
    """A request of 60 MB beside hundreds of others was closed for ever, though its client waited for us."""
    limits = ServerLimits(max_queued_bytes=200_000, min_bytes_per_s=10 * MIB)
    async with node(limits, OPEN=OPEN) as running:
        sender = Sender(running, framed(bytes(30 * MIB)))
        connection, now = sender.connection, running.loop.time()
        assert connection.too_slow(now) is None
        await turn([sender])
        assert running.server.memory.queued["OPEN"].exhausted
        assert not sender.is_read
        assert connection.reading
        assert connection.too_slow(now) is None
        assert connection.too_slow(now + 2 * SLOW_FRAME_S) is None
        sender.left = memoryview(b"")  # it has no more when its turn has come
        await until(lambda: sender.is_read)
        assert connection.too_slow(now + SWEEP_S - 1) is None
        assert connection.too_slow(now + SWEEP_S + 1) == MIB
        sender.abort()


async def some_that_wait(running: Node) -> list[Sender]:
    senders = [Sender(running, framed(bytes(6 * MIB))) for _ in range(4)]
    await turn(senders)
    waiting = [each for each in senders if not each.is_read]
    assert len(waiting) > 1
    return waiting


@on_a_loop
async def test_who_waits_and_goes_is_read_no_more():
    async with node(OPEN=OPEN) as running:
        for each in await some_that_wait(running):
            each.abort()
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert running.server.services.read_turns.share_bytes == PER_TURN_BYTES


@on_a_loop
async def test_who_waits_for_another_reason_is_read_when_both_are_gone():
    async with node(OPEN=OPEN) as running:
        first, second = (await some_that_wait(running))[:2]
        first.connection.peer.mute(60.0)
        second.connection.peer.mute(0.0)
        await until(lambda: running.server.services.read_turns.share_bytes == PER_TURN_BYTES)
        await until(lambda: second.is_read)
        assert not first.is_read


@pytest.mark.parametrize("new_loop", [uvloop.new_event_loop, asyncio.SelectorEventLoop])
@pytest.mark.parametrize("tls", [False, True], ids=["plain", "tls"])
def test_all_arrives(tmp_path: Path, tls: bool, new_loop: Callable[[], asyncio.AbstractEventLoop]):
    security, trusting = OPEN, None
    if tls:
        authority = Authority.create(tmp_path, "ca")
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        context.load_cert_chain(authority.issue("node", "/CN=node"))
        security = ListenerSecurity(RenewableTls(context))
        trusting = ssl.create_default_context(cafile=str(authority.certificate))

    async def test() -> None:
        async with node(OPEN=security) as running:
            streams = [await running.connect("OPEN", trusting) for _ in range(8)]
            for _, writer in streams:
                writer.write(framed(bytes(MIB)) * 2)
            for reader, _ in streams:
                assert await reader.readexactly(28) == framed(bytes(10)) * 2
            assert waited

    waited: list[int] = []
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr("kraft.net.read_turns.PER_TURN_BYTES", 64 * 1024)
        take = ReadTurns.take

        def noted(turns: ReadTurns, read_bytes: int, taken: Taken) -> bool:
            waits = take(turns, read_bytes, taken)
            if waits:
                waited.append(read_bytes)
            return waits

        monkeypatch.setattr(ReadTurns, "take", noted)
        with asyncio.Runner(loop_factory=new_loop) as runner:
            runner.run(asyncio.wait_for(test(), WITHIN_S))
