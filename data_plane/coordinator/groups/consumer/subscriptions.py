"""What the members of a group say of themselves, counted while they come, change and go: each may say tens of
kilobytes, and there may be thousands of them.

Equal lists of topics are one list here, whoever names them and whichever pattern matches them. Nearly all
members of a group have the same list, which may be long: to look at all lists is to look at a few.

state.py -> here -> cluster_view.py, which of the topics exist
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import Final, NamedTuple

from data_plane.coordinator.groups.consumer.cluster_view import ClusterView, TopicsThere
from data_plane.coordinator.groups.consumer_records import MemberMetadata, ResolvedRegex
from data_plane.coordinator.groups.messages import MemberProtocol, bytes_of

Topics = tuple[str, ...]

NONE_THERE: Final = TopicsThere(())

_WIDEST: Final = 4
"""Bytes that each character of a text takes, where any is not ASCII."""


class _LookedUp:
    """What of a list exists, since the topics of the cluster last changed."""

    __slots__ = ("there", "version")

    def __init__(self) -> None:
        self.there = NONE_THERE
        self.version: int | None = None


class _Shared(NamedTuple):
    topics: Topics
    users: int
    bytes: int
    looked_up: _LookedUp


class Subscriptions:
    """Of the members of one group, and of its patterns."""

    def __init__(self) -> None:
        self._lists: dict[Topics, Topics] = {}
        """All of them, each under those that are equal."""
        self._shared: dict[int, _Shared] = {}
        """By the id of each list: to hash a long one takes a while, and most that come are known."""
        self.names = 0
        """How many all different lists have together."""
        self.matches = 0
        """How many all patterns match, each counted for itself."""
        self.bytes = 0
        """What members' names and protocols take in memory, and those of topics, in each list."""

    def copy(self) -> Subscriptions:
        twin = Subscriptions()
        twin._lists, twin._shared = dict(self._lists), dict(self._shared)
        twin.names, twin.matches, twin.bytes = self.names, self.matches, self.bytes
        return twin

    def topics(self) -> frozenset[str]:
        """All that anybody reads."""
        return frozenset[str]().union(*self._lists)

    def there(self, topics: Topics, view: ClusterView) -> TopicsThere:
        """Which of one of the lists exist."""
        if not topics:
            return NONE_THERE
        known = self._shared[id(topics)].looked_up
        if known.version != view.topics_version:
            known.there, known.version = view.there(frozenset(topics)), view.topics_version
        return known.there

    def all_there(self, view: ClusterView) -> TopicsThere:
        """Which of all topics exist. Those that do not, ten times as many, are looked for once in each list:
        any member may say often that it reads something else."""
        return view.there(frozenset[str]().union(*(self.there(each, view).names for each in self._lists)))

    def add_member(self, member_id: str, metadata: MemberMetadata) -> MemberMetadata:
        """The same with the list that equal ones have."""
        self.bytes += _bytes_of(member_id, metadata)
        topics = self._add(metadata.subscribed_topic_names)
        return (
            metadata
            if topics is metadata.subscribed_topic_names
            else replace(metadata, subscribed_topic_names=topics)
        )

    def remove_member(self, member_id: str, metadata: MemberMetadata) -> None:
        self.bytes -= _bytes_of(member_id, metadata)
        self._remove(metadata.subscribed_topic_names)

    def add_pattern(self, resolved: ResolvedRegex) -> ResolvedRegex:
        """The same with the list that equal ones have."""
        self.matches += len(resolved.topics)
        return replace(resolved, topics=self._add(resolved.topics))

    def remove_pattern(self, resolved: ResolvedRegex) -> None:
        self.matches -= len(resolved.topics)
        self._remove(resolved.topics)

    def _add(self, topics: Topics) -> Topics:
        shared = self._shared.get(id(topics))
        if shared is None:
            equal = self._lists.get(topics)
            shared = self._new(topics) if equal is None else self._shared[id(equal)]
        self._shared[id(shared.topics)] = shared._replace(users=shared.users + 1)
        return shared.topics

    def _new(self, topics: Topics) -> _Shared:
        shared = _Shared(topics, 0, _text_bytes(topics), _LookedUp())
        self._lists[topics] = topics
        self.names += len(topics)
        self.bytes += shared.bytes
        return shared

    def _remove(self, topics: Topics) -> None:
        shared = self._shared[id(topics)]
        if shared.users > 1:
            self._shared[id(topics)] = shared._replace(users=shared.users - 1)
            return
        del self._lists[topics], self._shared[id(topics)]
        self.names -= len(topics)
        self.bytes -= shared.bytes


def _bytes_of(member_id: str, metadata: MemberMetadata) -> int:
    names = (
        member_id,
        metadata.instance_id or "",
        metadata.rack_id or "",
        metadata.client_id,
        metadata.client_host,
        metadata.subscribed_topic_regex or "",
    )
    protocols = () if metadata.classic is None else metadata.classic.supported_protocols
    classic = tuple(MemberProtocol(each.name, each.metadata) for each in protocols)
    return _text_bytes(names) + bytes_of(classic)


def _text_bytes(texts: Iterable[str]) -> int:
    """At most, where few of them are not ASCII."""
    together = "".join(texts)
    return len(together) if together.isascii() else _WIDEST * len(together)
