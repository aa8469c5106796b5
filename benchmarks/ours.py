"""kraft as a `BenchmarkCluster`: the same processes that `kraft up` starts, of this checkout or of another
one."""

from __future__ import annotations

import shutil
import subprocess
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path

from benchmarks.cluster import NODES, SystemSkipped
from benchmarks.report import COMPILED, OURS
from kraft.local.free_ports import HOST, Ports
from kraft.local.local_cluster import LocalCluster


def compiled_python(checkout: Path) -> Path:
    """The Python of a checkout where `make fast` was run. Raises SystemSkipped where it was not."""
    python = (checkout / ".venv" / "bin" / "python").absolute()
    ask = "from kraft.variant import variant; print(variant())"
    try:
        said = subprocess.run(
            [python, "-P", "-c", ask], cwd=checkout, capture_output=True, text=True, check=True
        )
    except (OSError, subprocess.CalledProcessError) as error:
        raise SystemSkipped(f"{checkout} is no checkout with an environment: {error}") from None
    if said.stdout.strip() != "compiled":
        raise SystemSkipped(f"nothing is compiled in {checkout}; `make fast` does that")
    return python


def nodes_of(python: Path) -> type[LocalCluster]:
    """Clusters whose nodes run by another checkout's Python."""

    class Nodes(LocalCluster):
        def launch(self, module: str, arguments: Sequence[str], output: Path) -> subprocess.Popen[bytes]:
            return self.run_in_background([str(python), "-P", "-m", module, *arguments], output)

    return Nodes


class KraftCluster:
    """Three kraft nodes; formatted when made, so that `start` measures starting alone."""

    def __init__(self, directory: Path, settings: Mapping[str, str], python: Path | None = None) -> None:
        """`python`: of the checkout whose compiled nodes are to run; of this one where it is left out."""
        self.name = OURS if python is None else COMPILED
        self.directory = Path(tempfile.mkdtemp(prefix=f"bench-{self.name}-", dir=directory))
        self._kept = Ports()
        ports = self._kept(3 * NODES)
        made = LocalCluster if python is None else nodes_of(python)
        self._nodes = made.create(self.directory, nodes=NODES, ports=ports, settings=settings)

    @property
    def bootstrap(self) -> str:
        return self._nodes.bootstrap

    @property
    def scrapes(self) -> Mapping[int, str]:
        """Where each node has its metrics."""
        return {
            node_id: f"http://{HOST}:{node.http_port}/metrics" for node_id, node in self._nodes.nodes.items()
        }

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
        self._kept.close()
        shutil.rmtree(self.directory, ignore_errors=True)
