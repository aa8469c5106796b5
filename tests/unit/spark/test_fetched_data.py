"""What a worker keeps of an answer, and the leader that its tasks were told: who is asked, and what for."""

from __future__ import annotations

from collections.abc import Iterator
from uuid import UUID

import pytest

from kraft.local.free_ports import HOST
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import CorruptBatchError, Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from spark_connector.connections import close_clusters, cluster_client
from spark_connector.fetched_data import KEPT_FOR_S, FetchedData, FetchedDataPool
from spark_connector.leaders import KnownLeader, PartitionLeader
from spark_connector.reader import read_range
from tests.unit.spark.scripted_broker import TOPIC, TOPIC_ID, ScriptedBroker, scripted_broker

PARTITION = TopicPartition(TOPIC, 0)
LEADER = PartitionLeader(TOPIC_ID, 0, 3)


@pytest.fixture
def broker() -> Iterator[ScriptedBroker]:
    with scripted_broker() as broker:
        broker.partition.batches = [batch(base) for base in range(0, 300, 100)]
        yield broker
        close_clusters()


def batch(base: int, value: bytes = b"value") -> bytes:
    return encode_batch([Record(at, 1_000, None, value) for at in range(base, base + 100)], base_offset=base)


def read(
    broker: ScriptedBroker, start: int, end: int, leader: PartitionLeader = LEADER, **properties: str
) -> list[int]:
    told = KnownLeader(leader, HOST, broker.port)
    batches = read_range(
        {"bootstrap.servers": broker.bootstrap} | properties,
        TOPIC,
        0,
        start,
        end,
        timeout_s=10.0,
        topic_id=leader.topic_id,
        leader=told,
    )
    return [offset for each in batches for offset in each["offset"].to_pylist()]


def test_small_ranges_are_read_from_one_answer(broker: ScriptedBroker) -> None:
    for start in range(0, 300, 20):
        assert read(broker, start, start + 20) == list(range(start, start + 20))
    assert broker.fetches == [0]
    assert read(broker, 50, 80) == list(range(50, 80))
    assert len(broker.fetches) == 1, "a task that runs again, too"
    assert ApiKey.METADATA not in broker.questions, "the tasks were told who leads"


def test_a_range_that_was_kept_in_part(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(base, bytes(200)) for base in range(0, 1000, 100)]
    assert read(broker, 0, 50) == list(range(50))
    assert read(broker, 50, 1000) == list(range(50, 1000))
    assert broker.fetches == [0, 100]


@pytest.mark.parametrize("newer", [LEADER._replace(epoch=4), LEADER._replace(topic_id=UUID(int=8), epoch=0)])
def test_another_log_is_read_anew(broker: ScriptedBroker, newer: PartitionLeader) -> None:
    """After an unclean election other records may have the same offsets; a re-created topic has others."""
    assert read(broker, 0, 10) == list(range(10))
    broker.partition.topic_id = newer.topic_id
    assert read(broker, 10, 20, newer) == list(range(10, 20))
    assert read(broker, 20, 30, newer) == list(range(20, 30))
    assert broker.fetches == [0, 10]


def test_nothing_is_kept_of_an_answer_with_aborted_transactions(broker: ScriptedBroker) -> None:
    """Which of its batches they end before is known only to who reads it from its beginning."""
    broker.partition.aborted = [(5, 0)]
    committed = {"isolation.level": "read_committed"}
    assert read(broker, 0, 10, **committed) == list(range(10))
    assert read(broker, 10, 20, **committed) == list(range(10, 20))
    assert broker.fetches == [0, 10]


def test_nothing_is_kept_of_an_answer_that_is_damaged(broker: ScriptedBroker) -> None:
    healthy = broker.partition.batches[0]
    broker.partition.batches[0] = healthy[:-1] + bytes([healthy[-1] ^ 1])
    with pytest.raises(CorruptBatchError, match="CRC"):
        read(broker, 0, 10)
    broker.partition.batches[0] = healthy
    assert read(broker, 0, 10) == list(range(10))


def test_whoever_leads_no_longer_is_asked_once(broker: ScriptedBroker) -> None:
    broker.fetch_failures.append(ErrorCode.NOT_LEADER_OR_FOLLOWER)
    assert read(broker, 0, 10) == list(range(10))
    assert broker.fetches == [0, 0]
    assert broker.questions.count(ApiKey.METADATA) == 1


def test_what_is_known_is_not_replaced_by_what_is_older(broker: ScriptedBroker) -> None:
    source = cluster_client({"bootstrap.servers": broker.bootstrap})
    known = source.leader_of(PARTITION)
    assert known == LEADER
    assert source.learn_leader(PARTITION, KnownLeader(LEADER._replace(epoch=2), "nowhere", 1)) == LEADER
    assert source.known_leader(PARTITION) == KnownLeader(LEADER, HOST, broker.port)


def test_a_pool_has_its_bounds() -> None:
    pool = FetchedDataPool(max_bytes=250)
    partitions = [TopicPartition("t", each) for each in range(3)]

    def kept(leader: PartitionLeader = LEADER, now: float = 0.0) -> list[int]:
        return [each.partition for each in partitions if pool.at(each, leader, 7, now) is not None]

    for each in partitions:
        pool.keep(each, FetchedData(LEADER, bytes(100), 5, 8, 0.0))
    assert kept() == [1, 2]
    pool.keep(partitions[1], FetchedData(LEADER, bytes(251), 5, 8, 0.0))
    pool.keep(partitions[0], FetchedData(LEADER._replace(epoch=-1), bytes(1), 5, 8, 0.0))
    assert kept() == [1, 2], "too large, or of a broker that has no epochs"
    assert [pool.at(partitions[1], LEADER, offset, 0.0) is not None for offset in (4, 5, 8)] == [
        False, True, False,
    ]  # fmt: skip
    assert kept(now=KEPT_FOR_S + 1) == []
