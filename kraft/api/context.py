"""What a request handler is given of the node it runs in; of the request: request_context.py.

`kraft/node/node.py` fills a `NodeContext` once at the start; handlers reach everything through it, so they
import none of the node's wiring. Whatever a role does not have is None (a broker-only node has no
controller, a controller-only node no partitions).
"""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Final

from kraft.monitoring.stall_watch import LoopHealth
from metadata_quorum.foundation.blocking import MayBlock, Result
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

if TYPE_CHECKING:
    from data_plane.coordinator.transactions.marker_writer import MarkerWriter
    from data_plane.coordinator.transactions.service import TransactionCoordinator
    from data_plane.purgatory.timing_wheel import WheelTimer
    from data_plane.quotas.client_quotas import ClientQuotas
    from data_plane.replication.replica_manager import ReplicaManager
    from fetch.delayed_fetch import FetchService
    from kraft.api.metadata_reader import MetadataReader
    from kraft.broker.failover_metadata import FailoverMetadata
    from kraft.broker.producer_ids import ProducerIds
    from kraft.broker.scram_users import ScramUsers
    from kraft.broker.txn_verification import TransactionVerifier
    from kraft.config.node_config import Config
    from kraft.net.sasl import LoginRules
    from kraft.peers.controller_channel import ControllerChannel
    from metadata_quorum.metadata.image import MetadataImage
    from metadata_quorum.metadata.metadata_cache import MetadataCache
    from metadata_quorum.security.authorizer import Authorizer

_LONG_CHECKS: Final = 2
"""At a time: what they unpack is memory that no budget counts."""

MOST_SEARCHES: Final = 2
OUTSIDE_THE_LOOP: Final = MayBlock("in the executor")


@dataclass(slots=True)
class NodeContext:
    """A node as its handlers see it."""

    node_id: int
    cluster_id: str
    config: Config
    loop: asyncio.AbstractEventLoop
    random: random.Random
    now_ms: Callable[[], int]
    """The wall clock."""
    metadata_cache: MetadataCache
    controller_channel: ControllerChannel
    """The way to the active controller, on whichever node it is."""
    replica_manager: ReplicaManager | None = None
    fetches: FetchService | None = None
    timer: WheelTimer | None = None
    """For the many deadlines of waiting requests."""
    controller: Any = None
    groups: Any = None
    producer_ids: ProducerIds | None = None
    transactions: TransactionCoordinator | None = None
    markers: MarkerWriter | None = None
    transaction_verifier: TransactionVerifier | None = None
    long_checks: asyncio.Semaphore = field(default_factory=lambda: asyncio.Semaphore(_LONG_CHECKS))
    """Of records that producers sent, which other threads look at."""
    failover_metadata: FailoverMetadata | None = None
    """Brokers that die or may have died, on a broker."""
    logins: Mapping[str, LoginRules] = field(default_factory=dict)
    """How clients log in, by listener; those that ask for no login are not in it."""
    scram_users: ScramUsers | None = None
    authorizer: Authorizer | None = None
    """The rights of everybody as of now; None where nobody's are asked for."""
    stopwatch: Callable[[], float] = lambda: 0.0
    """Seconds, finely enough to tell how long a request takes."""
    quotas: ClientQuotas | None = None
    """None while nothing is limited."""
    raft: Any = None
    broker_epoch: Callable[[], int] = lambda: -1
    """Of this broker's current registration, -1 where there is none."""
    metadata_reader: MetadataReader | None = None
    """The metadata log, on nodes that have a controller."""
    fetch_room: Callable[[], int] | None = None
    """Bytes of records that one more answer to a consumer may have (kraft/net/unread.py)."""
    loop_health: LoopHealth = field(default_factory=LoopHealth)
    faults: Mapping[str, int] = field(default_factory=dict)
    """How often work has failed of a bug, by the place in the code
    (metadata_quorum/foundation/supervision.py)."""
    searches: asyncio.Semaphore = field(default_factory=partial(asyncio.Semaphore, MOST_SEARCHES))
    """For offsets by time."""
    creating_topics: dict[str, asyncio.Task[bool]] = field(default_factory=dict)
    """Topics that are just being created on demand."""

    @property
    def image(self) -> MetadataImage:
        """The newest committed metadata that this node has acted on."""
        return self.metadata_cache.image

    @property
    def suspected_brokers(self) -> Collection[int]:
        """Those that may just have died: no client should be sent to them."""
        return () if self.failover_metadata is None else self.failover_metadata.suspected

    @property
    def client_image(self) -> MetadataImage:
        """The metadata as clients are told it who ask whom to go to."""
        return (
            self.image if self.failover_metadata is None else self.failover_metadata.client_image(self.image)
        )

    @property
    def deadlines(self) -> WheelTimer:
        """The timer of a broker."""
        if self.timer is None:
            raise BrokerError(ErrorCode.BROKER_NOT_AVAILABLE)
        return self.timer

    def blocking(self, work: Callable[[MayBlock], Result], /) -> asyncio.Future[Result]:
        """Run what blocks outside the loop."""
        return self.loop.run_in_executor(None, work, OUTSIDE_THE_LOOP)
