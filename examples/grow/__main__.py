"""Entry of the demo: brokers one by one, then the quorum; ends with 0 only if no client has noticed."""

from __future__ import annotations

import shutil
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from confluent_kafka.admin import AdminClient
from confluent_kafka.cimpl import KafkaException, NewTopic
from rich.console import Console

from benchmarks.cluster import SystemSkipped
from benchmarks.kafka import find_jars
from examples.flights.data import DataMissing, data_directory, load_flights
from examples.grow.nodes import BROKERS, CONTROLLERS, KRAFT, NodeFailed, Nodes, apache_kafka
from examples.grow.stream import TOPIC, FlightStream
from kraft.cli.interruption import none_is_lost, stop_in_order

PARTITIONS = 6


def create(nodes: Nodes, topic: str) -> bool:
    """Whether the quorum decides: it makes a topic."""
    admin = AdminClient({"bootstrap.servers": nodes.bootstrap, "log_level": 0})
    try:
        admin.create_topics([NewTopic(topic, PARTITIONS, 3)])[topic].result()
    except KafkaException:
        return False
    return True


def swap_broker(nodes: Nodes, broker: int, kafka: list[str]) -> None:
    nodes.stop(broker)
    nodes.start(broker, kafka)
    nodes.wait_in_sync()


def swap_quorum(nodes: Nodes, kafka: list[str]) -> None:
    for controller in CONTROLLERS:
        nodes.stop(controller)
    nodes.export()
    for controller in CONTROLLERS:
        nodes.start(controller, kafka)
    nodes.wait_for(lambda: create(nodes, "decided-by-apache-kafka"), "Apache Kafka's controllers decide")


def run(nodes: Nodes, console: Console, kafka: list[str]) -> int:
    _, flights = load_flights(data_directory())
    began = time.monotonic()
    for node_id in (*CONTROLLERS, *BROKERS):
        nodes.start(node_id, KRAFT)
    nodes.wait_in_sync()
    nodes.wait_for(lambda: create(nodes, TOPIC), "the topic is made")
    nodes.wait_in_sync()
    console.print(f"six nodes of kraft are up, in {time.monotonic() - began:.1f} s; flights stream")
    stream = FlightStream(nodes.bootstrap, flights)
    stream.start()
    nodes.wait_for(lambda: stream.reads.records > 0, "the first flight is read")
    stream.lap()

    def step(name: str, work: Callable[[], None]) -> None:
        since = time.monotonic()
        work()
        waits = stream.lap()
        console.print(
            f"{name}: {time.monotonic() - since:5.1f} s; the longest wait for an acknowledgement "
            f"{waits.acknowledgement:.2f} s, of the consumer {waits.record:.2f} s"
        )

    for broker in BROKERS:
        step(f"broker {broker} is Apache Kafka's", lambda: swap_broker(nodes, broker, kafka))  # noqa: B023
    step("the quorum is Apache Kafka's", lambda: swap_quorum(nodes, kafka))
    stream.finish()
    console.print(
        f"{stream.sent:,} flights sent, {stream.acked:,} acknowledged, {stream.reads.records:,} read; "
        "none of the six nodes is kraft's now"
    )
    for problem in stream.problems.shown:
        console.print(f"[red]{problem}")
    if stream.problems.count == 0:
        console.print("[green]every flight was read exactly once, in order per key: nobody noticed")
    return 1 if stream.problems.count else 0


def main() -> int:
    stop_in_order()
    console = Console(highlight=False, soft_wrap=True)
    directory = Path(tempfile.mkdtemp(prefix="kraft-grow-"))
    code = 1
    nodes: Nodes | None = None
    try:
        kafka = list(apache_kafka(find_jars()))
        nodes = Nodes(directory)
        code = run(nodes, console, kafka)
    except KeyboardInterrupt:
        code = 130
    except (SystemSkipped, DataMissing, NodeFailed) as failure:
        console.print(f"[red]{failure}")
    finally:
        if nodes is not None:
            nodes.close()
        if code != 1:
            shutil.rmtree(directory, ignore_errors=True)
    return code


if __name__ == "__main__":
    with none_is_lost():
        raise SystemExit(main())
