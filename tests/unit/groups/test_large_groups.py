"""What a request of one member costs does not grow with its group: bytecodes, counted.

A thousand members send their heartbeats to one coordinator, and after a failover they all join at once.
"""

from __future__ import annotations

import sys
from collections.abc import Callable
from functools import partial
from types import FrameType
from typing import Any

import pytest

from data_plane.coordinator.groups.messages import Heartbeat, JoinReply, SyncGroup
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.clients import GROUP, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver, join
from tests.unit.groups.topics import Topics

SMALL, LARGE = 10, 80
TOLERANCE = 1.2
"""A heap of so many costs that much more, at most."""


def cost(action: Callable[[], object]) -> int:
    """Bytecodes that run meanwhile."""
    counted = 0

    def trace(frame: FrameType, event: str, argument: Any) -> Any:
        nonlocal counted
        frame.f_trace_opcodes = True
        counted += event == "opcode"
        return trace

    before = sys.gettrace()
    sys.settrace(trace)
    try:
        action()
    finally:
        sys.settrace(before)
    assert counted > 0
    return counted


def settled_group(members: int, *, patterns: bool) -> tuple[GroupDriver, list[ConsumerClient]]:
    topics = Topics()
    topics.create("a", 2 * members)
    driver = GroupDriver(view=topics.view)
    clients = [
        ConsumerClient(f"m{i}-", regex=f"a|only-{i}") if patterns else ConsumerClient(f"m{i}-", ("a",))
        for i in range(members)
    ]
    for _ in range(4):
        for client in clients:
            assert client.beat(driver) is None
    assert all(len(client.owned) == 2 for client in clients)
    return driver, clients


@pytest.mark.row("G6")
@pytest.mark.parametrize("patterns", [False, True], ids=["names", "a pattern for each"])
def test_a_heartbeat_of_the_consumer_protocol(patterns: bool) -> None:
    small, large = (
        cost(partial(clients[3].beat, driver))
        for driver, clients in (settled_group(members, patterns=patterns) for members in (SMALL, LARGE))
    )
    assert large <= TOLERANCE * small


def rebalance_costs(members: int) -> list[int]:
    """Of a join that is not the last one, of a sync and of a heartbeat."""
    driver = GroupDriver()
    ids = [f"m{i}" for i in range(members)]
    for member_id in ids:
        driver.ask("join", join(new=member_id))
    driver.ask("join", join("m0"))  # the leader asks for a rebalance
    joins = [cost(partial(driver.ask, "join", join(member_id))) for member_id in ids[1:-1]]
    last = driver.ask("join", join(ids[-1]))
    reply = driver.answers[last]
    assert isinstance(reply, JoinReply)
    assert reply.error is ErrorCode.NONE
    generation = reply.generation
    driver.ask("sync", SyncGroup(GROUP, "m0", generation, assignments=dict.fromkeys(ids, b"x")))
    syncs = [cost(partial(driver.ask, "sync", SyncGroup(GROUP, m, generation))) for m in ids[1:]]
    beats = [cost(partial(driver.ask, "heartbeat", Heartbeat(GROUP, m, generation))) for m in ids]
    return [sum(costs) // len(costs) for costs in (joins, syncs, beats)]


@pytest.mark.row("G1")
def test_a_rebalance_of_a_classic_group() -> None:
    for small, large in zip(rebalance_costs(SMALL), rebalance_costs(LARGE), strict=True):
        assert large <= TOLERANCE * small
