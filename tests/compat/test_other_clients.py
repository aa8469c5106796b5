"""kafka-python and aiokafka: produce, consume, groups, transactions, administration."""

from __future__ import annotations

import asyncio
from types import ModuleType
from typing import Any

import pytest

from tests.compat.conftest import Closed, MakeTopic
from tests.support.clients.transactions import committed
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.row("U2"), pytest.mark.usefixtures("litter")]

ENDINGS = ("commit", "abort", "commit")


# ---- kafka-python ------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
@pytest.mark.parametrize(
    ("acks", "codec"), [(1, None), ("all", None), ("all", "gzip")]
)  # others need more packages
def test_kafka_python_produces_and_consumes(
    kafka: ModuleType, closed: Closed, bootstrap: str, make_topic: MakeTopic, acks: Any, codec: str | None
) -> None:
    topic = make_topic(2)
    servers = bootstrap.split(",")
    producer = closed(
        kafka.KafkaProducer(
            bootstrap_servers=servers, acks=acks, compression_type=codec, enable_idempotence=acks == "all"
        )
    )
    futures = [
        producer.send(
            topic, key=b"k%d" % n, value=b"v%d" % n, headers=[("n", b"%d" % n)], timestamp_ms=1_000 + n
        )
        for n in range(50)
    ]
    reports = [future.get(PATIENCE_S) for future in futures]
    producer.close()
    assert {report.partition for report in reports} == {0, 1}
    consumer = closed(kafka.KafkaConsumer(bootstrap_servers=servers, auto_offset_reset="earliest"))
    places = [kafka.TopicPartition(topic, number) for number in (0, 1)]
    consumer.assign(places)
    consumer.seek_to_beginning()
    found = {}
    while len(found) < 50:
        for messages in consumer.poll(1_000).values():
            found.update({message.value: message for message in messages})
    assert {m.value: (m.key, m.headers, m.timestamp) for m in found.values()} == {
        b"v%d" % n: (b"k%d" % n, [("n", b"%d" % n)], 1_000 + n) for n in range(50)
    }
    ends = consumer.end_offsets(places)
    assert sum(ends.values()) == 50
    at = consumer.offsets_for_times({places[0]: 1_020})[places[0]]
    assert at.timestamp >= 1_020


