"""Who leads: elections, and the changes of ISR and ELR that go with them.

All changes of a partition's state pass through `change_partition`, so that one place keeps the
invariants of partitions and the rules of eligible leader replicas (ELR, KIP-966):

* A leader stays while it is in the new ISR and acceptable.
* Else the first acceptable replica, in assignment order, of the ISR; then of the ELR.
* Else, with ISR and ELR empty, the last known leader; else, where unclean election is allowed, the
  first acceptable replica. Both are unclean: ISR becomes {leader}, the leader RECOVERING, since
  acknowledged records may be missing.
* ELR: while the ISR is below min.insync.replicas nothing can be acknowledged, so replicas that leave
  it then have everything that was. They are (old ISR + old ELR) - ISR - unclean restarts.
* Without ELR the last member of an ISR stays in it, without a leader, and none becomes eligible.
  Replicas that were eligible when the feature was turned off stay so: it does not change what they have.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass, replace
from enum import Enum
from functools import partial
from typing import Final, TypeVar
from uuid import UUID

from metadata_quorum.decisions.decision import Decision
from metadata_quorum.decisions.replicas import completed
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.foundation.model import (
    NO_LEADER,
    LeaderRecoveryState,
    PartitionRegistration,
    ResourceType,
    TopicPartition,
)
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from metadata_quorum.metadata.records import NO_LEADER_CHANGE, MetadataRecord, PartitionChangeRecord
from metadata_quorum.protocol.commands import ELECTION_PREFERRED, ElectLeaders
from metadata_quorum.protocol.replies import ElectionResult

V = TypeVar("V")

MIN_INSYNC_REPLICAS: Final = "min.insync.replicas"
UNCLEAN_ELECTION: Final = "unclean.leader.election.enable"

RECOVERED, RECOVERING = LeaderRecoveryState.RECOVERED, LeaderRecoveryState.RECOVERING


class Election(Enum):
    """How far an election may go."""

    ONLINE = "from ISR and ELR; a valid leader stays"
    PREFERRED = "as ONLINE, but the first replica leads if it can"
    UNCLEAN = "as ONLINE, but anyone rather than nobody"


@dataclass(frozen=True, slots=True)
class Rules:
    """The configuration that applies to one partition's elections."""

    min_insync_replicas: int
    unclean_allowed: bool
    elr_enabled: bool

    @property
    def election(self) -> Election:
        """How far one may go that nobody has asked for."""
        return Election.UNCLEAN if self.unclean_allowed else Election.ONLINE


def rules_of(image: MetadataImage, topic: str) -> Rules:
    """The rules for the partitions of `topic`."""
    return Rules(
        min_insync_replicas=int(image.topic_config(topic, MIN_INSYNC_REPLICAS) or 1),
        unclean_allowed=(image.topic_config(topic, UNCLEAN_ELECTION) or "").strip().lower() == "true",
        elr_enabled=image.features.get(ELR_VERSION, 0) >= 1,
    )


@dataclass(frozen=True, slots=True)
class _Outcome:
    """Result of an election."""

    leader: int
    isr: tuple[int, ...]
    unclean: bool = False


def change_partition(
    topic_id: UUID,
    partition_id: int,
    before: PartitionRegistration,
    rules: Rules,
    *,
    isr: tuple[int, ...],
    acceptable: Callable[[int], bool],
    placed: PartitionRegistration | None = None,
    election: Election = Election.ONLINE,
    unclean_restarts: frozenset[int] = frozenset(),
    recovery_state: int | None = None,
) -> PartitionChangeRecord | None:
    """The record that gives `before` the new ISR and a leader; None where nothing changes.

    `placed` is `before` with its new replicas or directories. A reassignment whose target
    the ISR contains ends with this record. `unclean_restarts` lost what was not on their disks and are no
    longer eligible.
    """
    placed, isr = completed(before if placed is None else placed, isr)
    known = frozenset((*before.isr, *before.elr) if rules.elr_enabled else before.elr)
    eligible = known.intersection(placed.replicas) - unclean_restarts
    outcome = _elect(placed, isr, eligible.difference(isr), acceptable, election)
    recovery = before.leader_recovery_state if recovery_state is None else recovery_state
    isr = outcome.isr if rules.elr_enabled else outcome.isr or before.isr
    elr: tuple[int, ...] = ()
    last_known: tuple[int, ...] = ()
    if outcome.unclean:
        recovery = RECOVERING
    elif len(isr) < min(rules.min_insync_replicas, len(placed.replicas)):
        elr = tuple(r for r in placed.replicas if r in eligible and r not in isr)
        # Without ELR the ISR is empty only where it was so already.
        shut = not isr and before.isr and before.leader != NO_LEADER
        last_known = (before.leader,) if shut else before.last_known_elr
    after = replace(
        placed,
        isr=isr,
        leader=outcome.leader,
        leader_recovery_state=recovery,
        elr=elr,
        last_known_elr=tuple(r for r in last_known if r in placed.replicas),
    )
    return _change_between(topic_id, partition_id, before, after)


