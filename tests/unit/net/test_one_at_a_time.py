"""What of one connection is under way at once: of a client one request, and a few that wait for others."""

from __future__ import annotations

import asyncio

import pytest

from kraft.api import dispatch
from kraft.api.long_work import AT_ONCE
from kraft.api.request_context import Role
from kraft.net.connection import ConnectionLimits
from kraft.net.connection_quotas import ListenerKind
from kraft.net.listener import ListenerSecurity
from kraft.net.peer import Peer, Reply
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from tests.unit.net.echo_node import framed, node
from tests.unit.net.harness import on_a_loop, request_frame, row, serving, until

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


@on_a_loop
async def test_of_many_clients_long_requests_few_are_decoded(monkeypatch: pytest.MonkeyPatch):
    """Decoded, a request takes twenty times its frame."""
    gates: list[asyncio.Future[None]] = []
    decoded = 0
    decode = dispatch.decode_request

    def counted(*arguments, **meter):
        nonlocal decoded
        decoded += 1
        return decode(*arguments, **meter)

    monkeypatch.setattr(dispatch, "decode_request", counted)

    async def slow(node, ctx, request):
        for _ in range(3):
            await node.long_work.request().pause()
        gates.append(node.loop.create_future())
        with node.long_work.in_a_thread():  # its answer is encoded
            await gates[-1]
        return {"error_code": 0}

    async with serving(row(ApiKey.HEARTBEAT, slow)) as running:
        body = encode_request(ApiKey.HEARTBEAT, 0, {"member_id": "m" * 2 * dispatch.LONG_BODY_BYTES})
        clients = [await running.client() for _ in range(5 * AT_ONCE)]
        answers = [client.send(ApiKey.HEARTBEAT, 0, (body,)) for client in clients]
        for number in range(len(answers)):
            await until(lambda number=number: len(gates) > number)
            assert decoded <= number + 2 * AT_ONCE
            gates[number].set_result(None)
        await asyncio.gather(*answers)
        for client in clients:
            client.close()


@on_a_loop
async def test_a_request_that_is_called_off_ends_its_connection():
    """No answer would ever come behind it."""

    async def called_off(node, ctx, request):
        raise asyncio.CancelledError

    async with serving(row(ApiKey.HEARTBEAT, called_off)) as running:
        client = await running.client()
        answer = client.send(ApiKey.HEARTBEAT, 0, (encode_request(ApiKey.HEARTBEAT, 0, {}),))
        with pytest.raises(ConnectionError):
            await answer
        await until(lambda: running.closed)
        assert running.closed[0][1] is False, "not by its client"


@pytest.mark.parametrize("size", [0, 2 * dispatch.LONG_BODY_BYTES])
@on_a_loop
async def test_a_request_that_anothers_lets_go_on_does_not_end_with_that_ones_client(size: int):
    """One that is decoded lets others go on: of its connection, and with a turn's end of all that wait."""

    async def pauses(node, ctx, request):
        await node.long_work.request().pause()
        return {"error_code": 0}

    async with serving(row(ApiKey.HEARTBEAT, pauses, concurrent=True)) as running:
        gone = Peer("PLAINTEXT", "h", 1)
        await running.node.long_work.begin(gone, waits=False)
        gone.gone = True
        body = encode_request(ApiKey.HEARTBEAT, 0, {"member_id": "m" * size})
        frame = request_frame(ApiKey.HEARTBEAT, 0, body=body)
        reply = running.server.services.serve(Peer("PLAINTEXT", "h", 2), memoryview(frame)[4:])
        assert isinstance(reply, asyncio.Future)
        assert await reply
