"""kraft as a `Cluster`: the same processes that `kraft up` starts."""

from __future__ import annotations

import random
import shutil
import tempfile
import time
from collections.abc import Mapping
from pathlib import Path

from benchmarks.cluster import NODES
from kraft.local.free_ports import free_ports
from kraft.local.local_cluster import LocalCluster


class KraftCluster:
    """Three kraft nodes; formatted when made, so that `start` measures starting alone."""

    def __init__(self, directory: Path, settings: Mapping[str, str]) -> None:
        self.name = "kraft"
        self._directory = Path(tempfile.mkdtemp(prefix="bench-kraft-", dir=directory))
        ports = free_ports(3 * NODES, random.SystemRandom())
        self._nodes = LocalCluster.create(self._directory, nodes=NODES, ports=ports, settings=settings)

    @property
    def bootstrap(self) -> str:
        return self._nodes.bootstrap

    def start(self) -> float:
        """Waits until the nodes know each other, as `kraft up` does; that is part of the time to start."""
        started_at = time.monotonic()
        self._nodes.start()
        return started_at

    def pids(self) -> Mapping[int, int]:
        running = {node_id: node.process() for node_id, node in self._nodes.nodes.items()}
        return {node_id: process.pid for node_id, process in running.items() if process is not None}

    def kill(self, node_id: int) -> float:
        killed_at = time.monotonic()
        self._nodes.kill(node_id)
        return killed_at

    def restart(self, node_id: int) -> None:
        self._nodes.start_node(node_id, wait=False)

    def close(self) -> None:
        self._nodes.close(patience_s=5.0)
        shutil.rmtree(self._directory, ignore_errors=True)
