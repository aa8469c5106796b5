"""What members of classic groups do, over a GroupDriver, and what it says of them."""

from __future__ import annotations

from typing import Any

from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    CommitReply,
    DescribedGroup,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    OffsetToCommit,
    SyncGroup,
    SyncReply,
)
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.groups.group_driver import NO_DELAY, GroupDriver, join

ORDERS_0 = TopicPartition("orders", 0)


def sync(
    member_id: str, generation: int, instance_id: str | None = None, /, **assignments: bytes
) -> SyncGroup:
    return SyncGroup("g", member_id, generation, instance_id, assignments=assignments)


def state(driver: GroupDriver) -> str:
    described = driver.answer("describe", "g")
    assert isinstance(described, DescribedGroup)
    return described.state


def beat(driver: GroupDriver, member_id: str, generation: int, instance_id: str | None = None) -> ErrorCode:
    reply = driver.answer("heartbeat", Heartbeat("g", member_id, generation, instance_id))
    assert isinstance(reply, HeartbeatReply)
    return reply.error


def commit(driver: GroupDriver, member_id: str, generation: int) -> ErrorCode:
    request = CommitOffsets("g", (OffsetToCommit(ORDERS_0, 5),), member_id, generation)
    reply = driver.answer("commit", request)
    assert isinstance(reply, CommitReply)
    return reply.errors[ORDERS_0]


def joined(driver: GroupDriver, ticket: int) -> JoinReply:
    reply = driver.answers.pop(ticket)
    assert isinstance(reply, JoinReply)
    return reply


def synced(driver: GroupDriver, ticket: int) -> SyncReply:
    reply = driver.answers.pop(ticket)
    assert isinstance(reply, SyncReply)
    return reply


def stable(members: int = 2, limits: GroupLimits = NO_DELAY, **fields: Any) -> tuple[GroupDriver, int]:
    """A stable group of m1, m2, …; m1 leads. Also its generation."""
    driver = GroupDriver(limits)
    tickets: dict[str, int] = {}
    for n in range(1, members + 1):
        if tickets:  # everyone rejoins for each newcomer
            last = tickets
            tickets = {f"m{n}": driver.ask("join", join(new=f"m{n}", **fields))}
            tickets |= {member: driver.ask("join", join(member, **fields)) for member in last}
        else:
            tickets = {"m1": driver.ask("join", join(new="m1", **fields))}
        for ticket in tickets.values():
            reply = joined(driver, ticket)
            assert reply.error is ErrorCode.NONE
    waiting = [driver.ask("sync", sync(m, reply.generation)) for m in tickets if m != "m1"]
    waiting.append(driver.ask("sync", sync("m1", reply.generation, **{m: m.encode() for m in tickets})))
    for ticket in waiting:
        assert synced(driver, ticket).error is ErrorCode.NONE
    assert state(driver) == "Stable"
    return driver, reply.generation
