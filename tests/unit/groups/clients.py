"""Members of either protocol as their clients behave, one heartbeat at a time, against a GroupDriver.

What a client owns is what its application reads at that moment: it stops reading before it says so,
and reads nothing that it was not assigned.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass, field

from data_plane.coordinator.groups.assignment import (
    Assignment,
    TopicIdPartition,
    assignment_of,
    partitions_of,
)
from data_plane.coordinator.groups.classic.consumer_protocol import (
    read_assignment,
    read_subscription,
    write_assignment,
)
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat, ConsumerHeartbeatReply
from data_plane.coordinator.groups.messages import (
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    MemberIdentity,
    MemberProtocol,
    SyncGroup,
    SyncReply,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.groups.group_driver import GroupDriver, GroupRequest

GROUP = "g"
REBALANCE_TIMEOUT_MS = 60_000
SESSION_TIMEOUT_MS = 45_000


@dataclass
class ConsumerClient:
    """Of the consumer protocol, as the Java client is."""

    name: str
    topics: tuple[str, ...] = ()
    instance: str | None = None
    regex: str | None = None
    assignor: str | None = None
    lives: int = 1
    epoch: int = 0
    owned: set[TopicIdPartition] = field(default_factory=set)
    assigned: Assignment | None = None
    """The assignment that has not been carried out yet."""
    says_all: bool = True
    reported: frozenset[TopicIdPartition] | None = None
    slow: bool = False
    """Takes its time with giving up partitions."""

    @property
    def member_id(self) -> str:
        return f"{self.name}{self.lives}"

    def beat(self, driver: GroupDriver, *, lose_answer: bool = False) -> BrokerError | None:
        """One heartbeat and what follows from it; the refusal, if there was one."""
        reply = driver.answer("consumer_heartbeat", self._heartbeat())
        if lose_answer:
            self._hears_nothing()
            return None
        if isinstance(reply, BrokerError):
            self._refused(reply)
            return reply
        if not isinstance(reply, ConsumerHeartbeatReply):
            assert reply is driver.refusal
            self.says_all = True
            return None
        self.says_all = False
        self.epoch = reply.member_epoch
        if reply.assignment is not None:
            self.assigned = reply.assignment
        if not self.slow:
            self.obey()
        return None

    def send_in_vain(self, driver: GroupDriver) -> tuple[str, GroupRequest]:
        """What it sends on a connection that breaks at once; the next one says all."""
        sent = "consumer_heartbeat", self._heartbeat()
        self._hears_nothing()
        return sent

    def obey(self) -> None:
        """Give up first, then take; and say what it has, even if that is what it had before."""
        if self.assigned is not None:
            self.owned = set(partitions_of(self.assigned))
            self.assigned = self.reported = None

    def resubscribe(self, *topics: str, regex: str | None = None) -> None:
        self.topics, self.regex, self.says_all = topics, regex, True

    def leave(self, driver: GroupDriver, *, for_now: bool = False) -> object:
        self.owned.clear()
        self.assigned = None
        request = ConsumerHeartbeat(GROUP, self.member_id, -2 if for_now else -1, self.instance)
        self.epoch = 0
        self.lives += 1
        self.says_all = True
        return driver.answer("consumer_heartbeat", request)

    def die(self) -> None:
        """And come back, some time, as another process."""
        self.owned.clear()
        self.assigned = None
        self.epoch, self.says_all = 0, True
        self.lives += 1

    def is_member(self, driver: GroupDriver) -> bool:
        group = driver.manager.group(GROUP)
        return isinstance(group, ConsumerGroup) and self.member_id in group.state.members

    def _hears_nothing(self) -> None:
        """It says all, and is told all, next time. Until then it takes nothing more: others may have by now
        what it has just said that it does not own, with Apache Kafka too."""
        self.says_all = True
        self.assigned = None

    def _refused(self, refusal: BrokerError) -> None:
        self.says_all = True
        fenced = {ErrorCode.FENCED_MEMBER_EPOCH, ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.GROUP_ID_NOT_FOUND}
        if refusal.code in fenced:
            self.owned.clear()
            self.assigned = None
            self.epoch = 0

    def _heartbeat(self) -> ConsumerHeartbeat:
        everything = self.says_all or self.epoch == 0
        owned = frozenset() if self.epoch == 0 else frozenset(self.owned)
        says_owned = everything or owned != self.reported
        self.reported = owned
        return ConsumerHeartbeat(
            GROUP,
            self.member_id,
            self.epoch,
            self.instance,
            rebalance_timeout_ms=REBALANCE_TIMEOUT_MS if everything else -1,
            subscribed_topic_names=self.topics if everything else None,
            subscribed_topic_regex=(self.regex or "") if everything else None,
            server_assignor=self.assignor if everything else None,
            owned=assignment_of(owned) if says_owned else None,
            client_id=self.name,
            client_host="/127.0.0.1",
        )


@dataclass
class ClassicClient:
    """Of the classic protocol, with an eager assignor: it gives up everything before it joins again."""

    name: str
    topics: tuple[str, ...]
    instance: str | None = None
    cooperative: bool = False
    """It keeps what it has, and joins again as soon as it has given up what it is to give up."""
    lives: int = 1
    member_id: str = ""
    generation: int = -1
    owned: set[TopicIdPartition] = field(default_factory=set)
    ticket: int | None = None
    """Of the request that it waits for."""
    to_do: str = "join"
    roster: tuple[tuple[str, bytes], ...] = ()
    """Where it leads."""
    sizes: dict[str, int] = field(default_factory=dict)
    """Of the topics, when it assigned them."""

    def beat(self, driver: GroupDriver) -> None:
        """The next thing that it has to do, or its answer."""
        if self.roster and self.to_do == "heartbeat" and self.sizes != _sizes(driver):
            self.to_do = "join"  # as leaders do when they see that topics have changed
        if self.ticket is None:
            self.ticket = driver.ask(self.to_do, self._request(driver))
        if self.ticket in driver.answers:
            self._take(driver, driver.answers.pop(self.ticket))
            self.ticket = None

    def send_in_vain(self, driver: GroupDriver) -> tuple[str, GroupRequest]:
        """What it sends on a connection that breaks at once; it will send it again."""
        assert self.ticket is None
        sent = self.to_do, self._request(driver)
        self._draw_another_id()
        return sent

    def leave(self, driver: GroupDriver) -> object:
        identity = MemberIdentity(self.member_id, self.instance)
        self.die()
        return driver.answer("leave", LeaveGroup(GROUP, (identity,)))

    def die(self) -> None:
        self._forget()
        self.member_id = ""
        self.ticket = None
        self.lives += 1

    def connection_broke(self) -> None:
        """What it waited for is gone with it."""
        if self.ticket is not None:
            self.ticket = None
            self._draw_another_id()

    def is_member(self, driver: GroupDriver) -> bool:
        group = driver.manager.group(GROUP)
        if isinstance(group, ConsumerGroup):
            return self.member_id in group.state.members
        return group is not None and self.member_id in group.metadata.roster

    def lost(self) -> None:
        """Its session is over, as far as this coordinator knows: it comes back under another id."""
        self._forget()
        self.member_id = ""
        self.lives += 1

    def _draw_another_id(self) -> None:
        """Where each JoinGroup is given one."""
        if self.to_do == "join" and not self.member_id:
            self.lives += 1

    def _request(self, driver: GroupDriver) -> GroupRequest:
        match self.to_do:
            case "join":
                return self._join(driver)
            case "sync":
                return self._sync(driver)
        return Heartbeat(GROUP, self.member_id, self.generation, self.instance)

    def _join(self, driver: GroupDriver) -> JoinGroup:
        if not self.cooperative:
            self.owned.clear()
        subscription = struct.pack(">hi", 1, len(self.topics))
        for topic in self.topics:
            subscription += struct.pack(">h", len(topic)) + topic.encode()
        names = {driver.view.topic_name(t) or "": n for t, n in assignment_of(self.owned).items()}
        subscription += struct.pack(">i", -1) + write_assignment(names, 1)[2:-4]  # no user data; what it owns
        return JoinGroup(
            GROUP,
            self.member_id,
            "consumer",
            (MemberProtocol("range", subscription),),
            SESSION_TIMEOUT_MS,
            REBALANCE_TIMEOUT_MS,
            self.instance,
            client_id=self.name,
            client_host="/127.0.0.1",
            new_member_id=f"{self.name}{self.lives}",
            requires_known_id=False,
        )

    def _sync(self, driver: GroupDriver) -> SyncGroup:
        self.sizes = _sizes(driver)
        shares: dict[str, dict[str, set[int]]] = {member_id: {} for member_id, _ in self.roster}
        for name, size in self.sizes.items():
            readers = [m for m, metadata in self.roster if name in read_subscription(metadata).topics]
            for number in range(size if readers else 0):
                shares[readers[number % len(readers)]].setdefault(name, set()).add(number)
        assignments = {
            member_id: write_assignment({name: frozenset(numbers) for name, numbers in share.items()}, 1)
            for member_id, share in shares.items()
        }
        return SyncGroup(GROUP, self.member_id, self.generation, self.instance, assignments=assignments)

    def _take(self, driver: GroupDriver, reply: object) -> None:
        match reply:
            case JoinReply(error=ErrorCode.NONE):
                self.member_id, self.generation, self.to_do = reply.member_id, reply.generation, "sync"
                self.roster = tuple((m.member_id, m.metadata) for m in reply.members)
            case SyncReply(error=ErrorCode.NONE):
                before = self.owned
                ids = {
                    driver.view.topic_id(name): numbers
                    for name, numbers in read_assignment(reply.assignment).items()
                }
                self.owned = {(t, number) for t, numbers in ids.items() if t for number in numbers}
                self.to_do = "join" if self.cooperative and before - self.owned else "heartbeat"
            case HeartbeatReply(error=ErrorCode.NONE):
                pass
            case (
                BrokerError(code=code)
                | JoinReply(error=code)
                | SyncReply(error=code)
                | HeartbeatReply(error=code)
            ):
                self.to_do = "join"
                if code not in (ErrorCode.REBALANCE_IN_PROGRESS, ErrorCode.COORDINATOR_NOT_AVAILABLE):
                    self.owned.clear()
                if code is ErrorCode.UNKNOWN_MEMBER_ID:
                    self.lost()

    def _forget(self) -> None:
        self.owned.clear()
        self.to_do, self.generation, self.roster = "join", -1, ()


def _sizes(driver: GroupDriver) -> dict[str, int]:
    return {name: len(topic.partitions) for name, topic in driver.view.image.topics_by_name.items()}
