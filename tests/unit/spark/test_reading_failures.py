"""What a reader makes of a broker's failures; each by a broker that has it on demand."""

from __future__ import annotations

import asyncio
import gc
import logging
import socket
import time
from collections.abc import Iterator
from itertools import count
from uuid import UUID

import pytest

from kraft.local.free_ports import HOST
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import CorruptBatchError, Record, encode_batch, encode_end_txn_marker
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from spark_connector import connections, reader
from spark_connector.connections import ClusterClient, close_clusters, cluster_client
from spark_connector.errors import DataLossError, SourceError
from spark_connector.leaders import KnownLeader, PartitionLeader
from spark_connector.options import source_options
from spark_connector.reader import read_range
from spark_connector.source import KraftBatchReader
from tests.unit.spark.scripted_broker import (
    GARBAGE,
    HANG_UP,
    TOPIC,
    TOPIC_ID,
    Failure,
    Partition,
    ScriptedBroker,
    scripted_broker,
)


@pytest.fixture
def broker(monkeypatch: pytest.MonkeyPatch) -> Iterator[ScriptedBroker]:
    """For whoever reads from it, time passes only between two tries: not because the machine is slow."""
    rests: list[float] = []

    async def rest(_: ClusterClient, seconds: float) -> None:
        rests.append(seconds)
        await asyncio.sleep(0)

    monkeypatch.setattr(ClusterClient, "rest", rest)
    monkeypatch.setattr(ClusterClient, "now", lambda _: sum(rests))
    with scripted_broker() as broker:
        yield broker
        close_clusters()


def batch(base: int, *offsets: int, last: int | None = None, **fields: object) -> bytes:
    records = [Record(offset, 1_000, b"k%d" % offset, b"v%d" % offset) for offset in offsets]
    return encode_batch(records, base_offset=base, last_offset=last, **fields)  # type: ignore[arg-type]


READ_OPTIONS = ("timeout_s", "fail_on_data_loss", "topic_id")


def offsets_read(broker: ScriptedBroker, start: int, end: int, **options: object) -> list[int]:
    properties = {"bootstrap.servers": broker.bootstrap}
    for key in [each for each in options if "_" in each and each not in READ_OPTIONS]:
        properties[key.replace("_", ".")] = str(options.pop(key))
    batches = read_range(properties, TOPIC, 0, start, end, **({"timeout_s": 10.0} | options))  # type: ignore[arg-type]
    return [offset for each in batches for offset in each["offset"].to_pylist()]


# ---- what belongs to a log ---------------------------------------------------------------------------


def test_gaps_and_a_range_that_ends_in_one(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(0, 0, 3, last=9), batch(12, 12, 14), batch(20, last=29), batch(30, 30)]
    assert offsets_read(broker, 0, 31) == [0, 3, 12, 14, 30]
    assert offsets_read(broker, 4, 10) == []
    assert offsets_read(broker, 13, 29) == [14]


def test_control_and_aborted_batches(broker: ScriptedBroker) -> None:
    def transaction(base: int, producer: int) -> bytes:
        return batch(
            base, base, base + 1, producer_id=producer, producer_epoch=0, base_sequence=0, transactional=True
        )

    def marker(offset: int, producer: int, *, commit: bool) -> bytes:
        data = encode_end_txn_marker(
            commit=commit, coordinator_epoch=0, producer_id=producer, producer_epoch=0, timestamp=1
        )
        return offset.to_bytes(8) + data[8:]  # the CRC does not cover it

    broker.partition = Partition(
        [
            transaction(0, 5),
            transaction(2, 6),
            marker(4, 5, commit=False),
            transaction(5, 5),  # of the same producer, but committed
            marker(7, 6, commit=True),
            marker(8, 5, commit=True),
            batch(9, 9),
            transaction(10, 5),  # open
        ],
        last_stable=10,
        aborted=[(5, 0)],
    )
    assert offsets_read(broker, 0, 10, isolation_level="read_committed") == [2, 3, 5, 6, 9]
    assert offsets_read(broker, 0, 12) == [0, 1, 2, 3, 5, 6, 9, 10, 11]
    with pytest.raises(SourceError, match=r"TIMEOUT.*offset 10 of .* open transaction"):
        offsets_read(broker, 0, 12, isolation_level="read_committed", timeout_s=0.5)


