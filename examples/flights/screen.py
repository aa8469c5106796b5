"""What the demo shows: progress bars (plain lines where there is no terminal), and the final account."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import MofNCompleteColumn, Progress, ProgressColumn, Task, TextColumn, TimeElapsedColumn
from rich.table import Table
from rich.text import Text

from examples.flights.audit import AckAudit, DelayMeans, Problems, ReadAudit
from examples.flights.isr import IsrEvent
from examples.flights.results import SecondTopic
from examples.flights.spark_run import SparkOutcome
from examples.flights.stream import StreamOutcome

REFRESH_S = 0.1
PLAIN_LINES = 10
BAR_WIDTH = 50


class MarkedBar(ProgressColumn):
    """A bar with a cross wherever something was killed."""

    def __init__(self) -> None:
        super().__init__()
        self.marks: dict[str, list[float]] = defaultdict(list)
        """By the bar's name, as a part of the whole."""

    def render(self, task: Task) -> Text:
        filled = int(BAR_WIDTH * task.completed / (task.total or 1))
        crosses = {int(BAR_WIDTH * at) for at in self.marks[task.description]}
        bar = Text("".join("✗" if place in crosses else "━" for place in range(BAR_WIDTH)), "grey30")
        bar.stylize("green", 0, filled)
        for place in crosses:
            bar.stylize("bold red", place, place + 1)
        return bar


class ProgressScreen:
    """A bar for each count on a terminal, else a line at every tenth of what the slowest has."""

    def __init__(self, console: Console, total: int, names: Sequence[str]) -> None:
        self._console = console
        self._total = total
        self._done = dict.fromkeys(names, 0)
        self._shown_at = 0.0
        self._tenths = 0
        self._marked = MarkedBar()
        self._bars = Progress(
            TextColumn("{task.description:>6}"),
            self._marked,
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks = {name: self._bars.add_task(name, total=total) for name in names}

    def __enter__(self) -> ProgressScreen:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def progress(self, **done: int) -> None:
        """How many flights each of the named counts has come to."""
        self._done |= done
        if not self._console.is_terminal:
            self._print_tenths()
            return
        now = time.monotonic()
        if now - self._shown_at < REFRESH_S and min(done.values()) < self._total:
            return
        self._shown_at = now
        for name, count in self._done.items():
            self._bars.update(self._tasks[name], completed=count)

    def _print_tenths(self) -> None:
        tenths = min(self._done.values()) * PLAIN_LINES // self._total
        if tenths > self._tenths:
            self._tenths = tenths
            counts = ", ".join(f"{name} {count:,}" for name, count in self._done.items())
            self._console.print(f"{counts} of {self._total:,}", highlight=False)

    def tell(self, text: str) -> None:
        """Something happened."""
        self._console.print(text, highlight=False)

    def mark(self, name: str) -> None:
        """Something was killed, where the named count is now."""
        self._marked.marks[name].append(self._done[name] / self._total)


def print_delays(console: Console, delays: DelayMeans, carriers: Mapping[str, str]) -> None:
    table = Table(title="Mean arrival delay per carrier, from the consumed records", title_justify="left")
    table.add_column("carrier")
    table.add_column("flights that arrived", justify="right")
    table.add_column("minutes", justify="right")
    for carrier, flights, mean in delays.rows():
        table.add_row(f"{carrier}  {carriers.get(carrier, '')}", f"{flights:,}", f"{mean:.2f}")
    console.print(table)


def print_timeline(console: Console, events: Sequence[IsrEvent], started: float) -> None:
    console.print("Timeline (seconds since the first flight)")
    for event in sorted(events):
        console.print(f"  {event.at - started:8.3f}  {event.text}", highlight=False)


def print_account(
    console: Console,
    outcome: StreamOutcome,
    acks: AckAudit,
    reads: ReadAudit,
    memory_bytes: Mapping[int, int],
) -> None:
    rate = outcome.bytes_sent / 1e6 / outcome.seconds
    flights_per_s = outcome.sent / outcome.seconds
    led = ", ".join(map(str, outcome.led_by_victim))
    _print_lines(
        console,
        {
            "sent": f"{outcome.sent:,}",
            "acknowledged": f"{acks.records:,}",
            "read": f"{reads.records:,}, never read {reads.missing():,}",
            "took": f"{outcome.seconds:.1f} s, {rate:.1f} MB/s, {flights_per_s:,.0f} flights/s"
            + (f"; {outcome.waited_s:.1f} s more, waiting for Spark" if outcome.waited_s else ""),
            "killed": f"node {outcome.victim}, leader of partitions {led}",
            "longest gap between acks there": f"{acks.longest_gap_s * 1e3:,.0f} ms",
            "every replica back in sync": "yes" if outcome.isr_full else "NO",
            "memory": ", ".join(
                f"node {node}: {size / 1e6:.0f} MB" for node, size in sorted(memory_bytes.items())
            ),
        },
    )


def print_spark_account(console: Console, outcome: SparkOutcome, topic: SecondTopic, flights: int) -> None:
    running_s = outcome.seconds - outcome.down_s
    _print_lines(
        console,
        {
            "read by Spark": f"{flights:,} flights in {running_s:.1f} s, {flights / running_s:,.0f}/s,"
            " by each of two queries",
            "killed": f"after {outcome.killed_at:,} flights; went on {outcome.down_s:.1f} s later"
            f" with micro-batch {outcome.resumed_in_batch}",
            "topic delays": f"{topic.records:,} records, the latest of {len(topic.latest):,} keys;"
            f" {topic.doubled:,} doubled by the micro-batch that ran again",
            "Parquet": f"{len(outcome.rows):,} rows in {outcome.files} files; {outcome.files_ignored} more,"
            " left by the kill, are not in the sink's log",
        },
    )


def _print_lines(console: Console, lines: Mapping[str, str]) -> None:
    table = Table(show_header=False)
    for name, value in lines.items():
        table.add_row(name, value)
    console.print(table)


def print_verdict(console: Console, problems: Problems, rows: int | None) -> None:
    """`rows`: how many Spark wrote, None where it was left out."""
    if problems.count:
        console.print(f"[red]{problems.count:,} things went wrong:")
        for text in problems.shown:
            console.print(f"  {text}", highlight=False, markup=False)
        return
    console.print("[green]Every flight was acknowledged, and read exactly once and in order per key.")
    if rows is None:
        console.print("Spark's part was not run.")
    else:
        console.print(
            f"[green]Spark's {rows:,} rows, in the topic and in Parquet, equal the file's, row for row."
        )
