"""The states of a classic group, the moves between them, and what an input can lead to.

    EMPTY -> PREPARING_REBALANCE -> COMPLETING_REBALANCE -> STABLE
      members join, first       all have joined (or time      the leader's assignment
      come a delay for more     is up): generation + 1,       is stored and handed out
                                the leader assigns

Any change of members in COMPLETING_REBALANCE or STABLE leads back to PREPARING_REBALANCE.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Final

from data_plane.coordinator.groups.messages import Reply
from data_plane.coordinator.groups.records import StoredGroup
from data_plane.coordinator.state_machine import Ticket

CONSUMER_PROTOCOL_TYPE: Final = "consumer"


class ClassicGroupState(Enum):
    """Values are Kafka's names in DescribeGroups and ListGroups."""

    EMPTY = "Empty"
    PREPARING_REBALANCE = "PreparingRebalance"
    COMPLETING_REBALANCE = "CompletingRebalance"
    STABLE = "Stable"
    DEAD = "Dead"


TRANSITIONS: Final[Mapping[ClassicGroupState, frozenset[ClassicGroupState]]] = {
    ClassicGroupState.EMPTY: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.PREPARING_REBALANCE: frozenset(
        {ClassicGroupState.COMPLETING_REBALANCE, ClassicGroupState.EMPTY, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.COMPLETING_REBALANCE: frozenset(
        {ClassicGroupState.STABLE, ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}
    ),
    ClassicGroupState.STABLE: frozenset({ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.DEAD}),
    ClassicGroupState.DEAD: frozenset(),
}


@dataclass(frozen=True, slots=True)
class ClassicGroupConfig:
    """Configuration of classic groups."""

    initial_rebalance_delay: float = 3.0
    """group.initial.rebalance.delay.ms: how long an empty group waits for more members (seconds)."""
    new_member_timeout: float = 300.0
    """How long a member that cannot send heartbeats yet may wait for its first join (seconds)."""
    max_size: int = 2**31 - 1
    """group.max.size: members."""


@dataclass(slots=True)
class Effects:
    """The outcome of an input. `store`: to be appended; its `replay` or `refused` must follow at
    once. `replies` are sent when all that has been appended before is replicated."""

    store: StoredGroup | None = None
    replies: list[tuple[Ticket, Reply]] = field(default_factory=list)
