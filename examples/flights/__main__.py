"""Entry of the demo: data, cluster, Spark, stream, account. Ends with 0 only if nothing at all was wrong."""

from __future__ import annotations

import argparse
import importlib.util
import math
import shutil
import signal
import sys
import tempfile
import threading
from collections.abc import Sequence
from contextlib import ExitStack
from datetime import UTC, datetime
from pathlib import Path

from rich.console import Console

from examples.flights.audit import DelayMeans
from examples.flights.data import (
    FLIGHTS_COUNT,
    DataMissing,
    Flight,
    data_directory,
    load_airports,
    load_carriers,
    load_flights,
    marker,
)
from examples.flights.isr import IsrWatch
from examples.flights.picture import ChartMark, carriers, print_bars, svg
from examples.flights.plan import DELAYS, FLIGHTS, MICRO_BATCHES, QueryJob
from examples.flights.results import SecondTopic, batch_computation, compare, read_topic
from examples.flights.screen import (
    ProgressScreen,
    print_account,
    print_delays,
    print_spark_account,
    print_timeline,
    print_verdict,
)
from examples.flights.spark_run import SparkOutcome, SparkRun
from examples.flights.stream import PARTITIONS, NoReader, Stream, StreamFailed, StreamOutcome, create_topics
from kraft.cli.interruption import none_is_lost
from kraft.local.free_ports import Ports
from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.errors import FatalError
from spark_connector.java import JavaNotFound, java_environment

NODES = 3


def run(cluster: LocalCluster, console: Console, options: argparse.Namespace) -> int:
    """Stream the flights through a started cluster, and with Spark out of it; the exit code."""
    directory = data_directory()
    columns, flights = load_flights(directory)
    flights = flights[: options.flights]
    delays = DelayMeans(columns)
    console.print(f"creating the topics {FLIGHTS} and {DELAYS}")
    with ExitStack() as closing:
        watch = IsrWatch(cluster.bootstrap, FLIGHTS, create_topics(cluster.bootstrap))
        closing.callback(watch.close)
        names = ("sent", "acked", "read", "spark") if options.spark else ("sent", "acked", "read")
        screen = ProgressScreen(console, len(flights), names)
        spark = None
        if options.spark:
            console.print("starting Spark")
            spark = SparkRun(spark_job(cluster, directory, len(flights)), len(flights), screen, watch.note)
            closing.callback(spark.close)
            spark.start()
        stream = Stream(cluster, flights, watch, screen, spark or NoReader())
        closing.callback(stream.close)
        with screen:
            outcome = stream.run(delays)
            if spark:
                spark.wait_for_all()
                stream.send_marker(marker(columns))
                spark.wait_for_result()
        memory = memory_bytes(cluster)
        topic = read_topic(cluster.bootstrap, PARTITIONS) if spark else SecondTopic()
    print_delays(console, delays, load_carriers(directory))
    print_timeline(console, watch.events, outcome.events_from)
    print_account(console, outcome, stream.acks, stream.reads, memory)
    if spark:
        expected = batch_computation(flights, columns, load_airports(directory))
        compare(f"the topic {DELAYS}", list(topic.latest.values()), expected, stream.problems)
        compare("Parquet", spark.outcome.rows, expected, stream.problems)
        spark.check(stream.problems)
        print_spark_account(console, spark.outcome, topic, len(flights))
        draw(console, spark.outcome, kills(flights, outcome, spark.outcome), options.picture)
    print_verdict(console, stream.problems, len(spark.outcome.rows) if spark else None)
    return 1 if stream.problems.count else 0


def spark_job(cluster: LocalCluster, data: Path, flights: int) -> QueryJob:
    directory = cluster.directory / "spark"
    directory.mkdir()
    return QueryJob(
        bootstrap=cluster.bootstrap,
        directory=str(directory),
        airports=str(data / "airports.csv"),
        per_batch=math.ceil(flights / MICRO_BATCHES),
    )


def kills(flights: Sequence[Flight], outcome: StreamOutcome, spark: SparkOutcome) -> list[ChartMark]:
    """On the calendar of the flights."""
    found = [(outcome.killed_at, f"node {outcome.victim} killed"), (spark.killed_at, "Spark killed")]
    return [
        ChartMark(datetime.fromtimestamp(flights[at].departs, UTC).date(), text)
        for at, text in found
        if at is not None and at < len(flights)
    ]


def draw(console: Console, outcome: SparkOutcome, marks: Sequence[ChartMark], file: Path) -> None:
    lines = carriers(outcome.rows, load_carriers(data_directory()))
    print_bars(console, lines)
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(svg(lines, marks), encoding="utf-8")
    console.print(f"per week, as a picture: {file}", highlight=False, soft_wrap=True)


def memory_bytes(cluster: LocalCluster) -> dict[int, int]:
    """Resident memory of every running node."""
    processes = {node_id: node.process() for node_id, node in cluster.nodes.items()}
    return {node_id: process.memory_info().rss for node_id, process in processes.items() if process}


def demo(console: Console, options: argparse.Namespace) -> int:
    """Start three nodes, stream, and end them whatever happens; their data stays only after a failure."""
    directory = Path(tempfile.mkdtemp(prefix="kraft-flights-"))
    code = 1
    ports = Ports()  # free ones: the demo disturbs no broker that is there
    cluster = LocalCluster.create(directory, nodes=NODES, ports=ports(3 * NODES))
    try:
        console.print(f"starting {NODES} nodes")
        cluster.start()
        code = run(cluster, console, options)
    except KeyboardInterrupt:
        code = 130
    except SystemError:
        # confluent-kafka's `poll` loses an exception that a signal raised inside one of its callbacks.
        if not interrupted.is_set():
            raise
        code = 130
    finally:
        cluster.close()
        ports.close()
        if code == 1:
            console.print(f"the nodes' data and logs are in {directory}", highlight=False)
        else:
            shutil.rmtree(directory, ignore_errors=True)
    return code


interrupted = threading.Event()


def end_on_signal(_number: int, _frame: object) -> None:
    """SIGTERM as Ctrl-C: unwind, so that the cluster is ended."""
    interrupted.set()
    raise KeyboardInterrupt


def parse_options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="make demo", description="Flights through three nodes and Spark.")
    parser.add_argument("--no-spark", dest="spark", action="store_false", help="the brokers' part alone")
    parser.add_argument("--flights", type=int, default=FLIGHTS_COUNT, help="only so many, from January on")
    parser.add_argument("--picture", type=Path, default=Path("build/flights.svg"), help="where the SVG goes")
    return parser.parse_args()


def require_spark() -> None:
    """Told before anything is started."""
    if importlib.util.find_spec("pyspark") is None:
        raise SparkMissing("the demo ends in Spark, which is not installed: `make setup` installs it")
    java_environment()


class SparkMissing(Exception):
    """There is no Spark, or no Java for it."""


def main() -> int:
    console = Console()
    options = parse_options()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_on_signal)
    try:
        if options.spark:
            require_spark()
        else:
            console.print("without Spark, as asked: this is the brokers' part alone")
        return demo(console, options)
    except (SparkMissing, JavaNotFound) as missing:
        console.print(f"[red]{missing}; without Spark: python -m examples.flights --no-spark", soft_wrap=True)
        return 1
    except (DataMissing, StreamFailed, FatalError) as failure:
        console.print(f"[red]{failure}", soft_wrap=True)
        return 1


if __name__ == "__main__":
    with none_is_lost():
        sys.exit(main())
