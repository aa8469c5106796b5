"""Topics, and the logs of their partitions: size, age, compaction, what is let in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft.config.key import CLUSTER_WIDE, DAY, HOUR, KIB, LONG_MAX, MIB, MINUTE, SECOND, key

CODECS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


@dataclass(frozen=True, kw_only=True)
class LogKeys:
    """Kafka's ServerLogConfigs, LogConfig and CleanerConfig."""

    num_partitions: int = key(1, "partitions of a topic that names no number", minimum=1)
    default_replication_factor: int = key(1, "copies of a topic that names no number", minimum=1)
    auto_create_topics_enable: bool = key(True, "a client that asks for an unknown topic gets it made")
    delete_topic_enable: bool = key(True, "whether topics can be deleted")
    min_insync_replicas: int = key(
        1, "acks=all is refused with fewer replicas in sync", minimum=1, update=CLUSTER_WIDE
    )
    unclean_leader_election_enable: bool = key(
        False, "whether a replica that may lack acknowledged records may lead", update=CLUSTER_WIDE
    )
    message_max_bytes: int = key(
        1_048_588, "largest batch: 1 MiB and its header", minimum=0, update=CLUSTER_WIDE
    )
    max_request_partition_size_limit: int = key(2000, "partitions in one DescribeTopicPartitions", minimum=1)

    log_segment_bytes: int = key(
        1024 * MIB, "a log file is closed at this size", minimum=1 * MIB, update=CLUSTER_WIDE
    )
    log_roll_hours: int = key(168, "or at this age", minimum=1)
    log_roll_ms: int | None = key(None, "or at this age; beats log.roll.hours", update=CLUSTER_WIDE)
    log_roll_jitter_hours: int = key(0, "spread of the age, so that not all files close at once", minimum=0)
    log_roll_jitter_ms: int | None = key(None, "beats log.roll.jitter.hours", update=CLUSTER_WIDE)
    log_retention_bytes: int = key(-1, "a partition keeps this much; -1 no bound", update=CLUSTER_WIDE)
    log_retention_hours: int = key(168, "and for this long; -1 no bound")
    log_retention_minutes: int | None = key(None, "beats log.retention.hours")
    log_retention_ms: int | None = key(None, "beats log.retention.minutes", minimum=-1, update=CLUSTER_WIDE)
    log_retention_check_interval_ms: int = key(5 * MINUTE, "how often old files are looked for", minimum=1)
    log_segment_delete_delay_ms: int = key(
        1 * MINUTE, "a deleted file stays this long for readers", minimum=0, update=CLUSTER_WIDE
    )
    log_cleanup_policy: tuple[str, ...] = key(
        ("delete",), "how old records go: by age and size, or by key",
        choices=("compact", "delete"), update=CLUSTER_WIDE,
    )  # fmt: skip
    log_index_interval_bytes: int = key(
        4 * KIB, "one index entry per so many bytes", minimum=0, update=CLUSTER_WIDE
    )
    log_index_size_max_bytes: int = key(10 * MIB, "size of an index file", minimum=4, update=CLUSTER_WIDE)
    log_flush_interval_messages: int = key(
        LONG_MAX, "fsync after so many records", minimum=1, update=CLUSTER_WIDE
    )
    log_flush_interval_ms: int | None = key(
        None, "accepted; fsync goes by log.flush.interval.messages", update=CLUSTER_WIDE
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        1 * MINUTE, "how often recovery points are saved", minimum=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        1 * MINUTE, "accepted; saved with log.flush.offset.checkpoint.interval.ms", minimum=0
    )
    log_message_timestamp_type: str = key(
        "CreateTime",
        "whose clock stamps a record",
        choices=("CreateTime", "LogAppendTime"),
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = key(
        LONG_MAX, "how old a stamp may be", minimum=0, update=CLUSTER_WIDE
    )
    log_message_timestamp_after_max_ms: int = key(
        1 * HOUR, "how far ahead it may be", minimum=0, update=CLUSTER_WIDE
    )
    log_preallocate: bool = key(False, "accepted; files grow as they are written", update=CLUSTER_WIDE)
    log_dir_failure_timeout_ms: int = key(
        30 * SECOND, "accepted; a failed directory is given up at once", minimum=1
    )
    compression_type: str = key("producer", "codec of stored batches", choices=CODECS, update=CLUSTER_WIDE)
    compression_gzip_level: int = key(-1, "effort of gzip", minimum=-1, maximum=9, update=CLUSTER_WIDE)
    compression_lz4_level: int = key(9, "effort of lz4", minimum=1, maximum=17, update=CLUSTER_WIDE)
    compression_zstd_level: int = key(3, "effort of zstd", minimum=-131_072, maximum=22, update=CLUSTER_WIDE)
    log_cleaner_enable: bool = key(True, "compact topics with cleanup.policy=compact")
    log_cleaner_backoff_ms: int = key(
        15 * SECOND, "how often dirty logs are looked for", minimum=1, update=CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = key(
        128 * MIB, "memory for the keys of one pass", minimum=MIB, update=CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms: int = key(
        1 * DAY, "how long tombstones stay", minimum=0, update=CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio: float = key(
        0.5, "share of uncompacted bytes", minimum=0, maximum=1, update=CLUSTER_WIDE
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        0, "age before a record is compacted", minimum=0, update=CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        LONG_MAX, "age at which it must be", minimum=1, update=CLUSTER_WIDE
    )

    producer_id_expiration_ms: int = key(
        1 * DAY, "a silent producer is forgotten", minimum=1, update=CLUSTER_WIDE
    )
