"""What of one connection is under way at once: of a client one request, and a few that wait for others."""

from __future__ import annotations

import asyncio

import pytest

from kraft.api import dispatch
from kraft.api.request_context import Role
from kraft.net.connection import ConnectionLimits
from kraft.net.connection_quotas import ListenerKind
from kraft.net.listener import ListenerSecurity
from kraft.net.peer import Peer, Reply
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from tests.unit.net.echo_node import framed, node
from tests.unit.net.harness import on_a_loop, row, serving, until

pytestmark = pytest.mark.row("P7")

MOST = ConnectionLimits().max_in_flight_tasks


@pytest.mark.parametrize("size", [0, 2 * dispatch.LONG_BODY_BYTES])
@pytest.mark.parametrize(("role", "at_once"), [(Role.BROKER, 1), (Role.CONTROLLER, 3)])
@on_a_loop
async def test_a_client_is_answered_before_what_it_asks_behind_is_begun(size: int, role: Role, at_once: int):
    """But for what waits for others, produces and fetches; nodes ask controllers many things at once."""
    gates: list[asyncio.Future[None]] = []

    async def slow(node, ctx, request):
        gates.append(node.loop.create_future())
        await gates[-1]
        return {"error_code": 0}

    async with serving(row(ApiKey.HEARTBEAT, slow), role=role) as running:
        client = await running.client()
        body = encode_request(ApiKey.HEARTBEAT, 0, {"member_id": "m" * size})
        answers = [client.send(ApiKey.HEARTBEAT, 0, (body,)) for _ in range(3)]
        await until(lambda: len(gates) == at_once)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(gates) == at_once
        for number in range(3):
            await until(lambda number=number: len(gates) > number)
            gates[number].set_result(None)
        await asyncio.gather(*answers)
        client.close()


@pytest.mark.parametrize("size", [0, 2 * dispatch.LONG_BODY_BYTES])
@on_a_loop
async def test_what_waits_for_others_holds_up_nobody_however_long_it_is(size: int):
    begun: list[int] = []

    async def waits(node, ctx, request):
        begun.append(len(request.member_id))
        await node.loop.create_future()

    async with serving(row(ApiKey.HEARTBEAT, waits, concurrent=True)) as running:
        client = await running.client()
        body = encode_request(ApiKey.HEARTBEAT, 0, {"member_id": "m" * size})
        answers = [client.send(ApiKey.HEARTBEAT, 0, (body,)) for _ in range(3)]
        await until(lambda: begun == [size] * 3)
        client.close()
        await asyncio.gather(*answers, return_exceptions=True)


@pytest.mark.parametrize(
    ("kind", "at_once"),
    [(ListenerKind.SHARED, MOST), (ListenerKind.BROKERS, 3 * MOST), (ListenerKind.CONTROLLERS, 3 * MOST)],
)
@on_a_loop
async def test_of_one_client_few_requests_wait_for_others(kind: ListenerKind, at_once: int):
    """A heartbeat of a node does not wait for what it has forwarded."""
    gates: list[asyncio.Future[None]] = []

    async def slow() -> tuple[bytes, ...]:
        gate = asyncio.get_running_loop().create_future()
        gates.append(gate)
        await gate
        return (b"done",)

    async with node(LISTENER=ListenerSecurity(listener_kind=kind)) as running:
        tasks: list[asyncio.Task[tuple[bytes, ...]]] = []

        def serve(peer: Peer, frame: memoryview) -> Reply:
            tasks.append(running.loop.create_task(slow()))
            return tasks[-1]

        running.server.services.serve = serve
        reader, writer = await running.connect("LISTENER")
        writer.write(framed(b"request") * 3 * MOST)
        await until(lambda: len(gates) == at_once)
        for _ in range(50):
            await asyncio.sleep(0)
        assert len(gates) == at_once
        for number in range(3 * MOST):
            await until(lambda number=number: len(gates) > number)
            gates[number].set_result(None)
        assert await reader.readexactly(3 * MOST * 4) == b"done" * 3 * MOST
