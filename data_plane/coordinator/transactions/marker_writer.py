"""A transaction's end on the partitions that this broker leads: markers into their logs.

    WriteTxnMarkers, or our own coordinator -> MarkerWriter -> partition.append_as_leader, acks=all
                                                `-> groups: offsets committed in the transaction

A marker of an older producer epoch or an older coordinator than the log has is refused (data_plane/log/
producers.py); from transaction.version 2 on, so is a late copy that finds the producer's next transaction
open, which has the marker's epoch (KIP-1228). For `__consumer_offsets` the group coordinator writes it,
because its offsets must follow the order of its log.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterable
from typing import Final

from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.topics import OFFSETS_TOPIC
from data_plane.coordinator.transactions.transaction_state_manager import EPOCH_PER_TRANSACTION
from data_plane.coordinator.transactions.verification_guard import VerificationGuards
from data_plane.log.validation import AppendOrigin
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.replication.delayed_produce import Appended, await_replication
from data_plane.replication.partition import ALL_REPLICAS
from data_plane.replication.replica_manager import ReplicaManager
from metadata_quorum.foundation.batch import encode_end_txn_marker
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.turns import TurnShare

_OF_GROUP_COORDINATORS: Final = frozenset(
    {
        ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
        ErrorCode.COORDINATOR_NOT_AVAILABLE,
        ErrorCode.NOT_COORDINATOR,
    }
)
"""To a coordinator of transactions all of them mean what NOT_LEADER_OR_FOLLOWER says: send it again, to the
leader of then. Apache Kafka's takes any other answer for a bug, and sends no marker ever after."""


APPENDED_PER_TURN: Final = 50
"""Markers, of all transactions that end together; each takes some 40 microseconds, and the first abort of a
segment 0.3 ms: it makes a file."""


class MarkerWriter:
    """See the module."""

    def __init__(
        self,
        partitions: ReplicaManager,
        groups: GroupCoordinator,
        guards: VerificationGuards,
        timer: WheelTimer,
        loop: asyncio.AbstractEventLoop,
        now_ms: Callable[[], int],
        timeout_s: float,
    ) -> None:
        """`timeout_s`: how long to wait for the replication of a marker."""
        self._partitions = partitions
        self._groups = groups
        self._guards = guards
        self._timer = timer
        self._loop = loop
        self._now_ms = now_ms
        self._timeout_s = timeout_s
        self._appends = TurnShare(loop, APPENDED_PER_TURN)

    async def write(
        self,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        partitions: Iterable[TopicPartition],
        *,
        commit: bool,
        transaction_version: int = 0,
    ) -> dict[TopicPartition, ErrorCode]:
        """The outcome on each partition, once the marker is replicated where it was written."""
        in_next_epoch = transaction_version >= EPOCH_PER_TRANSACTION
        outcomes: dict[TopicPartition, ErrorCode] = {}
        appended: list[Appended] = []
        of_groups: list[TopicPartition] = []
        for tp in partitions:
            if tp.topic == OFFSETS_TOPIC:
                of_groups.append(tp)
                continue
            await self._appends.wait()
            try:
                if in_next_epoch:
                    self._check_not_late(tp, producer)
                appended.append(self._append(tp, producer, coordinator_epoch, commit))
            except BrokerError as error:
                outcomes[tp] = error.code
        ends = [
            self._end_in_group(tp, producer, coordinator_epoch, commit, in_next_epoch) for tp in of_groups
        ]
        codes, *group_codes = await asyncio.gather(self._replicated(appended), *ends)
        outcomes.update((partition.tp, code) for (partition, _, _), code in zip(appended, codes, strict=True))
        outcomes.update(zip(of_groups, (code for [code] in group_codes), strict=True))
        return outcomes

    def _check_not_late(self, tp: TopicPartition, producer: ProducerIdAndEpoch) -> None:
        """Only a leader can tell. Raises BrokerError, INVALID_PRODUCER_EPOCH."""
        partition = self._partitions.get(*tp)
        if partition.is_leader and partition.log.producers.has_open_transaction(*producer):
            raise BrokerError(
                ErrorCode.INVALID_PRODUCER_EPOCH, f"{tp}: {producer} is in its next transaction"
            )

    def _append(
        self, tp: TopicPartition, producer: ProducerIdAndEpoch, coordinator_epoch: int, commit: bool
    ) -> Appended:
        partition = self._partitions.get(*tp)
        now_ms = self._now_ms()
        marker = encode_end_txn_marker(
            commit=commit,
            coordinator_epoch=coordinator_epoch,
            producer_id=producer.producer_id,
            producer_epoch=producer.epoch,
            timestamp=now_ms,
        )
        info = partition.append_as_leader(
            bytearray(marker),
            acks=ALL_REPLICAS,
            now=self._loop.time(),
            now_ms=now_ms,
            origin=AppendOrigin.COORDINATOR,
        )
        self._guards.marker_written(tp, producer.producer_id)
        return partition, info.last_offset + 1, partition.leader_epoch

    async def _replicated(self, appended: list[Appended]) -> list[ErrorCode]:
        outcomes: asyncio.Future[list[ErrorCode]] = self._loop.create_future()

        def on_done(codes: list[ErrorCode]) -> None:
            if not outcomes.done():
                outcomes.set_result(codes)

        await_replication(appended, timer=self._timer, timeout=self._timeout_s, on_done=on_done)
        return await outcomes

    async def _end_in_group(
        self,
        tp: TopicPartition,
        producer: ProducerIdAndEpoch,
        coordinator_epoch: int,
        commit: bool,
        in_next_epoch: bool,
    ) -> list[ErrorCode]:
        await self._appends.wait()
        try:
            if in_next_epoch:
                self._check_not_late(tp, producer)
            self._guards.marker_written(tp, producer.producer_id)
            await self._groups.end_transaction(tp.partition, producer, coordinator_epoch, commit=commit)
        except BrokerError as error:
            later = error.code in _OF_GROUP_COORDINATORS
            return [ErrorCode.NOT_LEADER_OR_FOLLOWER if later else error.code]
        return [ErrorCode.NONE]
