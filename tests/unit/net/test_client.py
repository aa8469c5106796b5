"""The peer client's own requests: read as they come, given up when they are overdue."""

from __future__ import annotations

import asyncio

import pytest

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
