"""What the brokers of a mixed cluster go through: kraft's and Apache Kafka's replicas of the same partitions.

MixedCluster   nodes, and what is asked of the cluster as a whole
both_lead      each broker is killed as a leader under load; the logs are the same in the end
coordinators_move, reassigned, ...: the same for the internal topics and for whole replicas
"""

from __future__ import annotations

import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Final

from confluent_kafka import Consumer, ElectionType, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.free_ports import HOST
from kraft.peers.blocking_client import ask, describe_quorum, live_brokers, out_of_sync
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import BrokerError
from tests.support.clients.load import Load
from tests.support.clients.rdkafka import QUIET, send
from tests.support.clients.transactions import committed
from tests.support.clients.wire_client import Wire
from tests.support.nodes.role_nodes import KRAFT, RoleNodes, Software
from tests.support.waiting import PATIENCE_S, wait_until

SETTINGS: Final = {
    "min.insync.replicas": "2",
    "offsets.topic.num.partitions": "6",
    "transaction.state.log.num.partitions": "6",
    "transaction.state.log.replication.factor": "3",
    "transaction.state.log.min.isr": "2",
    "auto.leader.rebalance.enable": "false",
    "metadata.log.max.record.bytes.between.snapshots": "20000",
}
"""Of every node, whatever it runs."""


