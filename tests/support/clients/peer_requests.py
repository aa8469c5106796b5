"""What nodes ask each other, sent by a test: `Peer` is broker 2 of a cluster of one node, registered and
active, without a process of its own.

Each function gives the fields of a request that is right, but for what its caller changes.
"""

from __future__ import annotations

from functools import cached_property
from typing import Any, Final
from uuid import UUID

from kraft.storage.stopped_log import read_stopped_log
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID, PartitionRegistration
from metadata_quorum.metadata.image import MetadataImage
from tests.support.clients.wire_client import Wire
from tests.support.nodes.role_nodes import RoleNodes
from tests.support.waiting import wait_until

NODE, PEER, NOBODY = 1, 2, 77
SHARED, ALONE = "shared", "alone"
"""Topics. Of the one both have replicas: the node leads partition 0, the peer partition 1, and the node has
partition 2 from the peer, in a leader epoch of its own. The other one is the node's."""
MOVED: Final = 2
NO_TOPIC: Final = UUID(int=0x7777)
FAR_OFFSET: Final = 1_000_000
Fields = dict[str, Any]


class Peer:
    """Broker 2, and whatever else the node may take the test for."""

    def __init__(self, wire: Wire, heartbeats: Wire, nodes: RoleNodes) -> None:
        """Heartbeats have a connection of their own: where it breaks, the broker counts as dead. It is made
        before the other: of a broker's connections the newest counts."""
        self._wire = wire
        self._nodes = nodes
        self._heartbeats = heartbeats
        self.cluster_id = nodes.cluster_id
        self.epoch = -1
        self.directories = [UUID(int=0x2001)]

    def controller(self, api_key: ApiKey, version: int, **fields: Any) -> Message:
        return self._wire.ask(self._nodes.quorum_ports[NODE], api_key, version, **fields)

    def broker(self, api_key: ApiKey, version: int, **fields: Any) -> Message:
        return self._wire.ask(self._nodes.ports[NODE], api_key, version, **fields)

    def join(self) -> None:
        """Registered, unfenced, a replica of `TOPIC`, and in its ISRs."""
        port = self._nodes.quorum_ports[NODE]
        answer = self._heartbeats.ask(port, ApiKey.BROKER_REGISTRATION, 4, **registration(self))
        assert answer.error_code == 0, answer
        self.epoch = answer.broker_epoch
        wait_until(lambda: not self._beat().is_fenced, "the peer is unfenced")
        for name, assignments in ((SHARED, [[NODE, PEER], [PEER, NODE], [PEER, NODE]]), (ALONE, [[NODE]])):
            topic = {
                "name": name, "num_partitions": -1, "replication_factor": -1, "configs": [],
                "assignments": [
                    {"partition_index": index, "broker_ids": ids} for index, ids in enumerate(assignments)
                ],
            }  # fmt: skip
            answer = self.broker(
                ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000, validate_only=False
            )
            assert answer.topics[0].error_code == 0, answer
        wait_until(lambda: ALONE in self.image().topics_by_name, "the topics are in the metadata log")
        wait_until(lambda: self._beat(want_fence=True).is_fenced, "the peer is fenced")
        wait_until(lambda: not self._beat().is_fenced, "the peer is unfenced")
        for index in (0, 1):
            self._admit(index)
        elected = {"topic": SHARED, "partitions": [1]}
        answer = self.broker(
            ApiKey.ELECT_LEADERS, 2, election_type=0, topic_partitions=[elected], timeout_ms=30_000
        )
        assert answer.replica_election_results[0].partition_result[0].error_code == 0, answer
        wait_until(self._leads, "the peer leads")
        self.forget()

    def _leads(self) -> bool:
        """As the node's broker knows it, too."""
        (topic,) = self.broker(ApiKey.METADATA, 12, topics=[{"name": SHARED}]).topics
        known = {each.partition_index: each.leader_id for each in topic.partitions}
        return known[1] == self.image().topics_by_name[SHARED].partitions[1].leader == PEER

    def _admit(self, index: int) -> None:
        """Back to the ISR, in the leader's name."""
        self.forget()
        change = isr_change(self, index, broker_id=NODE, broker_epoch=self.node_epoch, isr=(NODE, PEER))
        answer = self.controller(ApiKey.ALTER_PARTITION, 3, **change)
        assert answer.topics[0].partitions[0].error_code == 0, answer
        self.forget()

    def forget(self) -> None:
        """The image is read anew."""
        vars(self).pop("known", None)

    def _beat(self, **changed: Any) -> Message:
        port = self._nodes.quorum_ports[NODE]
        return self._heartbeats.ask(port, ApiKey.BROKER_HEARTBEAT, 1, **heartbeat(self, **changed))

    def image(self) -> MetadataImage:
        """What the node has on its disk."""
        directory = self._nodes.home(NODE) / "data" / f"{METADATA_TOPIC}-0"
        return read_stopped_log(OsDisk(), str(directory)).image()

    @cached_property
    def known(self) -> MetadataImage:
        return self.image()

    def topic_id(self, name: str = SHARED) -> UUID:
        return self.known.topics_by_name[name].id

    def partition(self, index: int, topic: str = SHARED) -> PartitionRegistration:
        return self.known.topics_by_name[topic].partitions[index]

    @property
    def node_epoch(self) -> int:
        return self.known.brokers[NODE].broker_epoch


