"""Where a node's time goes under one workload: `python -m benchmarks.profile produce-1k`.

Starts three kraft nodes, warms them up, runs the workload again and again while py-spy samples one node
from outside (the node runs as it is, no tracing), and prints the functions by their own time and by the
time below them, of the event loop's thread. py-spy is not among the dependencies: install it into any
environment and have it on the PATH (`pip install py-spy`). The stacks are kept for a flame graph.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import tempfile
import threading
from collections import Counter
from collections.abc import Iterable
from dataclasses import replace
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.ours import KraftCluster
from benchmarks.session import FULL, Session
from benchmarks.workloads import WORKLOADS, warm_up

RESULTS = Path("bench-results")
SAMPLES_PER_S = 500
OTHER_THREAD = "Thread._bootstrap"


def count_functions(stacks: Iterable[str]) -> tuple[Counter[str], Counter[str]]:
    """Samples by function, on top of the stack and anywhere on it, from collapsed stacks.

    A line is "outer (file:line);inner (file:line) COUNT"; lines of one function are put together.
    """
    own: Counter[str] = Counter()
    below: Counter[str] = Counter()
    for line in stacks:
        stack, _, count = line.rpartition(" ")
        functions = [_without_line(frame) for frame in stack.split(";")]
        own[functions[-1]] += int(count)
        for function in set(functions):
            below[function] += int(count)
    return own, below


def _without_line(frame: str) -> str:
    name, separator, _ = frame.rpartition(":")
    return name + ")" if separator else frame


def print_counts(console: Console, title: str, counts: Counter[str], total: int, rows: int) -> None:
    table = Table(title=title, title_justify="left")
    table.add_column("share", justify="right")
    table.add_column("function")
    for function, count in counts.most_common(rows):
        table.add_row(f"{100 * count / total:.1f} %", function)
    console.print(table)


def run_until(session: Session, workload: str, stop: threading.Event) -> None:
    while not stop.is_set():
        WORKLOADS[workload](session)


def main(
    workload: Annotated[str, typer.Argument(help="A workload of the benchmark.")],
    node: Annotated[int, typer.Option(help="The node to look at.")] = 1,
    seconds: Annotated[int, typer.Option(min=1, max=300, help="How long to sample.")] = 10,
    native: Annotated[
        bool, typer.Option(help="Show C functions too (uvloop, kio, the kernel's edge).")
    ] = False,
    rows: Annotated[int, typer.Option(help="Functions to print.")] = 30,
) -> None:
    """Profile one kraft node under a workload."""
    if workload not in WORKLOADS:
        raise typer.BadParameter(f"unknown workload; there are {', '.join(WORKLOADS)}")
    py_spy = shutil.which("py-spy")
    if py_spy is None:
        raise typer.BadParameter("py-spy is not on the PATH; `pip install py-spy` in any environment")
    console = Console(width=None if sys.stdout.isatty() else 150)
    RESULTS.mkdir(exist_ok=True)
    output = RESULTS / f"profile-{workload}-node-{node}.txt"
    with tempfile.TemporaryDirectory(prefix="kraft-profile-") as scratch:
        cluster = KraftCluster(Path(scratch), {})
        try:
            cluster.start()
            session = Session(cluster, replace(FULL, warm_up_s=2.0, kills=1), note=console.print)
            warm_up(session)
            stop = threading.Event()
            load = threading.Thread(target=run_until, args=(session, workload, stop))
            load.start()
            command = [py_spy, "record", "--pid", str(cluster.pids()[node]), "--duration", str(seconds)]
            command += ["--rate", str(SAMPLES_PER_S), "--format", "raw", "--output", str(output)]
            try:
                subprocess.run(
                    [*command, *(["--native"] if native else [])],
                    check=True,
                    timeout=seconds + 60,
                    stdout=subprocess.DEVNULL,
                )
            finally:
                stop.set()
                load.join()
        finally:
            cluster.close()
    # Other threads mostly wait, which the sampler cannot always distinguish from work.
    stacks = [line for line in output.read_text().splitlines() if not line.startswith(OTHER_THREAD)]
    own, below = count_functions(stacks)
    total = max(1, sum(own.values()))
    print_counts(console, "own time", own, total, rows)
    print_counts(console, "with all that it calls", below, total, rows)
    console.print(f"collapsed stacks for a flame graph: {output}")


if __name__ == "__main__":
    typer.run(main)
