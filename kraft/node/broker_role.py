"""The two roles that a node can have, each with all its parts: the quorum's and the data plane's.

    ControllerRole   Raft links -> Raft voter -> state machine -> controller; readers of the metadata log
    BrokerRole       publisher -> partitions, fetchers, groups, transactions; fetches; the lifecycle

Built by node.py, which connects them to each other, to the listeners and to the handlers.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from random import Random
from typing import Final, Protocol
from uuid import UUID

from data_plane.coordinator.groups.service import OFFSETS_TOPIC, GroupCoordinator
from data_plane.coordinator.internal_topic import InternalTopic
from data_plane.coordinator.transactions.marker_writer import MarkerWriter, VerificationGuards
from data_plane.coordinator.transactions.service import TRANSACTIONS_TOPIC, TransactionCoordinator
from data_plane.log_manager.log_dirs import LogDir
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.replication.replica_manager import ReplicaManager
from fetch.delayed_fetch import FetchService
from fetch.fetcher import FetcherContext
from fetch.fetcher_manager import ReplicaFetcherManager
from fetch.sessions import SessionCache
from kraft.api.context import NodeContext
from kraft.api.metadata_reader import MetadataReader
from kraft.api.partition_lookup import max_request_partitions
from kraft.api.versions import SUPPORTED_FEATURES
from kraft.broker.directory_channel import BrokerDirectoryChannel
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.broker.isr_channel import BrokerIsrChannel
from kraft.broker.lifecycle import BrokerIdentity, BrokerLifecycle
from kraft.broker.producer_ids import ProducerIds
from kraft.broker.txn_verification import RetryPolicy, TransactionVerifier
from kraft.config.keys import RACK_AWARE
from kraft.config.node_config import Config
from kraft.net.client import Address
from kraft.node import settings
from kraft.node.listener_security import NodeSecurity
from kraft.node.metadata_publisher import BrokerMetadataPublisher
from kraft.peers.broker_channels import BrokerChannels
from kraft.peers.controller_channel import ControllerChannel
from kraft.peers.leader_endpoint import SocketLeaderEndpoint
from kraft.peers.liveness_probe import LivenessProbe
from kraft.peers.raft_driver import BackgroundThreads, RaftDriver
from kraft.peers.raft_transport import RaftTransport
from kraft.peers.txn_markers import BrokerMarkerChannel
from kraft.storage.bootstrap import read_users
from kraft.wire.api_keys import ApiKey
from metadata_quorum.controller.controller import QuorumController
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.blocking import MayBlock, Result
from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, ExitCode, FatalError
from metadata_quorum.foundation.model import FeatureRange
from metadata_quorum.foundation.supervision import report_fault
from metadata_quorum.foundation.uuids import random_uuid
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.raft.voter import SyncObjRaft

ALLOCATE_PRODUCER_IDS_VERSION: Final = 0

_ANSWER_GRACE_S: Final = 5.0
"""On top of the other broker's own patience: its answer tells what became of each partition."""


class RoleHost(Protocol):
    """What a role needs of its node."""

    config: Config
    context: NodeContext
    controller_channel: ControllerChannel
    security: NodeSecurity
    disk: Disk
    loop: asyncio.AbstractEventLoop
    random: Random
    now_ms: Callable[[], int]
    fatal: Callable[[BaseException], None]
    boot_id: str

    async def blocking(self, work: Callable[[MayBlock], Result], /) -> Result: ...


def address_of(config: Config, image: MetadataImage, broker_id: int) -> Address | None:
    """Where this node reaches a broker; None where it has not registered."""
    broker = image.brokers.get(broker_id)
    endpoint = None if broker is None else broker.endpoint(config.inter_broker_listener)
    if endpoint is None:
        return None
    told = config.peer_addresses.get(broker_id)
    return Address(told.host, told.port) if told else Address(endpoint.host, endpoint.port)


