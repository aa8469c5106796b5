"""What one node asks another, and the error under each condition: Apache Kafka's answers, and ours.

    controller | BrokerHeartbeat 1 | in an older broker epoch | error_code=STALE_BROKER_EPOCH

The file is what a JVM answered (`test_apache_kafka_answers_so`, long; REWRITE_GOLDEN=1 writes it); ours
answers the same, but for `DIFFERENT`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.clients import peer_requests as ask
from tests.support.clients.peer_requests import (
    ALONE,
    FAR_OFFSET,
    MOVED,
    NO_TOPIC,
    NOBODY,
    NODE,
    PEER,
    SHARED,
    Fields,
    Peer,
)
from tests.support.clients.wire_client import Wire
from tests.support.kafka.kafka_node import KafkaNode
from tests.support.nodes.role_nodes import BOTH, KRAFT, Software, role_nodes

GOLDEN: Final = Path(__file__).parent / "peer_errors" / "4.1.0.txt"
SETTINGS: Final = {"broker.session.timeout.ms": "120000"}

UNREACHABLE: Final = "error_code=INVALID_REGISTRATION"
READ: Final = "error_code=NONE, responses.partitions.error_code=NONE"
NO_SNAPSHOT: Final = "error_code=NONE, topics.partitions.error_code=SNAPSHOT_NOT_FOUND, snapshot_id"
NO_PARTITION: Final = "error_code=NONE, topics.partitions.error_code=UNKNOWN_TOPIC_OR_PARTITION, snapshot_id"
DIFFERENT: Final[Mapping[str, str]] = {
    # It could not be reached.
    "controller | BrokerRegistration 4 | without listeners": UNREACHABLE,
    "controller | BrokerRegistration 4 | with a listener twice": UNREACHABLE,
    # All of our metadata log is committed: it is handed out in any epoch, by any controller.
    "controller | Fetch 17 | in an older leader epoch": READ,
    "controller | Fetch 17 | in a newer leader epoch": READ,
    "controller | Fetch 17 | without a leader epoch": READ,
    "controller | Fetch 17 | without a fetched epoch": READ,
    "controller | Fetch 17 | from an epoch that never was": f"{READ}, diverging_epoch",
    # Apache Kafka cannot encode its own refusals of a snapshot: its answers have no records.
    "controller | FetchSnapshot 1 | in an older leader epoch": NO_SNAPSHOT,
    "controller | FetchSnapshot 1 | in a newer leader epoch": NO_SNAPSHOT,
    "controller | FetchSnapshot 1 | without a leader epoch": NO_SNAPSHOT,
    "controller | FetchSnapshot 1 | of another topic": NO_PARTITION,
    "controller | FetchSnapshot 1 | of another partition": NO_PARTITION,
    "controller | FetchSnapshot 1 | of a snapshot that is not there": NO_SNAPSHOT,
    "controller | FetchSnapshot 1 | at a position below 0": NO_SNAPSHOT,
    # Our controllers have a Raft of their own.
    "controller | Vote 2 | of a voter": "hangs up",
    "controller | BeginQuorumEpoch 1 | in an older epoch": "hangs up",
    "controller | EndQuorumEpoch 1 | in an older epoch": "hangs up",
}
"""Ours, where it is not Apache Kafka's (docs/DIFFERENCES.md)."""

FATES: Final = ("is_fenced", "should_shut_down")
ENDS: Final = ("diverging_epoch", "snapshot_id")
"""What an answer may have in the place of an error."""
Change = Fields | Callable[[Peer], Fields]
LISTENER: Final = {"name": "PLAINTEXT", "host": "127.0.0.1", "port": 1, "security_protocol": 0}
OWN: Final = UUID(int=0x2001)


def feature(low: int, high: int) -> Fields:
    return {"name": "metadata.version", "min_supported_version": low, "max_supported_version": high}


