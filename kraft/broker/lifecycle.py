"""A broker's state in the quorum: registered, caught up, unfenced, shutting down.

    STARTING   register with the active controller, get a broker epoch
    FENCED     heartbeats; the controller unfences once we have acted on our own registration
    RUNNING    heartbeats every broker.heartbeat.interval.ms; may be fenced and come back at any time
    STOPPING   heartbeats that request a controlled shutdown; the controller moves every leader away first
    STOPPED

Heartbeats are sent to every voter. The active controller processes them; the others answer NOT_CONTROLLER
but note that this connection is ours, so that each of them, as soon as it becomes active, has the
connected brokers (see peers/controller_channel.py, also for Apache Kafka's controllers, of which only the
active one gets any).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from dataclasses import dataclass
from enum import Enum, auto
from typing import Any, Final
from uuid import UUID

from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import Endpoint, FeatureRange
from metadata_quorum.foundation.supervision import restarted, supervised

BROKER_REGISTRATION_VERSION: Final = 4
BROKER_HEARTBEAT_VERSION: Final = 1

RETRY_S: Final = 0.1
SHUTDOWN_RETRY_S: Final = 0.05
SHUTDOWN_LIMIT_S: Final = 20.0
"""A broker that is not allowed to stop by then stops all the same."""
SHUTDOWN_SILENCE_S: Final = 1.5
"""It waits no longer than this for a quorum that does not answer: all nodes may be stopping."""

_REASONS: Final = {
    ErrorCode.DUPLICATE_BROKER_REGISTRATION: "the session of our last incarnation is not over",
    ErrorCode.UNSUPPORTED_VERSION: "the cluster has finalized a feature, or a level, that we do not have",
}

log = logging.getLogger(__name__)


class BrokerState(Enum):
    STARTING = auto()
    FENCED = auto()
    RUNNING = auto()
    STOPPING = auto()
    STOPPED = auto()


@dataclass(frozen=True, slots=True)
class BrokerIdentity:
    """The contents of a broker's registration."""

    broker_id: int
    cluster_id: str
    incarnation_id: UUID
    endpoints: tuple[Endpoint, ...]
    features: tuple[FeatureRange, ...]
    rack: str | None
    log_dirs: tuple[UUID, ...]


