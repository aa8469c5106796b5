"""The broker role of a node: its replicas, coordinators and fetchers, and what keeps them with the quorum.

    lifecycle       registered with the quorum, in whose epoch the broker speaks
    replicas        ReplicaManager -> FetchService (who reads here), ReplicaFetcherManager (whom we follow)
    coordinators    groups, transactions with their markers
    publisher       committed metadata -> all of these

Built from the bottom up; node.py connects it to the listeners, the metadata and the handlers.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import Final
from uuid import UUID

from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.internal_topic import InternalTopic
from data_plane.coordinator.topics import OFFSETS_TOPIC, TRANSACTIONS_TOPIC
from data_plane.coordinator.transactions.marker_writer import MarkerWriter
from data_plane.coordinator.transactions.service import TransactionCoordinator
from data_plane.coordinator.transactions.verification_guard import VerificationGuards
from data_plane.log_manager.log_dirs import LogDir
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.replication.replica_manager import ReplicaManager
from fetch.delayed_fetch import FetchService
from fetch.fetcher import FetcherContext
from fetch.fetcher_manager import ReplicaFetcherManager
from fetch.sessions import SessionCache
from kraft.api.context import BrokerContext, NodeContext
from kraft.api.partition_lookup import max_request_partitions
from kraft.broker.controller_requests import ControllerRequests
from kraft.broker.directory_channel import BrokerDirectoryChannel
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.broker.isr_channel import BrokerIsrChannel
from kraft.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from kraft.broker.producer_ids import ProducerIds, allocate_block
from kraft.broker.txn_verification import RetryPolicy, TransactionVerifier
from kraft.config.replication_keys import RACK_AWARE
from kraft.net.connection_security import ConnectionSecurity
from kraft.node import settings
from kraft.node.environment import NodeEnvironment
from kraft.node.metadata_publisher import BrokerMetadataPublisher
from kraft.peers.broker_addresses import BrokerAddresses
from kraft.peers.broker_channels import BrokerChannels
from kraft.peers.leader_endpoint import SocketLeaderEndpoint
from kraft.peers.txn_markers import BrokerMarkerChannel
from kraft.storage.formatter import Storage
from metadata_quorum.foundation.blocking import Blocking, MayBlock
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.model import FeatureRange
from metadata_quorum.foundation.uuids import random_uuid

_FOLLOWED: Final = {"kraft.version": (0, 1)}
"""Apache Kafka's controllers whose quorum is dynamic take only brokers that say so."""
_ANSWER_GRACE_S: Final = 5.0
"""Added to the other broker's own timeout, because its response says what became of each partition."""


