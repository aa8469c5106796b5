"""A controller over a Raft of one voter, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import count
from random import Random
from uuid import UUID

from chaos.sim.disk import SimDisk
from metadata_quorum.controller.broker_sessions import Link
from metadata_quorum.controller.controller import QuorumController
from metadata_quorum.controller.controller_config import ControllerConfig
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.features import SUPPORTED_FEATURES
from metadata_quorum.foundation.model import Endpoint, FeatureRange
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.protocol.requests import (
    BrokerHeartbeatRequest,
    RegisterBrokerRequest,
)
from tests.support.one_voter import OneVoter
from tests.support.virtual_loop import run_virtually

CLUSTER = "test-cluster"

Ranges = Mapping[str, tuple[int, int]]


class Node:
    """A controller with everything it needs."""

    def __init__(self, **config: object) -> None:
        self.machine = MetadataStateMachine(MetadataLog(SimDisk(), "/node/__cluster_metadata-0"))
        self.raft = OneVoter(self.machine)
        self.links: dict[int, Link] = {}
        self.connections = count()
        """Numbers of connections, in the order in which they are made."""
        """Of each broker the newest connection."""
        self.controller = QuorumController(
            1,
            self.raft,
            self.machine,
            ControllerConfig(CLUSTER, (1, 2, 3), **config),
            loop=asyncio.get_event_loop(),
            random=Random(1),
            now_ms=lambda: 1_700_000_000_000,
            blocking=self._beside,
        )
        self.judged_beside: list[object] = []

    async def _beside(self, work):
        self.judged_beside.append(work(NOT_SERVING))
        return self.judged_beside[-1]

    async def lead(self) -> None:
        self.raft.lead()
        while not self.controller.is_active:  # noqa: ASYNC110 - takes no virtual time
            await asyncio.sleep(0)

    async def register(
        self, broker: int, incarnation: int = 1, previous: int = -1, log_dirs: tuple[UUID, ...] = ()
    ) -> int:
        return await self.controller.register_broker(
            RegisterBrokerRequest(
                broker_id=broker,
                cluster_id=CLUSTER,
                incarnation_id=UUID(int=broker << 64 | incarnation),
                endpoints=(Endpoint("PLAINTEXT", "localhost", 9091 + broker),),
                previous_broker_epoch=previous,
                log_dirs=log_dirs,
            )
        )

    async def beat(self, broker: int, **wants: bool):
        now = self.controller.image
        return await self.controller.heartbeat(
            BrokerHeartbeatRequest(broker, now.brokers[broker].broker_epoch, now.offset, **wants)
        )

    def connection_up(self, broker: int) -> Link:
        """Another one that its present incarnation sends heartbeats on."""
        number = next(self.connections)
        self.links[broker] = self.controller.connection_up(broker, self.epoch(broker), number)
        return self.links[broker]

    def connection_broken(self, broker: int) -> None:
        """The newest."""
        self.controller.connection_broken(self.links[broker])

    def epoch(self, broker: int) -> int:
        return self.controller.image.brokers[broker].broker_epoch

    async def brokers(self, *ids: int) -> None:
        for broker in ids:
            await self.register(broker)
            reply = await self.beat(broker)
            assert not reply.is_fenced

    async def controllers(
        self, *ids: int, incarnation: int = 1, features: Ranges = SUPPORTED_FEATURES
    ) -> None:
        """They register, with the levels that they can run."""
        for node_id in ids:
            await self.controller.register_controller(
                node_id,
                UUID(int=node_id << 64 | incarnation),
                (Endpoint("CONTROLLER", "localhost", 9190 + node_id),),
                tuple(FeatureRange(name, low, high) for name, (low, high) in features.items()),
            )

    def fenced(self, broker: int) -> bool:
        return self.controller.image.brokers[broker].fenced

    async def until(self, condition: Callable[[], bool], within_s: float) -> float:
        """Virtual seconds until the condition holds."""
        loop = asyncio.get_event_loop()
        start = loop.time()
        while not condition():
            assert loop.time() - start <= within_s, "did not happen in time"
            await asyncio.sleep(0.01)
        return loop.time() - start


def virtual(test):
    def run() -> None:
        run_virtually(test())

    run.__name__, run.__doc__, run.__module__ = test.__name__, test.__doc__, test.__module__
    run.pytestmark = getattr(test, "pytestmark", [])
    return run
