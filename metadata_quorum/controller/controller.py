"""The active controller: takes requests, proposes commands, answers when they are committed.

    api handler -> here: add ids and random choices -> proposer.py -> Raft -> state_machine.py decides
                -> reply of the decision -> api handler

Every controller node has one. Only the one whose own claim has been applied in the current term is active;
all others answer NOT_CONTROLLER. Nothing is decided here that another controller would have to know: what is
kept here (sessions, connections, timers) ends with the term and begins empty at the next claim.

    server -> connection_up/broken, heartbeat -> broker_sessions.py, broker_liveness.py -> FenceBroker
    heartbeat -> broker_heartbeat.py -> FenceBroker, UnfenceBroker, BeginControlledShutdown
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from functools import partial
from random import Random
from typing import TypeVar, cast
from uuid import UUID

from metadata_quorum.controller.broker_heartbeat import is_shutting_down, next_step
from metadata_quorum.controller.broker_liveness import BrokerLiveness
from metadata_quorum.controller.broker_sessions import BrokerSessions, Link
from metadata_quorum.controller.controller_config import ControllerConfig
from metadata_quorum.controller.leader_rebalance import LeaderRebalance
from metadata_quorum.controller.proposer import NOT_ACTIVE, Proposer
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.decisions.brokers import check_protocols, whole_run
from metadata_quorum.decisions.decision import check_broker_epoch
from metadata_quorum.decisions.features import check_voters
from metadata_quorum.decisions.table import decide
from metadata_quorum.foundation.blocking import Blocking
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import KNOWS_CONTROLLERS, METADATA_VERSION
from metadata_quorum.foundation.model import (
    ZERO_UUID,
    BrokerRegistration,
    Endpoint,
    FeatureRange,
    TopicPartition,
)
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import endpoint_fields, feature_fields
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol.replies import (
    BrokerHeartbeatReply,
    ConfigResult,
    DirectoryResult,
    ElectionResult,
    IsrResult,
    ProducerIdBlock,
    QuotaResult,
    ReassignmentResult,
    TopicResult,
)
from metadata_quorum.protocol.requests import (
    BrokerHeartbeatRequest,
    CreatablePartitions,
    CreatableTopic,
    RegisterBrokerRequest,
)
from metadata_quorum.raft.port import Raft
from metadata_quorum.security.scram import DECOY_SECRET_BYTES

ReplyT = TypeVar("ReplyT")

log = logging.getLogger(__name__)


class QuorumController:
    """One per controller node. All calls on the node's event loop."""

    def __init__(
        self,
        node_id: int,
        raft: Raft,
        state_machine: MetadataStateMachine,
        config: ControllerConfig,
        *,
        loop: asyncio.AbstractEventLoop,
        random: Random,
        now_ms: Callable[[], int],
        blocking: Blocking,
    ) -> None:
        self.node_id = node_id
        self.config = config
        self._raft = raft
        self._state_machine = state_machine
        self._loop = loop
        self._random = random
        self._blocking = blocking
        self._proposer = Proposer(raft, loop, now_ms, config.request_timeout_ms)
        sessions = BrokerSessions(config.broker_session_timeout_ms / 1000, config.link_grace_ms / 1000)
        self._liveness = BrokerLiveness(sessions, loop, state_machine, self._propose_fence)
        self._rebalance = LeaderRebalance(
            config.leader_imbalance_check_interval_seconds,
            loop,
            state_machine,
            self._proposer.submit,
            blocking,
        )
        state_machine.leadership = self

    @property
    def image(self) -> MetadataImage:
        """Committed metadata as this node has applied it."""
        return self._state_machine.image

    @property
    def active_image(self) -> MetadataImage:
        """The image on the active controller. Raises `BrokerError`, NOT_CONTROLLER, on any other."""
        self._proposer.check_active()
        return self.image

    @property
    def is_active(self) -> bool:
        return self._proposer.is_active

    @property
    def epoch(self) -> int:
        """Controller epoch: the term it is active in, -1 while it is not."""
        return self._proposer.term

    # -- leadership -----------------------------------------------------------------

    def became_leader(self, term: int) -> None:
        """This node leads Raft; it is active as soon as its own claim is applied."""
        self._loop.call_soon(self._claim, term)

    def lost_leadership(self, term: int) -> None:
        """Raft has ended the pending proposals; the soft state is dropped."""
        if self._proposer.term == term:
            log.info("controller %d steps down, term %d is over", self.node_id, term)
            self._deactivate()

    def close(self) -> None:
        """The node stops."""
        self._deactivate()

    def _claim(self, term: int) -> None:
        if not self._raft.is_leader or self._raft.term != term:
            return
        claim = c.ClaimLeadership(
            leader_id=self.node_id,
            voters=self.config.voters,
            bootstrap_features=tuple(
                c.FeatureLevel(name=name, level=level) for name, level in self.config.features.items()
            ),
            bootstrap_min_insync_replicas=self.config.min_insync_replicas,
            bootstrap_users=self.config.bootstrap_users,
            decoy_secret=self._random.randbytes(DECOY_SECRET_BYTES).hex(),
        )
        self._proposer.claim(term, claim)

    def claimed(self, leader_id: int, term: int) -> None:
        """The claim has been applied: ours, in the term that we still lead, makes us active."""
        if leader_id == self.node_id and self._raft.is_leader and self._raft.term == term:
            self._activate(term)

    def _activate(self, term: int) -> None:
        self._proposer.term = term
        image = self.image
        log.info("controller %d is active in term %d at offset %d", self.node_id, term, image.offset)
        self._liveness.begin()
        if self.config.auto_leader_rebalance_enable:
            self._rebalance.begin()

    def _deactivate(self) -> None:
        self._proposer.term = NOT_ACTIVE
        self._liveness.end()
        self._rebalance.end()

    # -- liveness of brokers, also on standbys -----------------------------------------

    def connection_up(self, broker_id: int, broker_epoch: int, number: int) -> Link:
        """Heartbeats of this incarnation come on another connection, of that `number`. Every call is to be
        followed, at the connection's end, by one of `connection_broken` or `connection_closed`."""
        return self._liveness.sessions.connection_up(broker_id, broker_epoch, number)

    def is_replaced(self, link: Link) -> bool:
        """Whether heartbeats of its incarnation come on a newer connection."""
        return self._liveness.sessions.is_replaced(link)

    def connection_broken(self, link: Link) -> bool:
        """The other end closed or reset such a connection. Whether the broker's process has probably died."""
        return self._liveness.connection_broken(link)

    def process_gone(self, broker_id: int) -> None:
        """After `connection_broken`: its process has certainly ended."""
        self._liveness.sessions.process_gone(broker_id, self._loop.time())
        self._liveness.arm()

    def connection_closed(self, link: Link) -> None:
        """We closed such a connection ourselves."""
        self._liveness.connection_closed(link)

    def _propose_fence(self, broker: BrokerRegistration, on_done: Callable[[], None]) -> None:
        command = c.FenceBroker(broker_id=broker.broker_id, broker_epoch=broker.broker_epoch)
        self._proposer.submit(command, on_done)

    # -- brokers ---------------------------------------------------------------------

    def check_registrant(self, cluster_id: str) -> None:
        """Whether a broker may register here at all. Raises `BrokerError`: NOT_CONTROLLER,
        INCONSISTENT_CLUSTER_ID."""
        self._proposer.check_active()
        if cluster_id != self.config.cluster_id:
            raise BrokerError(
                ErrorCode.INCONSISTENT_CLUSTER_ID,
                f"Expected cluster ID {self.config.cluster_id}, but got cluster ID {cluster_id}",
            )

    async def register_broker(self, request: RegisterBrokerRequest) -> int:
        """Register a broker's process; returns its broker epoch. Raises `BrokerError`."""
        self.check_registrant(request.cluster_id)
        check_protocols(request.endpoints)
        known = self.image.brokers.get(request.broker_id)
        replaces = -1
        if known is not None and not self._liveness.sessions.valid(known.broker_id, self._loop.time()):
            replaces = known.broker_epoch
        reply = await self._proposer.propose(
            c.RegisterBroker(
                broker_id=request.broker_id,
                incarnation_id=request.incarnation_id,
                endpoints=endpoint_fields(request.endpoints),
                features=feature_fields(request.features),
                rack=request.rack,
                log_dirs=request.log_dirs,
                previous_broker_epoch=whole_run(known, request),
                replaces_epoch=replaces,
            )
        )
        if self.is_active:  # else it was committed in the last moment
            self._liveness.sessions.register(request.broker_id, reply.broker_epoch, self._loop.time())
        return reply.broker_epoch

    async def heartbeat(self, request: BrokerHeartbeatRequest) -> BrokerHeartbeatReply:
        """Keep the session alive; unfence, fence or shut down the broker as it asks and the rules allow.
        Raises `BrokerError`: NOT_CONTROLLER, STALE_BROKER_EPOCH."""
        self._liveness.sessions.heartbeat_came(request.broker_id, self._loop.time())
        self._proposer.check_active()
        broker = check_broker_epoch(self.image, request.broker_id, request.broker_epoch)
        sessions = self._liveness.sessions
        sessions.touch(broker.broker_id, self._loop.time(), request.current_metadata_offset)
        caught_up = request.current_metadata_offset >= broker.broker_epoch
        if not frozenset(request.offline_log_dirs).isdisjoint(broker.log_dirs):
            # Before anything else: an unfenced broker may be elected.
            await self._proposer.propose(
                c.FailLogDirs(
                    broker_id=broker.broker_id,
                    broker_epoch=broker.broker_epoch,
                    offline=request.offline_log_dirs,
                )
            )
            broker = check_broker_epoch(self.image, request.broker_id, request.broker_epoch)
        image = self.image
        shutdown_seen = is_shutting_down(broker, request) and sessions.shutdown_seen(
            broker.broker_id, (each.broker_id for each in image.brokers.values() if each.active)
        )
        step = partial(next_step, image, broker, request, caught_up=caught_up, shutdown_seen=shutdown_seen)
        # The last step of a shutdown looks at every partition.
        command = await self._blocking(lambda _: step()) if shutdown_seen else step()
        if command is not None:
            await self._proposer.propose(command)
        now = self.image.brokers.get(broker.broker_id)
        if now is None or now.broker_epoch != request.broker_epoch:
            raise BrokerError(ErrorCode.STALE_BROKER_EPOCH, "the broker was re-registered meanwhile")
        return BrokerHeartbeatReply(
            is_caught_up=caught_up,
            is_fenced=now.fenced,
            should_shut_down=request.want_shut_down and now.fenced,
        )

    async def unregister_broker(self, broker_id: int) -> None:
        """Remove a broker. Raises `BrokerError`."""
        await self._proposer.propose(c.UnregisterBroker(broker_id=broker_id))
        self._liveness.sessions.forget(broker_id)

    async def register_controller(
        self,
        controller_id: int,
        incarnation_id: UUID,
        endpoints: Sequence[Endpoint],
        features: Sequence[FeatureRange] = (),
    ) -> None:
        """Register a controller's process. Raises `BrokerError`."""
        if self.active_image.features.get(METADATA_VERSION, 0) < KNOWS_CONTROLLERS:
            why = "The current MetadataVersion is too old to support controller registrations."
            raise BrokerError(ErrorCode.UNSUPPORTED_VERSION, why)
        check_protocols(endpoints)
        await self._proposer.propose(
            c.RegisterController(
                controller_id=controller_id,
                incarnation_id=incarnation_id,
                endpoints=endpoint_fields(endpoints),
                features=feature_fields(features),
            )
        )

    # -- topics ------------------------------------------------------------------------

    async def create_topics(
        self, topics: Sequence[CreatableTopic], *, validate_only: bool = False, timeout_ms: int | None = None
    ) -> tuple[TopicResult, ...]:
        """One result per topic, in order."""
        command = c.CreateTopics(topics=tuple(self._new_topic(topic) for topic in topics))
        return await self._run(command, validate_only, timeout_ms)

    def _new_topic(self, topic: CreatableTopic) -> c.NewTopic:
        partitions, replication_factor = topic.num_partitions, topic.replication_factor
        if not topic.assignments:
            partitions = self.config.num_partitions if partitions == -1 else partitions
            if replication_factor == -1:
                replication_factor = self.config.default_replication_factor
        return c.NewTopic(
            name=topic.name,
            topic_id=self._new_uuid(),
            partitions=partitions,
            replication_factor=replication_factor,
            assignments=tuple(c.Assignment(partition=p, broker_ids=ids) for p, ids in topic.assignments),
            configs=tuple(c.ConfigEntry(name=name, value=value) for name, value in topic.configs.items()),
            placement_start=self._random.getrandbits(16),
        )

    def _new_uuid(self) -> UUID:
        while True:
            candidate = UUID(int=self._random.getrandbits(128), version=4)
            if candidate not in self.image.topics_by_id and candidate != ZERO_UUID:
                return candidate

    async def delete_topics(
        self, topics: Sequence[str | UUID], *, timeout_ms: int | None = None
    ) -> tuple[TopicResult, ...]:
        """Delete topics, named by name or id; one result per topic, in order."""
        self._proposer.check_active()
        ids = [self._topic_id(topic) for topic in topics]
        command = c.DeleteTopics(topic_ids=tuple(topic_id for topic_id in ids if topic_id is not None))
        found = iter(await self._run(command, False, timeout_ms))
        results = []
        for topic, topic_id in zip(topics, ids, strict=True):
            result = TopicResult("") if topic_id is None else next(found)
            if isinstance(topic, str) and (topic_id is None or result.error is not ErrorCode.NONE):
                result = TopicResult(
                    topic,
                    error=ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
                    message="This server does not host this topic-partition.",
                )
            results.append(result)
        return tuple(results)

    def _topic_id(self, topic: str | UUID) -> UUID | None:
        if isinstance(topic, UUID):
            return topic
        known = self.image.topics_by_name.get(topic)
        return None if known is None else known.id

    async def create_partitions(
        self,
        topics: Sequence[CreatablePartitions],
        *,
        validate_only: bool = False,
        timeout_ms: int | None = None,
    ) -> tuple[TopicResult, ...]:
        """One result per topic, in order."""
        command = c.CreatePartitions(
            topics=tuple(
                c.NewPartitions(
                    name=topic.name,
                    count=topic.count,
                    assignments=tuple(
                        c.Assignment(partition=i, broker_ids=ids) for i, ids in enumerate(topic.assignments)
                    ),
                    placement_start=self._random.getrandbits(16),
                )
                for topic in topics
            )
        )
        return await self._run(command, validate_only, timeout_ms)

    # -- partitions ----------------------------------------------------------------------

    async def alter_partition(
        self, broker_id: int, broker_epoch: int, changes: Sequence[c.IsrChange]
    ) -> tuple[IsrResult, ...]:
        """One result per change, in order. STALE_BROKER_EPOCH for the whole is raised."""
        command = c.AlterPartitions(broker_id=broker_id, broker_epoch=broker_epoch, changes=tuple(changes))
        return await self._proposer.propose(command)

    async def assign_replicas_to_dirs(
        self, broker_id: int, broker_epoch: int, assignments: Sequence[c.DirectoryAssignment]
    ) -> tuple[DirectoryResult, ...]:
        """One result per replica, in order. STALE_BROKER_EPOCH for the whole is raised."""
        command = c.AssignReplicasToDirs(
            broker_id=broker_id,
            broker_epoch=broker_epoch,
            assignments=tuple(assignments),
            asks_for_origin=True,
            may_be_unclean=True,
        )
        return await self._proposer.propose(command)

    async def elect_leaders(
        self,
        election_type: int,
        partitions: Sequence[TopicPartition] | None,
        *,
        timeout_ms: int | None = None,
    ) -> tuple[ElectionResult, ...]:
        """ELECTION_PREFERRED or ELECTION_UNCLEAN in `partitions`; None means all, and then those that
        need no election are left out of the answer. Raises `BrokerError`."""
        if election_type not in (c.ELECTION_PREFERRED, c.ELECTION_UNCLEAN):
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown election type {election_type}")
        self._proposer.check_active()
        names = tuple(c.PartitionName(topic=tp.topic, partition=tp.partition) for tp in partitions or ())
        command = c.ElectLeaders(
            election_type=election_type, partitions=names, all_partitions=partitions is None
        )
        return await self._run(command, False, timeout_ms)

    async def alter_reassignments(
        self,
        reassignments: Sequence[c.Reassignment],
        *,
        may_resize: bool = True,
        timeout_ms: int | None = None,
    ) -> tuple[ReassignmentResult, ...]:
        """One result per partition, in order."""
        command = c.AlterReassignments(
            reassignments=tuple(reassignments),
            allow_replication_factor_change=may_resize,
            may_be_unclean=True,
        )
        return await self._run(command, False, timeout_ms)

    # -- configuration, producer ids -----------------------------------------------------

    async def incremental_alter_configs(
        self, changes: Sequence[c.ConfigChange], *, validate_only: bool = False
    ) -> tuple[ConfigResult, ...]:
        """One result per resource, in order."""
        command = c.IncrementalAlterConfigs(
            changes=tuple(changes), controllers=self.config.voters, bounds_lists=True
        )
        return await self._run(command, validate_only, None)

    async def alter_configs(
        self, resources: Sequence[c.ConfigReplacement], *, validate_only: bool = False
    ) -> tuple[ConfigResult, ...]:
        """One result per resource, in order."""
        command = c.AlterConfigs(resources=tuple(resources), controllers=self.config.voters)
        return await self._run(command, validate_only, None)

    async def allocate_producer_ids(self, broker_id: int, broker_epoch: int) -> ProducerIdBlock:
        """A block of producer ids that no other broker has. Raises `BrokerError`."""
        command = c.AllocateProducerIds(broker_id=broker_id, broker_epoch=broker_epoch)
        return await self._proposer.propose(command)

    async def update_features(
        self,
        updates: Sequence[c.FeatureUpdate],
        supported: Sequence[FeatureRange],
        *,
        validate_only: bool = False,
    ) -> None:
        """All or none: raises `BrokerError`, INVALID_UPDATE_VERSION. `supported`: what this node can run."""
        command = c.UpdateFeatures(
            controller_id=self.node_id,
            updates=tuple(updates),
            supported=feature_fields(supported),
            min_insync_replicas=self.config.min_insync_replicas,
            takes_leaderless=True,
        )
        check_voters(self.active_image, command, self.config.voters)
        await self._run(command, validate_only, None)

    async def alter_client_quotas(
        self, alterations: Sequence[c.QuotaAlteration], *, validate_only: bool = False
    ) -> tuple[QuotaResult, ...]:
        """One result per entity."""
        return await self._run(c.AlterClientQuotas(alterations=tuple(alterations)), validate_only, None)

    # -- proposing -------------------------------------------------------------------------

    async def propose(self, command: c.Command[ReplyT]) -> ReplyT:
        """The decision's reply, for commands that need no stamps of ours. Raises `BrokerError`."""
        return await self._proposer.propose(command)

    async def _run(self, command: c.Command[ReplyT], validate_only: bool, timeout_ms: int | None) -> ReplyT:
        """Propose, or only decide on what is committed now."""
        self._proposer.check_active()
        if not validate_only:
            return await self._proposer.propose(command, timeout_ms)
        image = self.image
        decision = await self._blocking(lambda _: decide(image, command))
        return cast(ReplyT, decision.reply)
