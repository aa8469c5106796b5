"""What concerns every partition is done in pieces: no turn of the loop grows with their number."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from typing import Any

import pytest

from data_plane.log import checkpoints
from data_plane.log_manager import background_work, checkpoint_writer
from data_plane.replication import isr_requests
from data_plane.replication.isr_requests import AlterPartitionManager
from data_plane.replication.leader_state import AlterPartitionResult, IsrOutcome
from fetch import follower_session
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_loop, until

PARTITIONS, PIECE = 25, 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_work, "VISITED_PER_TURN", PIECE)
    monkeypatch.setattr(checkpoint_writer, "VISITED_PER_TURN", PIECE)
    monkeypatch.setattr(follower_session, "MOST_NAMED", PIECE)
    monkeypatch.setattr(isr_requests, "MOST_IN_REQUEST", PIECE)


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("R7")
@in_loop
async def test_a_follower_names_its_partitions_in_several_requests():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * PARTITIONS)
        needed = [cluster.produce(b"x", number=number) for number in range(PARTITIONS)]
        for number, offset in enumerate(needed):
            await until(lambda n=number, o=offset: cluster.leader("t", n).high_watermark == o)
        (endpoint,) = cluster.brokers[2].endpoints
        assert {p.partition for r in endpoint.requests for p in r.partitions} == set(range(PARTITIONS))
        assert max(len(r.partitions) for r in endpoint.requests) == PIECE


@in_loop
async def test_a_sweep_takes_several_turns():
    async with Cluster(1) as cluster:
        visited: list[int] = []
        cluster.brokers[1].partitions.background.sweep(range(PARTITIONS), visited.append)
        assert len(visited) == PIECE
        await until(lambda: len(visited) == PARTITIONS)
        assert visited == list(range(PARTITIONS))


@in_loop
async def test_checkpoints_are_collected_in_several_turns_and_are_whole():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]] * PARTITIONS)
        for number in range(PARTITIONS):
            cluster.produce(b"x", number=number)
        await cluster.brokers[1].partitions.checkpoints.write(everything=True)
        path = f"/data/{checkpoints.REPLICATION_OFFSETS}"
        written = checkpoints.read_offsets(cluster.disks[1], path, MAY_BLOCK)
        assert written == {TopicPartition("t", number): 1 for number in range(PARTITIONS)}


class Channel:
    def __init__(self) -> None:
        self.asked: list[int] = []

    async def alter_partitions(self, items: Sequence[Any]) -> Sequence[AlterPartitionResult]:
        self.asked.append(len(items))
        await asyncio.sleep(0)
        return [AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH)] * len(items)


class Requester:
    removed = False
    tp = TopicPartition("t", 0)

    def awaits(self, item: object) -> bool:
        return True

    def handle_alter_partition_response(self, item: object, answer: object, now: float) -> IsrOutcome:
        return IsrOutcome.IGNORED

    def maybe_expand_isr(self, now: float) -> None: ...


@in_loop
async def test_changes_of_isrs_are_sent_in_several_requests():
    channel = Channel()
    manager = AlterPartitionManager(channel, asyncio.get_running_loop())
    item: Any = object()
    for _ in range(PARTITIONS):
        manager.submit(Requester(), item)
    await until(lambda: sum(channel.asked) == PARTITIONS)
    assert channel.asked == [10, 10, 5]
    await manager.close()
