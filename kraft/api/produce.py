"""Produce: append to the partitions that this broker leads, answer as its acks require.

frame -> fast_produce (records stay in the frame) -> validation.check -> partition.append_as_leader
acks=0   no reply; an error ends the connection, which is all that the producer can notice
acks=1   at once (with flush.messages=1: when it is on disk)
acks=-1  when the high watermark has passed every partition's last record, or time is up

All records of a request are checked before the first batch is appended. If that takes long, or needs the
transaction coordinator, or there are very many partitions, the request is queued before it is appended
(produce_queue.py); otherwise all of it happens in one call. Very many partitions are also read, authorized
and answered outside the loop.
"""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial
from typing import Final

from data_plane.coordinator.topics import INTERNAL_TOPICS
from data_plane.log.config import LogConfig
from data_plane.log.validation import (
    CLIENT,
    INLINE_STEPS,
    BudgetExceeded,
    InvalidRecords,
    ValidatedRecords,
    WorkBudget,
    check,
)
from data_plane.replication.delayed_produce import Appended, await_replication
from data_plane.replication.partition import ALL_REPLICAS, Partition
from kraft.api import partition_lookup
from kraft.api.authz.checks import InHandler
from kraft.api.authz.raw_requests import unauthorized_writes
from kraft.api.context import BrokerContext, NodeContext
from kraft.api.long_work import LongRequest
from kraft.api.produce_queue import (
    NO_REFUSALS,
    PARTITIONS_PER_TURN,
    Place,
    QueuedProduce,
    of_one_producer,
)
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow
from kraft.api.throttling import charge_produce
from kraft.net.connection import Buffers, ProtocolError
from kraft.net.delayed_reply import DelayedReply
from kraft.net.peer import Reply, StartedRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage
from kraft.wire.fast_produce import (
    ProducedPartition,
    ProducePartition,
    ProduceRequest,
    TooManyPartitions,
    read_produce_request,
    write_produce_response,
)
from metadata_quorum.foundation.batch import codec_of, is_transactional
from metadata_quorum.foundation.compression import CompressionType
from metadata_quorum.foundation.errors import NO_ERROR, BrokerError, ErrorCode, detached
from metadata_quorum.foundation.supervision import awaited

_WITHOUT_LOG_START: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.MESSAGE_TOO_LARGE,
        ErrorCode.RECORD_LIST_TOO_LARGE,
        ErrorCode.CORRUPT_MESSAGE,
        ErrorCode.KAFKA_STORAGE_ERROR,
    }
)
"""Errors of an append that are answered without the log start offset."""

_TOO_LARGE: Final = frozenset({ErrorCode.MESSAGE_TOO_LARGE, ErrorCode.RECORD_LIST_TOO_LARGE})

_UNWRITTEN: Final[Buffers] = [b""]
"""The reply that names very many partitions, while it waits for its turn."""

PARTITION_BYTES: Final = 1_000
"""What one of very many partitions takes in memory until the request is answered, beside its records."""

NO_ACKS: Final = 0
LEADER_ACKS: Final = 1

_FIRST_WITH_ZSTD: Final = 7
"""Produce: a client with an older version must not write zstd, which its consumers may not know either."""

_ADMIN_CLIENT_ID: Final = "__admin_client"
"""Kafka's word for a client that may write to internal topics."""


def handle(broker: BrokerContext, ctx: RequestContext, body: memoryview) -> Reply:
    try:
        request = read_produce_request(ctx.version, body, PARTITIONS_PER_TURN)
    except TooManyPartitions:
        started = ctx.connection.started()
        started.keep()
        long = _produce_long(broker, ctx, body, Place.taken(broker, ctx), started)
        return awaited(broker.node.loop, long, "Produce")
    refusals = of_one_producer(request, _refusals(broker.node, ctx, request))
    produce = _Produce(broker, ctx, request)
    queued: QueuedProduce | None = None
    if request.transactional_id is not None or ctx.connection.state.last_queued_produce is not None:
        queued = QueuedProduce.enqueue_if_needed(broker, ctx, request, refusals)
    if queued is None:
        try:
            produce.check(WorkBudget(INLINE_STEPS))
        except BudgetExceeded:
            queued = QueuedProduce.begin(broker, ctx, request, refusals)
        else:
            produce.append(refusals)
            return produce.answer()
    started = ctx.connection.started()
    started.keep()  # whoever sends it and goes may come again with the next
    work = broker.node.long_work.request()
    return awaited(broker.node.loop, _append_queued(produce, queued, started, work), "Produce")


