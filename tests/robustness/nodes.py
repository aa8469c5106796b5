"""One node as a process of its own, with the properties that a test gives it."""

from __future__ import annotations

import random
import signal
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Final

from kraft.config.node_config import Config
from kraft.config.properties import format_properties
from kraft.local.free_ports import HOST
from kraft.storage.formatter import format_storage
from metadata_quorum.foundation.disk import OsDisk
from tests.support.nodes.cluster import FEW_COORDINATORS
from tests.support.waiting import wait_until

CLUSTER_ID: Final = "caew6liiSVeWsVZsbVhFvA"
NODE_ID: Final = 7
UP: Final = f"node {NODE_ID} is up"


class NodeFiles:
    """A combined node that is a whole cluster: its properties and its directory."""

    def __init__(self, home: Path, ports: list[int], **changes: str | None) -> None:
        """`changes`: keys with underscores for dots; None leaves one out."""
        client, controller = ports
        self.home = home
        self.data = home / "data"
        self.properties = home / "server.properties"
        self.stderr = home / "stderr"
        values: dict[str, str | None] = {
            "process.roles": "broker,controller",
            "node.id": str(NODE_ID),
            "controller.listener.names": "CONTROLLER",
            "controller.quorum.voters": f"{NODE_ID}@{HOST}:{controller}",
            "listeners": f"PLAINTEXT://{HOST}:{client},CONTROLLER://{HOST}:{controller}",
            "log.dirs": str(self.data),
            "offsets.topic.replication.factor": "1",
            **FEW_COORDINATORS,
        }
        values |= {name.replace("_", "."): value for name, value in changes.items()}
        self.client_port = client
        self.values = {name: value for name, value in values.items() if value is not None}
        self.properties.write_text(format_properties(self.values))

    def format(self) -> None:
        config = Config.from_properties(self.values)
        format_storage(OsDisk(), config, CLUSTER_ID, random.Random(1), new_cluster=True)

    @property
    def said(self) -> str:
        """Everything on standard error so far."""
        return self.stderr.read_text(errors="replace")

    @property
    def last_line(self) -> str:
        return self.said.strip().splitlines()[-1]

    @contextmanager
    def started(self, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """The node's process, wherever it is in its start; killed at the end. `before`: Python that it runs
        first. What it says goes through a pipe: a limit on the length of its files is none on its words."""
        run = f"{before}\nimport sys\nfrom kraft.node.process import main\nsys.exit(main(sys.argv[1:]))"
        program = ("-c", run) if before else ("-m", "kraft.node.process")
        command = [sys.executable, *program, str(self.properties)]
        with (
            open(self.stderr, "wb") as file,
            subprocess.Popen(["cat"], stdin=subprocess.PIPE, stdout=file) as errors,
            subprocess.Popen(command, stdin=subprocess.DEVNULL, stderr=errors.stdin) as process,
        ):
            try:
                yield process
            finally:
                process.kill()

    @contextmanager
    def running(self, before: str = "") -> Iterator[subprocess.Popen[bytes]]:
        """The node's process once it is up."""
        with self.started(before) as process:
            wait_until(lambda: UP in self.said or process.poll() is not None, "the node is up")
            assert process.poll() is None, self.said
            yield process

    def start_and_fail(self) -> tuple[int, str]:
        """Exit code and the last line of a node that cannot start."""
        with self.started() as process:
            code = process.wait(180)
        assert "Traceback" not in self.said, self.said
        return code, self.last_line

    def run_and_stop(self) -> None:
        """One clean life."""
        with self.running() as process:
            process.send_signal(signal.SIGTERM)
            assert process.wait(180) == 0, self.said
