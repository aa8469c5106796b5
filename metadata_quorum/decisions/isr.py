"""AlterPartition: a leader's proposal for an ISR, compared and set against committed state.

The checks come in the order of Kafka's controller, since the code that a leader gets decides
whether it drops the proposal, waits for metadata or tries again:

    broker epoch stale                         STALE_BROKER_EPOCH (the whole request)
    topic or partition unknown                 UNKNOWN_TOPIC_ID, UNKNOWN_TOPIC_OR_PARTITION
    leader or partition epoch ahead of ours    NOT_CONTROLLER (this controller is behind)
    leader epoch behind                        FENCED_LEADER_EPOCH
    the sender is not the leader               INVALID_REQUEST
    partition epoch behind                     INVALID_UPDATE_VERSION
    ISR not within replicas, or leader missing INVALID_REQUEST
    recovering leader with company             INVALID_REQUEST
    a member that may not be in an ISR         INELIGIBLE_REPLICA
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

from metadata_quorum.decisions.decision import Decision, check_broker_epoch
from metadata_quorum.decisions.elections import RECOVERED, RECOVERING, change_partition, rules_of
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import PartitionRegistration
from metadata_quorum.metadata.delta import merge_change
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import PartitionChangeRecord
from metadata_quorum.protocol.commands import AlterPartitions, IsrChange, IsrMember
from metadata_quorum.protocol.replies import IsrResult


def alter_partitions(image: MetadataImage, command: AlterPartitions) -> Decision:
    """Judge each change for itself; one partition is changed at most once per command."""
    check_broker_epoch(image, command.broker_id, command.broker_epoch)
    decision = Decision()
    results = []
    changed: set[tuple[UUID, int]] = set()
    for change in command.changes:
        result, record = _alter_one(image, command.broker_id, change, changed)
        results.append(result)
        if record is not None:
            decision.records.append(record)
            changed.add((change.topic_id, change.partition))
    decision.reply = tuple(results)
    return decision


def _alter_one(
    image: MetadataImage, broker_id: int, change: IsrChange, changed: set[tuple[UUID, int]]
) -> tuple[IsrResult, PartitionChangeRecord | None]:
    topic = image.topics_by_id.get(change.topic_id)
    if topic is None:
        return IsrResult(change.topic_id, change.partition, ErrorCode.UNKNOWN_TOPIC_ID), None
    partition = topic.partitions.get(change.partition)
    if partition is None:
        return IsrResult(change.topic_id, change.partition, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION), None
    error = _verdict(image, broker_id, change, partition)
    if error is ErrorCode.NONE and (change.topic_id, change.partition) in changed:
        error = ErrorCode.INVALID_UPDATE_VERSION
    if error is not ErrorCode.NONE:
        return IsrResult(change.topic_id, change.partition, error), None
    members = {member.broker_id for member in change.isr}
    record = change_partition(
        topic.id, change.partition, partition, rules_of(image, topic.name),
        isr=_in_order(partition, members),
        acceptable=partial(image.can_serve, partition=partition),
        recovery_state=change.leader_recovery_state,
    )  # fmt: skip
    if record is not None:
        partition = merge_change(partition, record)
    if partition.leader != broker_id:
        return IsrResult(change.topic_id, change.partition, ErrorCode.NEW_LEADER_ELECTED), record
    result = IsrResult(
        topic_id=change.topic_id,
        partition=change.partition,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        isr=partition.isr,
        leader_recovery_state=partition.leader_recovery_state,
        partition_epoch=partition.partition_epoch,
    )
    return result, record


def _in_order(partition: PartitionRegistration, members: set[int]) -> tuple[int, ...]:
    """The proposed ISR in one order, so that the same set changes nothing."""
    if members == set(partition.isr):
        return partition.isr
    return tuple(replica for replica in partition.replicas if replica in members)


def _verdict(
    image: MetadataImage, broker_id: int, change: IsrChange, partition: PartitionRegistration
) -> ErrorCode:
    members = [member.broker_id for member in change.isr]
    recovering = change.leader_recovery_state == RECOVERING
    ahead = change.leader_epoch > partition.leader_epoch or change.partition_epoch > partition.partition_epoch
    checks = (
        (ahead, ErrorCode.NOT_CONTROLLER),
        (change.leader_epoch < partition.leader_epoch, ErrorCode.FENCED_LEADER_EPOCH),
        (broker_id != partition.leader, ErrorCode.INVALID_REQUEST),
        (change.partition_epoch < partition.partition_epoch, ErrorCode.INVALID_UPDATE_VERSION),
        (
            len(set(members)) != len(members) or not set(members) <= set(partition.replicas),
            ErrorCode.INVALID_REQUEST,
        ),
        (partition.leader not in members, ErrorCode.INVALID_REQUEST),
        (change.leader_recovery_state not in (RECOVERED, RECOVERING), ErrorCode.INVALID_REQUEST),
        (recovering and len(members) > 1, ErrorCode.INVALID_REQUEST),
        (recovering and partition.leader_recovery_state == RECOVERED, ErrorCode.INVALID_REQUEST),
        (not all(_may_join(image, member, partition) for member in change.isr), ErrorCode.INELIGIBLE_REPLICA),
    )
    return next((code for failed, code in checks if failed), ErrorCode.NONE)


def _may_join(image: MetadataImage, member: IsrMember, partition: PartitionRegistration) -> bool:
    """Active, on a directory that is online (KIP-858), and (unless -1) of the incarnation that the
    leader saw fetch (KIP-903)."""
    if not image.can_serve(member.broker_id, partition):
        return False
    return member.broker_epoch in (-1, image.brokers[member.broker_id].broker_epoch)
