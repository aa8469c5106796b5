"""Topics: create, delete, grow. Every topic of a request is decided by itself, with Kafka's codes.

A new partition's ISR are those of its replicas that are active now; the first of them leads.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Final
from uuid import UUID

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.decisions.placement import place
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import (
    MAX_TOPIC_NAME,
    METADATA_TOPIC,
    TOPIC_NAME,
    UNASSIGNED_DIR,
    ResourceType,
)
from metadata_quorum.foundation.topic_configs import topic_config_problem
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)
from metadata_quorum.protocol.commands import (
    Assignment,
    CreatePartitions,
    CreateTopics,
    DeleteTopics,
    NewPartitions,
    NewTopic,
)
from metadata_quorum.protocol.replies import TopicResult

MAX_PARTITIONS_PER_COMMAND: Final = 10_000

_LEGAL_NAME: Final = re.compile(TOPIC_NAME)


@dataclass(slots=True)
class _Created:
    """Names and partitions of the topics before this one in the same request."""

    names: set[str] = field(default_factory=set)
    partitions: int = 0
    _by_blurred_name: dict[str, str] | None = None

    def add(self, name: str, partitions: int) -> None:
        self.names.add(name)
        self.partitions += partitions
        if self._by_blurred_name is not None:
            self._by_blurred_name.setdefault(blurred_name(name), name)

    def collision(self, image: MetadataImage, name: str) -> str | None:
        """The name of another topic that differs only in '.' and '_', which metric names do not keep apart.
        The existing topics are searched once per request, not once per topic."""
        if not ("." in name or "_" in name):
            return None
        if self._by_blurred_name is None:
            every = sorted({*image.topics_by_name, *self.names}, reverse=True)
            self._by_blurred_name = {blurred_name(other): other for other in every}
        return self._by_blurred_name.get(blurred_name(name))


def blurred_name(name: str) -> str:
    return name.replace(".", "_")


def create_topics(image: MetadataImage, command: CreateTopics) -> Decision:
    """New topics, with their configs and partitions."""
    decision = Decision()
    results = []
    created = _Created()
    for topic in command.topics:
        try:
            records, result = _create_one(image, topic, created)
        except BrokerError as e:
            records, result = [], TopicResult(topic.name, error=e.code, message=e.message)
        decision.records += records
        results.append(result)
    decision.reply = tuple(results)
    return decision


def _create_one(
    image: MetadataImage, topic: NewTopic, created: _Created
) -> tuple[list[MetadataRecord], TopicResult]:
    _check_name(image, topic.name, created)
    configs = {entry.name: entry.value for entry in topic.configs if entry.value is not None}
    if len(configs) < len({entry.name for entry in topic.configs}):
        empty = next(entry.name for entry in topic.configs if entry.value is None)
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Null value not supported for topic configs: {empty}")
    problem = topic_config_problem(configs)
    if problem:
        raise BrokerError(ErrorCode.INVALID_CONFIG, problem)
    if topic.assignments:
        replicas = _chosen_replicas(image, topic)
    else:
        if topic.replication_factor <= 0:
            raise BrokerError(
                ErrorCode.INVALID_REPLICATION_FACTOR,
                "Replication factor must be larger than 0, or -1 to use the default value.",
            )
        if topic.partitions <= 0:
            raise BrokerError(
                ErrorCode.INVALID_PARTITIONS, "Number of partitions was set to an invalid non-positive value."
            )
        check_total(created.partitions + topic.partitions)
        replicas = _placed(image, 0, topic.partitions, topic.replication_factor, topic.placement_start)
    created.add(topic.name, len(replicas))
    records: list[MetadataRecord] = [TopicRecord(name=topic.name, topic_id=topic.topic_id)]
    records += [
        ConfigRecord(resource_type=ResourceType.TOPIC, resource_name=topic.name, name=name, value=value)
        for name, value in sorted(configs.items())
    ]
    records += [
        _new_partition(image, topic.topic_id, partition, assigned)
        for partition, assigned in enumerate(replicas)
    ]
    result = TopicResult(
        topic.name, topic.topic_id, partitions=len(replicas), replication_factor=len(replicas[0])
    )
    return records, result


def _placed(
    image: MetadataImage, first: int, count: int, replication_factor: int, start: int
) -> list[tuple[int, ...]]:
    try:
        return place(image.brokers.values(), first, count, replication_factor, start)
    except BrokerError as e:
        raise BrokerError(
            e.code, f"Unable to replicate the partition {replication_factor} time(s): {e.message}"
        ) from e


def quoted(name: str) -> str:
    """A topic's name in the message of an error: a name that is too long comes with very many partitions
    perhaps, each of which has an error."""
    return name if len(name) <= MAX_TOPIC_NAME else f"{name[:MAX_TOPIC_NAME]}..."


def name_problem(name: str) -> str | None:
    """What is wrong with a topic's name, or None."""
    if not name:
        return "Topic name is invalid: the empty string is not allowed"
    if name in (".", ".."):
        return f"Topic name is invalid: '{name}' is not allowed"
    if len(name) > MAX_TOPIC_NAME:
        return (
            f"Topic name is invalid: the length of '{quoted(name)}' is longer than the max allowed length "
            f"{MAX_TOPIC_NAME}"
        )
    if not _LEGAL_NAME.fullmatch(name):
        return (
            f"Topic name is invalid: '{name}' contains one or more characters other than ASCII "
            "alphanumerics, '.', '_' and '-'"
        )
    return None


