"""What goes wrong inside a node that nobody damaged: it ends by itself, or one of its requests, timers,
cleanings, moves ends with an error that nobody expected.

    exception handler of a process -> Cluster.on_error -> here     its own end -> Cluster.on_end -> here

The error boundary (metadata_quorum/foundation/supervision.py) lets a node go on after most of them, so no
client may ever notice. A disk that has failed is an excuse for the errors of disks, from then on and
on its own machine alone.
"""

from __future__ import annotations

from typing import Final

from chaos.simulator.cluster import Cluster
from chaos.simulator.oracles.quorum import Report
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.supervision import place_of

OF_DISKS: Final = frozenset({ExitCode.DISK_FAILED, ExitCode.LOG_DIR_UNUSABLE})
OF_NETWORKS: Final = (ConnectionError, TimeoutError)
"""They are no errors of disks, though Python calls all of them OSError."""


class NodeOracle:
    """See the module."""

    def __init__(self, cluster: Cluster, report: Report) -> None:
        self._cluster = cluster
        self._report = report
        cluster.on_end.append(self._ended)
        cluster.on_error.append(self._failed)

    def _ended(self, node_id: int, error: BaseException, why: str) -> None:
        if not self._is_of_its_disk(node_id, error):
            self._report("fallen node", why)

    def _failed(self, node_id: int, work: str, error: Exception) -> None:
        if not self._is_of_its_disk(node_id, error):
            self._report("unexpected error", f"{work} on node {node_id}: {place_of(error)}: {error}")

    def _is_of_its_disk(self, node_id: int, error: BaseException) -> bool:
        if isinstance(error, FatalError):
            is_of_a_disk = error.exit_code in OF_DISKS
        else:
            is_of_a_disk = isinstance(error, OSError) and not isinstance(error, OF_NETWORKS)
        return is_of_a_disk and self._cluster.machines[node_id].disk.struck > 0
