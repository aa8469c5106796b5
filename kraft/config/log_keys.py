"""Topics, and the logs of their partitions: size, age, compaction, what is let in."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft.config.key import CLUSTER_WIDE, DAY, HOUR, KIB, MIB, MINUTE, SECOND, key
from metadata_quorum.foundation.primitives import LONG_MAX

CODECS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class LogKeys:
    """Kafka's ServerLogConfigs, LogConfig and CleanerConfig."""

    num_partitions: int = key(1, "partitions of a topic that is created without a number", minimum=1)
    default_replication_factor: int = key(
        1, "replicas of a topic that is created without a number", minimum=1, maximum=32_767
    )
    auto_create_topics_enable: bool = key(True, "an unknown topic is created when a client asks for it")
    delete_topic_enable: bool = key(True, "whether topics can be deleted")
    min_insync_replicas: int = key(
        1, "acks=all is refused with fewer replicas in sync", minimum=1, update=CLUSTER_WIDE
    )
    unclean_leader_election_enable: bool = key(
        False, "whether a replica that may lack acknowledged records may become leader", update=CLUSTER_WIDE
    )
    message_max_bytes: int = key(
        1_048_588, "largest batch: 1 MiB and its header", minimum=0, update=CLUSTER_WIDE
    )
    max_request_partition_size_limit: int = key(
        2000, "most partitions in one DescribeTopicPartitions response", minimum=1
    )

    log_segment_bytes: int = key(
        1024 * MIB, "a segment is rolled at this size", minimum=1 * MIB, update=CLUSTER_WIDE
    )
    log_roll_hours: int = key(168, "a segment is rolled at this age", minimum=1)
    log_roll_ms: int | None = key(
        None,
        "a segment is rolled at this age; takes precedence over log.roll.hours",
        minimum=1,
        bits=64,
        update=CLUSTER_WIDE,
    )
    log_roll_jitter_hours: int = key(
        0, "random time taken off the age, so that segments do not roll all at once", minimum=0
    )
    log_roll_jitter_ms: int | None = key(
        None, "takes precedence over log.roll.jitter.hours", minimum=0, bits=64, update=CLUSTER_WIDE
    )
    log_retention_bytes: int = key(
        -1, "a partition keeps this many bytes; -1: no bound", bits=64, update=CLUSTER_WIDE
    )
    log_retention_hours: int = key(168, "a partition keeps records for this long; -1: no bound", never=0)
    log_retention_minutes: int | None = key(None, "takes precedence over log.retention.hours", never=0)
    log_retention_ms: int | None = key(
        None, "takes precedence over log.retention.minutes", minimum=-1, never=0, bits=64, update=CLUSTER_WIDE
    )
    log_retention_check_interval_ms: int = key(
        5 * MINUTE, "how often expired segments are looked for", minimum=1, bits=64
    )
    log_segment_delete_delay_ms: int = key(
        1 * MINUTE,
        "a deleted segment's files stay this long, for readers",
        minimum=0,
        bits=64,
        update=CLUSTER_WIDE,
    )
    log_cleanup_policy: tuple[str, ...] = key(
        ("delete",), "how old records are removed: by age and size, or by key",
        choices=("compact", "delete"), update=CLUSTER_WIDE,
    )  # fmt: skip
    log_index_interval_bytes: int = key(
        4 * KIB, "bytes of log per index entry", minimum=0, update=CLUSTER_WIDE
    )
    log_index_size_max_bytes: int = key(
        10 * MIB, "largest index file; a full one rolls its segment", minimum=4, update=CLUSTER_WIDE
    )
    log_flush_interval_messages: int = key(
        LONG_MAX, "fsync after this many records", minimum=1, bits=64, update=CLUSTER_WIDE
    )
    log_flush_interval_ms: int | None = key(
        None, "accepted; log.flush.interval.messages decides", bits=64, update=CLUSTER_WIDE
    )
    log_flush_offset_checkpoint_interval_ms: int = key(
        1 * MINUTE, "how often recovery points are saved", minimum=0
    )
    log_flush_start_offset_checkpoint_interval_ms: int = key(
        1 * MINUTE, "accepted; saved with log.flush.offset.checkpoint.interval.ms", minimum=0
    )
    log_message_timestamp_type: str = key(
        "CreateTime",
        "whose clock a record's timestamp is from: the producer's or the broker's",
        choices=("CreateTime", "LogAppendTime"),
        update=CLUSTER_WIDE,
    )
    log_message_timestamp_before_max_ms: int = key(
        LONG_MAX, "how far a record's timestamp may lie in the past", minimum=0, bits=64, update=CLUSTER_WIDE
    )
    log_message_timestamp_after_max_ms: int = key(
        1 * HOUR,
        "how far a record's timestamp may lie in the future",
        minimum=0,
        bits=64,
        update=CLUSTER_WIDE,
    )
    log_preallocate: bool = key(False, "accepted; files grow as they are written", update=CLUSTER_WIDE)
    log_dir_failure_timeout_ms: int = key(
        30 * SECOND, "accepted; a failed directory is given up at once", minimum=1, bits=64
    )
    compression_type: str = key("producer", "codec of stored batches", choices=CODECS, update=CLUSTER_WIDE)
    compression_gzip_level: int = key(
        -1, "compression level of gzip", minimum=-1, maximum=9, never=0, update=CLUSTER_WIDE
    )
    compression_lz4_level: int = key(
        9, "compression level of lz4", minimum=1, maximum=17, update=CLUSTER_WIDE
    )
    compression_zstd_level: int = key(
        3, "compression level of zstd", minimum=-131_072, maximum=22, update=CLUSTER_WIDE
    )
    log_cleaner_enable: bool = key(True, "compact topics with cleanup.policy=compact")
    log_cleaner_backoff_ms: int = key(
        15 * SECOND, "how often dirty logs are looked for", minimum=1, bits=64, update=CLUSTER_WIDE
    )
    log_cleaner_dedupe_buffer_size: int = key(
        128 * MIB, "memory for the keys of one cleaning", minimum=MIB, bits=64, update=CLUSTER_WIDE
    )
    log_cleaner_delete_retention_ms: int = key(
        1 * DAY, "how long a tombstone stays after compaction", minimum=0, bits=64, update=CLUSTER_WIDE
    )
    log_cleaner_min_cleanable_ratio: float = key(
        0.5, "a log is compacted when this share of it is not", minimum=0, maximum=1, update=CLUSTER_WIDE
    )
    log_cleaner_min_compaction_lag_ms: int = key(
        0, "a record is not compacted before this age", minimum=0, bits=64, update=CLUSTER_WIDE
    )
    log_cleaner_max_compaction_lag_ms: int = key(
        LONG_MAX,
        "a record is compacted at this age, whatever the ratio",
        minimum=1,
        bits=64,
        update=CLUSTER_WIDE,
    )

    producer_id_expiration_ms: int = key(
        1 * DAY, "state of an idle producer is dropped after this", minimum=1, update=CLUSTER_WIDE
    )
