"""The benchmarks' admin requests: topics, leaders, ISR, the active controller.

All by stock clients but one: librdkafka has no DescribeQuorum, so our own client sends that.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import NewTopic

from benchmarks.cluster import NODES
from kraft.peers.blocking_client import describe_quorum
from metadata_quorum.foundation.errors import BrokerError

POLL_S = 0.02
READY_TIMEOUT_S = 120.0
SOCKET_TIMEOUT_S = 5.0


class Admin:
    """One stock admin client on one cluster."""

    def __init__(self, bootstrap: str) -> None:
        self._bootstrap = bootstrap
        # Short reconnects: the client is there before the nodes are and must not add its own waiting.
        self._client = AdminClient(
            {
                "bootstrap.servers": bootstrap,
                "reconnect.backoff.ms": 20,
                "reconnect.backoff.max.ms": 50,
                "log_level": 0,
            }
        )

    def create_topic(self, topic: str, partitions: int, settings: Mapping[str, str] | None = None) -> None:
        """Create with three copies, again and again until the nodes are there; wait for every leader."""
        config = {"min.insync.replicas": "2", "file.delete.delay.ms": "1000", **(settings or {})}

        def created() -> bool:
            new = NewTopic(topic, num_partitions=partitions, replication_factor=NODES, config=config)
            future = self._client.create_topics([new], request_timeout=10)[topic]
            try:
                future.result()
            except KafkaException as error:
                return bool(error.args[0].code() == KafkaError.TOPIC_ALREADY_EXISTS)
            return True

        _wait_until(created, f"topic {topic} could be created")
        _wait_until(
            lambda: len(self.leaders(topic)) == partitions, f"every partition of {topic} has a leader"
        )

    def create_topics(self, names: Sequence[str]) -> None:
        """One partition each, three copies, in one request; wait until each has a leader."""
        new = [NewTopic(name, num_partitions=1, replication_factor=NODES) for name in names]
        for future in self._client.create_topics(new, request_timeout=READY_TIMEOUT_S).values():
            future.result()

        def led() -> bool:
            known = self._client.list_topics(timeout=SOCKET_TIMEOUT_S).topics
            return all(name in known and known[name].partitions[0].leader >= 0 for name in names)

        _wait_until(led, f"each of {len(names)} topics has a leader")

    def delete_topics(self, names: Sequence[str]) -> None:
        for future in self._client.delete_topics(list(names), request_timeout=READY_TIMEOUT_S).values():
            future.result()

    def delete_topic(self, topic: str) -> None:
        self._client.delete_topics([topic], request_timeout=30)[topic].result()

    def leaders(self, topic: str) -> dict[int, int]:
        """Leader by partition, of the partitions that have one."""
        return {p: leader for p, (leader, _) in self._partitions(topic).items() if leader >= 0}

    def wait_for_full_isr(self, topic: str) -> dict[int, int]:
        """Wait until every replica of every partition is in sync; the leader by partition."""
        leaders: dict[int, int] = {}

        def full() -> bool:
            partitions = self._partitions(topic)
            leaders.update({number: leader for number, (leader, _) in partitions.items()})
            return bool(partitions) and all(size == NODES for _, size in partitions.values())

        _wait_until(full, f"every ISR of {topic} is full")
        return leaders

    def _partitions(self, topic: str) -> dict[int, tuple[int, int]]:
        """Leader and size of the ISR by partition; empty where no broker answers."""
        try:
            metadata = self._client.list_topics(topic, timeout=SOCKET_TIMEOUT_S).topics[topic]
        except KafkaException:
            return {}
        return {number: (p.leader, len(p.isrs)) for number, p in metadata.partitions.items() if p.leader >= 0}

    def active_controller(self) -> int:
        """The leader of the metadata quorum, from the first node that knows it."""
        for address in self._bootstrap.split(","):
            host, _, port = address.partition(":")
            try:
                answer = describe_quorum(host, int(port))
            except (OSError, BrokerError):
                continue
            leader = int(answer.topics[0].partitions[0].leader_id)
            if leader >= 0:
                return leader
        raise RuntimeError("no node knows the quorum's leader")


def _wait_until(condition: Callable[[], bool], what: str) -> None:
    deadline = time.monotonic() + READY_TIMEOUT_S
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {READY_TIMEOUT_S:.0f} s in vain until {what}")
        time.sleep(POLL_S)
