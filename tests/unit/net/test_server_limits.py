"""What a connection may make a server hold, above all one that has not logged in."""

from __future__ import annotations

import asyncio
import resource
import ssl
import struct
from pathlib import Path

import pytest

from kraft.local.certificates import Authority
from kraft.local.free_ports import HOST
from kraft.net.acceptor import BEGUN_AT_ONCE
from kraft.net.budget import Account, Budget
from kraft.net.connection import FIRST_BUFFER_BYTES, SMALL_FRAME_BYTES, ConnectionLimits
from kraft.net.connection_quotas import ListenerKind, MaxConnections, handles_for_clients
from kraft.net.connections import SWEEP_S
from kraft.net.frame_rate import SLOW_FRAME_S
from kraft.net.listener import OPEN, ListenerSecurity, ServerLimits
from kraft.net.renewable_tls import RenewableTls
from kraft.net.unread import LEAST_BYTES
from tests.unit.net.echo_node import Streams, framed, node
from tests.unit.net.harness import closes, on_a_loop, until

pytestmark = pytest.mark.row("P7")

LOGIN = ListenerSecurity(asks_login=True)
MIB = 1024 * 1024
CLIENTS_AT_ONCE = 60


def whole_second(loop: asyncio.AbstractEventLoop) -> float:
    """About now; a sum with it less itself is what was added, which sums of fractions may miss."""
    return float(round(loop.time()))


async def answered(streams: Streams, frame: bytes) -> bool:
    reader, writer = streams
    writer.write(framed(frame))
    answer = framed(frame[:10])
    try:
        return await reader.readexactly(len(answer)) == answer
    except (asyncio.IncompleteReadError, ConnectionError):
        return False


@on_a_loop
async def test_a_large_frame_is_for_those_who_have_logged_in():
    small = ServerLimits(
        connection=ConnectionLimits(max_frame_bytes=10_000, max_frame_bytes_before_login=100)
    )
    async with node(small, SASL=LOGIN) as running:
        stranger, known = await running.connect("SASL"), await running.connect("SASL")
        assert await answered(stranger, b"x" * 100)
        assert not await answered(stranger, b"x" * 101)
        assert await answered(known, b"login")
        assert await answered(known, b"x" * 10_000)
        assert not await answered(known, b"x" * 10_001)


@on_a_loop
async def test_what_strangers_hold_is_apart_from_what_others_hold():
    limits = ServerLimits(max_queued_bytes=MIB, max_queued_bytes_before_login=200_000)
    async with node(limits, SASL=LOGIN) as running:
        unauthenticated = [await running.connect("SASL") for _ in range(3)]
        for _, writer in unauthenticated:
            writer.write(struct.pack(">i", 300_000) + b"x")
        await until(lambda: running.server.memory.queued_before_login.exhausted)
        assert running.server.memory.queued["SASL"].used_bytes == 0
        known = await running.connect("SASL")
        assert await answered(known, b"login")
        assert await answered(known, b"x" * (SMALL_FRAME_BYTES + 1))
        for _, writer in unauthenticated:
            writer.close()
        await until(lambda: running.server.memory.queued_before_login.used_bytes == 0)


@on_a_loop
async def test_who_logs_in_with_a_request_under_way_is_counted_where_it_belongs():
    async with node(SASL=LOGIN) as running:
        reader, writer = await running.connect("SASL")
        writer.write(framed(b"wait"))
        await until(lambda: running.waiting)
        assert running.server.memory.queued_before_login.used_bytes == 4
        writer.write(framed(b"login"))
        (connection,) = running.server.connections
        await until(lambda: connection.peer.authenticated)
        assert running.server.memory.queued_before_login.used_bytes == 4
        writer.write(framed(b"more"))
        await until(lambda: running.server.memory.queued_before_login.used_bytes == 0)
        running.waiting[0].set_result((framed(b"done"),))
        assert await reader.readexactly(8 + 9 + 8) == framed(b"done") + framed(b"login") + framed(b"more")
        assert running.server.memory.queued["SASL"].used_bytes == 0


@on_a_loop
async def test_claims_that_nothing_follows_hold_nobody_up():
    limits = ServerLimits(max_queued_bytes=256 * MIB)
    async with node(limits, OPEN=OPEN) as running:
        for _ in range(3):
            _, writer = await running.connect("OPEN")
            writer.write(struct.pack(">i", 100 * MIB) + b"x")
        await until(lambda: running.server.memory.queued["OPEN"].used_bytes)
        assert running.server.memory.queued["OPEN"].used_bytes <= 3 * FIRST_BUFFER_BYTES
        assert await answered(await running.connect("OPEN"), b"x" * MIB)


