"""Kafka Connect carries lines from file to topic to file, standalone and as a cluster that is exact."""

from __future__ import annotations

import json
import subprocess
import urllib.request
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import pytest

from kraft.local.free_ports import HOST
from tests.compat.conftest import MakeTopic
from tests.support.clients.transactions import committed
from tests.support.kafka.kafka_tools import JVM
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.long, pytest.mark.row("U2")]

CLI = "org.apache.kafka.connect.cli."
SOURCE = {"connector.class": "FileStreamSource", "tasks.max": "1"}
SINK = {
    "connector.class": "FileStreamSink",
    "tasks.max": "1",
    "consumer.override.auto.offset.reset": "earliest",
}


class Worker:
    """Settings and how to run with them."""

    def __init__(self, jars: Path, directory: Path, bootstrap: str, port: int) -> None:
        self._jars = jars
        self._directory = directory
        self.url = f"http://{HOST}:{port}/connectors"
        self._settings = {
            "bootstrap.servers": bootstrap,
            "listeners": f"http://{HOST}:{port}",
            "key.converter": "org.apache.kafka.connect.storage.StringConverter",
            "value.converter": "org.apache.kafka.connect.storage.StringConverter",
            "plugin.discovery": "service_load",
            "plugin.path": str(directory / "none"),
            "offset.flush.interval.ms": "500",
        }

    @contextmanager
    def running(
        self, main: str, settings: Mapping[str, str], *connectors: Mapping[str, str]
    ) -> Iterator[subprocess.Popen[bytes]]:
        """It ends with a signal, or was killed."""
        files = [self._properties("worker", {**self._settings, **settings})]
        files += [self._properties(each["name"], each) for each in connectors]
        with (self._directory / "connect.log").open("wb") as log:
            process = subprocess.Popen(
                ["java", *JVM, "-cp", f"{self._jars}/*", CLI + main, *files],
                stdout=log, stderr=subprocess.STDOUT,
            )  # fmt: skip
        try:
            yield process
        finally:
            process.terminate()
            try:
                process.wait(PATIENCE_S)
            finally:
                process.kill()
                process.wait()

    def _properties(self, name: str, settings: Mapping[str, str]) -> str:
        path = self._directory / f"{name}.properties"
        path.write_text("".join(f"{key}={value}\n" for key, value in settings.items()))
        return str(path)

    def put(self, connector: Mapping[str, str]) -> None:
        """Make a connector, over REST."""
        request = urllib.request.Request(
            f"{self.url}/{connector['name']}/config",
            json.dumps(connector).encode(), {"Content-Type": "application/json"}, method="PUT",
        )  # fmt: skip
        with urllib.request.urlopen(request, timeout=PATIENCE_S):
            pass

    def serves(self) -> bool:
        try:
            with urllib.request.urlopen(self.url, timeout=PATIENCE_S):
                return True
        except OSError:
            return False


@pytest.fixture
def worker(
    application_jars: Path, tmp_path: Path, bootstrap: str, free_ports: Callable[[int], list[int]]
) -> Worker:
    return Worker(application_jars, tmp_path, bootstrap, free_ports(1)[0])


def test_standalone_from_file_to_file(worker: Worker, make_topic: MakeTopic, tmp_path: Path) -> None:
    topic = make_topic()
    lines, copy = tmp_path / "lines", tmp_path / "copy"
    wanted = "".join(f"line {n}\n" for n in range(100))
    lines.write_text(wanted)
    source = {**SOURCE, "name": "source", "file": str(lines), "topic": topic}
    sink = {**SINK, "name": f"sink-{topic}", "file": str(copy), "topics": topic}
    settings = {"offset.storage.file.filename": str(tmp_path / "offsets")}

    def is_copied() -> bool:
        return copy.exists() and copy.read_text() == wanted

    with worker.running("ConnectStandalone", settings, source, sink):
        wait_until(is_copied, "all lines are copied")
    wanted += "written while it was down\n"
    lines.write_text(wanted)
    with worker.running("ConnectStandalone", settings, source, sink):
        wait_until(is_copied, "it goes on where it stood")


@pytest.mark.row("P4", "L4")
def test_a_killed_worker_writes_each_line_once(
    worker: Worker, make_topic: MakeTopic, bootstrap: str, tmp_path: Path
) -> None:
    """Its own topics are compacted; the source's records and its offsets are one transaction."""
    topic = make_topic()
    lines = tmp_path / "lines"
    settings = {
        "group.id": f"connect-{topic}",
        "exactly.once.source.support": "enabled",
        **{f"{each}.storage.topic": f"{topic}-{each}" for each in ("config", "offset", "status")},
        "offset.storage.partitions": "5",
        "session.timeout.ms": "6000", "heartbeat.interval.ms": "500", "rebalance.timeout.ms": "6000",
        "scheduled.rebalance.max.delay.ms": "0",
    }  # fmt: skip
    source = {
        **SOURCE, "name": "source", "file": str(lines), "topic": topic, "exactly.once.support": "required",
    }  # fmt: skip
    wanted = [f"line {n}" for n in range(300)]

    def append(part: list[str]) -> None:
        with lines.open("a") as file:
            file.write("".join(f"{line}\n" for line in part))

    append(wanted[:100])
    with worker.running("ConnectDistributed", settings) as process:
        wait_until(worker.serves, "Connect answers")
        worker.put(source)
        wait_until(lambda: committed(bootstrap, topic), "the first lines")
        append(wanted[100:200])
        process.kill()
    append(wanted[200:])
    with worker.running("ConnectDistributed", settings):
        wait_until(lambda: wanted[-1] in committed(bootstrap, topic), "the last line")
    assert committed(bootstrap, topic) == sorted(wanted)
