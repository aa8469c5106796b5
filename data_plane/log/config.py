"""A log's settings: the values of the topic configs that concern it, typed.

Which keys there are, their types, defaults and bounds say the rows of
metadata_quorum/foundation/topic_configs.py; a field here is the key of that name. Broker defaults come in
under the topic's names too.

Stands at the side of the data's way: every Log carries one LogConfig, replaced when it changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final, TypeVar

from metadata_quorum.foundation.compression import CompressionType
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.topic_configs import (
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_REPLICAS,
    TOPIC_CONFIGS,
    ConfigValue,
)

V = TypeVar("V", bool, int, float, str, tuple[str, ...])

COMPRESSION_PRODUCER: Final = "producer"
COMPRESSION_NAMES: Final[Mapping[str, CompressionType]] = {
    "uncompressed": CompressionType.NONE,
    "gzip": CompressionType.GZIP,
    "snappy": CompressionType.SNAPPY,
    "lz4": CompressionType.LZ4,
    "zstd": CompressionType.ZSTD,
}
THROTTLED: Final = frozenset({FOLLOWER_THROTTLED_REPLICAS, LEADER_THROTTLED_REPLICAS})
"""Keys that are no log's: these lists, of thousands of replicas, are data_plane/quotas/replication.py's."""


def _default(name: str, kind: type[V]) -> V:
    """The table's."""
    text = TOPIC_CONFIGS[name].default
    assert text is not None, name
    value = TOPIC_CONFIGS[name].parse(text)
    assert isinstance(value, kind), name
    return value


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Effective settings of one log; fields are Kafka's topic configs, in the unit of their name."""

    cleanup_policy: tuple[str, ...] = _default("cleanup.policy", tuple)
    compression_type: str = _default("compression.type", str)
    compression_gzip_level: int = _default("compression.gzip.level", int)
    compression_lz4_level: int = _default("compression.lz4.level", int)
    compression_zstd_level: int = _default("compression.zstd.level", int)
    delete_retention_ms: int = _default("delete.retention.ms", int)
    file_delete_delay_ms: int = _default("file.delete.delay.ms", int)
    flush_messages: int = _default("flush.messages", int)
    flush_ms: int = _default("flush.ms", int)
    index_interval_bytes: int = _default("index.interval.bytes", int)
    local_retention_bytes: int = _default("local.retention.bytes", int)
    local_retention_ms: int = _default("local.retention.ms", int)
    max_compaction_lag_ms: int = _default("max.compaction.lag.ms", int)
    max_message_bytes: int = _default("max.message.bytes", int)
    message_timestamp_after_max_ms: int = _default("message.timestamp.after.max.ms", int)
    message_timestamp_before_max_ms: int = _default("message.timestamp.before.max.ms", int)
    message_timestamp_type: str = _default("message.timestamp.type", str)
    min_cleanable_dirty_ratio: float = _default("min.cleanable.dirty.ratio", float)
    min_compaction_lag_ms: int = _default("min.compaction.lag.ms", int)
    min_insync_replicas: int = _default("min.insync.replicas", int)
    preallocate: bool = _default("preallocate", bool)
    retention_bytes: int = _default("retention.bytes", int)
    retention_ms: int = _default("retention.ms", int)
    segment_bytes: int = _default("segment.bytes", int)
    segment_index_bytes: int = _default("segment.index.bytes", int)
    segment_jitter_ms: int = _default("segment.jitter.ms", int)
    segment_ms: int = _default("segment.ms", int)
    unclean_leader_election_enable: bool = _default("unclean.leader.election.enable", bool)

    @property
    def compact(self) -> bool:
        return "compact" in self.cleanup_policy

    @property
    def delete(self) -> bool:
        return "delete" in self.cleanup_policy

    @property
    def max_segment_ms(self) -> int:
        """A segment must be closed in time to be compacted."""
        return min(self.segment_ms, self.max_compaction_lag_ms) if self.compact else self.segment_ms

    @classmethod
    def from_map(cls, values: Mapping[str, str], base: LogConfig | None = None) -> LogConfig:
        """`base` (the broker's defaults) with a topic's overrides, by topic config name.

        Raises BrokerError(INVALID_CONFIG) naming the key, the value and the bound.
        """

        def refuse(problem: str) -> None:
            raise BrokerError(ErrorCode.INVALID_CONFIG, problem)

        return cls.understood(values, base or cls(), refuse)

    @classmethod
    def understood(
        cls, values: Mapping[str, str], base: LogConfig, pass_over: Callable[[str], None]
    ) -> LogConfig:
        """`base` with as much of the overrides as this broker understands. An override that it
        does not is reported to `pass_over` and left out; the others apply."""
        changes: dict[str, ConfigValue] = {}
        for name, text in values.items():
            key, field = TOPIC_CONFIGS.get(name), name.replace(".", "_")
            if name in THROTTLED:
                continue
            if key is None or field not in _FIELDS:
                pass_over(f"Unknown topic config name: {name}")
            elif (problem := key.problem(text)) is not None:
                pass_over(problem)
                if name == "cleanup.policy":  # nothing says what may be removed
                    changes[field] = ()
            else:
                changes[field] = key.parse(text)
        config = _replaced(base, changes)
        if config.min_compaction_lag_ms <= config.max_compaction_lag_ms:
            return config
        pass_over(
            f"conflict between min.compaction.lag.ms = {config.min_compaction_lag_ms} "
            f"and max.compaction.lag.ms = {config.max_compaction_lag_ms}"
        )
        lags = ("min_compaction_lag_ms", "max_compaction_lag_ms")
        return _replaced(base, {field: value for field, value in changes.items() if field not in lags})


_FIELDS: Final = frozenset(field.name for field in dataclasses.fields(LogConfig))


def _replaced(base: LogConfig, changes: Mapping[str, Any]) -> LogConfig:
    return dataclasses.replace(base, **changes)
