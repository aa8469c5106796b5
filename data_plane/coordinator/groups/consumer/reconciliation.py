"""A member's way from what it has to what it is to have, one safe step at a time.

First it revokes what is no longer its own, in its old epoch; only when it no longer reports
those partitions does it take the target's epoch, with whatever of its target is free by then (or its own next
epoch, if there is more to revoke by then). Since a partition is free only when no member has it, no two
members ever own one together.

    STABLE, UNRELEASED -> UNREVOKED      something must be given up first
                       -> UNRELEASED     the rest of the target is in other hands still
                       -> STABLE         it has its whole target
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

from data_plane.coordinator.groups.assignment import (
    NOTHING,
    Assignment,
    TopicIdPartition,
    assignment_of,
    both,
    is_within,
    joined,
    partitions_of,
    without,
)
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember, MemberState
from metadata_quorum.foundation.errors import BrokerError, ErrorCode


def reconciled(
    member: ConsumerGroupMember,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> ConsumerGroupMember:
    """The member after one step. `owned` is what it reports to own; None: not reported.
    Raises BrokerError, FENCED_MEMBER_EPOCH."""
    match member.state:
        case MemberState.STABLE if member.epoch == target_epoch:
            return member
        case MemberState.UNREVOKED_PARTITIONS if _owns(owned, member.pending_revocation):
            return member
        case MemberState.UNKNOWN if owned is None or owned:
            raise BrokerError(
                ErrorCode.FENCED_MEMBER_EPOCH,
                "The consumer group member is in a unknown state. "
                "The member must abandon all its partitions and rejoin.",
            )
    # What it was to give up is given up: more than that is asked for in its next epoch.
    epoch = member.epoch + (member.state is MemberState.UNREVOKED_PARTITIONS)
    return _step(member, epoch, target_epoch, target, owned, is_free)


def _step(
    member: ConsumerGroupMember,
    epoch: int,
    target_epoch: int,
    target: Assignment,
    owned: Assignment | None,
    is_free: Callable[[TopicIdPartition], bool],
) -> ConsumerGroupMember:
    kept = both(member.assigned, target)
    to_give_up = without(member.assigned, target)
    if to_give_up and _owns(owned, to_give_up):
        return replace(
            member,
            epoch=epoch,
            previous_epoch=member.epoch,
            state=MemberState.UNREVOKED_PARTITIONS,
            assigned=kept,
            pending_revocation=to_give_up,
        )
    missing = without(target, member.assigned)
    free = assignment_of(partition for partition in partitions_of(missing) if is_free(partition))
    waits = not is_within(missing, free)
    return replace(
        member,
        epoch=target_epoch,
        previous_epoch=member.epoch,
        state=MemberState.UNRELEASED_PARTITIONS if waits else MemberState.STABLE,
        assigned=joined(kept, free),
        pending_revocation=NOTHING,
    )


def _owns(owned: Assignment | None, partitions: Assignment) -> bool:
    """Whether the member still has some of these; where it does not report, it must be assumed."""
    return owned is None or bool(both(owned, partitions))
