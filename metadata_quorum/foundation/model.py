"""The types that every part uses: partitions, endpoints, registrations.

All of it is immutable (frozen, tuples for lists), because one object is shared by the metadata
image, the partitions that act on it and the handler that formats a response from it. The names
are those of Kafka's metadata records.

Lowest floor: imports nothing of ours, everything may import it.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from enum import IntEnum
from typing import Final, NamedTuple
from uuid import UUID

NO_LEADER: Final = -1
"""Leader of a partition that has none."""

NO_EPOCH: Final = -1
"""A leader, partition or broker epoch that is not known."""

ZERO_UUID: Final = UUID(int=0)

TOPIC_NAME: Final = "[a-zA-Z0-9._-]+"
"""What a topic may be called, as a pattern."""
MAX_TOPIC_NAME: Final = 249
"""Characters of a topic's name."""
METADATA_TOPIC: Final = "__cluster_metadata"
METADATA_TOPIC_ID: Final = UUID(int=1)
"""The reserved id of the metadata topic."""

UNASSIGNED_DIR: Final = UUID(int=1)
"""Directory of a replica that its broker has not placed yet (DirectoryId.UNASSIGNED)."""
LOST_DIR: Final = UUID(int=2)
"""Directory that is offline (DirectoryId.LOST)."""


class TopicPartition(NamedTuple):
    """A partition by its topic's name."""

    topic: str
    partition: int

    def __str__(self) -> str:
        return f"{self.topic}-{self.partition}"


def by_topic(partitions: Iterable[TopicPartition]) -> dict[str, list[int]]:
    """Their numbers, as requests have them."""
    numbers: dict[str, list[int]] = {}
    for topic, partition in partitions:
        numbers.setdefault(topic, []).append(partition)
    return numbers


class SecurityProtocol(IntEnum):
    """What a listener speaks, by Kafka's numbers."""

    PLAINTEXT = 0
    SSL = 1
    SASL_PLAINTEXT = 2
    SASL_SSL = 3


class ResourceType(IntEnum):
    """What a configuration belongs to (ConfigResource.Type)."""

    UNKNOWN = 0
    TOPIC = 2
    BROKER = 4
    BROKER_LOGGER = 8
    CLIENT_METRICS = 16
    GROUP = 32


class LeaderRecoveryState(IntEnum):
    """Whether the leader still has to repair what an unclean election broke."""

    RECOVERED = 0
    RECOVERING = 1


@dataclass(frozen=True, slots=True)
class Endpoint:
    """One listener of a node, as others reach it."""

    name: str
    host: str
    port: int
    security_protocol: int = SecurityProtocol.PLAINTEXT


@dataclass(frozen=True, slots=True)
class FeatureRange:
    """Levels of one feature that a node can run."""

    name: str
    min_supported_version: int
    max_supported_version: int


@dataclass(frozen=True, slots=True)
class BrokerRegistration:
    """A broker as the quorum knows it; one incarnation of it at a time."""

    broker_id: int
    broker_epoch: int
    """Offset of this incarnation's RegisterBrokerRecord in the metadata log."""
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    fenced: bool = True
    in_controlled_shutdown: bool = False
    log_dirs: tuple[UUID, ...] = ()

    @property
    def active(self) -> bool:
        """Whether it may lead and be in an ISR."""
        return not self.fenced and not self.in_controlled_shutdown

    def endpoint(self, listener: str) -> Endpoint | None:
        return _named(self.endpoints, listener)

    @property
    def has_any_dir(self) -> bool:
        """False once the last of its directories failed, for as long as this registration lasts."""
        return self.log_dirs != (LOST_DIR,)

    def has_online_dir(self, directory: UUID) -> bool:
        """Whether a replica in `directory` can be served. Reserved ids below 100 other than
        LOST count as online, and a broker that names no directories has them all."""
        if directory == LOST_DIR or not self.has_any_dir:
            return False
        return directory.int < 100 or not self.log_dirs or directory in self.log_dirs


@dataclass(frozen=True, slots=True)
class ControllerRegistration:
    """A controller's own announcement."""

    controller_id: int
    incarnation_id: UUID
    zk_migration_ready: bool = False
    endpoints: tuple[Endpoint, ...] = ()
    features: tuple[FeatureRange, ...] = ()

    def endpoint(self, listener: str) -> Endpoint | None:
        return _named(self.endpoints, listener)


def _named(endpoints: tuple[Endpoint, ...], listener: str) -> Endpoint | None:
    for endpoint in endpoints:
        if endpoint.name == listener:
            return endpoint
    return None


@dataclass(frozen=True, slots=True)
class PartitionRegistration:
    """The committed state of a partition: who holds it, who leads it, who is in sync."""

    replicas: tuple[int, ...]
    isr: tuple[int, ...]
    leader: int
    leader_epoch: int
    partition_epoch: int
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED
    elr: tuple[int, ...] = ()
    last_known_elr: tuple[int, ...] = ()
    adding_replicas: tuple[int, ...] = ()
    removing_replicas: tuple[int, ...] = ()
    directories: tuple[UUID, ...] = ()
    """Per replica, in the order of `replicas`."""

    @property
    def preferred_replica(self) -> int:
        return self.replicas[0] if self.replicas else NO_LEADER

    @property
    def reassigning(self) -> bool:
        return bool(self.adding_replicas or self.removing_replicas)

    def directory(self, replica: int) -> UUID:
        """The directory in which `replica` keeps the partition; UNASSIGNED if that is not known."""
        if replica in self.replicas and len(self.directories) == len(self.replicas):
            return self.directories[self.replicas.index(replica)]
        return UNASSIGNED_DIR
