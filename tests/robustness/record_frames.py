"""Records what stock clients send: `python -m tests.robustness.record_frames > recorded_frames.txt`.

A relay stands between the clients and one node, which advertises the relay's port. Of every API and
version the first frame is kept, as hex, without its length.
"""

from __future__ import annotations

import asyncio
import struct
import tempfile
import threading
from pathlib import Path

from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, ConfigResource, NewTopic
from kafka import KafkaConsumer, KafkaProducer

from kraft.local.free_ports import HOST, Ports
from tests.robustness.nodes import NodeFiles

QUICK = {"group_initial_rebalance_delay_ms": "0"}
LENGTH = struct.Struct(">i")
Frames = dict[tuple[int, int], bytes]


async def relay(port: int, target: int, frames: Frames) -> None:
    async def serve(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        back_reader, back_writer = await asyncio.open_connection(HOST, target)
        back = asyncio.create_task(copy(back_reader, writer))
        try:
            while True:
                size = await reader.readexactly(4)
                frame = await reader.readexactly(*LENGTH.unpack(size))
                frames.setdefault(struct.unpack_from(">hh", frame), frame)
                back_writer.write(size + frame)
        except asyncio.IncompleteReadError:
            back_writer.close()
            await back

    async def copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while data := await reader.read(65536):
            writer.write(data)
        writer.close()

    async with await asyncio.start_server(serve, HOST, port) as server:
        await server.serve_forever()


def use_stock_clients(bootstrap: str) -> None:
    """A little of everything that clients do."""
    where = {"bootstrap.servers": bootstrap}
    admin = AdminClient(where)
    admin.create_topics([NewTopic("recorded", 2, 1)])["recorded"].result()
    admin.describe_configs([ConfigResource(ConfigResource.Type.TOPIC, "recorded")])
    producer = Producer({**where, "enable.idempotence": True, "compression.type": "gzip"})
    for number in range(10):
        producer.produce("recorded", b"value" * 9, key=str(number), headers={"h": b"x"})
    producer.flush(10)
    consumer = Consumer({**where, "group.id": "recorded", "auto.offset.reset": "earliest"})
    consumer.subscribe(["recorded"])
    consumer.consume(10, 10)
    consumer.commit(asynchronous=False)
    consumer.close()
    plain = KafkaProducer(bootstrap_servers=bootstrap)
    plain.send("recorded", b"from Python").get(10)
    plain.close()
    reader = KafkaConsumer(
        "recorded", bootstrap_servers=bootstrap, group_id="second",
        auto_offset_reset="earliest", consumer_timeout_ms=15_000,
    )  # fmt: skip
    assert next(reader)
    reader.close()
    admin.delete_topics(["recorded"])["recorded"].result()


def main() -> None:
    frames: Frames = {}
    with Ports() as ports, tempfile.TemporaryDirectory() as home:
        client, controller, between = ports(3)
        advertised = f"PLAINTEXT://{HOST}:{between}"
        node = NodeFiles(Path(home), [client, controller], advertised_listeners=advertised, **QUICK)
        node.format()
        with node.running():
            work = (relay(between, client, frames),)
            threading.Thread(target=lambda: asyncio.run(*work), daemon=True).start()
            use_stock_clients(f"{HOST}:{between}")
    for _, frame in sorted(frames.items()):
        print(frame.hex())


if __name__ == "__main__":
    main()
