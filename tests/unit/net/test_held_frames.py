"""What a frame takes counts for as long as somebody has it; what cannot start stays with its sender."""

from __future__ import annotations

import asyncio
import struct

import pytest

from kraft.api.context import NodeContext
from kraft.api.dispatch import LONG_BODY_BYTES
from kraft.api.request_context import RequestContext
from kraft.api.response import Response
from kraft.net.connection import SMALL_FRAME_BYTES
from kraft.net.listener import OPEN, ServerLimits
from kraft.net.peer import Peer, Reply, StartedRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, encode_request
from tests.unit.net.echo_node import framed, node
from tests.unit.net.harness import on_a_loop, row, serving, until

pytestmark = pytest.mark.row("P7")

MIB = 1024 * 1024


@on_a_loop
async def test_a_large_request_that_could_not_start_stays_with_its_sender():
    """Else a fetch that waits for ever, and 100 MB behind it, take what others need."""
    waits = b"\x00\x01 waits"
    async with node(ServerLimits(max_queued_bytes=4 * MIB), OPEN=OPEN) as running:
        first: list[asyncio.Future[tuple[bytes, ...]]] = []

        def serve(peer: Peer, frame: memoryview) -> Reply:
            if frame == waits:
                first.append(running.loop.create_future())
                return first[0]
            return (framed(bytes(frame[:10])),)

        running.server.services.serve = serve
        running.server.services.is_exclusive = lambda api_key: api_key == ApiKey.FETCH
        reader, writer = await running.connect("OPEN")
        writer.write(framed(waits))
        await until(lambda: first)
        large = waits[:2] + bytes(8 * MIB)
        writer.write(framed(large))
        (connection,) = running.server.connections
        await until(lambda: not connection.reading)
        budget = running.server.memory.queued["OPEN"]
        assert budget.used_bytes < 2 * MIB
        other = await running.connect("OPEN")
        other[1].write(framed(bytes(MIB)))
        assert await other[0].readexactly(14) == framed(bytes(10))
        first[0].set_result((framed(b"done"),))
        assert await reader.readexactly(8) == framed(b"done")
        assert await reader.readexactly(14) == framed(large[:10])
        assert budget.used_bytes == 0


@on_a_loop
async def test_a_frame_that_somebody_keeps_counts_when_its_connection_has_gone():
    kept: list[StartedRequest] = []
    async with node(OPEN=OPEN) as running:

        def serve(peer: Peer, frame: memoryview) -> Reply:
            kept.append(peer.started())
            kept[-1].keep()
            kept[-1].charge(1000)
            return running.loop.create_future()

        running.server.services.serve = serve
        _, writer = await running.connect("OPEN")
        writer.write(framed(bytes(MIB)))
        budget = running.server.memory.queued["OPEN"]
        await until(lambda: budget.used_bytes == MIB + 1000)
        writer.transport.abort()
        await until(lambda: not len(running.server.connections))
        assert budget.used_bytes == MIB
        kept[0].let_go()
        assert budget.used_bytes == 0
        kept[0].let_go()
        assert budget.used_bytes == 0


@on_a_loop
async def test_a_frame_that_is_let_go_counts_no_longer_though_its_request_waits():
    waiting: list[asyncio.Future[tuple[bytes, ...]]] = []
    async with node(OPEN=OPEN) as running:

        def serve(peer: Peer, frame: memoryview) -> Reply:
            started = peer.started()
            started.keep()
            started.charge(1000)
            started.let_go()
            waiting.append(running.loop.create_future())
            return waiting[-1]

        running.server.services.serve = serve
        reader, writer = await running.connect("OPEN")
        writer.write(framed(bytes(MIB)))
        await until(lambda: waiting)
        budget = running.server.memory.queued["OPEN"]
        assert budget.used_bytes == 1000
        waiting[0].set_result((framed(b"done"),))
        assert await reader.readexactly(8) == framed(b"done")
        assert budget.used_bytes == 0


