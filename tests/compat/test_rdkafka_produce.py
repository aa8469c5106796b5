"""librdkafka produces: acks, codecs, idempotence, headers, timestamps, sizes, partitions."""

from __future__ import annotations

import pytest
from confluent_kafka import (
    TIMESTAMP_CREATE_TIME,
    TIMESTAMP_LOG_APPEND_TIME,
    KafkaError,
    KafkaException,
    Message,
    Producer,
)
from confluent_kafka.admin import AdminClient

from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import read, send
from tests.support.waiting import wait_until


def code_of(raised: pytest.ExceptionInfo[KafkaException]) -> int:
    return int(raised.value.args[0].code())


@pytest.mark.row("R4")
@pytest.mark.parametrize(("acks", "offsets"), [("0", None), ("1", [0, 1, 2]), ("all", [0, 1, 2])])
def test_acks(bootstrap: str, make_topic: MakeTopic, acks: str, offsets: list[int] | None) -> None:
    topic = make_topic()
    reports = send(bootstrap, topic, ({"value": str(n)} for n in range(3)), acks=acks)
    if offsets is None:
        assert all((report.offset() or -1) < 0 for report in reports), "the broker answered nothing"
    else:
        assert [report.offset() for report in reports] == offsets
    assert [message.value() for message in read(bootstrap, topic, 3)] == [b"0", b"1", b"2"]


@pytest.mark.row("L9")
@pytest.mark.parametrize("codec", ["none", "gzip", "snappy", "lz4", "zstd"])
def test_codecs(bootstrap: str, make_topic: MakeTopic, codec: str) -> None:
    topic = make_topic()
    values = [f"{n}: the same words again and again".encode() for n in range(500)]
    send(bootstrap, topic, ({"value": value} for value in values), compression_type=codec, linger_ms=20)
    assert [message.value() for message in read(bootstrap, topic, len(values), check_crcs=True)] == values


@pytest.mark.row("L9")
@pytest.mark.parametrize("codec", ["gzip", "snappy", "lz4", "zstd", "uncompressed"])
def test_codec_of_the_topic(bootstrap: str, make_topic: MakeTopic, codec: str) -> None:
    """The broker compresses again: what was sent with another codec is read all the same."""
    topic = make_topic(**{"compression.type": codec})
    values = [b"x" * 50 + str(n).encode() for n in range(200)]
    sent_with = "zstd" if codec == "gzip" else "gzip"
    send(bootstrap, topic, ({"value": value} for value in values), compression_type=sent_with, linger_ms=20)
    assert [message.value() for message in read(bootstrap, topic, len(values), check_crcs=True)] == values


@pytest.mark.row("P3")
def test_idempotent_producer(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    values = [str(n).encode() for n in range(2_000)]
    reports = send(
        bootstrap, topic, ({"value": value} for value in values),
        enable_idempotence=True, batch_num_messages=50,
    )  # fmt: skip
    assert [report.offset() for report in reports] == list(range(len(values)))
    assert [message.value() for message in read(bootstrap, topic, len(values))] == values


def test_headers_keys_nulls_and_timestamps(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    headers = [("a", b"1"), ("a", b"2"), ("empty", b""), ("none", None)]
    send(bootstrap, topic, [
        {"key": "k", "value": "v", "headers": headers, "timestamp": 1_000},
        {"key": None, "value": None, "timestamp": 2_000},
        {"key": b"", "value": b""},
    ])  # fmt: skip
    first, second, third = read(bootstrap, topic, 3)
    assert (first.key(), first.value(), first.headers()) == (b"k", b"v", headers)
    assert first.timestamp() == (TIMESTAMP_CREATE_TIME, 1_000)
    assert (second.key(), second.value(), second.headers()) == (None, None, None)
    assert second.timestamp() == (TIMESTAMP_CREATE_TIME, 2_000)
    assert (third.key() or b"", third.value()) == (b"", b"")


@pytest.mark.row("L9")
def test_log_append_time(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"message.timestamp.type": "LogAppendTime"})
    (report,) = send(bootstrap, topic, [{"value": "v", "timestamp": 1_000}])
    (message,) = read(bootstrap, topic, 1)
    kind, timestamp = message.timestamp()
    assert kind == TIMESTAMP_LOG_APPEND_TIME
    assert timestamp > 1_600_000_000_000
    assert report.timestamp()[1] == timestamp


@pytest.mark.row("L9")
def test_message_too_large(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"max.message.bytes": "10000"})
    with pytest.raises(KafkaException) as raised:
        send(bootstrap, topic, [{"value": b"x" * 20_000}])
    assert code_of(raised) == KafkaError.MSG_SIZE_TOO_LARGE
    send(bootstrap, topic, [{"value": b"x" * 9_000}])


