"""Nodes forked from a process that has imported what they need: importing it is most of a start.

    in a test's process: LocalCluster.launch -> Forks.launch -> Fork
    {"module", "arguments", "output", ...}  ->  python -m tests.forks, which forks  ->  its pid
    {"poll": pid}                           ->                                      ->  its exit code, or null

One line of JSON each way, one request at a time. The process ends with its standard input. That nodes start
by themselves, too, is tested where the command line starts them (tests/cli, tests/trouble, tests/users).
"""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

from kraft.local_cluster import NODE_PROGRAM, LocalCluster

PRELOADED: Final = (*NODE_PROGRAM, "kraft.serve", "chaos.live.process")
POLL_S: Final = 0.005


class Fork:
    """A node's process, with as much of `subprocess.Popen` as a local cluster asks for."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self._forks = forks
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask({"poll": self.pid})
        return self.returncode

    def wait(self) -> int:
        while (code := self.poll()) is None:
            time.sleep(POLL_S)
        return code


class Forks:
    """The process that is forked, seen from a test's."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()

    def launch(self, module: str, arguments: Sequence[str], output: Path) -> Fork:
        wanted = {
            "module": module, "arguments": list(arguments), "output": str(output),
            "environment": dict(os.environ), "directory": os.getcwd(),
        }  # fmt: skip
        return Fork(self, self.ask(wanted))

    def ask(self, wanted: dict[str, Any]) -> Any:
        with self._one_at_a_time:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.forks"], stdin=subprocess.PIPE, stdout=subprocess.PIPE
                )
            assert self._process.stdin is not None
            assert self._process.stdout is not None
            self._process.stdin.write(json.dumps(wanted).encode() + b"\n")
            self._process.stdin.flush()
            answer = self._process.stdout.readline()
            assert answer, "the process that is forked has ended; its standard error says why"
            return json.loads(answer)

    def close(self) -> None:
        if self._process is not None:
            self._process.communicate()


@contextlib.contextmanager
def forked_nodes() -> Iterator[None]:
    """Local clusters of this process fork their nodes. Not detached ones: these shall outlive us."""
    forks, usual = Forks(), LocalCluster.launch

    def launch(cluster: LocalCluster, module: str, arguments: Sequence[str], output: Path) -> Any:
        if cluster.owner != os.getpid():
            return usual(cluster, module, arguments, output)
        return forks.launch(module, arguments, output)

    LocalCluster.launch = launch  # type: ignore[method-assign]
    try:
        yield
    finally:
        LocalCluster.launch = usual  # type: ignore[method-assign]
        forks.close()


# The process that is forked -----------------------------------------------------------------------------


def serve() -> None:
    for module in PRELOADED:
        import_module(module)
    for line in sys.stdin.buffer:
        wanted = json.loads(line)
        print(json.dumps(_ended(wanted["poll"]) if "poll" in wanted else _fork(wanted)), flush=True)


def _ended(pid: int) -> int | None:
    found, status = os.waitpid(pid, os.WNOHANG)
    return os.waitstatus_to_exitcode(status) if found else None


def _fork(wanted: dict[str, Any]) -> int:
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            code = _become(wanted)
        finally:
            with contextlib.suppress(OSError):
                sys.stdout.flush()
                sys.stderr.flush()
            os._exit(code)
    return pid


def _become(wanted: dict[str, Any]) -> int:
    """As `subprocess.Popen` and the interpreter would have made it."""
    os.setpgid(0, 0)
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    nothing = os.open(os.devnull, os.O_RDONLY)
    output = os.open(wanted["output"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o666)
    for given, taken in ((nothing, 0), (output, 1), (output, 2)):
        os.dup2(given, taken)
    os.close(nothing)
    os.close(output)
    sys.argv = [wanted["module"], *wanted["arguments"]]
    try:
        return int(import_module(wanted["module"]).main(wanted["arguments"]))
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else 1
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        return 1


if __name__ == "__main__":
    serve()
