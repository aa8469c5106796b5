"""The server on real sockets: order, back-pressure, bad input, connections that end."""

from __future__ import annotations

import asyncio
import gc
import resource
import struct
import threading
from collections import Counter
from collections.abc import Callable

import pytest

from kraft.api import dispatch
from kraft.api.authz.topic_checks import metadata
from kraft.api.row import ApiRow
from kraft.net.connection import ConnectionLimits
from kraft.net.connection_quotas import MaxConnections
from kraft.net.listener import ServerLimits
from kraft.net.unread import OF_ONE_BYTES, SHARE
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_response, encode_request, encode_response
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.net.harness import closes, on_a_loop, request_frame, response, row, serving, until


@pytest.mark.row("P7")
@on_a_loop
async def test_pipelined_requests_run_at_once_and_are_answered_in_order():
    gates: list[asyncio.Future[None]] = []

    async def slow(node, ctx, request):
        gate = node.loop.create_future()
        gates.append(gate)
        await gate
        return {"error_code": 0}

    async with serving(row(ApiKey.HEARTBEAT, slow, concurrent=True)) as running:
        client = await running.client()
        body = encode_request(ApiKey.HEARTBEAT, 0, {})
        answers = [client.send(ApiKey.HEARTBEAT, 0, (body,)) for _ in range(3)]
        quick = client.send(ApiKey.API_VERSIONS, 0, (b"",))
        await until(lambda: len(gates) == 3)  # all three run, though none has been answered
        gates[2].set_result(None)
        gates[1].set_result(None)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not any(answer.done() for answer in [*answers, quick])
        gates[0].set_result(None)
        await asyncio.gather(*answers, quick)
        client.close()


@pytest.mark.row("P7")
@on_a_loop
async def test_what_must_be_true_when_it_leaves_is_asked_when_all_before_it_is_answered():
    gate: list[asyncio.Future[None]] = []
    answered: list[int] = []

    async def slow(node, ctx, request):
        gate.append(node.loop.create_future())
        await gate[0]
        return {"error_code": 0}

    def fresh(node, ctx, request):
        answered.append(len(gate))
        return {"error_code": 0}

    rows = {
        **row(ApiKey.HEARTBEAT, slow),
        ApiKey.LEAVE_GROUP: ApiRow(ApiKey.LEAVE_GROUP, (0, 5), (), node=fresh, in_turn=True),
    }
    async with serving(rows) as running:
        client = await running.client()
        first = client.send(ApiKey.HEARTBEAT, 0, (encode_request(ApiKey.HEARTBEAT, 0, {}),))
        second = client.send(ApiKey.LEAVE_GROUP, 0, (encode_request(ApiKey.LEAVE_GROUP, 0, {}),))
        third = client.send(ApiKey.API_VERSIONS, 0, (b"",))
        await until(lambda: len(gate) == 1)
        for _ in range(50):
            await asyncio.sleep(0)
        assert not answered
        gate[0].set_result(None)
        await asyncio.gather(first, second, third)
        assert answered == [1]
        client.close()


@pytest.mark.row("P7")
@on_a_loop
async def test_a_large_request_is_decoded_beside_the_loop_and_begun_in_its_turn():
    begun: list[tuple[int, bool]] = []
    loop_thread = threading.get_ident()

    def note(node, ctx, request):
        begun.append((len(request.member_id), threading.get_ident() == loop_thread))
        return {"error_code": 0}

    def large(node, ctx, request):
        begun.append((len(request.topics), threading.get_ident() == loop_thread))
        return {"error_code": 0}

    rows = {
        **row(ApiKey.HEARTBEAT, note),
        ApiKey.METADATA: ApiRow(ApiKey.METADATA, (0, 12), (), node=large),
    }
    async with serving(rows) as running:
        client = await running.client()
        names = encode_request(
            ApiKey.METADATA, 1, {"topics": [{"name": f"topic-{n}"} for n in range(10_000)]}
        )
        small = encode_request(ApiKey.HEARTBEAT, 0, {"member_id": "m"})
        sent = [
            (ApiKey.HEARTBEAT, 0, small),
            (ApiKey.METADATA, 1, names),
            (ApiKey.HEARTBEAT, 0, small),
            (ApiKey.METADATA, 1, names),
        ]
        answers = [client.send(key, version, (body,)) for key, version, body in sent]
        await asyncio.gather(*answers)
        assert begun == [(1, True), (10_000, True), (1, True), (10_000, True)]
        assert running.server.memory.queued["PLAINTEXT"].used_bytes == 0
        reader, writer = await running.raw()
        writer.write(
            request_frame(ApiKey.METADATA, 1, body=names[:-1])
            + request_frame(ApiKey.HEARTBEAT, 0, body=small)
        )
        assert await closes(reader)
        assert len(begun) == 4
        writer.close()
        client.close()


