"""The whole cluster as one node can tell it: its metadata, every broker's view of itself, and the quorum.

    metadata image ──────────┐
    NodeView of each broker ─┼─> ClusterView.snapshot -> JSON -> /api/v1/cluster, the console
    DescribeQuorum ──────────┤
    RecordCounts of leaders ─┘

Brokers are asked side by side, a second at most and once a second at most, however many people watch. What a
broker does not answer is missing, and it is said so.
"""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import Callable, Mapping, Set
from typing import Any, Final, NamedTuple, TypeVar

from data_plane.coordinator.state_machine import weight_of
from kraft.api.context import BrokerContext
from kraft.api.node_view import NOT_YET, VERSION, node_view
from kraft.http.finish import to_its_end
from kraft.http.group_lags import Counts, count_for_groups, position
from kraft.http.login import Visitor
from kraft.http.transactions_view import transactions
from kraft.metrics.sources import Sources
from kraft.wire import long_json
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import METADATA_TOPIC, NO_LEADER, PartitionRegistration
from metadata_quorum.foundation.supervision import awaited
from metadata_quorum.metadata.image import MetadataImage

ANSWER_S: Final = 1.0
FRESH_S: Final = 0.8
SHOWN: Final = 300
"""Partitions in one snapshot: those with a problem first."""
SHOWN_OF_GROUPS: Final = 3_000
"""Members and positions of groups in one snapshot: of those that are furthest behind."""
_QUORUM_VERSION: Final = 2

Json = dict[str, Any]
Views = Mapping[int, Json]
Result = TypeVar("Result")


class _Answers(NamedTuple):
    """What the nodes have answered."""

    views: Views
    quorum: Json
    counts: Counts


class ClusterView:
    """See the module."""

    def __init__(self, sources: Sources) -> None:
        self._sources = sources
        self._node = sources.node
        self._asked: asyncio.Task[None] | None = None
        self._asked_at = float("-inf")
        self._newest = _Answers({}, {}, {})
        self._merging = asyncio.Lock()
        """One view is made at a time: of very many partitions each takes a second, and as much memory as all
        of them are in JSON."""

    async def snapshot(
        self, visitor: Visitor, told: Callable[[Json], Result], topic: str | None = None
    ) -> Result:
        """What the visitor may see; of one topic only where it is named. Here and below, `told` makes of it
        what is sent, such as its text: before the next view is made, so that few are in memory."""
        node, image = self._node, self._node.image

        def merged(answers: _Answers) -> Result:
            views, quorum, counts = answers
            visible = _visible_to(image, views, visitor)
            partitions = _partitions(image, views, visible.topics, topic)
            groups = _groups(views, counts, visible)
            shown = furthest_behind(groups)
            return told(
                {
                    "cluster_id": node.cluster_id,
                    "told_by": node.node_id,
                    "time_ms": node.now_ms(),
                    "metadata": {"offset": image.offset, "epoch": image.epoch},
                    "quorum": quorum,
                    "brokers": _brokers(image, views, partitions),
                    "totals": _totals(visible, partitions),
                    "partitions": partitions[:SHOWN],
                    "more_partitions": max(len(partitions) - SHOWN, 0),
                    "groups": shown,
                    "more_groups": len(groups) - len(shown),
                }
            )

        return await self._from_answers(merged)

    async def topics(self, visitor: Visitor, told: Callable[[list[Json]], Result], containing: str) -> Result:
        """The topics whose names contain that text, by name, with their sizes at the leaders."""
        image = self._node.image

        def found(answers: _Answers) -> Result:
            names = [each for each in image.topics_by_name if containing in each]
            return told(_topics(image, answers.views, sorted(filter(visitor.may_see_topic, names))))

        return await self._from_answers(found)

    async def groups(self, visitor: Visitor, told: Callable[[list[Json]], Result]) -> Result:
        image = self._node.image

        def found(answers: _Answers) -> Result:
            views, _, counts = answers
            return told(_groups(views, counts, _visible_to(image, views, visitor)))

        return await self._from_answers(found)

    async def transactions(self, visitor: Visitor, told: Callable[[list[Json]], Result]) -> Result:
        """What is not finished, and what nobody will finish."""
        image, now_ms = self._node.image, self._node.now_ms()
        return await self._from_answers(
            lambda answers: told(transactions(answers.views, image, visitor, now_ms))
        )

    async def _from_answers(self, made: Callable[[_Answers], Result]) -> Result:
        """Of the newest answers when it is its turn: whoever waits for that keeps no older ones."""
        await self._answers()
        return await self.beside(lambda: made(self._newest))

    async def beside(self, made: Callable[[], Result]) -> Result:
        """Beside the loop: nothing of it changes any more, and ten thousand partitions take a tenth of a
        second."""
        async with self._merging:
            return await to_its_end(self._node.loop.run_in_executor(None, made))

    async def _answers(self) -> None:
        """Have them asked for, where they are old."""
        now = self._node.loop.time()
        if self._asked is None or (self._asked.done() and now - self._asked_at > FRESH_S):
            self._asked_at = now
            self._asked = awaited(self._node.loop, self._ask(), "cluster view")
        await asyncio.shield(self._asked)

    async def _ask(self) -> None:
        broker = self._sources.broker
        if broker is None:
            self._newest = _Answers({}, await self._quorum(), {})
            return
        others = [each for each in self._node.image.brokers if each != self._node.node_id]
        before = self._newest.views
        asked = [ask_broker(broker.context, each, before.get(each)) for each in others]
        own, quorum, *views = await asyncio.gather(node_view(broker.context), self._quorum(), *asked)
        described = {
            broker_id: view for broker_id, view in zip(others, views, strict=True) if view is not None
        }
        views_by_node = {self._node.node_id: own, **described}
        counts = await count_for_groups(broker.context, views_by_node)
        self._newest = _Answers(views_by_node, quorum, counts)

    async def _quorum(self) -> Json:
        partition = {"partition_index": 0}
        topics = [{"topic_name": METADATA_TOPIC, "partitions": [partition]}]
        try:
            async with asyncio.timeout(ANSWER_S):
                answer = await self._node.controller_channel.request(
                    ApiKey.DESCRIBE_QUORUM, _QUORUM_VERSION, {"topics": topics}
                )
        except (OSError, BrokerError):
            return {"leader": -1, "problem": "no active controller answers", "voters": []}
        return _quorum(answer)


