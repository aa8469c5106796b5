"""The active controller on a virtual clock, over a Raft that commits when the test says so."""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from uuid import UUID

import pytest

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.foundation.model import Endpoint, FeatureRange, ResourceType, TopicPartition
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol import stamped_command
from metadata_quorum.protocol.requests import (
    BrokerHeartbeatRequest,
    CreatablePartitions,
    CreatableTopic,
    RegisterBrokerRequest,
)
from metadata_quorum.protocol.stamped_command import StampedCommand
from tests.support.virtual_loop import VirtualLoop
from tests.unit.metadata.controller_node import Node, virtual


@virtual
async def test_a_standby_answers_not_controller() -> None:
    node = Node()
    with pytest.raises(BrokerError) as e:
        await node.register(1)
    assert e.value.code is ErrorCode.NOT_CONTROLLER


@virtual
async def test_it_is_active_only_after_applying_its_own_claim() -> None:
    node = Node()
    node.raft.held = True
    node.raft.lead()
    await asyncio.sleep(1)
    assert not node.controller.is_active
    node.raft.commit()
    assert node.controller.is_active
    assert node.controller.epoch == 1
    assert node.controller.image.features["metadata.version"] == 27


@virtual
async def test_it_is_active_however_late_its_claim_is_committed() -> None:
    """Behind a slow follower or a large snapshot the proposal's time is long over."""
    node = Node()
    node.raft.held = True
    node.raft.lead()
    await asyncio.sleep(1)
    node.raft.expire()
    await asyncio.sleep(60)
    assert not node.controller.is_active
    node.raft.commit()
    assert node.controller.is_active
    node.raft.step_down()
    assert not node.controller.is_active
    node.raft.lead()
    await asyncio.sleep(1)
    late = node.raft.term
    node.raft.step_down()
    node.raft.lead()
    node.machine.apply(
        9, late, stamped_command.encode(StampedCommand(late, 1, c.ClaimLeadership(leader_id=1, voters=(1,))))
    )
    assert not node.controller.is_active, "a claim of an earlier term"


@pytest.mark.row("Q2")
@virtual
async def test_a_broker_registers_is_unfenced_and_keeps_its_epoch() -> None:
    node = Node()
    await node.lead()
    epoch = await node.register(1)
    assert epoch == node.controller.image.offset
    assert node.fenced(1)
    behind = BrokerHeartbeatRequest(1, epoch, epoch - 1)
    assert (await node.controller.heartbeat(behind)).is_fenced
    reply = await node.beat(1)
    assert reply.is_caught_up
    assert not reply.is_fenced
    assert await node.register(1) == epoch, "the same incarnation, asking again"
    assert not node.fenced(1)


@pytest.mark.row("Q2")
@virtual
async def test_a_stale_epoch_is_refused() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    with pytest.raises(BrokerError) as e:
        await node.controller.heartbeat(BrokerHeartbeatRequest(1, 0, 100))
    assert e.value.code is ErrorCode.STALE_BROKER_EPOCH


@virtual
async def test_a_second_process_with_a_live_brokers_id_is_refused() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    with pytest.raises(BrokerError) as e:
        await node.register(1, incarnation=2)
    assert e.value.code is ErrorCode.DUPLICATE_BROKER_REGISTRATION


@virtual
async def test_a_broker_of_another_cluster_is_refused() -> None:
    node = Node()
    await node.lead()
    request = RegisterBrokerRequest(1, "other", UUID(int=1), (Endpoint("PLAINTEXT", "h", 1),))
    with pytest.raises(BrokerError) as e:
        await node.controller.register_broker(request)
    assert e.value.code is ErrorCode.INCONSISTENT_CLUSTER_ID


@pytest.mark.row("Q2")
@virtual
async def test_silence_is_fenced_after_the_session_one_broker_at_a_time() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1, 2)
    waited = await node.until(lambda: node.fenced(1) and node.fenced(2), within_s=10)
    assert 8.9 < waited < 9.2
    await node.beat(1)
    assert not node.fenced(1), "a heartbeat brings it back"


@pytest.mark.row("Q2")
@virtual
async def test_heartbeats_keep_a_broker() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    for _ in range(20):
        await asyncio.sleep(2)
        await node.beat(1)
    assert not node.fenced(1)


@pytest.mark.row("Q2")
@virtual
async def test_a_broken_link_is_fenced_after_a_short_grace() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.connection_up(1)
    await node.controller.create_topics([CreatableTopic("t", 1, 1)])
    node.connection_broken(1)
    waited = await node.until(lambda: node.fenced(1), within_s=1)
    assert 0.19 < waited < 0.25
    partition = node.controller.image.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition.leader == -1


