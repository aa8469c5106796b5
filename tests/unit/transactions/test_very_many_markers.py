"""Of very many markers in one request so many are written side by side."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from itertools import pairwise
from types import SimpleNamespace
from typing import Any, cast

import pytest

from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.marker_writer import APPENDED_PER_TURN, MarkerWriter
from data_plane.coordinator.transactions.verification_guard import VerificationGuards
from kraft.api import transactions
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.contexts import broker_context, node_context
from tests.unit.net.harness import on_a_loop
from tests.unit.replication.cluster import Cluster

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
