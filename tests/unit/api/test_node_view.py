"""What a broker tells the console of groups whose members are assigned what their leaders like."""

from __future__ import annotations

import asyncio
import json
import weakref
from types import SimpleNamespace
from typing import Any, cast

import pytest

from data_plane.coordinator.groups.classic.consumer_protocol import write_assignment
from data_plane.coordinator.groups.messages import GroupSummary, GroupType, ListedGroup, MemberSummary
from kraft.api import node_view as node_view_of_a_broker
from kraft.api import slices
from kraft.api.context import BrokerContext
from kraft.api.node_view import (
    BYTES_AS_ONE,
    MOST_ASSIGNED_BYTES,
    NOT_YET,
    PER_SLICE,
    handle,
    node_view,
)
from kraft.api.request_context import RequestContext, Role
from kraft.net.connection_state import ConnectionState
from kraft.wire.api_keys import ApiKey
from tests.support.contexts import broker_context, node_context
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")

FRAME_HEAD_BYTES = 8
TOPICS = {f"t{number:05d}": frozenset[int]() for number in range(500)}
SOME = write_assignment(TOPICS, 0)


class Replicas:
    logs = SimpleNamespace(dirs=())

    def __iter__(self) -> Any:
        return iter(())


def broker_of(groups: list[GroupSummary]) -> BrokerContext:
    node = node_context(asyncio.get_running_loop())
    broker: dict[str, Any] = {
        "group_coordinator": SimpleNamespace(summaries=lambda: iter(groups)),
        "transaction_coordinator": SimpleNamespace(unfinished=lambda: iter(())),
        "replica_manager": Replicas(),
        "lifecycle": SimpleNamespace(state=SimpleNamespace(name="RUNNING")),
    }
    return broker_context(node, **broker)


def ask(broker: BrokerContext) -> asyncio.Future[Any]:
    peer: Any = SimpleNamespace(listener="CLIENTS", client_host="h", state=ConnectionState(), gone=False)
    ctx = RequestContext(ApiKey.NODE_VIEW, 0, 1, "b", Role.BROKER, peer, "User:b", ())
    return handle(broker, ctx, memoryview(b""))


async def told(broker: BrokerContext) -> bytes:
    return b"".join(map(bytes, await ask(broker)))[FRAME_HEAD_BYTES:]


def group_of(assignments: list[bytes]) -> GroupSummary:
    members = [MemberSummary(f"m{n}", "c", "/h", each) for n, each in enumerate(assignments)]
    return GroupSummary(ListedGroup("g", "consumer", "Stable", GroupType.CLASSIC), tuple(members), {})


@on_a_loop
async def test_of_a_group_so_much_is_read() -> None:
    """One of a megabyte took a tenth of a second."""
    very_long = write_assignment({f"t{number}": frozenset() for number in range(40_000)}, 0)
    view = await node_view(broker_of([group_of([SOME] * 10), group_of([b"", SOME, very_long, SOME])]))
    first, second = ([each["assigned"] for each in group["members"]] for group in view["groups"])
    whole = {name: [] for name in TOPICS}
    read = MOST_ASSIGNED_BYTES // len(SOME)
    assert first == [whole] * read + [None] * (10 - read)
    assert second == [{}, whole, None, None]


@on_a_loop
async def test_long_ids_of_members_are_cut() -> None:
    """In JSON, and in the console's events, each of their bytes may become six."""
    member = MemberSummary("\x01" * 32_000, "\x01" * 32_000, "/h", b"")
    group = GroupSummary(ListedGroup("g", "consumer", "Stable", GroupType.CLASSIC), (member,) * 10, {})
    view = await node_view(broker_of([group]))
    assert len(json.dumps(view["groups"])) < 40_000


@on_a_loop
async def test_groups_with_long_assignments_take_several_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    groups = 40
    paused = 0
    pause = slices.LongRequest.pause

    async def counted(self: slices.LongRequest) -> None:
        nonlocal paused
        paused += 1
        await pause(self)

    monkeypatch.setattr(slices.LongRequest, "pause", counted)
    view = await node_view(broker_of([group_of([SOME]) for _ in range(groups)]))
    assert len(view["groups"]) == groups
    assert paused > groups * len(SOME) // (BYTES_AS_ONE * PER_SLICE) // 2


@on_a_loop
async def test_many_who_ask_together_are_told_of_one_view() -> None:
    """Each was some megabytes; and whoever asks may go."""
    made = 0

    def summaries() -> Any:
        nonlocal made
        made += 1
        return iter([group_of([SOME])])

    broker = broker_of([])
    broker.group_coordinator = cast(Any, SimpleNamespace(summaries=summaries))
    asked = [ask(broker) for _ in range(50)]
    await asyncio.sleep(0)
    asked[0].cancel()
    answers = await asyncio.gather(*asked, return_exceptions=True)
    assert isinstance(answers[0], asyncio.CancelledError)
    assert len({bytes(answer[-1]) for answer in answers[1:]}) == 1
    assert made == 1
    await ask(broker)
    assert made == 2


@on_a_loop
async def test_a_view_that_takes_long_is_for_all_who_ask_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """The console waits for a second, and asks again: what took two never came. Nor did one that another
    console had taken."""
    monkeypatch.setattr(node_view_of_a_broker, "ANSWER_S", 0)
    may_end, made = asyncio.Event(), 0

    async def slow(_: BrokerContext) -> dict[str, Any]:
        nonlocal made
        made += 1
        await may_end.wait()
        return {"made": made}

    monkeypatch.setattr(node_view_of_a_broker, "node_view", slow)
    broker = broker_of([])
    for _ in range(3):
        assert await told(broker) == NOT_YET
    may_end.set()
    assert broker.node_view is not None
    await broker.node_view
    for _ in range(3):
        assert json.loads(await told(broker)) == {"made": 1}


@on_a_loop
async def test_a_view_is_not_kept_for_long(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(node_view_of_a_broker, "ANSWER_S", 0)
    monkeypatch.setattr(node_view_of_a_broker, "KEPT_S", 0)
    broker = broker_of([])
    await ask(broker)
    assert broker.node_view is not None
    view = weakref.ref(broker.node_view)
    await broker.node_view
    for _ in range(5):
        await asyncio.sleep(0)
    assert broker.node_view is None
    assert view() is None
