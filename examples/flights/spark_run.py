"""The query's process seen from the demo: started, followed, killed in mid-stream, started again.

`look` is called from the demo's one loop and never waits: the process's lines are read as far as they are
there, and a killed process is waited for by looking again.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final, Protocol

import psutil

from examples.flights.audit import Problems
from examples.flights.plan import DayDelay, QueryJob
from examples.flights.stream import StreamFailed
from kraft.peers.held_signals import signals_wait

PROGRAM: Final = "examples.flights.query"
QUERIES: Final = 2  # streaming queries in that program
AHEAD: Final = 1 / 2
KILLED_AFTER: Final = 1 / 3
"""Of all flights."""
PATIENCE_S: Final = 300.0
"""How long it may report nothing while it has work."""
END_PATIENCE_S: Final = 30.0
POLL_S: Final = 0.02
CHUNK: Final = 1 << 16  # bytes

BUSY: Final = "Python worker failed to connect back"
"""Spark gives a Python process ten seconds to start, and fails the query where the machine is too busy."""
RACE: Final = "java.io.OptionalDataException"
"""Seen once, from inside Spark: one of its two queries sent off a map that the other filled, it seems."""
FORGIVEN: Final = {
    BUSY: "the machine is too busy to start its workers",
    RACE: "its two queries have met in one map",
}
"""Spark's own errors, and how they are reported: the query continues from its checkpoint."""
RESTARTS: Final = 10


class SparkScreen(Protocol):
    """Where progress is shown."""

    def progress(self, **done: int) -> None: ...

    def tell(self, text: str) -> None: ...

    def mark(self, name: str) -> None: ...


@dataclass
class SparkOutcome:
    """What became of the query."""

    killed_at: int | None = None
    """Flights in finished micro-batches by then."""
    resumed_in_batch: int | None = None
    down_s: float = 0.0
    """From the kill to the first micro-batch that was finished after it."""
    seconds: float = 0.0
    """From the first flight's send to the last one's arrival in Spark."""
    rows: list[DayDelay] = field(default_factory=list)
    """Of the Parquet files."""
    files: int = 0
    files_ignored: int = 0
    """Left behind by the kill; the sink's log does not have them."""


