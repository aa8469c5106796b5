"""Groups of the consumer protocol (KIP-848), heartbeat by heartbeat.

A member of the consumer protocol obeys at once, unless its line says that it holds on to what it has.
Commands of the scenarios in consumer_groups/*.txt:

    topic NAME N                    a topic of N partitions, or N of them from now on
    delete NAME
    consumer NAME [range|uniform] TOPIC… | ~PATTERN     NAME:INSTANCE a static one
    classic NAME TOPIC…             a member of the classic protocol, which gives up all before it rejoins
    beat NAME… | rounds N           heartbeats (or what is next for a classic member); N times of everyone
    hold NAME | obey NAME           does not give up partitions; does
    leave NAME | pause NAME         for good; for now, as static members may
    advance SECONDS | failover | group
"""

from __future__ import annotations

from pathlib import Path

import pytest

from data_plane.coordinator.groups.assignment import TopicIdPartition, partitions_of
from data_plane.coordinator.groups.classic.states import ClassicGroupConfig
from data_plane.coordinator.groups.consumer.messages import DescribedConsumerGroup
from data_plane.coordinator.groups.group_metadata_manager import GroupLimits
from data_plane.coordinator.groups.messages import DescribedGroup
from metadata_quorum.foundation.errors import BrokerError
from tests.golden.scenario_runner import run_scenario, scenarios
from tests.unit.groups.clients import GROUP, ClassicClient, ConsumerClient
from tests.unit.groups.group_driver import GroupDriver
from tests.unit.groups.topics import Topics


@pytest.mark.row("G6")
@pytest.mark.parametrize("path", scenarios("consumer_groups"))
def test_consumer_groups_behave_as_written(path: Path) -> None:
    run_scenario(path, Scenario())


class Scenario:
    """Executes a scenario's commands against one coordinator."""

    def __init__(self) -> None:
        self.topics = Topics()
        limits = GroupLimits(rules=ClassicGroupConfig(initial_rebalance_delay=0.0))
        self.driver = GroupDriver(limits, self.topics.view)
        self.clients: dict[str, ConsumerClient | ClassicClient] = {}

    def do_topic(self, name: str, partitions: str) -> None:
        known = self.topics.view.topic_id(name) is not None
        (self.topics.grow if known else self.topics.create)(name, int(partitions))

    def do_delete(self, name: str) -> None:
        self.topics.delete(name)

    def do_consumer(self, who: str, *words: str) -> None:
        name, _, instance = who.partition(":")
        assignor = words[0] if words[0] in ("range", "uniform") else None
        topics = words[1:] if assignor else words
        regex = topics[0][1:] if topics[0].startswith("~") else None
        topics = () if regex else topics
        known = self.clients.get(name)
        if isinstance(known, ConsumerClient):
            known.resubscribe(*topics, regex=regex)
        else:
            self.clients[name] = ConsumerClient(name, topics, instance or None, regex, assignor)

    def do_classic(self, name: str, *topics: str) -> None:
        self.clients[name] = ClassicClient(name, topics)

    def do_beat(self, *names: str) -> list[str]:
        return [self._beat(name) for name in names]

    def do_rounds(self, count: str) -> list[str]:
        """What everyone has in the end."""
        for _ in range(int(count)):
            for name in self.clients:
                self._beat(name)
        return [self._has(client) for client in self.clients.values()]

    def do_hold(self, name: str) -> None:
        client = self.clients[name]
        assert isinstance(client, ConsumerClient)
        client.slow = True

    def do_obey(self, name: str) -> None:
        client = self.clients[name]
        assert isinstance(client, ConsumerClient)
        client.slow = False
        client.obey()

    def do_leave(self, name: str) -> None:
        self.clients.pop(name).leave(self.driver)

    def do_pause(self, name: str) -> None:
        client = self.clients[name]
        assert isinstance(client, ConsumerClient)
        client.leave(self.driver, for_now=True)

    def do_advance(self, seconds: str) -> None:
        self.driver.advance(float(seconds))

    def do_failover(self) -> None:
        self.driver = self.driver.reloaded()

    def do_group(self) -> list[str]:
        """State, epochs, and of each member what it has, must give up and is to have."""
        found = self.driver.answer("describe_consumer", GROUP)
        if not isinstance(found, DescribedConsumerGroup):
            classic = self.driver.answer("describe", GROUP)
            if not isinstance(classic, DescribedGroup) or not classic.protocol_type:
                return ["no group"]
            return [f"classic {classic.state}: {' '.join(m.member_id for m in classic.members)}".strip()]
        lines = [f"{found.state} epoch {found.epoch}, target {found.assignment_epoch}, {found.assignor}"]
        for described in found.members:
            member = described.member
            gives = self._named(set(partitions_of(member.pending_revocation)))
            lines.append(
                f"  {member.member_id} {member.state.name} in {member.epoch}: "
                f"has {self._named(set(partitions_of(member.assigned)))}"
                + (f", gives up {gives}" if member.pending_revocation else "")
                + f", is to have {self._named(set(partitions_of(described.target)))}"
            )
        return lines

    def _beat(self, name: str) -> str:
        client = self.clients[name]
        refusal = client.beat(self.driver)
        if isinstance(refusal, BrokerError):
            return f"{name}: {refusal.code.name}"
        return self._has(client)

    def _has(self, client: ConsumerClient | ClassicClient) -> str:
        if isinstance(client, ClassicClient):
            doing = f"generation {client.generation}, {client.to_do}s next"
        else:
            doing = f"epoch {client.epoch}"
        return f"{client.name}: {doing}: {self._named(client.owned)}"

    def _named(self, partitions: set[TopicIdPartition]) -> str:
        return " ".join(sorted(map(self.topics.named, partitions))) or "nothing"
