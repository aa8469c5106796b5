"""From a frame to its handler, and from the handler's response to the bytes of the reply.

    frame -> header -> row of the table -> message -> authorize -> handler -> dict -> header + body
                   \\-> raw handler (Produce, Fetch, Raft) ---------------------> header + buffers

Errors:
* no such API, not on this listener, or not in this version: the connection is closed, as in Kafka
  (only ApiVersions is answered, in version 0, with UNSUPPORTED_VERSION and the range that we know);
* `BrokerError`: the API's own error response;
* anything else is reported to the error boundary (metadata_quorum/foundation/supervision.py), and if the node
  survives the client gets UNKNOWN_SERVER_ERROR; a request without a response ends its connection.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Container, Coroutine, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextlib import nullcontext
from functools import partial
from typing import Any, Final, NamedTuple

from kraft.api.authz.authorization import AuthorizedRequest, ResponseCompletion, authorize
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.envelope import client_context, open_envelope, seal_reply
from kraft.api.forwarding import forward
from kraft.api.request_context import RequestContext, Role
from kraft.api.request_cost import RequestCost
from kraft.api.response import LongResponse, raising, returning
from kraft.api.row import ApiRow, Response, Result
from kraft.api.sasl import BEFORE_LOGIN
from kraft.api.slices import is_long
from kraft.api.throttling import throttled
from kraft.api.versions import advertised
from kraft.net.connection import SMALL_FRAME_BYTES, Buffers, ProtocolError
from kraft.net.peer import Peer, Reply, StartedRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import (
    MalformedMessage,
    Message,
    Meter,
    decode_request,
    encode_response,
    load_schemas,
    response_has,
)
from kraft.wire.header import (
    KEY_AND_VERSION,
    MalformedHeader,
    RequestHeader,
    read_request_header,
    schema_of,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, detached
from metadata_quorum.foundation.supervision import awaited, report_fault

MAX_DECODED_BYTES: Final = 64 * 1024 * 1024
"""What one request may take in memory once it is decoded: some 200,000 topics or partitions."""

_ENVELOPE: Final = ApiKey.ENVELOPE
"""Bound once: every request is compared with it, and looking up a member of an enum takes 0.3 µs."""

LONG_BODY_BYTES: Final = 2 * 1024
"""A request with a longer body is long: it may have thousands of items, at a byte or two each."""


class _Call(NamedTuple):
    """A decoded request, on its way to its handler and back."""

    ctx: RequestContext
    row: ApiRow
    request: Message
    """Without the items that authorization has refused."""
    complete: ResponseCompletion | None = None
    """Adds those items to the handler's response."""
    envelope: RequestContext | None = None
    """The context of the envelope that it came in."""


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
        also: Container[ApiKey] = (),
    ) -> None:
        """`roles`: what each listener serves, by its name. `broker`, `controller`: set if the node is one.
        `also`: APIs that ApiVersions lists on this node but not on every node."""
        self._node = node
        self._broker = broker
        self._controller = controller
        self._rows = {
            name: {key: row for key, row in rows.items() if role in row.listeners}
            for name, role in roles.items()
        }
        self._advertised = {name: advertised(served.values(), also) for name, served in self._rows.items()}
        self._roles = dict(roles)
        self._exclusive = {int(key) for key, row in rows.items() if row.exclusive}
        self._in_turn = {int(key) for key, row in rows.items() if row.in_turn}
        self._has_schemas: set[bytes] = set()
        """API keys and versions whose schemas are loaded, in the bytes with which requests begin."""
        self._tasks: dict[asyncio.Task[Buffers], None] = {}
        self._decoder = ThreadPoolExecutor(1, "decoder")
        self._large_decoder = ThreadPoolExecutor(1, "large decoder")
        """For large frames: they wait for each other, and no other frame waits for them."""

    def is_exclusive(self, api_key: int) -> bool:
        """Whether such a request must run alone on its connection."""
        return api_key in self._exclusive

    def is_in_turn(self, api_key: int) -> bool:
        """Whether such a request starts only when all before it are answered."""
        return api_key in self._in_turn

    def prepare(self, frame: memoryview) -> asyncio.Future[None] | None:
        """Load the schemas of the request in `frame`, in another thread, if it is the first of its version.

        That imports a module or two, which may take tens of milliseconds.
        """
        if bytes(frame[:4]) in self._has_schemas:
            return None
        schema = schema_of(frame)
        if schema is None or KEY_AND_VERSION.pack(*schema) in self._has_schemas:
            return None
        return self._node.loop.run_in_executor(self._decoder, self._load_schemas, *schema)

    def _load_schemas(self, api_key: ApiKey, version: int) -> None:
        load_schemas(api_key, version)
        self._has_schemas.add(KEY_AND_VERSION.pack(api_key, version))

    def serve(self, peer: Peer, frame: memoryview) -> Reply:
        """Start one request; see `kraft.net.peer.Serve`. Raises `ProtocolError` for a header that is none."""
        try:
            header = read_request_header(frame)
        except MalformedHeader as error:
            raise ProtocolError(str(error)) from None
        self._node.long_work.another_request()
        ctx, row, refusal = self._context(peer, header)
        if refusal is not None:
            return refusal
        if self._node.quotas is None:
            return self._run(ctx, row, frame[header.body :])
        ctx.cost = RequestCost(self._node.stopwatch, len(frame))
        with ctx.cost:
            return self._run(ctx, row, frame[header.body :])

    def _run(self, ctx: RequestContext, row: ApiRow, body: memoryview) -> Reply:
        if row.raw_broker is not None or row.raw_controller is not None:
            return self._serve_raw(ctx, row, body)
        started = ctx.connection.started()
        if len(body) > LONG_BODY_BYTES:
            ctx.is_long = True
            started.pause_others()
            started.keep()
            return self._start(self._run_long(ctx, row, body, started), ctx)
        request, size = _decode(ctx.api_key, ctx.version, body)
        _charge(started, size)
        reply = self._run_decoded(_Call(ctx, row, request), body, started)
        if isinstance(reply, asyncio.Future) and _is_from_client(ctx) and not (row.concurrent or row.in_turn):
            started.answer_first()
        return reply

    def _run_decoded(self, call: _Call, body: memoryview, started: StartedRequest) -> Reply:
        if self._is_for_controller(call):
            return self._start(self._forward(call, body), call.ctx, parked=True)
        if call.ctx.api_key == _ENVELOPE:
            try:
                call, size = self._open_envelope(call)
            except BrokerError as error:
                return self._error_reply(call, error)
            _charge(started, size)
        try:
            authorized = self._authorize(call)
        except Exception as error:  # noqa: BLE001
            return self._error_reply(call, error)
        return self._run_handler(call, authorized)

    async def _run_long(
        self, ctx: RequestContext, row: ApiRow, body: memoryview, started: StartedRequest
    ) -> Buffers:
        """Decode and authorize in another thread. Requests behind it wait, a client's until the answer, as in
        Kafka: half-answered ones of 60 KB each take gigabytes. So a client's is also decoded in its turn."""
        decoder = self._large_decoder if len(body) > SMALL_FRAME_BYTES else self._decoder
        run = partial(self._node.loop.run_in_executor, decoder)
        waits = _is_from_client(ctx) and not row.concurrent
        resume_others = _no_others if waits else started.resume_others
        decoding = self._node.long_work.in_a_thread if waits else nullcontext
        try:
            await self._node.long_work.begin(ctx.connection, waits=waits)
            with decoding():
                request, size = await run(_decode, ctx.api_key, ctx.version, body)
            _charge(started, size)
            call = _Call(ctx, row, request)
            if self._is_for_controller(call):
                forwarded = self._start(self._forward(call, body), ctx, parked=True)
                resume_others()
                return await forwarded
        finally:
            body = memoryview(b"")  # what it was decoded to may wait for long
            started.let_go()
        try:
            if ctx.api_key == _ENVELOPE:
                call, size = await run(self._open_envelope, call)
                _charge(started, size)
            with decoding():
                authorized = await run(self._authorize, call)
        except Exception as error:  # noqa: BLE001
            resume_others()
            return await self._long_error_reply(call, error)
        with ctx.cost or nullcontext():
            reply = self._run_handler(call, authorized)
        resume_others()
        return await reply if isinstance(reply, asyncio.Future) else reply

    def _is_for_controller(self, call: _Call) -> bool:
        row = call.row
        if row.forwarded is None or call.ctx.role is Role.CONTROLLER or self._is_active_controller:
            return False
        return row.is_local is None or not row.is_local(call.request)

    @property
    def _is_active_controller(self) -> bool:
        return self._controller is not None and self._controller.quorum_controller.is_active

    def _authorize(self, call: _Call) -> _Call | Response:
        """The request for its handler, or a response if everything in it is refused. Raises `BrokerError`."""
        authorizer = self._node.authorizer
        if authorizer is None:
            return call
        result = authorize(call.row.authorization, authorizer, self._node, call.ctx, call.request)
        if isinstance(result, AuthorizedRequest):
            return call._replace(request=result.request, complete=result.complete)
        return result

    def _run_handler(self, call: _Call, authorized: _Call | Response) -> Buffers | asyncio.Future[Buffers]:
        """Run the handler, unless authorization has refused everything, and encode the response."""
        result: Result
        if isinstance(authorized, _Call):
            call = authorized
            try:
                result = self._call_handler(call)
            except Exception as error:  # noqa: BLE001
                if not call.ctx.is_long:
                    return self._error_reply(call, error)
                result = raising(error)
        else:
            result = authorized
        if result is None or isinstance(result, Mapping):
            if result is None or not _takes_long(call, result):
                return self._reply(call, result)
            result = returning(result)
        task = self._start(self._reply_when_done(call, result), call.ctx)
        if isinstance(result, Coroutine):  # a task that is cancelled before its first step leaves it alone
            task.add_done_callback(lambda _: result.close())
        return task

    def _call_handler(self, call: _Call) -> Result:
        """Call the handler of the request, with the context that it needs."""
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
        """Cancel all requests that have not been answered."""
        tasks = list(self._tasks)
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        self._decoder.shutdown(wait=False, cancel_futures=True)
        self._large_decoder.shutdown(wait=False, cancel_futures=True)

    async def _reply_when_done(self, call: _Call, result: Awaitable[Response | None]) -> Buffers:
        """The reply of a handler that does not answer at once, or whose response is long."""
        if call.ctx.cost is not None and isinstance(result, Coroutine):
            result = call.ctx.cost.watching(result)
        try:
            response = await result
        except Exception as error:  # noqa: BLE001
            return await self._long_error_reply(call, error)
        if response is None or not _takes_long(call, response):
            return self._reply(call, response)
        long = LongResponse(response)
        del response
        try:
            return await self._encode_off_loop(call, long)
        except Exception as error:  # noqa: BLE001
            return await self._long_error_reply(call, error)

    async def _encode_off_loop(self, call: _Call, long: LongResponse) -> Buffers:
        """Encode a long response in another thread: ten thousand topics take a fifth of a second."""
        ctx = call.ctx
        run = partial(self._node.loop.run_in_executor, None)
        with self._node.long_work.in_a_thread():
            if call.complete is not None:
                await run(long.complete, call.complete)
            long.fields = self._throttled(call, long.fields)
            encoded = await run(long.encode, ctx.api_key, ctx.version)
        return _sealed(call, ctx.framed((encoded,)))

    async def _long_error_reply(self, call: _Call, error: Exception) -> Buffers:
        """`_error_reply`, off the loop where there may be very many items to refuse."""
        if not call.ctx.is_long:
            return self._error_reply(call, error)
        code, message = self._error_code(call.ctx, error)
        try:
            run = partial(self._node.loop.run_in_executor, None)
            return await self._encode_off_loop(call, await run(_long_error_response, call, code, message))
        except Exception as again:
            self._log_error(call.ctx, again)
            raise ProtocolError(f"{call.row.name} failed") from again

    def _reply(self, call: _Call, response: Response | None) -> Buffers:
        """`_encode`, or an error reply where that fails."""
        try:
            if response is not None and (code := response.get("error_code")):
                self._node.requests.refused(call.row.name, ErrorCode(code).name)
            return self._encode(call, response)
        except Exception as error:  # noqa: BLE001 - the handler's response does not fit its schema
            return self._error_reply(call, error)

    def _error_reply(self, call: _Call, error: Exception) -> Buffers:
        """The API's own error response. Raises `ProtocolError` if even that fails."""
        code, message = self._error_code(call.ctx, error)
        try:
            return self._encode(call, _error_response(call, code, message))
        except Exception as again:
            self._log_error(call.ctx, again)
            raise ProtocolError(f"{call.row.name} failed") from again

    def _error_code(self, ctx: RequestContext, error: Exception) -> tuple[ErrorCode, str]:
        code, message = ErrorCode.UNKNOWN_SERVER_ERROR, ""
        if isinstance(error, BrokerError):
            code, message = error.code, error.message
            ctx.lost_controller = code is ErrorCode.NOT_CONTROLLER
        else:
            self._log_error(ctx, error)
        self._node.requests.refused(ctx.api_key.api_name, code.name)
        detached(error)  # whoever keeps it, such as the future that it came by, does not keep the request
        return code, message

    def _encode(self, call: _Call, response: Response | None) -> Buffers:
        """The bytes of the reply, after authorization and quotas have added their parts to the response."""
        if response is not None:
            response = self._throttled(call, response if call.complete is None else call.complete(response))
        return _sealed(call, _encoded(call.ctx, response))

    def _throttled(self, call: _Call, response: Response) -> Response:
        if call.ctx.cost is None or not call.row.is_throttled:
            return response
        from_broker = call.row.is_from_broker(call.ctx.version, call.request)
        return throttled(self._node, call.ctx, response, from_broker=from_broker)

    def _log_error(self, ctx: RequestContext, error: Exception) -> None:
        report_fault(self._node.loop, f"{ctx.api_key.api_name} v{ctx.version} from {ctx.client_host}", error)

    def _start(
        self, work: Coroutine[object, object, Buffers], ctx: RequestContext, *, parked: bool = False
    ) -> asyncio.Task[Buffers]:
        loop, name = self._node.loop, ctx.api_key.api_name
        task = self._node.long_work.serving(lambda: awaited(loop, work, name))
        self._watch(task)
        if parked:
            ctx.connection.park(task)
        return task

    def _watch(self, task: asyncio.Task[Buffers]) -> None:
        self._tasks[task] = None  # the loop itself holds its tasks by weak references only
        task.add_done_callback(lambda done: self._tasks.pop(done, None))

    async def _forward(self, call: _Call, body: memoryview) -> Buffers:
        try:
            return await forward(self._node, call.ctx, body)
        except Exception as error:  # noqa: BLE001
            return await self._long_error_reply(call, error)

    def _open_envelope(self, call: _Call) -> tuple[_Call, int]:
        """The request inside, and its size in memory in bytes. Raises `BrokerError`."""
        ctx, envelope = call.ctx, call.request
        enclosed = open_envelope(envelope, self._rows[ctx.listener])
        self._authorize(call)
        if not self._is_active_controller:
            raise BrokerError(ErrorCode.NOT_CONTROLLER)
        client = client_context(ctx, envelope, enclosed)
        try:
            request, size = _decode(client.api_key, client.version, enclosed.body)
        except ProtocolError as error:
            raise BrokerError(ErrorCode.INVALID_REQUEST) from error
        return _Call(client, enclosed.row, request, envelope=ctx), size

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
        return ctx, row, _encoded(ctx, response)