def _change_between(
    topic_id: UUID, partition_id: int, before: PartitionRegistration, after: PartitionRegistration
) -> PartitionChangeRecord | None:
    """What leads from one state to the other; None where they are the same."""

    def news(old: tuple[V, ...], new: tuple[V, ...]) -> tuple[V, ...] | None:
        return None if old == new else new

    # Removed replicas are fenced at once, by a new leader epoch.
    new_epoch = after.leader != before.leader or not set(before.replicas) <= set(after.replicas)
    recovers = after.leader_recovery_state != before.leader_recovery_state
    replicas = news(before.replicas, after.replicas)
    change = PartitionChangeRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        isr=news(before.isr, after.isr),
        leader=after.leader if new_epoch else NO_LEADER_CHANGE,
        replicas=replicas,
        removing_replicas=news(before.removing_replicas, after.removing_replicas),
        adding_replicas=news(before.adding_replicas, after.adding_replicas),
        leader_recovery_state=int(after.leader_recovery_state) if recovers else -1,
        eligible_leader_replicas=news(before.elr, after.elr),
        last_known_elr=news(before.last_known_elr, after.last_known_elr),
        directories=news(before.directories, after.directories) if replicas is None else after.directories,
    )
    nothing = PartitionChangeRecord(partition_id=partition_id, topic_id=topic_id)
    return None if change == nothing else change


def _elect(
    placed: PartitionRegistration,
    isr: tuple[int, ...],
    elr: frozenset[int],
    acceptable: Callable[[int], bool],
    election: Election,
) -> _Outcome:
    def cleanly(leader: int) -> _Outcome:
        return _Outcome(leader, isr if leader in isr else (leader,))

    preferred = placed.preferred_replica
    if election is Election.PREFERRED and preferred in isr and acceptable(preferred):
        return cleanly(preferred)
    if placed.leader in isr and acceptable(placed.leader):
        return cleanly(placed.leader)
    for eligible in (isr, elr):
        for replica in placed.replicas:
            if replica in eligible and acceptable(replica):
                return cleanly(replica)
    last_known = tuple(r for r in placed.last_known_elr if r in placed.replicas)
    if not isr and not elr and len(last_known) == 1 and acceptable(last_known[0]):
        return _Outcome(last_known[0], last_known, unclean=True)
    if election is Election.UNCLEAN:
        for replica in placed.replicas:
            if acceptable(replica):
                return _Outcome(replica, (replica,), unclean=True)
    return _Outcome(NO_LEADER, isr)


def broker_leaves(image: MetadataImage, broker_id: int, *, unclean_restart: bool) -> Iterator[MetadataRecord]:
    """The broker is out of every ISR (after an unclean restart out of every ELR too) and leads nothing."""
    lost = frozenset([broker_id]) if unclean_restart else frozenset()
    for topic, partition_id, partition in image.each_partition():
        if broker_id in partition.isr or (unclean_restart and broker_id in partition.elr):
            yield from _replica_leaves(image, topic, partition_id, partition, broker_id, lost)


def directories_fail(
    image: MetadataImage, broker_id: int, lost: Collection[UUID]
) -> Iterator[MetadataRecord]:
    """What the broker keeps in the lost directories is out of every ISR and leads nothing."""
    for topic, partition_id, partition in image.each_partition():
        if broker_id in partition.isr and partition.directory(broker_id) in lost:
            yield from _replica_leaves(image, topic, partition_id, partition, broker_id)


def _replica_leaves(
    image: MetadataImage,
    topic: TopicImage,
    partition_id: int,
    partition: PartitionRegistration,
    broker_id: int,
    unclean_restarts: frozenset[int] = frozenset(),
) -> Iterator[MetadataRecord]:
    def acceptable(replica: int) -> bool:
        return replica != broker_id and image.can_serve(replica, partition)

    yield from _change(
        image, topic, partition_id, partition,
        isr=tuple(r for r in partition.isr if r != broker_id),
        acceptable=acceptable, unclean_restarts=unclean_restarts,
    )  # fmt: skip


