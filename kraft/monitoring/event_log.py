"""What happens to the cluster, as lines of the log: elections, ISR changes, fences.

    ClusterEvents -> EventLog -> a line each, of `kraft.events.partitions` or `kraft.events.cluster`

A node tells what concerns itself: its own fences, partitions that it led or leads. The active controller
tells all. So each event stands in few logs, and one node's log says what that node went through.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from kraft.monitoring.cluster_events import ClusterEvents, EventKind
from kraft.monitoring.rate_limited_log import rate_limited

cluster_log = rate_limited(logging.getLogger("kraft.events.cluster"))
partition_log = rate_limited(logging.getLogger("kraft.events.partitions"))
"""Each log has a limit of its own: a broker's death is logged, however many partitions it led."""

_BAD: Final = {
    EventKind.BROKER_FENCED,
    EventKind.UNCLEAN_ELECTION,
    EventKind.OFFLINE,
    EventKind.ISR_SHRINK,
}
"""What somebody may have to look at."""


class EventLog:
    """A listener of `ClusterEvents`, from when the node is up: what it reads of the past is no news."""

    def __init__(self, events: ClusterEvents, node_id: int, is_active_controller: Callable[[], bool]) -> None:
        self._events = events
        self._node_id = node_id
        self._is_active_controller = is_active_controller
        self._told = events.newest

    def __call__(self) -> None:
        """Tell what is new."""
        news, self._told = self._events.since(self._told), self._events.newest
        tells_all = self._is_active_controller()
        for event in news:
            if tells_all or not event.brokers or self._node_id in event.brokers:
                level = logging.WARNING if event.kind in _BAD else logging.INFO
                log = cluster_log if event.partition_epoch is None else partition_log
                log.log(level, "%s: %s: %s %s", event.subject, event.kind, event.text, event.epochs)