@on_a_loop
async def test_what_happens_on_one_listener_holds_up_nobody_on_another():
    async with node(ServerLimits(max_queued_bytes=MIB), OPEN=OPEN, CONTROLLER=OPEN) as running:
        _, writer = await running.connect("OPEN")
        writer.write(struct.pack(">i", MIB) + b"x")
        await until(lambda: running.server.memory.queued["OPEN"].exhausted)
        assert await answered(await running.connect("CONTROLLER"), b"x" * MIB)


@on_a_loop
async def test_what_a_request_becomes_is_counted_until_it_is_answered():
    async with node(OPEN=OPEN) as running:
        running.charge = 5_000_000
        reader, writer = await running.connect("OPEN")
        writer.write(framed(b"wait"))
        await until(lambda: running.waiting)
        assert running.server.memory.queued["OPEN"].used_bytes == 5_000_004
        running.waiting[0].set_result((framed(b"done"),))
        await reader.readexactly(8)
        assert running.server.memory.queued["OPEN"].used_bytes == 0
        running.charge = 0


@on_a_loop
async def test_answers_that_nobody_reads_leave_smaller_pieces_for_the_next_ones():
    limits = ServerLimits(max_unread_bytes=100 * MIB, max_idle_s=60.0)
    async with node(limits, OPEN=OPEN) as running:
        unread = running.server.memory.unread
        assert unread.piece_bytes() == MIB
        answer = b"x" * (30 * MIB)
        clients = [await running.connect("OPEN") for _ in range(4)]
        for _, writer in clients[:3]:
            writer.write(framed(b"wait"))
            await until(lambda: running.waiting)
            running.waiting.pop().set_result((answer,))
        await until(lambda: unread.held_bytes == 3 * len(answer))
        assert LEAST_BYTES < unread.piece_bytes() < MIB
        _, writer = clients[3]
        writer.write(framed(b"wait"))
        await until(lambda: running.waiting)
        running.waiting.pop().set_result((answer,))
        await until(lambda: unread.piece_bytes() == LEAST_BYTES)
        now = whole_second(running.loop)
        deaf: list[bool] = []

        def look() -> list[bool]:
            deaf[:] = [each.is_deaf(now) for each in running.server.connections]
            return deaf

        await until(lambda: sum(look()) == 4)  # the system has taken what it takes
        await clients[0][0].readexactly(20 * MIB)
        assert sum(look()) < 4
        for each in list(running.server.connections):
            each.abort()
        await until(lambda: not running.server.connections)
        assert unread.held_bytes == 0
        assert unread.piece_bytes() == MIB


@on_a_loop
async def test_a_frame_that_trickles_loses_its_connection():
    async with node(ServerLimits(min_bytes_per_s=100), OPEN=OPEN) as running:
        reader, writer = await running.connect("OPEN")
        writer.write(struct.pack(">i", 1_000_000) + b"x" * 1000)
        await until(lambda: running.server.memory.queued["OPEN"].used_bytes)
        (connection,) = running.server.connections
        now = whole_second(running.loop)
        assert connection.too_slow(now) is None
        assert connection.too_slow(now + SLOW_FRAME_S - 1) is None
        writer.write(b"x" * 3001)
        await until(lambda: connection.progress.came_bytes == 4001)
        assert connection.too_slow(now + SLOW_FRAME_S) is None
        writer.write(b"x" * 2999)
        await until(lambda: connection.progress.came_bytes == 7000)
        assert connection.too_slow(now + 2 * SLOW_FRAME_S) == 100
        connection.abort()
        assert await closes(reader)


@on_a_loop
async def test_a_frame_that_nobody_reads_does_not_trickle():
    async with node(ServerLimits(min_bytes_per_s=100), OPEN=OPEN) as running:
        _, writer = await running.connect("OPEN")
        writer.write(struct.pack(">i", 1_000_000) + b"x" * 1000)
        await until(lambda: running.server.memory.queued["OPEN"].used_bytes)
        (connection,) = running.server.connections
        now = whole_second(running.loop)
        assert connection.too_slow(now) is None
        connection.peer.mute(0.001)  # a quota
        assert connection.too_slow(now + SLOW_FRAME_S) is None
        await until(lambda: connection.reading)
        assert connection.too_slow(now + 2 * SLOW_FRAME_S) is None  # looked at again


