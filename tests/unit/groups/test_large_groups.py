"""What a request of one member costs does not grow with its group: bytecodes, counted.

A thousand members send their heartbeats to one coordinator, and after a failover they all join at once.
"""

from __future__ import annotations

from functools import partial
from uuid import UUID

import pytest

from data_plane.coordinator.groups.assignment import NOTHING, Assignment
from data_plane.coordinator.groups.consumer.assignors import AssignedMember, assign_ranges, assign_uniformly
from data_plane.coordinator.groups.messages import (
    DescribedGroup,
    Heartbeat,
    HeartbeatReply,
    JoinReply,
    LeaveGroup,
    MemberIdentity,
    SyncGroup,
)
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.bytecodes import cost
from tests.unit.groups.clients import GROUP, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver, join
from tests.unit.groups.topics import Topics

SMALL, LARGE = 10, 80
TOLERANCE = 1.2
"""A heap of so many costs that much more, at most."""


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
    """For each member: of a rebalance, of a heartbeat, and of leaving."""
    driver = GroupDriver()
    ids = [f"m{i}" for i in range(members)]
    for member_id in ids:
        driver.ask("join", join(new=member_id))

    def rebalance() -> int:
        """All join, the last of them ends it, and the leader's assignment is handed out; the generation."""
        joins = [driver.ask("join", join(member_id)) for member_id in ids]
        reply = driver.answers[joins[-1]]
        assert isinstance(reply, JoinReply)
        assert reply.error is ErrorCode.NONE
        assignments = dict.fromkeys(ids, b"x")
        for member_id in ids:
            driver.ask("sync", SyncGroup(GROUP, member_id, reply.generation, assignments=assignments))
        return reply.generation

    generation = rebalance()
    costs = [cost(rebalance)]
    generation += 1
    costs.append(cost(lambda: [driver.ask("heartbeat", Heartbeat(GROUP, m, generation)) for m in ids]))
    assert driver.answers[max(driver.answers)] == HeartbeatReply(ErrorCode.NONE)
    costs.append(
        cost(lambda: [driver.ask("leave", LeaveGroup(GROUP, (MemberIdentity(m, None),))) for m in ids])
    )
    described = driver.answer("describe", GROUP)
    assert isinstance(described, DescribedGroup)
    assert described.members == ()
    return [total // members for total in costs]


@pytest.mark.row("G1")
def test_a_rebalance_of_a_classic_group() -> None:
    for small, large in zip(rebalance_costs(SMALL), rebalance_costs(LARGE), strict=True):
        assert large <= TOLERANCE * small


def cost_of_another_subscription(members: int, topics: int) -> int:
    """One member of a settled group reads one topic less."""
    topic_ids = [UUID(int=number) for number in range(1, topics + 1)]
    sizes = dict.fromkeys(topic_ids, 4)
    group = [AssignedMember(f"m{i}", None, frozenset(topic_ids), NOTHING) for i in range(members)]
    targets = assign_uniformly(group, sizes)
    group = [member._replace(target=targets[member.member_id]) for member in group]
    group[0] = group[0]._replace(topic_ids=frozenset(topic_ids[1:]))
    found: dict[str, Assignment] = {}
    total = cost(lambda: found.update(assign_uniformly(group, sizes)))
    loads = [sum(map(len, target.values())) for target in found.values()]
    assert (sum(loads), max(loads) - min(loads)) == (4 * topics, 0)
    return total


@pytest.mark.row("G6")
def test_a_member_that_reads_other_topics_than_the_rest() -> None:
    """In a group of thousands of partitions that took seconds, in which the broker did nothing else."""
    small, large = cost_of_another_subscription(5, 20), cost_of_another_subscription(10, 80)
    assert large <= 4 * TOLERANCE * small  # of four times as many partitions


def cost_of_sharing_all_that_one_has(members: int, topics: int, partitions: int) -> int:
    """As where the leader of a classic group, which becomes one of the consumer protocol, assigned everything
    to itself, and one member reads something else."""
    topic_ids = [UUID(int=number) for number in range(1, topics + 1)]
    sizes = dict.fromkeys(topic_ids, partitions)
    group = [AssignedMember(f"m{i}", None, frozenset(topic_ids), NOTHING) for i in range(members)]
    group[0] = group[0]._replace(target=dict.fromkeys(topic_ids, frozenset(range(partitions))))
    group[-1] = group[-1]._replace(topic_ids=frozenset(topic_ids[1:]))
    found: dict[str, Assignment] = {}
    total = cost(lambda: found.update(assign_uniformly(group, sizes)))
    loads = [sum(map(len, target.values())) for target in found.values()]
    assert (sum(loads), max(loads) - min(loads)) == (topics * partitions, 0)
    return total


@pytest.mark.row("G6")
@pytest.mark.parametrize(("topics", "partitions"), [(10, 60), (600, 1)])
def test_very_many_partitions_that_change_hands(topics: int, partitions: int) -> None:
    """For each of them all members were looked at: of three hundred, in a group of 5,000 partitions, that
    took 0.4 s."""
    small, large = (cost_of_sharing_all_that_one_has(members, topics, partitions) for members in (20, 200))
    assert large <= 1.5 * small


def cost_of_ranges(members: int, topics: int) -> int:
    topic_ids = frozenset(UUID(int=number) for number in range(1, topics + 1))
    group = [AssignedMember(f"m{i}", None, topic_ids, NOTHING) for i in range(members)]
    return cost(lambda: assign_ranges(group, dict.fromkeys(topic_ids, 1)))


@pytest.mark.row("G6")
def test_ranges_of_topics_that_are_smaller_than_the_group() -> None:
    """For each topic all members were asked whether they read it."""
    small, large = cost_of_ranges(10, 200), cost_of_ranges(100, 200)
    assert large <= 1.5 * small


def cost_of_reading_all_but_one(members: int, topics: int) -> int:
    """Of a group whose members read other topics each, and have what they are to have."""
    topic_ids = [UUID(int=number) for number in range(1, topics + 1)]
    sizes = dict.fromkeys(topic_ids, 1)
    group = [
        AssignedMember(f"m{i}", None, frozenset(topic_ids) - {topic_ids[i]}, NOTHING) for i in range(members)
    ]
    first = assign_uniformly(group, sizes)
    group = [member._replace(target=first[member.member_id]) for member in group]
    found: dict[str, Assignment] = {}
    total = cost(lambda: found.update(assign_uniformly(group, sizes)))
    assert found == first
    return total


@pytest.mark.row("G6")
def test_members_that_each_read_all_topics_but_another_one() -> None:
    """For each topic everybody was asked how little it has, though nobody has less than another."""
    small, large = cost_of_reading_all_but_one(3, 240), cost_of_reading_all_but_one(24, 240)
    assert large <= 3 * small  # to note who reads what is left