@pytest.mark.row("G1")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_in_a_group(
    kafka: ModuleType, closed: Closed, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic(2)
    servers = bootstrap.split(",")
    producer = closed(kafka.KafkaProducer(bootstrap_servers=servers))
    for n in range(20):
        producer.send(topic, value=b"%d" % n, partition=n % 2)
    producer.close()
    options = {
        "bootstrap_servers": servers, "group_id": "kp", "auto_offset_reset": "earliest",
        "enable_auto_commit": False, "heartbeat_interval_ms": 200, "session_timeout_ms": 45_000,
    }  # fmt: skip
    seen: set[bytes] = set()

    def poll(*consumers: Any) -> None:
        for each in consumers:
            for messages in each.poll(100).values():
                seen.update(message.value for message in messages)

    def member() -> Any:
        consumer = closed(kafka.KafkaConsumer(topic, **options))
        # Who leads the group before it knows the topic joins again when it does; a poll that ends meanwhile
        # takes the half of that for the whole, and nothing is ever assigned (3.0.12).
        assert consumer.partitions_for_topic(topic) == {0, 1}
        return consumer

    first = member()
    wait_until(lambda: poll(first) or len(seen) == 20, "all is read")
    first.commit()
    second = member()
    wait_until(
        lambda: poll(first, second) or len(first.assignment()) == len(second.assignment()) == 1,
        "both have one",
    )
    assert first.committed(kafka.TopicPartition(topic, 0)) == 10


@pytest.mark.row("P4")
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_in_transactions(
    kafka: ModuleType, closed: Closed, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    servers = bootstrap.split(",")
    place = kafka.TopicPartition(topic, 0)
    producer = closed(kafka.KafkaProducer(bootstrap_servers=servers, transactional_id=topic))
    consumer = closed(
        kafka.KafkaConsumer(
            bootstrap_servers=servers,
            group_id=topic,
            enable_auto_commit=False,
            isolation_level="read_committed",
        )
    )
    producer.init_transactions()
    for number, ending in enumerate(ENDINGS):
        producer.begin_transaction()
        producer.send(topic, value=b"%d" % number).get(PATIENCE_S)
        offsets = {place: kafka.structs.OffsetAndMetadata(number, "", -1)}
        producer.send_offsets_to_transaction(offsets, consumer.group_metadata())
        if ending == "commit":
            producer.commit_transaction()
        else:
            producer.abort_transaction()
    producer.close()
    # Who commits is answered before the markers are everywhere.
    wait_until(lambda: committed(bootstrap, topic) == ["0", "2"], "the markers of the last one")
    wait_until(lambda: consumer.committed(place) == 2, "its offset")


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_kafka_python_administers(kafka: ModuleType, closed: Closed, bootstrap: str) -> None:
    admin = closed(kafka.admin.KafkaAdminClient(bootstrap_servers=bootstrap.split(",")))
    new = kafka.admin.NewTopic("kp-admin", num_partitions=2, replication_factor=3)
    admin.create_topics([new])
    wait_until(lambda: "kp-admin" in admin.list_topics(), "the topic is known")
    admin.create_partitions({"kp-admin": kafka.admin.NewPartitions(3)})
    wait_until(
        lambda: len(admin.describe_topics(["kp-admin"])[0]["partitions"]) == 3, "there are three partitions"
    )
    assert len(admin.describe_cluster()["brokers"]) == 3
    admin.delete_topics(["kp-admin"])
    wait_until(lambda: "kp-admin" not in admin.list_topics(), "the topic is gone")


# ---- aiokafka ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("codec", [None, "gzip", "lz4", "snappy", "zstd"])
def test_aiokafka_produces_and_consumes(bootstrap: str, make_topic: MakeTopic, codec: str | None) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer

    topic = make_topic(2)

    async def run() -> None:
        async with AIOKafkaProducer(
            bootstrap_servers=bootstrap, acks="all", enable_idempotence=True, compression_type=codec
        ) as producer:
            for n in range(50):
                await producer.send(topic, value=b"v%d" % n, key=b"k%d" % n, headers=[("h", b"1")])
            await producer.flush()
        consumer = AIOKafkaConsumer(
            topic, bootstrap_servers=bootstrap, group_id=f"aio-{codec}", auto_offset_reset="earliest",
            enable_auto_commit=False,
        )  # fmt: skip
        async with consumer:
            found = {}
            async with asyncio.timeout(PATIENCE_S):
                async for message in consumer:
                    found[message.key] = (message.value, tuple(message.headers))
                    if len(found) == 50:
                        break
            assert found == {b"k%d" % n: (b"v%d" % n, (("h", b"1"),)) for n in range(50)}
            await consumer.commit()
            committed = [await consumer.committed(place) for place in consumer.assignment()]
            assert sum(committed) == 50

    asyncio.run(run())


def test_aiokafka_administers(bootstrap: str) -> None:
    from aiokafka.admin import AIOKafkaAdminClient, NewTopic

    async def run() -> None:
        admin = AIOKafkaAdminClient(bootstrap_servers=bootstrap)
        await admin.start()
        try:
            await admin.create_topics([NewTopic("aio-admin", 2, 3, topic_configs={"retention.ms": "5"})])
            async with asyncio.timeout(PATIENCE_S):
                while "aio-admin" not in await admin.list_topics():
                    pass
            (described,) = await admin.describe_topics(["aio-admin"])
            assert len(described["partitions"]) == 2
            await admin.delete_topics(["aio-admin"])
        finally:
            await admin.close()

    asyncio.run(run())


@pytest.mark.row("P4")
def test_aiokafka_in_transactions(bootstrap: str, make_topic: MakeTopic) -> None:
    from aiokafka import AIOKafkaConsumer, AIOKafkaProducer, TopicPartition

    topic = make_topic()
    place = TopicPartition(topic, 0)

    async def run() -> None:
        async with AIOKafkaProducer(bootstrap_servers=bootstrap, transactional_id=topic) as producer:
            for number, ending in enumerate(ENDINGS):
                await producer.begin_transaction()
                await producer.send_and_wait(topic, b"%d" % number, partition=0)
                await producer.send_offsets_to_transaction({place: number}, topic)
                if ending == "commit":
                    await producer.commit_transaction()
                else:
                    await producer.abort_transaction()
        consumer = AIOKafkaConsumer(bootstrap_servers=bootstrap, group_id=topic, enable_auto_commit=False)
        async with consumer:
            consumer.assign([place])
            async with asyncio.timeout(PATIENCE_S):
                while await consumer.committed(place) != 2:  # its marker may come a moment later
                    pass

    asyncio.run(run())
    wait_until(lambda: committed(bootstrap, topic) == ["0", "2"], "the markers of the last one")
