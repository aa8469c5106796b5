"""What the `IsrChannel` port promises to AlterPartitionManager: the quorum's own decision, the controller of
the simulated partition and the one of the cluster in memory answer an ISR change alike."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, Protocol
from uuid import UUID

import pytest

from chaos.sim.replication_controller import SimController
from data_plane.replication.isr_requests import IsrChannel
from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult, PendingIsrChange
from kraft.api.brokers import handle_alter_partition
from kraft.broker.controller_requests import ControllerRequests
from kraft.broker.isr_channel import BrokerIsrChannel
from kraft.net.connection_state import ConnectionState
from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import (
    Fields,
    Message,
    decode_request,
    decode_response,
    encode_request,
    encode_response,
)
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.metadata.records import UnfenceBrokerRecord
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol.replies import IsrResult
from tests.support.contexts import controller_context, node_context
from tests.support.metadata_machine import MetadataMachine
from tests.unit.replication.cluster import Cluster

TOPIC = "t"
LEADER = 1


class Rig(Protocol):
    """A controller of one partition, on brokers 1 (which leads), 2 and 3, all of them in its ISR."""

    def channel(self, broker_id: int) -> IsrChannel: ...

    def state(self) -> tuple[UUID, int, int]:
        """Topic id, leader epoch, partition epoch."""

    def broker_epoch(self, broker_id: int) -> int: ...

    def fence(self, broker_id: int) -> None: ...

    def unfence(self, broker_id: int) -> None: ...


class Answered:
    """A channel by function call."""

    def __init__(self, answer: Callable[[AlterPartitionItem], AlterPartitionResult]) -> None:
        self._answer = answer

    async def alter_partitions(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        return [self._answer(item) for item in items]


class SimulatedRig:
    """chaos/sim's controller."""

    def __init__(self) -> None:
        self._epochs = {1: 11, 2: 12, 3: 13}
        self._controller = SimController((1, 2, 3), self._epochs)

    def channel(self, broker_id: int) -> IsrChannel:
        return Answered(lambda item: self._controller.alter_partition(broker_id, item))

    def state(self) -> tuple[UUID, int, int]:
        now = self._controller.registration
        return UUID(int=77), now.leader_epoch, now.partition_epoch

    def broker_epoch(self, broker_id: int) -> int:
        return self._epochs[broker_id]

    def fence(self, broker_id: int) -> None:
        self._controller.fence(broker_id)

    def unfence(self, broker_id: int) -> None:
        self._controller.unfence(broker_id, self._epochs[broker_id])


class ClusterRig:
    """The cluster of tests/unit/replication."""

    def __init__(self) -> None:
        self._cluster = Cluster(3)
        # Nobody else asks for changes meanwhile.
        self._cluster.held_back |= {1, 2, 3}
        self._cluster.create_topic(TOPIC, [[1, 2, 3]])

    def channel(self, broker_id: int) -> IsrChannel:
        return self._cluster.brokers[broker_id]

    def state(self) -> tuple[UUID, int, int]:
        topic = self._cluster.image.topics_by_name[TOPIC]
        return topic.id, topic.partitions[0].leader_epoch, topic.partitions[0].partition_epoch

    def broker_epoch(self, broker_id: int) -> int:
        return self._cluster.image.brokers[broker_id].broker_epoch

    def fence(self, broker_id: int) -> None:
        self._cluster.fence(broker_id)

    def unfence(self, broker_id: int) -> None:
        self._cluster.commit(UnfenceBrokerRecord(id=broker_id, epoch=self.broker_epoch(broker_id)))


class QuorumChannel(ControllerChannel):
    """The product's channel, wire and handler, with a state machine where the quorum is."""

    def __init__(self, machine: MetadataMachine) -> None:
        self._machine = machine

    async def request(self, api_key: ApiKey, version: int, fields: Fields) -> Message:
        async def alter(
            broker_id: int, broker_epoch: int, changes: Sequence[c.IsrChange]
        ) -> Sequence[IsrResult]:
            command = c.AlterPartitions(
                broker_id=broker_id, broker_epoch=broker_epoch, changes=tuple(changes)
            )
            results = self._machine.run(command)
            assert isinstance(results, tuple)
            return results

        quorum = SimpleNamespace(alter_partition=alter)
        node = node_context(asyncio.get_running_loop())
        context = controller_context(node, quorum_controller=quorum)
        request = decode_request(api_key, version, encode_request(api_key, version, fields))
        ctx: Any = SimpleNamespace(connection=SimpleNamespace(state=ConnectionState()))
        answer = await handle_alter_partition(context, ctx, request)
        return decode_response(api_key, version, encode_response(api_key, version, answer))


