"""The members of a classic group: their identities, their protocols, the requests that wait for a reply.

Pure; owned by one ClassicGroup (group.py), which decides when anything here changes.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from data_plane.coordinator.groups.deadlines import Deadlines
from data_plane.coordinator.groups.messages import (
    DescribedMember,
    JoinedMember,
    JoinGroup,
    MemberProtocol,
    bytes_of,
)
from data_plane.coordinator.groups.records import StoredMember
from data_plane.coordinator.state_machine import Ticket


@dataclass(slots=True)
class ClassicGroupMember:
    member_id: str
    instance_id: str | None
    client_id: str
    client_host: str
    session_timeout_ms: int
    rebalance_timeout_ms: int
    protocols: tuple[MemberProtocol, ...]
    """In the member's order of preference. After a load only the group's chosen one is known."""
    assignment: bytes = b""
    is_new: bool = False
    """Has not received a response to its first join: it cannot send heartbeats yet."""
    sync_ticket: Ticket | None = None

    @property
    def name_bytes(self) -> int:
        """What its names take in the group's record."""
        names = self.member_id, self.instance_id or "", self.client_id, self.client_host
        return sum(len(name.encode()) for name in names)

    @property
    def session_timeout(self) -> float:
        return self.session_timeout_ms / 1000

    def protocol_names(self) -> set[str]:
        return {name for name, _ in self.protocols}

    def metadata(self, protocol: str | None) -> bytes:
        for name, metadata in self.protocols:
            if name == protocol:
                return metadata
        return b""

    def vote(self, candidates: set[str]) -> str:
        """The candidate that this member prefers."""
        return next(name for name, _ in self.protocols if name in candidates)

    def joined(self, protocol: str | None) -> JoinedMember:
        return JoinedMember(self.member_id, self.instance_id, self.metadata(protocol))

    def stored(self, protocol: str | None, assignment: bytes) -> StoredMember:
        return StoredMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.rebalance_timeout_ms,
            self.session_timeout_ms,
            self.metadata(protocol),
            assignment,
        )

    def described(self, protocol: str | None) -> DescribedMember:
        return DescribedMember(
            self.member_id,
            self.instance_id,
            self.client_id,
            self.client_host,
            self.metadata(protocol),
            self.assignment,
        )


def member_of(request: JoinGroup, member_id: str) -> ClassicGroupMember:
    """A new member."""
    return ClassicGroupMember(
        member_id,
        request.instance_id,
        request.client_id,
        request.client_host,
        request.session_timeout_ms,
        rebalance_timeout_of(request),
        request.protocols,
        is_new=True,
    )


def rebalance_timeout_of(request: JoinGroup) -> int:
    """JoinGroup v0 has only a session timeout."""
    return request.rebalance_timeout_ms if request.rebalance_timeout_ms >= 0 else request.session_timeout_ms


def member_from(stored: StoredMember, protocol: str | None) -> ClassicGroupMember:
    """A member as it is in the log."""
    return ClassicGroupMember(
        stored.member_id,
        stored.instance_id,
        stored.client_id,
        stored.client_host,
        stored.session_timeout_ms,
        stored.rebalance_timeout_ms,
        (MemberProtocol(protocol or "", stored.subscription),),
        stored.assignment,
    )


