"""Transactions request by request: version 2, what leaders refuse, and the order of what has to wait."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_response, encode_request
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from tests.compat.conftest import MakeTopic
from tests.support.clients.transactions import LONGEST_MS
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

OF_GROUP, OF_TRANSACTION = 0, 1
NOBODY = ProducerIdAndEpoch(-1, -1)
LATER = {
    ErrorCode.CONCURRENT_TRANSACTIONS,
    ErrorCode.NOT_ENOUGH_REPLICAS,
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}


@dataclass
class Client:
    """A producer made of single requests, about one topic with one partition."""

    cluster: LocalCluster
    wire: Wire
    topic: str
    name: str
    producer: ProducerIdAndEpoch = NOBODY
    sequence: int = 0

    def leader(self) -> int:
        port = self.cluster.node(1).client_port

        def ask() -> int:
            (topic,) = self.wire.ask(port, ApiKey.METADATA, 12, topics=[{"name": self.topic}]).topics
            return 0 if topic.error_code else max(topic.partitions[0].leader_id, 0)

        return self.cluster.node(wait_until(ask, "a leader")).client_port

    def coordinator(self, key: str, kind: int) -> int:
        port = self.cluster.node(1).client_port

        def ask() -> int:
            answer = self.wire.ask(port, ApiKey.FIND_COORDINATOR, 2, key=key, key_type=kind)
            return 0 if answer.error_code else answer.node_id

        return self.cluster.node(wait_until(ask, "a coordinator")).client_port

    def init(self) -> None:
        port = self.coordinator(self.name, OF_TRANSACTION)

        def ask() -> bool:
            answer = self.wire.ask(
                port,
                ApiKey.INIT_PRODUCER_ID,
                5,
                transactional_id=self.name,
                transaction_timeout_ms=LONGEST_MS,
            )
            self.producer, self.sequence = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch), 0
            assert not answer.error_code or ErrorCode(answer.error_code) in LATER
            return not answer.error_code

        wait_until(ask, "a producer id")

    def batch(self, value: str, *, who: ProducerIdAndEpoch | None = None) -> bytes:
        """The next of the producer."""
        producer_id, epoch = who or self.producer
        encoded = encode_batch(
            [Record(timestamp=1, key=None, value=value.encode())],
            producer_id=producer_id,
            producer_epoch=epoch,
            base_sequence=self.sequence,
            transactional=True,
        )
        self.sequence += 1
        return encoded

    def fields(self, records: bytes, name: str | None) -> dict[str, Any]:
        partitions = [{"index": 0, "records": records}]
        data = [{"name": self.topic, "partition_data": partitions}]
        return {"transactional_id": name, "acks": -1, "timeout_ms": 30_000, "topic_data": data}

    def produce(self, version: int, records: bytes, *, name: str | None = "") -> tuple[ErrorCode, int]:
        fields = self.fields(records, self.name if name == "" else name)
        answer = self.wire.ask(self.leader(), ApiKey.PRODUCE, version, **fields)
        found = answer.responses[0].partition_responses[0]
        return ErrorCode(found.error_code), found.base_offset

    def produced(self, version: int, value: str) -> int:
        """Its offset, however often the broker says: later."""
        records = self.batch(value)

        def ask() -> int:
            code, offset = self.produce(version, records)
            assert code is ErrorCode.NONE or code in LATER, code
            return offset + 1

        return wait_until(ask, "the batch is taken") - 1

    def add(self) -> ErrorCode:
        answer = self.wire.ask(
            self.coordinator(self.name, OF_TRANSACTION), ApiKey.ADD_PARTITIONS_TO_TXN, 3,
            v3_and_below_transactional_id=self.name, v3_and_below_producer_id=self.producer.producer_id,
            v3_and_below_producer_epoch=self.producer.epoch,
            v3_and_below_topics=[{"name": self.topic, "partitions": [0]}],
        )  # fmt: skip
        return ErrorCode(answer.results_by_topic_v3_and_below[0].results_by_partition[0].partition_error_code)

    def end(self, version: int, *, commit: bool, who: ProducerIdAndEpoch | None = None) -> ErrorCode:
        producer_id, epoch = who or self.producer
        answer = self.wire.ask(
            self.coordinator(self.name, OF_TRANSACTION), ApiKey.END_TXN, version,
            transactional_id=self.name, producer_id=producer_id, producer_epoch=epoch, committed=commit,
        )  # fmt: skip
        if version >= 5 and not answer.error_code:
            self.producer, self.sequence = ProducerIdAndEpoch(answer.producer_id, answer.producer_epoch), 0
        return ErrorCode(answer.error_code)

    def is_open(self) -> bool:
        answer = self.wire.ask(
            self.leader(),
            ApiKey.DESCRIBE_PRODUCERS,
            0,
            topics=[{"name": self.topic, "partition_indexes": [0]}],
        )
        return any(
            each.producer_id == self.producer.producer_id and each.current_txn_start_offset >= 0
            for each in answer.topics[0].partitions[0].active_producers
        )


@pytest.fixture
def client(shared_cluster: LocalCluster, wire: Wire, make_topic: MakeTopic) -> Client:
    topic = make_topic()
    client = Client(shared_cluster, wire, topic, f"{topic}-id")
    client.init()
    return client


@pytest.mark.row("P4")
def test_version_2_needs_no_partitions_named_and_gives_every_transaction_an_epoch(client: Client) -> None:
    first = client.producer
    for number in range(3):
        before = client.producer
        assert client.produced(12, "a") == 3 * number
        assert client.produced(12, "b") == 3 * number + 1
        assert client.end(5, commit=number != 1) is ErrorCode.NONE
        assert client.producer == ProducerIdAndEpoch(first.producer_id, first.epoch + number + 1)
        repeated = {client.end(5, commit=number != 1, who=before) for _ in range(3)}
        assert repeated <= {ErrorCode.NONE, ErrorCode.CONCURRENT_TRANSACTIONS}
        wait_until(lambda: not client.is_open(), "the marker")
        client.sequence = 2
        late = client.batch("late", who=before)
        assert client.produce(12, late)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
        client.sequence = 0


@pytest.mark.row("P4")
def test_a_batch_outside_of_any_transaction_is_not_let_in(client: Client) -> None:
    records = client.batch("x")
    assert client.produce(10, records)[0] is ErrorCode.INVALID_TXN_STATE
    assert client.produce(11, records)[0] is ErrorCode.TRANSACTION_ABORTABLE
    assert client.produce(11, records, name=None)[0] is ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    assert client.add() is ErrorCode.NONE
    assert client.produce(11, records) == (ErrorCode.NONE, 0)
    assert client.produce(11, records) == (ErrorCode.NONE, 0)  # the same once more
    zombie = client.producer
    client.init()
    stale = client.batch("stale", who=zombie)
    assert client.produce(11, stale)[0] is ErrorCode.INVALID_PRODUCER_EPOCH
    assert not client.is_open()


@pytest.mark.row("P4", "P7")
def test_batches_behind_the_one_that_is_asked_about_keep_their_order(client: Client) -> None:
    """All at once on one connection: the first must be verified, and the others may not overtake it."""
    assert client.add() is ErrorCode.NONE
    connection = client.wire.client(client.leader())

    async def all_at_once() -> list[tuple[int, int]]:
        bodies = [
            encode_request(ApiKey.PRODUCE, 11, client.fields(client.batch(str(n)), client.name))
            for n in range(20)
        ]
        answers = [connection.send(ApiKey.PRODUCE, 11, (body,)) for body in bodies]
        found = []
        for answer in answers:
            decoded = decode_response(ApiKey.PRODUCE, 11, await answer)
            partition = decoded.responses[0].partition_responses[0]
            found.append((partition.error_code, partition.base_offset))
        return found

    assert client.wire.run(all_at_once()) == [(0, n) for n in range(20)]
    assert client.end(3, commit=True) is ErrorCode.NONE


@pytest.mark.row("P4")
def test_old_coordinators_and_old_producers_write_no_markers(client: Client) -> None:
    def mark(epoch: int, coordinator_epoch: int) -> ErrorCode:
        marker = {
            "producer_id": 2**40, "producer_epoch": epoch,  # nobody's, so that no real coordinator is fenced
            "transaction_result": False, "coordinator_epoch": coordinator_epoch,
            "topics": [{"name": client.topic, "partition_indexes": [0]}],
        }  # fmt: skip
        answer = client.wire.ask(client.leader(), ApiKey.WRITE_TXN_MARKERS, 1, markers=[marker])
        return ErrorCode(answer.markers[0].topics[0].partitions[0].error_code)

    assert mark(5, 100) is ErrorCode.NONE
    assert mark(4, 100) is ErrorCode.INVALID_PRODUCER_EPOCH
    assert mark(5, 99) is ErrorCode.TRANSACTION_COORDINATOR_FENCED
    assert mark(5, 100) is ErrorCode.NONE


@pytest.mark.row("P4", "G4")
def test_an_offset_in_an_open_transaction_is_not_stable(client: Client) -> None:
    group = f"{client.topic}-group"
    port = client.coordinator(group, OF_GROUP)

    def offset() -> tuple[ErrorCode, int]:
        wanted = {"group_id": group, "topics": [{"name": client.topic, "partition_indexes": [0]}]}
        answer = client.wire.ask(port, ApiKey.OFFSET_FETCH, 8, groups=[wanted], require_stable=True)
        found = answer.groups[0].topics[0].partitions[0]
        return ErrorCode(found.error_code), found.committed_offset

    def commit(version: int) -> ErrorCode:
        partitions = [{"partition_index": 0, "committed_offset": 7, "committed_metadata": ""}]
        answer = client.wire.ask(
            port, ApiKey.TXN_OFFSET_COMMIT, version, transactional_id=client.name, group_id=group,
            producer_id=client.producer.producer_id, producer_epoch=client.producer.epoch,
            topics=[{"name": client.topic, "partitions": partitions}],
        )  # fmt: skip
        return ErrorCode(answer.topics[0].partitions[0].error_code)

    assert commit(3) is ErrorCode.INVALID_TXN_STATE
    assert commit(4) is ErrorCode.TRANSACTION_ABORTABLE
    for commits in (False, True):
        wait_until(lambda: commit(5) is ErrorCode.NONE, "the last transaction is over")
        assert offset() == (ErrorCode.UNSTABLE_OFFSET_COMMIT, -1)
        assert client.end(5, commit=commits) is ErrorCode.NONE
        wait_until(lambda: offset()[0] is ErrorCode.NONE, "the marker")
        assert offset()[1] == (7 if commits else -1)