@on_a_loop
async def test_of_a_request_that_waits_nothing_counts_but_what_it_was_decoded_to():
    """Bytes behind a message are left alone: a member that joins may send megabytes of them, and wait."""
    begun: list[asyncio.Future[None]] = []

    async def waits(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
        begun.append(node.loop.create_future())
        await begun[0]
        return {"error_code": 0}

    async with serving(row(ApiKey.HEARTBEAT, waits, concurrent=True)) as running:
        client = await running.client()
        fields = {"member_id": "m" * 3 * LONG_BODY_BYTES}
        body = encode_request(ApiKey.HEARTBEAT, 0, fields) + bytes(SMALL_FRAME_BYTES - 4 * LONG_BODY_BYTES)
        answer = client.send(ApiKey.HEARTBEAT, 0, (body,))
        budget = running.server.memory.queued["PLAINTEXT"]
        await until(lambda: begun)
        assert budget.used_bytes < 4 * LONG_BODY_BYTES
        begun[0].set_result(None)
        await answer
        assert budget.used_bytes == 0
        client.close()


@on_a_loop
async def test_who_waits_for_room_and_goes_is_forgotten():
    async with node(ServerLimits(max_queued_bytes=MIB), OPEN=OPEN) as running:
        budget = running.server.memory.queued["OPEN"]
        budget.take(2 * MIB)  # somebody has it
        _, writer = await running.connect("OPEN")
        writer.write(struct.pack(">i", MIB) + b"x")
        await until(lambda: budget.waiting)
        for connection in running.server.connections:
            connection.abort()
        await until(lambda: not len(running.server.connections))
        assert budget.waiting == 0


@on_a_loop
async def test_who_goes_while_nobody_reads_is_noticed():
    """It asks for something that never comes, and for more behind it: nothing is read, no end either."""
    async with node(ServerLimits(max_idle_s=0.1), OPEN=OPEN) as running:
        running.server.services.is_exclusive = lambda api_key: True
        _, staying = await running.connect("OPEN")
        _, going = await running.connect("OPEN")
        for writer in (staying, going):
            writer.write(framed(b"wait") + framed(b"more"))
        await until(lambda: len(running.waiting) == 2)
        first, second = running.server.connections
        await until(lambda: not first.reading and not second.reading)
        going.close()
        await until(lambda: len(running.server.connections) == 1)
        assert list(running.server.connections) == [first]
        for each in running.waiting:
            each.set_result((framed(b"done"),))


@on_a_loop
async def test_what_came_before_the_end_is_read_when_a_quota_allows_it(monkeypatch: pytest.MonkeyPatch):
    """Who produces with acks=0 goes when it has sent all: nothing that it sent is lost for that."""
    monkeypatch.setattr("kraft.net.connections.SWEEP_S", 0.01)
    served: list[bytes] = []
    async with node(OPEN=OPEN) as running:

        def serve(peer: Peer, frame: memoryview) -> Reply:
            served.append(bytes(frame[:4]))
            if len(served) == 1:
                peer.mute(0.2)  # for many sweeps
            return ()

        running.server.services.serve = serve
        _, writer = await running.connect("OPEN")
        writer.write(framed(b"1st."))
        await until(lambda: served)
        writer.write(framed(b"2nd."))
        writer.close()
        await until(lambda: not len(running.server.connections))
        assert served == [b"1st.", b"2nd."]


@on_a_loop
async def test_what_waits_for_a_quota_keeps_its_connection_for_no_longer_than_an_idle_one():
    """A quota of a byte a second shuts a client out for days: it gives up and comes again, and each time its
    pipelined requests would keep one more connection."""
    async with node(ServerLimits(max_idle_s=0.1), OPEN=OPEN) as running:
        served: list[bytes] = []

        def serve(peer: Peer, frame: memoryview) -> Reply:
            served.append(bytes(frame[:4]))
            peer.mute(100_000.0)
            return ()

        running.server.services.serve = serve
        _, writer = await running.connect("OPEN")
        writer.write(framed(b"1st.") + framed(b"2nd."))
        await until(lambda: served)
        (connection,) = running.server.connections
        assert connection.waiting_requests == 1
        writer.close()
        await until(lambda: not len(running.server.connections))
        assert served == [b"1st."]
        assert running.server.memory.queued["OPEN"].used_bytes == 0
