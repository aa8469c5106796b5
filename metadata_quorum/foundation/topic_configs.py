"""Configuration keys that live in the metadata log: topics', and the dynamic ones of brokers.

Names, types, defaults and bounds are those of Kafka 4.1. A value is judged here before it becomes
a ConfigRecord (decisions/configs.py, decisions/topics.py). DescribeConfigs reads the same rows, and a log's
settings (data_plane/log/config.py) are made from them: with one table, what one part accepts no other drops.
"""

from __future__ import annotations

import math
import re
from collections.abc import Mapping
from dataclasses import dataclass
from enum import IntEnum
from typing import Final

from metadata_quorum.foundation.primitives import INT_MAX, LONG_MAX

LEADER_THROTTLED_RATE: Final = "leader.replication.throttled.rate"
LEADER_THROTTLED_REPLICAS: Final = "leader.replication.throttled.replicas"
FOLLOWER_THROTTLED_RATE: Final = "follower.replication.throttled.rate"
FOLLOWER_THROTTLED_REPLICAS: Final = "follower.replication.throttled.replicas"
MOVES_RATE: Final = "replica.alter.log.dirs.io.max.bytes.per.second"

_INTEGER_BITS: Final = {"SHORT": 16, "INT": 32, "LONG": 64}


ConfigValue = bool | int | float | str | tuple[str, ...]
"""A key's typed value."""


class ConfigType(IntEnum):
    """Type numbers of DescribeConfigs."""

    UNKNOWN = 0
    BOOLEAN = 1
    STRING = 2
    INT = 3
    SHORT = 4
    LONG = 5
    DOUBLE = 6
    LIST = 7
    CLASS = 8
    PASSWORD = 9


@dataclass(frozen=True, slots=True)
class ConfigKey:
    """One row: a key, its bounds, and what it is for."""

    name: str
    type: ConfigType
    default: str | None
    doc: str
    at_least: float | None = None
    at_most: float | None = None
    one_of: tuple[str, ...] = ()
    items_like: str = ""
    """A regular expression that every item of a list matches."""
    synonyms: tuple[str, ...] = ()
    """Broker keys that give the default, in order of precedence."""

    @property
    def sensitive(self) -> bool:
        return self.type is ConfigType.PASSWORD

    def problem(self, value: str) -> str | None:
        """What is wrong with `value`, in Kafka's words; None where it is fine."""
        wrong = self._problem(value)
        return None if wrong is None else f"Invalid value {value} for configuration {self.name}: {wrong}"

    def parse(self, value: str) -> ConfigValue:
        """The typed value of a text for which `problem` is None."""
        text = value.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                return text.lower() == "true"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG:
                return int(text)
            case ConfigType.DOUBLE:
                return float(text)
            case ConfigType.LIST:
                return tuple(dict.fromkeys(_items(text)))
            case _:
                return text

    def _problem(self, value: str) -> str | None:
        text = value.strip()
        match self.type:
            case ConfigType.BOOLEAN:
                fine = text.lower() in ("true", "false")
                return None if fine else "Expected value to be either true or false"
            case ConfigType.INT | ConfigType.SHORT | ConfigType.LONG | ConfigType.DOUBLE:
                return self._number_problem(text)
            case ConfigType.LIST:
                return self._list_problem(_items(text))
            case _:
                if self.one_of and text not in self.one_of:
                    return f"String must be one of: {', '.join(self.one_of)}"
                return None

    def _list_problem(self, items: list[str]) -> str | None:
        if self.one_of and any(item not in self.one_of for item in items):
            return f"String must be one of: {', '.join(self.one_of)}"
        if self.items_like and not all(re.fullmatch(self.items_like, item) for item in items):
            return "Must be the literal '*' or a list of replicas: [partitionId]:[brokerId],..."
        return None

    def _number_problem(self, text: str) -> str | None:
        try:
            number: float = float(text) if self.type is ConfigType.DOUBLE else int(text)
        except ValueError:
            return f"Not a number of type {self.type.name}"
        bits = _INTEGER_BITS.get(self.type.name)
        fits = math.isfinite(number) if bits is None else -(1 << bits - 1) <= number < 1 << bits - 1
        if not fits:
            return f"Not a number of type {self.type.name}"
        if self.at_least is not None and number < self.at_least:
            return f"Value must be at least {self.at_least:g}"
        if self.at_most is not None and number > self.at_most:
            return f"Value must be no more than {self.at_most:g}"
        return None