def registration(peer: Peer, **changed: Any) -> Fields:
    features = [
        {"name": name, "min_supported_version": low, "max_supported_version": high}
        for name, (low, high) in SUPPORTED_FEATURES.items()
    ]
    listener = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "security_protocol": 0}
    fields = {
        "broker_id": PEER, "cluster_id": peer.cluster_id, "incarnation_id": UUID(int=0x2000),
        "listeners": [listener], "features": features, "rack": None, "is_migrating_zk_broker": False,
        "log_dirs": peer.directories, "previous_broker_epoch": -1,
    }  # fmt: skip
    return fields | changed


def stranger(peer: Peer, **changed: Any) -> Fields:
    """Of a broker that is new."""
    new = {"broker_id": NOBODY, "incarnation_id": UUID(int=0x7000), "log_dirs": [UUID(int=0x7001)]}
    return registration(peer, **new | changed)


def heartbeat(peer: Peer, **changed: Any) -> Fields:
    fields = {
        "broker_id": PEER, "broker_epoch": peer.epoch, "current_metadata_offset": FAR_OFFSET,
        "want_fence": False, "want_shut_down": False, "offline_log_dirs": [],
    }  # fmt: skip
    return fields | changed


def isr_change(peer: Peer, index: int = 1, **changed: Any) -> Fields:
    """Of partition 1, by its leader; what names the sender is the request's own."""
    partition = peer.partition(index)
    sender = {"broker_id": PEER, "broker_epoch": peer.epoch}
    sender |= {name: changed.pop(name) for name in tuple(changed) if name in sender}
    topic_id = changed.pop("topic_id", peer.topic_id())
    epochs = {NODE: peer.node_epoch, PEER: peer.epoch}
    isr = changed.pop("isr", partition.isr)
    fields = {
        "partition_index": index, "leader_epoch": partition.leader_epoch, "leader_recovery_state": 0,
        "partition_epoch": partition.partition_epoch,
        "new_isr_with_epochs": [
            {"broker_id": each, "broker_epoch": epochs.get(each, -1)} for each in isr
        ],
    }  # fmt: skip
    topics = [{"topic_id": topic_id, "partitions": [fields | changed]}]
    return {**sender, "topics": topics}


def assignment(peer: Peer, **changed: Any) -> Fields:
    """Of the peer's replica to a directory of its own."""
    sender = {"broker_id": PEER, "broker_epoch": peer.epoch}
    sender |= {name: changed.pop(name) for name in tuple(changed) if name in sender}
    topic = {
        "topic_id": changed.get("topic_id", peer.topic_id()),
        "partitions": [{"partition_index": changed.get("partition", 1)}],
    }
    return {
        **sender,
        "directories": [{"id": changed.get("directory", peer.directories[0]), "topics": [topic]}],
    }


