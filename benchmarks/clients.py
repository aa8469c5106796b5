"""Client processes: started with one job, awaited with a limit, ended by their pid whatever happens."""

from __future__ import annotations

import contextlib
import dataclasses
import json
import subprocess
import sys
from collections.abc import Iterator
from typing import Any, ClassVar, Protocol

from kraft.peers.held_signals import signals_wait

START_AND_DRAIN_S = 90.0  # what any job may take beyond its requested duration


class Job(Protocol):
    """A dataclass of client/, whose fields travel as JSON."""

    __dataclass_fields__: ClassVar[dict[str, Any]]


class ClientFailed(RuntimeError):
    """A client process ended without a result."""


class ClientProcess:
    """One `python -m benchmarks.client` at work."""

    def __init__(self, name: str, job: Job) -> None:
        self._name = name
        self._process = subprocess.Popen(
            [sys.executable, "-m", "benchmarks.client"],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
            start_new_session=True,
        )
        self.tell(json.dumps({"job": name, **dataclasses.asdict(job)}))

    def tell(self, line: str) -> None:
        """One more line for its standard input."""
        assert self._process.stdin is not None
        try:
            self._process.stdin.write(line + "\n")
            self._process.stdin.flush()
        except BrokenPipeError:
            raise ClientFailed(f"the {self._name} client ended early") from None

    def wait_for(self, word: str) -> None:
        """Wait until it has written `word` to its standard output; anything else means that it has ended."""
        assert self._process.stdout is not None
        if self._process.stdout.readline().strip() != word:
            raise ClientFailed(f"the {self._name} client ended before it was {word}")

    def result(self, timeout_s: float) -> dict[str, Any]:
        """What the job returned."""
        try:
            output, _ = self._process.communicate(timeout=timeout_s)
        except subprocess.TimeoutExpired:
            raise ClientFailed(f"the {self._name} client did not finish within {timeout_s:.0f} s") from None
        if self._process.returncode != 0:
            raise ClientFailed(f"the {self._name} client ended with code {self._process.returncode}")
        result: dict[str, Any] = json.loads(output)
        return result

    def end(self) -> None:
        if self._process.poll() is None:
            self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                with contextlib.suppress(OSError):
                    pipe.close()


@contextlib.contextmanager
def client(name: str, job: Job) -> Iterator[ClientProcess]:
    """A client process that is ended with the block."""
    process: ClientProcess | None = None
    try:
        with signals_wait():  # what is ended below is what was started
            process = ClientProcess(name, job)
        yield process
    finally:
        if process is not None:
            process.end()


def run_client(name: str, job: Job, seconds: float) -> dict[str, Any]:
    """Run one job of `seconds`, and return its result."""
    with client(name, job) as process:
        return process.result(seconds + START_AND_DRAIN_S)
