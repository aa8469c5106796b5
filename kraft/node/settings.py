"""From server.properties to what each room asks for: keys in, settings of the rooms below out.

The rooms know nothing of `Config`: they take small frozen values in their own units. This is the
one place where Kafka's keys meet them.

    config/node_config.py -> here -> node.py -> Raft, partitions, fetchers, groups, server
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from ipaddress import ip_address
from typing import Final

from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig, MigrationPolicy
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.service import GroupCoordinatorConfig
from data_plane.coordinator.runtime import ShardLimits
from data_plane.coordinator.transactions.service import TransactionCoordinatorConfig
from data_plane.coordinator.transactions.transaction_state_manager import TransactionLimits
from data_plane.log.config import LogConfig
from data_plane.quotas.client_quotas import ClientQuotas
from data_plane.quotas.rates import QuotaWindow
from data_plane.quotas.replication import ReplicationQuotas
from data_plane.replication.replica_manager import ReplicaManagerConfig
from fetch.follower_session import FetchLimits
from kraft.config.node_config import Config
from kraft.net.connection import ConnectionLimits
from kraft.net.connection_quotas import MaxConnections, handles_for_clients
from kraft.net.listener import ServerLimits
from metadata_quorum.controller.controller_config import ControllerConfig
from metadata_quorum.raft.config import RaftConfig

log = logging.getLogger(__name__)

MS: Final = 0.001
MINUTE_MS: Final = 60_000

HEARTBEATS_PER_TIMEOUT: Final = 8
"""Raft heartbeats that fit into the shortest election timeout."""
RAFT_FRAME_BYTES: Final = 1024
"""More than a frame has besides a command or a piece of a snapshot."""
SMALL_COMMAND_BYTES: Final = 16_384
"""What a quorum decides for itself is smaller."""


def raft_config(config: Config) -> RaftConfig:
    """`controller.quorum.fetch.timeout.ms` is how long a voter waits for a silent leader at most; half of
    it at least, so that not all become candidates at once."""
    longest = config.controller_quorum_fetch_timeout_ms
    shortest = max(longest // 2, 1)
    usual = RaftConfig()
    # A voter closes the connection at a frame that is longer than any request may be.
    room = max(config.socket_request_max_bytes - RAFT_FRAME_BYTES, SMALL_COMMAND_BYTES)
    return RaftConfig(
        election_timeout_min_ms=shortest,
        election_timeout_max_ms=max(longest, shortest + 1),
        heartbeat_ms=max(shortest // HEARTBEATS_PER_TIMEOUT, 1),
        check_quorum_ms=longest,
        snapshot_bytes=config.metadata_log_max_record_bytes_between_snapshots,
        append_bytes=min(usual.append_bytes, room // 4),
        max_command_bytes=min(usual.max_command_bytes, room),
        snapshot_chunk_bytes=min(usual.snapshot_chunk_bytes, room),
    )


def controller_config(config: Config, cluster_id: str) -> ControllerConfig:
    return ControllerConfig(
        cluster_id=cluster_id,
        voters=tuple(voter.node_id for voter in config.voters),
        broker_session_timeout_ms=config.broker_session_timeout_ms,
        link_grace_ms=config.kraft_controller_link_grace_ms,
        request_timeout_ms=config.request_timeout_ms,
        num_partitions=config.num_partitions,
        default_replication_factor=config.default_replication_factor,
        min_insync_replicas=config.min_insync_replicas,
        auto_leader_rebalance_enable=config.auto_leader_rebalance_enable,
        leader_imbalance_check_interval_seconds=config.leader_imbalance_check_interval_seconds,
    )


def replica_manager_config(config: Config) -> ReplicaManagerConfig:
    return ReplicaManagerConfig(
        broker_id=config.node_id,
        lag_time_max=config.replica_lag_time_max_ms * MS,
        high_watermark_checkpoint_interval=config.replica_high_watermark_checkpoint_interval_ms * MS,
        recovery_checkpoint_interval=max(config.log_flush_offset_checkpoint_interval_ms, 1) * MS,
        retention_check_interval=config.log_retention_check_interval_ms * MS,
        cleaner_interval=config.log_cleaner_backoff_ms * MS if config.log_cleaner_enable else None,
        cleaner_map_bytes=config.log_cleaner_dedupe_buffer_size,
        producer_expiration_ms=config.producer_id_expiration_ms,
        log_defaults=LogConfig.from_map(config.topic_defaults),
    )


def fetch_limits(config: Config) -> FetchLimits:
    return FetchLimits(
        max_wait_ms=config.replica_fetch_wait_max_ms,
        min_bytes=config.replica_fetch_min_bytes,
        max_bytes=config.replica_fetch_response_max_bytes,
        partition_max_bytes=config.replica_fetch_max_bytes,
    )


def group_config(config: Config) -> GroupCoordinatorConfig:
    return GroupCoordinatorConfig(
        groups=GroupLimits(
            rules=ClassicGroupConfig(
                initial_rebalance_delay=config.group_initial_rebalance_delay_ms * MS,
                max_size=config.group_max_size,
            ),
            consumer=ConsumerGroupConfig(
                session_timeout_ms=config.group_consumer_session_timeout_ms,
                heartbeat_interval_ms=config.group_consumer_heartbeat_interval_ms,
                max_size=config.group_consumer_max_size,
                assignors=config.group_consumer_assignors,
                migration=MigrationPolicy(config.group_consumer_migration_policy),
                regex_refresh_interval_ms=config.group_consumer_regex_refresh_interval_ms,
            ),
            min_session_timeout_ms=config.group_min_session_timeout_ms,
            max_session_timeout_ms=config.group_max_session_timeout_ms,
            max_metadata_bytes=config.offset_metadata_max_bytes,
            offsets_retention_ms=config.offsets_retention_minutes * MINUTE_MS,
        ),
        shards=ShardLimits(
            commit_timeout=config.offsets_commit_timeout_ms * MS,
            load_slice_bytes=config.offsets_load_buffer_size,
        ),
        partitions=config.offsets_topic_num_partitions,
        retention_check_interval=config.offsets_retention_check_interval_ms * MS,
    )


def transaction_config(config: Config) -> TransactionCoordinatorConfig:
    return TransactionCoordinatorConfig(
        transactions=TransactionLimits(
            max_timeout_ms=config.transaction_max_timeout_ms,
            id_expiration_ms=config.transactional_id_expiration_ms,
        ),
        shards=ShardLimits(
            commit_timeout=config.request_timeout_ms * MS,
            load_slice_bytes=config.transaction_state_log_load_buffer_size,
        ),
        partitions=config.transaction_state_log_num_partitions,
        timeout_check_interval=config.transaction_abort_timed_out_transaction_cleanup_interval_ms * MS,
        expiry_check_interval=config.transaction_remove_expired_transaction_cleanup_interval_ms * MS,
        wait_for_end=config.add_partitions_to_txn_retry_backoff_ms * MS,
    )


def client_quotas(config: Config) -> ClientQuotas:
    return ClientQuotas(
        QuotaWindow(config.quota_window_num, float(config.quota_window_size_seconds)),
        QuotaWindow(config.controller_quota_window_num, float(config.controller_quota_window_size_seconds)),
    )


def replication_quotas(config: Config) -> ReplicationQuotas:
    return ReplicationQuotas(
        config.node_id,
        QuotaWindow(config.replication_quota_window_num, float(config.replication_quota_window_size_seconds)),
        QuotaWindow(
            config.alter_log_dirs_replication_quota_window_num,
            float(config.alter_log_dirs_replication_quota_window_size_seconds),
        ),
    )


def _by_address(counts: Mapping[str, int]) -> Mapping[str, int]:
    """As sockets write addresses. Names are not looked up."""
    found: dict[str, int] = {}
    for host, count in counts.items():
        try:
            found[str(ip_address(host))] = count
        except ValueError:
            log.error("max.connections.per.ip.overrides: %s is no address, and without effect", host)
    return found


def server_limits(config: Config, static: Config) -> ServerLimits:
    """`static`: what server.properties alone says. It holds for controllers' listeners, so that a principal
    that may change the configuration can always connect to change it back."""
    queued = config.queued_max_request_bytes
    return ServerLimits(
        connection=ConnectionLimits(
            max_frame_bytes=config.socket_request_max_bytes,
            max_frame_bytes_before_login=config.sasl_server_max_receive_size,
            max_in_flight_requests=config.queued_max_requests,
        ),
        max_connections=MaxConnections(
            config.max_connections,
            config.max_connections_per_ip,
            _by_address(config.connections_of_hosts),
            handles_for_clients(),
        ),
        max_controller_connections=MaxConnections(
            static.max_connections, static.max_connections_per_ip, _by_address(static.connections_of_hosts)
        ),
        max_idle_s=config.connections_max_idle_ms * MS,
        max_queued_bytes=queued if queued > 0 else 2**63 - 1,
        min_bytes_per_s=config.kraft_request_min_bytes_per_second,
    )