def _is_from_client(ctx: RequestContext) -> bool:
    """Whether it came on a listener for clients. Brokers may share it, and are then treated like clients."""
    return ctx.role is Role.BROKER


def _no_others() -> None:
    """In the place of `resume_others`, for a request whose connection waits until it is answered."""


def _charge(started: StartedRequest, size: int) -> None:
    if size > SMALL_FRAME_BYTES:
        started.charge(size)


def _decode(api_key: ApiKey, version: int, body: memoryview) -> tuple[Message, int]:
    """The message, and its size in memory in bytes. Raises `ProtocolError`."""
    meter = Meter(MAX_DECODED_BYTES)
    try:
        return decode_request(api_key, version, body, meter=meter), meter.used
    except MalformedMessage as error:
        raise ProtocolError(str(error)) from None


def _takes_long(call: _Call, response: Response) -> bool:
    """Whether it must be encoded outside the event loop."""
    return (call.ctx.is_long and call.complete is not None) or is_long(response)


def _error_response(call: _Call, code: ErrorCode, message: str) -> Response:
    if call.row.on_error is not None:
        return call.row.on_error(call.request, code, message)
    fields: dict[str, Any] = {"error_code": int(code)}
    if response_has(call.row.key, "error_message"):
        fields["error_message"] = message or None
    return fields


def _long_error_response(call: _Call, code: ErrorCode, message: str) -> LongResponse:
    return LongResponse(_error_response(call, code, message))


def _encoded(ctx: RequestContext, response: Response | None) -> Buffers:
    if response is None:
        return ()
    return ctx.framed((encode_response(ctx.api_key, ctx.version, response),))


def _sealed(call: _Call, reply: Buffers) -> Buffers:
    """The reply, in an envelope if the request came in one."""
    return reply if call.envelope is None else _encoded(call.envelope, seal_reply(call.ctx, reply))
