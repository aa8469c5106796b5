"""Groups at the protocol's level, with the assignors of a stock client (kafka-python) at the leader.

Each member is what a client is: it joins, assigns if it leads, syncs, and remembers what it owns.
Commands of the scenarios in groups/*.txt:

    topic NAME N                    a topic of N partitions
    member NAME ASSIGNOR TOPIC…     a consumer, or its new subscription; NAME:INSTANCE a static one
    join NAME                       ask to join (twice where the coordinator asks for that)
    rebalance NAME…                 everyone named joins, then everyone syncs, the leader first
    sync NAME | heartbeat NAME | leave NAME | restart NAME
    commit NAME TOPIC-P=OFFSET | offsets
    keep TOPIC-P=OFFSET             commit from outside, as who is in no group does
    expire | forget TOPIC           the coordinator's sweep; a topic is deleted
    delete | delete_offsets TOPIC-P…
    advance SECONDS | failover | group | log N (the last records, as they are in __consumer_offsets)
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest

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
    LeaveReply,
    MemberIdentity,
    MemberProtocol,
    OffsetsReply,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from data_plane.coordinator.groups.offsets import UnfinishedDeletion
from data_plane.coordinator.groups.records import OffsetRecord
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.golden.scenario_runner import run_commands, scenarios
from tests.unit.groups.group_driver import GroupDriver

with warnings.catch_warnings():
    warnings.simplefilter("ignore", DeprecationWarning)  # of kafka-python's own making
    from kafka.coordinator.assignors.cooperative_sticky import CooperativeStickyAssignor
    from kafka.coordinator.assignors.range import RangePartitionAssignor
    from kafka.coordinator.assignors.roundrobin import RoundRobinPartitionAssignor
    from kafka.coordinator.assignors.sticky.sticky_assignor import StickyPartitionAssignor
    from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription

ASSIGNORS: dict[str, Any] = {
    "range": RangePartitionAssignor,
    "roundrobin": RoundRobinPartitionAssignor,
    "sticky": StickyPartitionAssignor,
    "cooperative-sticky": CooperativeStickyAssignor,
}


@pytest.mark.row("G1", "G2")
@pytest.mark.parametrize("path", scenarios("classic_groups"))
def test_groups_behave_as_written(path: Path) -> None:
    run_commands(path, Scenario().execute)


@dataclass
class Cluster:
    """As much of a client's metadata as assignors look at."""

    sizes: dict[str, int] = field(default_factory=dict)

    def topics(self) -> set[str]:
        return set(self.sizes)

    def partitions_for_topic(self, topic: str) -> set[int] | None:
        return set(range(self.sizes[topic])) if topic in self.sizes else None


@dataclass
class Candidate:
    """A member as the leader's assignor wants it."""

    member_id: str
    group_instance_id: str | None
    metadata: Any


@dataclass
class Client:
    name: str
    instance: str | None
    assignor: Any
    topics: list[str]
    member_id: str = ""
    generation: int = -1
    leads: bool = False
    roster: tuple[Any, ...] = ()
    lives: int = 0

    def metadata(self) -> bytes:
        encoded = self.assignor.metadata(self.topics).encode()
        assert isinstance(encoded, bytes)
        return encoded

    def assign(self, cluster: Cluster) -> Mapping[str, bytes]:
        if not self.leads:
            return {}
        candidates = [
            Candidate(m, instance, ConsumerProtocolSubscription.decode(metadata))
            for m, instance, metadata in self.roster
        ]
        return {m: a.encode() for m, a in self.assignor.assign(cluster, candidates).items()}

    def take(self, assignment: bytes) -> str:
        decoded = ConsumerProtocolAssignment.decode(assignment)
        self.assignor.on_assignment(decoded, self.generation)
        owned = sorted((tp.topic, tp.partition) for tp in decoded.partitions())
        return " ".join(f"{topic}-{partition}" for topic, partition in owned) or "nothing"


