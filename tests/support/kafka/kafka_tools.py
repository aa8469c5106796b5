"""Apache Kafka's own shell tools, by their main classes.

One JVM per worker runs them one after the other (`ToolHost` in tests/compat/java): starting one for
each would cost more than all that they do. A few need the end of their JVM to end themselves, and there
is no such host without a Java compiler: then it is one JVM for each.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import queue
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Final

TOOLS: Final = "org.apache.kafka.tools."
JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A small JVM that starts fast."""
PATIENCE_S: Final = 300
HOST: Final = "ToolHost"
SOURCE: Final = Path(__file__).parents[2] / "compat" / "java" / f"{HOST}.java"


ALONE: Final = frozenset({f"{TOOLS}VerifiableProducer", "org.apache.kafka.shell.MetadataShell"})
"""The one tells its result in a hook of the JVM's end, the other takes the JVM's own standard input."""


@dataclass(frozen=True)
class Call:
    """One run of a tool."""

    main: str
    arguments: Sequence[str]
    stdin: str


@dataclass(frozen=True)
class ToolOutput:
    """What became of it."""

    status: int
    out: str
    err: str


class KafkaTools:
    """`tools(main, *arguments)`: what the tool printed; it must end well."""

    def __init__(self, jars: Path, bootstrap: str = "") -> None:
        self._jars = jars
        self._bootstrap = bootstrap

    def __call__(self, main: str, *arguments: str, stdin: str = "") -> str:
        """`--bootstrap-server` is put first, where a cluster is named."""
        where = ("--bootstrap-server", self._bootstrap) if self._bootstrap else ()
        return self.plain(main, *where, *arguments, stdin=stdin)

    def plain(self, main: str, *arguments: str, stdin: str = "") -> str:
        done = self.run(main, *arguments, stdin=stdin)
        assert done.status == 0, done.out + done.err
        assert "Exception" not in done.err, done.err
        return done.out

    def run(self, main: str, *arguments: str, stdin: str = "") -> ToolOutput:
        """However it ends. `TopicCommand` is short for org.apache.kafka.tools.TopicCommand."""
        call = Call(main if main.startswith(("kafka.", "org.")) else TOOLS + main, arguments, stdin)
        if call.main in ALONE or shutil.which("javac") is None:
            return _run_alone(self._jars, call)
        return _host(self._jars).run(call)


def _run_alone(jars: Path, call: Call) -> ToolOutput:
    done = subprocess.run(
        ["java", *JVM, "-cp", f"{jars}/*", call.main, *call.arguments],
        input=call.stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
    )  # fmt: skip
    return ToolOutput(done.returncode, done.stdout, done.stderr)


class _ToolsJvm:
    """The JVM. It ends with its standard input, at the latest when this process does."""

    def __init__(self, jars: Path) -> None:
        with tempfile.TemporaryDirectory() as directory:
            classpath = f"{directory}{os.pathsep}{jars}/*"
            subprocess.run(["javac", "-cp", classpath, "-d", directory, str(SOURCE)], check=True)
            self._process = subprocess.Popen(
                ["java", *JVM, "-cp", classpath, HOST], stdin=subprocess.PIPE, stdout=subprocess.PIPE
            )
            self._replies: queue.SimpleQueue[bytes] = queue.SimpleQueue()
            threading.Thread(target=self._read, daemon=True).start()
            self.run(Call(f"{TOOLS}TopicCommand", ["--version"], ""))  # before the directory is gone

    def run(self, call: Call) -> ToolOutput:
        assert self._process.stdin is not None
        self._process.stdin.write(json.dumps(asdict(call)).encode() + b"\n")
        self._process.stdin.flush()
        try:
            reply = self._replies.get(timeout=PATIENCE_S)
        except queue.Empty:
            self.end()
            raise
        assert reply, f"{call.main} has ended the JVM"
        return ToolOutput(**json.loads(reply))

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            self._replies.put(line)
        self._replies.put(b"")

    def end(self) -> None:
        _host.cache_clear()
        with self._process:
            self._process.kill()


@functools.cache
def _host(jars: Path) -> _ToolsJvm:
    host = _ToolsJvm(jars)
    atexit.register(host.end)
    return host