class ControllerRole:
    """The quorum's part of a node."""

    def __init__(self, node: RoleHost) -> None:
        config, context = node.config, node.context
        self.metadata_log = MetadataLog(
            node.disk,
            f"{config.metadata_dir}/__cluster_metadata-0",
            segment_bytes=config.metadata_log_segment_bytes,
        )
        self.state_machine = MetadataStateMachine(self.metadata_log, partial(report_fault, node.loop))
        self.links = RaftTransport(
            cluster_id=context.cluster_id,
            node_id=config.node_id,
            addresses={v.node_id: (v.host, v.port) for v in config.voters},
            random=node.random,
            security=node.security.to_controllers,
        )
        self._beside = BackgroundThreads(node.loop)
        voter = SyncObjRaft(
            config.node_id,
            [v.node_id for v in config.voters],
            context.cluster_id,
            node.disk,
            config.raft_dir,
            self.links,
            self.state_machine,
            node.loop.time,
            node.random,
            settings.raft_settings(config),
            self._beside,
        )
        self.raft = self._beside.driver = RaftDriver(voter, node.loop, node.fatal)
        self.controller = QuorumController(
            config.node_id,
            self.raft,
            self.state_machine,
            replace(
                settings.controller_settings(config, context.cluster_id),
                bootstrap_users=read_users(node.disk, config),
            ),
            loop=node.loop,
            random=node.random,
            now_ms=node.now_ms,
            blocking=node.blocking,
        )
        self.liveness_probe = LivenessProbe(
            node.loop,
            lambda broker_id: address_of(config, self.controller.image, broker_id),
            self.controller.process_gone,
            config.kraft_controller_link_grace_ms * settings.MS,
        )
        self.reader = MetadataReader(self.metadata_log, node.loop, node.now_ms)
        self.state_machine.subscribe(lambda delta, image: self.reader.committed())

    def start(self, loop: asyncio.AbstractEventLoop) -> None:
        self.links.start(loop, self.raft)
        self.raft.wake()

    async def stop(self) -> None:
        self.controller.close()
        await self.liveness_probe.close()
        self.raft.close()
        await self._beside.close()
        await self.links.close()
        self.metadata_log.close()


