"""Every configuration key: the tables of all subjects, and lists of keys that are special.

The attribute's name is Kafka's key with underscores for dots (`replica_lag_time_max_ms` is
`replica.lag.time.max.ms`), its annotation the type, `key(...)` the default, the bounds, how it may
change and why it is there. Units are in the names: `_ms`, `_bytes`, `_minutes`. Names and defaults
are Apache Kafka 4.1's; the few that differ say so, the few that are ours begin with `kraft.`.

server.properties (`node_config.py`), DescribeConfigs and docs/CONFIG.md all derive from these tables.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
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
from metadata_quorum.foundation.topic_configs import TOPIC_CONFIGS


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
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
    """All rows in one table; `node_config.Config` fills it. Only that has an `__init__`, and none has what is
    never used: to compile 170 fields into functions takes milliseconds of every start."""


LISTENER_PREFIX: Final = "listener.name."
"""Of a key for one listener, whose name in lower case follows."""

PER_LISTENER: Final = frozenset(
    {
        "ssl.keystore.location", "ssl.keystore.type", "ssl.key.password", "ssl.truststore.location",
        "ssl.truststore.type",
    }
)  # fmt: skip
"""Keys that may change while a node runs, but only as listener.name.NAME.KEY."""

CLUSTER_WIDE_OF_LISTENERS: Final = frozenset(
    {"max.connections", "max.connection.creation.rate", "num.network.threads"}
)
"""Keys that may also be set for all brokers as listener.name.NAME.KEY. They are accepted, without effect."""

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
"""Keys that are not in the tables, and that no broker can change while it runs."""

CLASSES: Final = {
    "principal.builder.class": "org.apache.kafka.common.security.authenticator.DefaultKafkaPrincipalBuilder",
    "ssl.engine.factory.class": "org.apache.kafka.common.security.ssl.DefaultSslEngineFactory",
}
"""Keys that name a class, and the only class there is."""

_NAMES: Final = frozenset(field.name.replace("_", ".") for field in fields(ConfigKeys))

TOPIC_KEYS: Final = {
    topic_key.name: topic_key.synonyms[0]
    for topic_key in TOPIC_CONFIGS.values()
    if topic_key.synonyms and topic_key.synonyms[0] in _NAMES
}
"""A topic's key -> the broker's key that it falls back to."""

NO_EFFECT: Final = (
    # Threads: here one event loop owns the state.
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
"""Keys of Apache Kafka that are accepted without a warning, and that nothing here reads."""