class BrokerRole:
    """See the module."""

    def __init__(
        self,
        node: NodeContext,
        environment: NodeEnvironment,
        blocking: Blocking,
        to_brokers: ConnectionSecurity,
        storage: Storage,
    ) -> None:
        self._controlled_shutdown = node.config.controlled_shutdown_enable
        self._addresses = BrokerAddresses(node.config, node.metadata_cache)
        self.timer = WheelTimer(node.loop)
        self.failover_metadata = FailoverMetadata(
            node.loop, node.config.broker_session_timeout_ms * settings.MS
        )
        identity = _identity(node, tuple(storage.directories.values()))
        self.lifecycle = BrokerLifecycle(
            node.loop,
            node.controller_channel,
            identity,
            heartbeat_interval_s=node.config.broker_heartbeat_interval_ms * settings.MS,
            session_timeout_s=node.config.broker_session_timeout_ms * settings.MS,
        )
        self._controller = ControllerRequests(
            node.node_id, self.lifecycle, node.controller_channel, node.config.socket_request_max_bytes
        )
        log_dirs = [
            LogDir(environment.disk, path, storage.directories.get(path), _boot_of(environment, path))
            for path in node.config.data_dirs
        ]
        self._build_replicas(node, log_dirs, blocking, environment.boundary.end_node)
        self._build_fetching(node, to_brokers)
        self._build_coordinators(node, blocking, to_brokers)
        self.publisher = BrokerMetadataPublisher(
            node.node_id,
            node.loop,
            node.metadata_cache,
            self.replica_manager.applier,
            self.fetcher_manager,
            self.group_coordinator,
            self.transaction_coordinator,
            self.failover_metadata,
            incarnation_id=identity.incarnation_id,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            on_published=self.lifecycle.metadata_published,
            on_fatal=environment.boundary.end_node,
            blocking=blocking,
        )

    def _build_replicas(
        self,
        node: NodeContext,
        log_dirs: Sequence[LogDir],
        blocking: Blocking,
        end_node: Callable[[BaseException], None],
    ) -> None:
        """The logs of this broker, and its replicas of partitions."""
        self.replication_quotas = settings.replication_quotas(node.config)
        self.replica_manager = ReplicaManager(
            settings.replica_manager_config(node.config),
            log_dirs,
            BrokerIsrChannel(self._controller),
            loop=node.loop,
            timer=self.timer,
            rng=node.random,
            now_ms=node.now_ms,
            blocking=blocking,
            on_log_dir_failed=partial(_log_dir_failed, log_dirs, self.lifecycle, end_node),
            directory_channel=BrokerDirectoryChannel(self._controller),
            moves_quota=self.replication_quotas.moves,
        )

    def _build_fetching(self, node: NodeContext, to_brokers: ConnectionSecurity) -> None:
        """Fetches from here, and fetches of ours from other leaders."""
        config = node.config
        self.fetch_service = FetchService(
            self.replica_manager,
            SessionCache(
                config.max_incremental_fetch_session_cache_slots,
                node.random,
                prompt=config.replica_selector_class == RACK_AWARE,
                max_request_partitions=partial(max_request_partitions, self.replica_manager),
            ),
            self.timer,
            node.loop,
            max_response_bytes=config.fetch_max_bytes,
            quota=self.replication_quotas.leader,
        )
        self.fetcher_manager = ReplicaFetcherManager(
            FetcherContext(
                node.node_id,
                lambda: self.lifecycle.fetch_epoch,
                node.now_ms,
                node.loop,
                self.timer,
                node.random,
                settings.fetch_limits(config),
                retry_last=config.replica_fetch_backoff_ms * settings.MS,
                quota=self.replication_quotas.follower,
            ),
            partial(_leader_endpoint, node, self._addresses, self.failover_metadata, to_brokers),
            fetchers_per_leader=config.num_replica_fetchers,
        )

    def _build_coordinators(
        self, node: NodeContext, blocking: Blocking, to_brokers: ConnectionSecurity
    ) -> None:
        """The coordinators of groups and of transactions, and the markers that brokers send each other."""
        config, loop, now_ms = node.config, node.loop, node.now_ms
        request_timeout_s = config.request_timeout_ms * settings.MS
        self.group_coordinator = GroupCoordinator(
            settings.group_config(config),
            InternalTopic(OFFSETS_TOPIC, self.replica_manager, loop, now_ms, blocking),
            loop,
            node.random,
            now_ms,
        )
        # Answers come in order, and a marker may wait long for a slow partition: as with Kafka, producers
        # that are to be verified do not wait behind it.
        self._marker_channels, self._verification_channels, self._console_channels = (
            BrokerChannels(
                loop, self._addresses.find, client_id=f"{purpose}-{node.node_id}", security=to_brokers
            )
            for purpose in ("markers", "verification", "console")
        )
        guards = VerificationGuards()
        self.marker_writer = MarkerWriter(
            self.replica_manager,
            self.group_coordinator,
            guards,
            self.timer,
            loop,
            now_ms,
            request_timeout_s,
        )
        self._marker_channel = BrokerMarkerChannel(
            node.node_id,
            node.metadata_cache,
            self.marker_writer,
            self._marker_channels,
            loop,
            request_timeout_s + _ANSWER_GRACE_S,
        )
        self.producer_ids = ProducerIds(partial(allocate_block, self._controller))
        self.transaction_coordinator = TransactionCoordinator(
            settings.transaction_config(config),
            InternalTopic(TRANSACTIONS_TOPIC, self.replica_manager, loop, now_ms, blocking),
            self._marker_channel,
            self.producer_ids.next_id,
            loop,
            now_ms,
        )
        self.transaction_verifier = TransactionVerifier(
            node.node_id,
            node.metadata_cache,
            self.transaction_coordinator,
            self._verification_channels,
            guards,
            verifies=config.transaction_partition_verification_enable,
            timeout_s=request_timeout_s,
            retry=RetryPolicy(
                every_s=config.add_partitions_to_txn_retry_backoff_ms * settings.MS,
                for_s=config.add_partitions_to_txn_retry_backoff_max_ms * settings.MS,
            ),
        )

    def context(self, node: NodeContext, fetch_piece_bytes: Callable[[], int]) -> BrokerContext:
        """The handlers' context. `fetch_piece_bytes`: how much of a log to read at once for one response."""
        return BrokerContext(
            node=node,
            replica_manager=self.replica_manager,
            fetch_service=self.fetch_service,
            fetchers=self.fetcher_manager,
            fetch_piece_bytes=fetch_piece_bytes,
            group_coordinator=self.group_coordinator,
            transaction_coordinator=self.transaction_coordinator,
            transaction_verifier=self.transaction_verifier,
            marker_writer=self.marker_writer,
            producer_ids=self.producer_ids,
            console_channels=self._console_channels,
            lifecycle=self.lifecycle,
            failover_metadata=self.failover_metadata,
            timer=self.timer,
        )

    def load(self, may_block: MayBlock) -> None:
        """Open the logs on disk; blocks."""
        self.replica_manager.logs.load(may_block)

    def start(self) -> None:
        self.replica_manager.start()
        self.lifecycle.start(
            lambda: self.publisher.published_offset,
            lambda: self.replica_manager.logs.previous_broker_epoch,
            self._registered,
        )

    def _registered(self, broker_epoch: int) -> None:
        self.replica_manager.logs.mark_running(broker_epoch)
        self.publisher.begin()

    async def leave(self) -> None:
        """Controlled shutdown: the quorum moves our leaders while we still serve."""
        if self._controlled_shutdown:
            await self.lifecycle.stop()
        else:
            await self.lifecycle.close()

    async def stop(self) -> None:
        self.publisher.close()
        self.group_coordinator.close()
        self.transaction_coordinator.close()
        self._marker_channel.close()
        self._marker_channels.close()
        self._verification_channels.close()
        self._console_channels.close()
        await self.fetcher_manager.close()
        await self.replica_manager.close(self.lifecycle.broker_epoch)
        self.timer.close()


