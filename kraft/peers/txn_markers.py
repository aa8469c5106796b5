"""Transaction markers to the leaders of a transaction's partitions: the coordinator's `MarkerChannel` port.

    TransactionCoordinator -> BrokerMarkerChannel.write --> MarkerWriter           partitions led here
                                              `-> outbox of a broker -> WriteTxnMarkers -> its MarkerWriter

A marker is sent again until a partition's leader, the current one, has it replicated; a partition whose topic
is deleted needs none. To each broker one request is in flight at a time, and the markers that come meanwhile
are sent together in the next, `MARKERS_AT_ONCE` at most.

A leader refuses a marker of transaction.version 2 where a transaction of the marker's own epoch is open: it
takes it for a late copy. As long as the coordinator has not completed the transaction, its producer cannot
begin the next one, so there it is the transaction itself that is open: a coordinator of an earlier build
prepared it without a new epoch. Then the marker is sent as one of before, which only a newer epoch refuses.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Iterable, Mapping
from typing import Any, Final, NamedTuple

from data_plane.coordinator.transactions.marker_writer import MarkerWriter
from data_plane.coordinator.transactions.service import TransactionMarker
from kraft.peers.broker_channels import BrokerChannels
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import NO_LEADER, TopicPartition, by_topic
from metadata_quorum.foundation.supervision import report_fault, supervised
from metadata_quorum.metadata.metadata_cache import MetadataCache

log = logging.getLogger(__name__)

WRITE_TXN_MARKERS_VERSIONS: Final = (1, 2)
"""From 2 on a marker says of which transaction.version its transaction is. Brokers from before do not know it
(of Apache Kafka: before 4.3)."""

MARKERS_AT_ONCE: Final = 200
"""In one request: each is encoded here, and its answer wakes a task that appends a record."""
FIRST_PAUSE_S: Final = 0.02
LONGEST_PAUSE_S: Final = 1.0


_DONE: Final = frozenset(
    {
        ErrorCode.NONE,
        # The log there has seen a later epoch: whatever this marker would end has ended.
        ErrorCode.INVALID_PRODUCER_EPOCH,
    }
)


class BrokerMarkerChannel:
    """One per broker."""

    def __init__(
        self,
        node_id: int,
        metadata_cache: MetadataCache,
        local: MarkerWriter,
        broker_channels: BrokerChannels,
        loop: asyncio.AbstractEventLoop,
        timeout_s: float,
    ) -> None:
        """`timeout_s`: patience with another broker's answer."""
        self._node_id = node_id
        self._metadata_cache = metadata_cache
        self._local = local
        self._broker_channels = broker_channels
        self._loop = loop
        self._timeout_s = timeout_s
        self._outboxes: dict[int, _Outbox] = {}

    async def write(self, marker: TransactionMarker) -> None:
        """See the port. When the task is cancelled, the next coordinator sends the markers that are
        missing."""
        left = set(marker.partitions)
        pause_s = FIRST_PAUSE_S
        while True:
            outcomes = await self._send_to_leaders(marker, left)
            refused = {tp for tp, code in outcomes.items() if code is ErrorCode.INVALID_PRODUCER_EPOCH}
            if refused and marker.transaction_version:
                outcomes = {tp: code for tp, code in outcomes.items() if tp not in refused}
                outcomes |= await self._send_to_leaders(marker._replace(transaction_version=0), refused)
            left -= {tp for tp, code in outcomes.items() if code in _DONE}
            if ErrorCode.TRANSACTION_COORDINATOR_FENCED in outcomes.values():
                pause_s = LONGEST_PAUSE_S
            left = {tp for tp in left if self._exists(tp)}
            if not left:
                return
            await asyncio.sleep(pause_s)
            pause_s = min(pause_s * 2, LONGEST_PAUSE_S)

    def close(self) -> None:
        for outbox in self._outboxes.values():
            outbox.close()

    async def _send_to_leaders(
        self, marker: TransactionMarker, partitions: Iterable[TopicPartition]
    ) -> dict[TopicPartition, ErrorCode]:
        """Without those that nobody answered for."""
        answers = await asyncio.gather(
            *(self._send(leader, marker, led) for leader, led in self._by_leader(partitions).items())
        )
        return {tp: code for outcomes in answers for tp, code in outcomes.items()}

    def _by_leader(self, partitions: Iterable[TopicPartition]) -> dict[int, list[TopicPartition]]:
        """The partitions by their leader, in the order of their names, without those that have none now."""
        image = self._metadata_cache.image
        found: dict[int, list[TopicPartition]] = {}
        for topic, numbers in sorted(by_topic(partitions).items()):
            for tp in (TopicPartition(topic, number) for number in sorted(numbers)):
                partition = image.partition(tp)
                if partition is not None and partition.leader != NO_LEADER:
                    found.setdefault(partition.leader, []).append(tp)
        return found

    def _exists(self, tp: TopicPartition) -> bool:
        return self._metadata_cache.image.partition(tp) is not None

    async def _send(
        self, leader: int, marker: TransactionMarker, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        if leader == self._node_id:
            return await self._local.write(
                marker.producer,
                marker.coordinator_epoch,
                partitions,
                commit=marker.commit,
                transaction_version=marker.transaction_version,
            )
        outbox = self._outboxes.get(leader)
        if outbox is None:
            outbox = self._outboxes[leader] = _Outbox(
                leader, self._broker_channels, self._loop, self._timeout_s
            )
        return await outbox.send(marker, partitions)


_Outcomes = Mapping[int, Mapping[TopicPartition, ErrorCode]]


class _PendingMarker(NamedTuple):
    marker: TransactionMarker
    partitions: list[TopicPartition]
    response: asyncio.Future[Mapping[TopicPartition, ErrorCode]]


class _Outbox:
    """Markers that wait for one broker."""

    def __init__(
        self,
        broker_id: int,
        broker_channels: BrokerChannels,
        loop: asyncio.AbstractEventLoop,
        timeout_s: float,
    ) -> None:
        self._broker_id = broker_id
        self._broker_channels = broker_channels
        self._loop = loop
        self._timeout_s = timeout_s
        self._waiting: list[_PendingMarker] = []
        self._sending: asyncio.Task[None] | None = None

    async def send(
        self, marker: TransactionMarker, partitions: list[TopicPartition]
    ) -> Mapping[TopicPartition, ErrorCode]:
        """The leader's error code for each; none for those that it did not answer."""
        waiting = _PendingMarker(marker, partitions, self._loop.create_future())
        self._waiting.append(waiting)
        if self._sending is None:
            self._sending = supervised(self._loop, self._send_all(), f"markers-to-{self._broker_id}")
        return await waiting.response

    def close(self) -> None:
        if self._sending is not None:
            self._sending.cancel()

    async def _send_all(self) -> None:
        try:
            while self._waiting:
                batch = self._take(MARKERS_AT_ONCE)
                outcomes = await self._write_markers(batch)
                _answer(batch, outcomes or {})
                if outcomes is None:
                    await self._give_back()
        finally:
            self._sending = None

    def _take(self, most: int) -> list[_PendingMarker]:
        taken = self._waiting[:most]
        del self._waiting[:most]
        return taken

    async def _give_back(self) -> None:
        """The broker did not answer, which may have taken half a minute: those that wait behind may have
        another leader by now, and do not wait until it has not answered them, too."""
        left = len(self._waiting)
        while left:
            await asyncio.sleep(0)
            given_back = self._take(min(left, MARKERS_AT_ONCE))
            left -= len(given_back)
            _answer(given_back, {})

    async def _write_markers(self, batch: list[_PendingMarker]) -> _Outcomes | None:
        """The outcomes by producer id: a producer ends one transaction at a time. None: no answer came."""
        fields = {"markers": [_marker_fields(waiting.marker, waiting.partitions) for waiting in batch]}
        channels, api_key = self._broker_channels, ApiKey.WRITE_TXN_MARKERS
        try:
            version = await channels.version_of(
                self._broker_id, api_key, WRITE_TXN_MARKERS_VERSIONS, self._timeout_s
            )
            response = await channels.ask(self._broker_id, api_key, version, fields, self._timeout_s)
            return {marker.producer_id: _outcomes(marker) for marker in response.markers}
        except OSError as error:
            log.info("markers for broker %d: %s", self._broker_id, error)
        except Exception as error:  # noqa: BLE001 - the callers send their markers again
            report_fault(self._loop, f"markers for broker {self._broker_id}", error)
        return None


def _answer(batch: Iterable[_PendingMarker], outcomes: _Outcomes) -> None:
    for waiting in batch:
        if not waiting.response.done():
            waiting.response.set_result(outcomes.get(waiting.marker.producer.producer_id, {}))


def _marker_fields(marker: TransactionMarker, partitions: Iterable[TopicPartition]) -> dict[str, Any]:
    return {
        "producer_id": marker.producer.producer_id,
        "producer_epoch": marker.producer.epoch,
        "transaction_result": marker.commit,
        "coordinator_epoch": marker.coordinator_epoch,
        "transaction_version": marker.transaction_version,
        "topics": [
            {"name": name, "partition_indexes": numbers} for name, numbers in by_topic(partitions).items()
        ],
    }


def _outcomes(marker: Message) -> Mapping[TopicPartition, ErrorCode]:
    return {
        TopicPartition(topic.name, partition.partition_index): ErrorCode(partition.error_code)
        for topic in marker.topics
        for partition in topic.partitions
    }
