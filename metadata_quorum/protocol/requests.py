"""What the API handlers hand to the controller: plain values near the requests of Kafka's APIs.

Path of the data: socket -> api handler -> these -> controller/controller.py -> commands.py (with its stamps).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from uuid import UUID

from metadata_quorum.foundation.model import Endpoint, FeatureRange


@dataclass(frozen=True, slots=True)
class RegisterBrokerRequest:
    """BrokerRegistration."""

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...] = ()
    rack: str | None = None
    log_dirs: tuple[UUID, ...] = ()
    previous_broker_epoch: int = -1


@dataclass(frozen=True, slots=True)
class BrokerHeartbeatRequest:
    """BrokerHeartbeat."""

    broker_id: int
    broker_epoch: int
    current_metadata_offset: int
    want_fence: bool = False
    want_shut_down: bool = False
    offline_log_dirs: tuple[UUID, ...] = ()


@dataclass(frozen=True, slots=True)
class CreatableTopic:
    """One topic of CreateTopics; -1 is the cluster's default."""

    name: str
    num_partitions: int = -1
    replication_factor: int = -1
    assignments: tuple[tuple[int, tuple[int, ...]], ...] = ()
    """Partitions and their replicas, as the caller names them: one perhaps twice."""
    configs: Mapping[str, str | None] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CreatablePartitions:
    """One topic of CreatePartitions; `assignments` per new partition, or empty."""

    name: str
    count: int
    assignments: tuple[tuple[int, ...], ...] = ()
