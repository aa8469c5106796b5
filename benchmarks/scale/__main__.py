"""What a cluster costs as it grows: `make scale`.

    python -m benchmarks.scale                               # simulated.py and image.py: CPU and virtual time
    python -m benchmarks.scale --real --partitions 10000     # nodes.py: three processes, and a busy topic
    python -m benchmarks.scale --real --kafka --partitions 1000

The tables are printed and written to bench-results/, from where `python -m benchmarks.page scale FILE` takes
them into docs/PERFORMANCE.md.
"""

from __future__ import annotations

import logging
import math
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from benchmarks.cluster import BenchmarkCluster
from benchmarks.kafka import KafkaCluster, find_jars
from benchmarks.ours import KraftCluster
from benchmarks.scale.image import image_costs
from benchmarks.scale.nodes import PATIENCE_S, GaveUp, Nodes, measure
from benchmarks.scale.simulated import Simulated, many_brokers, three_nodes
from benchmarks.scale.stalls import StallFile
from benchmarks.scale.table import IMAGE, NODES, SIMULATED, table

RESULTS = Path("bench-results")
PARTITIONS = [1_000, 10_000, 100_000]
BROKERS = [3, 10, 25, 50]
PARTITIONS_A_BROKER = 20
IMAGE_COPIES = 3


def note(text: str) -> None:
    print(f"  {text}", file=sys.stderr, flush=True)


def simulated(partitions: Sequence[int], replication: int, brokers: Sequence[int]) -> list[str]:
    """Growth in partitions, of the metadata by itself, and in brokers."""
    logging.disable(logging.ERROR)  # thousands of lines: who has left which ISR
    found = {size: _noted(three_nodes(size, replication), size) for size in partitions}
    images = {size: image_costs(size, IMAGE_COPIES, IMAGE_COPIES) for size in partitions}
    wide = {size: _noted(many_brokers(size, PARTITIONS_A_BROKER * size), size) for size in brokers}
    return [
        f"Three simulated nodes, replication factor {replication}:\n\n"
        + table(SIMULATED, "partitions", found),
        "The metadata by itself, replication factor 3, CPU:\n\n" + table(IMAGE, "partitions", images),
        f"Three controllers and so many simulated brokers, {PARTITIONS_A_BROKER} partitions for each:\n\n"
        + table(SIMULATED, "brokers", wide),
    ]


def _noted(cluster: Simulated, size: int) -> Mapping[str, float]:
    note(f"{size:,}: {cluster.longest}")
    return cluster.figures


def real(
    partitions: Sequence[int],
    replication: int,
    *,
    kafka: bool,
    only_deaths: bool,
    settle_s: float,
    ends_at: float,
) -> list[str]:
    """Three processes; or Apache Kafka's. What was measured until `ends_at` is kept."""
    found = {}
    for size in partitions:
        if time.monotonic() > ends_at:
            note(f"{size:,} partitions: no time is left")
            continue
        with tempfile.TemporaryDirectory(prefix="kraft-scale-") as scratch:
            stalls = StallFile(Path(scratch) / "stalls")
            cluster: BenchmarkCluster
            scrapes: Mapping[int, str] = {}
            if kafka:
                cluster = KafkaCluster(find_jars(), Path(scratch), {})
            else:
                cluster = ours = KraftCluster(Path(scratch), {})
                scrapes = ours.scrapes
            try:
                nodes = Nodes(
                    cluster, size, replication, stalls, scrapes, note, settle_s,
                    ends_at=ends_at, only_deaths=only_deaths,
                )  # fmt: skip
                measure(nodes)
            except GaveUp as failure:
                note(f"{size:,} partitions: gave up, {failure}")
            finally:
                cluster.close()
            found[size] = nodes.figures
            for stall in nodes.profile:
                note(stall)
    system = "Apache Kafka" if kafka else "kraft"
    return [
        f"Three nodes of {system}, replication factor {replication}:\n\n" + table(NODES, "partitions", found)
    ]


def main(
    partitions: Annotated[list[int] | None, typer.Option(help="A size; may be given again.")] = None,
    brokers: Annotated[list[int] | None, typer.Option(help="A size; may be given again.")] = None,
    replication: Annotated[int, typer.Option(min=1, max=3)] = 1,
    processes: Annotated[bool, typer.Option("--real", help="Real nodes.")] = False,
    kafka: Annotated[bool, typer.Option("--kafka", help="With --real: Apache Kafka's.")] = False,
    only_deaths: Annotated[
        bool, typer.Option("--only-deaths", help="With --real: of a broker and of the controller.")
    ] = False,
    settle: Annotated[float, typer.Option(help="With --real: seconds after a step, at most.")] = PATIENCE_S,
    minutes: Annotated[float, typer.Option(help="With --real: of all sizes, at most.")] = math.inf,
    results: Annotated[Path, typer.Option(help="Where the tables are written.")] = RESULTS,
) -> None:
    """Measure what more partitions and more brokers cost."""
    sizes = partitions or PARTITIONS
    if processes:
        ends_at = time.monotonic() + 60 * minutes
        parts = real(
            sizes, replication, kafka=kafka, only_deaths=only_deaths, settle_s=settle, ends_at=ends_at
        )
    else:
        parts = simulated(sizes, replication, brokers or BROKERS)
    text = "\n".join(parts)
    print(text)
    results.mkdir(parents=True, exist_ok=True)
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    (results / f"{stamp}-scale.md").write_text(text)


if __name__ == "__main__":
    typer.run(main)
