"""The peer client's own requests: read as they come, given up when they are overdue."""

from __future__ import annotations

import asyncio
import socket

import pytest

from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, encode_request
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
