"""A topic's log settings: one table of Kafka's topic configs, and the typed value derived from it.

Broker defaults come in under Kafka's broker keys (`log.segment.bytes`, ...), overrides of a topic
under its own (`segment.bytes`). DescribeConfigs and docs/CONFIG.md read the same table.

Stands at the side of the data's way: every Log carries one LogConfig, replaced when it changes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Final

from metadata_quorum.compression import Codec
from metadata_quorum.errors import BrokerError, ErrorCode

_INT_MAX: Final = 2**31 - 1
_LONG_MAX: Final = 2**63 - 1
_HOUR_MS: Final = 3_600_000
_DAY_MS: Final = 24 * _HOUR_MS

CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"
COMPRESSION_PRODUCER: Final = "producer"
COMPRESSION_NAMES: Final[Mapping[str, Codec]] = {
    "uncompressed": Codec.NONE,
    "gzip": Codec.GZIP,
    "snappy": Codec.SNAPPY,
    "lz4": Codec.LZ4,
    "zstd": Codec.ZSTD,
}


@dataclass(frozen=True, slots=True)
class LogConfig:
    """Effective settings of one log; fields are Kafka's topic configs, in the unit of their name."""

    cleanup_policy: tuple[str, ...] = ("delete",)
    compression_type: str = COMPRESSION_PRODUCER
    compression_gzip_level: int = -1
    compression_lz4_level: int = 9
    compression_zstd_level: int = 3
    delete_retention_ms: int = _DAY_MS
    file_delete_delay_ms: int = 60_000
    flush_messages: int = _LONG_MAX
    flush_ms: int = _LONG_MAX
    follower_replication_throttled_replicas: tuple[str, ...] = ()
    index_interval_bytes: int = 4096
    leader_replication_throttled_replicas: tuple[str, ...] = ()
    local_retention_bytes: int = -2
    local_retention_ms: int = -2
    max_compaction_lag_ms: int = _LONG_MAX
    max_message_bytes: int = 1_048_588
    message_timestamp_after_max_ms: int = _HOUR_MS
    message_timestamp_before_max_ms: int = _LONG_MAX
    message_timestamp_type: str = CREATE_TIME
    min_cleanable_dirty_ratio: float = 0.5
    min_compaction_lag_ms: int = 0
    min_insync_replicas: int = 1
    preallocate: bool = False
    retention_bytes: int = -1
    retention_ms: int = 7 * _DAY_MS
    segment_bytes: int = 1024 * 1024 * 1024
    segment_index_bytes: int = 10 * 1024 * 1024
    segment_jitter_ms: int = 0
    segment_ms: int = 7 * _DAY_MS
    unclean_leader_election_enable: bool = False

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
        changes: dict[str, Any] = {}
        for name, text in values.items():
            key = TOPIC_CONFIGS.get(name)
            if key is None:
                raise BrokerError(ErrorCode.INVALID_CONFIG, f"Unknown topic config name: {name}")
            changes[key.field] = key.parse(text)
        config = dataclasses.replace(base or cls(), **changes)
        if config.min_compaction_lag_ms > config.max_compaction_lag_ms:
            raise BrokerError(
                ErrorCode.INVALID_CONFIG,
                f"conflict between min.compaction.lag.ms = {config.min_compaction_lag_ms} "
                f"and max.compaction.lag.ms = {config.max_compaction_lag_ms}",
            )
        return config

    def to_map(self) -> dict[str, str]:
        """Every setting by its topic config name, as DescribeConfigs prints it."""
        return {name: key.format(getattr(self, key.field)) for name, key in TOPIC_CONFIGS.items()}


def _number(kind: type[int] | type[float], text: str) -> int | float:
    return kind(text.strip())


def _boolean(text: str) -> bool:
    lowered = text.strip().lower()
    if lowered not in ("true", "false"):
        raise ValueError("Expected value to be either true or false")
    return lowered == "true"


def _list(text: str) -> tuple[str, ...]:
    return tuple(part.strip() for part in text.split(",") if part.strip())


