"""The rules of replication on the leader: who is in sync, and how far everyone in sync has come.

Pure: offsets and times in, new high watermarks and ISR changes out. Partition calls it with every append and
every fetch of a follower.

The ISR that counts here is the *maximal* one. Between asking the controller for a change and
its answer, the leader does not know which ISR is committed, so it assumes the larger: a newcomer
counts from the moment it is proposed, a leaver until its leaving is committed. The controller may
elect from either; a record below the high watermark is on all of both.

    ISR state     asked for      counts for the high watermark (maximal ISR)
    committed     nothing        the committed ISR
    expanding     ISR + newcomer committed ISR + newcomer
    shrinking     ISR - leavers  committed ISR

At most one change is in flight. How its answer is taken:

    answer                                         the change
    success, partition epoch not older             committed as answered, if it grows the ISR; if it shrinks
                                                   it, left pending until the metadata comes, which also has
                                                   the min.insync.replicas by which replicas that left became
                                                   eligible leaders
    INELIGIBLE_REPLICA, OPERATION_NOT_ATTEMPTED    rolled back: it was not committed
    any other definite refusal                     left pending: the metadata decides
    no answer, NOT_CONTROLLER, timeouts            sent again: it may or may not have been committed
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from enum import Enum, auto
from typing import Final
from uuid import UUID

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.foundation.model import NO_EPOCH, LeaderRecoveryState, PartitionRegistration

UNKNOWN_OFFSET: Final = -1


OnlineDirectory = Callable[[int, UUID], bool]
"""Whether a broker's log directory is online, as far as is known."""


class FetchClock:
    """When a follower last sent a fetch that covers a partition, named in it or not.

    An incremental fetch names only the partitions that moved, yet it is a sign of life for all of its
    session. One clock is shared by the session's partitions, so that idle ones need not be touched.
    """

    __slots__ = ("last_fetch",)

    def __init__(self, now: float) -> None:
        self.last_fetch = now


class FollowerReplica:
    """What the leader knows of another replica of the partition."""

    __slots__ = (
        "broker_epoch",
        "broker_id",
        "clock",
        "in_maximal_isr",
        "last_caught_up",
        "last_fetch",
        "leader_end_at_last_fetch",
        "log_end_offset",
        "log_start_offset",
    )

    def __init__(self, broker_id: int) -> None:
        self.broker_id = broker_id
        self.in_maximal_isr = False
        self.forget(float("-inf"))

    def forget(self, caught_up: float) -> None:
        """A new leader epoch: its offset is unknown until it fetches."""
        self.log_end_offset = UNKNOWN_OFFSET
        self.log_start_offset = UNKNOWN_OFFSET
        self.broker_epoch: int | None = None  # None: has not fetched in this leader epoch
        self.last_caught_up = caught_up
        self.last_fetch = float("-inf")
        self.leader_end_at_last_fetch = UNKNOWN_OFFSET
        self.clock: FetchClock | None = None

    def fetched(self, offset: int, log_start_offset: int, leader_end: int, now: float) -> None:
        """The follower fetches from `offset`, so it has everything before. `now` in seconds."""
        if offset >= leader_end:
            self.last_caught_up = now
        elif offset >= self.leader_end_at_last_fetch and self.last_fetch > self.last_caught_up:
            # It has all that the leader had when it asked before: it was caught up at that time.
            self.last_caught_up = self.last_fetch
        self.log_end_offset = offset
        self.log_start_offset = log_start_offset
        self.leader_end_at_last_fetch = leader_end
        self.last_fetch = now

    def caught_up(self, leader_end: int, now: float, lag_time_max: float) -> bool:
        return self.log_end_offset == leader_end or now - self.last_caught_up <= lag_time_max


@dataclass(frozen=True, slots=True)
class PendingIsrChange:
    """A change of the ISR that the controller has been asked for."""

    isr: tuple[int, ...]
    joining: int | None
    leader_epoch: int
    partition_epoch: int


@dataclass(frozen=True, slots=True)
class AlterPartitionItem:
    """One partition of an AlterPartition request."""

    topic_id: UUID
    topic: str
    partition: int
    change: PendingIsrChange
    isr_with_epochs: tuple[tuple[int, int], ...]
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED


@dataclass(frozen=True, slots=True)
class AlterPartitionResult:
    """The controller's answer for one partition. `error` UNKNOWN_SERVER_ERROR where none came."""

    error: ErrorCode
    leader: int = -1
    leader_epoch: int = NO_EPOCH
    isr: tuple[int, ...] = ()
    partition_epoch: int = NO_EPOCH
    leader_recovery_state: int = LeaderRecoveryState.RECOVERED


class IsrOutcome(Enum):
    """What an answer did to the change in flight."""

    COMMITTED = auto()
    ROLLED_BACK = auto()
    LEFT_PENDING = auto()
    ASK_AGAIN = auto()
    IGNORED = auto()


