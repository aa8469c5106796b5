"""Controllers that take only short requests (`socket.request.max.bytes`): the rest is asked for later."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from data_plane.replication.directory_assignments import AssignmentsManager, ReplicaAssignment
from data_plane.replication.isr_requests import AlterPartitionManager
from data_plane.replication.leader_state import AlterPartitionResult, IsrOutcome
from kraft.broker.controller_requests import ControllerRequests
from kraft.broker.directory_channel import BrokerDirectoryChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message, encode_request
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.virtual_loop import run_virtually

LONGEST, MANY = 70, 1200


class ShortOnly:
    """The way to a controller that takes so many items at once."""

    def __init__(self) -> None:
        self.taken: list[int] = []
        self.refused = 0

    def _take(self, items: Sequence[object]) -> None:
        if len(items) > LONGEST:
            self.refused += 1
            raise BrokerError(ErrorCode.REQUEST_TIMED_OUT)
        self.taken.append(len(items))

    async def alter_partitions(self, items: Sequence[Any]) -> Sequence[AlterPartitionResult]:
        self._take(items)
        return [AlterPartitionResult(ErrorCode.NONE)] * len(items)

    async def assign_replicas(self, places: Sequence[ReplicaAssignment]) -> None:
        self._take(places)


class Requester:
    removed = False
    is_settled = True

    def __init__(self, number: int) -> None:
        self.tp = TopicPartition("t", number)
        self.answered = 0

    def awaits(self, item: object) -> bool:
        return not self.answered

    def handle_alter_partition_response(
        self, item: object, answer: AlterPartitionResult, now: float
    ) -> IsrOutcome:
        if answer.error is not ErrorCode.NONE:
            return IsrOutcome.ASK_AGAIN
        self.answered += 1
        return IsrOutcome.IGNORED

    def maybe_expand_isr(self, now: float) -> None: ...

    def maybe_shrink_isr(self, now: float) -> None: ...


def judge(channel: ShortOnly) -> None:
    assert sum(channel.taken) == MANY
    assert max(channel.taken) > LONGEST // 2
    assert channel.refused <= 12, "it is not tried again and again"


def test_changes_of_isrs() -> None:
    async def ask() -> None:
        channel = ShortOnly()
        manager = AlterPartitionManager(channel, asyncio.get_running_loop())
        requesters, item = [Requester(number) for number in range(MANY)], SimpleNamespace()
        item.change = SimpleNamespace(joining=None)
        for each in requesters:
            manager.submit(each, item)  # type: ignore[arg-type]
        await asyncio.sleep(60)
        assert {each.answered for each in requesters} == {1}
        judge(channel)
        await manager.close()

    run_virtually(ask())


def test_assignments_of_directories() -> None:
    async def ask() -> None:
        channel = ShortOnly()
        manager = AssignmentsManager(channel, asyncio.get_running_loop())
        for number in range(MANY):
            manager.assign(ReplicaAssignment(UUID(int=1), number, UUID(int=2)))
        await asyncio.sleep(60)
        judge(channel)
        await manager.close()

    run_virtually(ask())


def test_a_request_that_would_end_the_connection_is_not_sent() -> None:
    """The broker's heartbeats wait on it, and it is fenced where the connection is lost again and again."""
    sent: list[int] = []

    async def request(api_key: ApiKey, version: int, fields: Fields) -> Message:
        sent.append(len(encode_request(api_key, version, fields)))
        answer: Any = SimpleNamespace(error_code=0)
        return answer

    async def ask() -> None:
        controller: Any = SimpleNamespace(request=request)
        lifecycle: Any = SimpleNamespace(broker_epoch=5)
        channel = BrokerDirectoryChannel(ControllerRequests(1, lifecycle, controller, max_bytes=1000))
        places = [ReplicaAssignment(UUID(int=number), 0, UUID(int=2)) for number in range(100)]
        with pytest.raises(BrokerError, match="POLICY_VIOLATION"):
            await channel.assign_replicas(places)
        assert sent == []
        await channel.assign_replicas(places[:20])
        assert len(sent) == 1

    asyncio.run(ask())