NO_BROKER: Final[Change] = {"broker_id": 4_711}
OLDER_EPOCH: Final[Change] = lambda peer: {"broker_epoch": peer.epoch - 1}  # noqa: E731
NEWER_EPOCH: Final[Change] = lambda peer: {"broker_epoch": peer.epoch + 1}  # noqa: E731
SENDERS: Final[Mapping[str, Change]] = {
    "of a broker that is not registered": NO_BROKER,
    "in an older broker epoch": OLDER_EPOCH,
    "in a newer broker epoch": NEWER_EPOCH,
}

REGISTRATIONS: Final[Mapping[str, Change]] = {
    "of another cluster": {"cluster_id": "another"},
    "of another incarnation of an active broker": {"broker_id": PEER},
    "without listeners": {"listeners": []},
    "with a listener twice": {"listeners": [LISTENER, LISTENER]},
    "without features": {"features": []},
    "with too old features": {"features": [feature(1, 2)]},
    "without a feature that is finalized": {"features": [feature(7, 27)]},
    "without directories": {"log_dirs": []},
    "with a directory twice": {"log_dirs": [UUID(int=0x7001)] * 2},
    "with a reserved directory": {"log_dirs": [UUID(int=5)]},
    "with another broker's directory": {"log_dirs": [OWN]},
    "with a broker id below 0": {"broker_id": -1},
    "of a broker that migrates from ZooKeeper": {"is_migrating_zk_broker": True},
}
HEARTBEATS: Final[Mapping[str, Change]] = {
    **SENDERS,
    "with a failed directory that is not its own": {"offline_log_dirs": [UUID(int=0x9999)]},
}
ISR_CHANGES: Final[Mapping[str, Change]] = {
    **SENDERS,
    "of an unknown topic": {"topic_id": NO_TOPIC},
    "of an unknown partition": {"partition_index": 9},
    "by a follower": {"index": 0},
    "in an older leader epoch": lambda peer: {"leader_epoch": peer.partition(1).leader_epoch - 1},
    "in a newer leader epoch": lambda peer: {"leader_epoch": peer.partition(1).leader_epoch + 1},
    "in an older partition epoch": lambda peer: {"partition_epoch": peer.partition(1).partition_epoch - 1},
    "in a newer partition epoch": lambda peer: {"partition_epoch": peer.partition(1).partition_epoch + 1},
    "by a follower in an older leader epoch": {"index": 0, "leader_epoch": -1},
    "by a follower in an older partition epoch": {"index": 0, "partition_epoch": -1},
    "to an empty ISR": {"isr": ()},
    "to an ISR without the leader": {"isr": (NODE,)},
    "to an ISR with a broker that is no replica": {"isr": (PEER, NODE, NOBODY)},
    "to an ISR with a broker twice": {"isr": (PEER, PEER)},
    "to an ISR with a member in an older epoch": {
        "new_isr_with_epochs": [
            {"broker_id": PEER, "broker_epoch": -1},
            {"broker_id": NODE, "broker_epoch": 0},
        ]
    },
    "to recovering, with company": {"leader_recovery_state": 1},
    "to recovering, alone": {"leader_recovery_state": 1, "isr": (PEER,)},
    "to what it is": {},
}
ASSIGNMENTS: Final[Mapping[str, Change]] = {
    **SENDERS,
    "of an unknown topic": {"topic_id": NO_TOPIC},
    "of an unknown partition": {"partition": 9},
    "of a partition that it has no replica of": lambda peer: {
        "topic_id": peer.topic_id(ALONE),
        "partition": 0,
    },
    "to a directory that is not its own": {"directory": UUID(int=0x9999)},
    "to a lost directory": {"directory": UUID(int=1)},
    "to a directory of its own": {},
}
EPOCHS: Final[Mapping[str, Change]] = {
    "in an older leader epoch": lambda peer: {"current_leader_epoch": peer.known.epoch - 1},
    "in a newer leader epoch": lambda peer: {"current_leader_epoch": peer.known.epoch + 1},
    "without a leader epoch": {"current_leader_epoch": -1},
}
METADATA_FETCHES: Final[Mapping[str, Change]] = {
    **EPOCHS,
    "of another cluster": {"cluster_id": "another"},
    "of another topic": {"topic_id": NO_TOPIC},
    "of another partition": {"partition": 1},
    "without a fetched epoch": {"last_fetched_epoch": -1},
    "beyond the end of the log": lambda peer: {
        "fetch_offset": FAR_OFFSET, "last_fetched_epoch": peer.known.epoch,
    },
    "from an epoch that never was": {"fetch_offset": 1, "last_fetched_epoch": 70},
    "from below the log": {"fetch_offset": -5},
    "from the beginning": {},
}  # fmt: skip
SNAPSHOT_FETCHES: Final[Mapping[str, Change]] = {
    **EPOCHS,
    "of another cluster": {"cluster_id": "another"},
    "of another topic": {"topic": "another"},
    "of another partition": {"partition": 1},
    "of a snapshot that is not there": {},
    "at a position below 0": {"position": -1},
}
IN_SHARED: Final = {"topic": SHARED}
MARKERS: Final[Mapping[str, Change]] = {
    "of an unknown topic": {"topic": "another"},
    "of an unknown partition": {"partition": 9},
    "of a partition that another broker leads": {**IN_SHARED, "partition": 1},
    "of a producer that wrote nothing": {},
    "in a newer coordinator epoch": {"coordinator_epoch": 5, "producer_epoch": 5},
    "in an older coordinator epoch": {"coordinator_epoch": 1},
    "of an older producer epoch": {"coordinator_epoch": 5, "producer_epoch": 4},
}
LED_BY_PEER: Final[Change] = lambda peer: {  # noqa: E731
    "partition": 1,
    "current_leader_epoch": peer.partition(1).leader_epoch,
}
REPLICA_EPOCHS: Final[Mapping[str, Change]] = {
    "in an older leader epoch": lambda peer: {"current_leader_epoch": peer.partition(MOVED).leader_epoch - 1},
    "in a newer leader epoch": {"current_leader_epoch": 70},
    "without a leader epoch": {"current_leader_epoch": -1},
}
EPOCH_ENDS: Final[Mapping[str, Change]] = {
    **REPLICA_EPOCHS,
    "of an unknown topic": {"topic": "another"},
    "of an unknown partition": {"partition": 9},
    "of a partition that another broker leads": LED_BY_PEER,
    "of an epoch to come": {"leader_epoch": 70},
    "of the first epoch": {},
}
REPLICA_FETCHES: Final[Mapping[str, Change]] = {
    **REPLICA_EPOCHS,
    "of an unknown topic": {"topic_id": NO_TOPIC},
    "of an unknown partition": {"partition": 9},
    "of a partition that another broker leads": LED_BY_PEER,
    "of a partition that it has no replica of": lambda peer: {
        "topic_id": peer.topic_id(ALONE),
        "partition": 0,
        "current_leader_epoch": 0,
    },
    "of a replica of an unknown broker": {"replica_id": 4_711},
    "in an older replica epoch": lambda peer: {"replica_epoch": peer.epoch - 1},
    "beyond the end of the log": {"fetch_offset": FAR_OFFSET},
    "from an epoch that never was": {"last_fetched_epoch": 70},
    "of another cluster": {"cluster_id": "another"},
    "from the beginning": {},
}
AT_CONTROLLER: Final = (
    (ApiKey.BROKER_REGISTRATION, 4, ask.stranger, REGISTRATIONS),
    (ApiKey.BROKER_HEARTBEAT, 1, ask.heartbeat, HEARTBEATS),
    (ApiKey.ALLOCATE_PRODUCER_IDS, 0, ask.producer_ids, SENDERS),
    (ApiKey.ALTER_PARTITION, 3, ask.isr_change, ISR_CHANGES),
    (ApiKey.UNREGISTER_BROKER, 0, ask.unregistration, {"of a broker that is not registered": {}}),
    (ApiKey.FETCH, 17, ask.metadata_fetch, METADATA_FETCHES),
    (ApiKey.FETCH_SNAPSHOT, 1, ask.snapshot_fetch, SNAPSHOT_FETCHES),
)
AT_BROKER: Final = (
    (ApiKey.WRITE_TXN_MARKERS, 1, ask.markers, MARKERS),
    (ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, ask.epoch_end, EPOCH_ENDS),
    (ApiKey.FETCH, 17, ask.replica_fetch, REPLICA_FETCHES),
)
AT_THE_END: Final = (
    (ApiKey.ASSIGN_REPLICAS_TO_DIRS, 0, ask.assignment, ASSIGNMENTS),
    (ApiKey.CONTROLLER_REGISTRATION, 0, ask.controller, {"of a controller that is no voter": {}}),
    (ApiKey.VOTE, 2, ask.vote, {"of a voter": {}}),
    (ApiKey.BEGIN_QUORUM_EPOCH, 1, ask.new_epoch, {"in an older epoch": {}}),
    (ApiKey.END_QUORUM_EPOCH, 1, ask.end_of_epoch, {"in an older epoch": {}}),
)
"""The peer loses its replica, and where the node hangs up, its life."""