_REJECTED: Final = frozenset({ErrorCode.INELIGIBLE_REPLICA, ErrorCode.OPERATION_NOT_ATTEMPTED})
_RESOLVED_BY_METADATA: Final = frozenset(
    {
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.INVALID_REQUEST,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.INVALID_UPDATE_VERSION,
        ErrorCode.NEW_LEADER_ELECTED,
    }
)


class LeaderState:
    """Leadership of one partition in one leader epoch.

    `eligible` maps the brokers that may be in an ISR (unfenced, not shutting down) to their epochs; `online`
    says whether a log directory is online. Both change as metadata arrives. A replica on a failed disk does
    not join, and the high watermark does not wait for it.
    """

    __slots__ = (
        "_directories",
        "_eligible",
        "_lag_time_max",
        "_local_id",
        "_min_insync",
        "_online",
        "change",
        "epoch_start_offset",
        "followers",
        "isr",
        "leader_epoch",
        "partition_epoch",
        "replicas",
    )

    def __init__(
        self,
        local_id: int,
        registration: PartitionRegistration,
        *,
        epoch_start_offset: int,
        eligible: Mapping[int, int],
        online: OnlineDirectory = lambda broker_id, directory: True,
        min_insync: int,
        lag_time_max: float,
        now: float,
    ) -> None:
        self._local_id = local_id
        self._eligible = eligible
        self._online = online
        self._directories: dict[int, UUID] = {}
        self._lag_time_max = lag_time_max
        self._min_insync = min_insync
        self.leader_epoch = registration.leader_epoch
        self.epoch_start_offset = epoch_start_offset
        self.followers: dict[int, FollowerReplica] = {}
        self.change: PendingIsrChange | None = None
        self.replicas: tuple[int, ...] = ()
        self.isr: tuple[int, ...] = ()
        self.partition_epoch = NO_EPOCH
        self.take_metadata(registration, now)

    # --- committed state -----------------------------------------------------------------------

    def take_metadata(self, registration: PartitionRegistration, now: float) -> bool:
        """Take a committed state of this leader epoch; False where it is not newer."""
        if registration.partition_epoch < self.partition_epoch:
            return False
        invariant(
            registration.leader_epoch == self.leader_epoch, Invariant.ONE_LEADER_PER_EPOCH, registration
        )
        invariant(self._local_id in registration.isr, Invariant.ISR_WELL_FORMED, registration)
        # Taken even if the epoch is not newer: the answer to our own change may have come first, without
        # these.
        self._directories = {r: registration.directory(r) for r in registration.replicas}
        self._take_replicas(registration, now)
        if registration.partition_epoch == self.partition_epoch:
            return False
        self._commit(registration.isr, registration.partition_epoch)
        return True

    def _take_replicas(self, registration: PartitionRegistration, now: float) -> None:
        for broker_id in self.followers.keys() - set(registration.replicas):
            del self.followers[broker_id]
        for broker_id in registration.replicas:
            if broker_id != self._local_id and broker_id not in self.followers:
                follower = FollowerReplica(broker_id)
                follower.forget(now if broker_id in registration.isr else float("-inf"))
                self.followers[broker_id] = follower
        self.replicas = registration.replicas

    def handle_response(self, change: PendingIsrChange, answer: AlterPartitionResult) -> IsrOutcome:
        """Take the controller's answer to `change`."""
        if self.change is not change:
            return IsrOutcome.IGNORED  # the metadata came first
        if answer.error == ErrorCode.NONE:
            if answer.leader_epoch != self.leader_epoch or answer.partition_epoch < self.partition_epoch:
                return IsrOutcome.IGNORED
            if not set(self.isr) <= set(answer.isr):
                return IsrOutcome.LEFT_PENDING
            self._commit(answer.isr, answer.partition_epoch)
            return IsrOutcome.COMMITTED
        if answer.error in _REJECTED:
            self._commit(self.isr, self.partition_epoch)
            return IsrOutcome.ROLLED_BACK
        if answer.error in _RESOLVED_BY_METADATA:
            return IsrOutcome.LEFT_PENDING
        return IsrOutcome.ASK_AGAIN

    def _commit(self, isr: tuple[int, ...], partition_epoch: int) -> None:
        self.isr = isr
        self.partition_epoch = partition_epoch
        self.change = None
        for follower in self.followers.values():
            follower.in_maximal_isr = follower.broker_id in isr

    # --- followers ----------------------------------------------------------------------------

    def fetching_follower(self, broker_id: int, broker_epoch: int) -> FollowerReplica:
        """The follower that fetches in that broker epoch. Raises BrokerError: UNKNOWN_LEADER_EPOCH,
        NOT_LEADER_OR_FOLLOWER."""
        follower = self.followers.get(broker_id)
        if follower is None:  # its metadata is newer than ours
            raise BrokerError(ErrorCode.UNKNOWN_LEADER_EPOCH, f"{broker_id} is no replica")
        known_epoch = follower.broker_epoch
        if known_epoch is not None and NO_EPOCH < broker_epoch < known_epoch:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"stale broker epoch {broker_epoch}")
        return follower

    # --- in sync? -----------------------------------------------------------------------------

    @property
    def maximal_isr(self) -> tuple[int, ...]:
        change = self.change
        return self.isr if change is None or change.joining is None else (*self.isr, change.joining)

    @property
    def min_isr(self) -> int:
        """min.insync.replicas, but never more than there are replicas."""
        return min(self._min_insync, len(self.replicas))

    def configure(self, min_insync: int) -> None:
        self._min_insync = min_insync

    @property
    def under_min_isr(self) -> bool:
        return len(self.isr) < self._min_insync and len(self.isr) < len(self.replicas)

    def is_settled(self, leader_end: int) -> bool:
        """Whether every replica is in the ISR and has the whole log. Such a follower is caught up however
        long ago it fetched, so time alone changes nothing."""
        if self.change is not None or len(self.isr) != len(self.replicas):
            return False
        return all(follower.log_end_offset == leader_end for follower in self.followers.values())

    def appended(self, end_before: int, now: float) -> None:
        """The leader's log grew from `end_before`. Followers that had all of it were caught up when
        they last fetched, even if that fetch did not name this partition."""
        for follower in self.followers.values():
            if follower.log_end_offset == end_before:
                clock = follower.clock
                seen = now if clock is None else clock.last_fetch
                if seen > follower.last_caught_up:
                    follower.last_caught_up = seen

    def expand(self, follower: FollowerReplica, high_watermark: int) -> PendingIsrChange | None:
        """Propose `follower` for the ISR where it has come far enough and may join."""
        if (
            follower.in_maximal_isr
            or self.change is not None
            or follower.log_end_offset < high_watermark
            or follower.log_end_offset < self.epoch_start_offset
            or not self._may_join(follower)
        ):
            return None
        follower.in_maximal_isr = True  # from now on: the proposal may be committed before its answer comes
        return self._propose((*self.isr, follower.broker_id), follower.broker_id)

    def expand_any(self, high_watermark: int, now: float) -> PendingIsrChange | None:
        """Propose a live follower that could not be proposed when it fetched: another change was in
        flight, or its broker was still fenced. (Idle followers do not name the partition again.)"""
        for follower in self.followers.values():
            if follower.in_maximal_isr:
                continue
            seen = follower.last_fetch if follower.clock is None else follower.clock.last_fetch
            if now - seen <= self._lag_time_max:
                change = self.expand(follower, high_watermark)
                if change is not None:
                    return change
        return None

    def shrink(self, leader_end: int, now: float) -> PendingIsrChange | None:
        """Propose to drop the followers that have not been caught up for too long."""
        if self.change is not None:
            return None
        leaving = [
            f.broker_id
            for f in self.followers.values()
            if f.in_maximal_isr and not f.caught_up(leader_end, now, self._lag_time_max)
        ]
        if not leaving:
            return None
        return self._propose(tuple(b for b in self.isr if b not in leaving), None)

    def _propose(self, isr: tuple[int, ...], joining: int | None) -> PendingIsrChange:
        self.change = PendingIsrChange(isr, joining, self.leader_epoch, self.partition_epoch)
        return self.change

    def _may_join(self, follower: FollowerReplica) -> bool:
        epoch = self._eligible.get(follower.broker_id)
        if epoch is None or follower.broker_epoch is None:
            return False
        directory = self._directories.get(follower.broker_id)
        if directory is not None and not self._online(follower.broker_id, directory):
            return False
        return follower.broker_epoch in (epoch, NO_EPOCH)

    def isr_with_epochs(self, change: PendingIsrChange) -> tuple[tuple[int, int], ...]:
        """The proposed members with the broker epochs under which they fetched (-1: not known)."""
        members: list[tuple[int, int]] = []
        for broker_id in change.isr:
            if broker_id == self._local_id:
                epoch: int | None = self._eligible.get(broker_id)
            else:
                epoch = self.followers[broker_id].broker_epoch
            members.append((broker_id, NO_EPOCH if epoch is None else epoch))
        return tuple(members)

    # --- high watermark -----------------------------------------------------------------------

    def high_watermark(self, current: int, leader_end: int, now: float, own_end: int) -> int:
        """The high watermark after any change; never below `current`. `own_end` is how much of
        the leader's own log counts (with flush.messages=1 only what is fsynced).

        It waits for the maximal ISR and for followers about to join it: otherwise one could join, be
        elected, and lack records that had been exposed in between. Below min.insync.replicas it does not
        rise, whatever the producers' acks.
        """
        if self.under_min_isr:
            return current
        lowest = own_end
        for follower in self.followers.values():
            if follower.log_end_offset < lowest and (
                follower.in_maximal_isr
                or (follower.caught_up(leader_end, now, self._lag_time_max) and self._may_join(follower))
            ):
                lowest = follower.log_end_offset
        return lowest if lowest > current else current
