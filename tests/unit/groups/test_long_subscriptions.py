"""Of requests for which long subscriptions are read one goes on in each turn of the loop."""

from __future__ import annotations

import asyncio
from collections import Counter

import pytest

from data_plane.coordinator.groups.classic import group_metadata
from data_plane.coordinator.groups.consumer import classic_members
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.messages import CommitOffsets, MemberProtocol, OffsetToCommit
from data_plane.coordinator.groups.service import LONG_SUBSCRIPTION_BYTES, GroupCoordinator
from metadata_quorum.foundation.errors import BrokerError
from tests.unit.groups.group_driver import join
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import ORDERS_0, run, service, started

pytestmark = pytest.mark.row("G7", "P7")

TOGETHER = 5
LONG = (MemberProtocol("range", bytes(LONG_SUBSCRIPTION_BYTES + 1)),)


class Turns:
    """In which turn of the loop something was read."""

    def __init__(self) -> None:
        self.read: Counter[int] = Counter()
        self._turn = 0
        self._loop = asyncio.get_running_loop()
        self._next()

    def _next(self) -> None:
        self._turn += 1
        self._loop.call_soon(self._next)

    def note(self, *_: object) -> None:
        self.read[self._turn] += 1
        raise ValueError


async def delete(groups: GroupCoordinator) -> None:
    await groups.delete_offsets("g", [ORDERS_0])


async def join_again(groups: GroupCoordinator) -> None:
    await groups.join(join(protocols=LONG))


@pytest.mark.parametrize("is_deletion", [True, False])
def test_they_take_turns(monkeypatch: pytest.MonkeyPatch, is_deletion: bool) -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            await groups.commit_offsets(CommitOffsets("g", (OffsetToCommit(ORDERS_0, 1),)))
            if is_deletion:
                started(groups.join(join(protocols=LONG)))
                await asyncio.sleep(0.01)
            else:
                beat = ConsumerHeartbeat(
                    "g", "m", 0, None, rebalance_timeout_ms=1000, subscribed_topic_names=("a",), owned={}
                )
                await groups.consumer_heartbeat(beat)
            turns = Turns()
            monkeypatch.setattr(group_metadata, "subscribed_topics", turns.note)
            monkeypatch.setattr(classic_members, "read_subscription", turns.note)
            asked = delete if is_deletion else join_again
            outcomes = await asyncio.gather(*(asked(groups) for _ in range(TOGETHER)), return_exceptions=True)
            assert all(isinstance(each, BrokerError | ValueError) for each in outcomes)
            assert turns.read.total() == TOGETHER
            assert max(turns.read.values()) == 1

    run(test)