@pytest.mark.stall_ms(400)  # a batch is written in one piece: a slow machine's page cache takes 70 ms for it
def test_big_messages(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"max.message.bytes": str(20 * 2**20)})
    value = bytes(range(256)) * (64 * 1024)  # 16 MiB
    send(bootstrap, topic, [{"value": value}, {"value": b"small"}], message_max_bytes=20 * 2**20)
    big, small = read(bootstrap, topic, 2)
    assert big.value() == value
    assert small.value() == b"small"


@pytest.mark.row("R7")
def test_an_oversized_first_batch_still_passes(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    value = b"y" * 900_000
    send(bootstrap, topic, [{"value": value}, {"value": value}])
    found = read(
        bootstrap, topic, 2, fetch_message_max_bytes=1_000, fetch_max_bytes=1_000, message_max_bytes=1_000
    )
    assert [message.value() for message in found] == [value, value]


@pytest.mark.row("P5")
def test_murmur2_lands_where_java_lands(bootstrap: str, make_topic: MakeTopic) -> None:
    hashes = {  # as Kafka's own UtilsTest has them
        "21": -973932308,
        "foobar": -790332482,
        "a-little-bit-long-string": -985981536,
        "a-little-bit-longer-string": -1486304829,
        "lkjh234lh9fiuh90y23oiuhsafujhadof229phr9h19h89h8": -58897971,
        "abc": 479470107,
    }
    topic = make_topic(6)
    reports = send(
        bootstrap, topic, ({"key": key, "value": b""} for key in hashes), partitioner="murmur2_random"
    )
    landed = {report.key().decode(): report.partition() for report in reports}
    assert landed == {key: (number & 0x7FFFFFFF) % 6 for key, number in hashes.items()}


@pytest.mark.row("P5")
@pytest.mark.parametrize(("linger_ms", "partitions"), [(60_000, 1), (0, 3)])
def test_null_keys_stick_or_spread(
    bootstrap: str, make_topic: MakeTopic, linger_ms: int, partitions: int
) -> None:
    topic = make_topic(3)
    reports: list[Message] = []
    producer = Producer(
        {"bootstrap.servers": bootstrap, "sticky.partitioning.linger.ms": linger_ms, "log_level": 0}
    )
    for partition in range(3):  # librdkafka sticks only to a partition whose leader it is connected to
        producer.produce(topic, b"", partition=partition)
    assert producer.flush(180) == 0
    for _ in range(300):
        producer.produce(topic, b"", on_delivery=lambda error, report: reports.append(report))
    assert producer.flush(180) == 0
    assert len(reports) == 300
    assert len({report.partition() for report in reports}) == partitions


@pytest.mark.row("P6")
def test_a_topic_is_created_by_producing_to_it(bootstrap: str, admin: AdminClient) -> None:
    send(bootstrap, "made-on-demand", [{"value": "first"}])
    assert [message.value() for message in read(bootstrap, "made-on-demand", 1)] == [b"first"]
    partitions = wait_until(
        lambda: admin.list_topics("made-on-demand", timeout=60).topics["made-on-demand"].partitions,
        "whoever is asked knows it",
    )
    assert len(partitions) == 1  # num.partitions
    assert len(partitions[0].replicas) == 3  # default.replication.factor


@pytest.mark.row("L9")
def test_a_compacted_topic_wants_keys(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"cleanup.policy": "compact"})
    with pytest.raises(KafkaException) as raised:
        send(bootstrap, topic, [{"value": b"no key"}])
    assert code_of(raised) == KafkaError.INVALID_RECORD
    send(bootstrap, topic, [{"key": b"k", "value": b"v"}])