class Scenario:
    """Executes a scenario's commands against one coordinator."""

    def __init__(self) -> None:
        self.driver = GroupDriver(GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=3.0)))
        self.cluster = Cluster()
        self.clients: dict[str, Client] = {}
        self.parked: dict[int, tuple[str, Client]] = {}

    def execute(self, command: str) -> list[str]:
        verb, *words = command.split()
        return [*getattr(self, f"do_{verb}")(*words), *self._answers()]

    # --- setting up

    def do_topic(self, name: str, partitions: str) -> list[str]:
        self.cluster.sizes[name] = int(partitions)
        return []

    def do_member(self, name: str, assignor: str, *topics: str) -> list[str]:
        name, _, instance = name.partition(":")
        known = self.clients.get(name)
        if known is not None and known.assignor.name == assignor:
            known.topics = list(topics)  # it goes on with another subscription
        else:
            self.clients[name] = Client(name, instance or None, ASSIGNORS[assignor](), list(topics))
        return []

    def do_restart(self, name: str) -> list[str]:
        """The process dies without a word and comes up again, knowing nothing."""
        client = self.clients[name]
        client.member_id, client.generation, client.leads = "", -1, False
        return []

    # --- requests

    def do_join(self, name: str) -> Iterator[str]:
        client = self.clients[name]
        ticket = self._ask_to_join(client)
        reply = self.driver.answers.get(ticket)
        if isinstance(reply, JoinReply) and reply.error is ErrorCode.MEMBER_ID_REQUIRED:
            del self.driver.answers[ticket]
            client.member_id = reply.member_id
            yield f"{name}: MEMBER_ID_REQUIRED, is {reply.member_id}"
            ticket = self._ask_to_join(client)
        self.parked[ticket] = ("join", client)

    def _ask_to_join(self, client: Client) -> int:
        client.lives += not client.member_id
        protocol = MemberProtocol(client.assignor.name, client.metadata())
        request = JoinGroup(
            "g",
            client.member_id,
            "consumer",
            (protocol,),
            session_timeout_ms=10_000,
            rebalance_timeout_ms=60_000,
            instance_id=client.instance,
            new_member_id=f"{client.name}-{client.lives}",
        )
        return self.driver.ask("join", request)

    def do_sync(self, name: str) -> list[str]:
        client = self.clients[name]
        request = SyncGroup(
            "g",
            client.member_id,
            client.generation,
            client.instance,
            assignments=client.assign(self.cluster),
        )
        self.parked[self.driver.ask("sync", request)] = ("sync", client)
        return []

    def do_rebalance(self, *names: str) -> Iterator[str]:
        for name in names:
            yield from self.do_join(name)
        while not self.parked.keys() <= self.driver.answers.keys():
            self.driver.advance(1.0)  # an empty group waits for more members, a full one for all
        yield from self._answers()
        for name in sorted(names, key=lambda name: not self.clients[name].leads):
            self.do_sync(name)

    def do_heartbeat(self, name: str) -> list[str]:
        client = self.clients[name]
        request = Heartbeat("g", client.member_id, client.generation, client.instance)
        self.parked[self.driver.ask("heartbeat", request)] = ("heartbeat", client)
        return []

    def do_leave(self, name: str) -> list[str]:
        client = self.clients[name]
        request = LeaveGroup("g", (MemberIdentity(client.member_id, client.instance),))
        self.parked[self.driver.ask("leave", request)] = ("leave", client)
        client.member_id = ""
        return []

    def do_commit(self, name: str, what: str) -> list[str]:
        client = self.clients[name]
        wanted = (_offset(what),)
        request = CommitOffsets("g", wanted, client.member_id, client.generation, client.instance)
        self.parked[self.driver.ask("commit", request)] = ("commit", client)
        return []

    def do_keep(self, what: str) -> list[str]:
        reply = self.driver.answer("commit", CommitOffsets("g", (_offset(what),)))
        assert isinstance(reply, CommitReply)
        return [f"keep {next(iter(reply.errors.values())).name}"]

    # --- what goes

    def do_expire(self) -> list[str]:
        return [f"{self.driver.expire()} records"]

    def do_forget(self, topic: str) -> list[str]:
        deletion = self.driver.manager.begin_topic_deletion(UnfinishedDeletion([topic]))
        return [f"{self.driver.run('delete_some_offsets', deletion)} records"]

    def do_delete(self) -> list[str]:
        answer = self.driver.answer("delete", "g")
        assert isinstance(answer, ErrorCode)
        return [f"delete {answer.name}"]

    def do_delete_offsets(self, *places: str) -> list[str]:
        reply = self.driver.answer("delete_offsets", "g", [_place(place) for place in places])
        if isinstance(reply, ErrorCode):
            return [f"delete_offsets {reply.name}"]
        assert isinstance(reply, CommitReply)
        return [f"{place} {error.name}" for place, error in reply.errors.items()]

    # --- looking on

    def do_offsets(self) -> list[str]:
        reply = self.driver.answer("fetch", FetchOffsets("g", None))
        assert isinstance(reply, OffsetsReply)
        return [f"{tp}={kept.offset}" for tp, kept in sorted(reply.offsets.items()) if kept is not None]

    def do_group(self) -> list[str]:
        group = self.driver.answer("describe", "g")
        assert isinstance(group, DescribedGroup)
        if group.error is not ErrorCode.NONE:
            return [group.error.name]
        return [f"{group.state} {group.protocol}: {' '.join(m.member_id for m in group.members)}".rstrip()]

    def do_advance(self, seconds: str) -> list[str]:
        self.driver.advance(float(seconds))
        return []

    def do_log(self, count: str) -> Iterator[str]:
        for key, value in self.driver.log[-int(count) :]:
            record = self.driver.manager.decode(key, None)
            assert record is not None
            what = record.partition if isinstance(record, OffsetRecord) else "group"
            yield f"{what}: {'tombstone' if value is None else f'{len(value)} bytes'}"

    def do_failover(self) -> list[str]:
        """Another broker becomes the coordinator; requests that were parked are lost."""
        self.driver = self.driver.reloaded()
        self.parked.clear()
        return []

    # --- answers

    def _answers(self) -> Iterator[str]:
        for ticket in sorted(self.driver.answers.keys() & self.parked.keys()):
            verb, client = self.parked.pop(ticket)
            yield f"{client.name}: {self._tell(verb, client, self.driver.answers.pop(ticket))}"

    def _tell(self, verb: str, client: Client, reply: object) -> str:
        match reply:
            case JoinReply(error=ErrorCode.NONE):
                client.member_id, client.generation = reply.member_id, reply.generation
                client.leads = reply.leader == client.member_id and not reply.skip_assignment
                client.roster = reply.members
                leads = f", leads {len(reply.members)}" if client.leads else ""
                return f"joined generation {reply.generation} as {reply.member_id}{leads}"
            case SyncReply(error=ErrorCode.NONE):
                return f"owns {client.take(reply.assignment)}"
            case LeaveReply():
                return f"{verb} {reply.members[0][1].name}"
            case CommitReply():
                return f"{verb} {next(iter(reply.errors.values())).name}"
            case JoinReply() | SyncReply() | HeartbeatReply():
                return f"{verb} {reply.error.name}"
        raise AssertionError(reply)


def _place(text: str) -> TopicPartition:
    topic, _, number = text.rpartition("-")
    return TopicPartition(topic, int(number))


def _offset(text: str) -> OffsetToCommit:
    """`flights-0=10`."""
    place, _, offset = text.partition("=")
    return OffsetToCommit(_place(place), int(offset))
