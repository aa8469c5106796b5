"""`make bench`: rounds that alternate between kraft and Apache Kafka, then the table.

Every round starts each system afresh (so start, idle memory and a cold cluster are measured each time),
warms it up, runs the workloads, and ends it. Nothing but the loopback is used, every load is bounded by
time and bytes, and every process is ended by its pid, also after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import signal
import sys
import tempfile
import time
from collections.abc import Callable
from dataclasses import replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from confluent_kafka import Producer
from rich.console import Console

from benchmarks import report
from benchmarks.clients import ClientFailed
from benchmarks.cluster import BenchmarkCluster, SystemSkipped
from benchmarks.kafka import KafkaCluster, find_jars
from benchmarks.machine import file_write_cpu_s_per_gb, machine
from benchmarks.page import main as put_into_page
from benchmarks.session import FULL, MB, SMOKE, Scale, Session
from benchmarks.workloads import PARTITIONS, WORKLOADS, WorkloadFailed, memory, warm_up

RESULTS = Path("bench-results")
FIRST_ACK_TIMEOUT_S = 120.0
COPIES = 3
SETTINGS = {"group.initial.rebalance.delay.ms": "3000"}
"""Of both systems. It is Kafka's default; `kraft up` does not wait, and the first members of a thousand would
be a group of their own."""
S_PER_MINUTE = 60.0

console = Console(width=None if sys.stdout.isatty() else 150)
MakeCluster = Callable[[Path], BenchmarkCluster]


def first_ack(session: Session, started_at: float) -> None:
    """From the first spawn to the first acks=all acknowledgement, the topic's creation included."""
    topic = session.new_topic(PARTITIONS)
    acked_at: list[float] = []
    producer = Producer({"bootstrap.servers": session.cluster.bootstrap, "acks": "all", "linger.ms": 0})
    producer.produce(
        topic,
        b"first",
        on_delivery=lambda error, _: None if error else acked_at.append(time.monotonic()),
    )
    producer.flush(FIRST_ACK_TIMEOUT_S)
    if not acked_at:
        raise TimeoutError(f"no acknowledgement within {FIRST_ACK_TIMEOUT_S:.0f} s of the start")
    session.record("start", acked_at[0] - started_at)
    session.admin.delete_topic(topic)


def measure(make: MakeCluster, directory: Path, scale: Scale, names: list[str]) -> Session:
    """One round of one system."""
    cluster = make(directory)
    try:
        session = Session(cluster, scale, note=lambda text: console.print(f"    {text}", highlight=False))
        session.record("floor", COPIES * file_write_cpu_s_per_gb(directory))
        first_ack(session, cluster.start())
        memory(session)
        console.print(f"  {cluster.name}: started, warming up")
        warm_up(session)
        for name in names:
            started = time.monotonic()
            try:
                WORKLOADS[name](session)
            except (WorkloadFailed, ClientFailed, TimeoutError) as failure:
                session.failures.append(f"{cluster.name}: {name}: {failure}")
                console.print(f"  [red]{session.failures[-1]}")
                continue
            console.print(f"  {cluster.name}: {name} ({time.monotonic() - started:.0f} s)")
        session.note_memory()
        session.record("memory.loaded", session.rss_peak / MB)
        return session
    finally:
        cluster.close()


def systems(no_kafka: bool, fast: Path | None) -> dict[str, MakeCluster]:
    """What can be measured here, by name."""
    from benchmarks.ours import KraftCluster, compiled_python

    made: dict[str, MakeCluster] = {report.OURS: lambda directory: KraftCluster(directory, SETTINGS)}
    if fast is not None:
        try:
            python = compiled_python(fast)
        except SystemSkipped as reason:
            raise typer.BadParameter(str(reason)) from None
        made[report.COMPILED] = lambda directory: KraftCluster(directory, SETTINGS, python)
    if no_kafka:
        return made
    try:
        jars = find_jars()
    except SystemSkipped as reason:
        console.print(f"Apache Kafka is left out: {reason}")
        return made
    made[report.THEIRS] = lambda directory: KafkaCluster(jars, directory, SETTINGS)
    return made


def end_on_signal(number: int, _frame: object) -> None:
    """SIGTERM as Ctrl-C: unwind, so that every `finally` ends its processes."""
    sys.exit(128 + number)


def main(
    quick: Annotated[bool, typer.Option(help="A smoke of every workload, kraft only.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Just this workload; may be given again.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Rounds per system.")] = 3,
    minutes: Annotated[float, typer.Option(help="No further round that may last beyond so many.")] = 60.0,
    seconds: Annotated[
        float, typer.Option(min=0.5, max=60, help="How long each load lasts.")
    ] = FULL.throughput_s,
    no_kafka: Annotated[bool, typer.Option("--no-kafka", help="Leave Apache Kafka out.")] = False,
    only_kafka: Annotated[bool, typer.Option("--only-kafka", help="Leave kraft out.")] = False,
    fast: Annotated[
        Path | None, typer.Option(help="A checkout where `make fast` was run: measured in the same rounds.")
    ] = None,
    section: Annotated[str, typer.Option(help="Put the table there in docs/PERFORMANCE.md.")] = "",
    directory: Annotated[Path | None, typer.Option(help="Where the nodes keep their data.")] = None,
    results: Annotated[Path, typer.Option(help="Where the table and the samples are written.")] = RESULTS,
) -> None:
    """Measure kraft beside Apache Kafka on this machine."""
    unknown = [name for name in only or () if name not in WORKLOADS]
    if unknown:
        raise typer.BadParameter(f"unknown workload {unknown[0]}; there are {', '.join(WORKLOADS)}")
    signal.signal(signal.SIGTERM, end_on_signal)
    makers = systems(no_kafka or quick, fast)
    if only_kafka:
        makers.pop(report.OURS)
    names = [name for name in WORKLOADS if name in (only or WORKLOADS)]
    scale = SMOKE if quick else replace(FULL, throughput_s=seconds, latency_s=seconds)
    samples: dict[str, dict[str, list[float]]] = {name: {} for name in makers}
    failures: list[str] = []
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    facts = machine()
    began, longest_s = time.monotonic(), 0.0
    with tempfile.TemporaryDirectory(prefix="kraft-bench-", dir=directory) as scratch:
        for number in range(1, 2 if quick else rounds + 1):
            round_began = time.monotonic()
            if round_began - began + longest_s > minutes * S_PER_MINUTE:
                break
            # The order alternates by round, so that neither system always follows the other.
            for name in sorted(makers, reverse=bool(number % 2)):
                console.print(f"round {number}: {name}")
                session = measure(makers[name], Path(scratch), scale, names)
                failures += session.failures
                for metric, values in session.samples.items():
                    samples[name].setdefault(metric, []).extend(values)
                page = report.write(results, stamp, samples, facts)
            longest_s = max(longest_s, time.monotonic() - round_began)
    report.print_table(console, samples, facts)
    console.print(f"written to {page} and {page.with_suffix('.json')}")
    if section:
        put_into_page(section, page)
    for failure in failures:
        console.print(f"[red]failed: {failure}")
    if failures:
        sys.exit(1)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
