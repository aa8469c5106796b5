"""Log directories of brokers: which are online, and which of them holds a replica (KIP-858).

    a directory fails   BrokerHeartbeat's OfflineLogDirs -> fail_log_dirs: its replicas leave the ISR
    a replica is made   AssignReplicasToDirs -> assign_replicas: the controller learns its directory

A replica whose directory is not among the online ones of its broker may neither lead nor be in sync
(`MetadataImage.can_serve`). A disk that was replaced has another id: its replicas come back once the
broker has assigned them to it. They were made anew there, whether the rest of the broker is as it was or
not, and have nothing of what made them eligible leaders.
"""

from __future__ import annotations

from dataclasses import replace
from functools import partial
from uuid import UUID

from metadata_quorum.decisions.brokers import fence
from metadata_quorum.decisions.decision import Decision, check_broker_epoch
from metadata_quorum.decisions.elections import Election, change_partition, directories_fail, rules_of
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import LOST_DIR, BrokerRegistration
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import BrokerRegistrationChangeRecord, PartitionChangeRecord
from metadata_quorum.protocol.commands import AssignReplicasToDirs, DirectoryAssignment, FailLogDirs
from metadata_quorum.protocol.replies import DirectoryResult


def fail_log_dirs(image: MetadataImage, command: FailLogDirs) -> Decision:
    """Directories are offline for as long as this registration lasts; a broker with none left is fenced."""
    broker = check_broker_epoch(image, command.broker_id, command.broker_epoch)
    offline = frozenset(command.offline)
    lost = [directory for directory in broker.log_dirs if directory in offline]
    online = tuple(directory for directory in broker.log_dirs if directory not in offline)
    if not lost:
        return Decision()
    if not online:
        return _lost_all(image, broker)
    record = BrokerRegistrationChangeRecord(
        broker_id=command.broker_id, broker_epoch=command.broker_epoch, log_dirs=online
    )
    decision = Decision([record])
    decision.records += directories_fail(image, broker.broker_id, frozenset(lost))
    return decision


def _lost_all(image: MetadataImage, broker: BrokerRegistration) -> Decision:
    """Fence it, and register LOST_DIR: no directory at all would mean "as before", and the next heartbeat
    would unfence it."""
    record = BrokerRegistrationChangeRecord(
        broker_id=broker.broker_id, broker_epoch=broker.broker_epoch, log_dirs=(LOST_DIR,)
    )
    return Decision([record, *fence(image, broker).records])


def assign_replicas(image: MetadataImage, command: AssignReplicasToDirs) -> Decision:
    """Record the directories that the broker reports, each replica by itself."""
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    decision = Decision()
    results = []
    seen: set[tuple[UUID, int]] = set()
    for assignment in command.assignments:
        error, record = _assign_one(image, command, assignment)
        if (assignment.topic_id, assignment.partition) in seen:
            error, record = ErrorCode.INVALID_REQUEST, None
        seen.add((assignment.topic_id, assignment.partition))
        results.append(
            DirectoryResult(assignment.topic_id, assignment.partition, assignment.directory, error)
        )
        if record is not None:
            decision.records.append(record)
    decision.reply = tuple(results)
    return decision


def _assign_one(
    image: MetadataImage, command: AssignReplicasToDirs, assignment: DirectoryAssignment
) -> tuple[ErrorCode, PartitionChangeRecord | None]:
    broker_id = command.broker_id
    topic = image.topics_by_id.get(assignment.topic_id)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_ID, None
    partition = topic.partitions.get(assignment.partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, None
    if broker_id not in partition.replicas:
        return ErrorCode.NOT_LEADER_OR_FOLLOWER, None
    if partition.directory(broker_id) == assignment.directory:
        return ErrorCode.NONE, None
    directories = tuple(
        assignment.directory if replica == broker_id else partition.directory(replica)
        for replica in partition.replicas
    )
    placed = replace(partition, directories=directories)
    broker, before = image.brokers[broker_id], partition.directory(broker_id)
    is_online = broker.has_online_dir(assignment.directory)
    # One that was LOST is where it was, and is given up no longer: a broker that lacks a directory of its
    # last run says at its registration that it may have lost something.
    is_new = command.asks_for_origin and before != LOST_DIR and not broker.has_online_dir(before)
    rules = rules_of(image, topic.name)
    return ErrorCode.NONE, change_partition(
        topic.id, assignment.partition, partition, rules,
        isr=partition.isr if is_online else tuple(r for r in partition.isr if r != broker_id),
        acceptable=partial(image.can_serve, partition=placed),
        placed=placed,
        election=rules.election if command.may_be_unclean else Election.ONLINE,
        unclean_restarts=frozenset([broker_id] if is_new else ()),
    )  # fmt: skip
