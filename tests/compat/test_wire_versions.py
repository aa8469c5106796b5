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
from uuid import UUID

import pytest

from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.api.table import ROWS
from kraft.local.local_cluster import HOST, LocalCluster
from kraft.net.client import Address, PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, encode_request
from kraft.wire.header import request_header
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC
from tests.support.clients.rdkafka import send
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

NOBODY = "versions-group"
NOT_NAMED = 50
"""Larger than any version of any API."""


class Questions:
    """A small request for each API; `wanted` are the error codes that may come at the top."""

    def __init__(self, topic: str, topic_id: UUID, cluster_id: str) -> None:
        self.topic, self.topic_id, self.cluster_id = topic, topic_id, cluster_id

    def __call__(self, key: ApiKey, version: int) -> dict[str, Any]:
        return getattr(self, f"_{ROWS[key].name}")(version)

    def _Produce(self, version: int) -> dict[str, Any]:
        batch = encode_batch([Record(timestamp=1, key=b"k", value=b"v")])
        partitions = [{"index": 0, "records": batch}]
        data = {"topic_id": self.topic_id} if version >= 13 else {"name": self.topic}
        return {
            "acks": -1, "timeout_ms": 30_000, "topic_data": [{**data, "partition_data": partitions}],
            "transactional_id": None,
        }  # fmt: skip

    def _Fetch(self, version: int) -> dict[str, Any]:
        wanted = {
            "partition": 0, "fetch_offset": 0, "partition_max_bytes": 1_000, "current_leader_epoch": -1,
            "last_fetched_epoch": -1, "log_start_offset": -1,
        }  # fmt: skip
        name = {"topic_id": self.topic_id} if version >= 13 else {"topic": self.topic}
        return {
            "replica_id": -1, "max_wait_ms": 10_000, "min_bytes": 1, "max_bytes": 10_000, "session_id": 0,
            "session_epoch": -1, "topics": [{**name, "partitions": [wanted]}],
        }  # fmt: skip

    def _ListOffsets(self, version: int) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "timestamp": -1, "current_leader_epoch": -1}]
        return {"replica_id": -1, "topics": [{"name": self.topic, "partitions": partitions}]}

    def _Metadata(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic}], "allow_auto_topic_creation": False}

    def _OffsetCommit(self, version: int) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}]
        return {
            "group_id": NOBODY, "generation_id_or_member_epoch": -1, "member_id": "",
            "topics": [{"name": self.topic, "partitions": partitions}],
        }  # fmt: skip

    def _OffsetFetch(self, version: int) -> dict[str, Any]:
        topics = [{"name": self.topic, "partition_indexes": [0]}]
        if version >= 8:
            return {"groups": [{"group_id": NOBODY, "topics": topics, "member_epoch": -1}]}
        return {"group_id": NOBODY, "topics": topics}

    def _FindCoordinator(self, version: int) -> dict[str, Any]:
        return {"coordinator_keys": [NOBODY]} if version >= 4 else {"key": NOBODY}

    def _JoinGroup(self, version: int) -> dict[str, Any]:
        return {
            "group_id": NOBODY, "session_timeout_ms": 6_000, "rebalance_timeout_ms": 6_000,
            "member_id": "who", "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": b""}],
        }  # fmt: skip

    def _Heartbeat(self, version: int) -> dict[str, Any]:
        return {"group_id": NOBODY, "generation_id": 1, "member_id": "who"}

    def _LeaveGroup(self, version: int) -> dict[str, Any]:
        if version >= 3:
            return {"group_id": NOBODY, "members": [{"member_id": "who"}]}
        return {"group_id": NOBODY, "member_id": "who"}

    def _SyncGroup(self, version: int) -> dict[str, Any]:
        return {"group_id": NOBODY, "generation_id": 1, "member_id": "who", "assignments": []}

    def _DescribeGroups(self, version: int) -> dict[str, Any]:
        return {"groups": [NOBODY]}

    def _ConsumerGroupHeartbeat(self, version: int) -> dict[str, Any]:
        return {"group_id": NOBODY, "member_id": "m", "member_epoch": 3}

    def _ConsumerGroupDescribe(self, version: int) -> dict[str, Any]:
        return {"group_ids": [NOBODY]}

    def _ListGroups(self, version: int) -> dict[str, Any]:
        return {}

    def _DescribeAcls(self, version: int) -> dict[str, Any]:
        return {"resource_type_filter": 1, "pattern_type_filter": 1, "operation": 1, "permission_type": 1}

    def _CreateAcls(self, version: int) -> dict[str, Any]:
        acl = {"resource_type": 2, "resource_name": self.topic, "principal": "User:who", "host": "*"}
        return {"creations": [{**acl, "operation": 3, "permission_type": 3}]}

    def _DeleteAcls(self, version: int) -> dict[str, Any]:
        return {"filters": [self._DescribeAcls(version)]}

    def _DescribeUserScramCredentials(self, version: int) -> dict[str, Any]:
        return {"users": []}

    def _AlterUserScramCredentials(self, version: int) -> dict[str, Any]:
        upsertion = {"name": "who", "mechanism": 1, "iterations": 4096, "salt": b"s", "salted_password": b"p"}
        return {"deletions": [], "upsertions": [upsertion]}

    def _ApiVersions(self, version: int) -> dict[str, Any]:
        return {"client_software_name": "test", "client_software_version": "1"}

    def _CreateTopics(self, version: int) -> dict[str, Any]:
        topic = {"name": f"made-by-v{version}", "num_partitions": 1, "replication_factor": 1}
        return {"topics": [{**topic, "assignments": [], "configs": []}], "timeout_ms": 30_000}

    def _DeleteTopics(self, version: int) -> dict[str, Any]:
        name = f"made-by-v{version + 1}"
        if version >= 6:
            return {"topics": [{"name": name}], "timeout_ms": 30_000}
        return {"topic_names": [name], "timeout_ms": 30_000}

    def _DeleteRecords(self, version: int) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "offset": 0}]
        return {"topics": [{"name": self.topic, "partitions": partitions}], "timeout_ms": 30_000}

    def _InitProducerId(self, version: int) -> dict[str, Any]:
        return {"transactional_id": None, "transaction_timeout_ms": 1_000}

    def _AddPartitionsToTxn(self, version: int) -> dict[str, Any]:
        topics = [{"name": self.topic, "partitions": [0]}]
        if version >= 4:
            named = {"transactional_id": NOBODY, "producer_id": 7, "producer_epoch": 0}
            return {"transactions": [{**named, "verify_only": True, "topics": topics}]}
        return {
            "v3_and_below_transactional_id": NOBODY, "v3_and_below_producer_id": 7,
            "v3_and_below_producer_epoch": 0, "v3_and_below_topics": topics,
        }  # fmt: skip

    def _AddOffsetsToTxn(self, version: int) -> dict[str, Any]:
        return {"transactional_id": NOBODY, "producer_id": 7, "producer_epoch": 0, "group_id": NOBODY}

    def _EndTxn(self, version: int) -> dict[str, Any]:
        return {"transactional_id": NOBODY, "producer_id": 7, "producer_epoch": 0, "committed": True}

    def _WriteTxnMarkers(self, version: int) -> dict[str, Any]:
        marker = {"producer_id": 7, "producer_epoch": 0, "transaction_result": True, "coordinator_epoch": 0}
        return {"markers": [{**marker, "topics": [{"name": self.topic, "partition_indexes": [0]}]}]}

    def _TxnOffsetCommit(self, version: int) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "committed_offset": 3, "committed_metadata": "m"}]
        return {
            "transactional_id": NOBODY, "group_id": NOBODY, "producer_id": 7, "producer_epoch": 0,
            "topics": [{"name": self.topic, "partitions": partitions}],
        }  # fmt: skip

    def _DescribeProducers(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic, "partition_indexes": [0]}]}

    def _DescribeTransactions(self, version: int) -> dict[str, Any]:
        return {"transactional_ids": [NOBODY]}

    def _ListTransactions(self, version: int) -> dict[str, Any]:
        return {"state_filters": [], "producer_id_filters": []}

    def _OffsetForLeaderEpoch(self, version: int) -> dict[str, Any]:
        partitions = [{"partition": 0, "leader_epoch": 0, "current_leader_epoch": -1}]
        return {"replica_id": -1, "topics": [{"topic": self.topic, "partitions": partitions}]}

    def _DescribeConfigs(self, version: int) -> dict[str, Any]:
        return {"resources": [{"resource_type": 2, "resource_name": self.topic, "configuration_keys": None}]}

    def _AlterConfigs(self, version: int) -> dict[str, Any]:
        configs = [{"name": "retention.ms", "value": str(version + 1)}]
        resource = {"resource_type": 2, "resource_name": self.topic, "configs": configs}
        return {"resources": [resource], "validate_only": False}

    def _IncrementalAlterConfigs(self, version: int) -> dict[str, Any]:
        configs = [{"name": "retention.ms", "config_operation": 1, "value": None}]
        resource = {"resource_type": 2, "resource_name": self.topic, "configs": configs}
        return {"resources": [resource], "validate_only": False}

    def _AlterReplicaLogDirs(self, version: int) -> dict[str, Any]:
        return {"dirs": [{"path": "/no/such/dir", "topics": [{"name": self.topic, "partitions": [0]}]}]}

    def _DescribeLogDirs(self, version: int) -> dict[str, Any]:
        return {"topics": None}

    def _CreatePartitions(self, version: int) -> dict[str, Any]:
        topic = {"name": self.topic, "count": version + 2, "assignments": None}
        return {"topics": [topic], "timeout_ms": 30_000, "validate_only": False}

    def _DeleteGroups(self, version: int) -> dict[str, Any]:
        return {"groups_names": ["no-such-group"]}

    def _ElectLeaders(self, version: int) -> dict[str, Any]:
        return {"topic_partitions": [{"topic": self.topic, "partitions": [0]}], "timeout_ms": 30_000}

    def _AlterPartitionReassignments(self, version: int) -> dict[str, Any]:
        partitions = [{"partition_index": 0, "replicas": None}]
        return {"topics": [{"name": self.topic, "partitions": partitions}], "timeout_ms": 30_000}

    def _ListPartitionReassignments(self, version: int) -> dict[str, Any]:
        return {"topics": None, "timeout_ms": 30_000}

    def _OffsetDelete(self, version: int) -> dict[str, Any]:
        topics = [{"name": self.topic, "partitions": [{"partition_index": 0}]}]
        return {"group_id": NOBODY, "topics": topics}

    def _DescribeQuorum(self, version: int) -> dict[str, Any]:
        return {"topics": [{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}]}

    def _AlterPartition(self, version: int) -> dict[str, Any]:
        return {"broker_id": 1, "broker_epoch": 1, "topics": []}

    def _Envelope(self, version: int) -> dict[str, Any]:
        header = request_header(ApiKey.DESCRIBE_QUORUM, 1, 7, "test")
        body = encode_request(ApiKey.DESCRIBE_QUORUM, 1, self._DescribeQuorum(1))
        principal = struct.pack(">h", 0) + b"\x05User" + b"\x0aANONYMOUS" + b"\x00\x00"
        return {
            "request_data": header + body, "request_principal": principal,
            "client_host_address": bytes([127, 0, 0, 1]),
        }  # fmt: skip

    def _FetchSnapshot(self, version: int) -> dict[str, Any]:
        partition = {"partition": 0, "snapshot_id": {"end_offset": 1, "epoch": 1}, "position": 0}
        return {"topics": [{"name": METADATA_TOPIC, "partitions": [partition]}], "max_bytes": 1_000}

    def _DescribeCluster(self, version: int) -> dict[str, Any]:
        return {}

    def _BrokerRegistration(self, version: int) -> dict[str, Any]:
        """By a broker that belongs elsewhere: it must not get in."""
        return {
            "broker_id": 77, "cluster_id": "another-cluster", "incarnation_id": UUID(int=1),
            "listeners": [{"name": "PLAINTEXT", "host": HOST, "port": 1, "security_protocol": 0}],
        }  # fmt: skip

    def _BrokerHeartbeat(self, version: int) -> dict[str, Any]:
        return {"broker_id": 77, "broker_epoch": 1, "current_metadata_offset": 1}

    def _UnregisterBroker(self, version: int) -> dict[str, Any]:
        return {"broker_id": 77}

    def _AllocateProducerIds(self, version: int) -> dict[str, Any]:
        return {"broker_id": 77, "broker_epoch": 1}

    def _UpdateFeatures(self, version: int) -> dict[str, Any]:
        level = {"feature": "metadata.version", "max_version_level": 27}
        more = {"upgrade_type": 1} if version >= 1 else {"allow_downgrade": False}
        return {"timeout_ms": 30_000, "feature_updates": [{**level, **more}]}

    def _ListConfigResources(self, version: int) -> dict[str, Any]:
        return {"resource_types": [2]} if version >= 1 else {}

    def _GetTelemetrySubscriptions(self, version: int) -> dict[str, Any]:
        return {"client_instance_id": UUID(int=0)}

    def _PushTelemetry(self, version: int) -> dict[str, Any]:
        return {
            "client_instance_id": UUID(int=1), "subscription_id": 1, "terminating": False,
            "compression_type": 0, "metrics": b"",
        }  # fmt: skip

    def _DescribeClientQuotas(self, version: int) -> dict[str, Any]:
        return {"components": [{"entity_type": "user", "match_type": 2, "match": None}], "strict": False}

    def _AlterClientQuotas(self, version: int) -> dict[str, Any]:
        entity = [{"entity_type": "client-id", "entity_name": NOBODY}]
        ops = [{"key": "producer_byte_rate", "value": 1e6, "remove": version == 1}]
        return {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}

    def _SaslHandshake(self, version: int) -> dict[str, Any]:
        return {"mechanism": "PLAIN"}

    def _SaslAuthenticate(self, version: int) -> dict[str, Any]:
        return {"auth_bytes": b"\0user\0password"}

    def _AssignReplicasToDirs(self, version: int) -> dict[str, Any]:
        return {"broker_id": 77, "broker_epoch": 1, "directories": []}

    def _DescribeTopicPartitions(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic}]}


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
def questions(shared_cluster: LocalCluster, bootstrap: str) -> Iterator[Questions]:
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
        yield Questions(topic, topic_id, shared_cluster.cluster_id)


