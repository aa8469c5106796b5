"""Entry of the demo: data, cluster, stream, account. Ends with 0 only if nothing at all was wrong."""

from __future__ import annotations

import random
import shutil
import signal
import sys
import tempfile
import threading
from pathlib import Path

from rich.console import Console

from examples.flights.audit import DelayMeans
from examples.flights.data import DataMissing, data_directory, load_carriers, load_flights
from examples.flights.isr import IsrWatch
from examples.flights.screen import (
    ProgressScreen,
    print_account,
    print_delays,
    print_timeline,
    print_verdict,
)
from examples.flights.stream import TOPIC, Stream, StreamFailed, create_topic
from kraft.local_cluster import LocalCluster
from kraft.loopback import free_ports
from metadata_quorum.errors import FatalError

NODES = 3


def run(cluster: LocalCluster, console: Console) -> int:
    """Stream the flights through a started cluster; the exit code."""
    directory = data_directory()
    columns, flights = load_flights(directory)
    delays = DelayMeans(columns)
    console.print(f"creating topic {TOPIC}")
    watch = IsrWatch(cluster.bootstrap, TOPIC, create_topic(cluster.bootstrap))
    screen = ProgressScreen(console, len(flights))
    stream = Stream(cluster, flights, watch, screen)
    try:
        with screen:
            outcome = stream.run(delays)
        memory = memory_bytes(cluster)
    finally:
        stream.close()
        watch.close()
    print_delays(console, delays, load_carriers(directory))
    print_timeline(console, watch.events, outcome.events_from)
    print_account(console, outcome, stream.acks, stream.reads, memory)
    print_verdict(console, stream.problems)
    return 1 if stream.problems.count else 0


def memory_bytes(cluster: LocalCluster) -> dict[int, int]:
    """Resident memory of every running node."""
    processes = {node_id: node.process() for node_id, node in cluster.nodes.items()}
    return {node_id: process.memory_info().rss for node_id, process in processes.items() if process}


def demo(console: Console) -> int:
    """Start three nodes, stream, and end them whatever happens; their data stays only after a failure."""
    directory = Path(tempfile.mkdtemp(prefix="kraft-flights-"))
    code = 1
    # Free ports: the demo disturbs no broker that is there.
    ports = free_ports(3 * NODES, random.SystemRandom())
    cluster = LocalCluster.create(directory, nodes=NODES, ports=ports)
    try:
        console.print(f"starting {NODES} nodes")
        cluster.start()
        code = run(cluster, console)
    except KeyboardInterrupt:
        code = 130
    except SystemError:
        # confluent-kafka's `poll` loses an exception that a signal raised inside one of its callbacks.
        if not interrupted.is_set():
            raise
        code = 130
    finally:
        cluster.close()
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


def main() -> int:
    console = Console()
    for number in (signal.SIGTERM, signal.SIGINT):
        signal.signal(number, end_on_signal)
    try:
        return demo(console)
    except (DataMissing, StreamFailed, FatalError) as failure:
        console.print(f"[red]{failure}")
        return 1


if __name__ == "__main__":
    sys.exit(main())