class QuorumRig:
    """The decision of metadata_quorum/, as a broker reaches it."""

    def __init__(self) -> None:
        self._machine = MetadataMachine()
        self._machine.claim()
        self._machine.brokers(1, 2, 3)
        self._machine.create_assigned(TOPIC, [[1, 2, 3]])

    def channel(self, broker_id: int) -> IsrChannel:
        lifecycle: Any = SimpleNamespace(broker_epoch=self.broker_epoch(broker_id))
        return BrokerIsrChannel(ControllerRequests(broker_id, lifecycle, QuorumChannel(self._machine)))

    def state(self) -> tuple[UUID, int, int]:
        topic = self._machine.image.topics_by_name[TOPIC]
        return topic.id, topic.partitions[0].leader_epoch, topic.partitions[0].partition_epoch

    def broker_epoch(self, broker_id: int) -> int:
        return self._machine.epoch(broker_id)

    def fence(self, broker_id: int) -> None:
        self._machine.fence(broker_id)

    def unfence(self, broker_id: int) -> None:
        self._machine.unfence(broker_id)


def run_contract(test: Callable[[Rig], Awaitable[None]], make: Callable[[], Rig]) -> None:
    async def main() -> None:
        await test(make())

    asyncio.run(main())


def contract(test: Callable[[Rig], Awaitable[None]]) -> Callable[..., None]:
    @pytest.mark.parametrize("make", [QuorumRig, SimulatedRig, ClusterRig])
    def run(make: Callable[[], Rig]) -> None:
        run_contract(test, make)

    run.__name__ = test.__name__
    return run


def contract_of_many(test: Callable[[Rig], Awaitable[None]]) -> Callable[..., None]:
    """For the rigs that have more than one partition."""

    @pytest.mark.parametrize("make", [QuorumRig, ClusterRig])
    def run(make: Callable[[], Rig]) -> None:
        run_contract(test, make)

    run.__name__ = test.__name__
    return run


def wanted(rig: Rig, *isr: int) -> AlterPartitionItem:
    """The item by which the leader asks for that ISR."""
    topic_id, leader_epoch, partition_epoch = rig.state()
    change = PendingIsrChange(isr, None, leader_epoch, partition_epoch)
    return AlterPartitionItem(topic_id, TOPIC, 0, change, tuple((b, rig.broker_epoch(b)) for b in isr))


def of_epochs(item: AlterPartitionItem, *, leader: int = 0, partition: int = 0) -> AlterPartitionItem:
    """The same with other epochs, by their differences."""
    change = item.change
    return replace(
        item,
        change=replace(
            change,
            leader_epoch=change.leader_epoch + leader,
            partition_epoch=change.partition_epoch + partition,
        ),
    )


async def outcome(rig: Rig, item: AlterPartitionItem, broker_id: int = LEADER) -> ErrorCode:
    (answer,) = await rig.channel(broker_id).alter_partitions([item])
    return answer.error


@contract
async def test_a_change_is_committed_in_the_same_leader_epoch(rig):
    _, leader_epoch, partition_epoch = rig.state()
    (answer,) = await rig.channel(LEADER).alter_partitions([wanted(rig, 1, 3)])
    assert answer == AlterPartitionResult(ErrorCode.NONE, LEADER, leader_epoch, (1, 3), partition_epoch + 1)
    assert rig.state()[1:] == (leader_epoch, partition_epoch + 1)


@contract_of_many
async def test_answers_come_in_the_order_of_the_items(rig):
    good = wanted(rig, 1, 2)
    unknown = [replace(good, topic_id=UUID(int=number)) for number in (5, 6)]
    answers = await rig.channel(LEADER).alter_partitions([unknown[0], good, unknown[1]])
    none, gone = ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_ID
    assert [answer.error for answer in answers] == [gone, none, gone]


@contract
async def test_epochs_behind_are_refused_and_epochs_ahead_are_another_controllers(rig):
    assert await outcome(rig, wanted(rig, 1, 2)) is ErrorCode.NONE
    item = wanted(rig, 1)
    assert await outcome(rig, of_epochs(item, partition=-1)) is ErrorCode.INVALID_UPDATE_VERSION
    assert await outcome(rig, of_epochs(item, partition=1)) is ErrorCode.NOT_CONTROLLER
    assert await outcome(rig, of_epochs(item, leader=1)) is ErrorCode.NOT_CONTROLLER
    assert await outcome(rig, of_epochs(item, leader=-1)) is ErrorCode.FENCED_LEADER_EPOCH


@contract
async def test_only_the_leader_may_ask(rig):
    assert await outcome(rig, wanted(rig, 1, 2), broker_id=2) is ErrorCode.INVALID_REQUEST


@contract
async def test_a_fenced_broker_or_an_older_incarnation_may_not_join(rig):
    rig.fence(3)
    assert await outcome(rig, wanted(rig, 1, 2, 3)) is ErrorCode.INELIGIBLE_REPLICA
    rig.unfence(3)
    item = wanted(rig, 1, 2, 3)
    older = replace(item, isr_with_epochs=(*item.isr_with_epochs[:2], (3, rig.broker_epoch(3) - 1)))
    assert await outcome(rig, older) is ErrorCode.INELIGIBLE_REPLICA
    assert await outcome(rig, item) is ErrorCode.NONE