def leads(wire: Wire, port: int, topic: str) -> bool:
    (found,) = wire.ask(
        port, ApiKey.METADATA, 12, topics=[{"name": topic}], allow_auto_topic_creation=False
    ).topics
    return not found.error_code and found.partitions[0].leader_id == 1


ASKED_OF_THE_GROUP_COORDINATOR = {
    ApiKey.OFFSET_COMMIT,
    ApiKey.OFFSET_FETCH,
    ApiKey.JOIN_GROUP,
    ApiKey.HEARTBEAT,
    ApiKey.LEAVE_GROUP,
    ApiKey.SYNC_GROUP,
    ApiKey.DESCRIBE_GROUPS,
    ApiKey.TXN_OFFSET_COMMIT,
    ApiKey.DELETE_GROUPS,
    ApiKey.OFFSET_DELETE,
    ApiKey.CONSUMER_GROUP_HEARTBEAT,
    ApiKey.CONSUMER_GROUP_DESCRIBE,
}
ASKED_OF_THE_TRANSACTION_COORDINATOR = {
    ApiKey.ADD_PARTITIONS_TO_TXN,
    ApiKey.ADD_OFFSETS_TO_TXN,
    ApiKey.END_TXN,
    ApiKey.DESCRIBE_TRANSACTIONS,
}


