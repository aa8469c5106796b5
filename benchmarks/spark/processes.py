"""A driver and all processes that it started: they get jobs, are measured from outside, and ended by pid.

The tree is the driver, its JVM, and Spark's Python processes below that. Times of processes that have ended
are in those of their parents, so that the sum over the tree is all that was ever used.
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import psutil

from benchmarks.spark.systems import System
from kraft.peers.held_signals import signals_wait

WATCH_INTERVAL_S = 0.1
END_PATIENCE_S = 20.0
LOG_TAIL_LINES = 15
IMPORTED = (
    "benchmarks.spark.driver",
    "pyspark.sql.worker.create_data_source",
    "pyspark.sql.worker.lookup_data_sources",
    "pyspark.sql.worker.plan_data_source_read",
    "pyspark.sql.worker.write_into_data_source",
    "pyspark.sql.streaming.python_streaming_source_runner",
    "pyspark.worker",
    "spark_connector.reader",
    "spark_connector.sink",
    "confluent_kafka",
)


class DriverFailed(RuntimeError):
    """It ended, or did not answer; with the end of its log."""


class DriverProcess:
    """One `python -m benchmarks.spark.driver`."""

    def __init__(self, system: System, directory: Path) -> None:
        self._log_path = directory / "driver.log"
        self._directory = directory
        with self._log_path.open("ab") as log:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "benchmarks.spark.driver", system.format, *map(str, system.jars)],
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                text=True,
                start_new_session=True,
                env=environment(system, directory) | {"SPARK_LOCAL_DIRS": str(directory)},
            )
        self._root = psutil.Process(self._process.pid)
        self._watch = _Watch(self._root)

    def started(self, timeout_s: float) -> dict[str, Any]:
        """Wait for the session."""
        return self._answer(timeout_s)

    def run(self, job: str, timeout_s: float, **arguments: Any) -> dict[str, Any]:
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(json.dumps({"job": job, **arguments}) + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise DriverFailed(f"the driver ended before {job}: {self._log()}") from None
        return self._answer(timeout_s)

    def cpu_s(self) -> float:
        """User and system time of the whole tree."""
        return sum(_cpu_s(process) for process in _tree(self._root))

    @property
    def worker_rss(self) -> int:
        """The most memory that one of Spark's Python processes was seen to hold."""
        return self._watch.worker_rss

    def memory(self) -> int:
        """What all hold together now, each shared page counted once."""
        return sum(_memory(process) for process in _tree(self._root))

    def end(self) -> None:
        """It stops its session when its input ends; what is left after a while is killed."""
        self._watch.stop()
        tree = _tree(self._root)
        for pipe in (self._process.stdin, self._process.stdout):
            with contextlib.suppress(OSError):
                if pipe is not None:
                    pipe.close()
        _, alive = psutil.wait_procs(tree, timeout=END_PATIENCE_S)
        for process in alive:
            with contextlib.suppress(psutil.NoSuchProcess):  # psutil recognizes a reused pid
                process.kill()
        self._process.wait()

    def _answer(self, timeout_s: float) -> dict[str, Any]:
        assert self._process.stdout is not None
        too_late = threading.Timer(timeout_s, self._process.kill)
        too_late.start()
        try:
            line = self._process.stdout.readline()
        finally:
            too_late.cancel()
        if not line:
            raise DriverFailed(f"no answer within {timeout_s:.0f} s, or it failed: {self._log()}")
        answer: dict[str, Any] = json.loads(line)
        return answer

    def _log(self) -> str:
        lines = self._log_path.read_text(errors="replace").splitlines()
        return "\n".join(lines[-LOG_TAIL_LINES:])


def environment(system: System, directory: Path) -> dict[str, str]:
    """Bytecode is kept beside the data of all rounds: an installation has it, an environment may forbid it,
    and Spark starts a Python for every question. Without it half of these would go into compiling."""
    kept = {"PYTHONDONTWRITEBYTECODE": "", "PYTHONPYCACHEPREFIX": str(directory.parent / "bytecode")}
    return {**os.environ, **system.environment(), **kept}


def compile_bytecode(system: System, directory: Path) -> None:
    """Of what the driver and Spark's Python processes import."""
    imports = f"import {', '.join(IMPORTED)}"
    subprocess.run([sys.executable, "-c", imports], env=environment(system, directory), check=True)


@contextlib.contextmanager
def driver(system: System, directory: Path) -> Iterator[DriverProcess]:
    """A driver that is ended with the block."""
    process: DriverProcess | None = None
    try:
        with signals_wait():  # what is ended below is what was started
            process = DriverProcess(system, directory)
        yield process
    finally:
        if process is not None:
            process.end()


def _tree(root: psutil.Process) -> list[psutil.Process]:
    try:
        return [root, *root.children(recursive=True)]
    except psutil.NoSuchProcess:
        return []


def _cpu_s(process: psutil.Process) -> float:
    try:
        times = process.cpu_times()
    except psutil.NoSuchProcess:
        return 0.0
    return float(times.user + times.system + times.children_user + times.children_system)


def _memory(process: psutil.Process) -> int:
    try:
        memory = process.memory_full_info()
    except psutil.NoSuchProcess:
        return 0
    return int(getattr(memory, "pss", memory.uss))  # only Linux counts shared pages


class _Watch:
    """Looks at the memory of the Python processes of a tree, again and again."""

    def __init__(self, root: psutil.Process) -> None:
        self.worker_rss = 0
        self._root = root
        self._over = threading.Event()
        self._thread = threading.Thread(target=self._look_on, daemon=True)
        self._thread.start()

    def stop(self) -> None:
        self._over.set()
        self._thread.join()

    def _look_on(self) -> None:
        while not self._over.wait(WATCH_INTERVAL_S):
            for process in _tree(self._root)[1:]:
                with contextlib.suppress(psutil.NoSuchProcess):
                    if process.name().startswith("python"):
                        self.worker_rss = max(self.worker_rss, process.memory_info().rss)