def _items(text: str) -> list[str]:
    return [stripped for item in text.split(",") if (stripped := item.strip())]


def _table(*keys: ConfigKey) -> Mapping[str, ConfigKey]:
    return {key.name: key for key in keys}


_B, _S, _I, _L, _D, _LIST = (
    ConfigType.BOOLEAN,
    ConfigType.STRING,
    ConfigType.INT,
    ConfigType.LONG,
    ConfigType.DOUBLE,
    ConfigType.LIST,
)
CREATE_TIME: Final = "CreateTime"
LOG_APPEND_TIME: Final = "LogAppendTime"

_CODECS: Final = ("uncompressed", "zstd", "lz4", "snappy", "gzip", "producer")
_FOREVER: Final = str(LONG_MAX)
_REPLICAS: Final = r"\*|[0-9]+:[0-9]+"

TOPIC_CONFIGS: Final = _table(
    ConfigKey(
        "cleanup.policy", _LIST, "delete", "Delete old segments, compact them by key, or both.",
        one_of=("compact", "delete"), synonyms=("log.cleanup.policy",),
    ),
    ConfigKey(
        "compression.gzip.level", _I, "-1", "Effort of gzip; -1 is the codec's own default.",
        at_least=-1, at_most=9, synonyms=("compression.gzip.level",),
    ),
    ConfigKey(
        "compression.lz4.level", _I, "9", "Effort of lz4.",
        at_least=1, at_most=17, synonyms=("compression.lz4.level",),
    ),
    ConfigKey(
        "compression.type", _S, "producer", "Codec of stored batches; 'producer' keeps the producer's.",
        one_of=_CODECS, synonyms=("compression.type",),
    ),
    ConfigKey(
        "compression.zstd.level", _I, "3", "Effort of zstd.",
        at_least=-131072, at_most=22, synonyms=("compression.zstd.level",),
    ),
    ConfigKey(
        "delete.retention.ms", _L, "86400000", "How long a tombstone outlives compaction.",
        at_least=0, synonyms=("log.cleaner.delete.retention.ms",),
    ),
    ConfigKey(
        "file.delete.delay.ms", _L, "60000", "Time between letting go of a file and removing it.",
        at_least=0, synonyms=("log.segment.delete.delay.ms",),
    ),
    ConfigKey(
        "flush.messages", _L, _FOREVER, "Records after which the log is fsynced.",
        at_least=1, synonyms=("log.flush.interval.messages",),
    ),
    ConfigKey(
        "flush.ms", _L, _FOREVER, "Time after which the log is fsynced.",
        at_least=0, synonyms=("log.flush.interval.ms", "log.flush.scheduler.interval.ms"),
    ),
    ConfigKey(
        FOLLOWER_THROTTLED_REPLICAS, _LIST, "",
        "Replicas whose following is throttled: partition:broker pairs, or *.", items_like=_REPLICAS,
    ),
    ConfigKey(
        "index.interval.bytes", _I, "4096", "Bytes of log between two entries of the offset index.",
        at_least=0, synonyms=("log.index.interval.bytes",),
    ),
    ConfigKey(
        "internal.segment.bytes", _I, None, "A segment size below the bound of segment.bytes, for tests.",
    ),
    ConfigKey(
        LEADER_THROTTLED_REPLICAS, _LIST, "",
        "Replicas whose leader's sending is throttled: partition:broker pairs, or *.", items_like=_REPLICAS,
    ),
    ConfigKey(
        "local.retention.bytes", _L, "-2", "Bytes kept locally of a tiered partition; -2: retention.bytes.",
        at_least=-2, synonyms=("log.local.retention.bytes",),
    ),
    ConfigKey(
        "local.retention.ms", _L, "-2", "Time kept locally of a tiered partition; -2: retention.ms.",
        at_least=-2, synonyms=("log.local.retention.ms",),
    ),
    ConfigKey(
        "max.compaction.lag.ms", _L, _FOREVER, "Longest time that a record stays out of compaction.",
        at_least=1, synonyms=("log.cleaner.max.compaction.lag.ms",),
    ),
    ConfigKey(
        "max.message.bytes", _I, "1048588", "Largest batch that is taken, as compressed.",
        at_least=0, synonyms=("message.max.bytes",),
    ),
    ConfigKey(
        "message.timestamp.after.max.ms", _L, "3600000", "How far a timestamp may lie in the future.",
        at_least=0, synonyms=("log.message.timestamp.after.max.ms",),
    ),
    ConfigKey(
        "message.timestamp.before.max.ms", _L, _FOREVER, "How far a timestamp may lie in the past.",
        at_least=0, synonyms=("log.message.timestamp.before.max.ms",),
    ),
    ConfigKey(
        "message.timestamp.type", _S, "CreateTime", "Whose clock stamps records: producer's or broker's.",
        one_of=(CREATE_TIME, LOG_APPEND_TIME), synonyms=("log.message.timestamp.type",),
    ),
    ConfigKey(
        "min.cleanable.dirty.ratio", _D, "0.5", "Part of the log that is dirty when compaction starts.",
        at_least=0, at_most=1, synonyms=("log.cleaner.min.cleanable.ratio",),
    ),
    ConfigKey(
        "min.compaction.lag.ms", _L, "0", "Shortest time that a record stays out of compaction.",
        at_least=0, synonyms=("log.cleaner.min.compaction.lag.ms",),
    ),
    ConfigKey(
        "min.insync.replicas", _I, "1", "In-sync replicas without which acks=all is refused.",
        at_least=1, synonyms=("min.insync.replicas",),
    ),
    ConfigKey(
        "preallocate", _B, "false", "Allocate a new segment's file at full size.",
        synonyms=("log.preallocate",),
    ),
    ConfigKey("remote.log.copy.disable", _B, "false", "Copy no more segments to the remote tier."),
    ConfigKey("remote.log.delete.on.disable", _B, "false", "Delete remote data when tiering ends."),
    ConfigKey("remote.storage.enable", _B, "false", "Tier the topic to remote storage."),
    ConfigKey(
        "retention.bytes", _L, "-1", "Size of a partition above which old segments go; -1: no limit.",
        synonyms=("log.retention.bytes",),
    ),
    ConfigKey(
        "retention.ms", _L, "604800000", "Age above which old segments go; -1: no limit.",
        at_least=-1, synonyms=("log.retention.ms", "log.retention.minutes", "log.retention.hours"),
    ),
    ConfigKey(
        "segment.bytes", _I, "1073741824", "Size at which a segment is rolled.",
        at_least=1 << 20, synonyms=("log.segment.bytes",),
    ),
    ConfigKey(
        "segment.index.bytes", _I, "10485760", "Size of an index file, at which a segment is rolled too.",
        at_least=4, synonyms=("log.index.size.max.bytes",),
    ),
    ConfigKey(
        "segment.jitter.ms", _L, "0", "Random time taken off segment.ms, so that not all roll at once.",
        at_least=0, synonyms=("log.roll.jitter.ms", "log.roll.jitter.hours"),
    ),
    ConfigKey(
        "segment.ms", _L, "604800000", "Age at which a segment is rolled.",
        at_least=1, synonyms=("log.roll.ms", "log.roll.hours"),
    ),
    ConfigKey(
        "unclean.leader.election.enable", _B, "false", "Let a replica lead that may miss acked records.",
        synonyms=("unclean.leader.election.enable",),
    ),
)  # fmt: skip