def answers(software: Software, directory: Path, ports: list[int]) -> list[str]:
    """The lines, of a node of that software."""
    with (
        role_nodes(directory, ports, {NODE: BOTH}, SETTINGS, software={NODE: software}) as nodes,
        Wire() as wire,
        Wire() as heartbeats,
    ):
        peer = Peer(wire, heartbeats, nodes)
        peer.join()
        return [
            *(
                f"controller | {line}"
                for row in AT_CONTROLLER
                for line in _lines(peer, peer.controller, *row)
            ),
            *(f"broker | {line}" for row in AT_BROKER for line in _lines(peer, peer.broker, *row)),
            *(f"controller | {line}" for row in AT_THE_END for line in _lines(peer, peer.controller, *row)),
        ]


def _lines(
    peer: Peer,
    send: Callable[..., Any],
    api_key: ApiKey,
    version: int,
    make: Callable[..., Fields],
    table: Mapping[str, Change],
) -> Iterator[str]:
    name = "".join(word.capitalize() for word in api_key.name.split("_"))
    for condition, change in table.items():
        fields = make(peer, **(change(peer) if callable(change) else change))
        try:
            said = ", ".join(_errors(send(api_key, version, **fields), "")) or "nothing"
        except ConnectionError:
            said = "hangs up"
        yield f"{name} {version} | {condition} | {said}"