class Watched:
    """An authorizer that lets nobody see a hidden topic, and knows where it has been asked."""

    def __init__(self) -> None:
        self.threads: Counter[int] = Counter()

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        self.threads[threading.get_ident()] += 1
        return not name.startswith("hidden")


@pytest.mark.row("P7")
@pytest.mark.parametrize("visible", [True, False])
@pytest.mark.parametrize("fails", [True, False])
@on_a_loop
async def test_what_visits_all_items_of_a_long_request_does_so_beside_the_loop(
    monkeypatch: pytest.MonkeyPatch, visible: bool, fails: bool
):
    loop_thread = threading.get_ident()
    encoded_on: list[int] = []
    refused_on: list[int] = []

    def handle(node, ctx, request):
        assert threading.get_ident() == loop_thread
        if fails:
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT)
        return {"topics": [{"name": each.name, "error_code": 0, "partitions": []} for each in request.topics]}

    def on_error(request, code, message):
        refused_on.append(threading.get_ident())
        return {"topics": [{"name": each.name, "error_code": int(code)} for each in request.topics]}

    def encode(*args):
        encoded_on.append(threading.get_ident())
        return encode_response(*args)

    monkeypatch.setattr(dispatch, "encode_response", encode)
    rows = {ApiKey.METADATA: ApiRow(ApiKey.METADATA, (0, 12), (metadata,), node=handle, on_error=on_error)}
    names = [f"hidden-{n}" for n in range(2000)] + [f"topic-{n}" for n in range(2000 if visible else 0)]
    async with serving(rows) as running:
        running.node.authorizer = watched = Watched()
        client = await running.client()
        body = encode_request(ApiKey.METADATA, 1, {"topics": [{"name": name} for name in names]})
        answer = decode_response(ApiKey.METADATA, 1, await client.send(ApiKey.METADATA, 1, (body,)))
        client.close()
    assert len(answer.topics) == len(names)
    assert sum(watched.threads.values()) >= len(names)
    assert loop_thread not in {*watched.threads, *encoded_on, *refused_on}


@on_a_loop
async def test_a_request_that_is_given_up_before_its_first_step_leaves_no_warning():
    async def never(node, ctx, request):
        raise AssertionError

    async with serving(row(ApiKey.HEARTBEAT, never)) as running:
        server = running.server
        started = asyncio.Event()
        serve = server.services.serve

        def serve_and_tell(peer, frame):
            reply = serve(peer, frame)
            reply.cancel()  # as the dispatcher does when the node stops
            started.set()
            return reply

        server.services.serve = serve_and_tell
        _, writer = await running.raw()
        writer.write(request_frame(ApiKey.HEARTBEAT, 0, body=encode_request(ApiKey.HEARTBEAT, 0, {})))
        await started.wait()
        gc.collect()
        writer.close()


async def unchanged(count: Callable[[], int]) -> None:
    """Until it stays the same over two hundred turns of the loop."""
    before = None
    while before != count():
        before = count()
        for _ in range(200):
            await asyncio.sleep(0)


