"""What has happened to the cluster, as its metadata tells: elections, ISR changes, fences, topics.

    committed metadata -> ClusterEvents.take -> the newest `KEPT`, in order -> the time line, metrics

Every node keeps its own list from its own copy of the metadata, so that any of them can show it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from typing import Final, NamedTuple

from metadata_quorum.foundation.model import NO_LEADER, BrokerRegistration, PartitionRegistration
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage

KEPT: Final = 500
PARTITIONS_NAMED: Final = 100
"""How many partitions are named of one change of the metadata; the others are only counted."""


class EventKind(StrEnum):
    BROKER_REGISTERED = "broker registered"
    BROKER_FENCED = "broker fenced"
    BROKER_UNFENCED = "broker unfenced"
    BROKER_SHUTTING_DOWN = "broker shutting down"
    ELECTION = "election"
    UNCLEAN_ELECTION = "unclean election"
    OFFLINE = "no leader"
    ISR_SHRINK = "ISR shrink"
    ISR_EXPAND = "ISR expand"
    REASSIGNMENT = "reassignment"
    TOPIC_CREATED = "topic created"
    TOPIC_DELETED = "topic deleted"
    CONTROLLER = "controller"
    MORE = "more"


@dataclass(frozen=True, slots=True)
class ClusterEvent:
    """One thing that has happened."""

    number: int
    """Counts up on this node."""
    time_ms: int
    """When the controller wrote it."""
    offset: int
    """Offset of its record in the metadata log."""
    kind: EventKind
    subject: str
    """A broker, a topic, or a partition."""
    text: str
    """What has changed, and the rule behind it."""
    topic: str = ""
    """The topic that it is about, if any: whoever may not see the topic is not shown the event."""
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    """The epochs of the partition after the event."""
    brokers: tuple[int, ...] = ()
    """Whom it happened to: the broker, or those that led the partition before and after."""

    def __str__(self) -> str:
        return f"{self.subject}: {self.kind}: {self.text} {self.epochs}"

    @property
    def epochs(self) -> str:
        """Its place in the partition's history and in the metadata log."""
        at = f"metadata offset {self.offset}"
        if self.partition_epoch is None:
            return f"({at})"
        return f"(leader epoch {self.leader_epoch}, partition epoch {self.partition_epoch}, {at})"


class ClusterEvents:
    """See the module."""

    def __init__(self) -> None:
        self._events: deque[ClusterEvent] = deque(maxlen=KEPT)
        self._before = EMPTY_IMAGE
        self._number = 0
        self.unclean_elections = 0
        """Since the node started."""
        self.listeners: dict[Callable[[], None], None] = {}

    @property
    def newest(self) -> int:
        """The number of the last one."""
        return self._number

    def since(self, number: int) -> list[ClusterEvent]:
        """The events after that one, the oldest first."""
        return [event for event in self._events if event.number > number]

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """Committed metadata."""
        before, self._before = self._before, image
        if before is EMPTY_IMAGE:
            return  # what was there before this node looked is no event
        for change in _changes(before, delta, image):
            self._number += 1
            self._events.append(ClusterEvent(self._number, image.timestamp_ms, image.offset, *change))
        self.unclean_elections += _unclean_elections(before, delta)
        for listener in list(self.listeners):
            listener()


class _Change(NamedTuple):
    kind: EventKind
    subject: str
    text: str
    topic: str = ""
    leader_epoch: int | None = None
    partition_epoch: int | None = None
    brokers: tuple[int, ...] = ()


def _changes(before: MetadataImage, delta: MetadataDelta, image: MetadataImage) -> Iterator[_Change]:
    if image.epoch != before.epoch:
        yield _Change(EventKind.CONTROLLER, "quorum", f"a controller became active in term {image.epoch}")
    for broker_id, broker in delta.changed_brokers.items():
        if broker is not None:
            for change in _broker_changes(before.brokers.get(broker_id), broker):
                yield change._replace(brokers=(broker_id,))
    named = 0
    changed = [
        (topic, partitions)
        for topic_id, partitions in delta.changed_partitions.items()
        if (topic := image.topics_by_id.get(topic_id)) is not None
    ]
    # Of very many changes those of Kafka's own topics are left out first.
    for topic, partitions in sorted(changed, key=lambda each: each[0].name.startswith("__")):
        was = before.topics_by_id.get(topic.id)
        if was is None:
            yield _Change(
                EventKind.TOPIC_CREATED, topic.name, f"with {len(topic.partitions)} partitions", topic.name
            )
            continue
        for number, partition in partitions.items():
            known = was.partitions.get(number)
            if known is not None:
                named += 1
                if named <= PARTITIONS_NAMED:
                    for change in _partition_changes(topic.name, number, known, partition, image):
                        yield change._replace(
                            leader_epoch=partition.leader_epoch,
                            partition_epoch=partition.partition_epoch,
                            brokers=(known.leader, partition.leader),
                        )
    if named > PARTITIONS_NAMED:
        yield _Change(EventKind.MORE, "partitions", f"{named - PARTITIONS_NAMED} more changed with these")
    for topic_id in delta.deleted_topics:
        gone = before.topics_by_id.get(topic_id)
        if gone is not None:
            yield _Change(
                EventKind.TOPIC_DELETED, gone.name, f"with {len(gone.partitions)} partitions", gone.name
            )