@pytest.mark.row("Q2")
@virtual
async def test_a_process_that_is_proved_dead_has_no_grace() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1, 2)
    node.connection_up(1)
    node.connection_broken(1)
    node.controller.process_gone(1)
    waited = await node.until(lambda: node.fenced(1), within_s=1)
    assert waited < 0.01
    node.controller.process_gone(2)  # its link stands: whoever was called there, it was not this broker
    await asyncio.sleep(1)
    assert not node.fenced(2)


@virtual
async def test_a_link_remade_within_the_grace_is_forgiven() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.connection_up(1)
    node.connection_broken(1)
    await asyncio.sleep(0.1)
    node.connection_up(1)
    await node.beat(1)
    await asyncio.sleep(3)
    assert not node.fenced(1)


@virtual
async def test_a_process_that_restarts_at_once_registers_without_waiting() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.connection_up(1)
    node.connection_broken(1)
    node.connection_up(1)  # the new process is faster than the grace
    await node.register(1, incarnation=2)
    assert node.fenced(1)


@virtual
async def test_a_new_controller_fences_whose_link_it_saw_break() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1, 2)
    node.raft.step_down()
    node.connection_up(1)
    node.connection_up(2)
    node.connection_broken(1)
    await asyncio.sleep(0.5)
    await node.lead()
    waited = await node.until(lambda: node.fenced(1), within_s=1)
    assert waited < 0.05
    assert not node.fenced(2), "everybody else has a session"
    waited = await node.until(lambda: node.fenced(2), within_s=10)
    assert 8.3 < waited < 8.6, "counted from the last heartbeat"


@pytest.mark.row("Q2")
@virtual
async def test_who_was_silent_before_a_claim_does_not_get_a_whole_session() -> None:
    """A broker that is paused together with the controller is fenced about when its session ends."""
    node = Node()
    await node.lead()
    await node.brokers(1, 2)
    node.raft.step_down()
    for _ in range(4):  # a standby hears the heartbeats, though it cannot judge them
        await asyncio.sleep(2)
        with pytest.raises(BrokerError):
            await node.beat(2)
    await node.lead()
    waited = await node.until(lambda: node.fenced(1), within_s=10)
    assert 2.9 < waited < 3.1, "at least the time for a heartbeat"
    waited += await node.until(lambda: node.fenced(2), within_s=10)
    assert 8.9 < waited < 9.1


@virtual
async def test_a_controller_that_was_held_up_renews_the_sessions() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    loop = asyncio.get_running_loop()
    assert isinstance(loop, VirtualLoop)
    loop.stand_still(60)
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    assert not node.fenced(1)


@pytest.mark.row("Q2")
@virtual
async def test_controlled_shutdown_waits_until_the_others_know() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1, 2)
    await node.controller.create_topics([CreatableTopic("t", 2, 2)])
    assert not (await node.beat(1, want_shut_down=True)).should_shut_down
    leaders = {p.leader for _, _, p in node.controller.image.each_partition()}
    assert leaders == {2}
    assert not (await node.beat(1, want_shut_down=True)).should_shut_down, "broker 2 does not know yet"
    await node.beat(2)
    assert node.judged_beside == []
    assert (await node.beat(1, want_shut_down=True)).should_shut_down
    assert node.fenced(1)
    assert [type(step) for step in node.judged_beside] == [c.FenceBroker], "it looks at every partition"


@pytest.mark.row("Q2")
@virtual
async def test_who_is_unfenced_late_is_watched_all_the_same() -> None:
    """The heartbeat's proposal ends UNKNOWN, and is committed afterwards."""
    node = Node()
    await node.lead()
    await node.register(1)
    await late(node, node.beat(1))
    assert not node.fenced(1)
    await node.until(lambda: node.fenced(1), 10)


@pytest.mark.row("Q2")
@virtual
async def test_a_shutdown_that_is_committed_late_waits_until_the_others_know_too() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1, 2)
    await node.controller.create_topics([CreatableTopic("t", 2, 2)])
    await late(node, node.beat(1, want_shut_down=True))
    assert {p.leader for _, _, p in node.controller.image.each_partition()} == {2}
    assert not (await node.beat(1, want_shut_down=True)).should_shut_down, "broker 2 does not know yet"
    await node.beat(2)
    assert (await node.beat(1, want_shut_down=True)).should_shut_down