def metadata_fetch(peer: Peer, **changed: Any) -> Fields:
    """Of a broker at the beginning of the log, in the quorum's epoch."""
    partition = {
        "partition": 0, "current_leader_epoch": peer.known.epoch, "fetch_offset": 0, "last_fetched_epoch": 0,
        "log_start_offset": -1, "partition_max_bytes": 0, "replica_directory_id": UUID(int=0),
    }  # fmt: skip
    whole = {
        "cluster_id": peer.cluster_id, "replica_state": {"replica_id": PEER, "replica_epoch": -1},
        "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0,
        "session_epoch": -1, "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    topic_id = changed.pop("topic_id", METADATA_TOPIC_ID)
    whole |= {name: changed.pop(name) for name in tuple(changed) if name in whole}
    return whole | {"topics": [{"topic_id": topic_id, "partitions": [partition | changed]}]}


def snapshot_fetch(peer: Peer, **changed: Any) -> Fields:
    """Of a snapshot that is not there."""
    name = changed.pop("topic", METADATA_TOPIC)
    partition = {
        "partition": 0, "current_leader_epoch": peer.known.epoch, "position": 0,
        "snapshot_id": {"end_offset": FAR_OFFSET, "epoch": 1}, "replica_directory_id": UUID(int=0),
    }  # fmt: skip
    whole = {"cluster_id": peer.cluster_id, "replica_id": PEER, "max_bytes": 1 << 20}
    whole |= {each: changed.pop(each) for each in tuple(changed) if each in whole}
    return whole | {"topics": [{"name": name, "partitions": [partition | changed]}]}


def markers(peer: Peer, **changed: Any) -> Fields:
    """Of a transaction that nobody began."""
    topic = {"name": changed.pop("topic", ALONE), "partition_indexes": [changed.pop("partition", 0)]}
    marker = {
        "producer_id": 7_000, "producer_epoch": 0, "transaction_result": True, "topics": [topic],
        "coordinator_epoch": 0,
    }  # fmt: skip
    return {"markers": [marker | changed]}


def epoch_end(peer: Peer, **changed: Any) -> Fields:
    """Of the same."""
    name = changed.pop("topic", SHARED)
    epoch = peer.partition(MOVED).leader_epoch
    partition = {"partition": MOVED, "current_leader_epoch": epoch, "leader_epoch": 0}
    return {"replica_id": PEER, "topics": [{"topic": name, "partitions": [partition | changed]}]}


def replica_fetch(peer: Peer, **changed: Any) -> Fields:
    """Of a replica that the peer has."""
    partition = {
        "partition": MOVED, "current_leader_epoch": peer.partition(MOVED).leader_epoch, "fetch_offset": 0,
        "last_fetched_epoch": -1, "log_start_offset": 0, "partition_max_bytes": 1 << 20,
        "replica_directory_id": UUID(int=0),
    }  # fmt: skip
    state = {"replica_id": PEER, "replica_epoch": peer.epoch}
    state |= {name: changed.pop(name) for name in tuple(changed) if name in state}
    cluster_id = changed.pop("cluster_id", peer.cluster_id)
    topic = {"topic_id": changed.pop("topic_id", peer.topic_id()), "partitions": [partition | changed]}
    return {
        "cluster_id": cluster_id, "replica_state": state, "max_wait_ms": 0, "min_bytes": 0,
        "max_bytes": 1 << 20, "isolation_level": 0, "session_id": 0, "session_epoch": -1,
        "forgotten_topics_data": [], "rack_id": "", "topics": [topic],
    }  # fmt: skip


def vote(peer: Peer) -> Fields:
    partition = {
        "partition_index": 0, "replica_epoch": peer.known.epoch, "replica_id": NODE,
        "replica_directory_id": UUID(int=0), "voter_directory_id": UUID(int=0), "last_offset_epoch": 0,
        "last_offset": 0, "pre_vote": True,
    }  # fmt: skip
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
    return {"cluster_id": peer.cluster_id, "voter_id": NODE, "topics": topics}


def producer_ids(peer: Peer, **changed: Any) -> Fields:
    return {"broker_id": PEER, "broker_epoch": peer.epoch} | changed


def unregistration(peer: Peer) -> Fields:
    return {"broker_id": 4_711}


def controller(peer: Peer) -> Fields:
    return {
        "controller_id": NOBODY, "incarnation_id": UUID(int=0x7000), "zk_migration_ready": False,
        "listeners": [{"name": "CONTROLLER", "host": "127.0.0.1", "port": 1, "security_protocol": 0}],
        "features": [],
    }  # fmt: skip


def new_epoch(peer: Peer) -> Fields:
    partition = {
        "partition_index": 0, "voter_directory_id": UUID(int=0), "leader_id": NODE, "leader_epoch": 0,
    }  # fmt: skip
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
    return {"cluster_id": peer.cluster_id, "voter_id": NODE, "topics": topics, "leader_endpoints": []}


def end_of_epoch(peer: Peer) -> Fields:
    partition = {
        "partition_index": 0, "leader_id": NODE, "leader_epoch": 0, "preferred_successors": [],
        "preferred_candidates": [],
    }  # fmt: skip
    topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
    return {"cluster_id": peer.cluster_id, "topics": topics, "leader_endpoints": []}
