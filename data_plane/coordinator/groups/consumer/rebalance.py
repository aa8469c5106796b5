"""The coordinator's side of a rebalance: from all members' subscriptions to the reply to one member.

    subscriptions or topics changed -> the group's epoch grows
    group epoch > target's epoch    -> the assignor makes a new target, for all members at once
    a member behind the target      -> one step towards it (reconciliation.py), at its heartbeat

Works on a draft; called by membership.py and classic_members.py.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from uuid import UUID

from data_plane.coordinator.groups.assignment import Assignment
from data_plane.coordinator.groups.consumer.assignors import ASSIGNORS, AssignedMember
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from data_plane.coordinator.groups.consumer.draft import Draft
from data_plane.coordinator.groups.consumer.reconciliation import reconciled
from data_plane.coordinator.groups.consumer.rules import ConsumerGroupConfig
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember, ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import MemberMetadata, ResolvedRegex
from data_plane.coordinator.state_machine import Instant


@dataclass(frozen=True, slots=True)
class RebalanceContext:
    """What a decision about a group rests on, besides the group."""

    rules: ConsumerGroupConfig
    """The group's own."""
    view: ClusterView
    at: Instant
    topics_changed: bool = False
    """Topics were created or deleted, or have grown, since the group last looked."""
    may_see: Callable[[str], bool] | None = None
    """Which topics the patterns of the requesting member may match."""


def refresh_target(
    draft: Draft, context: RebalanceContext, *, subscriptions_changed: bool, later: str | None = None
) -> None:
    """See that epoch and target are those of the present subscriptions and topics. `later`: a pattern that
    is left to the next heartbeat."""
    if subscriptions_changed or context.topics_changed or _must_look_again(draft, context):
        forget_patterns(draft)
        others = context.may_see is not None and _resolve_patterns(draft, context, context.may_see, later)
        metadata_hash = draft.state.subscriptions.all_there(context.view).metadata_hash
        if subscriptions_changed or others or metadata_hash != draft.state.metadata_hash:
            draft.write_group(draft.state.epoch + 1, metadata_hash)
    if draft.state.epoch > draft.state.target_epoch:
        _make_target(draft, context)


def forget_patterns(draft: Draft) -> None:
    """Those that no member uses any more."""
    for regex in sorted(draft.state.pattern_use().unused):
        draft.erase_regex(regex)


def patterns_are_old(state: ConsumerGroupState, rules: ConsumerGroupConfig, at: Instant) -> bool:
    """Also where they are from a time to come: the clock was ahead, and is not any more."""
    oldest_ms = state.pattern_use().oldest_ms
    return oldest_ms is not None and not 0 <= at.now_ms - oldest_ms < rules.regex_refresh_interval_ms


def pattern_for_later(state: ConsumerGroupState, metadata: MemberMetadata) -> str | None:
    """A member that names topics too gets those at once, and the matches of its new pattern with its next
    heartbeat, as with Kafka. A member with nothing but a pattern waits for it."""
    regex = metadata.subscribed_topic_regex
    return regex if regex and metadata.subscribed_topic_names and regex not in state.regexes else None


def _must_look_again(draft: Draft, context: RebalanceContext) -> bool:
    return bool(draft.state.pattern_use().unresolved) or patterns_are_old(
        draft.state, context.rules, context.at
    )


def _resolve_patterns(
    draft: Draft, context: RebalanceContext, may_see: Callable[[str], bool], later: str | None
) -> bool:
    """Resolve patterns to the topics that match now and that the client may see: new ones, and all where
    topics have changed or time is up. Whether any matches other topics than before."""
    old = patterns_are_old(draft.state, context.rules, context.at)
    patterns = draft.state.pattern_use()
    others = False
    for regex in sorted((patterns.used if old or context.topics_changed else patterns.unresolved) - {later}):
        topics = tuple(name for name in context.view.matches.matching(regex) if may_see(name))
        known = draft.state.regexes.get(regex)
        others |= topics != (known.topics if known is not None else ())
        if known is None or known.topics != topics or old:
            resolved = ResolvedRegex(topics, context.view.image.offset, context.at.now_ms)
            draft.write_regex(regex, resolved)
    return others


def reconcile(draft: Draft, member: ConsumerGroupMember, owned: Assignment | None) -> ConsumerGroupMember:
    """One step of one member."""
    state = draft.state
    if member.reconciled_to(state.target_epoch):
        return member
    target = state.target_of(member.member_id)
    after = reconciled(
        member, state.target_epoch, target, owned, lambda partition: state.owner(partition) is None
    )
    if after != member:
        draft.write_current(after)
    return after


def waits_for_others(state: ConsumerGroupState, member: ConsumerGroupMember) -> bool:
    """Whether some partition of the member's target is in other hands."""
    return any(
        state.owner((topic_id, number)) not in (None, member.member_id)
        for topic_id, numbers in state.target_of(member.member_id).items()
        for number in numbers
    )


def assignor_of(state: ConsumerGroupState, rules: ConsumerGroupConfig) -> str:
    """The one that most members ask for; where none does, the first of the configured ones. Another
    make's broker may have let them ask for one that is not here."""
    asked = (member.metadata.server_assignor for member in state.members.values())
    votes = Counter(name for name in asked if name is not None and name in ASSIGNORS)
    return max(votes, key=lambda name: votes[name]) if votes else rules.assignors[0]


def _make_target(draft: Draft, context: RebalanceContext) -> None:
    state, view = draft.state, context.view
    # Most members read the same: by the same subscription, or by patterns that match the same.
    by_lists: dict[tuple[int, int], frozenset[UUID]] = {}  # to hash them takes a while
    different: dict[frozenset[UUID], frozenset[UUID]] = {}
    members = []
    for member_id, member in state.members.items():
        named, matched = lists = state.lists_of(member)
        topic_ids = by_lists.get((id(named), id(matched)))
        if topic_ids is None:
            by_name, by_pattern = (state.subscriptions.there(each, view).ids for each in lists)
            topic_ids = by_name | by_pattern if by_pattern else by_name
            topic_ids = by_lists[id(named), id(matched)] = different.setdefault(topic_ids, topic_ids)
        members.append(AssignedMember(member_id, member.instance_id, topic_ids, state.target_of(member_id)))
    sizes = state.subscriptions.all_there(view).sizes
    targets = ASSIGNORS[assignor_of(state, context.rules)](members, sizes)
    for member_id, target in targets.items():
        before = state.targets.get(member_id)
        if before is None or (before is not target and before != target):
            draft.write_target(member_id, target)
    draft.write_target_epoch(state.epoch)