def broker_returns(image: MetadataImage, broker_id: int) -> Iterator[MetadataRecord]:
    """Partitions without a leader may have one now. `image` still has the broker as fenced."""
    broker = image.brokers[broker_id]

    def acceptable(replica: int, partition: PartitionRegistration) -> bool:
        if replica == broker_id:
            return broker.has_online_dir(partition.directory(replica))
        return image.can_serve(replica, partition)

    for topic, partition_id, partition in image.each_partition():
        if partition.leader == NO_LEADER:
            yield from _change(
                image, topic, partition_id, partition,
                isr=partition.isr, acceptable=partial(acceptable, partition=partition),
            )  # fmt: skip


def config_changed(after: MetadataImage, topics: set[str]) -> Iterator[MetadataRecord]:
    """min.insync.replicas or unclean election changed for `topics`; `after` has the new values.

    An ISR that now suffices makes acknowledging possible again, and its ELR obsolete; a partition
    without a leader may elect uncleanly now.
    """
    for topic, partition_id, partition in after.each_partition():
        if topic.name in topics and (partition.elr or partition.leader == NO_LEADER):
            yield from _change(
                after, topic, partition_id, partition,
                isr=partition.isr, acceptable=partial(after.can_serve, partition=partition),
            )  # fmt: skip


def _change(
    image: MetadataImage,
    topic: TopicImage,
    partition_id: int,
    partition: PartitionRegistration,
    *,
    isr: tuple[int, ...],
    acceptable: Callable[[int], bool],
    unclean_restarts: frozenset[int] = frozenset(),
) -> Iterator[MetadataRecord]:
    rules = rules_of(image, topic.name)
    change = change_partition(
        topic.id, partition_id, partition, rules,
        isr=isr, acceptable=acceptable, unclean_restarts=unclean_restarts, election=rules.election,
    )  # fmt: skip
    if change is not None:
        yield change


def affected_topics(image: MetadataImage, resource_type: int, resource_name: str) -> set[str]:
    """Topics whose election rules depend on a configuration resource."""
    if resource_type == ResourceType.TOPIC:
        return {resource_name} & image.topics_by_name.keys()
    if resource_type == ResourceType.BROKER and resource_name == "":
        return set(image.topics_by_name)
    return set()


def elect_leaders(image: MetadataImage, command: ElectLeaders) -> Decision:
    """ElectLeaders: preferred (the first replica leads again) or unclean (somebody leads again)."""
    decision = Decision()
    results = []
    decided: set[TopicPartition] = set()
    for tp in _meant(image, command):
        if tp in decided:
            continue
        decided.add(tp)
        error, message, record = _elect_one(image, tp, command.election_type)
        if command.all_partitions and error is ErrorCode.ELECTION_NOT_NEEDED:
            continue
        results.append(ElectionResult(tp.topic, tp.partition, error, message))
        if record is not None:
            decision.records.append(record)
    decision.reply = tuple(results)
    return decision


def _meant(image: MetadataImage, command: ElectLeaders) -> Iterator[TopicPartition]:
    if command.all_partitions:
        return (TopicPartition(topic.name, partition_id) for topic, partition_id, _ in image.each_partition())
    return (TopicPartition(name.topic, name.partition) for name in command.partitions)


def _elect_one(
    image: MetadataImage, tp: TopicPartition, election_type: int
) -> tuple[ErrorCode, str, PartitionChangeRecord | None]:
    topic = image.topics_by_name.get(tp.topic)
    if topic is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such topic as {tp.topic}", None
    partition = topic.partitions.get(tp.partition)
    if partition is None:
        return ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"No such partition as {tp}", None
    preferred = election_type == ELECTION_PREFERRED
    if partition.leader == partition.preferred_replica or (not preferred and partition.leader != NO_LEADER):
        return ErrorCode.ELECTION_NOT_NEEDED, "", None
    record = change_partition(
        topic.id, tp.partition, partition, rules_of(image, tp.topic),
        isr=partition.isr, acceptable=partial(image.can_serve, partition=partition),
        election=Election.PREFERRED if preferred else Election.UNCLEAN,
    )  # fmt: skip
    if record is None or record.leader in (NO_LEADER, NO_LEADER_CHANGE):
        if preferred:
            return ErrorCode.PREFERRED_LEADER_NOT_AVAILABLE, "", None
        return ErrorCode.ELIGIBLE_LEADERS_NOT_AVAILABLE, "", None
    return ErrorCode.NONE, "", record
