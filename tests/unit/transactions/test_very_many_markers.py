"""Of very many markers in one request so many are written side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise, product
from types import SimpleNamespace
from typing import Any, cast

import pytest

from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.state_machine import Instant, ProducerIdAndEpoch
from data_plane.coordinator.transactions.marker_writer import APPENDED_PER_TURN, MarkerWriter
from data_plane.coordinator.transactions.records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
)
from data_plane.coordinator.transactions.service import (
    ENDED_PER_TURN,
    TransactionCoordinator,
    TransactionCoordinatorConfig,
    TransactionMarker,
)
from data_plane.coordinator.transactions.transaction_state_manager import (
    TransactionLimits,
    TransactionStateManager,
)
from data_plane.coordinator.transactions.verification_guard import VerificationGuards
from kraft.api import transactions
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.contexts import broker_context, node_context
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.net.harness import on_a_loop
from tests.unit.replication.cluster import Cluster
from tests.unit.transactions.transaction_driver import EPOCH_MS

pytestmark = pytest.mark.row("P4")

MARKERS, AT_ONCE = 200, 30


class Writer:
    """Is slow."""

    def __init__(self, fails: int = -1) -> None:
        """`fails`: the producer whose marker cannot be written, for a bug."""
        self._fails = fails
        self.now = self.most = 0

    async def write(
        self, producer: ProducerIdAndEpoch, epoch: int, partitions: Sequence[TopicPartition], **_: Any
    ) -> dict[TopicPartition, ErrorCode]:
        if producer.producer_id == self._fails:
            raise ValueError("a bug")
        self.now += 1
        self.most = max(self.most, self.now)
        for _turn in range(50):
            await asyncio.sleep(0)
        self.now -= 1
        return dict.fromkeys(partitions, ErrorCode.NOT_LEADER_OR_FOLLOWER)


def request_of(count: int) -> Any:
    markers = [
        SimpleNamespace(
            producer_id=number,
            producer_epoch=0,
            coordinator_epoch=0,
            transaction_result=True,
            transaction_version=0,
            topics=[SimpleNamespace(name="t", partition_indexes=[0, 1])],
        )
        for number in range(count)
    ]
    return SimpleNamespace(markers=markers)


async def answer_of(writer: Any, count: int) -> Any:
    broker = broker_context(node_context(asyncio.get_running_loop()), marker_writer=writer)
    ctx: Any = None
    return await transactions.handle_write_markers(broker, ctx, request_of(count))


@on_a_loop
async def test_a_request_of_very_many_markers_writes_some_at_a_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transactions, "PARTS_AT_ONCE", AT_ONCE)
    writer = Writer()
    answer = await answer_of(writer, MARKERS)
    assert writer.most == AT_ONCE
    assert [each["producer_id"] for each in answer["markers"]] == list(range(MARKERS))
    refused = int(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert {
        (each["partition_index"], each["error_code"])
        for marker in answer["markers"]
        for each in marker["topics"][0]["partitions"]
    } == {(0, refused), (1, refused)}


@on_a_loop
async def test_what_keeps_one_of_the_first_markers_from_being_written_is_told() -> None:
    """It has ended long before the others."""
    with pytest.raises(ValueError, match="a bug"):
        await answer_of(Writer(fails=0), MARKERS)


@on_a_loop
async def test_transactions_that_end_together_share_the_turns_of_the_loop() -> None:
    """Each wrote fifty markers in its first turn, and fifty producers may commit at once."""
    partitions, producers = [TopicPartition("t", number) for number in range(50)], range(20)
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]] * len(partitions))
        broker, groups = cluster.brokers[1], cast(GroupCoordinator, None)
        writer = MarkerWriter(
            broker.partitions, groups, VerificationGuards(), broker.timer, cluster.loop,
            lambda: cluster.now_ms, timeout_s=5.0,
        )  # fmt: skip
        writing = [
            asyncio.ensure_future(writer.write(ProducerIdAndEpoch(each, 0), 0, partitions, commit=True))
            for each in producers
        ]
        ends = [0]
        while not all(each.done() for each in writing):
            await asyncio.sleep(0)
            ends.append(sum(cluster.leader("t", tp.partition).log.log_end_offset for tp in partitions))
        assert ends[-1] == len(partitions) * len(producers)
        assert max(after - before for before, after in pairwise(ends)) <= 2 * APPENDED_PER_TURN
        assert {code for each in writing for code in each.result().values()} == {ErrorCode.NONE}


class NeverWritten:
    """A channel to leaders that are gone."""

    def __init__(self) -> None:
        self.begun = self.called_off = 0

    async def write(self, marker: TransactionMarker) -> None:
        self.begun += 1
        try:
            await asyncio.Event().wait()
        finally:
            self.called_off += 1


@on_a_loop
async def test_what_was_prepared_in_many_partitions_goes_on_some_in_each_turn_of_the_loop() -> None:
    """They load together after a failover. Each began fifty at a time, and each called off as many at its
    end."""
    partitions, each = 10, ENDED_PER_TURN
    log, markers, loop = MemoryLog(), NeverWritten(), asyncio.get_running_loop()
    manager, at = TransactionStateManager(TransactionLimits()), Instant(0.0, EPOCH_MS)
    place = frozenset({TopicPartition("t", 0)})
    for number, name in product(range(partitions), range(each)):
        prepared = TransactionMetadata(name, 0, 1, TransactionState.PREPARE_COMMIT, place, EPOCH_MS, EPOCH_MS)
        key, value = manager.encode(TransactionRecord(f"x{name}", prepared))
        log.append(number, 1, bytearray(encode_batch([Record(timestamp=at.now_ms, key=key, value=value)])))

    async def no_id() -> int:
        raise AssertionError

    transactions = TransactionCoordinator(
        TransactionCoordinatorConfig(), log, markers, no_id, loop, lambda: EPOCH_MS
    )
    for number in range(partitions):
        transactions.become_leader(number, 1)
    begun = [0]
    while begun[-1] < partitions * each:
        await asyncio.sleep(0)
        begun.append(markers.begun)
    assert max(after - before for before, after in pairwise(begun)) <= 2 * ENDED_PER_TURN
    transactions.close()
    gone = [0]
    while gone[-1] < partitions * each:
        await asyncio.sleep(0)
        gone.append(markers.called_off)
    assert max(after - before for before, after in pairwise(gone)) <= 2 * ENDED_PER_TURN