async def _produce_long(
    broker: BrokerContext, ctx: RequestContext, body: memoryview, place: Place, started: StartedRequest
) -> Buffers:
    """One that names very many partitions."""
    node, work = broker.node, broker.node.long_work.request()
    most = partition_lookup.max_request_partitions(broker.replica_manager)
    try:
        await place.wait_for_predecessor()
        await work.pause()
        with node.long_work.in_a_thread():
            request, refusals = await node.loop.run_in_executor(None, _read_long, node, ctx, body, most)
    except BaseException:
        place.end()
        started.let_go()
        raise
    body = memoryview(b"")  # held by the records only
    started.charge(PARTITION_BYTES * len(request.partitions))
    queued = QueuedProduce(broker, ctx.version, request, refusals, place)
    return await _append_queued(_Produce(broker, ctx, request), queued, started, work)


def _read_long(
    node: NodeContext, ctx: RequestContext, body: memoryview, most: int
) -> tuple[ProduceRequest, Mapping[int, BrokerError]]:
    """The request, and what of it is refused."""
    try:
        request = read_produce_request(ctx.version, body, most)
    except MalformedMessage as error:
        raise ProtocolError(str(error)) from None
    return request, of_one_producer(request, _refusals(node, ctx, request))


def _refusals(node: NodeContext, ctx: RequestContext, request: ProduceRequest) -> Mapping[int, BrokerError]:
    """By place in the request. Who writes for a transaction and does not name it has no right to anything."""
    if request.transactional_id is None:
        for each in request.partitions:
            if each.records is not None and is_transactional(each.records):
                code = ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
                refusal = BrokerError(code, "no transactional id is given")
                return dict.fromkeys(range(len(request.partitions)), refusal)
    return NO_REFUSALS if node.authorizer is None else unauthorized_writes(node, ctx, request)


async def _append_queued(
    produce: _Produce, queued: QueuedProduce, started: StartedRequest, work: LongRequest
) -> Buffers:
    try:
        await queued.place.wait_for_predecessor()
        await produce.check_long(work)
        refusals = await queued.verify(produce.invalid, work)
        while not produce.append({**queued.ended_meanwhile(produce.next_places), **refusals}):
            await work.pause()
    finally:
        queued.end()
        started.let_go()
    return await produce.answer_queued()


def _check_config(partition: Partition, checked_under: LogConfig) -> None:
    """Records that were valid under another configuration may not be valid under this one: have them sent
    again. Raises BrokerError."""
    if partition.log.config != checked_under:
        message = f"the configuration of {partition.tp} has changed meanwhile"
        raise BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, message)