@on_a_loop
async def test_while_memory_is_short_a_large_frame_must_come_quickly():
    async with node(ServerLimits(max_queued_bytes=200_000), OPEN=OPEN) as running:
        _, writer = await running.connect("OPEN")
        writer.write(struct.pack(">i", MIB) + b"x")
        await until(lambda: running.server.memory.queued["OPEN"].exhausted)
        (connection,) = running.server.connections
        now = whole_second(running.loop)
        assert connection.too_slow(now) is None
        assert connection.too_slow(now + SWEEP_S) == MIB


@on_a_loop
async def test_while_memory_is_short_a_large_frame_is_not_held_up_for_long():
    """Its client waits for an answer that it keeps away by itself, and others for the room."""
    async with node(ServerLimits(max_queued_bytes=200_000), OPEN=OPEN) as running:
        _, writer = await running.connect("OPEN")
        most = b"x" * (MIB // 2)
        writer.write(framed(b"wait") + struct.pack(">i", MIB) + most)
        await until(lambda: running.server.memory.queued["OPEN"].exhausted)
        (connection,) = running.server.connections
        await until(lambda: connection.progress.came_bytes == len(most))
        connection.peer.mute(60.0)
        assert not connection.reading
        now = whole_second(running.loop)
        assert connection.too_slow(now) is None
        assert connection.too_slow(now + SWEEP_S) is None
        assert connection.too_slow(now + SLOW_FRAME_S) == MIB


@on_a_loop
async def test_a_frame_that_is_not_read_for_a_time_leaves_the_rest_of_its_room_to_others():
    """A hundred and forty who were over their quota held up all others for half a minute, by six bytes."""
    async with node(ServerLimits(max_queued_bytes=MIB), OPEN=OPEN) as running:
        budget = running.server.memory.queued["OPEN"]
        reader, writer = await running.connect("OPEN")
        frame = bytes(range(256)) * 5000
        writer.write(struct.pack(">i", len(frame)) + frame[:1000])
        await until(lambda: budget.exhausted)
        (connection,) = running.server.connections
        await until(lambda: connection.progress.came_bytes == 1000)
        connection.peer.mute(0.001)
        assert budget.used_bytes == 1000
        other = Account(budget)
        other.take(MIB)
        assert budget.may_continue(other, MIB)
        await until(lambda: budget.waiting)
        assert not connection.reading, "it needs the budget again"
        other.give_back(MIB)
        assert connection.reading
        assert budget.used_bytes == len(frame), "what is to come counts before it comes"
        writer.write(frame[1000:])
        assert await reader.readexactly(14) == framed(frame[:10])
        assert budget.used_bytes == 0


def test_who_exceeds_does_so_until_its_frame_is_served():
    """A small answer on its connection does not let the next one exceed, too."""
    budget = Budget(MIB)
    first, second = Account(budget), Account(budget)
    first.take(100)
    first.take(2 * MIB)
    assert budget.may_continue(first, 2 * MIB)
    first.take(2 * MIB)
    first.give_back(100)
    second.take(100)
    assert not budget.may_continue(second, 100)
    assert budget.may_continue(first, 4 * MIB)
    first.give_back(4 * MIB)
    assert budget.may_continue(second, 100)


@on_a_loop
async def test_an_address_has_so_many_connections():
    async with node(ServerLimits(max_connections=MaxConnections(of_one_host=2)), OPEN=OPEN) as running:
        first, second = await running.connect("OPEN"), await running.connect("OPEN")
        third, _ = await running.connect("OPEN")
        assert await closes(third)
        first[1].close()
        await until(lambda: len(running.server.connections) == 1)
        assert await answered(await running.connect("OPEN"), b"welcome")
        assert await answered(second, b"still here")


@on_a_loop
async def test_an_address_may_have_a_limit_of_its_own():
    limits = ServerLimits(max_connections=MaxConnections(of_one_host=5, of_hosts={HOST: 1, "::1": 9}))
    async with node(limits, OPEN=OPEN) as running:
        assert await answered(await running.connect("OPEN"), b"welcome")
        second, _ = await running.connect("OPEN")
        assert await closes(second)
        running.server.connections.limits = ServerLimits(
            max_connections=MaxConnections(of_one_host=0, of_hosts={HOST: 2})
        )
        assert await answered(await running.connect("OPEN"), b"welcome")


CLIENTS, BROKERS = ListenerSecurity(), ListenerSecurity(listener_kind=ListenerKind.BROKERS)
CONTROLLERS = ListenerSecurity(listener_kind=ListenerKind.CONTROLLERS)


@on_a_loop
async def test_clients_leave_files_to_the_node_itself():
    limits = ServerLimits(
        max_connections=MaxConnections(handles=0), max_controller_connections=MaxConnections(handles=0)
    )
    async with node(limits, CLIENTS=CLIENTS, BROKERS=BROKERS, CONTROLLERS=CONTROLLERS) as running:
        refused, _ = await running.connect("CLIENTS")
        assert await closes(refused)
        assert await answered(await running.connect("BROKERS"), b"of a broker")
        assert await answered(await running.connect("CONTROLLERS"), b"of a controller")
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    assert 0 < handles_for_clients() < soft


@on_a_loop
async def test_clients_cannot_keep_brokers_and_controllers_apart():
    doors = {"CLIENTS": CLIENTS, "BROKERS": BROKERS, "CONTROLLERS": CONTROLLERS}
    async with node(ServerLimits(max_connections=MaxConnections(2)), **doors) as running:
        idle, busy = await running.connect("CLIENTS"), await running.connect("CLIENTS")
        assert await answered(idle, b"first")
        assert await answered(busy, b"later")
        refused, _ = await running.connect("CLIENTS")
        assert await closes(refused)
        assert await answered(await running.connect("CONTROLLERS"), b"vote")
        assert await answered(await running.connect("BROKERS"), b"fetch")
        assert await closes(idle[0])
        assert await answered(busy, b"still here")
        running.server.connections.limits = ServerLimits(max_connections=MaxConnections(0, 0))
        assert await answered(await running.connect("CONTROLLERS"), b"undo")


@on_a_loop
async def test_controllers_have_a_limit_of_their_own():
    limits = ServerLimits(max_controller_connections=MaxConnections(1))
    async with node(limits, CLIENTS=CLIENTS, CONTROLLERS=CONTROLLERS) as running:
        assert await answered(await running.connect("CONTROLLERS"), b"vote")
        refused, _ = await running.connect("CONTROLLERS")
        assert await closes(refused)
        assert await answered(await running.connect("CLIENTS"), b"welcome")


def test_handshakes_are_connections(tmp_path: Path):
    authority = Authority.create(tmp_path, "ca")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("node", "/CN=node"))
    trusting = ssl.create_default_context(cafile=str(authority.certificate))

    @on_a_loop
    async def test():
        async with node(
            ServerLimits(max_connections=MaxConnections(2)), TLS=ListenerSecurity(RenewableTls(context))
        ) as running:
            silent = [await running.connect("TLS") for _ in range(2)]
            await until(lambda: running.server.connections.counts[ListenerKind.SHARED].total == 2)
            refused, _ = await running.connect("TLS")
            assert await closes(refused)
            for _, writer in silent:
                writer.close()
            await until(lambda: not running.server.connections.counts[ListenerKind.SHARED].total)
            known = await running.connect("TLS", trusting)
            assert await answered(known, b"welcome")
            assert len(running.server.connections) == 1
            nonsense, writer = await running.connect("TLS")
            writer.write(framed(b"no handshake"))
            await nonsense.read()
            await until(lambda: running.server.connections.counts[ListenerKind.SHARED].total == 1)
            assert await answered(known, b"welcome")
            known[1].close()
            await until(lambda: not running.server.connections)

    test()


