"""What the table of metrics reads from: the parts of a node, and the few figures that need two looks.

A rate is what changed between two looks. It is taken over `WINDOW_S` at least, so that two Prometheus that
scrape the same node do not shorten each other's.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Final

from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.metrics.group_lag import GroupLags
from kraft.metrics.partition_counts import PartitionCounts
from kraft.metrics.process import ProcessStats
from kraft.monitoring.cluster_events import ClusterEvents
from kraft.net.connections import Connections
from kraft.net.server_memory import ServerMemory
from metadata_quorum.foundation.turns import Turns

WINDOW_S: Final = 15.0


class Rates:
    """Rates per second of numbers that only grow."""

    def __init__(self, now: Callable[[], float]) -> None:
        self._now = now
        self._marks: dict[str, list[tuple[float, float]]] = {}

    def per_second(self, name: str, total: float) -> float:
        """0 at the first look."""
        now = self._now()
        marks = self._marks.setdefault(name, [])
        marks.append((now, total))
        while len(marks) > 2 and now - marks[1][0] >= WINDOW_S:
            del marks[0]
        since, before = marks[0]
        return max((total - before) / (now - since), 0.0) if now > since else 0.0

    def mean(self, name: str, total: float, count: int) -> float:
        """What one of those counted came to, of the newest; not a number where there were none."""
        counted = self.per_second(f"{name} count", count)
        summed = self.per_second(name, total)
        return summed / counted if counted else float("nan")


@dataclass(slots=True, kw_only=True)
class Sources:
    """A node's parts."""

    node: NodeContext
    connections: Connections
    memory: ServerMemory
    events: ClusterEvents
    process: ProcessStats
    broker: Broker | None = None
    controller: Controller | None = None
    rates: Rates
    turns: Turns = field(init=False)
    """Of those who scrape."""

    def __post_init__(self) -> None:
        self.turns = Turns(self.node.loop)


@dataclass(slots=True)
class Broker:
    """What is read of a node that is a broker."""

    context: BrokerContext
    rates: Rates
    lags: GroupLags = field(init=False)

    def __post_init__(self) -> None:
        self.lags = GroupLags(self.context)


@dataclass(slots=True)
class Controller:
    """What is read of a node that is a controller."""

    context: ControllerContext
    rates: Rates
    events: ClusterEvents
    partition_counts: PartitionCounts = field(init=False)

    def __post_init__(self) -> None:
        self.partition_counts = PartitionCounts(self.context)
