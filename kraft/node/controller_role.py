"""The controller role of a node: one voter of the quorum, and the controller that is active where it leads.

    RaftTransport -> Raft voter -> state machine -> metadata log
                                        `-> QuorumController, MetadataReader

Built from the bottom up; node.py connects it to the listeners and, on a combined node, to the broker role.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from typing import Final

from kraft.api.context import ControllerContext, NodeContext
from kraft.api.metadata_reader import MetadataReader
from kraft.net.connection_security import ConnectionSecurity
from kraft.node import settings
from kraft.node.controller_registrar import ControllerRegistrar
from kraft.node.environment import NodeEnvironment
from kraft.peers.broker_addresses import BrokerAddresses
from kraft.peers.liveness_probe import LivenessProbe
from kraft.peers.raft_driver import BackgroundThreads, RaftDriver
from kraft.peers.raft_transport import RaftTransport
from metadata_quorum.controller.controller import QuorumController
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.blocking import Blocking
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.features import check_supported
from metadata_quorum.foundation.model import METADATA_TOPIC
from metadata_quorum.foundation.supervision import ended, report_fault, supervised
from metadata_quorum.foundation.uuids import random_uuid
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.metadata.records import UserScramCredentialRecord
from metadata_quorum.raft.voter import SyncObjRaft

log = logging.getLogger(__name__)

MUTE_FIRST_S: Final = 5.0
"""Before the log says that a new directory keeps this controller from voting, which rarely takes a second."""
MUTE_AGAIN_S: Final = 30.0


class ControllerRole:
    """See the module."""

    def __init__(
        self,
        node: NodeContext,
        environment: NodeEnvironment,
        blocking: Blocking,
        to_controllers: ConnectionSecurity,
        bootstrap_users: Sequence[UserScramCredentialRecord],
    ) -> None:
        """`bootstrap_users`: written with the first record of a new cluster."""
        config, cluster_id, loop, disk = node.config, node.cluster_id, node.loop, environment.disk
        self._metadata_log = MetadataLog(
            disk,
            f"{config.metadata_dir}/{METADATA_TOPIC}-0",
            segment_bytes=config.metadata_log_segment_bytes,
        )
        self.state_machine = MetadataStateMachine(self._metadata_log, partial(report_fault, loop))
        self._transport = RaftTransport(
            cluster_id=cluster_id,
            node_id=config.node_id,
            addresses={voter.node_id: (voter.host, voter.port) for voter in config.voters},
            random=node.random,
            security=to_controllers,
        )
        self.state_machine.subscribe(partial(_check_levels, environment.boundary.end_node))
        self._background = BackgroundThreads(loop)
        self.voter = SyncObjRaft(
            config.node_id,
            [voter.node_id for voter in config.voters],
            cluster_id,
            disk,
            config.raft_dir,
            self._transport,
            self.state_machine,
            loop.time,
            node.random,
            settings.raft_config(config),
            self._background,
        )
        self.raft = self._background.driver = RaftDriver(self.voter, loop, environment.boundary.end_node)
        self.controller = QuorumController(
            config.node_id,
            self.raft,
            self.state_machine,
            replace(settings.controller_config(config, cluster_id), bootstrap_users=tuple(bootstrap_users)),
            loop=loop,
            random=node.random,
            now_ms=node.now_ms,
            blocking=blocking,
        )
        self.liveness_probe = LivenessProbe(
            loop,
            BrokerAddresses(config, self.state_machine).find,
            self.controller.process_gone,
            config.kraft_controller_link_grace_ms * settings.MS,
        )
        self.metadata_reader = MetadataReader(self._metadata_log, loop)
        self.state_machine.subscribe(lambda delta, image: self.metadata_reader.committed())
        self._registrar = ControllerRegistrar(
            loop,
            config.node_id,
            random_uuid(node.random),
            config.controller_endpoints,
            node.controller_channel,
            lambda: self.raft.leader_id,
            config.controller_quorum_request_timeout_ms * settings.MS,
        )
        self.state_machine.subscribe(self._registrar.take)
        self._loop = loop
        self._mute: asyncio.Task[None] | None = None

    def context(self, node: NodeContext, broker_heard: Callable[[int], None]) -> ControllerContext:
        """The context for the handlers. `broker_heard` is called with the broker's id for every heartbeat."""
        return ControllerContext(
            node=node,
            quorum_controller=self.controller,
            raft=self.raft,
            metadata_reader=self.metadata_reader,
            broker_heard=broker_heard,
        )

    def start(self) -> None:
        self._transport.start(self._loop, self.raft)
        self.raft.wake()
        self._registrar.start()
        if self.voter.is_mute:
            self._mute = supervised(self._loop, self._wait_for_vote(), "a controller without a vote")

    async def _wait_for_vote(self) -> None:
        """Who has replaced a disk would otherwise see a quorum that elects nobody, and no reason for it."""
        await asyncio.sleep(MUTE_FIRST_S)
        while self.voter.is_mute:
            lacking = ", ".join(map(str, self.voter.unconnected))
            log.warning(
                "this controller's directory is new: it has no vote until all others have vouched for it; %s",
                f"it does not reach {lacking}" if lacking else "it reaches all of them",
            )
            await asyncio.sleep(MUTE_AGAIN_S)
        log.info("controller %d has a vote", self.voter.node_id)

    async def stop(self) -> None:
        await ended(self._mute)
        await self._registrar.close()
        self.controller.close()
        await self.liveness_probe.close()
        self.raft.close()
        await self._background.close()
        await self._transport.close()
        self._metadata_log.close()


def _check_levels(
    end_node: Callable[[BaseException], None], delta: MetadataDelta, image: MetadataImage
) -> None:
    """No level is raised that a voter cannot run, but one may come back with an older version. Brokers are
    then refused; a voter would decide otherwise than the others, and as a leader make them stop."""
    if delta.changed_features:
        try:
            check_supported(image.features)
        except FatalError as error:
            end_node(error)