def already_exists(name: str) -> BrokerError:
    return BrokerError(ErrorCode.TOPIC_ALREADY_EXISTS, f"Topic '{name}' already exists.")


def _check_name(image: MetadataImage, name: str, created: _Created) -> None:
    problem = name_problem(name)
    if problem:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if name == METADATA_TOPIC:
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Creation of internal topic {name} is prohibited.")
    if name in image.topics_by_name or name in created.names:
        raise already_exists(name)
    other = created.collision(image, name)
    if other is not None:
        raise BrokerError(
            ErrorCode.INVALID_TOPIC_EXCEPTION, f"Topic '{name}' collides with existing topic: {other}"
        )


def check_total(partitions: int) -> None:
    """Check how many partitions one request makes in all. Raises `BrokerError`, POLICY_VIOLATION."""
    if partitions > MAX_PARTITIONS_PER_COMMAND:
        raise BrokerError(
            ErrorCode.POLICY_VIOLATION,
            f"Excessively large number of partitions per request: more than {MAX_PARTITIONS_PER_COMMAND}.",
        )


def _chosen_replicas(image: MetadataImage, topic: NewTopic) -> list[tuple[int, ...]]:
    """Replicas that the caller assigned by hand, by partition."""
    if topic.replication_factor != -1:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but replication factor was not set to -1.",
        )
    if topic.partitions != -1:
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            "A manual partition assignment was specified, but numPartitions was not set to -1.",
        )
    by_partition: dict[int, tuple[int, ...]] = {}
    for assignment in topic.assignments:
        if assignment.partition in by_partition:
            raise BrokerError(
                ErrorCode.INVALID_REPLICA_ASSIGNMENT,
                f"Found multiple manual partition assignments for partition {assignment.partition}",
            )
        by_partition[assignment.partition] = assignment.broker_ids
    if sorted(by_partition) != list(range(len(by_partition))):
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            "partitions should be a consecutive 0-based integer sequence",
        )
    replicas = [by_partition[partition] for partition in range(len(by_partition))]
    _check_assignment(image, replicas, len(replicas[0]))
    return replicas


def _check_assignment(
    image: MetadataImage, replicas: Sequence[tuple[int, ...]], replication_factor: int
) -> None:
    for assigned in replicas:
        problem = ""
        if not assigned:
            problem = "The manual partition assignment includes an empty replica list."
        elif len(set(assigned)) != len(assigned):
            times = Counter(assigned)
            twice = next(replica for replica in assigned if times[replica] > 1)
            problem = f"The manual partition assignment includes the broker {twice} more than once."
        elif len(assigned) != replication_factor:
            problem = (
                "The manual partition assignment includes a partition with "
                f"{len(assigned)} replica(s), but this is not consistent with previous partitions, "
                f"which have {replication_factor} replica(s)."
            )
        else:
            unknown = [replica for replica in assigned if replica not in image.brokers]
            if unknown:
                problem = (
                    f"The manual partition assignment includes broker {unknown[0]}, but no such broker is "
                    "registered."
                )
            elif not any(image.is_active(replica) for replica in assigned):
                problem = (
                    "All brokers specified in the manual partition assignment are fenced or in "
                    "controlled shutdown."
                )
        if problem:
            raise BrokerError(ErrorCode.INVALID_REPLICA_ASSIGNMENT, problem)