def _dynamic_broker_configs() -> Mapping[str, ConfigKey]:
    """The broker keys that give topics their defaults, and the ones of the broker itself."""
    keys = {
        synonym: ConfigKey(
            synonym, key.type, key.default, f"Default of the topic's {key.name}: {key.doc}",
            key.at_least, key.at_most, key.one_of,
        )
        for key in TOPIC_CONFIGS.values()
        for synonym in key.synonyms[:1]
    }  # fmt: skip
    own = (
        ConfigKey("background.threads", _I, "10", "Threads for work off the event loop.", 1),
        ConfigKey("log.cleaner.backoff.ms", _L, "15000", "Rest of an idle cleaner.", 0),
        ConfigKey("log.cleaner.dedupe.buffer.size", _L, "134217728", "Memory of the cleaner's key map."),
        ConfigKey("log.cleaner.io.buffer.load.factor", _D, "0.9", "How full the key map may get."),
        ConfigKey("log.cleaner.io.buffer.size", _I, "524288", "Memory of the cleaner's copying.", 0),
        ConfigKey("log.cleaner.io.max.bytes.per.second", _D, "1.7976931348623157E308", "Cleaner's limit."),
        ConfigKey("log.cleaner.threads", _I, "1", "Logs that are cleaned at once.", 0),
        ConfigKey("max.connection.creation.rate", _I, str(INT_MAX), "New connections a second.", 0),
        ConfigKey("max.connections", _I, str(INT_MAX), "Open connections.", 0),
        ConfigKey("max.connections.per.ip", _I, str(INT_MAX), "Open connections of one address.", 0),
        ConfigKey("max.connections.per.ip.overrides", _S, "", "Exceptions to the limit by address."),
        ConfigKey("num.io.threads", _I, "8", "Threads that run requests.", 1),
        ConfigKey("num.network.threads", _I, "3", "Threads that serve sockets.", 1),
        ConfigKey("num.recovery.threads.per.data.dir", _I, "2", "Logs recovered at once after a crash.", 1),
        ConfigKey("num.replica.fetchers", _I, "1", "Fetchers per leader."),
        ConfigKey("producer.id.expiration.ms", _I, "86400000", "When an idle producer is forgotten.", 1),
        ConfigKey("transaction.partition.verification.enable", _B, "true", "Check that a transaction runs."),
        ConfigKey(LEADER_THROTTLED_RATE, _L, str(LONG_MAX), "Leader's throttled bytes/s.", 0),
        ConfigKey(FOLLOWER_THROTTLED_RATE, _L, str(LONG_MAX), "Follower's throttled bytes/s.", 0),
        ConfigKey(
            MOVES_RATE,
            _L,
            str(LONG_MAX),
            "Bytes/s copied between log directories.",
            0,
        ),
    )
    return keys | {key.name: key for key in own}


