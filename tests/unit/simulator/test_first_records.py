"""A new partition is followed at once, by brokers that follow others of the same leader and wait there."""

from __future__ import annotations

import asyncio

from aiokafka import AIOKafkaProducer
from aiokafka.admin import AIOKafkaAdminClient, NewTopic

from kraft.testing import SimulatedNodes, simulated

TOPICS = [f"t{number}" for number in range(6)]
MOST_S = 0.2
"""Less than half of what a fetch waits at an idle leader."""


async def seconds_of_first_records(kafka: SimulatedNodes) -> list[float]:
    admin = AIOKafkaAdminClient(bootstrap_servers=kafka.bootstrap)
    producer = AIOKafkaProducer(bootstrap_servers=kafka.bootstrap, client_id="writer", acks="all")
    await admin.start()
    await producer.start()
    taken: list[float] = []
    try:
        for topic in TOPICS:
            await admin.create_topics([NewTopic(topic, 3, 3)])
            await producer.partitions_for(topic)
            began = kafka.now_s
            for partition in range(3):
                await producer.send_and_wait(topic, b"first", partition=partition, timestamp_ms=0)
            taken.append(kafka.now_s - began)
            await asyncio.sleep(2)
    finally:
        await producer.stop()
        await admin.close()
    return taken


def test_the_first_records_of_a_topic_wait_for_nobodys_poll() -> None:
    with simulated(seed=3) as kafka:
        taken = kafka.run(seconds_of_first_records(kafka), seconds=120)
    assert max(taken[1:]) < MOST_S  # of the first topic followers have yet to connect
