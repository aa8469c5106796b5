"""Every configuration key, one typed row each.

The attribute's name is Kafka's key with underscores for dots (`replica_lag_time_max_ms` is
`replica.lag.time.max.ms`), its annotation the type, `key(...)` the default, the bounds, how it may
change and why it is there. Units are in the names: `_ms`, `_bytes`, `_minutes`. Names and defaults
are Apache Kafka 4.1's; the few that differ say so, the few that are ours begin with `kraft.`.

server.properties (`node_config.py`), DescribeConfigs and docs/CONFIG.md all derive from this table.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Final

INT_MAX: Final = 2**31 - 1
LONG_MAX: Final = 2**63 - 1
KIB: Final = 1024
MIB: Final = 1024 * KIB
SECOND: Final = 1000
MINUTE: Final = 60 * SECOND
HOUR: Final = 60 * MINUTE
DAY: Final = 24 * HOUR
"""Milliseconds, all four."""


STANDARD_AUTHORIZER: Final = "org.apache.kafka.metadata.authorizer.StandardAuthorizer"
RACK_AWARE: Final = "org.apache.kafka.common.replica.RackAwareReplicaSelector"
LEADER_ONLY: Final = "org.apache.kafka.common.replica.LeaderSelector"
SASL_MECHANISMS: Final = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")


class Update(Enum):
    """How a key may change while the node runs; the words of Kafka's documentation."""

    READ_ONLY = "read-only"
    PER_BROKER = "per-broker"
    CLUSTER_WIDE = "cluster-wide"


READ_ONLY, PER_BROKER, CLUSTER_WIDE = Update


class Required(Enum):
    """The default of a key that has none."""

    TOKEN = "required"


@dataclass(frozen=True, slots=True)
class KeyRule:
    """What a row says beside its name and type."""

    minimum: float | None
    maximum: float | None
    choices: tuple[str, ...]
    update: Update
    why: str
    secret: bool = False
    """DescribeConfigs does not tell it."""


def key(
    default: object,
    why: str,
    *,
    minimum: float | None = None,
    maximum: float | None = None,
    choices: Sequence[str] = (),
    update: Update = READ_ONLY,
    secret: bool = False,
) -> Any:
    """One row of the table. Any: the annotation beside it is the type."""
    rule = KeyRule(minimum, maximum, tuple(choices), update, why, secret)
    return field(default=default, metadata={"rule": rule})


CODECS: Final = ("uncompressed", "gzip", "snappy", "lz4", "zstd", "producer")


