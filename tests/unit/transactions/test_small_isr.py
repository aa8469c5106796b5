"""While the ISR of `__transaction_state` is too small, nothing of what is written there is replicated."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import NamedTuple

import pytest

from data_plane.coordinator.internal_topic import InternalTopic
from data_plane.coordinator.topics import TRANSACTIONS_TOPIC
from data_plane.coordinator.transactions.records import TransactionState
from data_plane.coordinator.transactions.service import (
    TransactionCoordinator,
    TransactionCoordinatorConfig,
    TransactionMarker,
)
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.virtual_loop import run_virtually
from tests.unit.replication.cluster import Cluster
from tests.unit.transactions.transaction_driver import TIMEOUT_MS

LAG_S = 2.0


class NoMarkers:
    async def write(self, marker: TransactionMarker) -> None:
        raise AssertionError


async def first_id() -> int:
    return 1000


class Rig(NamedTuple):
    cluster: Cluster
    leader: Partition
    transactions: TransactionCoordinator

    def cut(self) -> None:
        """The follower off."""
        self.cluster.cuts.add((2, 1))
        for endpoint in self.cluster.brokers[2].endpoints:
            endpoint.break_off()

    async def shrink(self) -> None:
        self.leader.maybe_shrink_isr(self.cluster.loop.time())
        await asyncio.sleep(0.1)
        assert self.cluster.isr(TRANSACTIONS_TOPIC) == (1,)


@asynccontextmanager
async def coordinator() -> AsyncIterator[Rig]:
    async with Cluster(2, lag_time_max=LAG_S) as cluster:
        cluster.create_topic(TRANSACTIONS_TOPIC, [[1, 2]], min_insync_replicas="2")
        broker, loop = cluster.brokers[1], cluster.loop
        log = InternalTopic(
            TRANSACTIONS_TOPIC, broker.partitions, loop, lambda: cluster.now_ms, broker.blocking
        )
        transactions = TransactionCoordinator(
            TransactionCoordinatorConfig(), log, NoMarkers(), first_id, loop, lambda: cluster.now_ms
        )
        transactions.partitions = 1
        leader = cluster.leader(TRANSACTIONS_TOPIC)
        transactions.become_leader(0, leader.leader_epoch)
        await transactions.loaded()
        yield Rig(cluster, leader, transactions)
        transactions.close()


def with_coordinator(test: Callable[[Rig], Awaitable[None]]) -> Callable[[], None]:
    def run() -> None:
        async def main() -> None:
            async with coordinator() as rig:
                await test(rig)

        run_virtually(main())

    return run


@with_coordinator
async def test_replies_to_those_who_ask_again_and_again_wait_together(rig):
    rig.cut()
    with pytest.raises(BrokerError):
        await rig.transactions.init_producer_id("x", TIMEOUT_MS, None)
    await rig.shrink()
    for _ in range(3):
        asked = (rig.transactions.describe("x") for _ in range(10))
        refused = await asyncio.gather(*asked, return_exceptions=True)
        assert {each.code for each in refused} == {ErrorCode.COORDINATOR_NOT_AVAILABLE}
    assert len(rig.leader.high_watermark_purgatory) == 1

    described = asyncio.ensure_future(rig.transactions.describe("x"))
    rig.cluster.cuts.clear()
    assert (await described).state is TransactionState.EMPTY
    assert len(rig.leader.high_watermark_purgatory) == 0


@with_coordinator
async def test_a_reply_that_waits_while_the_isr_shrinks_comes_when_it_has_grown(rig):
    rig.cut()
    begun = asyncio.ensure_future(rig.transactions.init_producer_id("x", TIMEOUT_MS, None))
    await asyncio.sleep(LAG_S + 0.5)
    await rig.shrink()
    rig.cluster.cuts.clear()
    assert (await begun).epoch == 0
