"""Broker sessions: the active controller's soft state of which brokers are alive. Pure; `now` is passed in.

Two signs of death:
* silence: no heartbeat for `broker.session.timeout.ms`. One broker at a time is fenced for it, the
  one that was silent longest, so that a controller that was itself held up does not fence all brokers
  before it has read the heartbeats that wait for it.
* a broken connection: those of its heartbeats are closed or reset, and no heartbeat came on a new one
  within a short grace; or its host refuses connections, since no process listens there any more, which
  ends the grace. A killed process is noticed this way in milliseconds. Only the newest connection of the
  broker's present incarnation counts: one of a host that has lost power, or one that was cut between here
  and there, stands here long after a new one has come.

Connections and heartbeats are noted on standby controllers too, so that a new one knows at its claim which
connections are broken, and which brokers have been silent: a broker that was paused together with the old
controller does not get a whole new session. Sessions exist only on the active controller; at its claim every
broker has at least a third of one left, time enough for a heartbeat.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Final, NamedTuple

CLAIM_SHARE: Final = 1 / 3
"""Part of a session that every broker has left at a claim."""


class Link(NamedTuple):
    """A connection on which the heartbeats of one incarnation come."""

    broker_id: int
    broker_epoch: int
    number: int
    """Of the connection: the newer, the higher."""


@dataclass(slots=True)
class _BrokerSession:
    epoch: int = -1
    """Of the incarnation that is registered; on a standby, of the newest that was heard of."""
    link: Link | None = None
    """Its newest connection, while that stands."""
    beat_at: float | None = None
    """When its last heartbeat came; known on a standby too."""
    broken_at: float | None = None
    last_contact: float | None = None
    """None: no contact in this controller's time."""
    heard: bool = False
    """Whether a heartbeat came in this controller's time; otherwise the contact is what `begin` granted."""
    metadata_offset: int = -1
    shutdown_offset: int = -1

    def now_is(self, epoch: int) -> None:
        """That incarnation is registered; the connections of another one say nothing of it."""
        if epoch != self.epoch:
            self.epoch, self.link, self.broken_at = epoch, None, None


