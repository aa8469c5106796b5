"""The peer client's own requests: read as they come, given up when they are overdue."""

from __future__ import annotations

import asyncio
import socket
import struct

import pytest
import uvloop

from kraft.net.client import Address, PeerClient
from kraft.net.connection import CUT_AT_ONCE
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, encode_request
from metadata_quorum.foundation.primitives import uvarint
from tests.unit.net.harness import on_a_loop, row, serving

BODY = encode_request(ApiKey.HEARTBEAT, 0, {})


async def never(node, ctx, request):
    await node.loop.create_future()


def at_once(node, ctx, request):
    return {"error_code": 7}


@on_a_loop
async def test_an_answer_is_read_where_it_comes_in():
    async with serving(row(ApiKey.HEARTBEAT, at_once)) as running:
        client = await running.client()
        code = client.ask(ApiKey.HEARTBEAT, 0, (BODY,), lambda body: int.from_bytes(body, "big"), 10.0)
        assert await code == 7
        client.close()


@on_a_loop
async def test_very_many_answers_that_come_together_are_all_read():
    """And not with what comes next, which may be nothing."""
    many, is_over = 3 * CUT_AT_ONCE, asyncio.Event()

    async def answer_together(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        answers = b""
        for _ in range(many):
            request = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
            answers += struct.pack(">i", 6) + request[4:8] + b"\0\7"
        writer.write(answers)
        await reader.read()
        writer.close()
        await writer.wait_closed()
        is_over.set()

    server = await asyncio.start_server(answer_together, "127.0.0.1", 0)
    async with server:
        client = await PeerClient.connect(
            asyncio.get_running_loop(), Address(*server.sockets[0].getsockname()), "c"
        )
        asked = [client.ask(ApiKey.HEARTBEAT, 0, (BODY,), bytes, 2.0) for _ in range(many)]
        assert await asyncio.gather(*asked) == [b"\0\7"] * many
        client.close()
        await is_over.wait()


@pytest.mark.parametrize("loop", [asyncio.new_event_loop, uvloop.new_event_loop])
@pytest.mark.parametrize(
    ("host", "port"),
    [("a..b", 9092), ("x" * 300, 9092), ("\0", 9092), ("\ud800", 9092), ("127.0.0.1", 70_000)],
)
def test_what_is_no_address_is_nobodys(loop, host: str, port: int):
    """A broker may register any: who dials it gets an OSError, as from one that is away."""

    async def dial() -> None:
        await PeerClient.connect(asyncio.get_running_loop(), Address(host, port), "c")

    with asyncio.Runner(loop_factory=loop) as runner, pytest.raises(OSError) as refused:
        runner.run(dial())
    assert str(refused.value).isprintable()


@on_a_loop
async def test_an_overdue_answer_ends_the_connection():
    async with serving(row(ApiKey.HEARTBEAT, never)) as running:
        client = await running.client()
        patient = client.ask(ApiKey.HEARTBEAT, 0, (BODY,), bytes, 60.0)
        hasty = client.ask(ApiKey.HEARTBEAT, 0, (BODY,), bytes, 0.01)
        with pytest.raises(TimeoutError):
            await client.ask(ApiKey.HEARTBEAT, 0, (BODY,), bytes, 0.02)
        outcomes = await asyncio.gather(patient, hasty, return_exceptions=True)
        assert all(isinstance(outcome, TimeoutError) for outcome in outcomes)
        assert not client.connected


@on_a_loop
async def test_the_time_of_a_request_goes_on_where_its_caller_has_gone():
    """What comes behind it waits for its response, too."""
    async with serving(row(ApiKey.HEARTBEAT, never)) as running:
        client = await running.client()
        hasty = asyncio.ensure_future(client.exchange(ApiKey.HEARTBEAT, 0, (BODY,), 0.05))
        await asyncio.sleep(0)
        assert client.is_waiting
        hasty.cancel()
        await asyncio.gather(hasty, return_exceptions=True)
        assert (client.is_waiting, client.connected) == (False, True)
        patient = client.ask(ApiKey.HEARTBEAT, 0, (BODY,), bytes, 60.0)
        assert client.is_waiting
        await asyncio.wait({patient}, timeout=5.0)
        assert (patient.done(), client.connected) == (True, False)
        assert isinstance(patient.exception(), TimeoutError)


@on_a_loop
async def test_an_answer_that_cannot_be_read_ends_the_connection():
    def refuse(body: memoryview) -> None:
        raise MalformedMessage("not what was asked for")

    async with serving(row(ApiKey.HEARTBEAT, at_once)) as running:
        client = await running.client()
        with pytest.raises(ConnectionResetError, match="not what was asked for"):
            await client.ask(ApiKey.HEARTBEAT, 0, (BODY,), refuse, 10.0)
        assert not client.connected


@on_a_loop
async def test_a_request_that_was_given_up_does_not_arrive_later():
    """A peer that cannot be reached for a time: what it did not take before the time was up is not delivered
    when it can, behind what was sent instead."""
    loop = asyncio.get_running_loop()
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        listener.setblocking(False)
        client = await PeerClient.connect(loop, Address(*listener.getsockname()), "c")
        deaf, _ = await loop.sock_accept(listener)
        with deaf:
            sent = 100_000
            with pytest.raises(TimeoutError):
                await client.ask(ApiKey.HEARTBEAT, 0, (bytes(sent),), bytes, 0.05)
            came = await taken(deaf)
            assert 0 < came < sent


async def taken(connection: socket.socket) -> int:
    """How many bytes come before it ends."""
    came = 0
    try:
        while received := await asyncio.get_running_loop().sock_recv(connection, 65_536):
            came += len(received)
    except ConnectionResetError:
        pass
    return came


@on_a_loop
async def test_a_connection_to_another_node_takes_no_buffer_of_its_own_to_receive_into():
    """A broker of fifty has a hundred of them, and one that is down is dialled again and again."""
    async with serving(row(ApiKey.HEARTBEAT, at_once)) as running:
        clients = [await running.client() for _ in range(3)]
        assert len({id(client.get_buffer(-1).obj) for client in clients}) == 1
        for client in clients:
            assert (
                await client.ask(ApiKey.HEARTBEAT, 0, (BODY,), lambda body: bytes(body[:2]), 10.0) == b"\0\7"
            )
            client.close()


@on_a_loop
async def test_an_answer_that_would_take_much_more_when_decoded_is_refused():
    rows = 1000  # of seven bytes in the frame
    body = b"\0\0" + uvarint(rows + 1) + bytes(7 * rows)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        request = await reader.readexactly(struct.unpack(">i", await reader.readexactly(4))[0])
        writer.write(struct.pack(">i", 4 + len(body)) + request[4:8] + body)
        await reader.read()
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        address = Address(*server.sockets[0].getsockname())
        client = await PeerClient.connect(
            asyncio.get_running_loop(), address, "c", max_response_bytes=len(body) + 4
        )
        with pytest.raises(MalformedMessage, match="would take more than"):
            await client.negotiate()
        client.close()
