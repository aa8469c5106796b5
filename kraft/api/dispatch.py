"""From a frame to its handler, and from the handler's response to the bytes of the reply.

    frame -> header -> row of the table -> message -> authorize -> handler -> dict -> header + body
                   \\-> raw handler (Produce, Fetch, Raft) ---------------------> header + buffers

What goes wrong:
* no such API, not on this listener, or not in this version: the connection ends, as Kafka's does
  (ApiVersions alone is answered, in version 0, with UNSUPPORTED_VERSION and the range that we know);
* `BrokerError`: the API's own error response;
* anything else is reported to the error boundary (metadata_quorum/foundation/supervision.py), and if the node
  survives the client gets UNKNOWN_SERVER_ERROR; a request without a response ends its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from dataclasses import replace
from functools import partial
from typing import Any, Final, NamedTuple

from kraft.api.authz.authorization import AuthorizedRequest, ResponseCompletion, authorize
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.forwarding import decode_address, decode_principal, forward
from kraft.api.request_context import RequestContext, Role
from kraft.api.request_cost import RequestCost
from kraft.api.row import ApiRow, Response, Result
from kraft.api.sasl import BEFORE_LOGIN
from kraft.api.slices import is_long
from kraft.api.throttling import throttled
from kraft.api.versions import advertised
from kraft.net.connection import SMALL_FRAME_BYTES, Buffers, ProtocolError
from kraft.net.peer import Peer, Reply, StartedRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message, Meter, decode_request, encode_response, response_has
from kraft.wire.header import MalformedHeader, RequestHeader, read_request_header
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.supervision import awaited, report_fault

MAX_DECODED_BYTES: Final = 64 * 1024 * 1024
"""What one request may take in memory when it is decoded: some 200,000 topics or partitions."""

_ENVELOPE: Final = ApiKey.ENVELOPE
"""Bound once: every request is compared with it, and looking up a member of an enum takes 0.3 µs."""

LONG_BODY_BYTES: Final = 2 * 1024
"""A longer body may have thousands of items, at a byte or two each."""


class _Call(NamedTuple):
    """A decoded request, on its way to its handler and back."""

    ctx: RequestContext
    row: ApiRow
    request: Message
    """What authorization has left of it."""
    complete: ResponseCompletion | None = None
    """What authorization does with the handler's response."""


