"""Produce requests that cannot be appended at once; each connection's in the order of their arrival.

    api/produce -> QueuedProduce.enqueue_if_needed
                       |
                       +--None----> appended at once: nothing to verify, nobody before it; where it takes long
                       |            to check, it is queued after all (QueuedProduce.begin)
                       `--queued--> `wait_for_predecessor`: after the one before it on its connection
                                    (read, if it names very many partitions: `Place`)
                                    (checked, by another thread if that takes long)
                                    `verify`, where it opens a transaction -> appended -> `end`

Later produces of the same connection wait. Otherwise they would be appended first, and batches of an
idempotent producer would be out of order. The connection's other requests do not wait.

Only the first batch of a transaction on a partition is verified.
"""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Final

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.verification_guard import VerificationGuard
from data_plane.replication.partition import Partition
from kraft.api import partition_lookup
from kraft.api.context import BrokerContext
from kraft.api.long_work import LongRequest
from kraft.api.request_context import RequestContext
from kraft.broker.txn_verification import RETRIABLE
from kraft.wire.fast_produce import ProducePartition, ProduceRequest
from metadata_quorum.foundation.batch import BATCH_OVERHEAD, BatchHeader, read_header
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

FIRST_TO_SAY_ABORTABLE: Final = 11
"""Produce: clients of older versions get INVALID_TXN_STATE in place of TRANSACTION_ABORTABLE."""
FIRST_TO_ADD: Final = 12
"""Produce: from here on a partition joins the transaction by being written to (transaction.version 2)."""

PARTITIONS_PER_TURN: Final = 500
"""How many partitions of one request are handled in one turn of the loop: a partition's first record
opens its file, which takes some 30 microseconds, and so does the first batch of a transaction there."""

NO_REFUSALS: Final[Mapping[int, BrokerError]] = {}


@dataclass(frozen=True, slots=True)
class _OpeningBatch:
    """A batch that is the first one of its transaction on its partition."""

    partition: Partition
    leader_epoch: int
    producer: ProducerIdAndEpoch
    guard: VerificationGuard

    @property
    def still_holds(self) -> bool:
        return self.guard.holds and self.partition.leader_epoch == self.leader_epoch


@dataclass(slots=True)
class Place:
    """Of one produce among those of its connection."""

    _predecessor: asyncio.Future[None] | None
    _done: asyncio.Future[None]

    @classmethod
    def taken(cls, broker: BrokerContext, ctx: RequestContext) -> Place:
        """The last one."""
        done: asyncio.Future[None] = broker.node.loop.create_future()
        state = ctx.connection.state
        place = cls(state.last_queued_produce, done)
        state.last_queued_produce = done
        return place

    async def wait_for_predecessor(self) -> None:
        """Wait for the produce before it on its connection."""
        if self._predecessor is not None:
            await self._predecessor

    def end(self) -> None:
        """Let the next one continue."""
        if not self._done.done():
            self._done.set_result(None)


@dataclass(slots=True)
class QueuedProduce:
    """One produce that has to wait before it is appended."""

    _broker: BrokerContext
    _version: int
    _request: ProduceRequest
    _refused: Mapping[int, BrokerError]
    place: Place
    _opening: dict[int, _OpeningBatch] = field(default_factory=dict)
    """By place in the request."""

    @classmethod
    def enqueue_if_needed(
        cls,
        broker: BrokerContext,
        ctx: RequestContext,
        request: ProduceRequest,
        refused: Mapping[int, BrokerError] = NO_REFUSALS,
    ) -> QueuedProduce | None:
        """Queue the request if it has to wait; None: it may be appended now. `refused`: errors of what will
        not be appended in any case, by place in the request."""
        state = ctx.connection.state
        before = state.last_queued_produce
        if before is not None and before.done():
            state.last_queued_produce = before = None
        if before is None and (
            request.transactional_id is None
            or not any(
                _opening_batches(broker, ctx.version, request, range(len(request.partitions)), refused)
            )
        ):
            return None
        return cls.begin(broker, ctx, request, refused)

    @classmethod
    def begin(
        cls,
        broker: BrokerContext,
        ctx: RequestContext,
        request: ProduceRequest,
        refused: Mapping[int, BrokerError] = NO_REFUSALS,
    ) -> QueuedProduce:
        """Queue the request. Call it in the same turn of the loop in which `enqueue_if_needed` returned
        None."""
        return cls(broker, ctx.version, request, refused, Place.taken(broker, ctx))

    async def verify(self, invalid: Mapping[int, BrokerError], work: LongRequest) -> dict[int, BrokerError]:
        """Verify the batches that open a transaction. Returns the errors of all batches that must not be
        appended, by place in the request. In the turn in which others are appended, ask `ended_meanwhile`
        first; then call `end`. `invalid`: errors found while the request waited."""
        self._refused = {**invalid, **self._refused}
        if self._request.transactional_id is None:
            return dict(self._refused)
        places = range(len(self._request.partitions))
        for first in places[::PARTITIONS_PER_TURN]:
            if first:
                await work.pause()
            self._start_verification(places[first : first + PARTITIONS_PER_TURN])
        return {**await self._refusals(self._request.transactional_id), **self._refused}

    def _start_verification(self, places: range) -> None:
        guards, now_ms = self._broker.transaction_verifier.guards, self._broker.node.now_ms()
        for place, partition, header in self._opening_now(places):
            guard = guards.begin(partition.tp, header.producer_id)
            producer = ProducerIdAndEpoch(header.producer_id, header.producer_epoch)
            partition.log.producers.start_verification(
                header, from_zero=self._version >= FIRST_TO_ADD, now_ms=now_ms
            )
            self._opening[place] = _OpeningBatch(partition, partition.leader_epoch, producer, guard)

    def end(self) -> None:
        """The request is appended, or will not be: let the next one continue."""
        for asked in self._opening.values():
            guards = self._broker.transaction_verifier.guards
            guards.end(asked.partition.tp, asked.producer.producer_id, asked.guard)
        self.place.end()

    async def _refusals(self, transactional_id: str) -> dict[int, BrokerError]:
        if not self._opening:
            return {}
        outcomes = await self._broker.transaction_verifier.ask(
            transactional_id,
            next(iter(self._opening.values())).producer,  # all have the same one: see `of_one_producer`
            {asked.partition.tp: asked.guard for asked in self._opening.values()},
            add=self._version >= FIRST_TO_ADD,
        )
        codes = {place: outcomes[asked.partition.tp] for place, asked in self._opening.items()}
        return {
            place: _refusal(code, self._version)
            for place, code in codes.items()
            if code is not ErrorCode.NONE
        }

    def ended_meanwhile(self, places: range) -> dict[int, BrokerError]:
        """The errors of those batches at `places` that would by now open a transaction that was not verified,
        because other work had its turn on the loop in between."""
        if self._request.transactional_id is None:
            return {}
        asked = {place: self._opening[place] for place in places if place in self._opening}
        lost = {place for place, each in asked.items() if not each.still_holds}
        # A batch that was in the open transaction when it came would begin another, if that one has ended.
        for place, partition, _ in self._opening_now(places):
            if place not in asked or asked[place].partition is not partition:
                lost.add(place)
        message = "the transaction has ended, or the leader has changed"
        return {place: BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, message) for place in lost}

    def _opening_now(self, places: range) -> Iterator[tuple[int, Partition, BatchHeader]]:
        return _opening_batches(self._broker, self._version, self._request, places, self._refused)


