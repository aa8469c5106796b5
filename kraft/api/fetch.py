"""Fetch: what followers and consumers read.

    frame -> fast_fetch -> FetchService (sessions, limits, waiting) -> slices of files
    frame <- fast_fetch <- bytes: some at once where the page cache has them, or by the executor;
                           the rest stay in their files until the socket takes them (net/file_send)

On the controllers' listener the only topic is `__cluster_metadata` (metadata_fetch.py).
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine, Iterable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from data_plane.log.segment import LogSlice
from fetch.delayed_fetch import LOOKS_PER_TURN
from fetch.messages import NO_SESSION, FetchedPartition, FetchParams, FetchRequest, FetchResponse
from fetch.replica_selector import nearest_replica
from kraft.api import metadata_fetch, partition_lookup
from kraft.api.authz.checks import InHandler
from kraft.api.authz.raw_requests import read_authorization
from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow
from kraft.api.throttling import charge_fetch, max_fetch_bytes
from kraft.config.replication_keys import RACK_AWARE
from kraft.net.connection import Buffers, ProtocolError
from kraft.net.delayed_reply import DelayedReply
from kraft.net.peer import Reply, StartedRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage
from kraft.wire.fast_fetch import COPY_BELOW_BYTES, Hints, write_fetch_response
from kraft.wire.fast_fetch_request import read_fetch_request
from kraft.wire.fast_produce import LeaderHint
from metadata_quorum.foundation.batch import CorruptBatchError
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import is_gone
from metadata_quorum.foundation.errors import NO_ERROR, BrokerError, ErrorCode, detached
from metadata_quorum.foundation.supervision import awaited, report_fault

SMALL_BYTES: Final = 8 * 1024
"""A request up to this size is decoded in less time than handing it to another thread and back takes."""
FIRST_WITH_STORAGE_ERROR: Final = 6
"""Clients with an older version are told to look for another leader, which they understand."""
PARTITION_BYTES: Final = 400
"""What one partition of a request takes in memory until it is answered, without its topic's name, which takes
what it took in the frame."""

PARKED_BYTES: Final = 64 * 1024
"""How much is read at once for a fetch that was parked: one append may answer a thousand of them."""

Unread = list[tuple[FetchedPartition, Exception]]
"""Partitions that could not be read, and why: the disk failed, a batch is not where it should be, or a
bug."""


def handle(broker: BrokerContext, ctx: RequestContext, body: memoryview) -> Reply:
    most, started = partition_lookup.max_request_partitions(broker.replica_manager), ctx.connection.started()
    if len(body) > SMALL_BYTES:
        return _parked(broker.node, ctx, _long_fetch(broker, ctx, body, most, started), started)
    request = read_fetch_request(ctx.version, body, most)
    return _fetch(broker, ctx, request, started)


def handle_metadata(
    controller: ControllerContext, ctx: RequestContext, body: memoryview
) -> Buffers | asyncio.Future[Buffers]:
    """On the controllers' listener."""
    if len(body) > SMALL_BYTES:
        started = ctx.connection.started()
        work = _long_metadata_fetch(controller, ctx, body, started)
        return _parked(controller.node, ctx, work, started)
    request = read_fetch_request(ctx.version, body, partition_lookup.MAX_UNKNOWN_PARTITIONS)
    return metadata_fetch.handle(controller, ctx, request)


def _parked(
    node: NodeContext,
    ctx: RequestContext,
    work: Coroutine[object, object, Buffers],
    started: StartedRequest,
) -> asyncio.Future[Buffers]:
    """Cancelled when the connection is gone: otherwise it would open a session for nobody."""
    started.keep()
    reading = awaited(node.loop, work, "Fetch")
    ctx.connection.park(reading)
    reading.add_done_callback(lambda _: started.let_go())
    return reading


async def _long_fetch(
    broker: BrokerContext, ctx: RequestContext, body: memoryview, most: int, started: StartedRequest
) -> Buffers:
    request = await _read_long(broker.node, ctx, body, most, started)
    body = memoryview(b"")  # need not be held any longer
    if not request.from_follower:  # a thousand partitions take ten milliseconds
        await broker.node.long_work.request().pause()
    reply = _fetch(broker, ctx, request, started)
    if not isinstance(reply, DelayedReply):
        return reply
    started.resume_others()  # a newer one may have come before this one waited
    return await reply.wait(broker.node.loop)