class Dispatcher:
    """Serves the frames of all listeners of one node."""

    def __init__(
        self,
        node: NodeContext,
        rows: Mapping[int, ApiRow],
        roles: Mapping[str, Role],
        *,
        broker: BrokerContext | None = None,
        controller: ControllerContext | None = None,
    ) -> None:
        """`roles`: what each listener serves, by its name. `broker`, `controller`: where the node is one."""
        self._node = node
        self._broker = broker
        self._controller = controller
        self._rows = {
            name: {key: row for key, row in rows.items() if role in row.listeners}
            for name, role in roles.items()
        }
        self._advertised = {name: advertised(served.values()) for name, served in self._rows.items()}
        self._roles = dict(roles)
        self._exclusive = {key.to_bytes(2, "big") for key, row in rows.items() if row.exclusive}
        self._in_turn = {key.to_bytes(2, "big") for key, row in rows.items() if row.in_turn}
        self._tasks: dict[asyncio.Task[Buffers], None] = {}
        self._decoder = ThreadPoolExecutor(1, "decoder")
        self._large_decoder = ThreadPoolExecutor(1, "large decoder")
        """For frames of megabytes: they wait for each other, and no other frame waits for them."""

    def is_exclusive(self, frame: memoryview) -> bool:
        """Whether the request in `frame` must run alone on its connection."""
        return bytes(frame[:2]) in self._exclusive

    def is_in_turn(self, frame: memoryview) -> bool:
        """Whether the request in `frame` starts only when all before it are answered."""
        return bytes(frame[:2]) in self._in_turn

    def serve(self, peer: Peer, frame: memoryview) -> Reply:
        """Start one request; see `kraft.net.peer.Serve`."""
        try:
            header = read_request_header(frame)
        except MalformedHeader as error:
            raise ProtocolError(str(error)) from None
        ctx, row, refusal = self._context(peer, header)
        if refusal is not None:
            return refusal
        if self._node.quotas is None:
            return self._run(ctx, row, frame[header.body :])
        ctx.work = RequestCost(self._node.stopwatch, len(frame))
        with ctx.work:
            return self._run(ctx, row, frame[header.body :])

    def _run(self, ctx: RequestContext, row: ApiRow, body: memoryview) -> Reply:
        if row.raw_broker is not None or row.raw_controller is not None:
            return self._serve_raw(ctx, row, body)
        started = ctx.connection.started()
        if len(body) > LONG_BODY_BYTES:
            ctx.is_long = True
            started.pause_others()
            return self._start(self._run_long(ctx, row, body, started), ctx)
        request, size = _decoded(ctx.api_key, ctx.version, body)
        _charge(started, size)
        call = _Call(ctx, row, request)
        if self._is_for_controller(call):
            return self._start(self._forward(call, body), ctx)
        if ctx.api_key != _ENVELOPE:
            return self._answer(call)
        try:
            inner, inner_row, frame = self._unwrapped(call)
            request, size = _decoded(inner.api_key, inner.version, frame)
        except (ProtocolError, BrokerError) as error:
            return _not_unwrapped(ctx, error)
        _charge(started, size)
        reply = self._answer(_Call(inner, inner_row, request))
        if isinstance(reply, asyncio.Future):
            return self._start(_wrap_later(ctx, inner, reply), ctx)
        return _wrap(ctx, inner, reply)

    async def _run_long(
        self, ctx: RequestContext, row: ApiRow, body: memoryview, started: StartedRequest
    ) -> Buffers:
        """Decoded and authorized in another thread. Requests behind it on its connection wait, and never
        start if this one ends the connection."""
        decoder = self._large_decoder if len(body) > SMALL_FRAME_BYTES else self._decoder
        run = partial(self._node.loop.run_in_executor, decoder)
        request, size = await run(_decoded, ctx.api_key, ctx.version, body)
        _charge(started, size)
        call = _Call(ctx, row, request)
        if self._is_for_controller(call):
            forwarded = self._start(self._forward(call, body), ctx)
            started.resume_others()
            return await forwarded
        if ctx.api_key == _ENVELOPE:
            try:
                inner, inner_row, frame = self._unwrapped(call)
                request, size = await run(_decoded, inner.api_key, inner.version, frame)
            except (ProtocolError, BrokerError) as error:
                started.resume_others()
                return _not_unwrapped(ctx, error)
            _charge(started, size)
            call = _Call(inner, inner_row, request)
        try:
            authorized = await run(self._authorized, call)
        except Exception as error:  # noqa: BLE001
            started.resume_others()
            reply: Reply = await self._refuse_long(call, error)
        else:
            with ctx.work or nullcontext():
                reply = self._answer_authorized(call, authorized)
            started.resume_others()
        answer = await reply if isinstance(reply, asyncio.Future) else reply
        return answer if call.ctx is ctx else _wrap(ctx, call.ctx, answer)

    def _is_for_controller(self, call: _Call) -> bool:
        row = call.row
        if row.forwarded is None or call.ctx.role is Role.CONTROLLER or self._is_active_controller:
            return False
        return row.is_local is None or not row.is_local(call.request)

    @property
    def _is_active_controller(self) -> bool:
        return self._controller is not None and self._controller.quorum_controller.is_active

    def _answer(self, call: _Call) -> Reply:
        try:
            authorized = self._authorized(call)
        except Exception as error:  # noqa: BLE001
            return self._refuse(call, error)
        return self._answer_authorized(call, authorized)

    def _authorized(self, call: _Call) -> _Call | Response:
        """What is left of it for its handler; a response if that is nothing. Raises `BrokerError`."""
        authorizer = self._node.authorizer
        if authorizer is None:
            return call
        result = authorize(call.row.authorization, authorizer, self._node, call.ctx, call.request)
        if isinstance(result, AuthorizedRequest):
            return call._replace(request=result.request, complete=result.complete)
        return result

    def _answer_authorized(self, call: _Call, authorized: _Call | Response) -> Reply:
        """Run the handler, also of a request that came in an envelope."""
        result: Result
        if isinstance(authorized, _Call):
            call = authorized
            try:
                result = self._handle(call)
            except Exception as error:  # noqa: BLE001
                if not call.ctx.is_long:
                    return self._refuse(call, error)
                result = _failed(error)
        else:
            result = authorized
        if result is None or isinstance(result, Mapping):
            if result is None or not _takes_long(call, result):
                return self._reply(call, result)
            result = _completed(result)
        task = self._start(self._finish(call, result), call.ctx)
        if isinstance(result, Coroutine):  # a task that is cancelled before its first step leaves it alone
            task.add_done_callback(lambda _: result.close())
        return task

    def _handle(self, call: _Call) -> Result:
        """Hand the request to its handler, with what that needs of the node."""
        ctx, row, request = call.ctx, call.row, call.request
        if row.node is not None and (row.is_local is None or row.is_local(request)):
            return row.node(self._node, ctx, request)
        if row.broker is not None and ctx.role is Role.BROKER:
            assert self._broker is not None
            return row.broker(self._broker, ctx, request)
        handler = row.controller if row.forwarded is None else row.forwarded
        assert handler is not None
        assert self._controller is not None
        return handler(self._controller, ctx, request)

    async def close(self) -> None:
        """Cancel the requests that are not answered yet."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._decoder.shutdown(wait=False, cancel_futures=True)
        self._large_decoder.shutdown(wait=False, cancel_futures=True)

    async def _finish(self, call: _Call, result: Awaitable[Response | None]) -> Buffers:
        if call.ctx.work is not None and isinstance(result, Coroutine):
            result = call.ctx.work.watching(result)
        try:
            response = await result
        except Exception as error:  # noqa: BLE001
            return await self._refuse_long(call, error)
        if response is None or not _takes_long(call, response):
            return self._reply(call, response)
        try:
            return await self._reply_beside(call, response)
        except Exception as error:  # noqa: BLE001
            return await self._refuse_long(call, error)

    async def _reply_beside(self, call: _Call, response: Response) -> Buffers:
        """Encoded in another thread: ten thousand topics take a fifth of a second."""
        ctx = call.ctx
        run = partial(self._node.loop.run_in_executor, None)
        if call.complete is not None:
            response = await run(call.complete, response)
        fields = self._throttled(call, response)
        return ctx.framed((await run(encode_response, ctx.api_key, ctx.version, fields),))

    async def _refuse_long(self, call: _Call, error: Exception) -> Buffers:
        """`_refuse`, where there may be very many items to refuse."""
        if not call.ctx.is_long:
            return self._refuse(call, error)
        code, message = self._code_of(call.ctx, error)
        try:
            refusal = await self._node.loop.run_in_executor(None, _refusal, call, code, message)
            return await self._reply_beside(call, refusal)
        except Exception as again:
            self._log_error(call.ctx, again)
            raise ProtocolError(f"{call.row.name} failed") from again

    def _reply(self, call: _Call, response: Response | None) -> Buffers:
        try:
            return self._complete(call, response)
        except Exception as error:  # noqa: BLE001 - the handler's response does not fit its schema
            return self._refuse(call, error)

    def _refuse(self, call: _Call, error: Exception) -> Buffers:
        """The API's own error response. Raises `ProtocolError` if even that fails."""
        code, message = self._code_of(call.ctx, error)
        try:
            return self._complete(call, _refusal(call, code, message))
        except Exception as again:
            self._log_error(call.ctx, again)
            raise ProtocolError(f"{call.row.name} failed") from again

    def _code_of(self, ctx: RequestContext, error: Exception) -> tuple[ErrorCode, str]:
        if isinstance(error, BrokerError):
            ctx.lost_controller = error.code is ErrorCode.NOT_CONTROLLER
            return error.code, error.message
        self._log_error(ctx, error)
        return ErrorCode.UNKNOWN_SERVER_ERROR, ""

    def _complete(self, call: _Call, response: Response | None) -> Buffers:
        if response is not None:
            response = self._throttled(call, response if call.complete is None else call.complete(response))
        return _reply(call.ctx, response)

    def _throttled(self, call: _Call, response: Response) -> Response:
        if call.ctx.work is None or not call.row.is_throttled:
            return response
        return throttled(self._node, call.ctx, response)

    def _log_error(self, ctx: RequestContext, error: Exception) -> None:
        report_fault(self._node.loop, f"{ctx.api_key.api_name} v{ctx.version} from {ctx.client_host}", error)

    def _start(self, work: Coroutine[Any, Any, Buffers], ctx: RequestContext) -> asyncio.Task[Buffers]:
        task = awaited(self._node.loop, work, ctx.api_key.api_name)
        self._watch(task)
        return task

    def _watch(self, task: asyncio.Task[Buffers]) -> None:
        self._tasks[task] = None  # the loop itself holds its tasks by weak references only
        task.add_done_callback(self._done)

    def _done(self, task: asyncio.Task[Buffers]) -> None:
        self._tasks.pop(task, None)

    async def _forward(self, call: _Call, body: memoryview) -> Buffers:
        try:
            return await forward(self._node, call.ctx, body)
        except Exception as error:  # noqa: BLE001
            return self._refuse(call, error)

    def _unwrapped(self, call: _Call) -> tuple[RequestContext, ApiRow, memoryview]:
        """Context, row and bytes of the message inside an envelope. Raises `BrokerError`."""
        ctx, envelope = call.ctx, call.request
        try:
            frame = memoryview(envelope.request_data)
            header = read_request_header(frame)
            row = self._rows[ctx.listener].get(header.api_key)
            if row is None or row.forwarded is None or not row.answers(header.version):
                raise BrokerError(ErrorCode.INVALID_REQUEST)
            self._authorized(call)
            if not self._is_active_controller:
                raise BrokerError(ErrorCode.NOT_CONTROLLER)
            inner = replace(
                ctx,
                api_key=row.key,
                version=header.version,
                correlation_id=header.correlation_id,
                client_id=header.client_id,
                principal=decode_principal(envelope.request_principal or b""),
                forwarded_for=decode_address(envelope.client_host_address),
            )
        except (MalformedHeader, MalformedMessage) as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST) from error
        return inner, row, frame[header.body :]

    def _serve_raw(self, ctx: RequestContext, row: ApiRow, body: memoryview) -> Reply:
        try:
            if row.raw_broker is not None and (row.raw_controller is None or ctx.role is Role.BROKER):
                assert self._broker is not None
                reply = row.raw_broker(self._broker, ctx, body)
            else:
                assert row.raw_controller is not None
                assert self._controller is not None
                reply = row.raw_controller(self._controller, ctx, body)
            if isinstance(reply, asyncio.Task):
                self._watch(reply)
            return reply
        except ProtocolError:
            raise
        except (MalformedMessage, MalformedHeader) as error:
            raise ProtocolError(str(error)) from None
        except Exception as error:
            self._log_error(ctx, error)
            raise ProtocolError(f"{ctx.api_key.api_name} failed") from error

    def _context(self, peer: Peer, header: RequestHeader) -> tuple[RequestContext, ApiRow, Buffers | None]:
        """The request's context and row; and the reply, if it is refused but the connection stays open."""
        rows = self._rows[peer.listener]
        row = rows.get(header.api_key)
        if row is None:
            raise ProtocolError(f"API {header.api_key} is not served on listener {peer.listener}")
        if not peer.authenticated and header.api_key not in BEFORE_LOGIN:
            raise ProtocolError(f"{row.name} before the client has logged in")
        ctx = RequestContext(
            row.key,
            header.version,
            header.correlation_id,
            header.client_id,
            self._roles[peer.listener],
            peer,
            peer.principal,
            self._advertised[peer.listener],
        )
        if row.answers(header.version):
            return ctx, row, None
        if header.api_key != ApiKey.API_VERSIONS:
            raise ProtocolError(f"{row.name} has no version {header.version} here (UNSUPPORTED_VERSION)")
        ctx.version = 0
        known = {"api_key": row.key, "min_version": row.min_version, "max_version": row.max_version}
        response = {"error_code": int(ErrorCode.UNSUPPORTED_VERSION), "api_keys": [known]}
        return ctx, row, _reply(ctx, response)


