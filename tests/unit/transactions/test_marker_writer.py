"""What WriteTxnMarkers answers: only what a coordinator of Apache Kafka's knows how to take."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.topics import OFFSETS_TOPIC
from data_plane.coordinator.transactions.marker_writer import MarkerWriter
from data_plane.coordinator.transactions.verification_guard import VerificationGuards
from data_plane.purgatory.timing_wheel import WheelTimer
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
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
