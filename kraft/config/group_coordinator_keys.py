"""Groups, and the topic that the group coordinator keeps them in."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.config.key import KIB, MIB, MINUTE, SECOND, key
from metadata_quorum.foundation.primitives import INT_MAX


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class GroupCoordinatorKeys:
    """Kafka's GroupCoordinatorConfig."""

    group_min_session_timeout_ms: int = key(
        6 * SECOND, "shortest session that a member may ask for", minimum=1
    )
    group_max_session_timeout_ms: int = key(
        30 * MINUTE, "longest session that a member may ask for", minimum=1
    )
    group_initial_rebalance_delay_ms: int = key(
        3 * SECOND, "a new group waits this long for members", minimum=0
    )
    group_max_size: int = key(INT_MAX, "most members of a classic group", minimum=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = key(
        ("classic", "consumer"), "protocols that groups may use; share and streams are not here yet",
        choices=("classic", "consumer", "share", "streams"),
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = key(
        45 * SECOND,
        "a member of the consumer protocol that sends no heartbeat for this long is removed",
        minimum=1,
    )
    group_consumer_min_session_timeout_ms: int = key(
        45 * SECOND, "shortest session timeout that a group may be set to", minimum=1
    )
    group_consumer_max_session_timeout_ms: int = key(
        60 * SECOND, "longest session timeout that a group may be set to", minimum=1
    )
    group_consumer_heartbeat_interval_ms: int = key(
        5 * SECOND, "how often members of the consumer protocol send a heartbeat", minimum=1
    )
    group_consumer_min_heartbeat_interval_ms: int = key(
        5 * SECOND, "shortest heartbeat interval that a group may be set to", minimum=1
    )
    group_consumer_max_heartbeat_interval_ms: int = key(
        15 * SECOND, "longest heartbeat interval that a group may be set to", minimum=1
    )
    group_consumer_max_size: int = key(INT_MAX, "most members of a group of the consumer protocol", minimum=1)
    group_consumer_assignors: tuple[str, ...] = key(
        ("uniform", "range"),
        "assignors that a group may ask for; the first is the default",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = key(
        "bidirectional",
        "in which direction a group with members may change its protocol",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_regex_refresh_interval_ms: int = key(
        10 * MINUTE, "how often subscribed patterns are matched against the topics again", minimum=10 * SECOND
    )
    offset_metadata_max_bytes: int = key(4 * KIB, "longest metadata of one committed offset", minimum=0)
    offsets_topic_num_partitions: int = key(50, "partitions of __consumer_offsets", minimum=1)
    offsets_topic_replication_factor: int = key(3, "replicas of __consumer_offsets", minimum=1, bits=16)
    offsets_topic_segment_bytes: int = key(100 * MIB, "segment size of __consumer_offsets", minimum=1)
    offsets_topic_compression_codec: int = key(
        0, "accepted; its batches are stored uncompressed", minimum=0, maximum=4
    )
    offsets_retention_minutes: int = key(
        10_080, "offsets of an empty group are kept for this long", minimum=1
    )
    offsets_retention_check_interval_ms: int = key(
        10 * MINUTE, "how often expired offsets are looked for", minimum=1, bits=64
    )
    offsets_commit_timeout_ms: int = key(
        5 * SECOND, "a commit that is not replicated within this fails", minimum=1
    )
    offsets_load_buffer_size: int = key(5 * MIB, "bytes read at once while offsets are loaded", minimum=1)