async def _long_metadata_fetch(
    controller: ControllerContext, ctx: RequestContext, body: memoryview, started: StartedRequest
) -> Buffers:
    most = partition_lookup.MAX_UNKNOWN_PARTITIONS
    request = await _read_long(controller.node, ctx, body, most, started)
    body = memoryview(b"")  # no longer held
    reply = metadata_fetch.handle(controller, ctx, request)
    return await reply if isinstance(reply, asyncio.Future) else reply


async def _read_long(
    node: NodeContext, ctx: RequestContext, body: memoryview, most: int, started: StartedRequest
) -> FetchRequest:
    """Decode a request outside the loop. Until it is answered no other fetch starts on its connection."""
    names_bytes = len(body)  # no more than that
    try:
        request = await node.loop.run_in_executor(None, read_fetch_request, ctx.version, body, most)
    except MalformedMessage as error:
        raise ProtocolError(str(error)) from None
    started.let_go()  # it may wait for long
    started.charge(names_bytes + PARTITION_BYTES * (len(request.partitions) + len(request.forgotten)))
    return request


def _fetch(
    broker: BrokerContext, ctx: RequestContext, request: FetchRequest, started: StartedRequest
) -> Buffers | DelayedReply:
    requests = broker.node.requests
    started.counts_as(requests.fetch_follower if request.from_follower else requests.fetch_consumer)
    return _Fetch(broker, ctx, _params(broker, ctx, request), started).start()


def _params(broker: BrokerContext, ctx: RequestContext, request: FetchRequest) -> FetchParams:
    node = broker.node
    params = broker.fetch_service.params_of(request)
    if node.authorizer is not None:
        params.may_read = read_authorization(node, ctx, follower=request.from_follower)
    if request.from_follower:
        return params
    if ctx.cost is not None:
        most = max_fetch_bytes(node, ctx)
        if most is not None:
            params.max_bytes = min(params.max_bytes, most)
            params.min_bytes = min(params.min_bytes, params.max_bytes)
        params.meter = partial(charge_fetch, node, ctx)
    if request.rack_id and not request.leader_only:
        _read_nearby(node, ctx, params)
    return params


def _read_nearby(node: NodeContext, ctx: RequestContext, params: FetchParams) -> None:
    """Send a consumer that names its rack to a replica there, if there is one."""
    if node.config.replica_selector_class != RACK_AWARE:
        return
    rack, listener = params.request.rack_id, ctx.listener

    def rack_of(broker_id: int) -> str | None:
        broker = node.image.brokers.get(broker_id)
        reachable = broker is not None and not broker.fenced and broker.endpoint(listener) is not None
        return broker.rack if broker is not None and reachable else None

    params.preferred_replica_of = lambda replica, offset: nearest_replica(replica, offset, rack, rack_of)


