"""The groups coordinator of a broker: what kraft/api/groups.py calls.

A group belongs to one partition of `__consumer_offsets`, chosen by Java's hash of its id; the
broker that leads the partition coordinates the group. The publisher calls `become_leader` and
`resign` as leadership moves. Every call may raise BrokerError: NOT_COORDINATOR where the
partition is not led here, COORDINATOR_LOAD_IN_PROGRESS until it has been read.

    api/groups -> GroupCoordinator -> runtime.Shard of the partition -> GroupMetadataManager
"""

from __future__ import annotations

import asyncio
import random
from collections import deque
from collections.abc import AsyncIterator, Callable, Collection, Iterator
from dataclasses import dataclass, field, replace
from functools import partial
from itertools import chain
from typing import Final, NamedTuple
from uuid import UUID

from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.messages import (
    ConsumerHeartbeat,
    ConsumerHeartbeatReply,
    DescribedConsumerGroup,
)
from data_plane.coordinator.groups.consumer.state import JOINING
from data_plane.coordinator.groups.consumer.upgrade import Upgrade
from data_plane.coordinator.groups.group_metadata_manager import (
    GroupLimits,
    GroupMetadataManager,
)
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    DescribedGroup,
    FetchOffsets,
    GroupSummary,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    LeaveReply,
    ListedGroup,
    OffsetsReply,
    SyncGroup,
    SyncReply,
)
from data_plane.coordinator.groups.offsets import TopicDeletion, UnfinishedDeletion
from data_plane.coordinator.groups.records import CoordinatorRecord
from data_plane.coordinator.loading import Loads
from data_plane.coordinator.partition_log import PartitionLog
from data_plane.coordinator.runtime import ANSWERED_PER_TURN, CoordinatorState, Shard, ShardLimits
from data_plane.coordinator.state_machine import CoordinatorResult, Instant, ProducerIdAndEpoch
from data_plane.coordinator.topics import OFFSETS_TOPIC, partition_for_key
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import bounded
from metadata_quorum.foundation.turns import Turns, TurnShare
from metadata_quorum.foundation.uuids import uuid_text

_WAIT_FOR_TRANSACTIONS_S: Final = 1.0
LONG_SUBSCRIPTION_BYTES: Final = 16 * 1024
"""Of a classic member. Longer ones are read one in each turn of the loop: dozens may come together."""
NAME_IN_ID: Final = 255
"""Characters of a client's or instance's name that the member's id has: it is remembered for whoever asks for
one, and is in every record and message of its member."""
LONG_LIST: Final = 1_000
"""Names of topics that are looked up before anything is decided by them."""
_NAMES_PER_TURN: Final = 256
"""Topics whose visibility is checked per turn of the loop."""
_LOOKS: Final = 4
"""How often a heartbeat looks whether what it needs is known."""


@dataclass(frozen=True, slots=True)
class GroupCoordinatorConfig:
    groups: GroupLimits = field(default_factory=GroupLimits)
    shards: ShardLimits = field(default_factory=ShardLimits)
    partitions: int = 50
    """offsets.topic.num.partitions, until the topic itself is known"""
    retention_check_interval: float = 600.0
    """offsets.retention.check.interval.ms (seconds)"""


class _LedGroupPartition(NamedTuple):
    """One partition led here."""

    shard: Shard[CoordinatorRecord]
    manager: GroupMetadataManager
    deleted: list[UnfinishedDeletion]
    """Of topics that were deleted while it could not be served: what it finds was committed before. Or
    earlier, and the machine that had the partition then did not come to the end."""


