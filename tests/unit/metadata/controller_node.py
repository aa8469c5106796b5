"""A controller over a Raft of one voter, on virtual time."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from random import Random
from uuid import UUID

from chaos.sim.disk import SimDisk
from metadata_quorum.controller.controller import QuorumController
from metadata_quorum.controller.controller_config import ControllerConfig
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.blocking import NOT_SERVING
from metadata_quorum.foundation.model import Endpoint
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.protocol.requests import (
    BrokerHeartbeatRequest,
    RegisterBrokerRequest,
)
from metadata_quorum.raft.port import Applied, ProposalOutcome
from tests.support.virtual_loop import run_virtually

CLUSTER = "test-cluster"


class OneVoter:
    """Raft with a single voter: commits at the next turn of the loop, unless the test holds it."""

    node_id = 1

    def __init__(self, machine: MetadataStateMachine) -> None:
        self.machine = machine
        self.is_leader = False
        self.term = 0
        self.index = 0
        self.held = False
        self._waiting: list[tuple[bytes, int, Callable[[Applied], None]]] = []

    @property
    def leader_id(self) -> int:
        return 1 if self.is_leader else -1

    def propose(self, command: bytes, on_done: Callable[[Applied], None]) -> None:
        loop = asyncio.get_event_loop()
        if not self.is_leader:
            loop.call_soon(on_done, Applied(ProposalOutcome.REFUSED))
            return
        self._waiting.append((command, self.term, on_done))
        if not self.held:
            loop.call_soon(self.commit)

    def commit(self) -> None:
        waiting, self._waiting = self._waiting, []
        for command, term, on_done in waiting:
            self.index += 1
            result = self.machine.apply(self.index, term, command)
            on_done(Applied(ProposalOutcome.COMMITTED, self.index, term, result))

    def expire(self) -> None:
        """What was proposed ends UNKNOWN, and may still be committed."""
        for _, _, on_done in self._waiting:
            on_done(Applied(ProposalOutcome.UNKNOWN))
        self._waiting = [(command, term, lambda applied: None) for command, term, _ in self._waiting]

    def lead(self) -> None:
        self.term += 1
        self.is_leader = True
        self.machine.became_leader(self.term)

    def step_down(self) -> None:
        self.is_leader = False
        waiting, self._waiting = self._waiting, []
        for _, _, on_done in waiting:
            on_done(Applied(ProposalOutcome.UNKNOWN))
        self.machine.lost_leadership(self.term)


class Node:
    """A controller with everything it needs."""

    def __init__(self, **config: object) -> None:
        self.machine = MetadataStateMachine(MetadataLog(SimDisk(), "/node/__cluster_metadata-0"))
        self.raft = OneVoter(self.machine)
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
        await self.controller.wait_active()

    async def register(self, broker: int, incarnation: int = 1, previous: int = -1) -> int:
        return await self.controller.register_broker(
            RegisterBrokerRequest(
                broker_id=broker,
                cluster_id=CLUSTER,
                incarnation_id=UUID(int=broker << 64 | incarnation),
                endpoints=(Endpoint("PLAINTEXT", "localhost", 9091 + broker),),
                previous_broker_epoch=previous,
            )
        )

    async def beat(self, broker: int, **wants: bool):
        now = self.controller.image
        return await self.controller.heartbeat(
            BrokerHeartbeatRequest(broker, now.brokers[broker].broker_epoch, now.offset, **wants)
        )

    async def brokers(self, *ids: int) -> None:
        for broker in ids:
            await self.register(broker)
            reply = await self.beat(broker)
            assert not reply.is_fenced

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
