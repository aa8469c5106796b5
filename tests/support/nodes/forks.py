"""Nodes and commands forked from a process that has loaded what they need: that is most of a start, and of
their first requests.

    LocalCluster.launch, run_kraft -> Forks, in a test's process
    {"module", "arguments", ...}  ->  python -m tests.support.nodes.forks, which forks  ->  its pid
    {"poll": pid}                 ->                                      ->  its exit code, or null

One line of JSON each way, one request at a time. The process ends with its standard input. That nodes start
by themselves, too, is tested where the command line starts them (tests/cli, tests/robustness, tests/users).
"""

from __future__ import annotations

import contextlib
import gc
import json
import os
import runpy
import select
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Collection, Iterator, Sequence
from importlib import import_module
from pathlib import Path
from typing import Any, Final

import typer

from kraft.api.table import ROWS
from kraft.local.local_cluster import START_PATIENCE_S, STOP_PATIENCE_S, LocalCluster
from kraft.wire.bridge import load_schemas
from kraft.wire.decoding import reader_of
from kraft.wire.encoding import writer_of
from kraft.wire.schemas import REQUEST, RESPONSE, MessageId, versions_of
from tests.support.nodes.patience import be_patient
from tests.support.waiting import PATIENCE_S

PRELOADED: Final = (
    "kraft.node.serve", "kraft.monitoring.log_lines", "kraft.http.server", "aiohttp.web", "uvloop",
    "kraft.cli.main", "kraft.cli.survey", "kraft.cli.doctor_questions", "kraft.peers.blocking_client",
    "chaos.live.control", "confluent_kafka.admin", "kraft.cli.notice", "kraft.cli.node_http",
)  # fmt: skip
"""Also what they import only when they use it."""
POLL_S: Final = 0.005
LONG_POLL_S: Final = 0.5


class Fork:
    """A process, with as much of `subprocess.Popen` as is asked for."""

    def __init__(self, forks: Forks, pid: int) -> None:
        self._forks = forks
        self.pid = pid
        self.returncode: int | None = None

    def poll(self) -> int | None:
        if self.returncode is None:
            self.returncode = self._forks.ask({"poll": self.pid})
        return self.returncode

    def wait(self, timeout: float | None = None) -> int:
        deadline = None if timeout is None else time.monotonic() + timeout
        while (code := self.poll()) is None:
            if deadline is not None and time.monotonic() > deadline:
                raise TimeoutError(f"process {self.pid} goes on")
            _sleep_while_it_runs(self.pid)
        return code

    def send_signal(self, number: signal.Signals) -> None:
        if self.poll() is None:
            os.kill(self.pid, number)


def _sleep_while_it_runs(pid: int) -> None:
    """For a moment at most."""
    try:
        fd = os.pidfd_open(pid)
    except (AttributeError, OSError):  # a system without pidfds, or it has just ended
        time.sleep(POLL_S)
        return
    try:
        poll = select.poll()
        poll.register(fd, select.POLLIN)
        poll.poll(LONG_POLL_S * 1000)
    finally:
        os.close(fd)