def _new_partition(
    image: MetadataImage, topic_id: UUID, partition: int, replicas: tuple[int, ...]
) -> PartitionRecord:
    isr = tuple(replica for replica in replicas if image.is_active(replica))
    return PartitionRecord(
        partition_id=partition,
        topic_id=topic_id,
        replicas=replicas,
        isr=isr,
        leader=isr[0],
        leader_epoch=0,
        partition_epoch=0,
        directories=tuple(known_directory(image, replica) for replica in replicas),
    )


def known_directory(image: MetadataImage, broker_id: int) -> UUID:
    """The directory of a broker that has only one; others choose one themselves."""
    log_dirs = image.brokers[broker_id].log_dirs
    return log_dirs[0] if len(log_dirs) == 1 else UNASSIGNED_DIR


def delete_topics(image: MetadataImage, command: DeleteTopics) -> Decision:
    """Delete topics by id, with their partitions and configs."""
    decision = Decision()
    results = []
    gone: set[UUID] = set()
    for topic_id in command.topic_ids:
        topic = image.topics_by_id.get(topic_id)
        if topic is None or topic_id in gone:
            results.append(
                TopicResult(
                    "", topic_id, ErrorCode.UNKNOWN_TOPIC_ID, "This server does not host this topic ID."
                )
            )
            continue
        gone.add(topic_id)
        decision.records.append(RemoveTopicRecord(topic_id=topic_id))
        results.append(TopicResult(topic.name, topic_id))
    decision.reply = tuple(results)
    return decision


def create_partitions(image: MetadataImage, command: CreatePartitions) -> Decision:
    """Add partitions to topics; their number never shrinks."""
    decision = Decision()
    results = []
    grown: set[str] = set()
    for topic in command.topics:
        try:
            if topic.name in grown:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Duplicate topic name.")
            grown.add(topic.name)
            decision.records += _grow_one(image, topic)
            results.append(TopicResult(topic.name))
        except BrokerError as e:
            results.append(TopicResult(topic.name, error=e.code, message=e.message))
    decision.reply = tuple(results)
    return decision


def _grow_one(image: MetadataImage, topic: NewPartitions) -> list[MetadataRecord]:
    known = image.topics_by_name.get(topic.name)
    if known is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    present = len(known.partitions)
    if topic.count == present:
        raise BrokerError(ErrorCode.INVALID_PARTITIONS, f"Topic already has {present} partition(s).")
    if topic.count < present:
        raise BrokerError(
            ErrorCode.INVALID_PARTITIONS,
            f"The topic {topic.name} currently has {present} partition(s); {topic.count} would not be "
            "an increase.",
        )
    more = topic.count - present
    check_total(more)
    first = known.partitions[0]
    replication_factor = len(set(first.replicas).difference(first.removing_replicas))
    if topic.assignments:
        replicas = _grown_replicas(image, topic.assignments, more, replication_factor)
    else:
        replicas = _placed(image, present, more, replication_factor, topic.placement_start)
    return [_new_partition(image, known.id, present + i, assigned) for i, assigned in enumerate(replicas)]


def _grown_replicas(
    image: MetadataImage, assignments: tuple[Assignment, ...], more: int, replication_factor: int
) -> list[tuple[int, ...]]:
    if len(assignments) != more:
        raise BrokerError(
            ErrorCode.INVALID_REPLICA_ASSIGNMENT,
            f"Attempted to add {more} additional partition(s), but only {len(assignments)} assignment(s) "
            "were specified.",
        )
    replicas = [assignment.broker_ids for assignment in assignments]
    _check_assignment(image, replicas, replication_factor)
    return replicas