DYNAMIC_BROKER_CONFIGS: Final = _dynamic_broker_configs()
THROTTLES: Final = frozenset({LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE, MOVES_RATE})
"""Dynamic broker configs that no server.properties may have."""

GROUP_CONFIGS: Final = _table(
    ConfigKey("consumer.session.timeout.ms", _I, "45000", "Silence after which a member is out.", 1),
    ConfigKey("consumer.heartbeat.interval.ms", _I, "5000", "How often members report.", 1),
    ConfigKey("share.session.timeout.ms", _I, "45000", "Silence after which a member is out.", 1),
    ConfigKey("share.heartbeat.interval.ms", _I, "5000", "How often members report.", 1),
    ConfigKey("share.record.lock.duration.ms", _I, "30000", "How long a record is lent.", 1000),
    ConfigKey("share.auto.offset.reset", _S, "latest", "Where a new group begins."),
)


def topic_config_problem(values: Mapping[str, str]) -> str | None:
    """The first thing wrong with a topic's own values, or None."""
    for name, value in values.items():
        key = TOPIC_CONFIGS.get(name)
        if key is None:
            return f"Unknown topic config name: {name}"
        problem = key.problem(value)
        if problem is not None:
            return problem
    if values.get("remote.storage.enable", "").strip().lower() == "true":
        return (
            "Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote "
            "log storage."
        )
    lag_max = int(values.get("max.compaction.lag.ms", _FOREVER))
    if int(values.get("min.compaction.lag.ms", "0")) > lag_max:
        return "conflict topic config setting min.compaction.lag.ms > max.compaction.lag.ms"
    return None
