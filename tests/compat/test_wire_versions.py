"""Every API in every version that the table names is answered with a message of that version.

No stock client sends all of these. What is asked is little; that an answer comes, that it can be
read, and that it is the one expected is what is looked at.
"""

from __future__ import annotations

import contextlib
import socket
import struct
from collections.abc import Iterator
from typing import Any

import pytest

from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, encode_request
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC
from tests.compat.small_requests import ASKED, NO_GROUP, NOBODY, NOT_NAMED, SmallRequests
from tests.support.clients.rdkafka import send
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

ELSEWHERE = {
    "BrokerRegistration": ErrorCode.INCONSISTENT_CLUSTER_ID,
    "BrokerHeartbeat": ErrorCode.STALE_BROKER_EPOCH,
    "UnregisterBroker": ErrorCode.BROKER_ID_NOT_REGISTERED,
    "AllocateProducerIds": ErrorCode.STALE_BROKER_EPOCH,
    "AlterPartition": ErrorCode.STALE_BROKER_EPOCH,
    "AssignReplicasToDirs": ErrorCode.STALE_BROKER_EPOCH,
    "SaslHandshake": ErrorCode.ILLEGAL_SASL_STATE,
    "SaslAuthenticate": ErrorCode.ILLEGAL_SASL_STATE,
    "AddOffsetsToTxn": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "EndTxn": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "TxnOffsetCommit": ErrorCode.INVALID_PRODUCER_ID_MAPPING,
    "DescribeTransactions": ErrorCode.TRANSACTIONAL_ID_NOT_FOUND,
    "PushTelemetry": ErrorCode.UNKNOWN_SUBSCRIPTION_ID,
    "JoinGroup": ErrorCode.UNKNOWN_MEMBER_ID,
    "SyncGroup": ErrorCode.UNKNOWN_MEMBER_ID,
    "Heartbeat": ErrorCode.UNKNOWN_MEMBER_ID,
}
"""Answers that are refusals, because the asker is a stranger."""

EXCUSES = {
    "DescribeAcls": ErrorCode.SECURITY_DISABLED,
    "CreateAcls": ErrorCode.SECURITY_DISABLED,
    "DeleteAcls": ErrorCode.SECURITY_DISABLED,
    "AlterPartitionReassignments": ErrorCode.NO_REASSIGNMENT_IN_PROGRESS,
    "AlterReplicaLogDirs": ErrorCode.LOG_DIR_NOT_FOUND,
    "DeleteGroups": ErrorCode.GROUP_ID_NOT_FOUND,
    "ConsumerGroupHeartbeat": ErrorCode.GROUP_ID_NOT_FOUND,
    "ConsumerGroupDescribe": ErrorCode.GROUP_ID_NOT_FOUND,
    "ElectLeaders": ErrorCode.ELECTION_NOT_NEEDED,
    "FetchSnapshot": ErrorCode.SNAPSHOT_NOT_FOUND,
    "LeaveGroup": ErrorCode.UNKNOWN_MEMBER_ID,
}
"""Within the answer."""


@pytest.fixture(scope="module")
def small_requests(shared_cluster: LocalCluster, bootstrap: str) -> Iterator[SmallRequests]:
    """About a topic with one partition of three replicas, led by node 1, as every node knows."""
    topic = "all-versions"
    with Wire() as wire:
        port = shared_cluster.node(1).client_port
        new = {"name": topic, "num_partitions": -1, "replication_factor": -1, "configs": []}
        assignment = [{"partition_index": 0, "broker_ids": [1, 2, 3]}]
        created = wire.ask(
            port, ApiKey.CREATE_TOPICS, 7, topics=[{**new, "assignments": assignment}], timeout_ms=30_000
        )
        assert created.topics[0].error_code == 0
        topic_id = created.topics[0].topic_id
        for node in shared_cluster.nodes.values():
            wait_until(lambda at=node.client_port: leads(wire, at, topic), "the topic has a leader")
        send(bootstrap, topic, [{"value": "v"}])
        wait_until(
            lambda: wire.ask(port, ApiKey.FIND_COORDINATOR, 2, key=NOBODY).error_code == 0,
            "groups have coordinators",
        )
        wait_until(
            lambda: wire.ask(port, ApiKey.FIND_COORDINATOR, 2, key=NOBODY, key_type=1).error_code == 0,
            "transactions have coordinators",
        )
        yield SmallRequests(topic, topic_id, shared_cluster.cluster_id)


def leads(wire: Wire, port: int, topic: str) -> bool:
    (found,) = wire.ask(
        port, ApiKey.METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False
    ).topics
    return not found.error_code and found.partitions[0].leader_id == 1


ASKED_OF_THE_GROUP_COORDINATOR = {
    ApiKey.OFFSET_COMMIT, ApiKey.OFFSET_FETCH, ApiKey.JOIN_GROUP, ApiKey.HEARTBEAT, ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP, ApiKey.DESCRIBE_GROUPS, ApiKey.TXN_OFFSET_COMMIT, ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE, ApiKey.CONSUMER_GROUP_HEARTBEAT, ApiKey.CONSUMER_GROUP_DESCRIBE,
}  # fmt: skip
ASKED_OF_THE_TRANSACTION_COORDINATOR = {
    ApiKey.ADD_PARTITIONS_TO_TXN, ApiKey.ADD_OFFSETS_TO_TXN, ApiKey.END_TXN, ApiKey.DESCRIBE_TRANSACTIONS,
}  # fmt: skip