def _boot_of(environment: NodeEnvironment, log_dir: str) -> str:
    """Empty where the machine's boot is not known."""
    return environment.boot_id and environment.boot_id + environment.which_copy(log_dir)


def _identity(node: NodeContext, log_dirs: tuple[UUID, ...]) -> BrokerIdentity:
    return BrokerIdentity(
        node.node_id,
        node.cluster_id,
        random_uuid(node.random),
        node.config.advertised_endpoints,
        tuple(
            FeatureRange(name, low, high) for name, (low, high) in (SUPPORTED_FEATURES | _FOLLOWED).items()
        ),
        node.config.broker_rack,
        log_dirs,
    )


def _leader_endpoint(
    node: NodeContext,
    addresses: BrokerAddresses,
    failover_metadata: FailoverMetadata,
    security: ConnectionSecurity,
    leader_id: int,
    fetcher_id: int,
) -> SocketLeaderEndpoint:
    return SocketLeaderEndpoint(
        node.loop,
        node.node_id,
        partial(addresses.find, leader_id),
        client_id=f"broker-{node.node_id}-fetcher-{fetcher_id}",
        timeout_s=node.config.replica_socket_timeout_ms * settings.MS,
        on_lost=partial(failover_metadata.broker_lost, leader_id),
        security=security,
    )


def _log_dir_failed(
    log_dirs: Sequence[LogDir],
    lifecycle: BrokerLifecycle,
    end_node: Callable[[BaseException], None],
    failed: LogDir,
    error: OSError,
) -> None:
    """Report the directory, so that the quorum moves its leaders; a broker without any log dir ends."""
    if any(each.online for each in log_dirs):
        lifecycle.log_dir_failed(failed.directory_id)
        return
    reason = f"every log directory has failed; the last was {failed.path}: {error.strerror}"
    end_node(FatalError(ExitCode.DISK_FAILED, reason))