class _Fetch:
    """One fetch request from its arrival to its reply."""

    __slots__ = ("_answer", "_broker", "_ctx", "_node", "_now", "_params", "_started")

    def __init__(
        self, broker: BrokerContext, ctx: RequestContext, params: FetchParams, started: StartedRequest
    ) -> None:
        self._broker = broker
        self._node = broker.node
        self._ctx = ctx
        self._params = params
        self._started = started
        self._answer: DelayedReply | None = None
        self._now: Buffers | None = None

    def start(self) -> Buffers | DelayedReply:
        pending = self._broker.fetch_service.fetch(self._params, self._found)
        if self._now is not None:
            return self._now
        answer = self._later()
        if pending is not None:
            self._ctx.connection.parked[answer] = pending.cancel
        return answer

    def _later(self) -> DelayedReply:
        if self._answer is None:
            self._answer = DelayedReply()
        return self._answer

    def _found(self, response: FetchResponse) -> None:
        """Called once, perhaps still from within `start`."""
        session_id = response.session_id
        if session_id != self._ctx.connection.state.fetch_session_id and session_id != NO_SESSION:
            self._opened(session_id)
        if len(response.partitions) > LOOKS_PER_TURN:
            self._later()
            writing = awaited(self._node.loop, self._write_many(response), "Fetch")
            writing.add_done_callback(self._wrote)
            return
        most = self._broker.fetch_piece_bytes()
        if self._answer is not None:
            most = min(most, PARKED_BYTES)
        cold, left = read_first(response.partitions, most)
        if cold or self._answer is not None:  # else it is sent at once
            self._started.charge(most)  # what is read counts until the reply is there
        if cold:
            self._broker.fetch_service.cold_reads += len(cold)
            self._later()
            reading = self._node.blocking(partial(_read_cold, cold, left))
            reading.add_done_callback(lambda done: self._read(response, done))
            return
        self._reply(response)

    def _opened(self, session_id: int) -> None:
        """A session; a connection has one."""
        state = self._ctx.connection.state
        if state.fetch_session_id is not None:
            self._broker.fetch_service.sessions.drop(state.fetch_session_id)
        state.fetch_session_id = session_id

    def _read(self, response: FetchResponse, done: asyncio.Future[Unread]) -> None:
        if done.cancelled():
            return
        self._note(done.result())
        self._reply(response)

    def _note(self, unread: Unread) -> None:
        for each, error in unread:
            if each.slice is None or not each.slice.is_stale():  # truncated: nothing is wrong with it
                corrupt = isinstance(error, CorruptBatchError)
                each.error = ErrorCode.CORRUPT_MESSAGE if corrupt else ErrorCode.KAFKA_STORAGE_ERROR
                log_path = "" if each.slice is None else _log_path(each.slice)
                _read_failed(self._broker, each.topic, each.topic_id, each.partition, log_path, error)
            detached(error)

    def _reply(self, response: FetchResponse) -> None:
        if self._answer is not None:  # else it was found in this turn of the loop
            _leave_out_stale(response.partitions)
        self._send_from_files(response.partitions)
        if self._answer is None:
            self._now = _written(self._node, self._ctx, self._params.request, response)
        else:
            self._ctx.connection.parked.pop(self._answer, None)
            self._answer.settle(partial(_written, self._node, self._ctx, self._params.request, response))

    def _send_from_files(self, partitions: Iterable[FetchedPartition]) -> None:
        """Let the records that were not read be sent from their files."""
        for each in partitions:
            if each.slice is not None and each.records is None and each.error is NO_ERROR:
                # Refers to nothing of this request: a cycle would keep the whole answer.
                place = each.topic, each.topic_id, each.partition, _log_path(each.slice)
                failed = partial(_read_failed, self._broker, *place)
                each.region = each.slice.region(self._node.blocking, failed)

    async def _write_many(self, response: FetchResponse) -> Buffers:
        """Prepare a response of very many partitions in pieces, and encode it outside the loop."""
        node, ctx, request = self._node, self._ctx, self._params.request
        left = min(self._broker.fetch_piece_bytes(), PARKED_BYTES)
        self._started.charge(left)
        hints: dict[int, LeaderHint] = {}
        work = node.long_work.request()
        for start in range(0, len(response.partitions), LOOKS_PER_TURN):
            piece = response.partitions[start : start + LOOKS_PER_TURN]
            cold, left = read_first(piece, left)
            if cold:
                self._broker.fetch_service.cold_reads += len(cold)
                self._note(await node.blocking(partial(_read_cold, cold, left)))
            _leave_out_stale(piece)
            self._send_from_files(piece)
            _explain_errors(node, request, piece, start, hints)
            await (asyncio.sleep(0) if request.from_follower else work.pause())
        body = await node.loop.run_in_executor(None, _body, node, ctx, response, hints)
        return ctx.framed(body)

    def _wrote(self, done: asyncio.Future[Buffers]) -> None:
        if not done.cancelled():
            self._ctx.connection.parked.pop(self._later(), None)
            self._later().settle(done.result)


def _log_path(piece: LogSlice) -> str:
    return piece.segment.path.rpartition("/")[0]


