"""The metadata quorum as a broker sees it: registration, sessions, AlterPartition, the metadata log."""

from __future__ import annotations

import asyncio
from typing import Any
from uuid import UUID

import pytest

from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_response, encode_request
from metadata_quorum.foundation.batch import decode_batch, iter_headers, read_header
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID
from metadata_quorum.metadata.records import (
    BrokerRegistrationChangeRecord,
    MetadataRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    TopicRecord,
    UnregisterBrokerRecord,
    decode,
)
from tests.compat.conftest import MakeTopic
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

QUORUM = [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]


class Quorum:
    """The active controller, asked as a broker asks it."""

    def __init__(self, wire: Wire, cluster: LocalCluster) -> None:
        self.wire = wire
        self.cluster = cluster

    def describe(self, port: int | None = None, version: int = 2) -> Message:
        """The metadata partition."""
        any_port = next(n.client_port for n in self.cluster.nodes.values() if n.process() is not None)
        return (
            self.wire.ask(port or any_port, ApiKey.DESCRIBE_QUORUM, version, topics=QUORUM)
            .topics[0]
            .partitions[0]
        )

    @property
    def leader(self) -> int:
        return int(self.describe().leader_id)

    def ask(self, api_key: ApiKey, version: int, *, node: int | None = None, **fields: Any) -> Message:
        """At the controllers' listener, of the active one where none is named."""
        port = self.cluster.node(node or self.leader).controller_port
        return self.wire.ask(port, api_key, version, **fields)

    def fetch(self, offset: int = 0, *, node: int | None = None, **wanted: Any) -> Message:
        return (
            self.ask(ApiKey.FETCH, 17, node=node, **fetch_fields(offset, **wanted)).responses[0].partitions[0]
        )

    def records(self) -> list[tuple[int, int, MetadataRecord]]:
        """Offset, epoch, record: the log from its beginning."""
        found: list[tuple[int, int, MetadataRecord]] = []
        offset = 0
        while offset < (partition := self.fetch(offset)).high_watermark:
            data = bytes(partition.records)
            for position, header in iter_headers(data):
                offset = header.next_offset
                if not header.is_control:
                    found += [
                        (each.offset, header.partition_leader_epoch, decode(each.value or b""))
                        for each in decode_batch(data, position)
                    ]
        return found

    def broker_epoch(self, broker_id: int) -> int:
        """Of its last registration."""
        return max(
            record.broker_epoch
            for _, _, record in self.records()
            if isinstance(record, RegisterBrokerRecord) and record.broker_id == broker_id
        )


def fetch_fields(
    offset: int, *, max_wait_ms: int = 0, last_fetched_epoch: int = -1, partition_max_bytes: int = 1 << 20
) -> dict[str, Any]:
    wanted = {
        "partition": 0, "fetch_offset": offset, "partition_max_bytes": partition_max_bytes,
        "current_leader_epoch": -1,
        "last_fetched_epoch": last_fetched_epoch, "log_start_offset": -1,
    }  # fmt: skip
    return {
        "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": 1 << 20,
        "session_id": 0, "session_epoch": -1,
        "topics": [{"topic_id": METADATA_TOPIC_ID, "partitions": [wanted]}],
    }  # fmt: skip


@pytest.fixture
def quorum(shared_cluster: LocalCluster, wire: Wire) -> Quorum:
    return Quorum(wire, shared_cluster)


def error(message: Message) -> ErrorCode:
    return ErrorCode(message.error_code)


# ---- the metadata log --------------------------------------------------------------------------------


@pytest.mark.row("Q3")
def test_the_metadata_log_can_be_fetched(quorum: Quorum, make_topic: MakeTopic) -> None:
    name = make_topic(2)
    found = quorum.records()
    offsets = [offset for offset, _, _ in found]
    epochs = [epoch for _, epoch, _ in found]
    assert offsets == sorted(set(offsets))
    assert epochs == sorted(epochs)
    (topic_id,) = {r.topic_id for _, _, r in found if isinstance(r, TopicRecord) and r.name == name}
    partitions = [r for _, _, r in found if isinstance(r, PartitionRecord) and r.topic_id == topic_id]
    assert [each.partition_id for each in partitions] == [0, 1]
    # Every controller has the same committed log.
    logs = {bytes(wait_for_log(quorum, node, offsets[-1])) for node in (1, 2, 3)}
    assert len({log[: min(map(len, logs))] for log in logs}) == 1