class BrokerRole:
    """The data plane's part of a node."""

    def __init__(self, node: RoleHost, log_dirs: dict[str, UUID]) -> None:
        config, context, loop = node.config, node.context, node.loop
        self._node = node
        self.timer = WheelTimer(loop)
        identity = self._identity(log_dirs)
        self.lifecycle = BrokerLifecycle(
            loop,
            node.controller_channel,
            identity,
            lambda: self.publisher.published_offset,
            lambda: self.partitions.whole_epoch,
            heartbeat_interval_s=config.broker_heartbeat_interval_ms * settings.MS,
            session_timeout_s=config.broker_session_timeout_ms * settings.MS,
        )
        self.replication_quotas = settings.replication_quotas(config)
        self.partitions = ReplicaManager(
            settings.replica_manager_config(config),
            [LogDir(node.disk, path, uuid, node.boot_id) for path, uuid in log_dirs.items()],
            BrokerIsrChannel(config.node_id, self.lifecycle, node.controller_channel),
            loop=loop,
            timer=self.timer,
            rng=node.random,
            now_ms=node.now_ms,
            blocking=node.blocking,
            on_log_dir_failed=self._log_dir_failed,
            directory_channel=BrokerDirectoryChannel(config.node_id, self.lifecycle, node.controller_channel),
            moves_quota=self.replication_quotas.moves,
        )
        self.fetches = FetchService(
            self.partitions,
            SessionCache(
                config.max_incremental_fetch_session_cache_slots,
                node.random,
                prompt=config.replica_selector_class == RACK_AWARE,
                max_request_partitions=partial(max_request_partitions, node.context),
            ),
            self.timer,
            loop,
            max_response_bytes=config.fetch_max_bytes,
            quota=self.replication_quotas.leader,
        )
        self.fetchers = ReplicaFetcherManager(
            FetcherContext(
                config.node_id,
                lambda: self.lifecycle.broker_epoch,
                node.now_ms,
                loop,
                self.timer,
                node.random,
                settings.fetch_limits(config),
                retry_last=config.replica_fetch_backoff_ms * settings.MS,
                quota=self.replication_quotas.follower,
            ),
            self._leader,
            fetchers_per_leader=config.num_replica_fetchers,
        )
        self.groups = GroupCoordinator(
            settings.group_settings(config),
            InternalTopic(OFFSETS_TOPIC, self.partitions, loop, node.now_ms, node.blocking),
            loop,
            node.random,
            node.now_ms,
        )
        self.failover_metadata = FailoverMetadata(loop, config.broker_session_timeout_ms * settings.MS)
        self.producer_ids = ProducerIds(self._allocate_producer_ids)
        self._broker_links = BrokerChannels(
            loop,
            lambda broker_id: address_of(config, context.image, broker_id),
            client_id=f"broker-{config.node_id}",
            security=node.security.to_brokers,
        )
        guards = VerificationGuards()
        request_timeout_s = config.request_timeout_ms * settings.MS
        self.markers = MarkerWriter(
            self.partitions, self.groups, guards, self.timer, loop, node.now_ms, request_timeout_s
        )
        self._marker_channel = BrokerMarkerChannel(
            config.node_id,
            lambda: context.image,
            self.markers,
            self._broker_links,
            loop,
            request_timeout_s + _ANSWER_GRACE_S,
        )
        self.transactions = TransactionCoordinator(
            settings.transaction_settings(config),
            InternalTopic(TRANSACTIONS_TOPIC, self.partitions, loop, node.now_ms, node.blocking),
            self._marker_channel,
            self.producer_ids.next_id,
            loop,
            node.now_ms,
        )
        self.transaction_verifier = TransactionVerifier(
            config.node_id,
            lambda: context.image,
            self.transactions,
            self._broker_links,
            guards,
            verifies=config.transaction_partition_verification_enable,
            timeout_s=request_timeout_s,
            retry=RetryPolicy(
                every_s=config.add_partitions_to_txn_retry_backoff_ms / 1000,
                for_s=config.add_partitions_to_txn_retry_backoff_max_ms / 1000,
            ),
        )
        self.publisher = BrokerMetadataPublisher(
            context,
            self.partitions,
            self.fetchers,
            self.groups,
            self.transactions,
            self.failover_metadata,
            incarnation_id=identity.incarnation_id,
            broker_epoch=lambda: self.lifecycle.broker_epoch,
            on_published=self.lifecycle.metadata_published,
            on_fatal=node.fatal,
            blocking=node.blocking,
        )
        self.lifecycle.on_registered = self._registered

    def _registered(self, broker_epoch: int) -> None:
        self.partitions.registered(broker_epoch)
        self.publisher.begin()

    def load(self, may_block: MayBlock) -> None:
        """Open the logs on disk; blocks."""
        self.partitions.load(may_block)

    def start(self) -> None:
        self.partitions.start()
        self.lifecycle.start()

    async def leave(self) -> None:
        """Controlled shutdown: the quorum moves our leaders while we still serve."""
        if self._node.config.controlled_shutdown_enable:
            await self.lifecycle.stop()
        else:
            await self.lifecycle.close()

    async def stop(self) -> None:
        self.publisher.close()
        self.groups.close()
        self.transactions.close()
        self._marker_channel.close()
        self._broker_links.close()
        await self.fetchers.close()
        await self.partitions.close(self.lifecycle.broker_epoch)
        self.timer.close()

    def _identity(self, log_dirs: dict[str, UUID]) -> BrokerIdentity:
        config = self._node.config
        return BrokerIdentity(
            config.node_id,
            self._node.context.cluster_id,
            random_uuid(self._node.random),
            config.advertised_endpoints,
            tuple(FeatureRange(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()),
            config.broker_rack,
            tuple(log_dirs.values()),
        )

    async def _allocate_producer_ids(self) -> tuple[int, int]:
        fields = {
            "broker_id": self._node.config.node_id,
            "broker_epoch": self.lifecycle.broker_epoch,
        }
        answer = await self._node.controller_channel.request(
            ApiKey.ALLOCATE_PRODUCER_IDS, ALLOCATE_PRODUCER_IDS_VERSION, fields
        )
        if answer.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(answer.error_code), "no producer ids from the controller")
        return answer.producer_id_start, answer.producer_id_len

    def _leader(self, leader_id: int, fetcher_id: int) -> SocketLeaderEndpoint:
        config, context = self._node.config, self._node.context

        return SocketLeaderEndpoint(
            self._node.loop,
            config.node_id,
            lambda: address_of(config, context.image, leader_id),
            client_id=f"broker-{config.node_id}-fetcher-{fetcher_id}",
            timeout_s=config.replica_socket_timeout_ms * settings.MS,
            on_lost=lambda: self.failover_metadata.broker_lost(leader_id),
            security=self._node.security.to_brokers,
        )

    def _log_dir_failed(self, directory: LogDir, error: OSError) -> None:
        if all(not each.online for each in self.partitions.log_dirs):
            reason = f"every log directory has failed; the last was {directory.path}: {error.strerror}"
            self._node.fatal(FatalError(ExitCode.DISK_FAILED, reason))
        else:
            self.lifecycle.log_dir_failed(directory.directory_id)
