"""The query's process seen from the demo: started, followed, killed in mid-stream, started again.

`look` is called from the demo's one loop and never waits: the process's lines are read as far as they are
there.
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
from kraft.local_cluster import signals_wait

START_PATIENCE_S: Final = 120.0
PROGRESS_PATIENCE_S: Final = 120.0
"""How long a query that has something to do may tell nothing."""
END_PATIENCE_S: Final = 30.0
POLL_S: Final = 0.02
CHUNK: Final = 1 << 16  # bytes
QUERY: Final = "examples.flights.query"
QUERIES: Final = 2  # streaming queries in that process


class Screen(Protocol):
    """Where progress is shown."""

    def progress(self, **done: int) -> None: ...

    def tell(self, text: str, mark: str) -> None: ...


@dataclass
class SparkOutcome:
    """What became of the query."""

    killed_at: int | None = None
    """Flights read by then."""
    resumed_in_batch: int | None = None
    down_s: float = 0.0
    """From the kill to the first micro-batch after it."""
    seconds: float = 0.0
    """From the first flight's way to the last one's arrival in Spark."""
    rows: list[DayDelay] = field(default_factory=list)
    """Of the Parquet files."""
    files: int = 0
    files_ignored: int = 0
    """Left behind by the kill; the sink's log does not have them."""


class SparkRun:
    """One query from its first start to its end."""

    def __init__(self, job: QueryJob, total: int, screen: Screen, note: Callable[[str], None]) -> None:
        self._command = [sys.executable, "-m", QUERY, job.json()]
        self._log = Path(job.path("spark.log"))
        self._total = total
        self._screen = screen
        self._note = note
        self._process: subprocess.Popen[bytes] | None = None
        self._dying: list[psutil.Process] = []
        self._unread = b""
        self._read: dict[str, int] = {}
        self._late = 0
        self._told_at = time.monotonic()
        self._killed_at = 0.0
        self._started = False
        self._began = 0.0
        self.outcome = SparkOutcome()

    # -- the process ------------------------------------------------------------------------------

    def start(self) -> None:
        """Start it and wait until the queries run."""
        self._spawn()
        deadline = time.monotonic() + START_PATIENCE_S
        while not self._started:
            if time.monotonic() > deadline:
                raise StreamFailed(f"Spark did not start within {START_PATIENCE_S:.0f} s: see {self._log}")
            time.sleep(POLL_S)
            self._take_lines()
        self._began = time.monotonic()

    def close(self) -> None:
        """End it, whatever state it is in."""
        self._kill()
        psutil.wait_procs(self._dying, END_PATIENCE_S)

    def _kill(self) -> None:
        """SIGKILL to the query, its JVM, and Spark's Python workers, which are a process group of their own."""
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

    def _spawn(self) -> None:
        with signals_wait(), self._log.open("ab") as log:
            self._process = subprocess.Popen(
                self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log,
                start_new_session=True,  # Ctrl-C in a terminal is for us; we end it
            )  # fmt: skip
        os.set_blocking(self._out, False)
        self._unread = b""
        self._told_at = time.monotonic()

    @property
    def _out(self) -> int:
        assert self._process is not None
        assert self._process.stdout is not None
        return self._process.stdout.fileno()

    # -- what it tells ----------------------------------------------------------------------------

    def look(self) -> None:
        """Take what it has told, then look whether it is to be killed."""
        if self._process is None:
            self._restart()
            return
        self._take_lines()
        if self.outcome.killed_at is None and 2 * self.read >= self._total:
            self.outcome.killed_at = self.read
            self._killed_at = time.monotonic()
            self._kill()
            self._tell(f"the Spark query killed (it had read {self.read:,} flights)")
            return
        late = time.monotonic() - self._told_at > PROGRESS_PATIENCE_S
        if late and self.read < self._total:
            raise StreamFailed(f"Spark told nothing for {PROGRESS_PATIENCE_S:.0f} s: see {self._log}")

    @property
    def read(self) -> int:
        """Flights in finished micro-batches of both queries."""
        return min(self._read.values()) if len(self._read) == QUERIES else 0

    def _take_lines(self) -> None:
        while True:
            try:
                chunk = os.read(self._out, CHUNK)
            except BlockingIOError:
                return
            if not chunk and self.outcome.rows:
                return  # that was all
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
                raise StreamFailed(f"the Spark query failed: {told['why'].splitlines()[0]}")

    def _progress(self, told: dict[str, Any]) -> None:
        self._read[told["query"]] = told["read"]
        self._late += told["late"]
        if self.outcome.killed_at is not None and self.outcome.resumed_in_batch is None:
            self.outcome.resumed_in_batch = told["batch"]
            self.outcome.down_s = time.monotonic() - self._killed_at
        if not self.outcome.seconds and self.read >= self._total:
            self.outcome.seconds = time.monotonic() - self._began
        self._screen.progress(spark=min(self.read, self._total))

    def _restart(self) -> None:
        """As soon as nothing of the killed one is left, which nobody waits for."""
        _, alive = psutil.wait_procs(self._dying, timeout=0)
        if not alive:
            self._spawn()
            self._tell("the Spark query started again from its checkpoint")

    def _tell(self, text: str) -> None:
        self._note(text)
        self._screen.tell(text, mark="spark")

    # -- the end ----------------------------------------------------------------------------------

    def wait_for_all(self) -> None:
        """Until every flight is in a finished micro-batch."""
        while self.read < self._total:
            self.look()
            time.sleep(POLL_S)

    def wait_for_result(self) -> SparkOutcome:
        """Until the last windows are closed and the rows are here."""
        while not self.outcome.rows:
            self.look()
            time.sleep(POLL_S)
        return self.outcome

    def check(self, problems: Problems) -> None:
        """What can be wrong besides the rows themselves."""
        if self.outcome.killed_at is None:
            problems.add("the Spark query was not killed")
        elif not self.outcome.resumed_in_batch:
            problems.add("the Spark query began anew instead of going on from its checkpoint")
        if self._late:
            problems.add(f"Spark dropped {self._late:,} rows as late")
