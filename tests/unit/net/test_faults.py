"""A bug in serving one request ends that request, or at most its connection; the server serves on."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from typing import Any

import pytest

from kraft.api.row import ApiRow
from kraft.net.connection import Buffers
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.supervision import ErrorBoundary
from tests.unit.net.harness import closes, on_a_loop, request_frame, response, serving, until


def _bug(*_: Any) -> Any:
    raise KeyError("a bug")


async def _bug_later(*_: Any) -> Any:
    await asyncio.sleep(0)
    raise KeyError("a bug")


def _not_to_be_encoded(*_: Any) -> dict[str, Any]:
    return {"error_code": "no number", "throttle_time_ms": 0}


async def _not_to_be_encoded_later(*_: Any) -> dict[str, Any]:
    await asyncio.sleep(0)
    return _not_to_be_encoded()


def _muting(node: Any, ctx: Any, request: Any) -> dict[str, Any]:
    ctx.connection.mute(0.05)
    return {"error_code": 0, "throttle_time_ms": 0}


def _boundary() -> ErrorBoundary:
    loop = asyncio.get_running_loop()
    deaths: list[BaseException] = []
    boundary = ErrorBoundary(deaths.append, loop.time)
    loop.set_exception_handler(boundary.loop_error)
    return boundary


def _rows(handler: Callable[..., Any], **more: Any) -> Mapping[int, ApiRow]:
    return {ApiKey.HEARTBEAT: ApiRow(ApiKey.HEARTBEAT, (0, 3), (), node=handler, **more)}


HEARTBEAT_BODY = b"\x00\x01g" + b"\x00\x00\x00\x00" + b"\x00\x01m"


@pytest.mark.parametrize("handler", [_bug, _bug_later, _not_to_be_encoded, _not_to_be_encoded_later])
@on_a_loop
async def test_a_request_that_meets_a_bug_is_answered_with_unknown_server_error(handler):
    boundary = _boundary()
    async with serving(_rows(handler)) as running:
        reader, writer = await running.raw()
        for turn in (1, 2):  # the connection goes on
            writer.write(request_frame(ApiKey.HEARTBEAT, 1, turn, HEARTBEAT_BODY))
            answer = await response(reader)
            assert int.from_bytes(answer[:4], "big") == turn
            assert int.from_bytes(answer[8:10], "big", signed=True) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert sum(boundary.faults.values()) == 2
        writer.close()


@on_a_loop
async def test_an_answer_that_cannot_be_given_at_all_ends_its_connection_alone():
    boundary = _boundary()
    async with serving(_rows(_bug, on_error=lambda *_: _not_to_be_encoded())) as running:
        reader, writer = await running.raw()
        _other_reader, other_writer = await running.raw()
        await until(lambda: len(running.server.connections) == 2)
        writer.write(request_frame(ApiKey.HEARTBEAT, 1, 1, HEARTBEAT_BODY))
        assert await closes(reader)
        assert len(running.server.connections) == 1
        assert boundary.faults
        writer.close()
        other_writer.close()


@on_a_loop
async def test_a_request_that_is_served_after_a_pause_is_bounded_too():
    """From the timer that unmutes a connection there is nobody above who could answer for a bug."""
    boundary = _boundary()
    heard: list[int] = []

    def handler(node: Any, ctx: Any, request: Any) -> dict[str, Any]:
        heard.append(ctx.correlation_id)
        return _muting(node, ctx, request) if len(heard) == 1 else _not_to_be_encoded()

    async with serving(_rows(handler)) as running:
        reader, writer = await running.raw()
        writer.write(request_frame(ApiKey.HEARTBEAT, 1, 1, HEARTBEAT_BODY))
        writer.write(request_frame(ApiKey.HEARTBEAT, 1, 2, HEARTBEAT_BODY))
        first, second = await response(reader), await response(reader)
        assert first[8:10] == b"\x00\x00"
        assert int.from_bytes(second[8:10], "big", signed=True) == ErrorCode.UNKNOWN_SERVER_ERROR
        assert sum(boundary.faults.values()) == 1
        writer.close()


@pytest.mark.parametrize("later", [False, True])
@on_a_loop
async def test_a_bug_in_a_handler_of_raw_bytes_ends_its_connection(later):
    boundary = _boundary()

    def raw(node: Any, ctx: Any, body: memoryview) -> Buffers | asyncio.Future[Buffers]:
        return asyncio.get_running_loop().create_task(_bug_later()) if later else _bug()

    rows = {ApiKey.PRODUCE: ApiRow(ApiKey.PRODUCE, (3, 13), (), raw_broker=raw)}
    async with serving(rows) as running:
        reader, writer = await running.raw()
        writer.write(request_frame(ApiKey.PRODUCE, 3))
        assert await closes(reader)
        await until(lambda: boundary.faults)
        assert not running.server.connections
        writer.close()


@on_a_loop
async def test_what_waited_for_a_connection_is_called_off_to_the_last():
    boundary = _boundary()
    called_off: list[bool] = []  # whether its connection is known to have gone

    def handler(node: Any, ctx: Any, request: Any) -> asyncio.Future[Any]:
        loop = asyncio.get_running_loop()
        ctx.connection.parked[loop.create_future()] = _bug
        ctx.connection.parked[loop.create_future()] = lambda: called_off.append(ctx.connection.gone)
        return loop.create_future()

    async with serving(_rows(handler)) as running:
        _, writer = await running.raw()
        writer.write(request_frame(ApiKey.HEARTBEAT, 1, 1, HEARTBEAT_BODY))
        await until(lambda: running.server.connections and next(iter(running.server.connections)).peer.parked)
        writer.close()
        await until(lambda: running.closed)
        assert called_off == [True]
        assert sum(boundary.faults.values()) == 1