async def late(node: Node, request: Coroutine[object, object, object]) -> None:
    """What it proposes is committed when it has been given up."""
    node.raft.held = True
    asked = asyncio.ensure_future(request)
    await asyncio.sleep(0)
    node.raft.expire()
    with pytest.raises(BrokerError) as e:
        await asked
    assert e.value.code is ErrorCode.REQUEST_TIMED_OUT
    node.raft.commit()
    node.raft.held = False


@virtual
async def test_what_no_message_would_hold_is_no_sign_of_another_controller() -> None:
    """Brokers send a client's request again for as long as they are told NOT_CONTROLLER."""
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.raft.max_command_bytes = 1000
    with pytest.raises(BrokerError) as e:
        await node.controller.create_topics([CreatableTopic("t" * 2000, 1, 1)])
    assert e.value.code is ErrorCode.POLICY_VIOLATION


@virtual
async def test_step_down_leaves_pending_requests_unknown() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.raft.held = True
    request = asyncio.ensure_future(node.controller.create_topics([CreatableTopic("t", 1, 1)]))
    await asyncio.sleep(0)
    node.raft.step_down()
    with pytest.raises(BrokerError) as e:
        await request
    assert e.value.code is ErrorCode.REQUEST_TIMED_OUT
    with pytest.raises(BrokerError) as e:
        await node.controller.create_topics([CreatableTopic("t", 1, 1)])
    assert e.value.code is ErrorCode.NOT_CONTROLLER


@virtual
async def test_a_request_that_does_not_commit_times_out() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    node.raft.held = True
    with pytest.raises(BrokerError) as e:
        await node.controller.create_topics([CreatableTopic("t", 1, 1)], timeout_ms=500)
    assert e.value.code is ErrorCode.REQUEST_TIMED_OUT


@virtual
async def test_topics_defaults_growth_and_deletion() -> None:
    node = Node(num_partitions=3, default_replication_factor=2)
    await node.lead()
    await node.brokers(1, 2)
    (dry,) = await node.controller.create_topics([CreatableTopic("t")], validate_only=True)
    assert len(node.judged_beside) == 1, "its values may be of any length"
    (large,) = await node.controller.create_topics([CreatableTopic("large", 5000)], validate_only=True)
    assert large.partitions == 5000
    assert len(node.judged_beside) == 2
    assert (dry.error, dry.partitions, dry.replication_factor) == (ErrorCode.NONE, 3, 2)
    assert "t" not in node.controller.image.topics_by_name
    (made,) = await node.controller.create_topics([CreatableTopic("t", configs={"retention.ms": "5"})])
    topic = node.controller.image.topics_by_name["t"]
    assert topic.id == made.topic_id
    assert topic.id.int
    (grown,) = await node.controller.create_partitions([CreatablePartitions("t", 4)])
    assert grown.error is ErrorCode.NONE
    assert sorted(node.controller.image.topics_by_name["t"].partitions) == [0, 1, 2, 3]
    gone, unknown, unknown_id = await node.controller.delete_topics(["t", "u", UUID(int=99)])
    assert (gone.error, gone.name, gone.topic_id) == (ErrorCode.NONE, "t", made.topic_id)
    assert unknown.error is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert unknown_id.error is ErrorCode.UNKNOWN_TOPIC_ID
    assert not node.controller.image.topics_by_id
    assert not node.controller.image.config(ResourceType.TOPIC, "t")


@virtual
async def test_configs_and_producer_ids() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)
    await node.controller.create_topics([CreatableTopic("t", 1, 1)])
    operation = c.ConfigOperation(name="retention.ms", operation=c.CONFIG_SET, value="5")
    change = c.ConfigChange(resource_type=ResourceType.TOPIC, resource_name="t", operations=(operation,))
    (result,) = await node.controller.incremental_alter_configs([change])
    assert result.error is ErrorCode.NONE
    assert node.controller.image.config(ResourceType.TOPIC, "t") == {"retention.ms": "5"}
    nowhere = c.ConfigChange(resource_type=ResourceType.TOPIC, resource_name="", operations=(operation,))
    (result,) = await node.controller.incremental_alter_configs([nowhere])
    assert (result.error, result.message) == (
        ErrorCode.INVALID_REQUEST,
        "Default topic resources are not allowed.",
    )
    replacement = c.ConfigReplacement(resource_type=ResourceType.TOPIC, resource_name="t", configs=())
    await node.controller.alter_configs([replacement])
    assert not node.controller.image.config(ResourceType.TOPIC, "t")
    epoch = node.controller.image.brokers[1].broker_epoch
    first = await node.controller.allocate_producer_ids(1, epoch)
    second = await node.controller.allocate_producer_ids(1, epoch)
    assert (first.first, second.first) == (0, 1000)