class BrokerSessions:
    """Every broker's liveness. Times in seconds on the loop's clock."""

    def __init__(self, timeout_s: float, link_grace_s: float) -> None:
        self.timeout_s = timeout_s
        self.link_grace_s = link_grace_s
        self._brokers: dict[int, _BrokerSession] = {}

    def __len__(self) -> int:
        """Brokers that something is known of."""
        return len(self._brokers)

    # -- links, also on standbys ------------------------------------------------

    def connection_up(self, broker_id: int, broker_epoch: int, number: int) -> Link:
        """Heartbeats of this incarnation come on another connection. A broker has one at a time; what it sent
        on an earlier one may be read after the first on its newest."""
        link = Link(broker_id, broker_epoch, number)
        broker = self._incarnation(broker_id, broker_epoch)
        if broker is not None:
            if broker.link is None or broker.link.number <= number:
                broker.link = link
            if broker.last_contact is None:
                broker.broken_at = None  # a standby does not check heartbeats; the connection counts
        return link

    def is_replaced(self, link: Link) -> bool:
        """Whether its incarnation has a newer connection: what still comes on this one was sent before."""
        broker = self._brokers.get(link.broker_id)
        newest = None if broker is None else broker.link
        return newest is not None and newest[:2] == link[:2] and newest.number > link.number

    def connection_broken(self, link: Link, now: float) -> bool:
        """The other end closed or reset it; whether it was the newest of the newest incarnation."""
        broker = self._broker(link.broker_id)
        if broker.link != link:
            return False
        broker.link = None
        if broker.broken_at is None:
            broker.broken_at = now
        return True

    def heartbeat_came(self, broker_id: int, now: float) -> None:
        """Note a heartbeat, on a standby too; whose connection was noted before."""
        broker = self._brokers.get(broker_id)
        if broker is not None:
            broker.beat_at = now

    def process_gone(self, broker_id: int, now: float) -> None:
        """The process has certainly ended: no grace for its broken connection."""
        broker = self._brokers.get(broker_id)
        if broker is not None and broker.broken_at is not None:
            broker.broken_at = min(broker.broken_at, now - self.link_grace_s)

    def connection_closed(self, link: Link) -> None:
        """We closed it ourselves; that says nothing about the broker."""
        broker = self._broker(link.broker_id)
        if broker.link == link:
            broker.link = None

    # -- sessions, on the active controller ----------------------------------------

    def begin(self, broker_epochs: Mapping[int, int], now: float, offset: int) -> None:
        """A claim: sessions of the registered incarnations begin; shutdowns that are under way wait for
        `offset` to be seen."""
        earliest = now - self.timeout_s * (1 - CLAIM_SHARE)
        for broker_id, broker_epoch in broker_epochs.items():
            broker = self._broker(broker_id)
            broker.now_is(broker_epoch)
            broker.last_contact = now if broker.beat_at is None else max(broker.beat_at, earliest)
            broker.heard = False
            broker.metadata_offset = -1
            broker.shutdown_offset = offset

    def end(self) -> None:
        """End all sessions: this controller is not active any more."""
        for broker in self._brokers.values():
            broker.last_contact = None

    def refresh(self, now: float) -> None:
        """We were held up ourselves: nobody's silence counts."""
        for broker in self._brokers.values():
            if broker.last_contact is not None:
                broker.last_contact = now

    def register(self, broker_id: int, broker_epoch: int, now: float) -> None:
        """An incarnation has been registered."""
        broker = self._broker(broker_id)
        broker.now_is(broker_epoch)
        broker.last_contact, broker.broken_at, broker.heard = now, None, True
        broker.metadata_offset = broker.shutdown_offset = -1

    def touch(self, broker_id: int, now: float, metadata_offset: int) -> None:
        """A heartbeat of the present incarnation, however late."""
        broker = self._broker(broker_id)
        broker.last_contact, broker.broken_at, broker.heard = now, None, True
        broker.metadata_offset = max(broker.metadata_offset, metadata_offset)

    def forget(self, broker_id: int) -> None:
        """Nobody is registered with that id, as far as this controller knows. A connection that stands is
        remembered all the same: a standby may hear of a broker before it hears of its registration."""
        broker = self._brokers.get(broker_id)
        if broker is not None:
            broker.last_contact = None
            if broker.link is None:
                del self._brokers[broker_id]

    def valid(self, broker_id: int, now: float) -> bool:
        """Whether the present incarnation must be taken to be alive, so that none may replace it.

        After a claim, one with neither a connection nor a heartbeat counts as alive for the grace only: when
        a whole cluster is started again, no broker waits for the sessions of dead ones.
        """
        broker = self._broker(broker_id)
        if broker.last_contact is None or broker.broken_at is not None:
            return False
        believed = self.timeout_s if broker.heard or broker.link else self.link_grace_s
        return now < broker.last_contact + believed

    def broken(self, broker_ids: Iterable[int], now: float) -> list[int]:
        """Brokers whose connection has been broken for longer than the grace."""
        due = []
        for broker_id in broker_ids:
            broken_at = self._broker(broker_id).broken_at
            if broken_at is not None and now >= broken_at + self.link_grace_s:
                due.append(broker_id)
        return due

    def stalest(self, broker_ids: Iterable[int], now: float) -> int | None:
        """Among the brokers whose session has ended, the one that has been silent longest."""
        late = [
            (contact, broker_id)
            for broker_id in broker_ids
            if (contact := self._broker(broker_id).last_contact) is not None
            and now >= contact + self.timeout_s
        ]
        return min(late)[1] if late else None

    def next_deadline(self, broker_ids: Iterable[int]) -> float | None:
        """The first moment at which `broken` or `stalest` may return a broker."""
        deadlines = []
        for broker_id in broker_ids:
            broker = self._broker(broker_id)
            if broker.last_contact is not None:
                deadlines.append(broker.last_contact + self.timeout_s)
            if broker.broken_at is not None:
                deadlines.append(broker.broken_at + self.link_grace_s)
        return min(deadlines, default=None)

    # -- controlled shutdown ---------------------------------------------------------

    def shutdown_begun(self, broker_id: int, offset: int) -> None:
        """The others must have the metadata up to `offset` before the broker may stop."""
        self._broker(broker_id).shutdown_offset = offset

    def shutdown_seen(self, broker_id: int, active_ids: Iterable[int]) -> bool:
        """Whether all active brokers have the metadata that moved its leaders."""
        offset = self._broker(broker_id).shutdown_offset
        return all(self._broker(other).metadata_offset >= offset for other in active_ids)

    def _incarnation(self, broker_id: int, broker_epoch: int) -> _BrokerSession | None:
        """The broker, if that is its present incarnation. A standby, to whom the connections of earlier ones
        say nothing any more, takes the newest for it; in a session it is the one that is registered."""
        broker = self._broker(broker_id)
        if broker_epoch > broker.epoch and broker.last_contact is None:
            broker.epoch, broker.link = broker_epoch, None
        return broker if broker_epoch == broker.epoch else None

    def _broker(self, broker_id: int) -> _BrokerSession:
        broker = self._brokers.get(broker_id)
        if broker is None:
            broker = self._brokers[broker_id] = _BrokerSession()
        return broker
