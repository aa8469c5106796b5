"""A classic group of thousands becomes one of the consumer protocol: its members are converted some in each
turn of the loop, while the group goes on."""

from __future__ import annotations

import asyncio
import contextlib
from collections import Counter, deque
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial

import pytest

from data_plane.coordinator.groups.assignment import partitions_of
from data_plane.coordinator.groups.classic.consumer_protocol import Subscription, write_assignment
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.consumer import upgrade
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeatReply
from data_plane.coordinator.groups.messages import LeaveGroup, MemberIdentity, MemberProtocol, SyncGroup
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.groups.converting import BEAT, subscription
from tests.unit.groups.group_driver import GroupDriver, join
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import run, service, settle, started
from tests.unit.groups.topics import Topics

pytestmark = pytest.mark.row("G6", "P7")

AT_ONCE = 2
IDS = [f"m{number}" for number in range(8)]
LEADER = IDS[0]
READ = MemberProtocol("range", subscription(1))


@pytest.fixture(autouse=True)
def few_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(upgrade, "AT_ONCE", AT_ONCE)


@pytest.fixture
def topics() -> Topics:
    topics = Topics()
    topics.create("0", len(IDS))
    return topics


@pytest.fixture
def driver(topics: Topics) -> GroupDriver:
    """All have joined, and wait for the leader to assign what they read."""
    driver = GroupDriver(view=topics.view)
    driver.ask("join", join(new=LEADER, protocols=(READ,)))
    for each in IDS[1:]:
        driver.ask("join", join(new=each, protocols=(READ,)))
    driver.ask("join", join(LEADER, protocols=(READ,)))
    return driver


def assign(driver: GroupDriver, generation: int = 2, members: Sequence[str] = IDS) -> None:
    shares = {each: write_assignment({"0": frozenset({number})}, 0) for number, each in enumerate(members)}
    driver.ask("sync", SyncGroup("g", LEADER, generation, assignments=shares))


def convert(driver: GroupDriver, *meanwhile: Callable[[], object]) -> int:
    """In pieces, with something else before each of the first; how many there were."""
    made = driver.manager.upgrade_for(BEAT)
    assert made is not None
    left, pieces = iter(meanwhile), 0
    for _ in made.steps():
        pieces += 1
        next(left, lambda: None)()
    assert next(left, None) is None
    assert isinstance(driver.answer("consumer_heartbeat", BEAT), ConsumerHeartbeatReply)
    return pieces


def consumer_group(driver: GroupDriver) -> ConsumerGroup:
    group = driver.manager.group("g")
    assert isinstance(group, ConsumerGroup)
    return group


def shape(driver: GroupDriver) -> tuple[object, ...]:
    state = consumer_group(driver).state
    for each in state.members.values():
        assert {state.owner(partition) for partition in partitions_of(each.assigned)} <= {each.member_id}
    said = state.subscriptions
    return (
        state.epoch,
        state.target_epoch,
        state.metadata_hash,
        list(state.members.items()),
        state.targets,
        (said.names, said.bytes, said.topics()),
        [state.owner((topic_id, n)) for topic_id in state.targets["new"] for n in range(len(IDS))],
    )