def test_a_batch_larger_than_an_answer(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(0, *range(100)), batch(100, 100)]
    assert offsets_read(broker, 0, 101, max_partition_fetch_bytes=100) == list(range(101))


def test_a_small_range_does_not_ask_for_more_than_it_can_need(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(base, base) for base in range(0, 2000)]
    assert offsets_read(broker, 5, 15) == list(range(5, 15))
    assert broker.fetch_sizes == [reader.LEAST_FETCH_BYTES]
    broker.fetch_sizes.clear()
    assert len(offsets_read(broker, 0, 2000)) == 2000
    assert all(size < 300_000 for size in broker.fetch_sizes), "the records' size was known by then"


def test_the_rest_of_a_range_is_asked_for_by_what_its_records_are_like(broker: ScriptedBroker) -> None:
    large = [encode_batch([Record(at, 1_000, None, bytes(20_000))], base_offset=at) for at in range(40)]
    broker.partition.batches = large
    assert offsets_read(broker, 0, 40) == list(range(40))
    assert len(broker.fetches) == 2
    assert sum(map(len, large)) * 0.9 < broker.fetch_sizes[1] < sum(map(len, large)) * 1.3


def test_a_batch_that_stays_cut_off(broker: ScriptedBroker) -> None:
    """As long as its header says, whoever wrote that, it never comes."""
    whole = bytearray(batch(0, 0, 1))
    whole[8:12] = (5_000_000).to_bytes(4)
    broker.partition = Partition([bytes(whole)], end=2)
    with pytest.raises(SourceError, match=r"TIMEOUT.*the batch at offset 0 is cut off"):
        offsets_read(broker, 0, 2, timeout_s=0.5)
    assert len(broker.fetches) < 20


def test_an_answer_that_leads_nowhere(broker: ScriptedBroker) -> None:
    """Batches that end before what was asked for would be asked for again without end."""
    answer = broker.records
    broker.partition.batches = [batch(0, 0), batch(1, 1)]
    broker.records = lambda _, *limits: answer(0, len(batch(0, 0)), *limits[1:])  # type: ignore[method-assign]
    with pytest.raises(SourceError, match=r"TIMEOUT.*all of the answer lies before offset 1"):
        offsets_read(broker, 1, 2, timeout_s=0.5)
    assert len(broker.fetches) < 20


def test_a_replica_in_the_same_rack(broker: ScriptedBroker) -> None:
    """Read from where the leader says; asked again there, when it has failed."""
    broker.partition.batches = [batch(0, 0, 1)]
    with scripted_broker() as near:
        broker.replica = ("here", near)
        near.partition.batches = [batch(0, 0, 1), batch(2, 2)]
        near.fetch_failures.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER])
        assert offsets_read(broker, 0, 3, client_rack="here") == [0, 1, 2]
        assert broker.fetches == [0, 0]
        assert near.fetches == [0, 0]
        assert offsets_read(broker, 0, 2, client_rack="there") == [0, 1]
        close_clusters()


def test_a_corrupt_batch(broker: ScriptedBroker) -> None:
    good = batch(0, 0)
    broker.partition.batches = [good[:-1] + b"?"]
    with pytest.raises(CorruptBatchError, match="scripted-0: CRC of the batch at offset 0 is wrong"):
        offsets_read(broker, 0, 1)
    assert offsets_read(broker, 0, 1, check_crcs="false") == [0]
    broker.partition.batches = [good[:16] + b"\5" + good[17:]]
    with pytest.raises(CorruptBatchError, match="scripted-0: batch of magic 5 at offset 0"):
        offsets_read(broker, 0, 1)


# ---- leaders -----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "failure",
    [
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
        ErrorCode.KAFKA_STORAGE_ERROR,
        ErrorCode.OFFSET_OUT_OF_RANGE,  # of a follower that is behind; the offset is there
        HANG_UP,
        GARBAGE,
    ],
)
def test_failures_that_pass(broker: ScriptedBroker, failure: Failure) -> None:
    broker.partition.batches = [batch(base, base) for base in range(6)]
    broker.fetch_failures.extend([lambda _: None, failure, failure])
    broker.offsets_failures.extend([HANG_UP, ErrorCode.LEADER_NOT_AVAILABLE, lambda _: None])
    assert offsets_read(broker, 0, 6, max_partition_fetch_bytes=80) == list(range(6))