@pytest.mark.row("Q3")
def test_a_fetch_as_apache_kafkas_raft_sends_it(quorum: Quorum) -> None:
    """It leaves the partition's limit at 0, and has to learn where the leader is."""
    leader = quorum.leader
    answer = quorum.ask(ApiKey.FETCH, 17, **fetch_fields(0, partition_max_bytes=0))
    assert len(list(iter_headers(bytes(answer.responses[0].partitions[0].records)))) > 1
    port = quorum.cluster.node(leader).controller_port
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(leader, port)]
    snapshot = {"partition": 0, "current_leader_epoch": 1, "position": 0,
                "snapshot_id": {"end_offset": 1, "epoch": 1}}  # fmt: skip
    topics = [{"name": METADATA_TOPIC, "partitions": [snapshot]}]
    refused = quorum.ask(ApiKey.FETCH_SNAPSHOT, 1, max_bytes=1000, topics=topics)
    assert [(each.node_id, each.port) for each in refused.node_endpoints] == [(leader, port)]


def wait_for_log(quorum: Quorum, node: int, offset: int) -> bytes:
    wait_until(lambda: quorum.fetch(node=node).high_watermark > offset, f"node {node} has committed all")
    return bytes(quorum.fetch(node=node).records)


@pytest.mark.row("Q3", "P2")
def test_a_follower_of_the_metadata_is_woken_by_a_commit(quorum: Quorum, make_topic: MakeTopic) -> None:
    end = quorum.fetch(1 << 40).high_watermark
    port = quorum.cluster.node(quorum.leader).controller_port
    body = encode_request(ApiKey.FETCH, 17, fetch_fields(end, max_wait_ms=60_000))
    parked = quorum.wire.client(port).send(ApiKey.FETCH, 17, (body,))
    name = make_topic()

    async def answer() -> memoryview:
        return await asyncio.wait_for(parked, 60)

    found = decode_response(ApiKey.FETCH, 17, quorum.wire.run(answer())).responses[0].partitions[0]
    assert name.encode() in bytes(found.records) or found.high_watermark > end


@pytest.mark.row("Q3")
def test_refusals_of_the_metadata_log(quorum: Quorum) -> None:
    begin = quorum.fetch(0)
    end = begin.high_watermark
    first_epoch = read_header(bytes(begin.records)).partition_leader_epoch
    assert error(quorum.fetch(end + 1_000)) is ErrorCode.OFFSET_OUT_OF_RANGE
    ahead = quorum.fetch(end + 1_000, last_fetched_epoch=first_epoch)
    assert ahead.diverging_epoch.end_offset >= 0
    standby = next(node for node in quorum.cluster.nodes if node != quorum.leader)
    for epoch in (-1, first_epoch):
        behind = quorum.fetch(end + 1_000, node=standby, last_fetched_epoch=epoch)
        assert error(behind) is ErrorCode.NOT_LEADER_OR_FOLLOWER
        assert (behind.diverging_epoch.end_offset, behind.high_watermark) == (-1, -1)
    # A broker's listener does not serve it: there the topic does not exist.
    answer = quorum.wire.ask(quorum.cluster.node(1).client_port, ApiKey.FETCH, 17, **fetch_fields(0))
    assert error(answer.responses[0].partitions[0]) in (
        ErrorCode.UNKNOWN_TOPIC_ID, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    )  # fmt: skip


@pytest.mark.row("Q8")
def test_describe_quorum_from_anywhere(quorum: Quorum) -> None:
    leader = wait_until(lambda: max(quorum.leader, 0), "a controller is active")
    for node in quorum.cluster.nodes.values():
        for version in (0, 1, 2):
            found = quorum.describe(node.client_port, version)
            assert (found.leader_id, error(found)) == (leader, ErrorCode.NONE)
            assert [voter.replica_id for voter in found.current_voters] == [1, 2, 3]
            assert all(found.high_watermark - voter.log_end_offset < 50 for voter in found.current_voters)


# ---- registration ------------------------------------------------------------------------------------


def registration(cluster: LocalCluster, broker_id: int, incarnation: UUID) -> dict[str, Any]:
    return {
        "broker_id": broker_id, "cluster_id": cluster.cluster_id, "incarnation_id": incarnation,
        "listeners": [{"name": "PLAINTEXT", "host": HOST, "port": 1, "security_protocol": 0}],
        "features": [
            {"name": name, "min_supported_version": low, "max_supported_version": high}
            for name, (low, high) in SUPPORTED_FEATURES.items()
        ],
        "log_dirs": [UUID(int=0xABCDEF)], "previous_broker_epoch": -1,
    }  # fmt: skip