class Roster:
    """Members in the order in which they joined, also by instance id; one of them is the leader.

    What is asked at every join (which protocols do all support, have all joined, whose session ends first) is
    kept here as members come, change and go: a thousand of them join in a second."""

    def __init__(self) -> None:
        self._members: OrderedDict[str, ClassicGroupMember] = OrderedDict()
        """A plain dict looks for its first item among all that were there before it: when ten thousand are
        dismissed together, each is the leader in its turn."""
        self._static: dict[str, str] = {}
        self.supporters: Counter[str] = Counter()
        """How many members support a protocol, of those that any does: members choose the names."""
        self.protocol_bytes = 0
        """What the protocols of all members take."""
        self.name_bytes = 0
        """What the names of all members take in the group's record."""
        self._joining: dict[str, Ticket] = {}
        """JoinGroup requests that are parked, by member id."""
        self.sessions: Deadlines[str] = Deadlines()
        """When each member's ends unless it sends a request (seconds, monotonic)."""
        self.leader: str | None = None
        self.pending_sync: set[str] = set()
        """Who has joined the generation, and has not come for its assignment yet."""
        self.leaving: dict[str, ClassicGroupMember] = {}
        """Very many are removed one after another; to whoever asks they are gone already."""

    def __len__(self) -> int:
        return len(self._members) - len(self.leaving)

    def __iter__(self) -> Iterator[ClassicGroupMember]:
        return iter(list(self._members.values()))

    def __contains__(self, member_id: str) -> bool:
        return member_id in self._members

    def get(self, member_id: str) -> ClassicGroupMember | None:
        return None if member_id in self.leaving else self._members.get(member_id)

    def by_instance(self, instance_id: str | None) -> ClassicGroupMember | None:
        if instance_id is None:
            return None
        member_id = self._static.get(instance_id)
        return None if member_id is None else self.get(member_id)

    def staying(self) -> list[ClassicGroupMember]:
        return [each for each in self if each.member_id not in self.leaving]

    def member_ids(self) -> set[str]:
        return set(self._members)

    def let_go(self, members: Iterable[ClassicGroupMember]) -> None:
        """They are to be removed."""
        self.leaving.update((member.member_id, member) for member in members)

    def add(self, member: ClassicGroupMember) -> None:
        self._members[member.member_id] = member
        self._count(member)
        if member.instance_id is not None:
            self._static[member.instance_id] = member.member_id
        if self.leader is None:
            self.leader = member.member_id

    def remove(self, member: ClassicGroupMember) -> None:
        """Where the leader is removed, the next in order becomes leader."""
        del self._members[member.member_id]
        self.leaving.pop(member.member_id, None)
        self._discount(member)
        self._joining.pop(member.member_id, None)
        self.pending_sync.discard(member.member_id)
        self.sessions.discard(member.member_id)
        if member.instance_id is not None and self._static.get(member.instance_id) == member.member_id:
            del self._static[member.instance_id]
        if self.leader == member.member_id:
            self.leader = next(iter(self._members), None)

    def replace(self, members: Sequence[ClassicGroupMember], leader: str | None) -> None:
        """All of them at once, in this order."""
        self.leader = leader
        if members == list(self._members.values()):  # as always where an assignment has been stored
            return
        for gone in self._members.keys() - {m.member_id for m in members}:
            self.remove(self._members[gone])
        self._members = OrderedDict((m.member_id, m) for m in members)
        self.supporters.clear()
        self.protocol_bytes = self.name_bytes = 0
        for member in members:
            self._count(member)
        self._static = {m.instance_id: m.member_id for m in self if m.instance_id is not None}

    def rename(self, member: ClassicGroupMember, member_id: str) -> None:
        """A static member has restarted: it keeps its place, under a new id."""
        led = self.leader == member.member_id
        ends_at = self.sessions.at(member.member_id)
        self.sessions.discard(member.member_id)
        self.sessions.set(member_id, ends_at)
        if (ticket := self._joining.pop(member.member_id, None)) is not None:
            self._joining[member_id] = ticket
        if member.member_id in self.pending_sync:
            self.pending_sync.remove(member.member_id)
            self.pending_sync.add(member_id)
        self._members = OrderedDict(
            (member_id if known == member.member_id else known, m) for known, m in self._members.items()
        )
        self.name_bytes -= member.name_bytes
        member.member_id = member_id
        self.name_bytes += member.name_bytes
        if member.instance_id is not None:
            self._static[member.instance_id] = member_id
        if led:
            self.leader = member_id

    def change_protocols(self, member: ClassicGroupMember, protocols: tuple[MemberProtocol, ...]) -> None:
        self._discount(member)
        member.protocols = protocols
        self._count(member)

    def restore(self, member: ClassicGroupMember, before: ClassicGroupMember) -> None:
        """It is as it was: what it has said of itself since does not count, nor its new id."""
        self.rename(member, before.member_id)
        self.change_protocols(member, before.protocols)
        member.session_timeout_ms = before.session_timeout_ms
        member.rebalance_timeout_ms = before.rebalance_timeout_ms

    def _count(self, member: ClassicGroupMember) -> None:
        self.name_bytes += member.name_bytes
        self.protocol_bytes += bytes_of(member.protocols)
        for name in member.protocol_names():
            self.supporters[name] += 1

    def _discount(self, member: ClassicGroupMember) -> None:
        self.name_bytes -= member.name_bytes
        self.protocol_bytes -= bytes_of(member.protocols)
        for name in member.protocol_names():
            self.supporters[name] -= 1
            if not self.supporters[name]:
                del self.supporters[name]

    # --- parked joins

    def park_join(self, member: ClassicGroupMember, ticket: Ticket) -> None:
        self._joining[member.member_id] = ticket

    def take_join(self, member: ClassicGroupMember) -> Ticket | None:
        """It is answered now."""
        return self._joining.pop(member.member_id, None)

    def has_joined(self, member: ClassicGroupMember) -> bool:
        return member.member_id in self._joining

    def not_joined(self) -> list[ClassicGroupMember]:
        return [] if self.all_joined() else [each for each in self if not self.has_joined(each)]

    @property
    def joining(self) -> int:
        """How many have joined, and wait for the others."""
        return len(self._joining)

    def some_joining(self, most: int) -> list[ClassicGroupMember]:
        return [self._members[member_id] for member_id in islice(self._joining, most)]

    def all_joined(self) -> bool:
        return len(self._joining) == len(self._members)

    def waits(self, member: ClassicGroupMember) -> bool:
        """A request of it is parked: it is alive even without heartbeats."""
        return self.has_joined(member) or member.sync_ticket is not None

    def elect_joined(self) -> bool:
        """Make sure that the leader has joined; False where no member has."""
        if self.leader not in self._joining:
            joined = next((member_id for member_id in self._members if member_id in self._joining), None)
            if joined is None:
                return False
            self.leader = joined
        return True

    def leading(self) -> ClassicGroupMember:
        assert self.leader is not None
        return self._members[self.leader]

    # --- protocols

    def all_support(self, protocol: str) -> bool:
        """Whether every member supports it."""
        return self.supporters[protocol] == len(self._members)

    def common_protocols(self) -> set[str]:
        """The protocols that every member supports."""
        any_member = next(iter(self._members.values()), None)
        if any_member is None:
            return set()
        return {name for name in any_member.protocol_names() if self.all_support(name)}

    def select_protocol(self) -> str:
        """The common protocol with most first votes; between equals the earlier name, so that
        every run gives the same answer."""
        candidates = self.common_protocols()
        votes = dict.fromkeys(sorted(candidates), 0)
        for member in self._members.values():
            votes[member.vote(candidates)] += 1
        return max(votes, key=lambda name: votes[name])
