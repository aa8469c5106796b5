"""A GroupMetadataManager under a virtual clock: plays the runtime's part without a loop, a log or a broker.

Records that it yields are "appended" (kept as bytes) and replayed at once, as the runtime
does it; with `refusal` set, appends fail. `reloaded()` is what a new coordinator would know.
"""

from __future__ import annotations

from dataclasses import replace
from itertools import chain
from typing import Any

from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.group_metadata_manager import (
    GroupLimits,
    GroupMetadataManager,
    GroupResult,
)
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    LeaveGroup,
    MemberProtocol,
    SyncGroup,
)
from data_plane.coordinator.state_machine import Instant, Replies
from metadata_quorum.foundation.errors import BrokerError, ErrorCode

GroupRequest = ConsumerHeartbeat | JoinGroup | SyncGroup | Heartbeat | LeaveGroup | CommitOffsets
EPOCH_MS = 1_700_000_000_000
NO_DELAY = GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=0.0))


class GroupDriver:
    def __init__(self, limits: GroupLimits = NO_DELAY, view: ClusterView | None = None) -> None:
        self.limits = limits
        self.view = view or ClusterView()
        self.manager = GroupMetadataManager(limits, self.view)
        self.now = 0.0
        self.log: list[tuple[bytes, bytes | None]] = []
        self.refusal: ErrorCode | None = None
        self.answers: dict[int, object] = {}
        self.sent: list[tuple[str, GroupRequest]] = []
        """What clients have sent: copies of it may come late."""
        self._tickets = 0

    @property
    def at(self) -> Instant:
        return Instant(self.now, EPOCH_MS + round(self.now * 1000))

    def ask(self, kind: str, *arguments: object) -> int:
        """Put a request to the manager's method of that name; its ticket. A refusal is an answer, too."""
        self._tickets += 1
        if isinstance(arguments[0], GroupRequest):
            self.sent.append((kind, arguments[0]))
        try:
            self._carry_out(getattr(self.manager, kind)(*arguments, self._tickets, self.at))
        except BrokerError as refusal:
            self.answers[self._tickets] = refusal
        return self._tickets

    def answer(self, kind: str, *arguments: object) -> object:
        """A request that is answered at once."""
        return self.answers.pop(self.ask(kind, *arguments))

    def late_copy(self, number: int) -> object:
        """A copy of what was sent comes; the answer."""
        return self.comes_late(*self.sent[number])

    def comes_late(self, kind: str, request: GroupRequest) -> object:
        """On a connection that is gone: nobody gets the answer, which is returned if it comes at once."""
        if isinstance(request, JoinGroup):  # an id is drawn for each copy
            request = replace(request, new_member_id=f"late-{self._tickets}")
        ticket = self.ask(kind, request)
        self.sent.pop()
        return self.answers.get(ticket)

    def listed(self) -> object:
        """All groups."""
        return self.answer("list", chain.from_iterable(self.manager.group_ids()))

    def run(self, kind: str, *arguments: object) -> int:
        """Work of the coordinator's own; the number of its records."""
        decision = getattr(self.manager, kind)(*arguments, self.at)
        self._carry_out(decision)
        return len(decision.records)

    def expire(self) -> int:
        """A sweep; the number of its records."""
        left, records = self.manager.groups_to_expire(), 0
        while left:
            records += self.run("expire", left)
            if self.refusal is not None:
                break
        return records

    def advance(self, seconds: float) -> None:
        """Let time pass, ringing at every deadline on the way."""
        end = self.now + seconds
        while (due := self.manager.next_deadline()) <= end:
            self.now = max(self.now, due)
            self._carry_out(self.manager.tick(self.at))
        self.now = end

    def reloaded(self) -> GroupDriver:
        """A new coordinator over the same log."""
        successor = GroupDriver(self.limits, self.view)
        successor.now = self.now
        successor.log = list(self.log)
        successor.sent = self.sent
        successor._tickets = self._tickets  # late copies that join are named by them
        for key, value in self.log:
            record = successor.manager.decode(key, value)
            assert record is not None
            assert successor.manager.replay(record, successor.at) == []
        assert all(successor.manager.loaded(successor.at))
        return successor

    def _carry_out(self, decision: GroupResult) -> None:
        replies: Replies = decision.replies
        if decision.records and self.refusal is not None:
            replies = [(ticket, self.refusal) for ticket, _ in replies]
            replies += self.manager.refused(decision.records, self.refusal, self.at)
        else:
            for record in decision.records:
                self.log.append(self.manager.encode(record))
                replies += self.manager.replay(record, self.at)
        for ticket, reply in replies:
            assert ticket not in self.answers, "answered twice"
            self.answers[ticket] = reply


def join(member_id: str = "", **fields: Any) -> JoinGroup:
    """A join with what most tests want; `new` names the id that a newcomer is given."""
    values: dict[str, Any] = {
        "group_id": "g",
        "protocol_type": "consumer",
        "protocols": (MemberProtocol("range", b"r"),),
        "session_timeout_ms": 10_000,
        "rebalance_timeout_ms": 60_000,
        "client_id": "client",
        "client_host": "/127.0.0.1",
        "requires_known_id": False,
    }
    values.update(fields)
    values["new_member_id"] = values.pop("new", "")
    return JoinGroup(member_id=member_id, **values)
