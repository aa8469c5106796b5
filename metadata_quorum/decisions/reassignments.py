"""AlterPartitionReassignments: move a partition to other replicas, or cancel that.

Every partition is decided by itself, with the codes of Kafka's controller:

    topic or partition unknown                       UNKNOWN_TOPIC_OR_PARTITION
    no replicas, one twice, or an unknown broker     INVALID_REPLICA_ASSIGNMENT
    another number of replicas, where not allowed    INVALID_REPLICATION_FACTOR
    nothing to cancel                                NO_REASSIGNMENT_IN_PROGRESS
    cancelled, but only added replicas are in sync   INVALID_REPLICA_ASSIGNMENT (without unclean election)

A target that is in sync already is reached with the same record; all others are reached with the change
of the ISR that completes them (elections.py).
"""

from __future__ import annotations

from functools import partial

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.decisions.elections import Election, change_partition, rules_of
from metadata_quorum.decisions.replicas import reverted, toward
from metadata_quorum.decisions.topics import known_directory, quoted
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration, TopicPartition
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from metadata_quorum.metadata.records import PartitionChangeRecord
from metadata_quorum.protocol.commands import AlterReassignments, Reassignment
from metadata_quorum.protocol.replies import ReassignmentResult


def alter_reassignments(image: MetadataImage, command: AlterReassignments) -> Decision:
    """Begin, change and cancel reassignments."""
    decision = Decision()
    results = []
    seen: set[TopicPartition] = set()
    for reassignment in command.reassignments:
        tp = TopicPartition(reassignment.topic, reassignment.partition)
        error, message, record = ErrorCode.NONE, "", None
        try:
            if tp in seen:
                raise BrokerError(
                    ErrorCode.INVALID_REQUEST, f"{quoted(tp.topic)}-{tp.partition} is named more than once."
                )
            seen.add(tp)
            record = _alter_one(image, reassignment, command)
        except BrokerError as e:
            error, message = e.code, e.message
        results.append(ReassignmentResult(*tp, error, message))
        if record is not None:
            decision.records.append(record)
    decision.reply = tuple(results)
    return decision


def _alter_one(
    image: MetadataImage, reassignment: Reassignment, command: AlterReassignments
) -> PartitionChangeRecord | None:
    topic = image.topics_by_name.get(reassignment.topic)
    if topic is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find a topic named {quoted(reassignment.topic)}.",
        )
    partition = topic.partitions.get(reassignment.partition)
    if partition is None:
        raise BrokerError(
            ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
            f"Unable to find partition {reassignment.topic}:{reassignment.partition}.",
        )
    if reassignment.replicas is None:
        return _cancel(image, topic, reassignment.partition, partition)
    _check_target(image, reassignment.replicas)
    if not command.allow_replication_factor_change:
        _check_size(partition, reassignment.replicas)
    placed = toward(partition, reassignment.replicas, partial(known_directory, image))
    rules = rules_of(image, topic.name)
    return change_partition(
        topic.id, reassignment.partition, partition, rules,
        isr=partition.isr, acceptable=partial(image.can_serve, partition=placed), placed=placed,
        election=rules.election if command.may_be_unclean else Election.ONLINE,
    )  # fmt: skip


def _check_target(image: MetadataImage, replicas: tuple[int, ...]) -> None:
    problem = ""
    unknown = [replica for replica in replicas if replica not in image.brokers]
    if not replicas:
        problem = "The manual partition assignment includes an empty replica list."
    elif len(set(replicas)) != len(replicas):
        problem = "The manual partition assignment includes a replica more than once."
    elif unknown:
        problem = (
            f"The manual partition assignment includes broker {unknown[0]}, but no such broker is registered."
        )
    if problem:
        raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _check_size(partition: PartitionRegistration, replicas: tuple[int, ...]) -> None:
    size = len(set(partition.replicas).difference(partition.removing_replicas))
    if len(replicas) != size:
        raise BrokerError(
            ErrorCode.INVALID_REPLICATION_FACTOR,
            f"The replication factor is changed from {size} to {len(replicas)}",
        )


def _cancel(
    image: MetadataImage, topic: TopicImage, partition_id: int, partition: PartitionRegistration
) -> PartitionChangeRecord | None:
    if not partition.reassigning:
        raise BrokerError(ErrorCode.NO_REASSIGNMENT_IN_PROGRESS, "No partition reassignment is in progress.")
    placed = reverted(partition)
    rules = rules_of(image, topic.name)
    isr = tuple(replica for replica in partition.isr if replica in placed.replicas)
    change = change_partition(
        topic.id, partition_id, partition, rules,
        isr=isr, acceptable=partial(image.can_serve, partition=placed), placed=placed,
        election=rules.election,
    )  # fmt: skip
    if not isr and (change is None or change.leader == NO_LEADER):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Unable to revert partition assignment for {topic.name}:{partition_id} because it would require "
            "an unclean leader election.",
        )
    return change
