"""Groups of both protocols under any order of heartbeats, silences, lost answers, late copies of requests,
refused appends, failovers and changes of topics.

Held after every step: no partition is read by two members, epochs do not fall, and the log tells a
new coordinator what the old one knows. And whenever trouble ends: every partition of a topic that
somebody reads has a reader, shared as evenly as one assignor promises.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from itertools import chain

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, precondition, rule

from data_plane.coordinator.groups.classic import group as classic_group
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer import group as consumer_group
from data_plane.coordinator.groups.consumer import upgrade
from data_plane.coordinator.groups.consumer.group import ConsumerGroup
from data_plane.coordinator.groups.consumer.messages import ConsumerHeartbeat
from data_plane.coordinator.groups.consumer.state import JOINING
from data_plane.coordinator.groups.consumer.upgrade import Upgrade
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import JoinGroup, LeaveGroup
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.suite.examples import examples
from tests.unit.groups.clients import GROUP, ClassicClient, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver, GroupRequest
from tests.unit.groups.topics import Topics

MOST_PARTITIONS = 6
ROUNDS_TO_SETTLE = 40
"""More heartbeats of everyone than any rebalance here needs."""

SUBSCRIPTIONS = [("a",), ("b",), ("a", "b"), ("a", "not-there")]


class Groups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.topics = Topics()
        self.topics.create("a", 3)
        self.topics.create("b", 2)
        limits = GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=0.0))
        self.driver = GroupDriver(limits, self.topics.view)
        self.modern = [
            ConsumerClient("u", ("a",), assignor="uniform"),
            ConsumerClient("v", ("a", "b")),
            ConsumerClient("s", ("b",), instance="i"),
        ]
        self.classic = [ClassicClient("c", ("a",)), ClassicClient("d", ("a", "b"))]
        self.living: set[str] = set()
        self.unheard: dict[str, tuple[str, GroupRequest]] = {}
        """What each client has sent in vain, and the coordinator has not looked at yet."""
        self.seen: tuple[ConsumerGroup, tuple[int, int]] | None = None

    @property
    def clients(self) -> list[ConsumerClient | ClassicClient]:
        return [each for each in chain(self.modern, self.classic) if each.name in self.living]

    # --- what clients do

    @initialize(living=st.sets(st.integers(0, 4), min_size=2), settled=st.booleans())
    def begin(self, living: set[int], settled: bool) -> None:
        for who in sorted(living):
            self.start(who)
        if settled:
            self.trouble_ends()

    def teardown(self) -> None:
        if self.living:
            self.trouble_ends()

    @rule(who=st.integers(0, 4))
    def start(self, who: int) -> None:
        client = [*self.modern, *self.classic][who]
        self.living.add(client.name)
        self._hear(client)
        client.beat(self.driver)

    @rule(order=st.permutations(range(5)), rounds=st.integers(1, 3))
    def beat(self, order: list[int], rounds: int) -> None:
        for who in order * rounds:
            client = [*self.modern, *self.classic][who]
            if client.name in self.living:
                self._hear(client)
                client.beat(self.driver)
                self.no_partition_has_two_readers()

    @rule(who=st.integers(0, 2))
    def answer_is_lost(self, who: int) -> None:
        if self.modern[who].name in self.living:
            self._hear(self.modern[who])
            self.modern[who].beat(self.driver, lose_answer=True)

    @rule(who=st.integers(0, 2))
    def slow_down(self, who: int) -> None:
        self.modern[who].slow = True

    @rule(who=st.integers(0, 2), topics=st.sampled_from(SUBSCRIPTIONS))
    def resubscribe(self, who: int, topics: tuple[str, ...]) -> None:
        self.modern[who].resubscribe(*topics)

    @rule(who=st.integers(0, 2), regex=st.sampled_from(["[ab]", "a|c", "z.*"]))
    def subscribe_by_pattern(self, who: int, regex: str) -> None:
        self.modern[who].resubscribe(regex=regex)

    @rule(who=st.integers(0, 4), for_now=st.booleans())
    def leave(self, who: int, for_now: bool) -> None:
        client = [*self.modern, *self.classic][who]
        if client.name not in self.living:
            return
        self.living.remove(client.name)
        self._hear(client)
        if isinstance(client, ConsumerClient):
            client.leave(self.driver, for_now=for_now and client.instance is not None)
        else:
            client.leave(self.driver)

    @rule(who=st.integers(0, 4))
    def die(self, who: int) -> None:
        client = [*self.modern, *self.classic][who]
        client.die()
        self.living.discard(client.name)

    # --- what happens to them

    @rule(who=st.integers(0, 4))
    def connection_breaks(self, who: int) -> None:
        """What comes on it last is looked at later, but before what its client sends on the next one."""
        client = [*self.modern, *self.classic][who]
        if client.name not in self.living:
            return
        self._hear(client)
        if isinstance(client, ClassicClient) and client.ticket is not None:
            client.connection_broke()
        else:
            self.unheard[client.name] = client.send_in_vain(self.driver)

    @rule(who=st.integers(0, 4))
    def is_heard_at_last(self, who: int) -> None:
        self._hear([*self.modern, *self.classic][who])

    def _hear(self, client: ConsumerClient | ClassicClient) -> None:
        if (sent := self.unheard.pop(client.name, None)) is not None:
            self.driver.comes_late(*sent)

    @precondition(lambda self: self.driver.sent)
    @rule(data=st.data())
    def late_copy(self, data: st.DataObject) -> None:
        number = data.draw(st.integers(0, len(self.driver.sent) - 1))
        if self._may_come_at_any_time(self.driver.sent[number][1]):
            self.driver.late_copy(number)

    def _may_come_at_any_time(self, request: GroupRequest) -> bool:
        """Also after what its client has sent since. Not what would pass for the newest of who goes by that
        name still: the protocols, which do not number what a member sends, rely on it that it is. It may say
        that the member has given up what others then get, and it gets an answer that nobody is given again:
        who hears nothing gives up nothing and comes for nothing, and is out when its time is up."""
        if isinstance(request, LeaveGroup):  # a member's last word
            return True
        if all(request.member_id != client.member_id for client in (*self.modern, *self.classic)):
            return True
        if isinstance(request, ConsumerHeartbeat):
            group = self.driver.manager.group(GROUP)
            member = group.state.members.get(request.member_id) if isinstance(group, ConsumerGroup) else None
            newest = () if member is None else (member.epoch, member.previous_epoch)
            return request.member_epoch not in (JOINING, *newest)
        return not (isinstance(request, JoinGroup) and request.member_id)

    @rule(seconds=st.sampled_from([1.0, 20.0, 46.0, 61.0]))
    def time_passes(self, seconds: float) -> None:
        """Who is out meanwhile has noticed by then that nobody answers."""
        self.driver.advance(seconds)
        for client in self.clients:
            if not client.is_member(self.driver):
                if isinstance(client, ClassicClient):
                    client.lost()
                else:
                    client.owned.clear()
                    client.assigned = None

    @rule(name=st.sampled_from("abc"), partitions=st.integers(1, MOST_PARTITIONS))
    def grow(self, name: str, partitions: int) -> None:
        if self.topics.view.topic_id(name) is None:
            self.topics.create(name, partitions)
        elif partitions > self.topics.size(name):
            self.topics.grow(name, partitions)

    @rule(name=st.sampled_from("abc"))
    def delete(self, name: str) -> None:
        if self.topics.view.topic_id(name) is not None:
            self.topics.delete(name)

    @rule(error=st.sampled_from([None, ErrorCode.COORDINATOR_NOT_AVAILABLE]))
    def appends_are(self, error: ErrorCode | None) -> None:
        self.driver.refusal = error

    @rule()
    def failover(self) -> None:
        self.driver = self.driver.reloaded()
        for client in self.classic:
            client.connection_broke()

    # --- what must hold

    @invariant()
    def no_partition_has_two_readers(self) -> None:
        readers = Counter(partition for client in self.clients for partition in client.owned)
        assert all(count == 1 for count in readers.values()), readers

    @invariant()
    def epochs_do_not_fall(self) -> None:
        """As long as it is the same group: one that was deleted, or went to the classic protocol and
        came back, counts from zero. (That a new coordinator counts on is part of what the log tells.)"""
        group = self.driver.manager.group(GROUP)
        if not isinstance(group, ConsumerGroup):
            self.seen = None
            return
        now = group.state.epoch, group.state.target_epoch
        assert now[1] <= now[0]
        if self.seen is not None and self.seen[0] is group:
            assert now >= self.seen[1]
        self.seen = group, now

    @invariant()
    def the_log_tells_all(self) -> None:
        group, successor = self.driver.manager.group(GROUP), self.driver.reloaded()
        if isinstance(group, ConsumerGroup):
            reloaded = successor.manager.group(GROUP)
            assert isinstance(reloaded, ConsumerGroup)
            assert {m.member_id: m for m in reloaded.state.members.values()} == group.state.members
            assert (reloaded.state.targets, reloaded.state.regexes) == (
                group.state.targets,
                group.state.regexes,
            )
            partitions = list(chain.from_iterable(self.topics.partitions().values()))
            owners = [[state.owner(each) for each in partitions] for state in (reloaded.state, group.state)]
            assert owners[0] == owners[1]
            assert reloaded.state.epoch == group.state.epoch
            assert reloaded.state.phase is group.state.phase
            assert reloaded.state.pattern_use() == group.state.pattern_use()  # kept as a recount gives it
            counts = [
                (said.names, said.matches, said.bytes, said.topics())
                for said in (reloaded.state.subscriptions, group.state.subscriptions)
            ]
            assert counts[0] == counts[1]
        elif not isinstance(group, ClassicGroup):
            assert group is None

    @precondition(lambda self: self.living)
    @rule()
    def trouble_ends(self) -> None:
        """All is well: everyone who lives is served, nobody else is waited for."""
        self.driver.refusal = None
        for each in chain(self.modern, self.classic):
            self._hear(each)
        for client in self.modern:
            client.slow = False
            client.obey()
        for _ in range(ROUNDS_TO_SETTLE):
            for client in self.clients:
                client.beat(self.driver)
                self.no_partition_has_two_readers()
            self.driver.advance(3.0)
        for client in self.clients:
            assert client.is_member(self.driver), client
        self._every_partition_has_a_reader()

    def _every_partition_has_a_reader(self) -> None:
        partitions = self.topics.partitions()
        wanted = {
            p for client in self.clients for name in self._reads(client) for p in partitions.get(name, ())
        }
        assert set().union(*(client.owned for client in self.clients)) == wanted
        for client in self.clients:
            readable = {p for name in self._reads(client) for p in partitions.get(name, ())}
            assert client.owned <= readable
        alike = {frozenset(self._reads(client)) for client in self.clients}
        if len(alike) == 1:
            loads = [len(client.owned) for client in self.clients]
            assert max(loads) - min(loads) <= 1

    def _reads(self, client: ConsumerClient | ClassicClient) -> set[str]:
        there = self.topics.view.image.topics_by_name
        names = set(client.topics) & there.keys()
        if isinstance(client, ConsumerClient) and client.regex:
            names |= {n for n in there if n in client.regex}  # one letter each
        return names


Groups.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestGroups = pytest.mark.row("G6")(Groups.TestCase)


class OneAtATime(Groups):
    """What happens to all members together is done to one of them per tick, or per turn of the loop."""

    def __init__(self) -> None:
        self.upgrade: Upgrade | None = None
        self.steps: Iterator[None] = iter(())
        self.patch = pytest.MonkeyPatch()
        self.patch.setattr(upgrade, "AT_ONCE", 1)
        self.patch.setattr(classic_group, "ENDED_AT_ONCE", 1)
        self.patch.setattr(consumer_group, "DUE_AT_ONCE", 1)
        super().__init__()

    @rule()
    def some_are_converted(self) -> None:
        """Classic members, before somebody makes theirs a group of the consumer protocol."""
        made = self.driver.manager.upgrade_for(ConsumerHeartbeat(GROUP, "asks", JOINING))
        if made is not self.upgrade or next(self.steps, "done") == "done":
            self.upgrade, self.steps = made, iter(()) if made is None else made.steps()
            next(self.steps, None)

    def teardown(self) -> None:
        super().teardown()
        self.patch.undo()


OneAtATime.TestCase.settings = settings(max_examples=examples(60), stateful_step_count=30, deadline=None)
TestOneAtATime = pytest.mark.row("G6")(OneAtATime.TestCase)