def _errors(answer: Any, path: str) -> Iterator[str]:
    """By their places in the answer; and what else tells what becomes of the request."""
    for name, value in vars(answer).items():
        if name == "error_code":
            yield f"{path}{name}={ErrorCode(value).name}"
        elif (name in FATES and value) or (name in ENDS and value.end_offset >= 0):
            yield name
        elif isinstance(value, list | tuple):
            for each in value:
                if hasattr(each, "__dict__"):
                    yield from _errors(each, f"{path}{name}.")


def test_ours_answers_as_apache_kafka_does(tmp_path: Path, free_ports: Callable[[int], list[int]]) -> None:
    wanted = GOLDEN.read_text().splitlines()
    found = answers(KRAFT, tmp_path, free_ports(2))
    for line, ours in zip(wanted, found, strict=True):
        condition, _, kafkas = line.rpartition(" | ")
        assert ours == f"{condition} | {DIFFERENT.get(condition, kafkas)}"
    assert DIFFERENT.keys() <= {line.rpartition(" | ")[0] for line in wanted}


@pytest.mark.long
@pytest.mark.kafka
def test_apache_kafka_answers_so(
    kafka_node: KafkaNode, tmp_path: Path, free_ports: Callable[[int], list[int]]
) -> None:
    found = answers(kafka_node, tmp_path, free_ports(2))
    if os.environ.get("REWRITE_GOLDEN"):
        GOLDEN.write_text("".join(f"{line}\n" for line in found))
    assert found == GOLDEN.read_text().splitlines()