def _read_failed(
    broker: BrokerContext, topic: str, topic_id: UUID, number: int, log_path: str, error: Exception
) -> None:
    if not isinstance(error, OSError):
        report_fault(broker.node.loop, f"reading {topic or topic_id}-{number}", error)
        return
    if is_gone(error):
        return
    try:
        partition = partition_lookup.find(broker, topic, topic_id, number)
    except BrokerError:
        return  # it has been removed
    broker.replica_manager.failures.storage_failed(partition, error, log_path)


def _leave_out_stale(partitions: Iterable[FetchedPartition]) -> None:
    """Leave out records that were truncated since they were found: another leader has been elected."""
    for each in partitions:
        if each.slice is not None and each.error is NO_ERROR and each.slice.is_stale():
            each.error, each.records = ErrorCode.NOT_LEADER_OR_FOLLOWER, None


def read_first(partitions: Iterable[FetchedPartition], most: int) -> tuple[list[FetchedPartition], int]:
    """Read up to `most` bytes that are in the page cache: an error that is found now can still be answered.
    Returns the partitions that have to be read in another thread, and how much may be read of them."""
    cold: list[FetchedPartition] = []
    for each in partitions:
        piece = each.slice
        if piece is None:
            continue
        if piece.position < 0:
            cold.append(each)
        elif piece.length <= most or piece.length < COPY_BELOW_BYTES:
            most -= piece.length
            if not _read_cached(each):
                cold.append(each)
    return cold, most


def _read_cached(each: FetchedPartition) -> bool:
    assert each.slice is not None
    try:
        records = each.slice.read_cached()
    except OSError:  # the read that may block finds it again, and reports it
        records = None
    if records is None:
        return False
    each.records = memoryview(records)
    return True


def _read_cold(cold: list[FetchedPartition], left: int, may_block: MayBlock) -> Unread:
    """Locate and read what the page cache does not have. Returns what could not be read."""
    unread: Unread = []
    for each in cold:
        assert each.slice is not None
        piece = each.slice
        try:
            if piece.position < 0:
                piece.place(may_block)
                if piece.length >= COPY_BELOW_BYTES and piece.length > left:
                    continue
                left -= piece.length
            each.records = memoryview(piece.read(may_block))
        except Exception as error:  # noqa: BLE001 - one partition's affair, whatever it is
            unread.append((each, error))
    return unread


def _written(
    node: NodeContext, ctx: RequestContext, request: FetchRequest, response: FetchResponse
) -> Buffers:
    hints: dict[int, LeaderHint] = {}
    _explain_errors(node, request, response.partitions, 0, hints)
    return ctx.framed(_body(node, ctx, response, hints))


def _explain_errors(
    node: NodeContext,
    request: FetchRequest,
    partitions: Sequence[FetchedPartition],
    first: int,
    hints: dict[int, LeaderHint],
) -> None:
    """Turn the errors of partitions into those that the client is to see, and add who leads instead. `first`:
    the place of these partitions in the response."""
    for place, each in enumerate(partitions, first):
        if each.error is not NO_ERROR:
            each.error = partition_lookup.error_of_absence(
                node, each.error, each.topic, each.topic_id, each.partition
            )
            node.requests.refused(ApiKey.FETCH.api_name, each.error.name)
            hint = partition_lookup.leader_hint(node, each.error, each.topic, each.topic_id, each.partition)
            if hint is not None and not request.from_follower:
                hints[place] = hint


def _body(node: NodeContext, ctx: RequestContext, response: FetchResponse, hints: Hints) -> Buffers:
    if ctx.version < FIRST_WITH_STORAGE_ERROR:
        for each in response.partitions:
            if each.error is ErrorCode.KAFKA_STORAGE_ERROR:
                each.error = ErrorCode.NOT_LEADER_OR_FOLLOWER
    endpoints = partition_lookup.endpoints_of(node, ctx.listener, hints.values()) if hints else ()
    return write_fetch_response(
        ctx.version,
        response,
        throttle_time_ms=response.throttle_time_ms,
        hints=hints,
        endpoints=endpoints,
    )


ROWS: Final = (
    ApiRow(
        ApiKey.FETCH,
        (4, 18),
        (InHandler("Read on each Topic; of followers ClusterAction on Cluster"),),
        raw_broker=handle,
        raw_controller=handle_metadata,
        exclusive=True,
    ),
)
