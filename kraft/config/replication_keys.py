"""Followers, and how they and consumers fetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft.config.key import CLUSTER_WIDE, MIB, SECOND, key

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"


@dataclass(frozen=True, kw_only=True)
class ReplicationKeys:
    """Kafka's ReplicationConfigs."""

    replica_lag_time_max_ms: int = key(
        30 * SECOND, "a follower not caught up for this long leaves the ISR", minimum=1
    )
    replica_fetch_max_bytes: int = key(1 * MIB, "bytes of one partition in a follower's fetch", minimum=0)
    replica_fetch_response_max_bytes: int = key(10 * MIB, "bytes of a whole follower's fetch", minimum=0)
    replica_fetch_min_bytes: int = key(1, "a follower's fetch waits for so much", minimum=0)
    replica_fetch_wait_max_ms: int = key(500, "but not longer than this", minimum=0)
    replica_fetch_backoff_ms: int = key(1 * SECOND, "pause after a failed fetch", minimum=0)
    replica_socket_timeout_ms: int = key(30 * SECOND, "patience with a leader's answer", minimum=1)
    replica_high_watermark_checkpoint_interval_ms: int = key(
        5 * SECOND, "how often high watermarks are saved", minimum=1
    )
    replica_selector_class: str | None = key(
        None, "RackAwareReplicaSelector sends consumers with a client.rack to a replica there",
        choices=(LEADER_ONLY, RACK_AWARE),
    )  # fmt: skip
    num_replica_fetchers: int = key(1, "fetching connections per leader", minimum=1, update=CLUSTER_WIDE)
    fetch_max_bytes: int = key(55 * MIB, "bytes of a consumer's fetch, whatever it asks for", minimum=1024)
    max_incremental_fetch_session_cache_slots: int = key(
        1000, "fetch sessions that are remembered", minimum=0
    )
