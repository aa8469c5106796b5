"""What of a node's configuration concerns the controller, and what a new cluster begins with."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field

from metadata_quorum.foundation.features import BOOTSTRAP_FEATURES
from metadata_quorum.metadata.records import UserScramCredentialRecord


@dataclass(frozen=True, slots=True)
class ControllerConfig:
    """Names are Kafka's keys."""

    cluster_id: str
    voters: tuple[int, ...]
    broker_session_timeout_ms: int = 9000
    link_grace_ms: int = 200
    """How long a broken heartbeat connection may stay broken before its broker is fenced."""
    request_timeout_ms: int = 30_000
    num_partitions: int = 1
    default_replication_factor: int = 1
    min_insync_replicas: int = 1
    auto_leader_rebalance_enable: bool = True
    leader_imbalance_check_interval_seconds: int = 300
    features: Mapping[str, int] = field(default_factory=lambda: BOOTSTRAP_FEATURES)
    bootstrap_users: tuple[UserScramCredentialRecord, ...] = ()
    """Users that a new cluster begins with."""
