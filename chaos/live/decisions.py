"""What the nodes say that the cluster decided, and by which rule: story.jsonl.

    GET /api/v1/events of every node, four times a second -> each event once -> {time, who, what}

They are the events of the console and of the nodes' own logs (kraft/monitoring/cluster_events.py). Who is
down or paused does not answer; the others know what happens to it.
"""

from __future__ import annotations

import http.client
import json
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Final, TextIO

from chaos.events import DECIDED
from chaos.repeated import repeated
from kraft.local.free_ports import HOST
from kraft.monitoring.cluster_events import ClusterEvent

EVERY_S: Final = 0.25
SILENCE_S: Final = 0.5


@contextmanager
def watched_decisions(ports: Mapping[int, int], path: Path, now_ns: Callable[[], int]) -> Iterator[None]:
    """Writes the file until it is left. `ports`: where each node serves HTTP."""
    with path.open("w", buffering=1, encoding="utf-8") as file:
        watch = _Watch(ports, file, now_ns)
        with repeated(watch.look, EVERY_S, "decisions"):
            yield


class _Watch:
    def __init__(self, ports: Mapping[int, int], file: TextIO, now_ns: Callable[[], int]) -> None:
        self._ports = ports
        self._file = file
        self._now_ns = now_ns
        self._heard = dict.fromkeys(ports, 0)
        """The number of each node's last event; a new process counts from the beginning."""
        self._newest = -1
        """Offset in the metadata log of what was written last."""

    def look(self) -> None:
        for node in self._ports:
            try:
                self._take(node, self._asked(node))
            except (OSError, http.client.HTTPException, ValueError, KeyError):
                self._heard[node] = 0

    def _asked(self, node: int) -> list[dict[str, Any]]:
        connection = http.client.HTTPConnection(HOST, self._ports[node], timeout=SILENCE_S)
        try:
            connection.request("GET", f"/api/v1/events?since={self._heard[node]}")
            events: list[dict[str, Any]] = json.loads(connection.getresponse().read())["events"]
            return events
        finally:
            connection.close()

    def _take(self, node: int, found: list[dict[str, Any]]) -> None:
        written = self._newest
        for fields in found:
            event = ClusterEvent(**fields)
            self._heard[node] = event.number
            if event.offset > written:
                self._newest = max(self._newest, event.offset)
                line = {"time": self._now_ns(), "who": DECIDED, "what": str(event)}
                self._file.write(json.dumps(line, separators=(",", ":")) + "\n")
