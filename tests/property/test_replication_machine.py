"""Replication of one partition under every order of steps that hypothesis can think of, and late copies of
fetches and of changes of the ISR.

The world checks the invariants of logs after each step; at the end everything heals, all replicas must be in
sync again, and nothing that was acknowledged may be gone.
"""

from __future__ import annotations

import pytest
from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from chaos.sim.replication_broker import LAG_TIME_MAX
from chaos.sim.replication_world import ReplicationWorld
from data_plane.replication.partition import ALL_REPLICAS
from tests.support.suite.examples import examples

BROKERS = st.integers(1, 3)


class ReplicationMachine(RuleBasedStateMachine):
    """See the module."""

    world: ReplicationWorld

    @initialize(min_insync=st.integers(1, 2))
    def begin(self, min_insync: int) -> None:
        self.world = ReplicationWorld(min_insync=min_insync)

    @rule(broker=BROKERS, acks=st.sampled_from([1, ALL_REPLICAS]))
    def produce(self, broker: int, acks: int) -> None:
        self.world.produce(broker, acks)

    @rule(broker=BROKERS)
    def ask(self, broker: int) -> None:
        self.world.ask(broker)

    @rule(broker=BROKERS)
    def take(self, broker: int) -> None:
        self.world.take(broker)

    @rule(broker=BROKERS)
    def fetch_twice(self, broker: int) -> None:
        self.world.fetch(broker)
        self.world.fetch(broker)

    @rule(broker=BROKERS, lose_answer=st.booleans())
    def answer_isr(self, broker: int, lose_answer: bool) -> None:
        self.world.answer_isr(broker, lose_answer=lose_answer)

    @precondition(lambda self: self.world.fetches)
    @rule(data=st.data())
    def ask_late(self, data: st.DataObject) -> None:
        self.world.ask_late(-data.draw(st.integers(1, len(self.world.fetches))))

    @precondition(lambda self: self.world.isr_requests)
    @rule(data=st.data())
    def ask_isr_late(self, data: st.DataObject) -> None:
        self.world.ask_isr_late(-data.draw(st.integers(1, len(self.world.isr_requests))))

    @rule(broker=BROKERS, behind=st.integers(0, 2))
    def publish(self, broker: int, behind: int) -> None:
        self.world.publish(broker, max(len(self.world.controller.history) - 1 - behind, 0))

    @rule(broker=BROKERS)
    def fence(self, broker: int) -> None:
        self.world.fence(broker)

    @rule(broker=BROKERS)
    @precondition(lambda self: len(self.world.controller.active) < 3)
    def unfence(self, broker: int) -> None:
        if broker not in self.world.controller.active and self.world.brokers[broker].partition is not None:
            self.world.unfence(broker)

    @rule(broker=BROKERS, and_is_fenced=st.booleans())
    def crash(self, broker: int, and_is_fenced: bool) -> None:
        self.world.crash(broker)
        if and_is_fenced:
            self.world.fence(broker)

    @rule(broker=BROKERS)
    def restart(self, broker: int) -> None:
        if self.world.brokers[broker].partition is None:
            self.world.restart(broker)

    @rule(broker=BROKERS)
    def checkpoint(self, broker: int) -> None:
        self.world.checkpoint(broker)

    @rule(broker=BROKERS, seconds=st.sampled_from([0.1, LAG_TIME_MAX / 2, LAG_TIME_MAX * 1.1]))
    def sweep(self, broker: int, seconds: float) -> None:
        self.world.pass_time(seconds)
        self.world.sweep(broker)

    @rule(broker=BROKERS)
    def delete_records(self, broker: int) -> None:
        self.world.delete_records(broker)

    def teardown(self) -> None:
        if hasattr(self, "world"):
            self.world.heal()
            assert self.world.lost() == []


TestReplication = pytest.mark.row("R2", "R5")(ReplicationMachine.TestCase)
TestReplication.settings = settings(max_examples=examples(60), stateful_step_count=50)
