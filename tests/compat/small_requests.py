"""A small request for every API in every version, and the error codes that may answer it."""

from __future__ import annotations

import struct
from typing import Any
from uuid import UUID

from kraft.api.table import ROWS
from kraft.local.free_ports import HOST
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.header import request_header
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.model import METADATA_TOPIC

NOBODY = "versions-group"
NO_GROUP = "no-such-group"
NOT_NAMED = 50
"""Larger than any version of any API."""


class SmallRequests:
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
        named = {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}
        return {"group_id": NOBODY, "generation_id": 1, "member_id": "who", "assignments": [], **named}

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
        return {"groups_names": [NO_GROUP]}

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

    def _ControllerRegistration(self, version: int) -> dict[str, Any]:
        return {
            "controller_id": 77, "incarnation_id": UUID(int=0x7000), "zk_migration_ready": False,
            "listeners": [], "features": [],
        }  # fmt: skip

    def _AssignReplicasToDirs(self, version: int) -> dict[str, Any]:
        return {"broker_id": 77, "broker_epoch": 1, "directories": []}

    def _DescribeTopicPartitions(self, version: int) -> dict[str, Any]:
        return {"topics": [{"name": self.topic}]}


ASKED = [row for row in ROWS.values() if not row.internal]
