"""Groups under any order of requests, late copies of them, silences, refused appends and failovers.

Clients behave as clients do, one step at a time, in whatever order; the leader hands out disjoint
partitions. Held after every step: the invariants of groups (generation monotonic, at most
one owner per partition and generation, commits only from current members) and that replaying the
records gives what the live manager knows.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, precondition, rule

from data_plane.coordinator.groups.classic import group as classic_group
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    DescribedGroup,
    FetchOffsets,
    Heartbeat,
    HeartbeatReply,
    JoinGroup,
    JoinReply,
    LeaveGroup,
    MemberIdentity,
    MemberProtocol,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.suite.examples import examples
from tests.unit.groups.group_driver import GroupDriver

PARTITIONS = 3
REJOIN = {ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID}


@dataclass
class Client:
    name: str
    instance: str | None
    member_id: str = ""
    generation: int = -1
    members: tuple[str, ...] = ()
    parked: set[int] = field(default_factory=set)
    lives: int = 0
    must_join: bool = True
    synced: bool = False


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.driver = GroupDriver(
            GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=3.0, max_size=3))
        )
        self.clients = [Client("a", None), Client("b", None), Client("c", "i3"), Client("d", "i3")]
        self.owners: dict[tuple[int, int], str] = {}
        """Generation and partition -> member, whoever was the coordinator: no assignment is answered
        before it is stored, so a new coordinator cannot give out the same generation otherwise."""
        self.highest_generation = -1
        self.acknowledged = -1
        self.next_offset = 0

    clients_ = st.integers(0, 3)

    # --- what clients do

    @rule(order=st.permutations([0, 1, 2]), rounds=st.integers(1, 4))
    def behave(self, order: list[int], rounds: int) -> None:
        """Three of them do what is next for each, some times over."""
        for who in order * rounds:
            client = self.clients[who]
            if client.parked:
                self.driver.advance(1.0)
            elif client.must_join or not client.member_id:
                self.join(who, True, "xy")
            elif not client.synced:
                self.sync(who)
            else:
                self.heartbeat(who)
            self.take_answers()

    @rule(
        who=clients_, leads_again=st.booleans(), protocols=st.sampled_from([("x",), ("x", "y"), ("y", "x")])
    )
    def join(self, who: int, leads_again: bool, protocols: str) -> None:
        client = self.clients[who]
        client.lives += not client.member_id
        request = JoinGroup(
            "g",
            client.member_id,
            "consumer",
            tuple(MemberProtocol(name, b"") for name in protocols),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=15_000,
            instance_id=client.instance,
            new_member_id=f"{client.name}-{client.lives}",
            can_skip_assignment=leads_again,
        )
        client.parked.add(self.driver.ask("join", request))

    @rule(who=clients_)
    def sync(self, who: int) -> None:
        client = self.clients[who]
        shares = dict.fromkeys(client.members, b"")
        for partition in range(PARTITIONS if shares else 0):
            shares[client.members[partition % len(client.members)]] += bytes([partition])
        request = SyncGroup("g", client.member_id, client.generation, client.instance, assignments=shares)
        client.parked.add(self.driver.ask("sync", request))

    @rule(who=clients_)
    def heartbeat(self, who: int) -> None:
        client = self.clients[who]
        request = Heartbeat("g", client.member_id, client.generation, client.instance)
        reply = self.driver.answer("heartbeat", request)
        assert isinstance(reply, HeartbeatReply)
        if reply.error in REJOIN:
            client.member_id = ""
        client.must_join |= reply.error is not ErrorCode.NONE

    @rule(who=clients_)
    def leave(self, who: int) -> None:
        client = self.clients[who]
        self.driver.answer("leave", LeaveGroup("g", (MemberIdentity(client.member_id, client.instance),)))

    @rule(who=clients_, stale=st.sampled_from([0, -1, 1]))
    def commit(self, who: int, stale: int) -> None:
        client = self.clients[who]
        described = self.driver.answer("describe", "g")
        assert isinstance(described, DescribedGroup)
        self.next_offset += 1
        wanted = (OffsetToCommit(TopicPartition("t", 0), self.next_offset),)
        generation = client.generation + stale
        reply = self.driver.answer(
            "commit", CommitOffsets("g", wanted, client.member_id, generation, client.instance)
        )
        if not isinstance(reply, CommitReply):
            assert reply is self.driver.refusal
            return
        if reply.errors[wanted[0].partition] is ErrorCode.NONE:
            self.acknowledged = self.next_offset
            if described.members:
                assert client.member_id in {m.member_id for m in described.members}
                assert generation == self.current_generation()
            else:
                assert generation < 0

    # --- what happens to them

    @precondition(lambda self: self.driver.sent)
    @rule(data=st.data())
    def late_copy(self, data: st.DataObject) -> None:
        """Offsets of the same generation go back with it, as with Apache Kafka; those of an earlier one are
        refused."""
        number = data.draw(st.integers(0, len(self.driver.sent) - 1))
        _, request = self.driver.sent[number]
        generation = self.current_generation()
        reply = self.driver.late_copy(number)
        taken = isinstance(reply, CommitReply) and set(reply.errors.values()) == {ErrorCode.NONE}
        if taken and isinstance(request, CommitOffsets):
            assert request.generation < 0 or request.generation == generation
            self.acknowledged = request.offsets[0].offset

    @rule(seconds=st.sampled_from([0.5, 3.0, 6.0, 16.0]))
    def time_passes(self, seconds: float) -> None:
        self.driver.advance(seconds)

    @rule(who=clients_)
    def restart(self, who: int) -> None:
        self.clients[who].member_id = ""
        self.clients[who].parked.clear()

    @rule(error=st.sampled_from([None, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def appends_are(self, error: ErrorCode | None) -> None:
        self.driver.refusal = error

    @rule()
    def failover(self) -> None:
        self.driver = self.driver.reloaded()
        self.driver.refusal = None
        self.highest_generation = self.current_generation()
        for client in self.clients:
            client.parked.clear()

    # --- what must hold

    @invariant()
    def take_answers(self) -> None:
        for client in self.clients:
            for ticket in sorted(client.parked & self.driver.answers.keys()):
                client.parked.discard(ticket)
                self._take(client, self.driver.answers.pop(ticket))

    def _take(self, client: Client, reply: object) -> None:
        match reply:
            case JoinReply(error=ErrorCode.NONE):
                client.member_id, client.generation = reply.member_id, reply.generation
                listed = () if reply.skip_assignment else reply.members
                client.members = tuple(m.member_id for m in listed)
                client.must_join, client.synced = False, False
                assert bool(reply.members) == (reply.leader == reply.member_id)
            case JoinReply(error=ErrorCode.MEMBER_ID_REQUIRED):
                client.member_id = reply.member_id
            case SyncReply(error=ErrorCode.NONE):
                client.synced = True
                self._owns(client, reply.assignment)
            case JoinReply() | SyncReply():
                client.must_join = True
                if reply.error in REJOIN:
                    client.member_id = ""

    def _owns(self, client: Client, assignment: bytes) -> None:
        slot = client.instance or client.member_id
        for partition in assignment:
            key = (client.generation, partition)
            assert self.owners.setdefault(key, slot) == slot, f"two owners of {key}"

    @invariant()
    def generation_never_falls(self) -> None:
        generation = self.current_generation()
        assert generation >= self.highest_generation
        self.highest_generation = generation

    @invariant()
    def replay_gives_what_is_known(self) -> None:
        fetched = self.driver.answer("fetch", FetchOffsets("g", None))
        successor = self.driver.reloaded()
        assert successor.answer("fetch", FetchOffsets("g", None)) == fetched
        described = self.driver.answer("describe", "g")
        assert isinstance(described, DescribedGroup)
        if described.state == "Stable":
            assert successor.answer("describe", "g") == described

    @invariant()
    def what_is_kept_is_what_a_recount_gives(self) -> None:
        group = self.driver.manager.group("g")
        if not isinstance(group, ClassicGroup):
            return
        roster = group.metadata.roster
        names = [{protocol.name for protocol in member.protocols} for member in roster]
        assert roster.common_protocols() == (set.intersection(*names) if names else set())
        assert roster.all_joined() == all(roster.has_joined(member) for member in roster)
        assert len(roster.sessions) == len(roster)
        ends = [roster.sessions.at(member.member_id) for member in roster]
        assert roster.sessions.earliest() == min(ends, default=math.inf)
        assert group.next_deadline() <= min(ends, default=math.inf)

    @invariant()
    def acknowledged_offsets_are_kept(self) -> None:
        reply = self.driver.answer("fetch", FetchOffsets("g", None))
        kept = getattr(reply, "offsets", {}).get(TopicPartition("t", 0))
        assert (kept.offset if kept is not None else -1) == self.acknowledged

    def current_generation(self) -> int:
        group = self.driver.manager.group("g")
        return -1 if group is None else group.metadata.generation


Groups.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
TestGroups = Groups.TestCase


class OneAtATime(Groups):
    """What happens to all members together is done to one of them per tick."""

    def __init__(self) -> None:
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(classic_group, "ENDED_AT_ONCE", 1)
        super().__init__()

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


OneAtATime.TestCase.settings = settings(max_examples=examples(200), stateful_step_count=30, deadline=None)
TestOneAtATime = OneAtATime.TestCase