class BrokerLifecycle:
    """`start`, then await `running`; `stop` for a controlled shutdown."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        controller_channel: ControllerChannel,
        identity: BrokerIdentity,
        *,
        heartbeat_interval_s: float,
        session_timeout_s: float,
    ) -> None:
        self._loop = loop
        self._controller_channel = controller_channel
        self._identity = identity
        self._interval_s = heartbeat_interval_s
        self._timeout_s = session_timeout_s / 2
        self._beats: dict[int, asyncio.Task[None]] = {}
        self._task: asyncio.Task[None] | None = None
        self._wake = asyncio.Event()
        self._may_stop = asyncio.Event()
        self._last_answer_at = loop.time()
        self.state = BrokerState.STARTING
        self.broker_epoch = -1
        """Of the registration that holds; -1 where there is none (any more)."""
        self.fetch_epoch = -1
        """Of the newest registration, over or not. By -1 a leader takes a follower for any incarnation:
        one that was replaced would be put into ISRs in the place of its successor (KIP-903)."""
        self.running = asyncio.Event()
        """Set when the broker has been unfenced for the first time."""
        self.failed_log_dirs: list[UUID] = []

    def start(
        self,
        published_offset: Callable[[], int],
        previous_broker_epoch: Callable[[], int],
        on_registered: Callable[[int], None],
    ) -> None:
        """`published_offset`: of the newest metadata record that partitions and fetchers have acted on.
        `previous_broker_epoch`: the broker epoch of the last run, if nothing of what it kept is lost (it was
        stopped cleanly, or killed while the machine kept running), else -1. A broker that registers with it
        remains an eligible leader (KIP-966).
        `on_registered` is called with every new broker epoch."""
        self._published_offset = published_offset
        self._previous_broker_epoch = previous_broker_epoch
        self._on_registered = on_registered
        self._controller_channel.on_connected = self._heartbeat_on_connect
        self._task = restarted(self._loop, self._run, "broker-lifecycle")

    def metadata_published(self) -> None:
        """Partitions have acted on newer metadata: perhaps on our own registration."""
        if self.state in (BrokerState.FENCED, BrokerState.STOPPING):
            self._wake.set()

    def log_dir_failed(self, directory_id: UUID) -> None:
        """Tell the controller with the next heartbeat, which is due now."""
        self.failed_log_dirs.append(directory_id)
        self._wake.set()

    async def stop(self) -> None:
        """Controlled shutdown: every leader moved, out of every ISR, within limits."""
        if self.state in (BrokerState.FENCED, BrokerState.RUNNING):
            self.state = BrokerState.STOPPING
            self._last_answer_at = self._loop.time()
            deadline = self._loop.time() + SHUTDOWN_LIMIT_S
            while not self._may_stop.is_set() and self._loop.time() < deadline:
                if self._loop.time() - self._last_answer_at > SHUTDOWN_SILENCE_S:
                    log.warning("no controller answers; stopping without having moved the leaders")
                    break
                self._wake.set()
                try:
                    async with asyncio.timeout(SHUTDOWN_RETRY_S):
                        await self._may_stop.wait()
                except TimeoutError:
                    pass
        self.state = BrokerState.STOPPED
        await self.close()

    async def close(self) -> None:
        """End all tasks without telling the controller."""
        tasks = [*self._beats.values(), *([self._task] if self._task is not None else [])]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)

    # --- the loop -----------------------------------------------------------------------------

    async def _run(self) -> None:
        while True:
            if self.broker_epoch < 0:
                await self._register()
            self._wake.clear()
            for voter in self._controller_channel.voters:
                self._heartbeat_to(voter)
            try:
                async with asyncio.timeout(self._pause()):
                    await self._wake.wait()
            except TimeoutError:
                pass

    def _pause(self) -> float:
        if self.state is BrokerState.FENCED:
            return min(self._interval_s, RETRY_S)
        return self._interval_s

    async def _register(self) -> None:
        identity = self._identity
        fields = {
            "broker_id": identity.broker_id,
            "cluster_id": identity.cluster_id,
            "incarnation_id": identity.incarnation_id,
            "listeners": [
                {
                    "name": e.name,
                    "host": e.host,
                    "port": e.port,
                    "security_protocol": int(e.security_protocol),
                }
                for e in identity.endpoints
            ],
            "features": [
                {
                    "name": f.name,
                    "min_supported_version": f.min_supported_version,
                    "max_supported_version": f.max_supported_version,
                }
                for f in identity.features
            ],
            "rack": identity.rack,
            "is_migrating_zk_broker": False,
            "log_dirs": list(identity.log_dirs),
        }
        refusal = ErrorCode.NONE
        while self.broker_epoch < 0:
            # Each time: a log directory may fail while the broker is refused, for as long as a session lasts.
            fields["previous_broker_epoch"] = self._previous_broker_epoch()
            try:
                answer = await self._controller_channel.request(
                    ApiKey.BROKER_REGISTRATION, BROKER_REGISTRATION_VERSION, fields
                )
            except BrokerError as error:
                log.warning("not registered yet: %s", error)
                continue
            if answer.error_code == ErrorCode.NONE:
                self.broker_epoch = self.fetch_epoch = answer.broker_epoch
                self._last_answer_at = self._loop.time()
                if self.state is BrokerState.STARTING:
                    self.state = BrokerState.FENCED
                log.info("registered with broker epoch %d", self.broker_epoch)
                self._on_registered(self.broker_epoch)
                return
            if answer.error_code != refusal:
                refusal = ErrorCode(answer.error_code)
                log.warning("not registered yet: %s", _REASONS.get(refusal, refusal.name))
            await asyncio.sleep(RETRY_S)

    def _heartbeat_on_connect(self, voter: int) -> None:
        if self.broker_epoch >= 0:
            self._heartbeat_to(voter)

    def _heartbeat_to(self, voter: int) -> None:
        """One heartbeat to one voter; one at a time."""
        known = self._beats.get(voter)
        if (known is None or known.done()) and self._controller_channel.may_ask(voter):
            self._beats[voter] = supervised(self._loop, self._heartbeat(voter), f"heartbeat-{voter}")

    async def _heartbeat(self, voter: int) -> None:
        broker_epoch = self.broker_epoch
        fields: dict[str, Any] = {
            "broker_id": self._identity.broker_id,
            "broker_epoch": broker_epoch,
            "current_metadata_offset": self._published_offset(),
            "want_fence": False,
            "want_shut_down": self.state is BrokerState.STOPPING,
            "offline_log_dirs": list(self.failed_log_dirs),
        }
        try:
            answer = await self._controller_channel.ask(
                voter, ApiKey.BROKER_HEARTBEAT, BROKER_HEARTBEAT_VERSION, fields, self._timeout_s
            )
        except (OSError, TimeoutError, BrokerError):
            return
        self._last_answer_at = self._loop.time()
        if broker_epoch == self.broker_epoch:  # else it is about a registration that is over
            self._take_heartbeat_answer(answer)

    def _take_heartbeat_answer(self, answer: Message) -> None:
        error = ErrorCode(answer.error_code)
        if error in (ErrorCode.STALE_BROKER_EPOCH, ErrorCode.BROKER_ID_NOT_REGISTERED):
            log.warning("the controller answers %s; registering again", error.name)
            self.broker_epoch = -1
            self._wake.set()
        elif error is not ErrorCode.NONE:
            log.warning("heartbeat refused: %s", error.name)
        elif self.state is BrokerState.STOPPING:
            if answer.should_shut_down:
                self._may_stop.set()
        elif answer.is_fenced:
            if self.state is BrokerState.RUNNING:
                log.warning("fenced by the controller")
            self.state = BrokerState.FENCED
            if answer.is_caught_up:
                self._wake.set()
        else:
            if self.state is not BrokerState.RUNNING:
                log.info("unfenced")
            self.state = BrokerState.RUNNING
            self.running.set()