def test_the_decision_finds_all_converted(driver: GroupDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    assign(driver)
    made = driver.manager.upgrade_for(BEAT)
    assert made is not None
    assert len(list(made.steps())) == len(IDS) // AT_ONCE + 1
    monkeypatch.setattr(upgrade, "read_subscription", pytest.fail)
    assert isinstance(driver.answer("consumer_heartbeat", BEAT), ConsumerHeartbeatReply)
    assert list(consumer_group(driver).state.members) == [*IDS, "new"]
    assert shape(driver) == shape(driver.reloaded())


def test_many_that_ask_for_it_share_the_pieces(driver: GroupDriver) -> None:
    """Each took a turn for every piece, and all of them waited for that: a minute, where hundreds come."""
    assign(driver)
    made = driver.manager.upgrade_for(BEAT)
    assert made is not None
    waiting, turns = deque(made.steps() for _ in range(20)), 0
    while waiting:
        with contextlib.suppress(StopIteration):
            next(each := waiting.popleft())
            waiting.append(each)
            turns += 1
    assert turns <= len(IDS) // AT_ONCE + 1 + 20


def test_who_comes_second_is_refused_too(driver: GroupDriver, monkeypatch: pytest.MonkeyPatch) -> None:
    """The first had left the members converted, and their number was not looked at again."""
    monkeypatch.setattr(upgrade, "MAX_NAMES", 0)
    made = driver.manager.upgrade_for(BEAT)
    assert made is not None
    with pytest.raises(BrokerError, match="than are read"):
        list(made.steps())
    for _ in range(len(IDS)):
        with pytest.raises(BrokerError, match="than are read"):
            made.records()


def test_few_members_are_converted_in_the_decision(driver: GroupDriver) -> None:
    driver.ask("leave", LeaveGroup("g", tuple(MemberIdentity(each) for each in IDS[AT_ONCE:])))
    assert convert(driver) == 0


def test_what_happens_meanwhile_is_in_the_group(driver: GroupDriver) -> None:
    """Members are assigned something, one says that it reads something else, one leaves, one joins, and the
    next generation begins."""

    def another_subscription() -> None:
        protocols = (MemberProtocol("range", subscription(2)),)
        driver.ask("join", join(IDS[1], protocols=protocols))

    def all_join() -> None:
        for each in (LEADER, *IDS[2:-1]):
            driver.ask("join", join(each, protocols=(READ,)))

    convert(
        driver,
        lambda: None,
        lambda: assign(driver),
        another_subscription,
        lambda: driver.ask("leave", LeaveGroup("g", (MemberIdentity(IDS[-1]),))),
        lambda: driver.ask("join", join(new="late", protocols=(READ,))),
        all_join,
    )
    state = consumer_group(driver).state
    assert set(state.members) == {*IDS[:-1], "late", "new"}
    assert state.members[IDS[1]].metadata.subscribed_topic_names == ("0", "1")
    assert {each.epoch for each in state.members.values() if each.uses_classic_protocol} == {3}
    assert shape(driver) == shape(driver.reloaded())


def test_who_is_given_what_a_later_member_had_owns_it(driver: GroupDriver) -> None:
    """One leaves, the others are assigned its partitions and each other's while they are converted. What the
    later one had had it lost again when the later one was converted: two members read it."""
    assign(driver)
    driver.ask("leave", LeaveGroup("g", (MemberIdentity(IDS[1]),)))
    staying = [LEADER, *IDS[2:]]
    for each in staying:
        driver.ask("join", join(each, protocols=(READ,)))
    convert(driver, lambda: None, lambda: None, lambda: assign(driver, 3, staying))
    assert shape(driver) == shape(driver.reloaded())


def test_who_has_left_takes_nothing_from_who_was_given_it(driver: GroupDriver, topics: Topics) -> None:
    """What is left to do was noted before it left. It was converted, and with it went what the next one owns:
    two members read it."""
    assign(driver)
    made = driver.manager.upgrade_for(BEAT)
    assert made is not None
    before = made.steps()
    next(before)
    driver.ask("leave", LeaveGroup("g", (MemberIdentity(IDS[-1]),)))
    staying = IDS[:-1]
    for each in staying:
        driver.ask("join", join(each, protocols=(READ,)))
    shares = {each: write_assignment({"0": frozenset({number})}, 0) for number, each in enumerate(staying)}
    shares[LEADER] = write_assignment({"0": frozenset({0, len(staying)})}, 0)
    driver.ask("sync", SyncGroup("g", LEADER, 3, assignments=shares))
    for _ in zip(made.steps(), before, strict=False):
        pass
    for _ in before:
        pass
    convert(driver)
    assert consumer_group(driver).state.owner((topics.id("0"), len(staying))) == LEADER
    assert shape(driver) == shape(driver.reloaded())


def test_a_static_member_that_restarts_meanwhile_keeps_its_place(topics: Topics) -> None:
    """Converted under its next id, and then forgotten under its last one, it was no member any more."""
    driver = GroupDriver(view=topics.view)
    for number, each in enumerate(IDS):
        driver.ask("join", join(new=each, protocols=(READ,), instance_id=f"i{number}"))
    driver.ask("join", join(LEADER, protocols=(READ,), instance_id="i0"))
    shares = {each: write_assignment({"0": frozenset({number})}, 0) for number, each in enumerate(IDS)}
    last = f"i{len(IDS) - 1}"

    def restart() -> None:
        driver.ask("join", join("", new="again", protocols=(READ,), instance_id=last))

    nothing = [lambda: None] * (len(IDS) // AT_ONCE)
    sync = SyncGroup(
        "g", LEADER, driver.manager.group("g").metadata.generation, instance_id="i0", assignments=shares
    )
    convert(driver, *nothing, lambda: driver.ask("sync", sync), restart)
    for each in (driver, driver.reloaded()):
        member = consumer_group(each).state.static_member(last)
        assert member is not None
        assert member.member_id == "again"
    assert shape(driver) == shape(driver.reloaded())


def test_topics_that_come_or_grow_are_no_reason_to_begin_again(driver: GroupDriver, topics: Topics) -> None:
    """With one every second the conversion never came to its end."""
    assign(driver)
    come = [partial(topics.create, f"new{number}", 1) for number in range(3)]
    assert convert(driver, partial(topics.grow, "0", len(IDS) + 1), *come) == len(IDS) // AT_ONCE + 1
    assert shape(driver) == shape(driver.reloaded())


def test_who_was_assigned_a_topic_that_is_made_anew_is_converted_again(
    driver: GroupDriver, topics: Topics
) -> None:
    assign(driver)

    def make_anew() -> None:
        topics.delete("0")
        topics.create("0", len(IDS))

    convert(driver, lambda: None, lambda: None, make_anew)
    members = consumer_group(driver).state.members.values()
    assert {topic_id for each in members for topic_id in each.assigned} == {topics.id("0")}
    assert shape(driver) == shape(driver.reloaded())


def test_what_cannot_be_written_leaves_the_group_as_it_is(driver: GroupDriver) -> None:
    assign(driver)
    made = driver.manager.upgrade_for(BEAT)
    driver.refusal = ErrorCode.NOT_ENOUGH_REPLICAS
    assert driver.answer("consumer_heartbeat", BEAT) is driver.refusal
    group = driver.manager.group("g")
    assert isinstance(group, ClassicGroup)
    assert len(group.metadata.roster) == len(IDS)
    driver.refusal = None
    assert driver.manager.upgrade_for(BEAT) is made
    convert(driver)
    assert shape(driver) == shape(driver.reloaded())


def test_sessions_begin_with_the_conversion(driver: GroupDriver) -> None:
    assign(driver)
    made = driver.manager.upgrade_for(BEAT)
    assert made is not None
    pieces = list(made.steps())
    driver.now += 5.0
    convert(driver)
    assert pieces
    driver.advance(9.9)
    assert consumer_group(driver).size == len(IDS) + 1
    driver.advance(0.2)
    assert list(consumer_group(driver).state.members) == ["new"]


def test_a_few_in_each_turn_whoever_asks(monkeypatch: pytest.MonkeyPatch) -> None:
    """Requests that come together share the work."""
    in_turn = Counter[int]()
    turn = 0

    def read(*arguments: object) -> Subscription:
        in_turn[turn] += 1
        return Subscription(0, ("0",), {})

    async def test() -> None:
        loop = asyncio.get_running_loop()

        def next_turn() -> None:
            nonlocal turn
            turn += 1
            loop.call_soon(next_turn)

        async with service(MemoryLog()) as groups:
            joins = [started(groups.join(join(protocols=(READ,)))) for _ in IDS]
            await settle()
            next_turn()
            beats = [replace(BEAT, member_id=each) for each in ("new", "newer", "newest")]
            replies = await asyncio.gather(*(groups.consumer_heartbeat(each) for each in beats))
            assert [each.member_id for each in replies] == ["new", "newer", "newest"]
            await asyncio.gather(*joins, return_exceptions=True)

    monkeypatch.setattr(upgrade, "read_subscription", read)
    run(test)
    assert in_turn.total() == len(IDS)
    assert max(in_turn.values()) == AT_ONCE
