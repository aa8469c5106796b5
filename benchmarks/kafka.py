"""Apache Kafka as a `BenchmarkCluster`: three combined nodes from Maven's jars, each on its own JVM.

The jars come from the directory named by KRAFT_KAFKA_JARS, or are fetched once by Maven into the user's
cache. JVM flags are those of Kafka's own start script (G1, 1 GB heap); the configuration is Kafka's
default but for replication, so that both systems keep three copies.
"""

from __future__ import annotations

import base64
import os
import shutil
import tempfile
import time
import uuid
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cluster import NODES, NodeProcess, SystemSkipped
from benchmarks.maven import Artifact, fetch_jars
from kraft.local.free_ports import HOST, Ports
from kraft.peers.held_signals import signals_wait

KAFKA_VERSION = "4.1.0"
KAFKA = Artifact("org.apache.kafka", "kafka_2.13", KAFKA_VERSION)
FORMAT_TIMEOUT_S = 120
JVM_FLAGS = (
    "-Xms1g",
    "-Xmx1g",
    "-server",
    "-XX:+UseG1GC",
    "-XX:MaxGCPauseMillis=20",
    "-XX:InitiatingHeapOccupancyPercent=35",
    "-XX:+ExplicitGCInvokesConcurrent",
    "-Djava.awt.headless=true",
)


def find_jars() -> Path:
    """The directory of Kafka's jars, fetched if need be; raises SystemSkipped where that is not possible."""
    if shutil.which("java") is None:
        raise SystemSkipped("there is no java on the PATH")
    named = os.environ.get("KRAFT_KAFKA_JARS")
    if named:
        jars = Path(named)
        if not any(jars.glob("kafka_2.13-*.jar")):
            raise SystemSkipped(f"KRAFT_KAFKA_JARS={named} holds no kafka_2.13-*.jar")
        return jars
    return fetch_jars(f"kafka-{KAFKA_VERSION}", [KAFKA])


class KafkaCluster:
    """Three Apache Kafka nodes; formatted when made, so that `start` measures starting alone."""

    def __init__(self, jars: Path, directory: Path, settings: Mapping[str, str]) -> None:
        self.name = "kafka"
        self.directory = Path(tempfile.mkdtemp(prefix="bench-kafka-", dir=directory))
        self._java = ["java", *JVM_FLAGS, "-cp", f"{jars}/*"]
        self._processes: dict[int, NodeProcess] = {}
        self._kept = Ports()
        ports = self._kept(2 * NODES)
        self._client_ports, self._controller_ports = ports[:NODES], ports[NODES:]
        for node_id in range(1, NODES + 1):
            self._write_properties(node_id, settings)
        self._format()

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{port}" for port in self._client_ports)

    def _node_dir(self, node_id: int) -> Path:
        return self.directory / f"node-{node_id}"

    def _properties_path(self, node_id: int) -> Path:
        return self._node_dir(node_id) / "server.properties"

    def _write_properties(self, node_id: int, settings: Mapping[str, str]) -> None:
        voters = ",".join(f"{i}@{HOST}:{port}" for i, port in enumerate(self._controller_ports, start=1))
        listeners = (
            f"PLAINTEXT://{HOST}:{self._client_ports[node_id - 1]},"
            f"CONTROLLER://{HOST}:{self._controller_ports[node_id - 1]}"
        )
        properties = {
            "process.roles": "broker,controller",
            "node.id": str(node_id),
            "controller.quorum.voters": voters,
            "controller.listener.names": "CONTROLLER",
            "listeners": listeners,
            "log.dirs": str(self._node_dir(node_id) / "data"),
            "default.replication.factor": "3",
            "offsets.topic.replication.factor": "3",
            "transaction.state.log.replication.factor": "3",
            **settings,
        }
        self._node_dir(node_id).mkdir()
        text = "".join(f"{key}={value}\n" for key, value in properties.items())
        self._properties_path(node_id).write_text(text)

    def _format(self) -> None:
        cluster_id = base64.urlsafe_b64encode(uuid.uuid4().bytes).decode().rstrip("=")
        formatters = []
        for node_id in range(1, NODES + 1):
            arguments = ["format", "-t", cluster_id, "-c", str(self._properties_path(node_id))]
            log_path = self._node_dir(node_id) / "format.log"
            formatters.append(NodeProcess([*self._java, "kafka.tools.StorageTool", *arguments], log_path))
        deadline = time.monotonic() + FORMAT_TIMEOUT_S
        try:
            while any(formatter.running for formatter in formatters):
                if time.monotonic() > deadline:
                    raise TimeoutError(f"formatting Kafka's directories took over {FORMAT_TIMEOUT_S} s")
                time.sleep(0.05)
        finally:
            for formatter in formatters:
                formatter.end()

    def start(self) -> float:
        started_at = time.monotonic()
        for node_id in range(1, NODES + 1):
            self._spawn(node_id)
        return started_at

    def _spawn(self, node_id: int) -> None:
        command = [*self._java, "kafka.Kafka", str(self._properties_path(node_id))]
        with signals_wait():  # what is ended later is what is known here
            self._processes[node_id] = NodeProcess(command, self._node_dir(node_id) / "node.log")

    def pids(self) -> Mapping[int, int]:
        return {node_id: process.pid for node_id, process in self._processes.items() if process.running}

    def kill(self, node_id: int) -> float:
        return self._processes[node_id].kill()

    def restart(self, node_id: int) -> None:
        self._spawn(node_id)

    def close(self) -> None:
        for process in self._processes.values():
            process.end()
        self._processes.clear()
        self._kept.close()
        shutil.rmtree(self.directory, ignore_errors=True)
