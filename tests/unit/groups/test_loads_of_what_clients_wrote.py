"""Clients that call themselves administrators write to `__consumer_offsets`: few bytes that are very much."""

from __future__ import annotations

import asyncio
import random
import time
from collections.abc import Sequence

import pytest

from data_plane.coordinator.groups.messages import CommittedOffset
from data_plane.coordinator.groups.offsets import OffsetMetadataManager
from data_plane.coordinator.groups.records import OffsetRecord, encode
from data_plane.coordinator.groups.service import GroupCoordinator, GroupCoordinatorConfig
from data_plane.coordinator.replay import ENDED_PER_TURN, NAMED
from metadata_quorum.foundation.batch import Record, encode_batch, encode_end_txn_marker
from metadata_quorum.foundation.compression import CompressionType
from metadata_quorum.foundation.model import TopicPartition
from tests.support.cpu_time import slowness
from tests.unit.groups.group_driver import EPOCH_MS
from tests.unit.groups.memory_log import MemoryLog

VERY_MANY = 50_000
PRODUCER_ID = 7


def offset_record(number: int) -> Record:
    value = CommittedOffset(number, -1, "", EPOCH_MS, -1)
    key, encoded = encode(OffsetRecord("g", TopicPartition("orders", number), value))
    return Record(timestamp=1, key=key, value=encoded)


async def loaded(batches: Sequence[bytes]) -> tuple[GroupCoordinator, float]:
    """A coordinator that has read them, and the CPU seconds of the longest turn of the loop."""
    loop, log = asyncio.get_running_loop(), MemoryLog()
    groups = GroupCoordinator(GroupCoordinatorConfig(), log, loop, random.Random(1), lambda: EPOCH_MS)
    number = groups.partition_for("g")
    for batch in batches:
        log.append(number, 1, bytearray(batch))
    last, longest = time.thread_time(), 0.0

    def turn() -> None:
        nonlocal last, longest
        now = time.thread_time()
        last, longest = now, max(longest, now - last)
        ringing[0] = loop.call_soon(turn)

    ringing = [loop.call_soon(turn)]
    groups.become_leader(number, 1)
    await groups.loaded()
    ringing[0].cancel()
    return groups, longest


@pytest.mark.row("G3", "P7")
@pytest.mark.parametrize(
    "batch",
    [
        encode_batch([offset_record(3)] * VERY_MANY, compression=CompressionType.ZSTD),
        encode_batch([Record(timestamp=1, key=b"\0\1", value=None)] * VERY_MANY),
        encode_batch([offset_record(3)._replace(headers=(("", None),) * (10 * VERY_MANY))]),
    ],
    ids=["records", "records of another kind, uncompressed", "headers"],
)
def test_a_batch_that_is_very_much(batch: bytes, caplog: pytest.LogCaptureFixture) -> None:
    """A batch of a hundred kilobytes held the loop for a second."""

    async def test() -> None:
        groups, longest = await loaded([batch])
        assert longest < 0.1 * slowness()
        groups.close()

    asyncio.run(test())
    assert len(caplog.records) <= NAMED + 1


@pytest.mark.row("G3", "P7")
@pytest.mark.parametrize("commit", [False, True])
def test_a_transaction_of_very_many_offsets(monkeypatch: pytest.MonkeyPatch, commit: bool) -> None:
    parts: list[int] = []
    end = OffsetMetadataManager.end_transaction

    def noted(offsets: OffsetMetadataManager, producer_id: int, *, commit: bool, most: int) -> bool:
        parts.append(most)
        return end(offsets, producer_id, commit=commit, most=most)

    monkeypatch.setattr(OffsetMetadataManager, "end_transaction", noted)
    held = [offset_record(number) for number in range(2 * ENDED_PER_TURN + 1)]
    marker = encode_end_txn_marker(
        commit=commit, coordinator_epoch=0, producer_id=PRODUCER_ID, producer_epoch=0, timestamp=1
    )

    async def test() -> None:
        groups, _ = await loaded(
            [encode_batch(held, producer_id=PRODUCER_ID, producer_epoch=0, transactional=True), marker]
        )
        assert parts == [ENDED_PER_TURN] * 3
        kept = [each.offsets for each in groups.summaries()]
        assert sum(map(len, kept)) == (len(held) if commit else 0)
        groups.close()

    asyncio.run(test())