class SparkRun:
    """One query from its first start to its end."""

    def __init__(self, job: QueryJob, total: int, screen: SparkScreen, note: Callable[[str], None]) -> None:
        self._job = job
        self._log = Path(job.path("spark.log"))
        self._total = total
        self._screen = screen
        self._note = note
        self._process: subprocess.Popen[bytes] | None = None
        self._dying: list[psutil.Process] = []
        self._unread = b""
        self._started = False
        self._restarts = 0
        self._read: dict[str, int] = {}
        self._late = 0
        self._told_at = self._began = self._killed_at = time.monotonic()
        self.outcome = SparkOutcome()

    @property
    def read(self) -> int:
        """Flights in finished micro-batches of both queries."""
        return min(self._read.values()) if len(self._read) == QUERIES else 0

    # -- the demo's steps -------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and wait until the queries run."""
        self._spawn()
        self._look_until(lambda: self._started)
        self._began = time.monotonic()

    def look(self) -> None:
        """Take its reports, and kill it when that is due."""
        if self._process is None:
            self._restart()
            return
        self._take_lines()
        if time.monotonic() - self._told_at > PATIENCE_S and self.read < self._total:
            raise StreamFailed(f"Spark told nothing for {PATIENCE_S:.0f} s: see {self._log}")
        is_due = self.read >= KILLED_AFTER * self._total
        if self.outcome.killed_at is None and is_due and self._is_in_micro_batch():
            self.outcome.killed_at = self.read
            self._killed_at = time.monotonic()
            self._kill()
            self._screen.mark("spark")
            self._tell(f"Spark query killed in a micro-batch ({self.read:,} flights done)")

    def may_send(self, number: int) -> bool:
        """The stream stays only so far ahead of it: there are flights left when it is killed and
        restarted."""
        return number < self.read + AHEAD * self._total

    def wait_for_all(self) -> None:
        """Until every flight is in a finished micro-batch."""
        self._look_until(lambda: self.read >= self._total)

    def wait_for_result(self) -> None:
        """Until the last windows are closed and the rows are here."""
        self._look_until(lambda: bool(self.outcome.rows))

    def check(self, problems: Problems) -> None:
        """What can be wrong besides the rows themselves."""
        if self.outcome.killed_at is None:
            problems.add("the Spark query was not killed")
        elif not self.outcome.resumed_in_batch:
            problems.add("the Spark query began again instead of going on from its checkpoint")
        if self._late:
            problems.add(f"Spark dropped {self._late:,} rows as late")

    def close(self) -> None:
        """End it, whatever state it is in."""
        self._kill()
        psutil.wait_procs(self._dying, END_PATIENCE_S)

    def _look_until(self, done: Callable[[], bool]) -> None:
        while not done():
            self.look()
            time.sleep(POLL_S)

    # -- the process ------------------------------------------------------------------------------

    def _spawn(self) -> None:
        with signals_wait(), self._log.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", PROGRAM, self._job.json()],
                stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for us; we end it
            )  # fmt: skip
        os.set_blocking(_output(self._process), False)
        self._unread = b""
        self._told_at = time.monotonic()

    def _kill(self) -> None:
        """SIGKILL to the query, its JVM, and Spark's Python workers (a process group of their own)."""
        if self._process is None:
            return
        with contextlib.suppress(psutil.NoSuchProcess):
            query = psutil.Process(self._process.pid)
            self._dying = [query, *query.children(recursive=True)]
        for process in self._dying:
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self._process.communicate()
        self._process = None

    def _restart(self) -> None:
        """As soon as nothing of the killed one is left."""
        _, alive = psutil.wait_procs(self._dying, timeout=0)
        if not alive:
            self._spawn()
            self._tell("Spark query started again from its checkpoint")

    def _is_in_micro_batch(self) -> bool:
        """Whether each query has planned one that is not done, by its checkpoint."""
        checkpoints = list(Path(self._job.path("checkpoint")).iterdir())
        return all(_newest(each / "offsets") > _newest(each / "commits") for each in checkpoints)

    # -- its reports ------------------------------------------------------------------------------

    def _take_lines(self) -> None:
        while self._process is not None and not self.outcome.rows:
            try:
                chunk = os.read(_output(self._process), CHUNK)
            except BlockingIOError:
                return
            if not chunk:
                raise StreamFailed(f"the Spark query ended by itself: see {self._log}")
            *lines, self._unread = (self._unread + chunk).split(b"\n")
            for line in lines:
                self._hear(json.loads(line))

    def _hear(self, told: dict[str, Any]) -> None:
        self._told_at = time.monotonic()
        match told["event"]:
            case "started":
                self._started = True
            case "progress":
                self._progress(told)
            case "parquet":
                self.outcome.rows = [DayDelay(*row) for row in told["rows"]]
                self.outcome.files = told["files"]
                self.outcome.files_ignored = told["on_disk"] - told["files"]
            case "failed":
                self._failed(told["why"])

    def _progress(self, told: dict[str, Any]) -> None:
        self._read[told["query"]] = told["read"]
        self._late += told["late"]
        if self.outcome.killed_at is not None and self.outcome.resumed_in_batch is None:
            self.outcome.resumed_in_batch = told["batch"]
            self.outcome.down_s = time.monotonic() - self._killed_at
        if not self.outcome.seconds and self.read >= self._total:
            self.outcome.seconds = time.monotonic() - self._began
        self._screen.progress(spark=min(self.read, self._total))

    def _failed(self, why: str) -> None:
        reason = next((told for sign, told in FORGIVEN.items() if sign in why), None)
        if reason is None or self._restarts == RESTARTS:
            raise StreamFailed(f"the Spark query failed ({self._log}): {why.splitlines()[0]}")
        self._restarts += 1
        self._kill()
        self._tell(f"Spark query failed: {reason}")

    def _tell(self, text: str) -> None:
        self._note(text)
        self._screen.tell(text)


def _output(process: subprocess.Popen[bytes]) -> int:
    assert process.stdout is not None
    return process.stdout.fileno()


def _newest(log: Path) -> int:
    """The last micro-batch in a log of a checkpoint."""
    return max((int(entry.name) for entry in log.glob("[0-9]*") if entry.name.isdigit()), default=-1)
