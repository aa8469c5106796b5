"""The lags of very many groups are looked at over many turns of the loop, once for all who scrape then."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.groups.messages import CommittedOffset, GroupSummary, ListedGroup
from kraft.metrics.group_lag import ASKED_AT_ONCE, POSITIONS_PER_SLICE, GroupLags, PartitionLag
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ZERO_UUID, PartitionRegistration, TopicPartition
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import broker_context, node_context
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")

GROUPS = 3_000
PARTITIONS = 5


class Cluster:
    """Partition 0 of the topic is led here, the others elsewhere."""

    def __init__(self) -> None:
        self.looks = self.now = self.most = 0
        self.asked: list[int] = []
        self.on_asked: Callable[[], None] = lambda: None
        self.groups = {
            f"g{number}": {
                TopicPartition(f"t{number % 500}", each): CommittedOffset(number)
                for each in range(PARTITIONS)
            }
            for number in range(GROUPS)
        }
        topics = {
            name: TopicImage(
                name,
                ZERO_UUID,
                {
                    each: PartitionRegistration((1, 2), (1, 2), 1 if each == 0 else 2, 0, 0)
                    for each in range(PARTITIONS)
                },
            )
            for name in {tp.topic for offsets in self.groups.values() for tp in offsets}
        }
        node = node_context(asyncio.get_running_loop(), image=MetadataImage(topics_by_name=topics))
        self.lags = GroupLags(
            broker_context(
                node,
                group_coordinator=SimpleNamespace(summaries=self.summaries),
                replica_manager=SimpleNamespace(get=self.get),
                console_channels=SimpleNamespace(ask=self.ask),
            )
        )

    def summaries(self) -> Iterator[GroupSummary]:
        self.looks += 1
        for group_id, offsets in list(self.groups.items()):
            self.now += 1 + len(offsets)
            self.most = max(self.most, self.now)
            yield GroupSummary(ListedGroup(group_id, "consumer", "Stable"), (), offsets)

    def get(self, topic: str, partition: int) -> Any:
        if partition:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        return SimpleNamespace(leader=1, high_watermark=GROUPS)

    async def ask(self, leader: int, api_key: int, version: int, fields: Any, timeout_s: float) -> Any:
        await asyncio.sleep(0)
        assert leader == 2
        assert timeout_s > 0
        partitions = [each for topic in fields["topics"] for each in topic["partitions"]]
        self.asked.append(len(partitions))
        self.on_asked()
        answered = [
            SimpleNamespace(
                name=topic["name"],
                partitions=[
                    SimpleNamespace(partition_index=each["partition_index"], error_code=0, offset=GROUPS + 1)
                    for each in topic["partitions"]
                ],
            )
            for topic in fields["topics"]
        ]
        return SimpleNamespace(topics=answered)

    async def watched(self, *scrapes: Any) -> None:
        everyone = asyncio.gather(*scrapes)
        while not everyone.done():
            await asyncio.sleep(0)
            self.now = 0
        await everyone


@on_a_loop
async def test_very_many_groups_are_looked_at_in_slices() -> None:
    cluster = Cluster()
    await cluster.watched(cluster.lags.refresh())
    assert cluster.most <= POSITIONS_PER_SLICE + 2 * PARTITIONS
    assert cluster.asked == [ASKED_AT_ONCE, ASKED_AT_ONCE]
    assert cluster.lags.counts == {("classic", "Stable"): GROUPS}
    found = cluster.lags.groups[7]
    assert found.partitions[0] == PartitionLag(TopicPartition("t7", 0), 7, GROUPS, GROUPS - 7, 0.0)
    assert found.partitions[1] == PartitionLag(TopicPartition("t7", 1), 7, GROUPS + 1, GROUPS - 6, 0.0)
    assert found.max_lag == GROUPS - 6


@on_a_loop
async def test_who_scrapes_while_another_does_looks_once_for_all_who_wait() -> None:
    """What was looked at before one asked is not new."""
    cluster = Cluster()
    await cluster.watched(*(cluster.lags.refresh() for _ in range(20)))
    assert cluster.looks == 2


@on_a_loop
async def test_a_scraper_that_is_gone_has_looked_for_nobody() -> None:
    cluster = Cluster()
    scrapes = [asyncio.ensure_future(cluster.lags.refresh()) for _ in range(3)]
    cluster.on_asked = lambda: scrapes[cluster.looks - 1].cancel() if cluster.looks < 3 else None
    await asyncio.wait(scrapes)
    assert [each.cancelled() for each in scrapes] == [True, True, False]
    assert len(cluster.lags.groups) == GROUPS


@on_a_loop
async def test_groups_that_go_while_they_are_looked_at() -> None:
    """Their coordinator moves; a second scrape does not see them any more."""
    cluster = Cluster()
    await cluster.watched(cluster.lags.refresh())
    first = asyncio.ensure_future(cluster.lags.refresh())
    cluster.on_asked = cluster.groups.clear
    await cluster.watched(first, cluster.lags.refresh())
    assert cluster.lags.groups == []
    assert not cluster.lags.counts