def test_a_partition_without_leader_for_a_while(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(0, 0)]
    broker.partition.leader = -1
    seen = count()
    answer = broker.metadata

    def elected_at_the_third_question(request: object) -> object:
        if next(seen) == 2:
            broker.partition.leader = 0
        return answer(request)

    broker.metadata = elected_at_the_third_question  # type: ignore[method-assign, assignment]
    assert offsets_read(broker, 0, 1) == [0]


def test_nobody_leads_for_good(broker: ScriptedBroker) -> None:
    broker.partition = Partition([batch(0, 0)], leader=-1)
    with pytest.raises(SourceError, match=r"Cannot fetch offset 0 of scripted-0 in 0\.5 s: .* no leader"):
        offsets_read(broker, 0, 1, timeout_s=0.5)


def test_a_leader_that_is_silent(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(0, 0)]
    broker.answers_fetches = False
    with pytest.raises(SourceError, match=r"no answer within 0\.2 s"):
        offsets_read(broker, 0, 1, timeout_s=0.5, request_timeout_ms=200)
    assert len(broker.fetches) > 1


def test_a_leader_that_takes_connections_and_is_silent(
    broker: ScriptedBroker, caplog: pytest.LogCaptureFixture
) -> None:
    """As one that is paused does. A reader may also stop before it is connected there."""
    broker.partition.batches = [batch(0, 0)]
    properties = {"bootstrap.servers": broker.bootstrap, "request.timeout.ms": "100"}
    with socket.create_server((HOST, 0)) as silent:
        planned = KnownLeader(PartitionLeader(TOPIC_ID, 0, 3), HOST, silent.getsockname()[1])
        rows = read_range(properties, TOPIC, 0, 0, 1, leader=planned)
        assert [each["offset"].to_pylist() for each in rows] == [[0]]
        close_clusters()
        cluster = cluster_client(properties)
        leader = cluster.learn_leader(TopicPartition(TOPIC, 0), planned)
        fetching = cluster.start_fetch(TopicPartition(TOPIC, 0), leader, 0, 1)
        fetching.give_up()
        del fetching
        gc.collect()
    assert "never retrieved" not in caplog.text


