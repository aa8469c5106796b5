"""Apache Kafka as the software of a node: the same properties file, the same directories."""

from __future__ import annotations

import re
import shlex
import subprocess
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from tests.support.kafka.kafka_tools import PATIENCE_S

JVM: Final = ("-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
"""A small JVM that starts fast."""
LOGGING: Final = """\
appender.out.type=Console
appender.out.name=out
appender.out.layout.type=PatternLayout
appender.out.layout.pattern=%d %p %m (%c)%n
rootLogger.level=INFO
rootLogger.appenderRef.out.ref=out
"""
_RELEASE: Final = ("--release-version", "4.1")
"""The newest features that ours have: a newer Apache Kafka would begin with its own."""
_BAD: Final = re.compile(r"^\S+ \S+ (ERROR|FATAL) ")
_HARMLESS: Final = (
    # A replica that a reassignment brings: among Apache Kafka's alone, too.
    re.compile(r"Expected partition .* to exist, but it was missing. Creating"),
    # Apache Kafka 4.3 reads a consumer group's record that an older one wrote, or ours.
    re.compile(r"Size of assignment epochs 0 is not equal to partitions"),
    # The machine is busy.
    re.compile(r"Exceptionally slow controller event"),
    re.compile(r"controller event queue overloaded"),
    re.compile(r"The write event .* timed out after \d+ms. Ignoring it"),
    re.compile(r"Unexpected error REQUEST_TIMED_OUT in UPDATE_RAFT_VOTER response"),
)


@dataclass(frozen=True)
class KafkaNode:
    """A `Software` (support/nodes/role_nodes.py)."""

    jars: Sequence[Path]
    directory: Path
    """Of our own, for the configuration of its log."""
    formatted_with: Sequence[str] = ()
    """More arguments of kafka-storage.sh."""

    def launch(self, properties: Path, log: Path) -> subprocess.Popen[bytes]:
        with log.open("ab") as output:
            return subprocess.Popen(
                [*self._java(), "kafka.Kafka", str(properties)],
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    def format(self, properties: Path, cluster_id: str, users: Sequence[str]) -> None:
        """As kafka-storage.sh does it."""
        arguments = ["format", "-t", cluster_id, "-c", str(properties), *_RELEASE, *self.formatted_with]
        scram = [word for user in users for word in ("--add-scram", user)]
        command = [*self._java(), "kafka.tools.StorageTool", *arguments, *scram]
        done = subprocess.run(command, capture_output=True, text=True, timeout=PATIENCE_S, check=False)
        assert done.returncode == 0, done.stdout + done.stderr

    @property
    def command(self) -> str:
        """For a shell, before the name of a main class."""
        return shlex.join(self._java())

    def _java(self) -> list[str]:
        logging = self.directory / "log4j2.properties"
        logging.write_text(LOGGING)
        classpath = ":".join(f"{each}/*" for each in self.jars)
        return ["java", *JVM, f"-Dlog4j2.configurationFile={logging}", "-cp", classpath]


def errors_in(log: Path) -> list[str]:
    """The lines of an Apache Kafka's log that say ERROR, and mean it. One that was not started has no log."""
    lines = log.read_text(errors="replace").splitlines() if log.exists() else []
    return [line for line in lines if _BAD.match(line) and not any(each.search(line) for each in _HARMLESS)]