def at(cluster: LocalCluster, wire: Wire, row: ApiRow) -> int:
    """The port to ask: the leader, the group's coordinator, the active controller."""
    if Role.BROKER not in row.listeners:
        (quorum,) = wire.ask(
            cluster.node(1).client_port, ApiKey.DESCRIBE_QUORUM, 1,
            topics=[{"topic_name": METADATA_TOPIC, "partitions": [{"partition_index": 0}]}],
        ).topics  # fmt: skip
        return cluster.node(quorum.partitions[0].leader_id).controller_port
    if row.key in ASKED_OF_THE_GROUP_COORDINATOR:
        found = wire.ask(cluster.node(1).client_port, ApiKey.FIND_COORDINATOR, 2, key=NOBODY)
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


ASKED = [row for row in ROWS.values() if not row.internal]


@pytest.mark.row("U2")
@pytest.mark.parametrize("row", ASKED, ids=lambda row: row.name)
def test_every_version_is_answered(
    shared_cluster: LocalCluster, wire: Wire, questions: Questions, row: ApiRow
) -> None:
    port = at(shared_cluster, wire, row)
    for version in range(row.min_version, row.max_version + 1):
        answer = wire.ask(port, row.key, version, **questions(row.key, version))
        found = {ErrorCode(code) for code in errors_in(answer)} - {ErrorCode.NONE}
        wanted = {code for code in (ELSEWHERE.get(row.name), EXCUSES.get(row.name)) if code is not None}
        if row.name == "LeaveGroup" and version < 3:
            wanted = {ErrorCode.UNKNOWN_MEMBER_ID}
        assert found <= wanted, f"v{version}: {found}"
        if row.name in ELSEWHERE:
            assert found == wanted, f"v{version}"