class _Visible(NamedTuple):
    """What a visitor may see."""

    topics: frozenset[str]
    groups: frozenset[str]


def _visible_to(image: MetadataImage, views: Views, visitor: Visitor) -> _Visible:
    groups = {group["id"] for view in views.values() for group in view["groups"]}
    return _Visible(
        frozenset(filter(visitor.may_see_topic, image.topics_by_name)),
        frozenset(filter(visitor.may_see_group, groups)),
    )


async def ask_broker(broker: BrokerContext, broker_id: int, before: Json | None) -> Json | None:
    """What it tells of itself: what it told before, while it takes longer than a second to make that."""
    try:
        answer = await broker.console_channels.exchange(
            broker_id, ApiKey.NODE_VIEW, VERSION, (b"",), ANSWER_S
        )
        text = bytes(answer)
        if text == NOT_YET:
            return before
        view = await broker.node.loop.run_in_executor(None, long_json.decode, text)
    except (OSError, ValueError):
        return None
    return view if isinstance(view, dict) else None


def _quorum(answer: Message) -> Json:
    described = answer.topics[0].partitions[0]
    if described.error_code:
        return {"leader": described.leader_id, "problem": "the controller has just changed", "voters": []}
    ends = [each.log_end_offset for each in described.current_voters]
    # The leader's own is its clock; ours may be minutes off.
    now_ms = max((each.last_caught_up_timestamp for each in described.current_voters), default=0)
    return {
        "leader": described.leader_id,
        "term": described.leader_epoch,
        "high_watermark": described.high_watermark,
        "voters": [
            {
                "id": each.replica_id,
                "end": each.log_end_offset,
                "lag": max(max(ends) - each.log_end_offset, 0),
                "caught_up_ms_ago": _ago(each.last_caught_up_timestamp, now_ms),
            }
            for each in described.current_voters
        ],
    }


def _ago(time_ms: int, now_ms: int) -> int | None:
    return None if time_ms < 0 else max(now_ms - time_ms, 0)


# ---- partitions --------------------------------------------------------------------------------------


def _partitions(image: MetadataImage, views: Views, visible: Set[str], only: str | None) -> list[Json]:
    """Partitions with a problem first, those of internal topics last."""
    replicas = {
        (view["node_id"], each["topic"], each["partition"]): each
        for view in views.values()
        for each in view["replicas"]
        if only in (None, each["topic"])
    }
    found = []
    for topic, number, registration in image.each_partition():
        if only not in (None, topic.name) or topic.name not in visible:
            continue
        described = {b: replicas.get((b, topic.name, number)) for b in registration.replicas}
        found.append(_partition(topic.name, number, registration, described))
    found.sort(key=lambda each: (each["state"] == IN_SYNC, each["topic"].startswith("__")))
    return found


IN_SYNC: Final = "in sync"


def _partition(
    topic: str, number: int, registration: PartitionRegistration, described: Mapping[int, Json | None]
) -> Json:
    leader = described.get(registration.leader) or {}
    followers = leader.get("followers", {})
    return {
        "topic": topic,
        "partition": number,
        "leader": registration.leader,
        "leader_epoch": registration.leader_epoch,
        "partition_epoch": registration.partition_epoch,
        "state": _state(registration, leader),
        "start": leader.get("start"),
        "high_watermark": leader.get("high_watermark"),
        "end": leader.get("end"),
        "size": leader.get("size"),
        "replicas": [
            {
                "id": each,
                "in_sync": each in registration.isr,
                "end": _end(described[each], _of_follower(followers, each)),
                "behind_s": _of_follower(followers, each).get("caught_up_s"),
                "offline": (described[each] or {}).get("offline", False),
            }
            for each in registration.replicas
        ],
        "adding": list(registration.adding_replicas),
        "removing": list(registration.removing_replicas),
    }


