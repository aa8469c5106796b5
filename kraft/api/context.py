"""What a request handler is given of its node. (What it is given of the request is in request_context.py.)

    NodeContext         what every node has
    BrokerContext       the broker's parts, and the node
    ControllerContext   the controller's parts, and the node

A handler's signature says which of them it needs, and its column in the table (row.py) which of them it gets.
`kraft/node/node.py` makes them, so handlers import none of the node's wiring.
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from concurrent.futures import Executor
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from data_plane.coordinator.groups.service import GroupCoordinator
from data_plane.coordinator.transactions.marker_writer import MarkerWriter
from data_plane.coordinator.transactions.service import TransactionCoordinator
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.quotas.client_quotas import ClientQuotas
from data_plane.replication.record_counters import RecordCounters
from data_plane.replication.replica_manager import ReplicaManager
from fetch.delayed_fetch import FetchService
from fetch.fetcher_manager import ReplicaFetcherManager
from kraft.api.long_work import LongWork
from kraft.api.metadata_reader import MetadataReader
from kraft.broker.failover_metadata import FailoverMetadata
from kraft.broker.lifecycle import BrokerLifecycle
from kraft.broker.producer_ids import ProducerIds
from kraft.broker.scram_users import ScramUsers
from kraft.broker.txn_verification import TransactionVerifier
from kraft.config.node_config import Config
from kraft.monitoring.client_telemetry import ClientTelemetry
from kraft.monitoring.request_metrics import RequestMetrics
from kraft.monitoring.stall_watch import LoopHealth
from kraft.net.sasl import LoginRules
from kraft.peers.broker_channels import BrokerChannels
from kraft.peers.controller_channel import ControllerChannel
from kraft.peers.raft_driver import RaftDriver
from metadata_quorum.controller.controller import QuorumController
from metadata_quorum.foundation.blocking import MayBlock, Result
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.metadata_cache import MetadataCache
from metadata_quorum.security.authorizer import Authorizer

MAX_LONG_CHECKS: Final = 2
"""At a time, because no budget counts the memory into which they decompress."""
MAX_SEARCHES: Final = 2
"""At a time, because others need the executor's threads too."""
OUTSIDE_THE_LOOP: Final = MayBlock("in the executor")


@dataclass(slots=True, kw_only=True)
class NodeContext:
    """A node of any role, as its handlers see it."""

    node_id: int
    cluster_id: str
    config: Config
    loop: asyncio.AbstractEventLoop
    long_work: LongWork
    """Requests that take many turns of the loop, of any listener."""
    random: random.Random
    now_ms: Callable[[], int]
    """The wall clock."""
    stopwatch: Callable[[], float] = lambda: 0.0
    """Seconds, finely enough to measure one request."""
    metadata_cache: MetadataCache = field(default_factory=MetadataCache)
    """The metadata that this node has acted on."""
    committed_metadata: MetadataCache = field(default_factory=MetadataCache)
    """All that it knows to be committed; ahead of the other while a broker acts on a change."""
    controller_channel: ControllerChannel
    """The channel to the active controller, on whichever node that is."""
    logins: Mapping[str, LoginRules] = field(default_factory=dict)
    """How clients log in, by listener; listeners that ask for no login are not in it."""
    certificate_ends: Mapping[str, int] = field(default_factory=dict)
    """When the node's certificate for a listener ends, in seconds since 1970."""
    scram_users: ScramUsers
    authorizer: Authorizer | None = None
    """Replaced when an access control entry changes; None where `authorizer.class.name` is empty."""
    quotas: ClientQuotas | None = None
    """None while nothing is limited."""
    loop_health: LoopHealth = field(default_factory=LoopHealth)
    requests: RequestMetrics = field(default_factory=RequestMetrics)
    """How many requests came, their outcomes, and where their time went."""
    client_telemetry: ClientTelemetry = field(default_factory=ClientTelemetry)
    """The metrics that clients push (KIP-714)."""
    blocking_threads: Executor | None = None
    """For what may wait for a device. What computes for a client (a long response, a view of the cluster) is
    done by the loop's default executor: no flush and no read waits for it."""
    faults: Mapping[str, int] = field(default_factory=dict)
    """How often work has failed because of a bug, by the place in the code
    (metadata_quorum/foundation/supervision.py)."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata that this node has acted on."""
        return self.metadata_cache.image

    def blocking(self, work: Callable[[MayBlock], Result], /) -> asyncio.Future[Result]:
        """Run `work`, which may block, outside the loop."""
        return self.loop.run_in_executor(self.blocking_threads, work, OUTSIDE_THE_LOOP)

    def computing(self, work: Callable[[], Result], /) -> asyncio.Future[Result]:
        """Run `work`, which takes long and waits for no device, outside the loop."""
        return self.loop.run_in_executor(None, work)


@dataclass(slots=True, kw_only=True)
class BrokerContext:
    """A broker, as the handlers of its listeners see it."""

    node: NodeContext
    replica_manager: ReplicaManager
    fetch_service: FetchService
    fetchers: ReplicaFetcherManager
    fetch_piece_bytes: Callable[[], int]
    """How much of a log to read at once for one answer (kraft/net/unread.py)."""
    group_coordinator: GroupCoordinator
    transaction_coordinator: TransactionCoordinator
    transaction_verifier: TransactionVerifier
    marker_writer: MarkerWriter
    producer_ids: ProducerIds
    console_channels: BrokerChannels
    """To the other brokers, only for what is shown to people. A broker of Apache Kafka may close the
    connection upon such a request, so nothing that matters may share it."""
    lifecycle: BrokerLifecycle
    failover_metadata: FailoverMetadata
    """Metadata for clients while brokers die, or may have died."""
    timer: WheelTimer
    """The timer for the many deadlines of waiting requests."""
    long_checks: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, MAX_LONG_CHECKS))
    """Held while produced records are validated in another thread."""
    searches: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, MAX_SEARCHES))
    """Held while offsets are searched by time, or batch headers read for lags."""
    long_record_counts: asyncio.Lock = field(default_factory=asyncio.Lock)
    """Held by a long RecordCounts request: until it is answered it takes some 20 MB."""
    record_counters: RecordCounters = field(default_factory=RecordCounters)
    node_view: asyncio.Task[bytes] | None = None
    """The view of this broker that is being made, or was a moment ago, for all nodes that ask meanwhile."""
    creating_topics: dict[str, asyncio.Task[bool]] = field(default_factory=dict)
    """Topics that are just being created on demand."""

    @property
    def suspected_brokers(self) -> Collection[int]:
        """Brokers that may just have died: no client should be sent to them."""
        return self.failover_metadata.suspected

    @property
    def client_image(self) -> MetadataImage:
        """The metadata for clients that look for a leader or a coordinator."""
        return self.failover_metadata.client_image(self.node.metadata_cache.image)


@dataclass(slots=True, kw_only=True)
class ControllerContext:
    """A controller, active or not, as the handlers of its listeners and of forwarded requests see it."""

    node: NodeContext
    quorum_controller: QuorumController
    raft: RaftDriver
    metadata_reader: MetadataReader
    """The metadata log, for the brokers that fetch it."""
    broker_heard: Callable[[int], None]
    """Called with the broker's id for every heartbeat."""
    group_config_changes: asyncio.Lock = field(default_factory=asyncio.Lock)
    """One at a time, from when it is judged by a group's values until it has become some of them."""
