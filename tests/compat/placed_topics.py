"""A topic of one partition whose replicas are where a test wants them, asked over the wire."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.batch import Record, decode_batch, encode_batch, iter_headers
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

FETCH_VERSION = 17
LEADER = 1
FOLLOWER = 2


@dataclass
class Topic:
    """A topic with known places, asked about and written to over the wire."""

    wire: Wire
    cluster: LocalCluster
    name: str
    id: UUID

    def port(self, node_id: int = LEADER) -> int:
        return self.cluster.node(node_id).client_port

    def partition(self, number: int = 0, *, seen_by: int = LEADER) -> Message:
        """Its leader, epoch and ISR as a node tells them."""
        (found,) = self.wire.ask(
            self.port(seen_by),
            ApiKey.METADATA,
            12,
            topics=[{"name": self.name}],
            allow_auto_topic_creation=False,
        ).topics
        if found.error_code or number >= len(found.partitions):
            return Message()  # not known there yet
        return found.partitions[number]

    def wait_for(self, condition: Callable[[Message], bool], what: str, *, seen_by: int = LEADER) -> Message:
        def look() -> Message | None:
            found = self.partition(seen_by=seen_by)
            return found if vars(found) and condition(found) else None

        return wait_until(look, what)

    def produce(
        self, *values: bytes, to: int = LEADER, partition: int = 0, acks: int = -1, timeout_ms: int = 30_000,
        **batch: Any,
    ) -> Message:  # fmt: skip
        """The answer about the one partition."""
        records = encode_batch([Record(timestamp=1, value=value) for value in values], **batch)
        return self.produce_bytes(records, to=to, partition=partition, acks=acks, timeout_ms=timeout_ms)

    def produce_bytes(
        self,
        records: bytes,
        *,
        to: int = LEADER,
        partition: int = 0,
        acks: int = -1,
        timeout_ms: int = 30_000,
    ) -> Message:
        data = [{"name": self.name, "partition_data": [{"index": partition, "records": records}]}]
        answer = self.wire.ask(
            self.port(to), ApiKey.PRODUCE, 10, acks=acks, timeout_ms=timeout_ms, topic_data=data
        )
        return answer.responses[0].partition_responses[0]

    def fetch(self, *, of: int = LEADER, **wanted: Any) -> Message:
        """The answer about partition 0, without a session."""
        return self.fetch_all([self.wanted(**wanted)], of=of).responses[0].partitions[0]

    def wanted(self, partition: int = 0, **wanted: Any) -> dict[str, Any]:
        base = {"fetch_offset": 0, "partition_max_bytes": 1 << 20, "current_leader_epoch": -1}
        return {**base, "last_fetched_epoch": -1, "log_start_offset": -1, "partition": partition, **wanted}

    def fetch_all(self, partitions: list[dict[str, Any]], *, of: int = LEADER, **fields: Any) -> Message:
        base = {
            "max_wait_ms": 0, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1,
            "topics": [{"topic_id": self.id, "partitions": partitions}] if partitions else [],
        }  # fmt: skip
        return self.wire.ask(self.port(of), ApiKey.FETCH, FETCH_VERSION, **{**base, **fields})


def make_placed(wire: Wire, cluster: LocalCluster, name: str, *replicas: list[int], **configs: str) -> Topic:
    """Create a topic with these replicas; done when every node knows it."""
    assignments = [{"partition_index": n, "broker_ids": ids} for n, ids in enumerate(replicas)]
    topic = {
        "name": name, "num_partitions": -1, "replication_factor": -1, "assignments": assignments,
        "configs": [{"name": key, "value": value} for key, value in configs.items()],
    }  # fmt: skip
    answer = wire.ask(cluster.node(1).client_port, ApiKey.CREATE_TOPICS, 7, topics=[topic], timeout_ms=30_000)
    assert answer.topics[0].error_code == 0, answer.topics[0].error_message
    made = Topic(wire, cluster, name, answer.topics[0].topic_id)
    for node_id in cluster.nodes:
        made.wait_for(lambda found: found.leader_id == replicas[0][0], "the leader is known", seen_by=node_id)
    return made


def values_of(partition: Message) -> list[bytes | None]:
    records = bytes(partition.records or b"")
    return [each.value for at, _ in iter_headers(records) for each in decode_batch(records, at)]


def error(message: Message) -> ErrorCode:
    return ErrorCode(message.error_code)
