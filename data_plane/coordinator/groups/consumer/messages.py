"""Requests to a group of the consumer protocol and its replies, free of versions and bytes.

kraft/api/consumer_groups.py makes these from requests; refusals are BrokerErrors. Times are milliseconds.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from data_plane.coordinator.groups.assignment import Assignment
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember

UNCHANGED: Final = None
"""A field that a heartbeat does not carry has not changed since the last one."""


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeat:
    group_id: str
    member_id: str
    member_epoch: int
    instance_id: str | None = UNCHANGED
    rack_id: str | None = UNCHANGED
    rebalance_timeout_ms: int = -1
    subscribed_topic_names: tuple[str, ...] | None = UNCHANGED
    subscribed_topic_regex: str | None = UNCHANGED
    server_assignor: str | None = UNCHANGED
    owned: Assignment | None = UNCHANGED
    client_id: str = ""
    client_host: str = ""
    may_see: Callable[[str], bool] = field(default=lambda topic: True, compare=False)
    """Whether the client may see a topic (cached); a pattern matches only topics that it may."""

    @property
    def is_full(self) -> bool:
        """Has all fields, as the first one and the first after an error have: so has the reply."""
        subscribes = self.subscribed_topic_names is not None or self.subscribed_topic_regex is not None
        return self.member_epoch == 0 or (
            self.rebalance_timeout_ms != -1 and subscribes and self.owned is not None
        )


@dataclass(frozen=True, slots=True)
class ConsumerHeartbeatReply:
    member_id: str
    member_epoch: int
    heartbeat_interval_ms: int = 0
    assignment: Assignment | None = None
    """None: unchanged since the last reply."""


@dataclass(frozen=True, slots=True)
class DescribedConsumerMember:
    member: ConsumerGroupMember
    target: Assignment


@dataclass(frozen=True, slots=True)
class DescribedConsumerGroup:
    group_id: str
    state: str
    epoch: int
    assignment_epoch: int
    assignor: str
    members: tuple[DescribedConsumerMember, ...]
