"""`kraft.testing.simulated`: a stock asyncio client, virtual time, the same twice."""

from __future__ import annotations

import asyncio
import time

import pytest
from aiokafka import AIOKafkaConsumer, AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic
from aiokafka.errors import KafkaError

from kraft.testing import SimulatedNodes, simulated


async def copied_over_a_crash(kafka: SimulatedNodes) -> list[bytes]:
    """What a group of one read of what was written every ten seconds, while a node was down for a minute."""
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    await admin.start()
    await admin.create_topics([NewTopic("orders", 2, 3)])
    await admin.close()
    # aiokafka numbers clients without a name over the whole process.
    producer = AIOKafkaProducer(
        bootstrap_servers=kafka.bootstrap, client_id="writer", enable_idempotence=True
    )
    consumer = AIOKafkaConsumer(
        "orders", bootstrap_servers=kafka.bootstrap, group_id="g", auto_offset_reset="earliest"
    )
    await producer.start()
    await consumer.start()
    try:
        for number in range(12):
            if number == 3:
                kafka.kill(2)
            elif number == 9:
                kafka.start(2)
            now_ms = int(time.time() * 1000)  # aiokafka's compiled part would read the machine's clock
            await producer.send_and_wait("orders", b"%d" % number, timestamp_ms=now_ms)
            await asyncio.sleep(10)
        return sorted([(await consumer.getone()).value for _ in range(12)])
    finally:
        await consumer.stop()
        await producer.stop()


@pytest.mark.heavy
@pytest.mark.row("U10")
def test_a_story_of_minutes_takes_seconds_and_is_the_same_twice() -> None:
    digests = set()
    for _ in range(2):
        with simulated(seed=5) as kafka:
            read = kafka.run(copied_over_a_crash(kafka))
            assert read == sorted(b"%d" % number for number in range(12))
            assert 120 < kafka.now_s < 180
            digests.add(kafka.digest)
    assert len(digests) == 1


def test_a_node_that_is_cut_off_acknowledges_nothing() -> None:
    async def story(kafka: SimulatedNodes) -> None:
        producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, acks="all", request_timeout_ms=2000)
        await producer.start()
        try:
            await producer.send_and_wait("t", b"before", timestamp_ms=0)
            kafka.partition((1,), (2,), (3,), ("client",))
            with pytest.raises((TimeoutError, KafkaError)):
                async with asyncio.timeout(5):
                    await producer.send_and_wait("t", b"meanwhile", timestamp_ms=0)
            kafka.heal()
            await producer.send_and_wait("t", b"after", timestamp_ms=0)
        finally:
            await producer.stop()

    with simulated(seed=1, settings={"auto.create.topics.enable": True}) as kafka:
        kafka.run(story(kafka), seconds=120)