def at(cluster: LocalCluster, wire: Wire, row: ApiRow) -> int:
    """The port to ask: the leader, the group's coordinator, the active controller."""
    if Role.BROKER not in row.listeners:
        (quorum,) = wire.ask(
            cluster.node(1).client_port, ApiKey.DESCRIBE_QUORUM, 1,
            topics=[{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}],
        ).topics  # fmt: skip
        return cluster.node(quorum.partitions[0].leader_id).controller_port
    if row.key in ASKED_OF_THE_GROUP_COORDINATOR:
        group = NO_GROUP if row.key == ApiKey.DELETE_GROUPS else NOBODY
        found = wire.ask(cluster.node(1).client_port, ApiKey.FIND_COORDINATOR, 2, key=group)
        return cluster.node(found.node_id).client_port
    if row.key in ASKED_OF_THE_TRANSACTION_COORDINATOR:
        found = wire.ask(cluster.node(1).client_port, ApiKey.FIND_COORDINATOR, 2, key=NOBODY, key_type=1)
        return cluster.node(found.node_id).client_port
    return cluster.node(1).client_port


def errors_in(message: Any) -> Iterator[int]:
    """All error codes of an answer, but the top one."""
    if isinstance(message, list):
        for each in message:
            yield from errors_in(each)
    elif isinstance(message, Message):
        for name, value in vars(message).items():
            if name == "error_code":
                yield value
            else:
                yield from errors_in(value)


def loaded(answer: Message) -> Message | None:
    """None where the client is to ask again: a coordinator loads, or a block of producer ids is fetched."""
    return None if ErrorCode.COORDINATOR_LOAD_IN_PROGRESS in errors_in(answer) else answer


@pytest.mark.row("U2")
@pytest.mark.parametrize("row", ASKED, ids=lambda row: row.name)
def test_every_version_is_answered(
    shared_cluster: LocalCluster, wire: Wire, small_requests: SmallRequests, row: ApiRow
) -> None:
    port = at(shared_cluster, wire, row)
    for version in range(row.min_version, row.max_version + 1):
        answer = wait_until(
            lambda v=version: loaded(wire.ask(port, row.key, v, **small_requests(row.key, v))),
            "what it asks for is loaded",
        )
        found = {ErrorCode(code) for code in errors_in(answer)} - {ErrorCode.NONE}
        wanted = {code for code in (ELSEWHERE.get(row.name), EXCUSES.get(row.name)) if code is not None}
        if row.name == "LeaveGroup" and version < 3:
            wanted = {ErrorCode.UNKNOWN_MEMBER_ID}
        assert found <= wanted, f"v{version}: {found}"
        if row.name in ELSEWHERE:
            assert found == wanted, f"v{version}"


def test_api_versions_lists_what_is_answered(shared_cluster: LocalCluster, wire: Wire) -> None:
    node = shared_cluster.node(1)
    for port, role in ((node.client_port, Role.BROKER), (node.controller_port, Role.CONTROLLER)):
        answer = wire.ask(
            port, ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1"
        )
        ranges = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        rows = [row for row in ASKED if role in row.listeners and row.advertised]
        # Produce is listed from 0 on, as by Kafka: old librdkafkas infer codecs from that.
        expected = {
            row.key: (0 if row.key is ApiKey.PRODUCE else row.min_version, row.max_version) for row in rows
        }
        assert ranges == expected
        assert {each.name for each in answer.finalized_features} >= {"metadata.version"}


def test_an_unknown_version_of_api_versions(shared_cluster: LocalCluster, wire: Wire) -> None:
    """Answered in version 0, with the range that is known: so a client from the future can begin."""
    port = shared_cluster.node(1).client_port

    async def ask() -> bytes:
        client = await PeerClient.connect(wire.loop, Address(HOST, port), "test")
        body = encode_request(
            ApiKey.API_VERSIONS, 4, {"client_software_name": "t", "client_software_version": "1"}
        )
        with contextlib.closing(client):
            return bytes(await client.exchange(ApiKey.API_VERSIONS, NOT_NAMED, (body,), 30))

    answer = wire.run(ask())
    assert struct.unpack(">hihhh", answer) == (ErrorCode.UNSUPPORTED_VERSION, 1, ApiKey.API_VERSIONS, 0, 4)


@pytest.mark.row("P7")
@pytest.mark.parametrize(
    ("key", "version"),
    [
        (ApiKey.PRODUCE, 2), (ApiKey.PRODUCE, NOT_NAMED), (ApiKey.FETCH, 3), (ApiKey.METADATA, NOT_NAMED),
        (ApiKey.CREATE_TOPICS, 1), (ApiKey.ALTER_PARTITION, 3), (999, 0), (-1, 0),
    ],
)  # fmt: skip
def test_others_end_the_connection(shared_cluster: LocalCluster, wire: Wire, key: int, version: int) -> None:
    """As Kafka does: what cannot be read cannot be answered either. Only that connection ends."""
    port = shared_cluster.node(1).client_port

    other = wire.client(port)
    frame = struct.pack(">hhih", key, version, 1, -1)
    with socket.create_connection((HOST, port), 60) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert connection.recv(1) == b""
    assert wire.run(other.request(ApiKey.API_VERSIONS, 0, {})).error_code == 0