@pytest.mark.row("Q5")
@virtual
async def test_preferred_leaders_are_given_their_partitions_back() -> None:
    node = Node(leader_imbalance_check_interval_seconds=30, broker_session_timeout_ms=90_000)
    await node.lead()
    await node.brokers(1, 2)
    await node.controller.create_topics([CreatableTopic("t", assignments=((0, (1, 2)),))])
    await node.controller.heartbeat(
        BrokerHeartbeatRequest(1, node.controller.image.brokers[1].broker_epoch, 1 << 40, want_fence=True)
    )
    await node.beat(1)
    partition = node.controller.image.partition(TopicPartition("t", 0))
    assert partition is not None
    assert partition.leader == 2
    change = c.IsrChange(
        topic_id=node.controller.image.topics_by_name["t"].id,
        partition=0,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        isr=(c.IsrMember(broker_id=1), c.IsrMember(broker_id=2)),
    )
    epoch = node.controller.image.brokers[2].broker_epoch
    (result,) = await node.controller.alter_partition(2, epoch, [change])
    assert result.isr == (1, 2)

    def given_back() -> bool:
        now = node.controller.image.partition(TopicPartition("t", 0))
        return now is not None and now.leader == 1

    await node.until(given_back, within_s=31)
    assert node.judged_beside == [[c.PartitionName(topic="t", partition=0)]], "it looks at every partition"
    assert await node.controller.elect_leaders(c.ELECTION_PREFERRED, None) == ()


@virtual
async def test_the_clusters_min_insync_replicas_stay_while_there_is_elr() -> None:
    node = Node()
    await node.lead()
    await node.brokers(1)

    async def alter(name: str, operation: int, value: str | None) -> tuple[ErrorCode, str]:
        wish = c.ConfigOperation(name="min.insync.replicas", operation=operation, value=value)
        change = c.ConfigChange(resource_type=ResourceType.BROKER, resource_name=name, operations=(wish,))
        (result,) = await node.controller.incremental_alter_configs([change])
        return result.error, result.message or ""

    assert await alter("", c.CONFIG_SET, "1") == (ErrorCode.NONE, "")
    error, message = await alter("", c.CONFIG_DELETE, None)
    assert error is ErrorCode.INVALID_CONFIG
    assert message == "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
    replaced = c.ConfigReplacement(resource_type=ResourceType.BROKER, resource_name="", configs=())
    (result,) = await node.controller.alter_configs([replaced])
    assert result.error is ErrorCode.INVALID_CONFIG
    for operation, value in ((c.CONFIG_SET, "1"), (c.CONFIG_DELETE, None)):
        error, message = await alter("1", operation, value)
        assert error is ErrorCode.INVALID_CONFIG
        assert message == "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
    assert node.controller.image.config(ResourceType.BROKER, "") == {"min.insync.replicas": "1"}


@virtual
async def test_with_elr_leaders_and_controllers_come_to_go_by_one_min_insync_replicas() -> None:
    """A broker with a lower one of its own acknowledged what those eligible after it did not have."""
    node = Node(min_insync_replicas=2)
    await node.lead()
    await node.brokers(1)
    await node.controllers(2, 3)
    runs = [FeatureRange(ELR_VERSION, 0, 1)]
    off = c.FeatureUpdate(name=ELR_VERSION, level=0, upgrade_type=2)
    await node.controller.update_features([off], runs)
    for name, operation, value in (("", c.CONFIG_DELETE, None), ("1", c.CONFIG_SET, "1")):
        wish = c.ConfigOperation(name="min.insync.replicas", operation=operation, value=value)
        change = c.ConfigChange(resource_type=ResourceType.BROKER, resource_name=name, operations=(wish,))
        (result,) = await node.controller.incremental_alter_configs([change])
        assert result.error is ErrorCode.NONE
    on = c.FeatureUpdate(name=ELR_VERSION, level=1, upgrade_type=1)
    await node.controller.update_features([on], runs)
    image = node.controller.image
    assert image.config(ResourceType.BROKER, "") == {"min.insync.replicas": "2"}
    assert image.config(ResourceType.BROKER, "1") == {}