def test_an_error_that_stays(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(0, 0)]
    broker.fetch_failures.append(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
    with pytest.raises(SourceError, match=r"\[TOPIC_AUTHORIZATION_FAILED\] scripted-0"):
        offsets_read(broker, 0, 1)


# ---- the next request goes before the last answer is decoded -------------------------------------------


def test_one_request_ahead_and_no_more(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(base, base) for base in range(4)]
    size = str(len(batch(0, 0)))
    rows = read_range(
        {"bootstrap.servers": broker.bootstrap, "max.partition.fetch.bytes": size}, TOPIC, 0, 0, 4
    )
    assert next(rows)["offset"].to_pylist() == [0]
    assert broker.fetches == [0, 1] or broker.fetches == [0]  # the second may still be on its way
    assert next(rows)["offset"].to_pylist() == [1]
    assert broker.fetches[:2] == [0, 1]
    rows.close()  # type: ignore[attr-defined]
    assert len(broker.fetches) <= 3


def test_a_reader_may_stop_at_any_time(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(base, base) for base in range(4)]
    size = str(len(batch(0, 0)))
    properties = {"bootstrap.servers": broker.bootstrap, "max.partition.fetch.bytes": size}
    rows = read_range(properties, TOPIC, 0, 0, 4)
    next(rows)
    close_clusters()
    rows.close()  # type: ignore[attr-defined]
    assert offsets_read(broker, 0, 4) == [0, 1, 2, 3]


def test_a_reader_that_is_held_up_loses_nothing(broker: ScriptedBroker) -> None:
    """The time between two of its batches is not the broker's fault."""
    broker.partition.batches = [batch(base, base) for base in range(3)]
    size = str(len(batch(0, 0)))
    properties = {
        "bootstrap.servers": broker.bootstrap,
        "max.partition.fetch.bytes": size,
        "request.timeout.ms": "1000",
    }
    rows = read_range(properties, TOPIC, 0, 0, 3)
    next(rows)
    time.sleep(1.2)  # longer than the broker may take: the very thing that is tested
    assert [each["offset"].to_pylist() for each in rows] == [[1], [2]]
    assert broker.fetches == [0, 1, 2]


# ---- lost records ------------------------------------------------------------------------------------


def retention(partition: Partition) -> None:
    partition.batches = partition.batches[3:]
    partition.start = 3


def truncation(partition: Partition) -> None:
    partition.batches = partition.batches[:2]


def deletion(partition: Partition) -> None:
    partition.is_there = False


def recreation(partition: Partition) -> None:
    partition.batches = partition.batches[:1]
    partition.topic_id = UUID(int=8)


@pytest.mark.parametrize(
    ("event", "kept", "message"),
    [
        (retention, [0, 3, 4], r"\[1, 3\) of scripted-0: the log begins at 3"),
        (truncation, [0, 1], r"\[2, 5\) of scripted-0: the log ends at 2"),
        (deletion, [0], r"\[1, 5\) of scripted-0: there is no such partition"),
        (recreation, [0], r"\[1, 5\) of scripted-0: the topic was re-created"),
    ],
)
def test_lost_records(
    broker: ScriptedBroker,
    caplog: pytest.LogCaptureFixture,
    event: Failure,
    kept: list[int],
    message: str,
) -> None:
    for fail in (True, False):
        broker.partition = Partition([batch(base, base) for base in range(5)])
        broker.fetch_failures.extend([lambda _: None, event])
        size = len(batch(0, 0))
        if fail:
            with pytest.raises(DataLossError, match=message):
                offsets_read(broker, 0, 5, max_partition_fetch_bytes=size)
            close_clusters()
        else:
            with caplog.at_level(logging.WARNING):
                assert offsets_read(
                    broker, 0, 5, max_partition_fetch_bytes=size, fail_on_data_loss=False
                ) == kept  # fmt: skip
            assert "Could not read records in offset" in caplog.text


def test_a_topic_recreated_between_two_ranges(broker: ScriptedBroker) -> None:
    """What the connection knew of the old one is of no matter."""
    broker.partition.batches = [batch(0, 0)]
    assert offsets_read(broker, 0, 1) == [0]
    broker.partition = Partition([batch(0, 0, 1)], topic_id=UUID(int=8))
    assert offsets_read(broker, 1, 2) == [1]


@pytest.mark.parametrize("known", [True, False])
def test_a_topic_recreated_before_its_range_is_read(broker: ScriptedBroker, known: bool) -> None:
    """The range was planned for the old one, of which the connection may know."""
    broker.partition.batches = [batch(base, base) for base in range(5)]
    if known:
        assert offsets_read(broker, 0, 1) == [0]
    broker.partition = Partition([batch(base, base) for base in range(9)], topic_id=UUID(int=8))
    with pytest.raises(
        DataLossError, match=r"\[3, 5\) of scripted-0: the(re is no such| topic was re-created)"
    ):
        offsets_read(broker, 3, 5, topic_id=TOPIC_ID)
    assert offsets_read(broker, 3, 5, topic_id=UUID(int=8)) == [3, 4]


def test_what_was_kept_of_another_topic_is_not_read(broker: ScriptedBroker) -> None:
    """Whatever leader the driver knew: the range's offsets are those of the old one."""
    broker.partition = Partition([batch(0, *range(5))], topic_id=UUID(int=8))
    leader = KnownLeader(PartitionLeader(UUID(int=8), 0, 3), HOST, broker.port)
    assert offsets_read(broker, 0, 1, leader=leader) == [0]
    with pytest.raises(DataLossError, match="re-created"):
        offsets_read(broker, 3, 5, leader=leader, topic_id=TOPIC_ID)
    assert offsets_read(broker, 3, 5, leader=leader, topic_id=UUID(int=8)) == [3, 4]
    assert broker.fetches == [0], "the rest was kept"


def test_a_high_watermark_that_is_behind_is_no_loss(broker: ScriptedBroker) -> None:
    """A new leader learns how far its followers were from their next fetches."""
    broker.partition = Partition([], end=0)

    def arrived(partition: Partition) -> None:
        partition.batches, partition.end = [batch(0, 0)], 1

    broker.offsets_failures.extend([lambda _: None, arrived])
    assert offsets_read(broker, 0, 1) == [0]


@pytest.mark.parametrize("fail_on_data_loss", [True, False])
def test_a_short_timeout_makes_no_loss_of_it(broker: ScriptedBroker, fail_on_data_loss: bool) -> None:
    """`kafkaConsumer.pollTimeoutMs` was half a second once, and many a query still has it."""

    def arrived(partition: Partition) -> None:
        partition.end = None

    broker.partition = Partition([batch(0, 0)], end=0)
    broker.partition.batches, late = [], broker.partition.batches
    broker.offsets_failures.extend([lambda _: None] * 3)
    broker.offsets_failures.append(lambda partition: (partition.batches.extend(late), arrived(partition)))
    assert offsets_read(broker, 0, 1, timeout_s=0.2, fail_on_data_loss=fail_on_data_loss) == [0]


# ---- the driver's questions --------------------------------------------------------------------------


def test_offsets_survive_trouble(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(0, 0, 1, 2)]
    broker.offsets_failures.extend([HANG_UP, ErrorCode.NOT_LEADER_OR_FOLLOWER])
    partition = TopicPartition(TOPIC, 0)
    assert cluster_client({"bootstrap.servers": broker.bootstrap}).latest([partition]) == {partition: 3}


def test_what_does_not_exist_is_left_out(broker: ScriptedBroker) -> None:
    broker.partition = Partition([batch(0, 0)], is_there=False)
    source = cluster_client({"bootstrap.servers": broker.bootstrap})
    assert source.partitions_of([TOPIC]) == set()
    assert source.earliest([TopicPartition(TOPIC, 0)]) == {}
    asked = len(broker.questions)
    assert source.partitions_of([TOPIC]) == set()
    assert len(broker.questions) == asked + 1, "it is waited for once"
    broker.partition.is_there = True
    assert source.partitions_of([TOPIC]) == {TopicPartition(TOPIC, 0)}


def test_a_broker_that_is_behind_is_not_believed_that_a_topic_is_gone(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Though its leader has not answered for longer than metadata takes to spread."""
    monkeypatch.setattr(connections, "UNKNOWN_TOPIC_PATIENCE_S", 0.1)
    broker.partition.batches = [batch(0, 0)]
    broker.offsets_failures.extend([ErrorCode.NOT_LEADER_OR_FOLLOWER] * 2)
    known = count()
    answer = broker.metadata

    def behind_at_the_third_question(request: object) -> object:
        broker.partition.is_there = next(known) != 2
        return answer(request)

    broker.metadata = behind_at_the_third_question  # type: ignore[method-assign, assignment]
    partition = TopicPartition(TOPIC, 0)
    assert cluster_client({"bootstrap.servers": broker.bootstrap}).latest([partition]) == {partition: 1}


def test_a_broker_that_is_silent_is_waited_for_once(
    broker: ScriptedBroker, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whoever else asks meanwhile or afterwards: the machine is gone, and still named by the options."""
    monkeypatch.setattr(connections, "METADATA_TIMEOUT_S", 1.5)
    with socket.create_server((HOST, 0), backlog=50) as silent:
        servers = f"{broker.bootstrap},{HOST}:{silent.getsockname()[1]}"
        source = cluster_client({"bootstrap.servers": servers})

        async def many_questions() -> list[object]:
            return await asyncio.gather(*(source.brokers() for _ in range(20)))

        assert len(source.run(many_questions())) == 20
        for _ in range(5):
            assert source.partitions_of([TOPIC]) == {TopicPartition(TOPIC, 0)}
        silent.settimeout(0)
        silent.accept()[0].close()
        with pytest.raises(BlockingIOError):
            silent.accept()


def test_a_topic_that_is_deleted_while_a_batch_query_is_planned(broker: ScriptedBroker) -> None:
    broker.partition.batches = [batch(0, 0)]
    given = {"kafka.bootstrap.servers": broker.bootstrap, "subscribe": TOPIC}
    batch_reader = KraftBatchReader(source_options(given, streaming=False))
    broker.offsets_failures.extend([deletion, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
    with pytest.raises(SourceError, match=r"\[UNKNOWN_TOPIC_OR_PARTITION\] scripted-0: deleted while"):
        batch_reader.partitions()


def test_nobody_there() -> None:
    with scripted_broker() as broker:
        pass
    source = cluster_client({"bootstrap.servers": broker.bootstrap, "default.api.timeout.ms": "200"})
    with pytest.raises(SourceError, match=r"kafka.bootstrap.servers.*Connect call failed"):
        source.topic_names()
    close_clusters()


def test_a_broker_of_long_ago(broker: ScriptedBroker) -> None:
    broker.versions[ApiKey.FETCH] = (0, 11)
    broker.partition.batches = [batch(0, 0)]
    with pytest.raises(SourceError, match="FETCH is not answered in versions 12 to 17"):
        offsets_read(broker, 0, 1)