class GroupCoordinator:
    """All the shards of `__consumer_offsets` that this broker leads."""

    def __init__(
        self,
        config: GroupCoordinatorConfig,
        log: PartitionLog,
        loop: asyncio.AbstractEventLoop,
        rng: random.Random,
        now_ms: Callable[[], int],
    ) -> None:
        self._config = config
        self._log = log
        self._loop = loop
        self._rng = rng
        self._now_ms = now_ms
        self.partitions = config.partitions
        """How many partitions the topic has; the publisher sets it when it sees the topic."""
        self.view = ClusterView()
        """What groups of the consumer protocol see of the cluster; the publisher keeps it up to date."""
        self._led: dict[int, _LedGroupPartition] = {}
        self._loads = Loads(loop, self.become_leader, config.shards.load_turn_bytes)
        self._answers = TurnShare(loop, ANSWERED_PER_TURN)
        self._heartbeats: dict[tuple[str, str], asyncio.Future[None]] = {}
        """By group and member: done when the newest heartbeat that has come is answered."""
        self._turns = Turns(loop)
        """Of heartbeats that look for topics, or may have all partitions of their group assigned anew."""
        self._sweep_timer = loop.call_later(config.retention_check_interval, self._sweep)

    @property
    def shards(self) -> list[Shard[CoordinatorRecord]]:
        """The shards of the partitions that are led here."""
        return [led.shard for led in self._led.values()]

    # --- leadership ----------------------------------------------------------------------------

    def partition_for(self, group_id: str) -> int:
        return partition_for_key(group_id, self.partitions)

    def become_leader(self, partition: int, leader_epoch: int) -> None:
        """Load the partition and serve its groups. An epoch that is not newer changes nothing."""
        led = self._led.get(partition)
        deleted: list[UnfinishedDeletion] = []
        if led is not None:
            if led.shard.leader_epoch >= leader_epoch and led.shard.state is not CoordinatorState.FAILED:
                return
            led.shard.close()
            if leader_epoch <= led.shard.leader_epoch + 1:  # nobody else has led it meanwhile
                deleted = [*led.deleted, *led.manager.unfinished_deletions()]
        max_batch_bytes = partial(self._max_batch_bytes, partition)
        manager = GroupMetadataManager(self._config.groups, self.view, max_batch_bytes)
        shard = Shard[CoordinatorRecord](
            partition,
            leader_epoch,
            manager,
            self._log,
            self._loop,
            self._now_ms,
            self._config.shards,
            self._loads,
            self._answers,
        )
        led = self._led[partition] = _LedGroupPartition(shard, manager, deleted)
        shard.before_serving(partial(self._forget_what_is_gone, led))

    def resign(self, partition: int) -> None:
        """The partition is led elsewhere, or nowhere."""
        self._loads.resigned(partition)
        led = self._led.pop(partition, None)
        if led is not None:
            led.shard.close()

    async def loaded(self) -> None:
        """Wait until no partition is loading."""
        for led in list(self._led.values()):
            await led.shard.loaded()

    def close(self) -> None:
        self._sweep_timer.cancel()
        for partition in list(self._led):
            self.resign(partition)

    # --- membership ----------------------------------------------------------------------------

    async def join(self, request: JoinGroup) -> JoinReply:
        """Raises BrokerError."""
        _check_group_id(request.group_id)
        if any(len(each.metadata) > LONG_SUBSCRIPTION_BYTES for each in request.protocols[:1]):
            await self._turns.next()  # it is read where others in the group have the consumer protocol
        drawn = "" if request.member_id else self._draw_member_id(request)
        led = self._led_for(request.group_id)
        room = self._max_batch_bytes(led.shard.partition)
        if not room:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        request = replace(request, new_member_id=drawn, max_record_bytes=room)
        return await led.shard.ask(JoinReply, partial(led.manager.join, request))

    def _max_batch_bytes(self, partition: int) -> int:
        """Nothing has room in a partition that is not here."""
        try:
            return self._log.max_batch_bytes(partition)
        except BrokerError:
            return 0

    async def sync(self, request: SyncGroup) -> SyncReply:
        _check_group_id(request.group_id)
        led = self._led_for(request.group_id)
        return await led.shard.ask(SyncReply, partial(led.manager.sync, request))

    async def heartbeat(self, request: Heartbeat) -> HeartbeatReply:
        _check_group_id(request.group_id)
        led = self._led_for(request.group_id)
        try:
            return await led.shard.ask(HeartbeatReply, partial(led.manager.heartbeat, request))
        except BrokerError as e:
            if e.code is not ErrorCode.COORDINATOR_LOAD_IN_PROGRESS:
                raise
            return HeartbeatReply(ErrorCode.NONE)  # its session restarts after the load anyway

    async def leave(self, request: LeaveGroup) -> LeaveReply:
        _check_group_id(request.group_id)
        led = self._led_for(request.group_id)
        return await led.shard.ask(LeaveReply, partial(led.manager.leave, request))

    async def consumer_heartbeat(self, request: ConsumerHeartbeat) -> ConsumerHeartbeatReply:
        """A heartbeat of a member of the consumer protocol. Its id is empty only if it may be given one."""
        _check_group_id(request.group_id)
        if not request.member_id:
            unique = UUID(int=self._rng.getrandbits(128), version=4)
            request = replace(request, member_id=uuid_text(unique))
        member = request.group_id, request.member_id
        before, answered = self._heartbeats.get(member), self._loop.create_future()
        self._heartbeats[member] = answered
        try:
            if before is not None:  # in order: a member that joins and leaves must not join after it has left
                await asyncio.wait((before,))
            if request.member_epoch <= JOINING or request.subscribed_topic_names is not None:
                await self._turns.next()  # hundreds may join at once
            await self._look_up_names(request.subscribed_topic_names or ())
            await self._look_up_patterns(request)
            _upgrade = await self._convert(request)  # kept for the decision, which follows in this turn
            led = self._led_for(request.group_id)
            decide = partial(led.manager.consumer_heartbeat, request)
            return await led.shard.ask(ConsumerHeartbeatReply, decide)
        finally:
            if before is None or before.done():
                self._heartbeat_answered(member, answered)
            else:  # called off: who waits for it waits for the one before it
                before.add_done_callback(lambda _: self._heartbeat_answered(member, answered))

    def _heartbeat_answered(self, member: tuple[str, str], answered: asyncio.Future[None]) -> None:
        answered.set_result(None)
        if self._heartbeats.get(member) is answered:
            del self._heartbeats[member]

    async def _convert(self, request: ConsumerHeartbeat) -> Upgrade | None:
        """Where a classic group is to become one of the consumer protocol, most of its members, in pieces;
        once more where it is another group by then."""
        upgrade, converted = self._upgrade_for(request), None
        while upgrade is not converted:
            for _ in () if upgrade is None else upgrade.steps():
                await self._turns.next()
            upgrade, converted = self._upgrade_for(request), upgrade
        return upgrade

    def _upgrade_for(self, request: ConsumerHeartbeat) -> Upgrade | None:
        self.check_serving(request.group_id)
        return self._led_for(request.group_id).manager.upgrade_for(request)

    async def _look_up_names(self, names: Collection[str]) -> None:
        """What a member that names thousands of topics makes its group ask for, each in a turn of its own."""
        if len(names) >= LONG_LIST:
            there = self.view.there(frozenset(names))
            _ = there.ids
            await self._turns.next()
            _ = self.view.there(there.names).metadata_hash  # as if nobody else were there
            await self._turns.next()

    async def _look_up_patterns(self, request: ConsumerHeartbeat) -> None:
        """Resolve the patterns, in pieces: the decision that needs them cannot pause. Topics that come and go
        meanwhile are looked at when it is almost done."""
        led = self._led_for(request.group_id)
        for _ in range(_LOOKS):
            at = Instant(self._loop.time(), self._now_ms())
            patterns = sorted(led.manager.patterns_to_look_up(request, at))
            try:
                for regex in patterns:
                    await self._look_up(regex, request.may_see)
            except BrokerError:  # the member's own is no expression, which the decision may have to say
                return
            if all(map(self.view.matches.is_known, patterns)):
                return

    async def _look_up(self, regex: str, may_see: Callable[[str], bool]) -> None:
        if not self.view.matches.is_known(regex):
            await self._turns.next()
        for _ in self.view.matches.steps(regex):
            await self._turns.next()
        for place, name in enumerate(self.view.matches.matching(regex), 1):
            may_see(name)  # which caches the outcome
            if place % _NAMES_PER_TURN == 0:
                await self._turns.next()

    # --- offsets -------------------------------------------------------------------------------

    async def commit_offsets(self, request: CommitOffsets) -> CommitReply:
        led = self._led_for(request.group_id)
        return await led.shard.ask(CommitReply, partial(led.manager.commit, request))

    def check_serving(self, group_id: str) -> None:
        """Raises BrokerError where the group is coordinated elsewhere, or its partition is being loaded."""
        self._led_for(group_id).shard.check_serving()

    async def end_transaction(
        self, partition: int, producer: ProducerIdAndEpoch, coordinator_epoch: int, *, commit: bool
    ) -> None:
        """A transaction that has offsets in this partition ends. Raises BrokerError."""
        led = self._led.get(partition)
        if led is None:
            raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER)
        await led.shard.end_transaction(producer, coordinator_epoch, commit=commit)

    async def fetch_offsets(self, request: FetchOffsets) -> OffsetsReply:
        led = self._led_for(request.group_id)
        return await led.shard.ask(OffsetsReply, partial(led.manager.fetch, request))

    async def delete_offsets(self, group_id: str, partitions: Collection[TopicPartition]) -> CommitReply:
        """Raises BrokerError for a group that is unknown or whose subscriptions cannot be read."""
        _check_group_id(group_id)
        await self._turns.next()  # what its members say that they read is read
        led = self._led_for(group_id)
        reply = await led.shard.submit(partial(led.manager.delete_offsets, group_id, partitions))
        if isinstance(reply, ErrorCode):
            raise BrokerError(reply)
        assert isinstance(reply, CommitReply)
        return reply

    def topics_deleted(self, topics: Collection[str]) -> None:
        """Delete what is committed for them so far, some of it per turn of the loop."""
        what = UnfinishedDeletion(topics)
        deletions = [(led, led.manager.begin_topic_deletion(what)) for led in self._active()]
        self._delete_some_offsets(deque(deletions))
        for led in self._led.values():
            if led.shard.state is not CoordinatorState.ACTIVE:
                led.deleted.append(what)

    def _forget_what_is_gone(self, led: _LedGroupPartition) -> None:
        """Offsets of deleted topics that the last coordinator did not come to: a new topic of the name begins
        without any. This broker knows every topic that the other one did."""
        unfinished = list(led.deleted)
        led.deleted.clear()
        if self.view.topic_id(OFFSETS_TOPIC) is not None:  # else no metadata is here yet
            committed = led.manager.topics_committed()
            unfinished.append(UnfinishedDeletion([t for t in committed if self.view.topic_id(t) is None]))
        begin = led.manager.begin_topic_deletion
        deletions = deque((led, begin(each)) for each in unfinished if each.topics)
        if deletions:
            self._loop.call_later(0.0, self._delete_some_offsets, deletions)  # once it serves

    def _delete_some_offsets(self, left: deque[tuple[_LedGroupPartition, TopicDeletion]]) -> None:
        while left and left[0][0].shard.state is not CoordinatorState.ACTIVE:
            left.popleft()
        if not left:
            return
        led, deletion = left[0]
        bounded(
            self._loop,
            f"forgetting of topics in the coordinator's partition {led.shard.partition}",
            _delete_step,
            led,
            deletion,
        )
        left.popleft() if deletion.done else left.rotate(-1)
        if left:
            self._loop.call_later(
                _WAIT_FOR_TRANSACTIONS_S if deletion.waits else 0.0, self._delete_some_offsets, left
            )

    # --- looking at groups, deleting them ------------------------------------------------------

    async def list_groups(self) -> AsyncIterator[tuple[ListedGroup, ...]]:
        """Every group that is coordinated here, some at a time. Raises while a partition is being loaded, for
        the list would have holes."""
        for shard, manager, _ in list(self._led.values()):
            for part in manager.group_ids():
                yield await shard.ask_all(partial(manager.list, part))

    def summaries(self) -> Iterator[GroupSummary]:
        """Every group of the partitions that are loaded. May be taken over many turns of the loop."""
        for shard, manager, _ in self._active():
            for group_id in chain.from_iterable(manager.group_ids()):
                summary = manager.summary(group_id) if shard.state is CoordinatorState.ACTIVE else None
                if summary is not None:
                    yield summary

    def size_of(self, group_id: str) -> int:
        """How many members it has, as far as this broker knows. A long name is not hashed for it."""
        return sum(led.manager.size_of(group_id) for led in self._led.values())

    async def describe_group(self, group_id: str) -> DescribedGroup:
        led = self._led_for(group_id)
        return await led.shard.ask(DescribedGroup, partial(led.manager.describe, group_id))

    async def describe_consumer_group(self, group_id: str) -> DescribedConsumerGroup:
        _check_group_id(group_id)
        led = self._led_for(group_id)
        return await led.shard.ask(DescribedConsumerGroup, partial(led.manager.describe_consumer, group_id))

    async def delete_group(self, group_id: str) -> ErrorCode:
        """The one without a name too: old clients commit offsets to it."""
        while True:
            led = self._led_for(group_id)
            answer = await led.shard.submit(partial(led.manager.delete, group_id))
            if isinstance(answer, ErrorCode):
                return answer

    # --- inside --------------------------------------------------------------------------------

    def _led_for(self, group_id: str) -> _LedGroupPartition:
        """The partition with this group, which may be loading still: its shard then refuses requests.

        Raises:
            BrokerError: NOT_COORDINATOR.
        """
        led = self._led.get(self.partition_for(group_id))
        if led is None:
            raise BrokerError(ErrorCode.NOT_COORDINATOR)
        return led

    def _active(self) -> list[_LedGroupPartition]:
        return [led for led in self._led.values() if led.shard.state is CoordinatorState.ACTIVE]

    def _sweep(self) -> None:
        """Expire offsets, some groups of one shard per turn of the loop."""
        self._sweep_some(deque(self._active()), deque())

    def _sweep_some(self, left: deque[_LedGroupPartition], groups: deque[str]) -> None:
        """`groups`: what is left of the first shard."""
        if left:
            shard, manager, _ = left[0]
            groups = groups or manager.groups_to_expire()
            work = f"expiry in the coordinator's partition {shard.partition}"
            active = shard.state is CoordinatorState.ACTIVE
            if not (active and bounded(self._loop, work, _expire_step, left[0], groups)):
                groups.clear()  # until the next sweep
            if not groups:
                left.popleft()
        if left:
            again = partial(self._sweep_some, left, groups)
            self._sweep_timer = self._loop.call_later(0.0, again)
        else:
            self._sweep_timer = self._loop.call_later(self._config.retention_check_interval, self._sweep)

    def _draw_member_id(self, request: JoinGroup) -> str:
        """As Kafka's: a name for people, then a random uuid."""
        unique = UUID(int=self._rng.getrandbits(128), version=4)
        return f"{(request.instance_id or request.client_id)[:NAME_IN_ID]}-{unique}"


def _expire_step(led: _LedGroupPartition, groups: deque[str]) -> bool:
    """Whether all could be written."""
    decided: list[CoordinatorRecord] = []

    def decide(at: Instant) -> CoordinatorResult[CoordinatorRecord]:
        result = led.manager.expire(groups, at)
        decided.extend(result.records)
        return result

    return led.shard.run(decide) == len(decided)


def _delete_step(led: _LedGroupPartition, deletion: TopicDeletion) -> None:
    written = led.shard.run(partial(led.manager.delete_some_offsets, deletion))
    if written < deletion.tombstones:
        led.manager.refuse_topic_deletion(deletion)


def _check_group_id(group_id: str) -> None:
    if not group_id:
        raise BrokerError(ErrorCode.INVALID_GROUP_ID)