def _unclean_elections(before: MetadataImage, delta: MetadataDelta) -> int:
    return sum(
        _is_unclean(known, partition)
        for topic_id, partitions in delta.changed_partitions.items()
        if (topic := before.topics_by_id.get(topic_id)) is not None
        for number, partition in partitions.items()
        if (known := topic.partitions.get(number)) is not None
    )


def _is_unclean(before: PartitionRegistration, after: PartitionRegistration) -> bool:
    """Whether the new leader may lack acknowledged records."""
    return (
        after.leader not in (before.leader, NO_LEADER)
        and after.leader not in before.isr
        and after.leader not in before.elr
    )


def _broker_changes(before: BrokerRegistration | None, after: BrokerRegistration) -> Iterator[_Change]:
    subject = f"broker {after.broker_id}"
    if before is None or before.broker_epoch != after.broker_epoch:
        yield _Change(
            EventKind.BROKER_REGISTERED, subject, f"a new process, broker epoch {after.broker_epoch}"
        )
        was_fenced = True
    else:
        was_fenced = before.fenced
    if before is not None and not before.fenced and after.fenced:
        yield _Change(
            EventKind.BROKER_FENCED,
            subject,
            "its process ended, or it sent no heartbeat for broker.session.timeout.ms",
        )
    elif was_fenced and not after.fenced:
        yield _Change(EventKind.BROKER_UNFENCED, subject, "it has caught up with the metadata, and may lead")
    if after.in_controlled_shutdown and (before is None or not before.in_controlled_shutdown):
        yield _Change(EventKind.BROKER_SHUTTING_DOWN, subject, "controlled shutdown: its leaders move")


def _partition_changes(
    topic: str,
    number: int,
    before: PartitionRegistration,
    after: PartitionRegistration,
    image: MetadataImage,
) -> Iterator[_Change]:
    subject, epoch = f"{topic}-{number}", f"leader epoch {after.leader_epoch}"
    if after.leader != before.leader:
        if after.leader == NO_LEADER:
            kind, text = EventKind.OFFLINE, f"no replica in sync is alive; {before.leader} led"
        elif _is_unclean(before, after):
            kind = EventKind.UNCLEAN_ELECTION
            text = f"{after.leader} was not in sync and leads, {epoch}: in neither ISR nor ELR"
        else:
            kind, why = EventKind.ELECTION, _why_elected(before, after, image)
            text = f"{before.leader} → {after.leader}, {epoch}: {why}"
        yield _Change(kind, subject, text, topic)
    left = [each for each in before.isr if each not in after.isr]
    joined = [each for each in after.isr if each not in before.isr]
    isr = list(after.isr)
    if left:
        text = f"{_ids(left)} left, ISR {isr}: {_why_left(left, after, image)}"
        yield _Change(EventKind.ISR_SHRINK, subject, text, topic)
    if joined:
        text = f"{_ids(joined)} joined, ISR {isr}: {_why_joined(joined, before, after)}"
        yield _Change(EventKind.ISR_EXPAND, subject, text, topic)
    if after.reassigning and not before.reassigning:
        text = f"adding {list(after.adding_replicas)}, removing {list(after.removing_replicas)}"
        yield _Change(EventKind.REASSIGNMENT, subject, text, topic)


def _why_elected(before: PartitionRegistration, after: PartitionRegistration, image: MetadataImage) -> str:
    if before.leader == NO_LEADER:
        return f"the first replica in sync that is alive again, {_is_clean(before, after)}"
    if before.leader not in after.replicas:
        return f"broker {before.leader} is no replica any more"
    if not image.is_active(before.leader):
        return f"broker {before.leader} is fenced or shutting down, {_is_clean(before, after)}"
    if after.leader == after.preferred_replica:
        return "the preferred replica leads again"
    return "elected by the controller"


def _is_clean(before: PartitionRegistration, after: PartitionRegistration) -> str:
    """Why nothing is lost with the election."""
    return f"{after.leader} was in the {'ISR' if after.leader in before.isr else 'ELR'}"


def _why_left(left: list[int], after: PartitionRegistration, image: MetadataImage) -> str:
    if not set(left) & set(after.replicas):
        return "no replicas any more, they were reassigned"
    if all(not image.is_active(each) for each in left):
        return "fenced or shutting down"
    return "behind for longer than replica.lag.time.max.ms"


def _why_joined(joined: list[int], before: PartitionRegistration, after: PartitionRegistration) -> str:
    if joined == [after.leader] and after.leader != before.leader:
        return "elected from the ELR" if after.leader in before.elr else "elected, though not in sync"
    return "caught up with the leader's high watermark"


def _ids(brokers: list[int]) -> str:
    return ", ".join(map(str, brokers))
