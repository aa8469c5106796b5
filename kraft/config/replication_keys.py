"""Followers, and how they and consumers fetch."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft.config.key import CLUSTER_WIDE, MIB, SECOND, key

RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class ReplicationKeys:
    """Kafka's ReplicationConfigs."""

    replica_lag_time_max_ms: int = key(
        30 * SECOND, "a follower that has not caught up for this long leaves the ISR", minimum=1, bits=64
    )
    replica_fetch_max_bytes: int = key(
        1 * MIB, "most bytes of one partition in a follower's fetch", minimum=0
    )
    replica_fetch_response_max_bytes: int = key(10 * MIB, "most bytes in a follower's fetch", minimum=0)
    replica_fetch_min_bytes: int = key(1, "bytes that a follower's fetch waits for", minimum=0)
    replica_fetch_wait_max_ms: int = key(
        500, "longest that a follower's fetch waits for replica.fetch.min.bytes", minimum=0
    )
    replica_fetch_backoff_ms: int = key(1 * SECOND, "pause after a failed fetch", minimum=0)
    replica_socket_timeout_ms: int = key(
        30 * SECOND, "how long a follower waits for a leader's answer", minimum=1
    )
    replica_high_watermark_checkpoint_interval_ms: int = key(
        5 * SECOND, "how often high watermarks are saved", minimum=1, bits=64
    )
    replica_selector_class: str | None = key(
        None, "RackAwareReplicaSelector sends consumers with a client.rack to a replica there",
        choices=(LEADER_ONLY, RACK_AWARE),
    )  # fmt: skip
    num_replica_fetchers: int = key(
        1, "fetchers per leader, each with a connection", minimum=1, update=CLUSTER_WIDE
    )
    fetch_max_bytes: int = key(
        55 * MIB, "most bytes in a consumer's fetch, whatever it asks for", minimum=1024
    )
    max_incremental_fetch_session_cache_slots: int = key(1000, "most fetch sessions that are kept", minimum=0)