async def _completed(response: Response) -> Response:
    return response


async def _failed(error: Exception) -> Response:
    raise error


def _charge(started: StartedRequest, size: int) -> None:
    if size > SMALL_FRAME_BYTES:
        started.charge(size)


def _not_unwrapped(ctx: RequestContext, error: ProtocolError | BrokerError) -> Buffers:
    code = error.code if isinstance(error, BrokerError) else ErrorCode.INVALID_REQUEST
    return _reply(ctx, {"error_code": int(code), "response_data": None})


def _decoded(api_key: ApiKey, version: int, body: memoryview) -> tuple[Message, int]:
    """The message, and its size in memory in bytes. Raises `ProtocolError`."""
    meter = Meter(MAX_DECODED_BYTES)
    try:
        return decode_request(api_key, version, body, meter=meter), meter.used
    except MalformedMessage as error:
        raise ProtocolError(str(error)) from None


def _takes_long(call: _Call, response: Response) -> bool:
    """Whether it must be encoded outside the event loop."""
    return (call.ctx.is_long and call.complete is not None) or is_long(response)


def _refusal(call: _Call, code: ErrorCode, message: str) -> Response:
    if call.row.on_error is not None:
        return call.row.on_error(call.request, code, message)
    fields: dict[str, Any] = {"error_code": int(code)}
    if response_has(call.row.key, "error_message"):
        fields["error_message"] = message or None
    return fields


def _reply(ctx: RequestContext, response: Response | None) -> Buffers:
    if response is None:
        return ()
    return ctx.framed((encode_response(ctx.api_key, ctx.version, response),))


def _wrap(ctx: RequestContext, inner: RequestContext, reply: Buffers) -> Buffers:
    if inner.lost_controller:  # of no use to the client: its broker looks for the new one
        return _reply(ctx, {"error_code": int(ErrorCode.NOT_CONTROLLER), "response_data": None})
    response_data = b"".join(reply)[4:]  # without its length
    return _reply(ctx, {"error_code": int(ErrorCode.NONE), "response_data": response_data})


async def _wrap_later(ctx: RequestContext, inner: RequestContext, reply: asyncio.Future[Buffers]) -> Buffers:
    return _wrap(ctx, inner, await reply)