@dataclass
class MixedCluster:
    """See the module."""

    nodes: RoleNodes

    @property
    def bootstrap(self) -> str:
        return self.nodes.bootstrap

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient({"bootstrap.servers": self.bootstrap, **QUIET})

    def ask(self, api_key: ApiKey, version: int, broker: int | None = None, **fields: object) -> Message:
        """Of a broker that runs, where none is named."""
        at = broker or next(each for each in self.nodes.brokers if each in self.nodes.processes)
        return ask(HOST, self.nodes.ports[at], api_key, (version, version), fields)

    def make_topic(self, name: str, assignments: Sequence[Sequence[int]], **config: str) -> None:
        topic = NewTopic(name, len(assignments), replica_assignment=[list(each) for each in assignments])
        topic.config = config
        self.admin.create_topics([topic])[name].result()

    def wait_in_sync(self, meanwhile: Callable[[], None] = lambda: None) -> None:
        """Until every broker that should run does, and has all that it replicates; `meanwhile` runs, too."""
        brokers = {each for each in self.nodes.brokers if each in self.nodes.processes}

        def whole() -> bool:
            meanwhile()
            with suppress(OSError, BrokerError):
                ports = [self.nodes.ports[each] for each in brokers]
                return all(
                    live_brokers(HOST, port) == brokers and not out_of_sync(HOST, port) for port in ports
                )
            return False

        wait_until(whole, f"brokers {brokers} are in sync")

    def start(self, broker: int) -> None:
        self.nodes.start(broker)
        self.wait_in_sync()

    def elect_preferred(self) -> None:
        """Every partition is led by its first replica."""
        self.admin.elect_leaders(ElectionType.PREFERRED, None).result()

    def active_controller(self) -> int:
        at = next(each for each in self.nodes.brokers if each in self.nodes.processes)

        def leader() -> int:
            with suppress(OSError, BrokerError):
                return max(
                    int(describe_quorum(HOST, self.nodes.ports[at]).topics[0].partitions[0].leader_id), 0
                )
            return 0

        return wait_until(leader, "a controller is active")

    def leaders(self, topic: str) -> list[int]:
        (found,) = self.ask(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics
        return [each.leader_id for each in sorted(found.partitions, key=lambda each: each.partition_index)]

    def coordinator(self, name: str, key_type: CoordinatorType) -> int:
        """The broker; 0 where it is not known yet."""
        fields = {"key_type": int(key_type), "coordinator_keys": [name]}
        (found,) = self.ask(ApiKey.FIND_COORDINATOR, 4, **fields).coordinators
        return 0 if found.error_code else int(found.node_id)

    def name_at(self, broker: int, prefix: str, *key_types: CoordinatorType) -> str:
        """A group's or a transactional id's name (or of both) that this broker coordinates."""
        for number in range(1_000):
            name = f"{prefix}-{number}"
            if all(
                wait_until(lambda: self.coordinator(name, each), f"{name} has a coordinator") == broker  # noqa: B023
                for each in key_types
            ):
                return name
        raise AssertionError(f"no name is coordinated by broker {broker}")

    def reassign(self, brokers: Sequence[int], topics: Sequence[str] | None = None) -> None:
        """Every partition there is, or of these topics, to these brokers, each in its turn the first. Until
        it is done."""
        named = None if topics is None else [{"name": name} for name in topics]
        found = self.ask(ApiKey.METADATA, 12, topics=named).topics
        wanted = [
            {
                "name": topic.name,
                "partitions": [
                    {
                        "partition_index": each.partition_index,
                        "replicas": rotated(brokers, each.partition_index),
                    }
                    for each in topic.partitions
                ],
            }
            for topic in found
        ]
        answer = self.ask(ApiKey.ALTER_PARTITION_REASSIGNMENTS, 0, timeout_ms=60_000, topics=wanted)
        assert answer.error_code == 0, answer.error_message
        assert not [p for topic in answer.responses for p in topic.partitions if p.error_code]
        wait_until(
            lambda: (
                not self.ask(ApiKey.LIST_PARTITION_REASSIGNMENTS, 0, timeout_ms=60_000, topics=None).topics
            ),
            f"partitions are on {brokers}",
        )
        self.wait_in_sync()

    def log_bytes(self, broker: int, topic: str, partition: int) -> bytes:
        """All segments of a replica, one after the other."""
        directory = self.nodes.home(broker) / "data" / f"{topic}-{partition}"
        return b"".join(each.read_bytes() for each in sorted(directory.glob("*.log")))

    def log_sizes(self, broker: int, topic: str) -> dict[Path, int]:
        logs = (self.nodes.home(broker) / "data").glob(f"{topic}-*/*.log")
        return {each: each.stat().st_size for each in logs}

    def check_kept(self, broker: int, sizes: Mapping[Path, int]) -> None:
        """The logs of a broker are no shorter than they were, but for a tail that nobody else had."""
        for path, size in sizes.items():
            assert path.stat().st_size > size - TAIL_BYTES, f"broker {broker} fetches {path} again"

    def check_equal_logs(self, topic: str) -> None:
        """Of all replicas, once followers have what the leaders have."""
        (found,) = self.ask(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics
        for each in found.partitions:
            replicas, partition = each.replica_nodes, each.partition_index
            wait_until(
                lambda: len({self.log_bytes(broker, topic, partition) for broker in replicas}) == 1,  # noqa: B023
                f"the replicas of {topic}-{partition} on {replicas} are the same",
            )


def rotated(brokers: Sequence[int], by: int) -> list[int]:
    by %= len(brokers)
    return [*brokers[by:], *brokers[:by]]


def both_lead(cluster: MixedCluster, one: int, other: int, third: int) -> None:
    """Each of the brokers is killed while it leads partitions that are written with acks=all."""
    topic, ring = f"led-by-{one}", (one, other, third)
    assignments = [[*ring[first:], *ring[:first]] for first in (0, 1, 2, 0, 1, 2)]
    cluster.make_topic(topic, assignments)
    with Load(cluster.bootstrap, topic, len(assignments)) as load:
        for victim in (one, other):
            cluster.elect_preferred()
            wait_until(lambda: victim in cluster.leaders(topic), f"{victim} leads")  # noqa: B023
            load.wait_for_acks()
            cluster.nodes.kill(victim)
            load.wait_for_acks()
            cluster.start(victim)
            load.wait_for_acks()
    load.check(cluster.bootstrap)
    cluster.check_equal_logs(topic)


COPIED: Final = 240
"""Inputs of each copier, fed in `PARTS`."""
PARTS: Final = 6


def coordinators_move(cluster: MixedCluster, kafkas: int, ours: int) -> None:
    """Groups and transactions whose coordinators are stopped and killed, and come back: each input is copied
    exactly once, and members of groups of both protocols miss nothing."""
    cluster.make_topic("in", [[ours, kafkas]] * 2, **{"min.insync.replicas": "1"})
    warm_up(cluster)
    # So that some names have both of their coordinators on one broker, whichever it is.
    cluster.reassign(cluster.nodes.brokers[:3], ("__consumer_offsets", "__transaction_state"))
    cluster.elect_preferred()
    both = (CoordinatorType.GROUP, CoordinatorType.TRANSACTION)
    names = [cluster.name_at(kafkas, "copy", *both), cluster.name_at(ours, "copy", *both)]
    for name in names:
        cluster.make_topic(name, [[kafkas, ours]] * 2, **{"min.insync.replicas": "1"})
    groups = [cluster.name_at(broker, "read", CoordinatorType.GROUP) for broker in (kafkas, ours)]
    with ExitStack() as running:
        copiers = [running.enter_context(Copier(cluster, "in", name)) for name in names]
        readers = [
            running.enter_context(Reading(cluster, group, protocol))
            for group in groups
            for protocol in ("classic", "consumer")
        ]

        def feed(part: int) -> None:
            numbers = range(part * COPIED // PARTS, (part + 1) * COPIED // PARTS)
            send(
                cluster.bootstrap, "in", ({"value": str(n), "partition": n % 2} for n in numbers), acks="all"
            )
            wanted = (part + 1) * COPIED // PARTS
            for copier in copiers:
                copier.copy(wanted)
            for each in readers:
                each.read(wanted)

        feed(0)
        for part, (end, victim) in enumerate(
            [(cluster.nodes.stop, kafkas), (cluster.nodes.stop, ours), (cluster.nodes.kill, kafkas)], 1
        ):
            end(victim)
            feed(part)
            cluster.start(victim)
            cluster.elect_preferred()
        feed(4)
        cluster.nodes.kill(ours)
        feed(5)
        cluster.start(ours)
    inputs = Counter(str(n) for n in range(COPIED))
    for name in names:
        assert Counter(committed(cluster.bootstrap, name, 2)) == inputs
    for topic in ("__consumer_offsets", "__transaction_state"):
        cluster.check_equal_logs(topic)


def warm_up(cluster: MixedCluster) -> None:
    """The internal topics are there."""
    for key_type in (CoordinatorType.GROUP, CoordinatorType.TRANSACTION):
        wait_until(lambda: cluster.coordinator("x", key_type), "internal topics are made")  # noqa: B023
    cluster.wait_in_sync()


VALUE: Final = b"v" * 10_000
VALUES: Final = 200
"""Of each partition, before the load: what must not be fetched again."""
TAIL_BYTES: Final = 100_000
"""What a leader that is killed may have, and nobody else: it is cut off."""


def swapped(cluster: MixedCluster, stopped: int, killed: int, other: Software) -> None:
    """Two brokers of kraft run the other software, and then kraft again, on the same properties and
    directories; one of them is stopped each time, the other one killed."""
    topic, brokers = "swapped", cluster.nodes.brokers[:3]
    cluster.make_topic(topic, [[*brokers[first:], *brokers[:first]] for first in (0, 1, 2)])
    send(
        cluster.bootstrap,
        topic,
        ({"value": VALUE, "partition": n % 3} for n in range(3 * VALUES)),
        acks="all",
    )
    warm_up(cluster)
    with Load(cluster.bootstrap, topic, 3) as load:
        for software in (other, KRAFT):
            for end, broker in ((cluster.nodes.stop, stopped), (cluster.nodes.kill, killed)):
                end(broker)
                cluster.nodes.software[broker] = software
                sizes = cluster.log_sizes(broker, topic)
                cluster.nodes.start(broker)
                cluster.wait_in_sync(lambda: cluster.check_kept(broker, sizes))  # noqa: B023
                cluster.elect_preferred()
                load.wait_for_acks()
                assert broker in cluster.leaders(topic)
    load.check(cluster.bootstrap, others=[VALUE])
    cluster.check_equal_logs(topic)
    for broker in (stopped, killed):
        data = cluster.nodes.home(broker) / "data"
        assert not [each.name for each in data.iterdir() if each.name.endswith(("-stray", "-delete"))]


BATCHES: Final = 2_000
"""Of metadata: who waits half a second for each takes far longer than tests wait."""


def catches_up(cluster: MixedCluster, fresh: int) -> None:
    """A formatted broker that has never run, where most of the metadata is in a snapshot already."""
    cluster.make_topic("changing", [cluster.nodes.brokers[:2]])
    with Wire() as wire:
        port = cluster.nodes.ports[cluster.nodes.brokers[0]]
        for number in range(BATCHES):
            change = {"name": "retention.ms", "config_operation": 0, "value": str(1_000_000 + number)}
            resource = {"resource_type": 2, "resource_name": "changing", "configs": [change]}
            wait_until(
                lambda: (
                    not wire.ask(port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource])  # noqa: B023
                    .responses[0]
                    .error_code
                ),
                "a controller decides",
            )
    cluster.nodes.start(fresh)
    port = cluster.nodes.ports[fresh]
    wait_until(lambda: fresh in live_brokers(HOST, port), f"broker {fresh} has caught up")
    resource = {"resource_type": 2, "resource_name": "changing", "configuration_keys": ["retention.ms"]}
    (found,) = cluster.ask(ApiKey.DESCRIBE_CONFIGS, 4, fresh, resources=[resource]).results
    assert found.configs[0].value == str(1_000_000 + BATCHES - 1)


def everything_moves(cluster: MixedCluster, onto: Sequence[int], back: Sequence[int]) -> None:
    """All partitions of all topics, internal ones too."""
    cluster.make_topic("moved", [list(back)] * 4, **{"min.insync.replicas": "1"})
    warm_up(cluster)
    with Load(cluster.bootstrap, "moved", 4) as load:
        for brokers in (onto, back):
            cluster.reassign(brokers)
            cluster.elect_preferred()
            assert set(cluster.leaders("moved")) == set(brokers)
            load.wait_for_acks()
    load.check(cluster.bootstrap)


STUCK_S: Final = 45


class Copier:
    """The application that copies a topic into the one of its own name, as a service manager runs it: started
    again when it is stuck. librdkafka's transactional producer waits without end for a coordinator of its
    group that its metadata no longer lists (its issue 5511)."""

    def __init__(self, cluster: MixedCluster, source: str, name: str) -> None:
        self._cluster = cluster
        self._name = name
        arguments = [cluster.bootstrap, source, name, name]
        self._command = [sys.executable, "-m", "tests.support.clients.copier", *arguments]

    def __enter__(self) -> Copier:
        self._process = subprocess.Popen(self._command, stdin=subprocess.DEVNULL)
        return self

    def __exit__(self, *error: object) -> None:
        self._process.kill()
        self._process.wait()

    def copy(self, values: int) -> None:
        """Until so many are copied."""
        due = time.monotonic() + STUCK_S

        def copied() -> bool:
            nonlocal due
            assert self._process.poll() is None, "it has given up"
            if time.monotonic() > due:
                self.__exit__()
                self.__enter__()
                due = time.monotonic() + STUCK_S
            return len(committed(self._cluster.bootstrap, self._name, 2)) >= values

        wait_until(copied, f"{self._name} copies {values} values")


class Reading:
    """A member of a group, which commits as it reads."""

    def __init__(self, cluster: MixedCluster, group: str, protocol: str) -> None:
        self.values: set[str] = set()
        self._consumer = Consumer(
            {
                "bootstrap.servers": cluster.bootstrap,
                "group.id": f"{group}-{protocol}" if protocol == "classic" else group,
                "group.protocol": protocol,
                "auto.offset.reset": "earliest",
                "enable.auto.commit": False,
                **QUIET,
            }
        )

    def __enter__(self) -> Reading:
        self._consumer.subscribe(["in"])
        return self

    def __exit__(self, *error: object) -> None:
        self._consumer.close()

    def read(self, values: int) -> None:
        """Until it has so many."""
        wait_until(lambda: self._poll() >= values, f"a member of a group reads {values} values", PATIENCE_S)

    def _poll(self) -> int:
        messages = [each for each in self._consumer.consume(50, 0.2) if each.error() is None]
        self.values.update(each.value().decode() for each in messages)
        if messages:
            with suppress(KafkaException):  # the coordinator is moving: the next commit says it
                self._consumer.commit(asynchronous=False)
        return len(self.values)