class _Produce:
    """One produce request from its arrival to its reply. It does not keep the records once they are in the
    log: otherwise their frame would stay in memory until the followers have them."""

    __slots__ = (
        "_broker",
        "_checked",
        "_ctx",
        "_next",
        "_node",
        "_places",
        "_request",
        "_results",
        "_waited",
        "appended",
    )

    def __init__(self, broker: BrokerContext, ctx: RequestContext, request: ProduceRequest) -> None:
        self._broker = broker
        self._node = broker.node
        self._ctx = ctx
        self._request = request
        self._checked: list[
            tuple[Partition, ValidatedRecords, LogConfig] | BrokerError
        ] = []  # by place in the request
        self._waited = False
        self._next = 0  # place of the first partition that `append` has not reached
        self._results: list[ProducedPartition] = []
        self._places: list[int] = []  # where `appended` are among the results
        self.appended: list[Appended] = []

    # --- before it is appended

    def check(self, budget: WorkBudget) -> None:
        """Check as many more partitions as one turn takes. Raises BudgetExceeded at the first one whose
        records exceed `budget`."""
        now_ms = self._node.now_ms()
        done = self._checked
        first = len(done)
        for wanted in self._request.partitions[first : first + PARTITIONS_PER_TURN]:
            try:
                records, partition = self._of_leader(wanted)
                config = partition.log.config
                checked = check(records, config, now_ms, CLIENT, budget, partition.tp)
                done.append((partition, checked, config))
            except BrokerError as error:
                done.append(detached(error))

    async def check_long(self, work: LongRequest) -> None:
        """Check all that are left, in several turns; records that take long in another thread."""
        self._waited = True
        while len(self._checked) < len(self._request.partitions):
            try:
                self.check(WorkBudget(INLINE_STEPS))
                if len(self._checked) < len(self._request.partitions):
                    await work.pause()
                continue
            except BudgetExceeded:
                records, partition = self._of_leader(self._request.partitions[len(self._checked)])
            async with self._broker.long_checks:
                now_ms = self._node.now_ms()
                config = partition.log.config
                job = partial(check, records, config, now_ms, CLIENT, None, partition.tp)
                try:
                    checked = await self._node.loop.run_in_executor(None, job)
                    self._checked.append((partition, checked, config))
                except BrokerError as error:
                    self._checked.append(detached(error))

    @property
    def invalid(self) -> dict[int, BrokerError]:
        """The errors of what will not be appended, by place in the request."""
        return {place: each for place, each in enumerate(self._checked) if isinstance(each, BrokerError)}

    def _of_leader(self, wanted: ProducePartition) -> tuple[memoryview, Partition]:
        acks, version = self._request.acks, self._ctx.version
        partition = self._find(wanted)
        if not ALL_REPLICAS <= acks <= LEADER_ACKS:
            raise BrokerError(ErrorCode.INVALID_REQUIRED_ACKS, f"acks={acks}")
        if wanted.records is None:
            raise BrokerError(ErrorCode.INVALID_RECORD, "no records")
        if version < _FIRST_WITH_ZSTD and codec_of(wanted.records) == CompressionType.ZSTD:
            raise BrokerError(
                ErrorCode.UNSUPPORTED_COMPRESSION_TYPE,
                f"Produce requests with version {version} are not allowed to use zstd",
            )
        if partition.leader is None:
            partition.refuse_as_not_leader()
        return wanted.records, partition

    def _find(self, wanted: ProducePartition) -> Partition:
        partition = partition_lookup.find(self._broker, wanted.topic, wanted.topic_id, wanted.partition)
        if partition.tp.topic in INTERNAL_TOPICS and self._ctx.client_id != _ADMIN_CLIENT_ID:
            raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, f"{partition.tp.topic} is internal")
        return partition

    # --- appending

    @property
    def next_places(self) -> range:
        """The places of the partitions that the next `append` handles."""
        return range(self._next, min(self._next + PARTITIONS_PER_TURN, len(self._request.partitions)))

    def append(self, refusals: Mapping[int, BrokerError]) -> bool:
        """Append as many more of the checked partitions as one turn takes. Returns whether all are done.
        `refusals`: errors of what is not to be appended, by place in the request."""
        now, now_ms = self._node.loop.time(), self._node.now_ms()
        places = self.next_places
        for place in places:
            wanted = self._request.partitions[place]
            found = self._checked[place]
            appending: Partition | None = None
            if place in refusals or isinstance(found, BrokerError):
                refusal = refusals.get(place, found)
                assert isinstance(refusal, BrokerError)
                self._results.append(self._refused(wanted, refusal, None))
                continue
            try:
                partition, checked, checked_under = found
                if self._waited:
                    partition = self._find(wanted)  # it may be gone, or a new one of that name
                    _check_config(partition, checked_under)
                appending = partition
                info = appending.append_as_leader(checked, acks=self._request.acks, now=now, now_ms=now_ms)
            except BrokerError as error:
                self._results.append(self._refused(wanted, error, appending))
                continue
            partition.stats.appended(info.last_offset - info.first_offset + 1, info.size)
            self._places.append(len(self._results))
            self.appended.append((partition, info.last_offset + 1, partition.leader_epoch))
            self._results.append(
                ProducedPartition(
                    wanted.topic,
                    wanted.topic_id,
                    wanted.partition,
                    0,
                    info.first_offset,
                    info.log_append_time_ms,
                    info.log_start_offset,
                )
            )
        self._next = places.stop
        if self._next < len(self._request.partitions):
            return False
        self._checked.clear()
        self._request.partitions.clear()
        return True

    def _refused(
        self, wanted: ProducePartition, error: BrokerError, appending: Partition | None
    ) -> ProducedPartition:
        """The result of a partition that was refused. As in Kafka, errors of the log itself are answered with
        the log start offset."""
        result = self._failed(wanted, error.code, error.message)
        self._count(wanted, error.code)
        if isinstance(error, InvalidRecords):
            appending = appending or self._present(wanted)
            result = result._replace(record_errors=error.record_errors)
        if appending is not None and error.code not in _WITHOUT_LOG_START:
            result = result._replace(log_start_offset=appending.log.log_start_offset)
        return result

    def _count(self, wanted: ProducePartition, code: ErrorCode) -> None:
        """Count a failure as Kafka does: only those that concern the records or the cluster's health."""
        if code is ErrorCode.TOPIC_AUTHORIZATION_FAILED or (partition := self._present(wanted)) is None:
            return
        if code not in _WITHOUT_LOG_START:
            partition.stats.failed_produce_requests += 1
        elif code in _TOO_LARGE:
            partition.stats.bytes_rejected += len(wanted.records or b"")

    def _present(self, wanted: ProducePartition) -> Partition | None:
        try:
            return self._find(wanted)
        except BrokerError:
            return None

    def _failed(
        self, wanted: ProducePartition | ProducedPartition, code: ErrorCode, message: str
    ) -> ProducedPartition:
        self._node.requests.refused(ApiKey.PRODUCE.api_name, code.name)
        return ProducedPartition(
            wanted.topic,
            wanted.topic_id,
            wanted.partition,
            int(code),
            error_message=message or None,
            current_leader=partition_lookup.leader_hint(
                self._node, code, wanted.topic, wanted.topic_id, wanted.partition
            ),
        )

    # --- answering

    def answer(self) -> Buffers | DelayedReply:
        """Answer as the request's acks require."""
        if self._request.acks == NO_ACKS:
            return self.without_reply()
        if self._request.acks == ALL_REPLICAS:
            return self.reply_when_replicated(max(self._request.timeout_ms, 0) / 1000)
        if any(partition.flushes_each_append for partition, _, _ in self.appended):
            return self.reply_when_flushed()
        return self.reply()

    async def answer_queued(self) -> Buffers:
        """As `answer`; the results of very many partitions are written outside the loop."""
        reply = self.answer()
        if isinstance(reply, DelayedReply):
            reply = await reply.wait(self._node.loop)
        if reply is not _UNWRITTEN:
            return reply
        throttle_time_ms = 0 if self._ctx.cost is None else charge_produce(self._node, self._ctx)
        with self._node.long_work.in_a_thread():
            body = await self._node.loop.run_in_executor(None, self._written, throttle_time_ms)
        return self._ctx.framed((body,))

    def reply(self) -> Buffers:
        if len(self._results) > PARTITIONS_PER_TURN:
            return _UNWRITTEN
        throttle_time_ms = 0 if self._ctx.cost is None else charge_produce(self._node, self._ctx)
        return self._ctx.framed((self._written(throttle_time_ms),))

    def _written(self, throttle_time_ms: int) -> bytes:
        hints = [result.current_leader for result in self._results if result.current_leader]
        endpoints = partition_lookup.endpoints_of(self._node, self._ctx.listener, hints) if hints else ()
        return write_produce_response(
            self._ctx.version, self._results, throttle_time_ms=throttle_time_ms, endpoints=endpoints
        )

    def without_reply(self) -> Buffers:
        failed = [result for result in self._results if result.error_code]
        if failed:
            code = ErrorCode(failed[0].error_code).name
            raise ProtocolError(f"a produce with acks=0 failed with {code}; it has no response to say so")
        if self._ctx.cost is not None:
            charge_produce(self._node, self._ctx, answered=False)
        return ()

    def reply_when_replicated(self, timeout_s: float) -> Buffers | DelayedReply:
        answer = DelayedReply()

        def on_done(outcomes: list[ErrorCode]) -> None:
            answer.settle(partial(self._reply_with, outcomes))

        await_replication(self.appended, timer=self._broker.timer, timeout=timeout_s, on_done=on_done)
        return answer.result() if answer.done else answer

    def _reply_with(self, outcomes: list[ErrorCode]) -> Buffers:
        for place, code in zip(self._places, outcomes, strict=True):
            if code is not NO_ERROR:
                self._results[place] = self._failed(self._results[place], code, "")
        return self.reply()

    def reply_when_flushed(self) -> Buffers | DelayedReply:
        answer = DelayedReply()
        waiting = [
            (place, partition)
            for place, (partition, _, _) in zip(self._places, self.appended, strict=True)
            if partition.flushes_each_append
        ]
        open_places = {place for place, _ in waiting}

        def on_flushed(place: int, outcome: ErrorCode) -> None:
            if outcome is not NO_ERROR:
                self._results[place] = self._failed(self._results[place], outcome, "")
            open_places.discard(place)
            if not open_places:
                answer.settle(self.reply)

        for place, partition in waiting:
            partition.when_flushed(partial(on_flushed, place))
        return answer.result() if answer.done else answer


ROWS: Final = (
    ApiRow(
        ApiKey.PRODUCE,
        (3, 13),
        (InHandler("Write on each Topic; Write on TransactionalId"),),
        raw_broker=handle,
    ),
)
