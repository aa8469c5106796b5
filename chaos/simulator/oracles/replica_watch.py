"""Which replicas may have changed in the event that has just passed: an oracle looks at those alone.

    the disk: a log is appended to or truncated -----------.
    watchers, as fetch sessions: high watermark, role ------+-> after the event: look
    a sweep, a few times a second: all of them ------------'

A leader's offsets change under its watchers, a follower's log on its disk. The sweep is for what neither
would tell, and finds replicas that came without a write: those of a process that starts again.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from chaos.simulator.cluster import Cluster, RunningNode
from chaos.simulator.process_loop import ProcessLoop
from data_plane.replication.partition import Partition

SWEEP_S: Final = 0.2
METADATA: Final = "__cluster_metadata-0"
"""It lies beside the replicas, and is none."""

Look = Callable[[int, ProcessLoop, Partition], None]
"""Broker, its process, its replica."""


class ReplicaWatch:
    """See the module."""

    def __init__(self, cluster: Cluster, look: Look) -> None:
        self._cluster = cluster
        self._look = look
        self._replicas: dict[int, dict[str, Partition]] = {}
        """Of each broker's running process, by name."""
        self._touched: dict[tuple[int, str], None] = {}
        for broker in cluster.shape.brokers:
            cluster.machines[broker].disk.on_log_write = partial(self._written, broker)
        cluster.on_start.append(self._started)
        cluster.scheduler.at(cluster.scheduler.now + SWEEP_S, self._sweep)

    def find(self, broker: int, name: str) -> Partition | None:
        """A replica that its broker serves, by the partition's name."""
        found = self._replicas.get(broker, {}).get(name)
        return found if found is not None and broker in self._cluster.running and _serves(found) else None

    def _started(self, broker: int, running: RunningNode) -> None:
        self._replicas[broker] = {}
        if running.node.broker_role is not None:
            running.node.events.listeners[partial(self._touch, broker, METADATA)] = None

    def _written(self, broker: int, path: str) -> None:
        name = path.rsplit("/", 2)[1]
        if name != METADATA:
            self._touch(broker, name)

    def _touch(self, broker: int, name: str) -> None:
        self._touched[broker, name] = None
        self._cluster.scheduler.after_event = self._judge

    def _judge(self) -> None:
        touched, self._touched = self._touched, {}
        for broker, name in touched:
            running = self._cluster.running.get(broker)
            if running is None:
                continue
            known = self._replicas.setdefault(broker, {})
            replica = known.get(name)
            if replica is None or replica.removed:
                self._take_in(broker, running)
                replica = known.get(name)
            if replica is not None and _serves(replica):
                self._look(broker, running.loop, replica)

    def _take_in(self, broker: int, running: RunningNode) -> None:
        """Those that have come since."""
        role = running.node.broker_role
        known = self._replicas.setdefault(broker, {})
        for replica in role.replica_manager if role is not None else ():
            name = str(replica.tp)
            if known.get(name) is not replica:
                known[name] = replica
                replica.watchers.add(_Watcher(partial(self._touch, broker, name)))

    def _sweep(self) -> None:
        scheduler = self._cluster.scheduler
        scheduler.at(scheduler.now + SWEEP_S, self._sweep)
        for broker, running in self._cluster.running.items():
            self._take_in(broker, running)
            for replica in list(self._replicas[broker].values()):
                if _serves(replica):
                    self._look(broker, running.loop, replica)


def _serves(replica: Partition) -> bool:
    return not replica.offline and not replica.removed


class _Watcher:
    """Of one replica, as a fetch session is one."""

    def __init__(self, changed: Callable[[], None]) -> None:
        self.log_grew = self.readable_range_changed = self.role_changed = changed