@pytest.mark.row("P7")
@on_a_loop
async def test_a_client_that_never_reads_is_not_read_either():
    started = 0
    answer = bytes(256 * 1024)

    def large(node, ctx, body):
        nonlocal started
        started += 1
        return ctx.framed((answer,))

    async with serving(
        {ApiKey.FETCH: ApiRow(ApiKey.FETCH, (0, 20), (), raw_broker=large, exclusive=True)}
    ) as running:
        reader, writer = await running.raw()
        writer.transport.pause_reading()
        wanted = 400
        writer.write(request_frame(ApiKey.FETCH, 4) * wanted)
        await until(lambda: started >= OF_ONE_BYTES // len(answer))
        await unchanged(lambda: started)
        assert started < wanted / 4  # what the sockets take, too
        writer.transport.resume_reading()
        for _ in range(wanted):
            assert len(await response(reader)) == len(answer) + 4
        assert started == wanted
        writer.close()


@pytest.mark.row("P7")
@on_a_loop
async def test_what_clients_do_not_read_is_bounded_over_all_of_them():
    """Fetches get less (test_short_and_long.py); other requests are not started."""
    started = 0
    answer = bytes(64 * 1024)

    def large(node, ctx, body):
        nonlocal started
        started += 1
        return ctx.framed((answer,))

    rows = {ApiKey.HEARTBEAT: ApiRow(ApiKey.HEARTBEAT, (0, 20), (), raw_broker=large)}
    limits = ServerLimits(max_unread_bytes=4 * 1024 * 1024)
    wanted, clients = 200, 8
    async with serving(rows, limits) as running:
        streams = [await running.raw() for _ in range(clients)]
        for _, writer in streams:
            writer.transport.pause_reading()
            writer.write(request_frame(ApiKey.HEARTBEAT, 0) * wanted)
        unread = running.server.memory.unread
        await until(lambda: unread.held_bytes)
        await unchanged(lambda: started)
        assert started < clients * wanted
        assert unread.held_bytes <= limits.max_unread_bytes // SHARE + clients * 3 * len(answer)
        for reader, writer in streams:
            writer.transport.resume_reading()
            for _ in range(wanted):
                assert len(await response(reader)) == len(answer) + 4
            writer.close()
        assert (started, unread.held_bytes) == (clients * wanted, 0)


@pytest.mark.row("P7")
@on_a_loop
async def test_requests_without_reply_are_bounded_in_bytes():
    gates: list[asyncio.Future[None]] = []

    async def slow(node, ctx, request):
        gate = node.loop.create_future()
        gates.append(gate)
        await gate
        return {"error_code": 0}

    limits = ServerLimits(connection=ConnectionLimits(max_in_flight_bytes=1000))
    async with serving(row(ApiKey.HEARTBEAT, slow), limits) as running:
        client = await running.client()
        body = encode_request(ApiKey.HEARTBEAT, 0, {"group_id": "x" * 200})
        answers = [client.send(ApiKey.HEARTBEAT, 0, (body,)) for _ in range(50)]
        for done in range(50):
            await until(lambda done=done: len(gates) > done)
            assert len(gates) - done <= 1000 // len(body) + 1
            gates[done].set_result(None)
        await asyncio.gather(*answers)
        assert running.server.memory.queued["PLAINTEXT"].used_bytes == 0
        client.close()


@pytest.mark.parametrize(
    "data",
    [
        pytest.param(b"GET / HTTP/1.1\r\nHost: x\r\n\r\n", id="http"),
        pytest.param(struct.pack(">i", 2**31 - 1), id="2-gigabytes"),
        pytest.param(struct.pack(">i", -5), id="negative-length"),
        pytest.param(struct.pack(">i", 3) + b"abc", id="shorter-than-a-header"),
        pytest.param(request_frame(999, 0), id="unknown-api"),
        pytest.param(request_frame(-7, 0), id="negative-api"),
        pytest.param(request_frame(ApiKey.METADATA, 99), id="unknown-version"),
        pytest.param(request_frame(ApiKey.METADATA, -1), id="negative-version"),
        pytest.param(request_frame(ApiKey.BROKER_REGISTRATION, 0), id="a-controllers-api"),
        pytest.param(request_frame(ApiKey.METADATA, 1, body=b"\x7f\xff\xff\xff"), id="impossible-array"),
        pytest.param(request_frame(ApiKey.METADATA, 9, body=b"\xff\xff"), id="truncated-body"),
    ],
)
def test_bad_input_ends_its_connection_and_no_other(data: bytes):
    @on_a_loop
    async def test():
        async with serving() as running:
            other = await running.client()
            reader, writer = await running.raw()
            writer.write(data)
            assert await closes(reader)
            assert (await other.request(ApiKey.API_VERSIONS, 0, {})).error_code == 0
            writer.close()
            other.close()

    test()


@on_a_loop
async def test_an_unknown_version_of_api_versions_is_answered_in_version_0():
    async with serving() as running:
        reader, writer = await running.raw()
        writer.write(request_frame(ApiKey.API_VERSIONS, 99, body=b"\x00\x02a\x02b\x00"))
        answer = await response(reader)
        assert struct.unpack_from(">i", answer)[0] == 7
        message = decode_response(ApiKey.API_VERSIONS, 0, answer[4:])
        assert message.error_code == ErrorCode.UNSUPPORTED_VERSION
        assert [(key.api_key, key.max_version) for key in message.api_keys] == [(ApiKey.API_VERSIONS, 4)]
        writer.close()


@on_a_loop
async def test_a_nameless_client_software_is_an_invalid_request():
    async with serving() as running:
        client = await running.client()
        answer = await client.request(ApiKey.API_VERSIONS, 3, {"client_software_name": "-"})
        assert answer.error_code == ErrorCode.INVALID_REQUEST
        client.close()


@on_a_loop
async def test_of_a_long_name_of_client_software_little_is_remembered():
    async with serving() as running:
        client = await running.client()
        names = {"client_software_name": "a" * 32_767, "client_software_version": "1" * 32_767}
        assert (await client.request(ApiKey.API_VERSIONS, 3, names)).error_code == ErrorCode.NONE
        (connection,) = running.server.connections
        state = connection.peer.state
        assert len(state.client_software_name + state.client_software_version) < 1000
        client.close()


@on_a_loop
async def test_errors_of_handlers_are_answers():
    def refuse(node, ctx, request):
        raise BrokerError(ErrorCode.COORDINATOR_NOT_AVAILABLE)

    async def fail(node, ctx, request):
        raise RuntimeError("a bug")

    failing = row(ApiKey.SYNC_GROUP, fail)[ApiKey.SYNC_GROUP]
    async with serving({**row(ApiKey.HEARTBEAT, refuse), ApiKey.SYNC_GROUP: failing}) as running:
        client = await running.client()
        assert (
            await client.request(ApiKey.HEARTBEAT, 0, {})
        ).error_code == ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert (await client.request(ApiKey.SYNC_GROUP, 0, {})).error_code == ErrorCode.UNKNOWN_SERVER_ERROR
        client.close()


@on_a_loop
async def test_who_ended_the_connection_is_reported():
    async with serving() as running:
        reader, writer = await running.raw()
        writer.transport.abort()
        await until(lambda: running.closed)
        assert running.closed[0][1] is True
        reader, writer = await running.raw()
        writer.write(request_frame(999, 0))
        assert await closes(reader)
        await until(lambda: len(running.closed) == 2)
        assert running.closed[1][1] is False
        writer.close()


@on_a_loop
async def test_more_connections_than_allowed_are_refused():
    async with serving(limits=ServerLimits(max_connections=MaxConnections(2))) as running:
        first, second = await running.client(), await running.client()
        await first.negotiate()
        await second.negotiate()
        reader, writer = await running.raw()
        assert await closes(reader)
        await first.negotiate()
        for client in (first, second):
            client.close()
        writer.close()


@on_a_loop
async def test_idle_connections_are_closed_and_busy_ones_are_not():
    gate: asyncio.Future[None] = asyncio.get_running_loop().create_future()

    async def slow(node, ctx, request):
        await gate
        return {"error_code": 0}

    async with serving(row(ApiKey.HEARTBEAT, slow), ServerLimits(max_idle_s=0.05)) as running:
        busy = await running.client()
        answer = busy.send(ApiKey.HEARTBEAT, 0, (encode_request(ApiKey.HEARTBEAT, 0, {}),))
        reader, writer = await running.raw()
        assert await closes(reader)
        gate.set_result(None)
        await answer
        writer.close()
        busy.close()


@on_a_loop
async def test_many_idle_connections_cost_little():
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    count = min(500, (soft - 200) // 2)
    async with serving() as running:
        before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
        streams = [await running.raw() for _ in range(count)]
        for _, writer in streams[::2]:  # half of them in the middle of a large request
            writer.write(struct.pack(">i", 50_000_000))
        client = await running.client()
        await client.negotiate()
        grown_kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before
        assert grown_kib / count < 3000
        client.close()
        for _, writer in streams:
            writer.transport.abort()
