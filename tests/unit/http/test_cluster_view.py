"""What a visitor may see of ten thousand topics is looked up beside the loop."""

from __future__ import annotations

import asyncio
import json
import threading
import time
from types import SimpleNamespace
from typing import Any, cast
from uuid import UUID

import pytest

from kraft.http.cluster_view import SHOWN_OF_GROUPS, ClusterView, ask_broker, furthest_behind
from kraft.http.login import Visitor
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import node_context
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")


class Authorizer:
    """Hides what is secret."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        self.threads.add(threading.get_ident())
        return name != "secret"


class Counting(Authorizer):
    """Sees how many ask at the same time."""

    def __init__(self) -> None:
        super().__init__()
        self.most = self.now = 0
        self.lock = threading.Lock()

    def allows(self, *asked: Any) -> bool:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0)  # lets another thread run
        with self.lock:
            self.now -= 1
        return super().allows(*asked)


def as_it_is(found: Any) -> Any:
    return found


class Nobody:
    async def request(self, *_: Any) -> Any:
        raise BrokerError(ErrorCode.NOT_CONTROLLER)


@on_a_loop
@pytest.mark.parametrize("asked", ["snapshot", "topics", "groups", "transactions"])
async def test_rights_are_looked_up_beside_the_loop(asked: str) -> None:
    authorizer: Any = Authorizer()
    names = ("a", "secret", "b")
    topics = {name: TopicImage(name, UUID(int=n + 1), {}) for n, name in enumerate(names)}
    node = node_context(
        asyncio.get_running_loop(),
        image=MetadataImage(topics_by_name=topics),
        authorizer=authorizer,
        controller_channel=Nobody(),
    )
    sources: Any = SimpleNamespace(node=node, broker=None)
    visitor = Visitor("User:a", "h", node)
    arguments = {"topics": (as_it_is, "")}.get(asked, (as_it_is,))
    answer = await getattr(ClusterView(sources), asked)(visitor, *arguments)
    assert threading.get_ident() not in authorizer.threads
    if asked == "snapshot":
        assert answer["totals"]["topics"] == 2
    elif asked == "topics":
        assert [each["name"] for each in answer] == ["a", "b"]
    else:
        assert answer == []


class Leader:
    """Its clock stands at 1970."""

    async def request(self, *_: Any) -> Any:
        voters = [
            SimpleNamespace(replica_id=voter, log_end_offset=7, last_caught_up_timestamp=at)
            for voter, at in {1: 60_000, 2: 59_750, 3: -1}.items()
        ]
        described = SimpleNamespace(
            error_code=0, leader_id=1, leader_epoch=4, high_watermark=7, current_voters=voters
        )
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[described])])


@on_a_loop
async def test_when_a_voter_had_caught_up_is_told_by_the_leader_s_clock() -> None:
    node = node_context(
        asyncio.get_running_loop(), image=MetadataImage(), authorizer=None, controller_channel=Leader()
    )
    sources: Any = SimpleNamespace(node=node, broker=None)
    seen = await ClusterView(sources).snapshot(Visitor("User:a", "h", node), as_it_is)
    assert [each["caught_up_ms_ago"] for each in seen["quorum"]["voters"]] == [0, 250, None]


@on_a_loop
async def test_views_are_made_one_at_a_time() -> None:
    """A hundred visitors at once took all threads, and a hundred times the memory."""
    authorizer: Any = Counting()
    topics = {f"t{n}": TopicImage(f"t{n}", UUID(int=n + 1), {}) for n in range(100)}
    node = node_context(
        asyncio.get_running_loop(),
        image=MetadataImage(topics_by_name=topics),
        authorizer=authorizer,
        controller_channel=Nobody(),
    )
    sources: Any = SimpleNamespace(node=node, broker=None)
    view, visitor = ClusterView(sources), Visitor("User:a", "h", node)
    told = Told()
    asked = [view.snapshot(visitor, told), view.topics(visitor, told, ""), view.groups(visitor, told)]
    await asyncio.gather(*asked, *(view.snapshot(visitor, told) for _ in range(5)))
    assert authorizer.most == 1
    assert told.most == 1


def test_long_names_of_groups_take_more_room() -> None:
    """Three hundred of 32 KB were 60 MB for each reader, once a second."""
    groups: list[dict[str, Any]] = [
        {"id": "\1" * 32_000 + str(n), "members": [], "offsets": [], "lag": 0} for n in range(300)
    ]
    shown = furthest_behind(groups)
    assert shown
    assert len(json.dumps(shown)) < 3_000_000


class Broker:
    """Answers with the next of these texts."""

    def __init__(self, *texts: bytes) -> None:
        self._texts = iter(texts)

    async def exchange(self, *_: Any) -> bytes:
        return next(self._texts)


@on_a_loop
async def test_a_broker_that_is_still_making_its_view_has_the_one_before() -> None:
    node = SimpleNamespace(loop=asyncio.get_running_loop())
    broker: Any = SimpleNamespace(node=node, console_channels=Broker(b"", b"{}", b"[]"))
    told = [await ask_broker(broker, 2, {"node_id": 2}) for _ in range(3)]
    assert told == [{"node_id": 2}, {}, None]


class Told:
    """How many answers are in memory that are not encoded."""

    def __init__(self) -> None:
        self.most = self.now = 0
        self.lock = threading.Lock()

    def __call__(self, found: Any) -> bytes:
        with self.lock:
            self.now += 1
            self.most = max(self.most, self.now)
        time.sleep(0)  # lets another thread run
        with self.lock:
            self.now -= 1
        return b""


@on_a_loop
async def test_one_whose_reader_has_gone_is_not_made_beside_the_next() -> None:
    authorizer: Any = Counting()
    topics = {f"t{n}": TopicImage(f"t{n}", UUID(int=n + 1), {}) for n in range(100)}
    node = node_context(
        asyncio.get_running_loop(),
        image=MetadataImage(topics_by_name=topics),
        authorizer=authorizer,
        controller_channel=Nobody(),
    )
    view, visitor = (
        ClusterView(cast(Any, SimpleNamespace(node=node, broker=None))),
        Visitor("User:a", "h", node),
    )
    may_go_on, made = threading.Event(), threading.Event()
    told = Told()

    def slow(found: Any) -> bytes:
        made.set()
        may_go_on.wait(60)
        return told(found)

    gone = asyncio.ensure_future(view.snapshot(visitor, slow))
    await asyncio.get_running_loop().run_in_executor(None, made.wait, 60)
    waits = asyncio.ensure_future(view.groups(visitor, told))
    gone.cancel()
    for _ in range(10):
        await asyncio.sleep(0)
    assert (gone.done(), waits.done()) == (False, False)
    may_go_on.set()
    assert await waits == b""
    assert gone.cancelled()


def test_of_very_many_groups_those_are_shown_that_are_furthest_behind() -> None:
    """Each reader of the live stream is sent them once a second."""
    groups: list[dict[str, Any]] = [
        {"id": f"g{n:05}", "members": [], "offsets": [{}] * 3, "lag": 0} for n in range(3_000)
    ]
    groups[1_500]["lag"], groups[1_501]["lag"] = 1, None
    shown = furthest_behind(groups)
    assert sum(1 + len(each["offsets"]) for each in shown) == SHOWN_OF_GROUPS
    assert groups[1_500] in shown
    assert shown == sorted(shown, key=lambda group: str(group["id"]))
    assert furthest_behind(groups[:9]) == groups[:9]
