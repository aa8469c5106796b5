"""Three controllers and three brokers, each a node of its own, of kraft or of Apache Kafka."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Final

from kraft.config.properties import format_properties
from kraft.local.free_ports import HOST, Ports
from kraft.peers.blocking_client import live_brokers, out_of_sync
from kraft.peers.held_signals import signals_wait
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.uuids import random_uuid, uuid_text

CONTROLLERS: Final = (1, 2, 3)
BROKERS: Final = (11, 12, 13)
KRAFT: Final = (sys.executable, "-m", "kraft", "start")
_JVM: Final = ("-Xmx512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_PATIENCE_S: Final = 120.0
_POLL_S: Final = 0.1


class NodeFailed(Exception):
    """A node ended, or did not do what it should; the message says which, and where its log is."""


def apache_kafka(jars: Path) -> Sequence[str]:
    """The command that runs a node of Apache Kafka's."""
    return ("java", *_JVM, "-cp", f"{jars}/*", "kafka.Kafka")


class Nodes:
    """Their directories, and the processes that run on them."""

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        ids = (*CONTROLLERS, *BROKERS)
        self._kept = Ports()
        self._ports = dict(zip(ids, self._kept(len(ids)), strict=True))
        cluster_id = uuid_text(random_uuid(random.SystemRandom()))
        for node_id in ids:
            self._home(node_id).mkdir()
            self.properties(node_id).write_text(format_properties(self._values(node_id)))
            _command(
                "storage", "format", "--new-cluster", "-t", cluster_id, "-c", str(self.properties(node_id))
            )

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HOST}:{self._ports[broker]}" for broker in BROKERS)

    def properties(self, node_id: int) -> Path:
        return self._home(node_id) / "server.properties"

    def _home(self, node_id: int) -> Path:
        return self._directory / f"node-{node_id}"

    def _values(self, node_id: int) -> dict[str, str]:
        listener = "CONTROLLER" if node_id in CONTROLLERS else "PLAINTEXT"
        return {
            "process.roles": "controller" if node_id in CONTROLLERS else "broker",
            "node.id": str(node_id),
            "controller.quorum.voters": ",".join(
                f"{each}@{HOST}:{self._ports[each]}" for each in CONTROLLERS
            ),
            "controller.listener.names": "CONTROLLER",
            "listeners": f"{listener}://{HOST}:{self._ports[node_id]}",
            "log.dirs": str(self._home(node_id) / "data"),
            "default.replication.factor": "3",
            "min.insync.replicas": "2",
            "offsets.topic.replication.factor": "3",
            "group.initial.rebalance.delay.ms": "0",
        }

    def start(self, node_id: int, command: Sequence[str]) -> None:
        # What is ended later is what is known here.
        with signals_wait(), (self._home(node_id) / "node.log").open("ab") as log:
            self._processes[node_id] = subprocess.Popen(
                [*command, str(self.properties(node_id))],
                stdin=subprocess.DEVNULL, stdout=log, stderr=subprocess.STDOUT, start_new_session=True,
            )  # fmt: skip

    def stop(self, node_id: int) -> None:
        """As a service manager does it: a controlled shutdown. Raises `NodeFailed`."""
        process = self._processes[node_id]
        process.terminate()
        try:
            process.wait(_PATIENCE_S)
        except subprocess.TimeoutExpired:
            raise NodeFailed(f"node {node_id} did not stop: {self._home(node_id) / 'node.log'}") from None
        del self._processes[node_id]

    def export(self) -> str:
        """`kraft storage export` of all controllers; what it says."""
        configs = [word for each in CONTROLLERS for word in ("-c", str(self.properties(each)))]
        return _command("storage", "export", *configs)

    def wait_in_sync(self) -> None:
        """Until all brokers are there, and have all that they replicate."""
        self.wait_for(self._in_sync, "all brokers are in sync")

    def _in_sync(self) -> bool:
        ports = [self._ports[broker] for broker in BROKERS]
        return all(live_brokers(HOST, port) == set(BROKERS) and not out_of_sync(HOST, port) for port in ports)

    def wait_for(self, condition: Callable[[], bool], what: str) -> None:
        """Raises `NodeFailed`."""
        deadline = time.monotonic() + _PATIENCE_S
        while time.monotonic() < deadline:
            for node_id, process in self._processes.items():
                if process.poll() is not None:
                    raise NodeFailed(f"node {node_id} has ended: {self._home(node_id) / 'node.log'}")
            with suppress(OSError, BrokerError):
                if condition():
                    return
            time.sleep(_POLL_S)
        raise NodeFailed(
            f"waited {_PATIENCE_S:.0f} s in vain until {what}; the logs are in {self._directory}"
        )

    def close(self) -> None:
        for process in self._processes.values():
            process.kill()
            process.wait()
        self._processes.clear()
        self._kept.close()


def _command(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-m", "kraft", *arguments], capture_output=True, text=True, check=False
    )
    if done.returncode != 0:
        raise NodeFailed(f"kraft {' '.join(arguments[:2])}: {(done.stdout + done.stderr).strip()}")
    return done.stdout.strip()