@pytest.mark.row("Q2")
def test_the_life_of_a_broker(quorum: Quorum) -> None:
    """A broker that is nothing but its requests: registered, unfenced, lost, registered again, removed."""
    cluster, wire = quorum.cluster, quorum.wire
    address = Address(HOST, cluster.node(quorum.leader).controller_port)
    first = registration(cluster, 9, UUID(int=1))
    registered = quorum.ask(ApiKey.BROKER_REGISTRATION, 4, **first)
    assert error(registered) is ErrorCode.NONE
    epoch = registered.broker_epoch
    assert (
        quorum.ask(ApiKey.BROKER_REGISTRATION, 4, **first).broker_epoch == epoch
    )  # the same incarnation again
    assert 9 not in brokers(quorum)  # still fenced

    def heartbeat(epoch: int, client: PeerClient, **wish: bool) -> Message:
        end = quorum.fetch(1 << 40).high_watermark - 1
        fields = {"broker_id": 9, "broker_epoch": epoch, "current_metadata_offset": end, "want_fence": False}
        return wire.run(client.request(ApiKey.BROKER_HEARTBEAT, 1, {**fields, **wish}))

    client = wire.run(PeerClient.connect(wire.loop, address, "broker-9"))
    wait_until(lambda: not heartbeat(epoch, client).is_fenced, "it is unfenced")
    try:
        wait_until(lambda: 9 in brokers(quorum), "the broker beside the controller knows it")
        assert error(heartbeat(epoch - 1, client)) is ErrorCode.STALE_BROKER_EPOCH
        other = registration(cluster, 9, UUID(int=2))
        assert (
            error(quorum.ask(ApiKey.BROKER_REGISTRATION, 4, **other))
            is ErrorCode.DUPLICATE_BROKER_REGISTRATION
        )
    finally:
        client.close()  # as a killed process does
    wait_until(lambda: 9 not in brokers(quorum), "the broken connection fences it")
    again = wait_until(
        lambda: (now := quorum.ask(ApiKey.BROKER_REGISTRATION, 4, **other)).error_code == 0 and now,
        "it comes back",
    )
    assert again.broker_epoch > epoch
    with_stale_epoch = wire.run(PeerClient.connect(wire.loop, address, "broker-9"))
    assert error(heartbeat(epoch, with_stale_epoch)) is ErrorCode.STALE_BROKER_EPOCH
    with_stale_epoch.close()
    gone = wire.ask(cluster.node(1).client_port, ApiKey.UNREGISTER_BROKER, 0, broker_id=9)
    assert error(gone) is ErrorCode.NONE
    story = [
        type(record).__name__.removesuffix("Record")
        for _, _, record in quorum.records()
        if isinstance(record, RegisterBrokerRecord | BrokerRegistrationChangeRecord | UnregisterBrokerRecord)
        and record.broker_id == 9
    ]
    assert story == [
        "RegisterBroker", "RegisterBroker", "BrokerRegistrationChange", "BrokerRegistrationChange",
        "RegisterBroker", "UnregisterBroker",
    ]  # fmt: skip


def brokers(quorum: Quorum) -> set[int]:
    answer = quorum.wire.ask(quorum.cluster.node(quorum.leader).client_port, ApiKey.METADATA, 12, topics=[])
    return {each.node_id for each in answer.brokers}


@pytest.mark.row("Q2")
def test_who_may_not_register(quorum: Quorum) -> None:
    cluster = quorum.cluster

    def refused(**fields: Any) -> ErrorCode:
        base = registration(cluster, 8, UUID(int=8))
        return error(quorum.ask(ApiKey.BROKER_REGISTRATION, 4, **{**base, **fields}))

    assert refused(cluster_id="another") is ErrorCode.INCONSISTENT_CLUSTER_ID
    assert refused(broker_id=1) is ErrorCode.DUPLICATE_BROKER_REGISTRATION
    assert refused(listeners=[]) is ErrorCode.INVALID_REGISTRATION
    assert (
        refused(
            features=[{"name": "metadata.version", "min_supported_version": 1, "max_supported_version": 7}]
        )
        is ErrorCode.UNSUPPORTED_VERSION
    )
    standby = next(node for node in cluster.nodes if node != quorum.leader)
    fields = registration(cluster, 8, UUID(int=8))
    assert (
        error(quorum.ask(ApiKey.BROKER_REGISTRATION, 4, node=standby, **fields)) is ErrorCode.NOT_CONTROLLER
    )
    assert 8 not in brokers(quorum)


# ---- AlterPartition ----------------------------------------------------------------------------------


class Partition:
    """Partition 0 of a topic, as committed records tell it."""

    def __init__(self, quorum: Quorum, name: str) -> None:
        self._quorum = quorum
        (self.topic_id,) = {
            r.topic_id for _, _, r in quorum.records() if isinstance(r, TopicRecord) and r.name == name
        }

    def now(self) -> tuple[int, int, int]:
        """Leader, leader epoch, partition epoch."""
        leader = leader_epoch = partition_epoch = -1
        for _, _, record in self._quorum.records():
            if isinstance(record, PartitionRecord) and record.topic_id == self.topic_id:
                leader, leader_epoch = record.leader, record.leader_epoch
                partition_epoch = record.partition_epoch
            elif isinstance(record, PartitionChangeRecord) and record.topic_id == self.topic_id:
                partition_epoch += 1
                if record.leader != -2:
                    leader, leader_epoch = record.leader, leader_epoch + 1
        return leader, leader_epoch, partition_epoch