def of_one_producer(request: ProduceRequest, refused: Mapping[int, BrokerError]) -> Mapping[int, BrokerError]:
    """`refused`, or the refusal of everything where the transactional batches have several producers: the
    coordinator is asked about one. A client has one of a transactional id."""
    if request.transactional_id is None or len(request.partitions) == 1:
        return refused
    headers = (_header_of(each) for place, each in enumerate(request.partitions) if place not in refused)
    transactional = (each for each in headers if each is not None and each.is_transactional)
    producers = {(each.producer_id, each.producer_epoch) for each in transactional}
    if len(producers) <= 1:
        return refused
    several = BrokerError(
        ErrorCode.INVALID_PRODUCER_ID_MAPPING, "Transactional records contained more than one producer ID"
    )
    return {**dict.fromkeys(range(len(request.partitions)), several), **refused}


def _header_of(wanted: ProducePartition) -> BatchHeader | None:
    """None where there is no whole one."""
    if wanted.records is None or len(wanted.records) < BATCH_OVERHEAD:
        return None
    return read_header(wanted.records)


def _opening_batches(
    broker: BrokerContext,
    version: int,
    request: ProduceRequest,
    places: range,
    refused: Mapping[int, BrokerError],
) -> Iterator[tuple[int, Partition, BatchHeader]]:
    """The batches that would open a transaction on their partitions."""
    verifier = broker.transaction_verifier
    if not (verifier.verifies or version >= FIRST_TO_ADD):
        return
    for place in places:
        opening = None if place in refused else _opened_by(broker, request.partitions[place])
        if opening is not None:
            yield place, *opening


def _opened_by(broker: BrokerContext, wanted: ProducePartition) -> tuple[Partition, BatchHeader] | None:
    header = _header_of(wanted)
    if header is None or not header.is_transactional:
        return None
    try:
        partition = partition_lookup.find(broker, wanted.topic, wanted.topic_id, wanted.partition)
    except BrokerError:
        return None
    producers = partition.log.producers
    if partition.leader is None or producers.has_open_transaction(header.producer_id, header.producer_epoch):
        return None
    known = producers.states.get(header.producer_id)
    if known is not None and known.duplicate_of(header) is not None:
        return None  # a duplicate is answered from what is known, and opens nothing
    return partition, header


def _refusal(code: ErrorCode, version: int) -> BrokerError:
    """The coordinator's error, translated for a producer of that version so that it reacts correctly."""
    message = f"the coordinator of the transaction said {code.name}"
    if code in RETRIABLE or (code is ErrorCode.CONCURRENT_TRANSACTIONS and version < FIRST_TO_ADD):
        return BrokerError(ErrorCode.NOT_ENOUGH_REPLICAS, message)
    if code is ErrorCode.PRODUCER_FENCED:
        return BrokerError(ErrorCode.INVALID_PRODUCER_EPOCH, message)
    if code is ErrorCode.TRANSACTION_ABORTABLE and version < FIRST_TO_SAY_ABORTABLE:
        return BrokerError(ErrorCode.INVALID_TXN_STATE, message)
    return BrokerError(code, message)