@dataclass(frozen=True, kw_only=True, slots=True)
class ConfigKeys:
    """The table. Values are set by `config.Config.from_properties`."""

    # -- who this node is ---------------------------------------------------------------------
    process_roles: tuple[str, ...] = key(
        Required.TOKEN, "what this node does", choices=("broker", "controller")
    )
    node_id: int = key(Required.TOKEN, "the node's number, unique in the cluster", minimum=0)
    broker_rack: str | None = key(None, "where the node stands; replicas are spread over racks")
    log_dir: str | None = key(
        None, "one directory for partitions; none by default, where Kafka has one that a reboot empties"
    )
    log_dirs: tuple[str, ...] = key((), "directories for partitions; beats log.dir")
    metadata_log_dir: str | None = key(
        None, "directory of the metadata log; the first of log.dirs if not set"
    )

    # -- listeners ----------------------------------------------------------------------------
    listeners: str = key("PLAINTEXT://:9092", "NAME://HOST:PORT,...; an empty host means every interface")
    advertised_listeners: str | None = key(None, "what clients and other nodes are told to connect to")
    controller_listener_names: tuple[str, ...] = key(
        (), "listeners of the controllers, Raft's frames included"
    )
    inter_broker_listener_name: str | None = key(None, "listener for fetches between brokers")
    security_inter_broker_protocol: str = key(
        "PLAINTEXT", "names the inter-broker listener where inter.broker.listener.name does not",
        choices=("PLAINTEXT", "SSL", "SASL_PLAINTEXT", "SASL_SSL"),
    )  # fmt: skip
    listener_security_protocol_map: str = key(
        "SASL_SSL:SASL_SSL,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT",
        "how each named listener speaks", update=PER_BROKER,
    )  # fmt: skip
    kraft_peer_addresses: str = key(
        "", "ID@HOST:PORT,... of brokers that this node does not reach where they say: a tunnel, a proxy"
    )
    kraft_http_port: int | None = key(None, "port of GET /status (JSON) on 127.0.0.1; none if not set",
                                      minimum=0, maximum=65535)  # fmt: skip

    # -- TLS and SASL; each may be given for one listener as listener.name.NAME.KEY -------------
    ssl_keystore_location: str | None = key(
        None, "PEM file with a private key and its certificates; set anew, it is read anew", update=PER_BROKER
    )
    ssl_keystore_type: str = key(
        "PEM", "only PEM is read, and it is the default; Kafka's is JKS", choices=("PEM",), update=PER_BROKER
    )
    ssl_key_password: str | None = key(
        None, "of the private key, where that is encrypted", secret=True, update=PER_BROKER
    )
    ssl_truststore_location: str | None = key(
        None, "PEM file with the authorities that the other end's certificate must come from; set anew, its "
        "authorities are trusted too", update=PER_BROKER,
    )  # fmt: skip
    ssl_truststore_type: str = key(
        "PEM", "only PEM is read; Kafka's default is JKS", choices=("PEM",), update=PER_BROKER
    )
    ssl_client_auth: str = key(
        "none", "whether a client must show a certificate", choices=("none", "requested", "required")
    )
    ssl_principal_mapping_rules: str = key(
        "DEFAULT",
        "RULE:PATTERN/REPLACEMENT/[LU],... from a certificate's subject to a user; DEFAULT takes it whole",
    )
    ssl_endpoint_identification_algorithm: str = key(
        "https", "whether nodes check each other's host in the certificate; empty: they do not",
        choices=("https", ""),
    )  # fmt: skip
    sasl_enabled_mechanisms: tuple[str, ...] = key(
        (),
        "what clients may log in by; Kafka's default is GSSAPI, which is not here",
        choices=SASL_MECHANISMS,
    )
    sasl_mechanism_inter_broker_protocol: str | None = key(
        None, "how brokers log in to each other; no default, where Kafka has GSSAPI", choices=SASL_MECHANISMS
    )
    sasl_mechanism_controller_protocol: str | None = key(
        None, "how nodes log in to controllers; no default, where Kafka has GSSAPI", choices=SASL_MECHANISMS
    )
    sasl_jaas_config: str | None = key(
        None,
        'as listener.name.NAME.MECHANISM.sasl.jaas.config: MODULE required username="..." password="..." '
        'user_NAME="PASSWORD"; the first two are for this node\'s own connections, the others users of PLAIN',
        secret=True,
    )
    connections_max_reauth_ms: int = key(
        0, "a client that logged in must do so again within this, or it is let go; 0: never", minimum=0
    )
    connection_failed_authentication_delay_ms: int = key(
        100, "a refused login is answered after this", minimum=0
    )

    # -- rights -------------------------------------------------------------------------------
    authorizer_class_name: str = key(
        "", f"{STANDARD_AUTHORIZER}, or standard for short; empty: everybody may do everything",
        choices=("", STANDARD_AUTHORIZER, "standard"),
    )  # fmt: skip
    super_users: str = key("", "User:NAME;... who may do everything; the nodes' own principals belong here")
    allow_everyone_if_no_acl_found: bool = key(
        False, "whether what no access control entry is about is open to everybody"
    )

    # -- connections --------------------------------------------------------------------------
    max_connections: int = key(
        INT_MAX, "connections on all listeners together", minimum=0, update=CLUSTER_WIDE
    )
    max_connections_per_ip: int = key(
        INT_MAX, "connections of one address on all listeners together", minimum=0, update=CLUSTER_WIDE
    )
    connections_max_idle_ms: int = key(10 * MINUTE, "a connection without requests is closed after this")
    socket_request_max_bytes: int = key(100 * MIB, "a longer frame is refused before it is read", minimum=1)
    sasl_server_max_receive_size: int = key(
        512 * KIB, "the same, for who has not logged in on a listener that asks for it", minimum=1
    )
    kraft_request_min_bytes_per_second: int = key(
        4 * KIB,
        "a request that has begun and comes at less than this for 30 s loses its connection; while memory "
        "is short, a large one must come at 1 MiB/s; 0: as slowly as it likes, while memory is not short",
        minimum=0,
    )
    socket_send_buffer_bytes: int = key(100 * KIB, "accepted; the system sizes socket buffers", minimum=-1)
    socket_receive_buffer_bytes: int = key(100 * KIB, "accepted; the system sizes socket buffers", minimum=-1)
    socket_listen_backlog_size: int = key(50, "connections that wait to be accepted", minimum=1)
    socket_connection_setup_timeout_ms: int = key(
        10 * SECOND, "accepted; nodes give a new connection one second and try again"
    )
    socket_connection_setup_timeout_max_ms: int = key(
        30 * SECOND, "accepted; see socket.connection.setup.timeout.ms"
    )
    queued_max_requests: int = key(500, "requests of one connection that may be unanswered", minimum=1)
    queued_max_request_bytes: int = key(
        256 * MIB,
        "bytes of unanswered requests per listener, then reading pauses; Kafka's default has no bound",
        minimum=-1,
    )  # fmt: skip
    request_timeout_ms: int = key(30 * SECOND, "patience with another node's answer")

    # -- metadata quorum ----------------------------------------------------------------------
    controller_quorum_voters: str = key("", "ID@HOST:PORT,... of every controller; the voters are fixed")
    controller_quorum_election_timeout_ms: int = key(
        1 * SECOND, "accepted; elections are timed by controller.quorum.fetch.timeout.ms", minimum=1
    )
    controller_quorum_fetch_timeout_ms: int = key(
        2 * SECOND, "a voter without a sign of the leader stands", minimum=1
    )
    controller_quorum_election_backoff_max_ms: int = key(
        1 * SECOND, "accepted; the pause after a lost vote grows by itself", minimum=0
    )
    controller_quorum_request_timeout_ms: int = key(
        2 * SECOND, "patience with a controller's answer", minimum=1
    )
    controller_quorum_retry_backoff_ms: int = key(20, "pause before asking a controller again", minimum=0)
    controller_quorum_append_linger_ms: int = key(25, "accepted; commands are appended at once", minimum=0)
    kraft_loop_stall_ms: int = key(
        50,
        "CPU time in one turn of the loop from which on the log tells where it was spent; 0: not watched",
        minimum=0,
    )
    kraft_controller_link_grace_ms: int = key(
        200, "a broker whose heartbeat connection broke is fenced unless it comes back within this: a killed "
        "process is noticed by its closed socket, not by broker.session.timeout.ms", minimum=0,
    )  # fmt: skip
    broker_heartbeat_interval_ms: int = key(
        2 * SECOND, "how often a broker tells the controller that it lives", minimum=1
    )
    broker_session_timeout_ms: int = key(
        9 * SECOND, "a silent broker is fenced after this; nine seconds outlast any pause of a busy two-core "
        "machine (swapping, a stalled disk), and killed brokers do not wait for it", minimum=1,
    )  # fmt: skip
    initial_broker_registration_timeout_ms: int = key(
        1 * MINUTE, "accepted; a broker asks for its registration until it has it", minimum=1
    )
    metadata_log_max_record_bytes_between_snapshots: int = key(
        20 * MIB, "a snapshot after so many bytes", minimum=1
    )
    metadata_log_max_snapshot_interval_ms: int = key(
        1 * HOUR, "accepted; snapshots are taken by size", minimum=0
    )
    metadata_log_segment_bytes: int = key(1024 * MIB, "size of one file of the metadata log", minimum=8 * MIB)
    metadata_max_retention_bytes: int = key(
        100 * MIB, "accepted; the last two snapshots and what follows are kept"
    )
    metadata_max_idle_interval_ms: int = key(500, "accepted; an idle quorum writes nothing", minimum=0)
    controlled_shutdown_enable: bool = key(True, "a stopping broker hands its leaders over first")
    auto_leader_rebalance_enable: bool = key(True, "leaders go back to the preferred replica on their own")
    leader_imbalance_check_interval_seconds: int = key(300, "how often that is looked at", minimum=1)

    # -- topics -------------------------------------------------------------------------------
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

    # -- replication --------------------------------------------------------------------------
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

    # -- log ----------------------------------------------------------------------------------
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

    # -- producers ----------------------------------------------------------------------------
    producer_id_expiration_ms: int = key(
        1 * DAY, "a silent producer is forgotten", minimum=1, update=CLUSTER_WIDE
    )

    # -- quotas -------------------------------------------------------------------------------
    quota_window_num: int = key(11, "samples that a client's rate is the mean of", minimum=1)
    quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)
    controller_quota_window_num: int = key(11, "the same for created and deleted partitions", minimum=1)
    controller_quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)

    replication_quota_window_num: int = key(
        11, "samples that a throttled replica's rate is taken over", minimum=1
    )
    replication_quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)
    alter_log_dirs_replication_quota_window_num: int = key(
        11, "the same for moves between log dirs", minimum=1
    )
    alter_log_dirs_replication_quota_window_size_seconds: int = key(1, "length of one sample", minimum=1)

    # -- groups -------------------------------------------------------------------------------
    group_min_session_timeout_ms: int = key(
        6 * SECOND, "shortest session that a member may ask for", minimum=1
    )
    group_max_session_timeout_ms: int = key(30 * MINUTE, "longest", minimum=1)
    group_initial_rebalance_delay_ms: int = key(
        3 * SECOND, "a new group waits this long for members", minimum=0
    )
    group_max_size: int = key(INT_MAX, "members of a group", minimum=1)
    group_coordinator_rebalance_protocols: tuple[str, ...] = key(
        ("classic", "consumer"), "protocols that groups may use; share and streams are not here yet",
        choices=("classic", "consumer", "share", "streams"),
    )  # fmt: skip
    group_consumer_session_timeout_ms: int = key(
        45 * SECOND, "silence after which a member of the consumer protocol is out", minimum=1
    )
    group_consumer_min_session_timeout_ms: int = key(
        45 * SECOND, "shortest that a group may be set to", minimum=1
    )
    group_consumer_max_session_timeout_ms: int = key(60 * SECOND, "longest", minimum=1)
    group_consumer_heartbeat_interval_ms: int = key(5 * SECOND, "how often such members report", minimum=1)
    group_consumer_min_heartbeat_interval_ms: int = key(
        5 * SECOND, "shortest that a group may be set to", minimum=1
    )
    group_consumer_max_heartbeat_interval_ms: int = key(15 * SECOND, "longest", minimum=1)
    group_consumer_max_size: int = key(INT_MAX, "members of a group of the consumer protocol", minimum=1)
    group_consumer_assignors: tuple[str, ...] = key(
        ("uniform", "range"),
        "who may be asked to assign; the first is the default",
        choices=("uniform", "range"),
    )
    group_consumer_migration_policy: str = key(
        "bidirectional",
        "which way groups may change their protocol while they have members",
        choices=("disabled", "downgrade", "upgrade", "bidirectional"),
    )
    group_consumer_regex_refresh_interval_ms: int = key(
        10 * MINUTE, "how often patterns are held against topics anew", minimum=10 * SECOND
    )
    offset_metadata_max_bytes: int = key(4 * KIB, "text that a commit may carry", minimum=0)
    offsets_topic_num_partitions: int = key(50, "partitions of __consumer_offsets", minimum=1)
    offsets_topic_replication_factor: int = key(3, "copies of __consumer_offsets", minimum=1)
    offsets_topic_segment_bytes: int = key(100 * MIB, "size of its files", minimum=1)
    offsets_topic_compression_codec: int = key(
        0, "accepted; its batches are stored uncompressed", minimum=0, maximum=4
    )
    offsets_retention_minutes: int = key(
        10_080, "offsets of an empty group are kept for this long", minimum=1
    )
    offsets_retention_check_interval_ms: int = key(10 * MINUTE, "how often those are looked for", minimum=1)
    offsets_commit_timeout_ms: int = key(5 * SECOND, "patience with the replication of a commit", minimum=1)
    offsets_load_buffer_size: int = key(5 * MIB, "bytes read at once while offsets are loaded", minimum=1)

    # -- transactions -------------------------------------------------------------------------
    transaction_max_timeout_ms: int = key(15 * MINUTE, "longest that a producer may ask for", minimum=1)
    transactional_id_expiration_ms: int = key(7 * DAY, "an idle transactional id is forgotten", minimum=1)
    transaction_abort_timed_out_transaction_cleanup_interval_ms: int = key(
        10 * SECOND, "how often transactions are looked for that took too long", minimum=1
    )
    transaction_remove_expired_transaction_cleanup_interval_ms: int = key(
        1 * HOUR, "how often idle transactional ids are looked for", minimum=1
    )
    transaction_partition_verification_enable: bool = key(
        True, "a leader asks the coordinator before it lets the first batch of a transaction in",
        update=CLUSTER_WIDE,
    )  # fmt: skip
    add_partitions_to_txn_retry_backoff_ms: int = key(
        20, "a leader asks again after it while the producer's last transaction is still ending", minimum=1
    )
    add_partitions_to_txn_retry_backoff_max_ms: int = key(100, "and gives up after it")
    transaction_state_log_num_partitions: int = key(50, "partitions of __transaction_state", minimum=1)
    transaction_state_log_replication_factor: int = key(3, "copies of __transaction_state", minimum=1)
    transaction_state_log_min_isr: int = key(2, "in-sync copies that a decision needs", minimum=1)
    transaction_state_log_segment_bytes: int = key(100 * MIB, "size of its files", minimum=1)
    transaction_state_log_load_buffer_size: int = key(
        5 * MIB, "bytes read at once while transactions are loaded", minimum=1
    )


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
