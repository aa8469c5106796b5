"""Fencing brokers in time: the timer over the sessions, while this controller is active.

    heartbeat, link -> broker_sessions.py (who is due, and when) -> here (one timer) -> FenceBroker -> image

A fence is proposed once per broker; until it is applied that broker is left alone. Whom to watch, and whose
shutdown has begun, is taken from the image: a proposal that ended UNKNOWN may be committed later.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from typing import Final

from metadata_quorum.controller.broker_sessions import BrokerSessions, Link
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.model import BrokerRegistration
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage

log = logging.getLogger(__name__)

RETRY_S: Final = 0.1
"""Pause after a fence that was not committed, which is the first sign of a lost leadership."""

ProposeFence = Callable[[BrokerRegistration, Callable[[], None]], None]
"""Propose to fence that incarnation; the second argument is called when the proposal has ended."""


class BrokerLiveness:
    """Broker sessions, and the timer that fences by them."""

    def __init__(
        self,
        sessions: BrokerSessions,
        loop: asyncio.AbstractEventLoop,
        state_machine: MetadataStateMachine,
        propose_fence: ProposeFence,
    ) -> None:
        self.sessions = sessions
        self._loop = loop
        self._state_machine = state_machine
        self._propose_fence = propose_fence
        self._active = False
        self._fencing: set[int] = set()
        self._timer: asyncio.TimerHandle | None = None
        state_machine.subscribe(self._take)

    def begin(self) -> None:
        """Begin the brokers' sessions: this controller has become active."""
        image = self._state_machine.image
        self._active = True
        self._fencing.clear()
        now = self._loop.time()
        epochs = {broker_id: broker.broker_epoch for broker_id, broker in image.brokers.items()}
        self.sessions.begin(epochs, now, image.offset)
        self.arm(now)  # a connection may have been broken for long: nobody was held up for that

    def end(self) -> None:
        """End the brokers' sessions: this controller is not active any more."""
        self._active = False
        self.sessions.end()
        self._cancel()

    def connection_broken(self, link: Link) -> bool:
        """See `BrokerSessions`."""
        is_lost = self.sessions.connection_broken(link, self._loop.time())
        self._forget_stranger(link.broker_id)
        self.arm()
        return is_lost

    def connection_closed(self, link: Link) -> None:
        """See `BrokerSessions`."""
        self.sessions.connection_closed(link)
        self._forget_stranger(link.broker_id)

    def _forget_stranger(self, broker_id: int) -> None:
        """Anybody may name any broker's id; what that leaves here ends with the connection."""
        if broker_id not in self._state_machine.image.brokers:
            self.sessions.forget(broker_id)

    def _take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        if not self._active or not delta.changed_brokers:
            return
        for broker_id, broker in delta.changed_brokers.items():
            before = delta.image.brokers.get(broker_id)
            begun = before is not None and before.in_controlled_shutdown
            if broker is not None and broker.in_controlled_shutdown and not begun:
                self.sessions.shutdown_begun(broker_id, image.offset)
        self.arm()

    def arm(self, earliest: float = 0.0) -> None:
        """Set the timer to the next moment at which a broker may have to be fenced (seconds of the loop)."""
        self._cancel()
        deadline = self.sessions.next_deadline(self._watched()) if self._active else None
        if deadline is not None:
            due = max(deadline, earliest)
            self._timer = self._loop.call_at(due, self._check, due)

    def _watched(self) -> list[int]:
        return [
            broker.broker_id
            for broker in self._state_machine.image.brokers.values()
            if not broker.fenced and broker.broker_id not in self._fencing
        ]

    def _check(self, due: float) -> None:
        self._timer = None
        try:
            self._fence_who_is_due(due)
        except Exception:
            self.arm(self._loop.time() + RETRY_S)  # nothing else would
            raise

    def _fence_who_is_due(self, due: float) -> None:
        now = self._loop.time()
        if now - due > self.sessions.timeout_s / 4:
            log.warning("held up for %.1f s: the brokers' sessions are renewed", now - due)
            self.sessions.refresh(now)
        watched = self._watched()
        for broker_id in self.sessions.broken(watched, now):
            self._fence(broker_id, "its connection is broken")
        stalest = self.sessions.stalest(watched, now)
        if stalest is not None and stalest not in self._fencing:
            self._fence(stalest, "its session has timed out")
        if stalest is None:
            self.arm()  # otherwise the next broker is looked at when this fence has been applied

    def _fence(self, broker_id: int, why: str) -> None:
        broker = self._state_machine.image.brokers[broker_id]
        log.warning("fencing broker %d (epoch %d): %s", broker_id, broker.broker_epoch, why)
        self._fencing.add(broker_id)

        def ended() -> None:
            self._fencing.discard(broker_id)
            now = self._state_machine.image.brokers.get(broker_id)
            not_fenced = now is not None and not now.fenced
            self.arm(self._loop.time() + RETRY_S if not_fenced else 0.0)

        self._propose_fence(broker, ended)

    def _cancel(self) -> None:
        if self._timer is not None:
            self._timer.cancel()
            self._timer = None