def test_api_versions_tells_what_is_answered(shared_cluster: LocalCluster, wire: Wire) -> None:
    node = shared_cluster.node(1)
    for port, role in ((node.client_port, Role.BROKER), (node.controller_port, Role.CONTROLLER)):
        answer = wire.ask(
            port, ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1"
        )
        told = {each.api_key: (each.min_version, each.max_version) for each in answer.api_keys}
        rows = [row for row in ASKED if role in row.listeners and row.named]
        # Produce is told from 0 on, as by Kafka: old librdkafkas infer codecs from that.
        expected = {
            row.key: (0 if row.key is ApiKey.PRODUCE else row.min_version, row.max_version) for row in rows
        }
        assert told == expected
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
        (ApiKey.PRODUCE, 2),
        (ApiKey.PRODUCE, NOT_NAMED),
        (ApiKey.FETCH, 3),
        (ApiKey.METADATA, NOT_NAMED),
        (ApiKey.CREATE_TOPICS, 1),
        (ApiKey.ALTER_PARTITION, 3),
        (999, 0),
        (-1, 0),
    ],
)
def test_others_end_the_connection(shared_cluster: LocalCluster, wire: Wire, key: int, version: int) -> None:
    """As Kafka does: what cannot be read cannot be answered either. Only that connection ends."""
    port = shared_cluster.node(1).client_port

    other = wire.client(port)
    frame = struct.pack(">hhih", key, version, 1, -1)
    with socket.create_connection((HOST, port), 60) as connection:
        connection.sendall(struct.pack(">i", len(frame)) + frame)
        assert connection.recv(1) == b""
    assert wire.run(other.request(ApiKey.API_VERSIONS, 0, {})).error_code == 0