class Forks:
    """The process that is forked, seen from a test's."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self._one_at_a_time = threading.Lock()

    def launch(self, module: str, arguments: Sequence[str], output: Path) -> Fork:
        """A node: a process group of its own, without input."""
        return self._fork(module, arguments, (Path(os.devnull), output, output), group=True, patient=False)

    def run(
        self, module: str, arguments: Sequence[str], stdin: str, *, patient: bool
    ) -> subprocess.CompletedProcess[str]:
        """To its end."""
        with tempfile.TemporaryDirectory() as directory:
            files = given, out, err = tuple(Path(directory) / name for name in ("in", "out", "err"))
            given.write_text(stdin)
            code = self._fork(module, arguments, files, group=False, patient=patient).wait()
            return subprocess.CompletedProcess(arguments, code, out.read_text(), err.read_text())

    def _fork(
        self, module: str, arguments: Sequence[str], files: Sequence[Path], *, group: bool, patient: bool
    ) -> Fork:
        wanted = {
            "module": module, "arguments": list(arguments), "files": [str(path) for path in files],
            "group": group, "patient": patient, "environment": dict(os.environ), "directory": os.getcwd(),
        }  # fmt: skip
        return Fork(self, self.ask(wanted))

    def ask(self, wanted: dict[str, Any]) -> Any:
        with self._one_at_a_time:
            if self._process is None:
                self._process = subprocess.Popen(
                    [sys.executable, "-m", "tests.support.nodes.forks"],
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
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
            self._process = None


FORKS: Final = Forks()


def run_kraft(*arguments: str, stdin: str = "", patient: bool = True) -> subprocess.CompletedProcess[str]:
    """`kraft ARGUMENTS`, as a process. `patient`: it waits for nodes as tests do; a test of what is said of
    silent nodes wants it as users have it."""
    return FORKS.run("kraft", arguments, stdin, patient=patient)


@contextlib.contextmanager
def forked_nodes() -> Iterator[None]:
    """Local clusters of this process fork their nodes. Not detached ones: these shall outlive us. Where a
    test says nothing else, nodes have as long to start and to stop as everything has in tests."""
    usual = LocalCluster.launch, LocalCluster.wait_ready, LocalCluster.stop
    usual_launch, usual_wait_ready, usual_stop = usual

    def launch(cluster: LocalCluster, module: str, arguments: Sequence[str], output: Path) -> Any:
        if cluster.owner != os.getpid():
            return usual_launch(cluster, module, arguments, output)
        return FORKS.launch(module, arguments, output)

    def wait_ready(
        cluster: LocalCluster, patience_s: float = START_PATIENCE_S, started: Collection[int] = ()
    ) -> None:
        usual_wait_ready(cluster, PATIENCE_S if patience_s == START_PATIENCE_S else patience_s, started)

    def stop(cluster: LocalCluster, node_id: int, patience_s: float = STOP_PATIENCE_S) -> None:
        usual_stop(cluster, node_id, PATIENCE_S if patience_s == STOP_PATIENCE_S else patience_s)

    LocalCluster.launch = launch  # type: ignore[method-assign]
    LocalCluster.wait_ready = wait_ready  # type: ignore[method-assign]
    LocalCluster.stop = stop  # type: ignore[method-assign]
    try:
        yield
    finally:
        LocalCluster.launch, LocalCluster.wait_ready, LocalCluster.stop = usual  # type: ignore[method-assign]
        FORKS.close()


# The process that is forked -----------------------------------------------------------------------------


def serve() -> None:
    for module in PRELOADED:
        import_module(module)
    _load_schemas()
    _build_commands()
    gc.collect()
    gc.freeze()  # what a child collects is its own
    for line in sys.stdin.buffer:
        wanted = json.loads(line)
        print(json.dumps(_ended(wanted["poll"]) if "poll" in wanted else _fork(wanted)), flush=True)


def _load_schemas() -> None:
    """Of all APIs and versions, for who asks and for who answers: more than a second, of which each node
    would spend a part."""
    for api in ROWS.values():
        for version in range(api.min_version, api.max_version + 1):
            if version in versions_of(api.key):
                load_schemas(api.key, version)
                writer_of(MessageId(api.key, REQUEST), version)
                reader_of(MessageId(api.key, RESPONSE), version)


def _build_commands() -> None:
    """Their tree, which each would build of typer's declarations; to parse a word imports the rest."""
    from kraft.cli import main

    tree = typer.main.get_command(main.cli)
    tree.make_context("kraft", ["topic"])
    main.cli = tree  # type: ignore[assignment]


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
    """As `subprocess.Popen` and `python -m` would have made it."""
    if wanted["group"]:
        os.setpgid(0, 0)
    os.chdir(wanted["directory"])
    os.environ.clear()
    os.environ.update(wanted["environment"])
    for number, path in enumerate(wanted["files"]):
        fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_APPEND, 0o666)
        os.dup2(fd, number)
        os.close(fd)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115 - without what the other has read ahead
    sys.argv[1:] = wanted["arguments"]
    if wanted["patient"]:
        be_patient()
    try:
        runpy.run_module(wanted["module"], run_name="__main__", alter_sys=True)
    except SystemExit as end:
        return end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:  # noqa: BLE001 - as the interpreter does
        sys.excepthook(*sys.exc_info())
        return 1
    return 0


if __name__ == "__main__":
    serve()
