"""What the demo shows: progress bars (plain lines where there is no terminal), and the final account."""

from __future__ import annotations

import time
from collections.abc import Mapping, Sequence

from rich.console import Console
from rich.progress import BarColumn, MofNCompleteColumn, Progress, TextColumn, TimeElapsedColumn
from rich.table import Table

from examples.flights.audit import AckAudit, DelayMeans, Problems, ReadAudit
from examples.flights.isr import Event
from examples.flights.stream import Outcome

REFRESH_S = 0.1
PLAIN_LINES = 10


class ProgressScreen:
    """Three bars on a terminal, else a line at every tenth."""

    def __init__(self, console: Console, total: int) -> None:
        self._console = console
        self._total = total
        self._shown_at = 0.0
        self._tenths = 0
        self._bars = Progress(
            TextColumn("{task.description:>6}"),
            BarColumn(bar_width=50),
            MofNCompleteColumn(),
            TimeElapsedColumn(),
            console=console,
            disable=not console.is_terminal,
        )
        self._tasks = [self._bars.add_task(name, total=total) for name in ("sent", "acked", "read")]

    def __enter__(self) -> ProgressScreen:
        self._bars.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._bars.stop()

    def progress(self, sent: int, acked: int, read: int) -> None:
        if not self._console.is_terminal:
            tenths = read * PLAIN_LINES // self._total
            if tenths > self._tenths:
                self._tenths = tenths
                self._console.print(f"sent {sent:,}, acked {acked:,}, read {read:,} of {self._total:,}")
            return
        now = time.monotonic()
        if now - self._shown_at < REFRESH_S and read < self._total:
            return
        self._shown_at = now
        for task, completed in zip(self._tasks, (sent, acked, read), strict=True):
            self._bars.update(task, completed=completed)

    def tell(self, text: str) -> None:
        self._console.print(text, highlight=False)


def print_delays(console: Console, delays: DelayMeans, carriers: Mapping[str, str]) -> None:
    table = Table(title="Mean arrival delay per carrier, from the consumed records", title_justify="left")
    table.add_column("carrier")
    table.add_column("flights that arrived", justify="right")
    table.add_column("minutes", justify="right")
    for carrier, flights, mean in delays.rows():
        table.add_row(f"{carrier}  {carriers.get(carrier, '')}", f"{flights:,}", f"{mean:.2f}")
    console.print(table)


def print_timeline(console: Console, events: Sequence[Event], started: float) -> None:
    console.print("ISR timeline (seconds since the first flight)")
    for event in sorted(events):
        console.print(f"  {event.at - started:8.3f}  {event.text}", highlight=False)


def print_account(
    console: Console,
    outcome: Outcome,
    acks: AckAudit,
    reads: ReadAudit,
    memory_bytes: Mapping[int, int],
) -> None:
    table = Table(show_header=False)
    rate = outcome.bytes_sent / 1e6 / outcome.seconds
    led = ", ".join(map(str, outcome.led_by_victim))
    lines = {
        "sent": f"{outcome.sent:,}",
        "acknowledged": f"{acks.records:,}",
        "read": f"{reads.records:,}, never read {reads.missing():,}",
        "took": f"{outcome.seconds:.1f} s, {rate:.1f} MB/s, {outcome.sent / outcome.seconds:,.0f} flights/s",
        "killed": f"node {outcome.victim}, leader of partitions {led}",
        "longest gap between acks there": f"{acks.longest_gap_s * 1e3:,.0f} ms",
        "every replica back in sync": "yes" if outcome.isr_full else "NO",
        "memory": ", ".join(
            f"node {node}: {size / 1e6:.0f} MB" for node, size in sorted(memory_bytes.items())
        ),
    }
    for name, value in lines.items():
        table.add_row(name, value)
    console.print(table)


def print_verdict(console: Console, problems: Problems) -> None:
    if not problems.count:
        console.print("[green]Every flight was acknowledged, and read exactly once and in order per key.")
        return
    console.print(f"[red]{problems.count:,} things went wrong:")
    for text in problems.shown:
        console.print(f"  {text}", highlight=False, markup=False)
