"""Replies that come later without a future, and replies that leave together."""

from __future__ import annotations

import asyncio
import struct
from collections.abc import Iterable
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.row import ApiRow
from kraft.net.connection import ConnectionLimits, ProtocolError
from kraft.net.delayed_reply import DelayedReply
from kraft.net.listener import OPEN, ServerLimits
from kraft.net.reply_turns import PER_TURN
from kraft.net.server import Server
from kraft.net.server_connection import ServerConnection
from kraft.wire.api_keys import ApiKey
from tests.unit.net.harness import closes, on_a_loop, request_frame, response, serving, until

VERSION = 3


class Delayed:
    """A handler that answers when its test says so."""

    def __init__(self) -> None:
        self.replies: list[tuple[Any, DelayedReply]] = []
        self.rows = {
            ApiKey.PRODUCE: ApiRow(ApiKey.PRODUCE, (3, 13), (), raw_broker=self.later),
            ApiKey.FETCH: ApiRow(ApiKey.FETCH, (4, 18), (), raw_broker=self.at_once),
        }

    def later(self, broker: Any, ctx: Any, body: memoryview) -> DelayedReply:
        reply = DelayedReply()
        self.replies.append((ctx, reply))
        return reply

    def at_once(self, broker: Any, ctx: Any, body: memoryview) -> Any:
        return ctx.framed((b"now",))

    def settle(self, place: int) -> None:
        ctx, reply = self.replies[place]
        reply.settle(lambda: ctx.framed((b"later",)))


class Writes(asyncio.Transport):
    """The transport of a connection to nobody: what it writes, call by call."""

    def __init__(self, server: Server) -> None:
        super().__init__({"peername": ("127.0.0.1", 1), "socket": SimpleNamespace(fileno=lambda: 0)})
        self.written: list[bytes] = []
        self._connection = ServerConnection(server.services, "PLAINTEXT", OPEN)
        self._connection.connection_made(self)

    def send(self, frames: Iterable[bytes]) -> None:
        """As if the other end had sent them all at once."""
        data = b"".join(frames)
        self._connection.get_buffer(-1)[: len(data)] = data
        self._connection.buffer_updated(len(data))

    def end(self) -> None:
        self._connection.connection_lost(None)

    def write(self, data: Any) -> None:
        self.written.append(bytes(data))

    def writelines(self, list_of_data: Any) -> None:
        self.write(b"".join(list_of_data))

    def is_closing(self) -> bool:
        return False

    def pause_reading(self) -> None:
        pass

    def resume_reading(self) -> None:
        pass

    def set_write_buffer_limits(self, high: int | None = None, low: int | None = None) -> None:
        pass


def correlation_ids(written: bytes) -> list[int]:
    found, pos = [], 0
    while pos < len(written):
        size, each = struct.unpack_from(">ii", written, pos)
        found.append(each)
        pos += 4 + size
    return found


def correlation_id(frame: bytes) -> int:
    return int(struct.unpack_from(">i", frame)[0])


@on_a_loop
async def test_they_leave_in_the_order_of_their_requests_and_with_one_write():
    delayed = Delayed()
    async with serving(delayed.rows) as running:
        client = Writes(running.server)
        client.send(
            [request_frame(ApiKey.PRODUCE, VERSION, 0)]
        )  # the first of a version waits for its schema
        await until(lambda: delayed.replies)
        client.send(request_frame(ApiKey.PRODUCE, VERSION, each) for each in range(1, 20))
        assert len(delayed.replies) == 20
        for place in reversed(range(1, 20)):
            delayed.settle(place)
        for _ in range(5):
            await asyncio.sleep(0)
        assert not client.written
        delayed.settle(0)
        assert not client.written  # whoever settles it may be in the midst of another connection's request
        await until(lambda: client.written)
        (together,) = client.written
        assert correlation_ids(together) == list(range(20))
        client.end()


@on_a_loop
async def test_replies_that_are_there_at_once_leave_with_one_write():
    delayed = Delayed()
    async with serving(delayed.rows) as running:
        client = Writes(running.server)
        client.send([request_frame(ApiKey.FETCH, 4, 0)])
        await until(lambda: client.written)
        client.send(request_frame(ApiKey.FETCH, 4, each) for each in range(20))
        assert correlation_ids(client.written[1]) == list(range(20))
        client.end()


@pytest.mark.row("P7")
@on_a_loop
async def test_very_many_connections_that_wait_for_the_same_are_answered_some_per_turn():
    delayed = Delayed()
    async with serving(delayed.rows) as running:
        clients = [Writes(running.server) for _ in range(2 * PER_TURN + 1)]
        clients[0].send([request_frame(ApiKey.PRODUCE, VERSION, 0)])
        await until(lambda: delayed.replies)
        for client in clients[1:]:
            client.send([request_frame(ApiKey.PRODUCE, VERSION, 0)])
        await until(lambda: len(delayed.replies) == len(clients))
        for place in range(len(clients)):
            delayed.settle(place)
        before = 0
        while before < len(clients):
            await asyncio.sleep(0)
            written = [bool(client.written) for client in clients]
            assert sum(written) <= before + PER_TURN
            before = sum(written)
            assert all(written[:before])
        for client in clients:
            client.end()


@pytest.mark.row("P7")
@on_a_loop
async def test_more_requests_than_may_be_unanswered_are_all_answered():
    delayed = Delayed()
    limits = ServerLimits(connection=ConnectionLimits(max_in_flight_requests=4, max_in_flight_bytes=64))
    async with serving(delayed.rows, limits) as running:
        reader, writer = await running.raw()
        writer.write(b"".join(request_frame(ApiKey.FETCH, 4, each) for each in range(1000)))
        assert [correlation_id(await response(reader)) for _ in range(1000)] == list(range(1000))
        writer.close()


@on_a_loop
async def test_what_was_answered_before_an_error_still_leaves():
    delayed = Delayed()
    async with serving(delayed.rows) as running:
        reader, writer = await running.raw()
        writer.write(request_frame(ApiKey.FETCH, 4, 1) + request_frame(99, 0, 2))
        assert correlation_id(await response(reader)) == 1
        assert await closes(reader)
        writer.close()


@on_a_loop
async def test_an_error_in_making_one_ends_its_connection():
    delayed = Delayed()
    async with serving(delayed.rows) as running:
        reader, writer = await running.raw()
        writer.write(request_frame(ApiKey.PRODUCE, VERSION))
        await until(lambda: delayed.replies)

        def refused() -> Any:
            raise ProtocolError("no")

        delayed.replies[0][1].settle(refused)
        assert await closes(reader)
        delayed.settle(0)  # too late: nothing happens
        writer.close()


@on_a_loop
async def test_a_coroutine_can_wait_for_one():
    loop = asyncio.get_running_loop()
    reply = DelayedReply()
    loop.call_soon(reply.settle, lambda: (b"x",))
    assert await reply.wait(loop) == (b"x",)
    assert await reply.wait(loop) == (b"x",)
