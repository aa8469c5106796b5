"""What WriteTxnMarkers answers: only what a coordinator of Apache Kafka's knows how to take."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.topics import OFFSETS_TOPIC
from data_plane.coordinator.transactions.marker_writer import MarkerWriter
from data_plane.coordinator.transactions.verification_guard import VerificationGuards
from data_plane.log.validation import AppendOrigin
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.batch import Record, encode_batch, encode_end_txn_marker
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, PartitionRegistration, TopicPartition
from tests.support.logs import NOW_MS, batch, open_log
from tests.support.partitions import lone_context
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import service

OFFSETS_7 = TopicPartition(OFFSETS_TOPIC, 7)


def outcome(leads: str) -> ErrorCode:
    """Of a marker for a partition of `__consumer_offsets` that this broker leads in that way."""

    async def write() -> ErrorCode:
        loop = asyncio.get_running_loop()
        log = MemoryLog()
        async with service(log, epoch=None) as groups:
            if leads == "and cannot load":
                log.append(7, 1, bytearray(encode_batch([Record(value=b"damaged")])))
                log.partition(7).data[-3] ^= 1
            if leads != "not":
                groups.become_leader(7, 1)
                await groups.loaded()
            nobody: Any = SimpleNamespace()
            writer = MarkerWriter(
                nobody, groups, VerificationGuards(), WheelTimer(loop), loop, lambda: 1, timeout_s=1
            )
            outcomes = await writer.write(ProducerIdAndEpoch(5, 0), 0, [OFFSETS_7], commit=True)
            return outcomes[OFFSETS_7]

    return asyncio.run(write())


@pytest.mark.parametrize(
    ("leads", "code"),
    [
        ("and serves", ErrorCode.NONE),
        ("and cannot load", ErrorCode.NOT_LEADER_OR_FOLLOWER),
        ("not", ErrorCode.NOT_LEADER_OR_FOLLOWER),
    ],
)
def test_the_group_coordinators_own_errors_are_not_reported(leads: str, code: ErrorCode) -> None:
    assert outcome(leads) is code


PRODUCER = 5


def of_transaction(epoch: int, sequence: int = 0) -> bytearray:
    return batch(
        b"a record", producer_id=PRODUCER, producer_epoch=epoch, base_sequence=sequence, transactional=True
    )


@pytest.mark.parametrize("topic", ["t", OFFSETS_TOPIC])
def test_a_late_copy_of_a_marker_does_not_end_the_next_transaction(tmp_path: Path, topic: str) -> None:
    """From transaction.version 2 on that one has the marker's epoch, and half of it would be committed."""
    tp = TopicPartition(topic, 7)

    async def write() -> None:
        loop = asyncio.get_running_loop()
        partition = Partition(tp, ZERO_UUID, open_log(tmp_path), lone_context())
        partitions: Any = SimpleNamespace(get=lambda *_: partition)

        class Groups:
            """Write the marker as a coordinator of groups does."""

            async def end_transaction(
                self, number: int, producer: ProducerIdAndEpoch, epoch: int, *, commit: bool
            ) -> None:
                marker = encode_end_txn_marker(
                    commit=commit,
                    coordinator_epoch=epoch,
                    producer_id=producer.producer_id,
                    producer_epoch=producer.epoch,
                    timestamp=NOW_MS,
                )
                origin = AppendOrigin.COORDINATOR
                partition.append_as_leader(bytearray(marker), acks=-1, now=0.0, now_ms=NOW_MS, origin=origin)

        groups: Any = Groups()
        writer = MarkerWriter(
            partitions, groups, VerificationGuards(), WheelTimer(loop), loop, lambda: NOW_MS, timeout_s=1
        )

        async def marked(epoch: int, version: int) -> ErrorCode:
            of_transaction = ProducerIdAndEpoch(PRODUCER, epoch)
            outcomes = await writer.write(of_transaction, 0, [tp], commit=True, transaction_version=version)
            return outcomes[tp]

        def open_epochs() -> list[int]:
            return [each.epoch for each in partition.log.producers.open_transactions(9)]

        def append(epoch: int) -> None:
            partition.append_as_leader(of_transaction(epoch), acks=-1, now=0.0, now_ms=NOW_MS)

        partition.become_leader(PartitionRegistration((1,), (1,), 1, 0, 0), 0.0)
        append(0)
        assert await marked(1, 2) is ErrorCode.NONE
        assert open_epochs() == []
        assert await marked(1, 2) is ErrorCode.NONE  # asked for again: the answer was lost
        append(1)
        assert await marked(1, 2) is ErrorCode.INVALID_PRODUCER_EPOCH
        assert open_epochs() == [1]
        assert await marked(2, 2) is ErrorCode.NONE
        append(2)
        assert await marked(2, 0) is ErrorCode.NONE  # all transactions of before have one epoch
        assert open_epochs() == []
        append(3)
        partition.become_follower(PartitionRegistration((1, 2), (2,), 2, 1, 1))
        assert await marked(3, 2) is ErrorCode.NOT_LEADER_OR_FOLLOWER  # it is not for a follower to judge

    asyncio.run(write())


def test_a_marker_that_is_truncated_before_the_last_one_is_written_is_not_acknowledged(
    tmp_path: Path,
) -> None:
    tp = TopicPartition("t", 0)

    async def write() -> None:
        loop = asyncio.get_running_loop()
        partition = Partition(tp, ZERO_UUID, open_log(tmp_path), lone_context())

        def lead(epoch: int) -> None:
            partition.become_leader(PartitionRegistration((1,), (1,), 1, epoch, epoch), 0.0)

        def written() -> Iterator[TopicPartition]:
            yield tp
            assert partition.log.log_end_offset == 1
            partition.become_follower(PartitionRegistration((1, 2), (2,), 2, 1, 1))
            partition.log.truncate_fully_and_start_at(0)
            partition.high_watermark = 0
            lead(2)
            partition.append_as_leader(batch(b"another one's"), acks=-1, now=0.0, now_ms=NOW_MS)
            assert partition.high_watermark == 1

        lead(0)
        partitions: Any = SimpleNamespace(get=lambda *_: partition)
        groups: Any = SimpleNamespace()
        writer = MarkerWriter(
            partitions, groups, VerificationGuards(), WheelTimer(loop), loop, lambda: NOW_MS, timeout_s=1
        )
        outcomes = await writer.write(ProducerIdAndEpoch(5, 0), 0, written(), commit=True)
        assert outcomes == {tp: ErrorCode.NOT_LEADER_OR_FOLLOWER}

    asyncio.run(write())
