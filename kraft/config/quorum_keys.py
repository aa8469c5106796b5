"""The metadata quorum, and how brokers and controllers keep in touch."""

from __future__ import annotations

from dataclasses import dataclass

from kraft.config.key import HOUR, MIB, MINUTE, SECOND, key


@dataclass(init=False, repr=False, eq=False, frozen=True, kw_only=True)
class QuorumKeys:
    """Kafka's QuorumConfig and KRaftConfigs."""

    controller_quorum_voters: str = key("", "ID@HOST:PORT,... of every controller; the voters are fixed")
    controller_quorum_bootstrap_servers: tuple[str, ...] = key(
        (), "HOST:PORT,... of some controllers, where controller.quorum.voters is not set: a broker under "
        "Apache Kafka's dynamic quorum learns from them where the leader is",
    )  # fmt: skip
    controller_quorum_election_timeout_ms: int = key(
        1 * SECOND, "accepted; elections are timed by controller.quorum.fetch.timeout.ms", minimum=1
    )
    controller_quorum_fetch_timeout_ms: int = key(
        2 * SECOND, "a voter that hears nothing from the leader for this long starts an election", minimum=1
    )
    controller_quorum_election_backoff_max_ms: int = key(
        1 * SECOND, "accepted; the pause after a lost vote grows by itself", minimum=0
    )
    controller_quorum_request_timeout_ms: int = key(
        2 * SECOND, "how long a broker waits for a controller's answer", minimum=1
    )
    controller_quorum_retry_backoff_ms: int = key(20, "pause before asking a controller again", minimum=0)
    controller_quorum_append_linger_ms: int = key(25, "accepted; commands are appended at once", minimum=0)
    kraft_client_telemetry_enable: bool = key(
        False, "clients are told that they may push their metrics (KIP-714), which /metrics then shows"
    )
    kraft_loop_stall_ms: int = key(
        50,
        "a turn of the event loop that takes more CPU time is logged, and where it was spent; 0: not watched",
        minimum=0,
    )
    kraft_controller_link_grace_ms: int = key(
        200, "a broker whose heartbeat connection broke is fenced unless it comes back within this: a killed "
        "process is noticed by its closed socket, not by broker.session.timeout.ms", minimum=0,
    )  # fmt: skip
    broker_heartbeat_interval_ms: int = key(
        2 * SECOND, "how often a broker sends a heartbeat to the controller", minimum=1
    )
    broker_session_timeout_ms: int = key(
        9 * SECOND, "a broker without a heartbeat for this long is fenced; nine seconds outlast any pause of "
        "a busy two-core machine (swapping, a stalled disk), and a killed broker is fenced sooner", minimum=1,
    )  # fmt: skip
    initial_broker_registration_timeout_ms: int = key(
        1 * MINUTE, "accepted; a broker repeats its registration until it is accepted", minimum=1
    )
    metadata_log_max_record_bytes_between_snapshots: int = key(
        20 * MIB, "a snapshot is taken after this many bytes", minimum=1, bits=64
    )
    metadata_log_max_snapshot_interval_ms: int = key(
        1 * HOUR, "accepted; snapshots are taken by size", minimum=0, bits=64
    )
    metadata_log_segment_bytes: int = key(1024 * MIB, "segment size of the metadata log", minimum=8 * MIB)
    metadata_max_retention_bytes: int = key(
        100 * MIB, "accepted; the last two snapshots and what follows are kept", bits=64
    )
    metadata_max_idle_interval_ms: int = key(500, "accepted; an idle quorum writes nothing", minimum=0)
    controlled_shutdown_enable: bool = key(True, "a stopping broker hands over its leaderships first")
    auto_leader_rebalance_enable: bool = key(True, "leadership returns to the preferred replica by itself")
    leader_imbalance_check_interval_seconds: int = key(
        300, "how often leaders are compared with the preferred replicas", minimum=1, bits=64
    )
