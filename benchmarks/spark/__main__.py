"""Rounds that alternate between the systems, each with a driver of its own on the same cluster of three.

    python -m benchmarks.spark                       # three rounds, about twelve minutes
    python -m benchmarks.spark --quick --rounds 1    # a smoke of everything, minutes

The topics are filled once. Every load is bounded, nothing but the loopback is used, and every process is
ended by its pid, also after Ctrl-C.
"""

from __future__ import annotations

import contextlib
import json
import signal
import sys
import tempfile
import time
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console

from benchmarks.cluster import BenchmarkCluster, SystemSkipped
from benchmarks.machine import machine
from benchmarks.ours import KraftCluster
from benchmarks.spark import lines
from benchmarks.spark.data import SHAPES, Filled, fill
from benchmarks.spark.measures import FULL, MEASURES, QUICK, Round, SparkScale, WrongAnswer, memory, start
from benchmarks.spark.processes import DriverFailed, compile_bytecode, driver
from benchmarks.spark.systems import System, beside_the_jar, newest
from spark_connector.java import JavaNotFound, java_environment

RESULTS = Path("bench-results")

console = Console(width=None if sys.stdout.isatty() else 170)


def systems(no_jar: bool) -> list[System]:
    """What can be measured here."""
    if no_jar:
        return [newest()]
    try:
        return [*beside_the_jar(), newest()]
    except SystemSkipped as reason:
        console.print(f"Spark's own source is left out: {reason}")
        return [newest()]


def fill_topics(cluster: BenchmarkCluster, scale: SparkScale) -> dict[str, Filled]:
    filled = {}
    for shape in SHAPES:
        began = time.monotonic()
        filled[shape.name] = fill(cluster.bootstrap, shape, scale.rows[shape.name])
        console.print(f"{shape.title}: {filled[shape.name].rows:,} rows in {time.monotonic() - began:.0f} s")
    return filled


def measure(round_: Round, names: Sequence[str]) -> list[str]:
    """One round of one system; what failed. Without its driver there is nothing more to measure."""
    failures = []
    for name, each in (("start", start), *((name, MEASURES[name]) for name in names), ("memory", memory)):
        began = time.monotonic()
        try:
            each(round_)
        except (WrongAnswer, DriverFailed, TimeoutError) as failure:
            failures.append(f"{round_.system.name}: {name}: {failure}")
            console.print(f"  {failures[-1]}", style="red", markup=False)
            if isinstance(failure, DriverFailed):
                break
            continue
        console.print(f"  {round_.system.name}: {name} ({time.monotonic() - began:.0f} s)")
    return failures


def write(
    results: Path, stamp: str, samples: lines.Samples, made: Sequence[System], facts: Mapping[str, str]
) -> Path:
    """`stamp`-spark.json with every sample and `stamp`-spark.md with the table; returns the latter."""
    results.mkdir(parents=True, exist_ok=True)
    everything = {"machine": dict(facts), "systems": [each.title for each in made], "samples": samples}
    (results / f"{stamp}-spark.json").write_text(json.dumps(everything, indent=1))
    page = results / f"{stamp}-spark.md"
    page.write_text(lines.markdown(samples, made, facts))
    return page


def end_on_signal(number: int, _frame: object) -> None:
    """SIGTERM as Ctrl-C: unwind, so that every `finally` ends its processes."""
    sys.exit(128 + number)


def main(
    quick: Annotated[bool, typer.Option(help="A tenth of everything.")] = False,
    only: Annotated[list[str] | None, typer.Option(help="Just this measure; may be given again.")] = None,
    rounds: Annotated[int, typer.Option(min=1, max=20, help="Rounds per system.")] = 3,
    no_jar: Annotated[bool, typer.Option("--no-jar", help="Leave Spark's own source out.")] = False,
    directory: Annotated[Path | None, typer.Option(help="Where nodes and Spark keep their data.")] = None,
    results: Annotated[Path, typer.Option(help="Where the table and the samples are written.")] = RESULTS,
) -> None:
    """Measure kraft's Spark source and sink beside Spark's own."""
    unknown = [name for name in only or () if name not in MEASURES]
    if unknown:
        raise typer.BadParameter(f"unknown measure {unknown[0]}; there are {', '.join(MEASURES)}")
    signal.signal(signal.SIGTERM, end_on_signal)
    try:
        java_environment()
    except JavaNotFound as reason:
        console.print(f"Nothing can be measured here: {reason}")
        return
    names = [name for name in MEASURES if name in (only or MEASURES)]
    made = systems(no_jar)
    samples: dict[str, dict[str, list[float]]] = {each.name: {} for each in made}
    failures: list[str] = []
    stamp = datetime.now(UTC).strftime("%Y%m%d-%H%M%S")
    facts = machine()
    scale = QUICK if quick else FULL
    with tempfile.TemporaryDirectory(prefix="kraft-bench-spark-", dir=directory) as scratch:
        cluster = KraftCluster(Path(scratch), {})
        try:
            cluster.start()
            topics = fill_topics(cluster, scale)
            for system in made:
                compile_bytecode(system, Path(scratch) / system.name)
            for number in range(1, rounds + 1):
                # The order alternates by round, so that none always follows another.
                for system in made if number % 2 else reversed(made):
                    console.print(f"round {number}: {system.title}")
                    work = Path(scratch) / f"{system.name}-{number}"
                    work.mkdir()
                    with driver(system, work) as process:
                        round_ = Round(number, system, process, cluster, topics, scale, work, note)
                        failures += measure(round_, names)
                    for name, values in round_.samples.items():
                        samples[system.name].setdefault(name, []).extend(values)
                    page = write(results, stamp, samples, made, facts)
        finally:
            cluster.close()
    lines.print_table(console, samples, made)
    console.print(f"written to {page} and {page.with_suffix('.json')}")
    for failure in failures:
        console.print(f"failed: {failure}", style="red", markup=False)
    if failures:
        sys.exit(1)


def note(text: str) -> None:
    console.print(f"    {text}", highlight=False, markup=False)


if __name__ == "__main__":
    with contextlib.suppress(KeyboardInterrupt):
        typer.run(main)
        sys.exit(0)
    sys.exit(130)