def _end(own: Json | None, told_by_leader: Json) -> int | None:
    """What it says itself, else what it fetched last."""
    if own is not None:
        return int(own["end"])
    end = told_by_leader.get("end", -1)
    return end if end >= 0 else None


def _of_follower(followers: Mapping[Any, Json], broker_id: int) -> Json:
    """JSON's keys are strings, those of our own view are numbers."""
    return followers.get(broker_id) or followers.get(str(broker_id)) or {}


def _state(registration: PartitionRegistration, leader: Json) -> str:
    if registration.leader == NO_LEADER:
        return "no leader"
    if len(registration.isr) < leader.get("min_isr", 1):
        return "under min ISR"
    if len(registration.isr) < len(registration.replicas):
        return "under-replicated"
    return IN_SYNC


def _totals(visible: _Visible, partitions: list[Json]) -> Json:
    states = [each["state"] for each in partitions]
    return {
        "topics": len(visible.topics),
        "partitions": len(partitions),
        "no_leader": states.count("no leader"),
        "under_min_isr": states.count("under min ISR"),
        "under_replicated": states.count("under-replicated"),
    }


def _topics(image: MetadataImage, views: Views, names: list[str]) -> list[Json]:
    sizes: Counter[str] = Counter()
    for view in views.values():
        for each in view["replicas"]:
            if "isr" in each:  # by its leader
                sizes[each["topic"]] += each["size"]
    topics = [image.topics_by_name[name] for name in names]
    return [
        {"name": each.name, "id": str(each.id), "partitions": len(each.partitions), "size": sizes[each.name]}
        for each in topics
    ]


# ---- brokers and groups --------------------------------------------------------------------------------


def _brokers(image: MetadataImage, views: Views, partitions: list[Json]) -> list[Json]:
    leads = [each["leader"] for each in partitions]
    found = []
    for broker_id in sorted(image.brokers):
        broker, view = image.brokers[broker_id], views.get(broker_id)
        endpoint = broker.endpoints[0] if broker.endpoints else None
        found.append(
            {
                "id": broker_id,
                "rack": broker.rack,
                "address": None if endpoint is None else f"{endpoint.host}:{endpoint.port}",
                "fenced": broker.fenced,
                "shutting_down": broker.in_controlled_shutdown,
                "answers": view is not None,
                "state": None if view is None else view["state"],
                "leads": leads.count(broker_id),
                "replicas": None if view is None else len(view["replicas"]),
                "size": None if view is None else sum(each["size"] for each in view["replicas"]),
                "metadata_lag": None if view is None else max(image.offset - view["metadata_offset"], 0),
                "stalls": None if view is None else view["loop"]["stalls"],
                "faults": None if view is None else sum(view["faults"].values()),
                "log_dirs": None if view is None else view["log_dirs"],
            }
        )
    return found


def _groups(views: Views, counts: Counts, visible: _Visible) -> list[Json]:
    ends = {
        (each["topic"], each["partition"]): each["high_watermark"]
        for view in views.values()
        for each in view["replicas"]
        if "isr" in each  # by its leader
    }
    found = []
    for view in views.values():
        for group in view["groups"]:
            if group["id"] not in visible.groups:
                continue
            offsets = [
                position(topic, number, offset, ends.get((topic, number)), counts)
                for topic, number, offset in group["offsets"]
                if topic in visible.topics
            ]
            lags = [each["lag"] for each in offsets if each["lag"] is not None]
            found.append(
                {
                    **group,
                    "members": [_member(each, visible) for each in group["members"]],
                    "coordinator": view["node_id"],
                    "offsets": offsets,
                    "lag": sum(lags) if len(lags) == len(offsets) else None,
                    "lag_exact": all(each["lag_exact"] for each in offsets),
                }
            )
    return sorted(found, key=lambda group: str(group["id"]))


def furthest_behind(groups: list[Json]) -> list[Json]:
    """As many as there is room for; in the order in which they were."""
    room, shown = SHOWN_OF_GROUPS, set[str]()
    for group in sorted(groups, key=lambda group: -(group["lag"] or 0)):
        room -= weight_of(group["id"]) + len(group["members"]) + len(group["offsets"])
        if room < 0:
            break
        shown.add(group["id"])
    return [each for each in groups if each["id"] in shown]


def _member(member: Json, visible: _Visible) -> Json:
    """A member, with its assigned partitions of visible topics."""
    assigned = member.get("assigned")
    if assigned is None:
        return member
    return {**member, "assigned": {name: each for name, each in assigned.items() if name in visible.topics}}