def test_of_handshakes_that_come_together_few_are_begun_in_one_turn(tmp_path: Path):
    """Each takes a signature: those of a thousand clients took half a second."""
    authority = Authority.create(tmp_path, "ca")
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    context.load_cert_chain(authority.issue("node", "/CN=node"))
    trusting = ssl.create_default_context(cafile=str(authority.certificate))

    @on_a_loop
    async def test():
        async with node(TLS=ListenerSecurity(RenewableTls(context))) as running:
            silent = [await running.connect("TLS") for _ in range(CLIENTS_AT_ONCE)]
            await until(
                lambda: running.server.connections.counts[ListenerKind.SHARED].total == CLIENTS_AT_ONCE
            )
            assert running.server.begun_handshakes == 0, "who says nothing has no turn"
            for _, writer in silent:
                writer.write(b"no handshake, but enough of it")
            for _ in range(10 * CLIENTS_AT_ONCE):
                before = running.server.begun_handshakes
                await asyncio.sleep(0)
                assert running.server.begun_handshakes <= before + 2 * BEGUN_AT_ONCE
            await until(lambda: not running.server.connections.counts[ListenerKind.SHARED].total)
            assert running.server.begun_handshakes == CLIENTS_AT_ONCE
            assert await answered(await running.connect("TLS", trusting), b"welcome")

    test()
