"""The cluster's metadata at one offset: an immutable image.

What did not change from one image to the next is shared between them, so an image costs as much as
the change (delta.py), and the holder of an old one keeps a consistent view.

On the path of the data: records -> delta.py -> here -> decisions on controllers, the publisher on brokers.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any, Final
from uuid import UUID

from metadata_quorum.foundation.model import (
    BrokerRegistration,
    ControllerRegistration,
    Endpoint,
    PartitionRegistration,
    ResourceType,
    TopicPartition,
)
from metadata_quorum.foundation.quota_types import QuotaEntityKey
from metadata_quorum.metadata.records import AccessControlEntryRecord, UserScramCredentialRecord

ConfigResource = tuple[int, str]
"""Resource type and name; the broker resource named "" holds the cluster-wide defaults."""

_EMPTY: Final[Mapping[Any, Any]] = MappingProxyType({})


@dataclass(frozen=True, slots=True)
class TopicImage:
    """A topic and its partitions."""

    name: str
    id: UUID
    partitions: Mapping[int, PartitionRegistration]


@dataclass(frozen=True, slots=True)
class MetadataImage:
    """Everything the cluster has agreed on up to `offset`. Never mutate the mappings."""

    offset: int = -1
    """Offset of the last record taken in; -1 at the very beginning."""
    epoch: int = -1
    """Controller epoch (Raft term) of that record."""
    timestamp_ms: int = -1
    """When its batch was written, by the proposer's clock."""
    brokers: Mapping[int, BrokerRegistration] = field(default_factory=dict)
    controllers: Mapping[int, ControllerRegistration] = field(default_factory=dict)
    topics_by_name: Mapping[str, TopicImage] = field(default_factory=dict)
    topics_by_id: Mapping[UUID, TopicImage] = field(default_factory=dict)
    configs: Mapping[ConfigResource, Mapping[str, str]] = field(default_factory=dict)
    features: Mapping[str, int] = field(default_factory=dict)
    next_producer_id: int = 0
    quotas: Mapping[QuotaEntityKey, Mapping[str, float]] = field(default_factory=dict)
    acls: Mapping[UUID, AccessControlEntryRecord] = field(default_factory=dict)
    scram: Mapping[tuple[str, int], UserScramCredentialRecord] = field(default_factory=dict)

    def topic(self, key: str | UUID) -> TopicImage | None:
        """A topic by name or by id."""
        return self.topics_by_name.get(key) if isinstance(key, str) else self.topics_by_id.get(key)

    def partition(self, tp: TopicPartition) -> PartitionRegistration | None:
        topic = self.topics_by_name.get(tp.topic)
        return None if topic is None else topic.partitions.get(tp.partition)

    def is_active(self, broker_id: int) -> bool:
        """Registered, unfenced, not shutting down."""
        broker = self.brokers.get(broker_id)
        return broker is not None and broker.active

    def can_serve(self, replica: int, partition: PartitionRegistration) -> bool:
        """Whether `replica` may lead the partition and be in its ISR: its broker is active, and the
        directory of the replica is online."""
        broker = self.brokers.get(replica)
        return broker is not None and broker.active and broker.has_online_dir(partition.directory(replica))

    def alive_brokers(self, listener: str) -> list[tuple[BrokerRegistration, Endpoint]]:
        """Unfenced brokers that have `listener`, by id."""
        found = []
        for broker_id in sorted(self.brokers):
            broker = self.brokers[broker_id]
            endpoint = broker.endpoint(listener)
            if endpoint is not None and not broker.fenced:
                found.append((broker, endpoint))
        return found

    def config(self, resource_type: int, name: str) -> Mapping[str, str]:
        """What was set for one resource; empty where nothing was."""
        return self.configs.get((resource_type, name), _EMPTY)

    def topic_config(self, topic: str, key: str) -> str | None:
        """A topic's own value, or else the cluster-wide one; None where neither is set."""
        value = self.config(ResourceType.TOPIC, topic).get(key)
        return self.config(ResourceType.BROKER, "").get(key) if value is None else value

    @property
    def partition_count(self) -> int:
        return sum(len(topic.partitions) for topic in self.topics_by_name.values())

    def partitions(self) -> Iterator[PartitionRegistration]:
        """All partitions, in any order: sorting them takes longer than to look at each."""
        for topic in self.topics_by_name.values():
            yield from topic.partitions.values()

    def each_partition(self) -> Iterator[tuple[TopicImage, int, PartitionRegistration]]:
        """All partitions in one order on every node: by topic name, then number."""
        for name in sorted(self.topics_by_name):
            topic = self.topics_by_name[name]
            for partition_id in sorted(topic.partitions):
                yield topic, partition_id, topic.partitions[partition_id]


EMPTY_IMAGE: Final = MetadataImage()
