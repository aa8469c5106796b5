"""A controller tells the active one of its process, its listeners and the levels that it can run (KIP-919).

    committed metadata -> is our process registered? -> ControllerRegistration -> the leader of Raft

Once per process, and again only when the metadata has another one under our id. Until every voter has
registered, no level is raised (metadata_quorum/decisions/features.py).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final
from uuid import UUID

from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import KNOWS_CONTROLLERS, METADATA_VERSION, SUPPORTED_FEATURES
from metadata_quorum.foundation.model import Endpoint
from metadata_quorum.foundation.supervision import ended, restarted
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

CONTROLLER_REGISTRATION_VERSION: Final = 0

FIRST_PAUSE_S: Final = 0.1
LAST_PAUSE_S: Final = 10.0

log = logging.getLogger(__name__)


class ControllerRegistrar:
    """`take` follows the metadata; `start` registers whenever that has to be done."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        incarnation_id: UUID,
        endpoints: Sequence[Endpoint],
        controller_channel: ControllerChannel,
        leader_id: Callable[[], int],
        timeout_s: float,
    ) -> None:
        """`leader_id`: of Raft, below 0 while none is known."""
        self._loop = loop
        self._node_id = node_id
        self._incarnation_id = incarnation_id
        self._fields = {
            "controller_id": node_id,
            "incarnation_id": incarnation_id,
            "zk_migration_ready": False,
            "listeners": [
                {
                    "name": e.name,
                    "host": e.host,
                    "port": e.port,
                    "security_protocol": int(e.security_protocol),
                }
                for e in endpoints
            ],
            "features": [
                {"name": name, "min_supported_version": low, "max_supported_version": high}
                for name, (low, high) in SUPPORTED_FEATURES.items()
            ],
        }
        self._controller_channel = controller_channel
        self._leader_id = leader_id
        self._timeout_s = timeout_s
        self._is_due = False
        """The metadata can have our registration, and has not."""
        self._epoch = -1
        self._changed = asyncio.Event()
        """There is a new leader, or something to do or to leave."""
        self._task: asyncio.Task[None] | None = None
        self._refusal = ErrorCode.NONE

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        """A listener of the committed metadata."""
        known = image.controllers.get(self._node_id)
        is_ours = known is not None and known.incarnation_id == self._incarnation_id
        is_due = not is_ours and image.features.get(METADATA_VERSION, 0) >= KNOWS_CONTROLLERS
        if is_due != self._is_due or image.epoch != self._epoch:
            self._is_due, self._epoch = is_due, image.epoch
            self._changed.set()

    def start(self) -> None:
        self._task = restarted(self._loop, self._run, "controller-registration")

    async def close(self) -> None:
        await ended(self._task)

    async def _run(self) -> None:
        pause_s = FIRST_PAUSE_S
        while True:
            self._changed.clear()
            if not self._is_due:
                await self._changed.wait()
                pause_s = FIRST_PAUSE_S
                continue
            leader = self._leader_id()
            is_there = self._controller_channel.connected(leader)
            if is_there and await self._register_with(leader):
                # What was committed comes to us by itself. Should another process take our place again and
                # again, so do we: at this pace.
                await self._changed.wait()
                pause_s = FIRST_PAUSE_S
                if self._is_due:
                    await asyncio.sleep(pause_s)
                continue
            try:
                async with asyncio.timeout(pause_s):
                    await self._changed.wait()
            except TimeoutError:
                # Nobody is burdened while there is nobody to ask: whoever leads next is asked at once.
                pause_s = min(2 * pause_s, LAST_PAUSE_S) if is_there else FIRST_PAUSE_S
            else:
                pause_s = FIRST_PAUSE_S

    async def _register_with(self, leader: int) -> bool:
        """Whether the leader has committed it."""
        if not self._controller_channel.answers(leader, ApiKey.CONTROLLER_REGISTRATION):
            return False  # of a version in which controllers do not register
        try:
            answer = await self._controller_channel.ask(
                leader,
                ApiKey.CONTROLLER_REGISTRATION,
                CONTROLLER_REGISTRATION_VERSION,
                self._fields,
                self._timeout_s,
            )
        except (OSError, TimeoutError, BrokerError) as error:
            log.info("this controller is not registered yet: %s", error)
            return False
        if answer.error_code == ErrorCode.NONE:
            return True
        if answer.error_code != self._refusal:
            self._refusal = ErrorCode(answer.error_code)
            log.warning(
                "this controller is not registered yet: %s", answer.error_message or self._refusal.name
            )
        return False