@dataclass(frozen=True, slots=True)
class TopicConfig:
    """One row: a topic config, its broker-wide twin, its type and its bounds."""

    name: str
    type: str  # Kafka's type name: boolean, string, int, long, double, list
    broker_key: str | None
    minimum: float | None = None
    maximum: float | None = None
    allowed: tuple[str, ...] = ()

    @property
    def field(self) -> str:
        return self.name.replace(".", "_")

    @property
    def default(self) -> Any:
        """Kafka's default, typed."""
        return getattr(_DEFAULTS, self.field)

    def parse(self, text: str) -> Any:
        """The typed value. Raises BrokerError(INVALID_CONFIG)."""
        try:
            value = _PARSERS[self.type](text)
        except ValueError as e:
            raise self._invalid(text, f"not a {self.type}: {e}") from e
        if isinstance(value, tuple):
            wrong = [part for part in value if self.allowed and part not in self.allowed]
            if wrong or (self.allowed and not value):
                raise self._invalid(text, f"must be among {', '.join(self.allowed)}")
        elif self.allowed and value not in self.allowed:
            raise self._invalid(text, f"String must be one of: {', '.join(self.allowed)}")
        elif isinstance(value, int | float) and not isinstance(value, bool):
            self._check_bounds(text, value)
        return value

    def format(self, value: Any) -> str:
        if isinstance(value, bool):
            return "true" if value else "false"
        return ",".join(value) if isinstance(value, tuple) else str(value)

    def _check_bounds(self, text: str, value: float) -> None:
        type_maximum = {"int": _INT_MAX, "long": _LONG_MAX}.get(self.type)
        maximum = self.maximum if self.maximum is not None else type_maximum
        if self.minimum is not None and value < self.minimum:
            raise self._invalid(text, f"Value must be at least {self.minimum}")
        if maximum is not None and value > maximum:
            raise self._invalid(text, f"Value must be no more than {maximum}")

    def _invalid(self, text: str, why: str) -> BrokerError:
        message = f"Invalid value {text} for configuration {self.name}: {why}"
        return BrokerError(ErrorCode.INVALID_CONFIG, message)


_PARSERS: Final[Mapping[str, Callable[[str], Any]]] = {
    "boolean": _boolean,
    "string": str.strip,
    "int": lambda text: _number(int, text),
    "long": lambda text: _number(int, text),
    "double": lambda text: _number(float, text),
    "list": _list,
}

_DEFAULTS: Final = LogConfig()

_ROWS: Final = (
    TopicConfig("cleanup.policy", "list", "log.cleanup.policy", allowed=("compact", "delete")),
    TopicConfig("compression.gzip.level", "int", "compression.gzip.level", -1, 9),
    TopicConfig("compression.lz4.level", "int", "compression.lz4.level", 1, 17),
    TopicConfig(
        "compression.type",
        "string",
        "compression.type",
        allowed=("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer"),
    ),
    TopicConfig("compression.zstd.level", "int", "compression.zstd.level", -131072, 22),
    TopicConfig("delete.retention.ms", "long", "log.cleaner.delete.retention.ms", 0),
    TopicConfig("file.delete.delay.ms", "long", "log.segment.delete.delay.ms", 0),
    TopicConfig("flush.messages", "long", "log.flush.interval.messages", 1),
    TopicConfig("flush.ms", "long", "log.flush.interval.ms", 0),
    TopicConfig("follower.replication.throttled.replicas", "list", None),
    TopicConfig("index.interval.bytes", "int", "log.index.interval.bytes", 0),
    TopicConfig("leader.replication.throttled.replicas", "list", None),
    TopicConfig("local.retention.bytes", "long", "log.local.retention.bytes", -2),
    TopicConfig("local.retention.ms", "long", "log.local.retention.ms", -2),
    TopicConfig("max.compaction.lag.ms", "long", "log.cleaner.max.compaction.lag.ms", 1),
    TopicConfig("max.message.bytes", "int", "message.max.bytes", 0),
    TopicConfig("message.timestamp.after.max.ms", "long", "log.message.timestamp.after.max.ms", 0),
    TopicConfig("message.timestamp.before.max.ms", "long", "log.message.timestamp.before.max.ms", 0),
    TopicConfig(
        "message.timestamp.type",
        "string",
        "log.message.timestamp.type",
        allowed=(CREATE_TIME, LOG_APPEND_TIME),
    ),
    TopicConfig("min.cleanable.dirty.ratio", "double", "log.cleaner.min.cleanable.ratio", 0, 1),
    TopicConfig("min.compaction.lag.ms", "long", "log.cleaner.min.compaction.lag.ms", 0),
    TopicConfig("min.insync.replicas", "int", "min.insync.replicas", 1),
    TopicConfig("preallocate", "boolean", "log.preallocate"),
    TopicConfig("retention.bytes", "long", "log.retention.bytes"),
    TopicConfig("retention.ms", "long", "log.retention.ms", -1),
    TopicConfig("segment.bytes", "int", "log.segment.bytes", 1024 * 1024),
    TopicConfig("segment.index.bytes", "int", "log.index.size.max.bytes", 4),
    TopicConfig("segment.jitter.ms", "long", "log.roll.jitter.ms", 0),
    TopicConfig("segment.ms", "long", "log.roll.ms", 1),
    TopicConfig("unclean.leader.election.enable", "boolean", "unclean.leader.election.enable"),
)

TOPIC_CONFIGS: Final[Mapping[str, TopicConfig]] = {row.name: row for row in _ROWS}
"""Every topic config by name; those of tiered storage are not among them."""
