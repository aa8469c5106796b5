"""Apache Kafka's own shell tools, by their main classes."""

from __future__ import annotations

import subprocess
from collections.abc import Sequence
from pathlib import Path
from typing import Final

TOOLS: Final = "org.apache.kafka.tools."
JVM: Final = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A small JVM that starts fast."""
PATIENCE_S: Final = 120


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
        done = subprocess.run(
            [*self._command(main), *arguments],
            input=stdin, capture_output=True, text=True, timeout=PATIENCE_S, check=False,
        )  # fmt: skip
        assert done.returncode == 0, done.stdout + done.stderr
        assert "Exception" not in done.stderr, done.stderr
        return done.stdout

    def _command(self, main: str) -> Sequence[str]:
        """`TopicCommand` is short for org.apache.kafka.tools.TopicCommand."""
        full = main if main.startswith(("kafka.", "org.")) else TOOLS + main
        return ["java", *JVM, "-cp", f"{self._jars}/*", full]
