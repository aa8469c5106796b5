"""Every configuration key: the tables of all subjects, and what else is known of keys.

The attribute's name is Kafka's key with underscores for dots (`replica_lag_time_max_ms` is
`replica.lag.time.max.ms`), its annotation the type, `key(...)` the default, the bounds, how it may
change and why it is there. Units are in the names: `_ms`, `_bytes`, `_minutes`. Names and defaults
are Apache Kafka 4.1's; the few that differ say so, the few that are ours begin with `kraft.`.

server.properties (`node_config.py`), DescribeConfigs and docs/CONFIG.md all derive from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from kraft.config.group_coordinator_keys import GroupCoordinatorKeys
from kraft.config.log_keys import LogKeys
from kraft.config.quorum_keys import QuorumKeys
from kraft.config.quota_keys import QuotaKeys
from kraft.config.replication_keys import ReplicationKeys
from kraft.config.security_keys import SecurityKeys
from kraft.config.server_keys import ServerKeys
from kraft.config.socket_server_keys import SocketServerKeys
from kraft.config.transaction_keys import TransactionKeys


@dataclass(frozen=True, kw_only=True)
class ConfigKeys(  # of a dataclass's bases, the last one's fields come first
    TransactionKeys,
    GroupCoordinatorKeys,
    QuotaKeys,
    LogKeys,
    ReplicationKeys,
    QuorumKeys,
    SecurityKeys,
    SocketServerKeys,
    ServerKeys,
):
    """All rows in one table; `node_config.Config` fills it."""


PER_LISTENER: Final = frozenset(
    {
        "ssl.keystore.location", "ssl.keystore.type", "ssl.key.password", "ssl.truststore.location",
        "ssl.truststore.type",
    }
)  # fmt: skip
"""What may change while a node runs, but under listener.name.NAME. only."""

CLUSTER_WIDE_OF_LISTENERS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
"""What may be said for all brokers under listener.name.NAME., too. It is taken, and has no effect there."""

FIXED_IN_KAFKA: Final = frozenset(
    {
        "sasl.client.callback.handler.class", "sasl.login.callback.handler.class", "sasl.login.class",
        "sasl.login.connect.timeout.ms", "sasl.login.read.timeout.ms", "sasl.login.retry.backoff.max.ms",
        "sasl.login.retry.backoff.ms", "sasl.mechanism.controller.protocol",
        "sasl.oauthbearer.jwks.endpoint.url", "sasl.oauthbearer.token.endpoint.url",
        "sasl.server.callback.handler.class", "security.providers", "ssl.allow.dn.changes",
        "ssl.allow.san.changes",
    }
)  # fmt: skip
"""Keys that nothing here knows and no broker can change while it runs."""

CLASSES: Final = {
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
}
"""Keys that name a class, and the only one there is."""

TOPIC_KEYS: Final = {
    "cleanup.policy": "log.cleanup.policy",
    "compression.gzip.level": "compression.gzip.level",
    "compression.lz4.level": "compression.lz4.level",
    "compression.type": "compression.type",
    "compression.zstd.level": "compression.zstd.level",
    "delete.retention.ms": "log.cleaner.delete.retention.ms",
    "file.delete.delay.ms": "log.segment.delete.delay.ms",
    "flush.messages": "log.flush.interval.messages",
    "flush.ms": "log.flush.interval.ms",
    "index.interval.bytes": "log.index.interval.bytes",
    "max.compaction.lag.ms": "log.cleaner.max.compaction.lag.ms",
    "max.message.bytes": "message.max.bytes",
    "message.timestamp.after.max.ms": "log.message.timestamp.after.max.ms",
    "message.timestamp.before.max.ms": "log.message.timestamp.before.max.ms",
    "message.timestamp.type": "log.message.timestamp.type",
    "min.cleanable.dirty.ratio": "log.cleaner.min.cleanable.ratio",
    "min.compaction.lag.ms": "log.cleaner.min.compaction.lag.ms",
    "min.insync.replicas": "min.insync.replicas",
    "preallocate": "log.preallocate",
    "retention.bytes": "log.retention.bytes",
    "retention.ms": "log.retention.ms",
    "segment.bytes": "log.segment.bytes",
    "segment.index.bytes": "log.index.size.max.bytes",
    "segment.jitter.ms": "log.roll.jitter.ms",
    "segment.ms": "log.roll.ms",
    "unclean.leader.election.enable": "unclean.leader.election.enable",
}
"""A topic's key -> the broker's key that it falls back to."""

NO_EFFECT: Final = (
    # Threads: one loop owns the state here.
    "num.network.threads", "num.io.threads", "background.threads", "num.recovery.threads.per.data.dir",
    "num.replica.alter.log.dirs.threads", "group.coordinator.threads", "share.coordinator.threads",
    # Purgatories and caches of the JVM broker.
    "producer.purgatory.purge.interval.requests", "fetch.purgatory.purge.interval.requests",
    "delete.records.purgatory.purge.interval.requests", "log.flush.scheduler.interval.ms",
    "log.cleaner.threads",
    "log.cleaner.io.buffer.size", "log.cleaner.io.buffer.load.factor", "log.cleaner.io.max.bytes.per.second",
    "group.coordinator.append.linger.ms", "replica.socket.receive.buffer.bytes", "metadata.log.segment.ms",
    "metadata.max.retention.ms", "controller.socket.timeout.ms", "metric.reporters", "metrics.num.samples",
    "metrics.recording.level", "metrics.sample.window.ms",
    # Parts of Kafka that are not here yet: the topic that share groups would use.
    "share.coordinator.state.topic.replication.factor", "share.coordinator.state.topic.min.isr",
    "share.coordinator.state.topic.num.partitions",
)  # fmt: skip
"""Keys of Apache Kafka that a server.properties may carry without a warning: nothing here reads them."""