@pytest.mark.row("Q4", "R9")
def test_alter_partition_is_compare_and_set(quorum: Quorum, make_topic: MakeTopic) -> None:
    name = make_topic()
    partition = Partition(quorum, name)
    leader, leader_epoch, partition_epoch = partition.now()
    epochs = {broker: quorum.broker_epoch(broker) for broker in (1, 2, 3)}
    isr = [{"broker_id": broker, "broker_epoch": epochs[broker]} for broker in (1, 2, 3)]
    without_one = [member for member in isr if member["broker_id"] == leader or member is isr[leader % 3]]

    def alter(**fields: Any) -> tuple[ErrorCode, ErrorCode, Message | None]:
        """The errors of the request and of the partition; and the partition, as it is now."""
        broker_epoch = fields.pop("broker_epoch", epochs[leader])
        base = {
            "partition_index": 0, "leader_epoch": leader_epoch, "partition_epoch": partition_epoch,
            "new_isr_with_epochs": isr, "leader_recovery_state": 0,
        }  # fmt: skip
        topics = [{"topic_id": partition.topic_id, "partitions": [{**base, **fields}]}]
        answer = quorum.ask(
            ApiKey.ALTER_PARTITION, 3, broker_id=leader, broker_epoch=broker_epoch, topics=topics
        )
        found = answer.topics[0].partitions[0] if answer.topics else None
        return error(answer), error(found) if found is not None else ErrorCode.NONE, found

    assert alter(broker_epoch=epochs[leader] - 1)[0] is ErrorCode.STALE_BROKER_EPOCH
    assert alter(partition_epoch=partition_epoch - 1)[1] is ErrorCode.INVALID_UPDATE_VERSION
    assert alter(leader_epoch=leader_epoch - 1)[1] is ErrorCode.FENCED_LEADER_EPOCH
    assert alter(leader_epoch=leader_epoch + 1)[1] is ErrorCode.NOT_CONTROLLER
    stale_member = [{**member, "broker_epoch": member["broker_epoch"] - 1} for member in isr]
    assert alter(new_isr_with_epochs=stale_member)[1] is ErrorCode.INELIGIBLE_REPLICA
    stranger = [*isr, {"broker_id": 77, "broker_epoch": 1}]
    assert alter(new_isr_with_epochs=stranger)[1] in (ErrorCode.INVALID_REQUEST, ErrorCode.INELIGIBLE_REPLICA)
    without_leader = [member for member in isr if member["broker_id"] != leader]
    assert alter(new_isr_with_epochs=without_leader)[1] is ErrorCode.INVALID_REQUEST
    assert partition.now() == (leader, leader_epoch, partition_epoch)  # nothing of that has changed anything

    top, inner, found = alter(new_isr_with_epochs=without_one)
    assert (top, inner) == (ErrorCode.NONE, ErrorCode.NONE)
    assert found is not None
    assert found.partition_epoch == partition_epoch + 1
    assert sorted(found.isr) == sorted(member["broker_id"] for member in without_one)
    # The same again is out of date by now: the first one won.
    assert alter(new_isr_with_epochs=isr)[1] is ErrorCode.INVALID_UPDATE_VERSION
    # The leader sees that a caught-up follower is missing, and asks for it by itself.
    port = quorum.cluster.node(1).client_port

    def whole() -> bool:
        (topic,) = quorum.wire.ask(port, ApiKey.METADATA, 12, topics=[{"name": name}]).topics
        return sorted(topic.partitions[0].isr_nodes) == [1, 2, 3]

    wait_until(whole, "the ISR is whole again")


@pytest.mark.row("Q7", "Q1")
def test_a_killed_controller_takes_nothing_with_it(quorum: Quorum, make_topic: MakeTopic) -> None:
    name = make_topic()
    before = quorum.describe()
    old = before.leader_id
    quorum.cluster.kill(old)
    try:
        now = wait_until(
            lambda: (
                (found := quorum.describe()).leader_id not in (old, -1) and not found.error_code and found
            ),
            "another controller is active",
        )
        assert now.leader_epoch > before.leader_epoch
        found = quorum.records()
        assert any(isinstance(record, TopicRecord) and record.name == name for _, _, record in found)
        # With one of three gone, commits go on.
        topic = {"name": "made-by-two-of-three", "num_partitions": 1, "replication_factor": 2}
        port = quorum.cluster.node(now.leader_id).client_port
        made = quorum.wire.ask(port, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000)
        assert error(made.topics[0]) is ErrorCode.NONE
    finally:
        quorum.cluster.start_node(old)
