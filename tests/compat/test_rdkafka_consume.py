"""librdkafka consumes: where it may begin, how long a fetch waits, what the log's start does to it."""

from __future__ import annotations

import threading
import time

import pytest
from confluent_kafka import (
    OFFSET_BEGINNING,
    OFFSET_END,
    IsolationLevel,
    KafkaError,
    KafkaException,
    TopicPartition,
)
from confluent_kafka.admin import AdminClient, OffsetSpec

from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import consumer, poll, read, send
from tests.support.waiting import wait_until

LEISURELY_S = 90.0
"""A fetch that may wait this long is woken, if it is answered much sooner."""


def timestamped(bootstrap: str, topic: str) -> None:
    """Offsets 0, 1, 2, 3 with times 1000, 2000, 5000, 3000."""
    for timestamp in (1_000, 2_000, 5_000, 3_000):
        send(bootstrap, topic, [{"value": str(timestamp), "timestamp": timestamp}])


@pytest.mark.row("L5")
def test_offsets_for_times_then_seek(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    timestamped(bootstrap, topic)
    with consumer(bootstrap) as reader:
        for timestamp, offset in (
            (0, 0),
            (1_000, 0),
            (1_001, 1),
            (2_500, 2),
            (5_000, 2),
            (5_001, OFFSET_END),
        ):
            (found,) = reader.offsets_for_times([TopicPartition(topic, 0, timestamp)], timeout=60)
            assert found.offset == offset, timestamp
        reader.assign([TopicPartition(topic, 0, 0)])
        poll(reader, 1)
        reader.seek(TopicPartition(topic, 0, 2))
        assert [message.value() for message in poll(reader, 2)] == [b"5000", b"3000"]


@pytest.mark.row("L5")
@pytest.mark.parametrize(
    ("spec", "offset"),
    [
        (OffsetSpec.earliest(), 0),
        (OffsetSpec.latest(), 4),
        (OffsetSpec.max_timestamp(), 2),
        (OffsetSpec.for_timestamp(1_500), 1),
    ],
    ids=["earliest", "latest", "max timestamp", "for a timestamp"],
)
def test_list_offsets(
    bootstrap: str, admin: AdminClient, make_topic: MakeTopic, spec: OffsetSpec, offset: int
) -> None:
    topic = make_topic()
    timestamped(bootstrap, topic)
    place = TopicPartition(topic, 0)
    for isolation in (IsolationLevel.READ_UNCOMMITTED, IsolationLevel.READ_COMMITTED):
        found = admin.list_offsets({place: spec}, isolation_level=isolation)[place].result()
        assert found.offset == offset


def test_watermarks_and_resets(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, ({"value": str(n)} for n in range(5)))
    with consumer(bootstrap, auto_offset_reset="latest") as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (0, 5)
        reader.assign([TopicPartition(topic, 0, OFFSET_END)])
        wait_until(lambda: reader.poll(0.05) is None and at_end(reader, topic, 5), "the end was found")
        send(bootstrap, topic, [{"value": "after"}])
        (message,) = poll(reader, 1)
        assert (message.offset(), message.value()) == (5, b"after")


def at_end(reader, topic: str, end: int) -> bool:
    """The consumer has learnt where the end is: its cached watermark says so."""
    return reader.get_watermark_offsets(TopicPartition(topic, 0), cached=True)[1] == end


def test_out_of_range_is_reported(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, [{"value": "only"}])
    with consumer(bootstrap, auto_offset_reset="error") as reader:
        reader.assign([TopicPartition(topic, 0, 100)])
        with pytest.raises(KafkaException) as raised:
            poll(reader, 1)
        assert raised.value.args[0].code() == KafkaError._AUTO_OFFSET_RESET


@pytest.mark.row("L3")
def test_delete_records(bootstrap: str, admin: AdminClient, make_topic: MakeTopic) -> None:
    topic = make_topic()
    place = TopicPartition(topic, 0, 6)
    send(bootstrap, topic, ({"value": str(n)} for n in range(10)))
    assert admin.delete_records([place])[place].result().low_watermark == 6
    with consumer(bootstrap) as reader:
        assert reader.get_watermark_offsets(TopicPartition(topic, 0), timeout=60) == (6, 10)
        reader.assign([TopicPartition(topic, 0, OFFSET_BEGINNING)])
        assert [message.value() for message in poll(reader, 4)] == [b"6", b"7", b"8", b"9"]
    beyond = TopicPartition(topic, 0, 100)
    with pytest.raises(KafkaException) as raised:
        admin.delete_records([beyond])[beyond].result()
    assert raised.value.args[0].code() == KafkaError.OFFSET_OUT_OF_RANGE
    everything = TopicPartition(topic, 0, OFFSET_END)
    assert admin.delete_records([everything])[everything].result().low_watermark == 10


@pytest.mark.row("P2")
def test_a_waiting_fetch_wakes_on_a_new_message(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, [{"value": "first"}])
    with consumer(bootstrap, fetch_wait_max_ms=int(LEISURELY_S * 1000), fetch_min_bytes=1) as reader:
        reader.assign([TopicPartition(topic, 0, 0)])
        poll(reader, 1)
        sent_at: list[float] = []

        def later() -> None:
            send(bootstrap, topic, [{"value": "second"}])
            sent_at.append(time.monotonic())

        sender = threading.Thread(target=later)
        sender.start()
        (message,) = poll(reader, 1)
        sender.join()
        assert message.value() == b"second"
        assert time.monotonic() - sent_at[0] < LEISURELY_S / 3


@pytest.mark.row("P2")
def test_a_fetch_waits_for_min_bytes_or_its_time(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    wait_s = 1.5
    with consumer(bootstrap, fetch_min_bytes=100_000, fetch_wait_max_ms=int(wait_s * 1000)) as reader:
        began = time.monotonic()  # whichever fetch brings it begins later
        reader.assign([TopicPartition(topic, 0, 0)])
        send(bootstrap, topic, [{"value": "too little to be worth it"}])
        assert [message.value() for message in poll(reader, 1)] == [b"too little to be worth it"]
        assert time.monotonic() - began > wait_s / 3
    patient = {"fetch_min_bytes": 100_000, "fetch_wait_max_ms": int(LEISURELY_S * 1000)}
    with consumer(bootstrap, **patient) as reader:
        reader.assign([TopicPartition(topic, 0, 1)])
        began = time.monotonic()
        send(bootstrap, topic, ({"value": b"z" * 60_000} for _ in range(2)))
        assert len(poll(reader, 2)) == 2
        assert time.monotonic() - began < LEISURELY_S / 3


def test_reading_from_where_one_likes(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    send(bootstrap, topic, ({"value": str(n)} for n in range(100)), batch_num_messages=10)
    assert [message.value() for message in read(bootstrap, topic, 3, offset=57)] == [b"57", b"58", b"59"]
