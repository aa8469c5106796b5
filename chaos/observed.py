"""Nodes' responses about their cluster, merged into one state with a history, and into lines of
cluster.jsonl.

No sockets and no clock: responses come in with their time, changes go out. Nodes learn of a change one after
the other, and some are cut off, so that at any time they may contradict each other. For a partition, this
node counts:

    the one with the highest leader epoch;
    among those the leader itself: its in-sync set is the one that counts for its acks;
    else the active controller, else the lowest id.

A response counts for half a second. A state that no response contradicts stays.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final, Literal, NamedTuple

FRESH_NS: Final = 500_000_000
NO_NODE: Final = -1

NodeState = Literal["up", "down", "paused"]
"""As seen from outside. down: its port refuses. paused: it is connected, or connects, and does not answer,
which a stopped process and a cut link have in common."""


class ObservedPartition(NamedTuple):
    leader: int  # NO_NODE: none
    leader_epoch: int
    isr: tuple[int, ...]
    replicas: tuple[int, ...] = ()
    high_watermark: int | None = None  # in its leader's last response


class ObservedController(NamedTuple):
    id: int
    term: int


class PartitionSince(NamedTuple):
    """A partition from that time on."""

    time_ns: int
    partition: ObservedPartition


class _Report(NamedTuple):
    time_ns: int
    partition: ObservedPartition


Line = Mapping[str, Any]


class ObservedCluster:
    def __init__(self, record: Callable[[Line], None]) -> None:
        self._record = record
        self._committed: dict[tuple[str, str], int] = {}
        self._said: dict[str, dict[int, _Report]] = {}
        self.partitions: dict[str, list[PartitionSince]] = {}
        """The past of each key, newest last; a change of the high watermark alone is no new entry."""
        self.controllers: list[tuple[int, ObservedController]] = []
        self.nodes: dict[int, list[tuple[int, NodeState]]] = {}

    def partition(self, key: str) -> ObservedPartition | None:
        past = self.partitions.get(key)
        return past[-1].partition if past else None

    def said(self, key: str) -> dict[int, ObservedPartition]:
        """Of it, each node's last response; the old leader of a cut cluster may still consider itself the
        leader."""
        return {node: said.partition for node, said in self._said.get(key, {}).items()}

    def controller(self) -> ObservedController | None:
        return self.controllers[-1][1] if self.controllers else None

    # ---- answers

    def partitions_reported(self, node: int, time_ns: int, reported: Mapping[str, ObservedPartition]) -> None:
        for key, partition in reported.items():
            self._said.setdefault(key, {})[node] = _Report(time_ns, partition)
            believed = self._believed(key, time_ns)
            known = self.partition(key)
            if known is not None:
                believed = believed._replace(high_watermark=known.high_watermark)
            if believed != known:
                self.partitions.setdefault(key, []).append(PartitionSince(time_ns, believed))
                self._record(_partition_line(time_ns, key, believed))

    def high_watermarks_reported(self, node: int, time_ns: int, reported: Mapping[str, int]) -> None:
        """By a node, of partitions that it takes itself to lead."""
        for key, high_watermark in reported.items():
            known = self.partition(key)
            if known is None or known.leader != node or known.high_watermark == high_watermark:
                continue
            moved = known._replace(high_watermark=high_watermark)
            past = self.partitions[key]
            past[-1] = PartitionSince(past[-1].time_ns, moved)
            self._record(_partition_line(time_ns, key, moved))

    def controller_reported(self, time_ns: int, reported: ObservedController) -> None:
        known = self.controller()
        if reported.id == NO_NODE or (known is not None and reported.term <= known.term):
            return
        self.controllers.append((time_ns, reported))
        self._record({"time": time_ns, "f": "controller", "id": reported.id, "term": reported.term})

    def committed_reported(self, time_ns: int, group: str, key: str, offset: int) -> None:
        if self._committed.get((group, key)) != offset:
            self._committed[group, key] = offset
            self._record({"time": time_ns, "f": "committed", "group": group, "key": key, "offset": offset})

    def node_is(self, node: int, time_ns: int, state: NodeState) -> None:
        past = self.nodes.setdefault(node, [])
        if not past or past[-1][1] != state:
            past.append((time_ns, state))
            self._record({"time": time_ns, "f": "node", "id": node, "state": state})

    # ---- which node counts

    def _believed(self, key: str, now_ns: int) -> ObservedPartition:
        """At least one fresh answer is there: the one that was just given."""
        known = self.partition(key)
        fresh = {
            node: said.partition for node, said in self._said[key].items() if said.time_ns > now_ns - FRESH_NS
        }
        newest = max(partition.leader_epoch for partition in fresh.values())
        if known is not None and known.leader_epoch > newest:
            return known
        controller = self.controller()

        def rank(node: int) -> tuple[bool, bool, int]:
            is_controller = controller is not None and node == controller.id
            return (fresh[node].leader != node, not is_controller, node)

        best = min((node for node in fresh if fresh[node].leader_epoch == newest), key=rank)
        return fresh[best]


def _partition_line(time_ns: int, key: str, partition: ObservedPartition) -> Line:
    return {
        "time": time_ns,
        "f": "partition",
        "key": key,
        "leader": partition.leader,
        "leader_epoch": partition.leader_epoch,
        "isr": partition.isr,
        "hw": partition.high_watermark,
    }
