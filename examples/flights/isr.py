"""The replicas of the topic over time: leader and in-sync replicas, from any node that answers."""

from __future__ import annotations

import threading
import time
from collections import defaultdict
from collections.abc import Mapping
from typing import NamedTuple

from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient

POLL_S = 0.05
NOBODY = -1


class Replicas(NamedTuple):
    """One partition as the metadata has it."""

    leader: int
    isr: frozenset[int]


State = Mapping[int, Replicas]  # by partition


class IsrEvent(NamedTuple):
    """A line of the timeline; `at` is `time.monotonic()`."""

    at: float
    text: str


def read_state(admin: AdminClient, topic: str, timeout_s: float) -> State | None:
    """The state now, or None where no node answers or one does not know the topic yet."""
    try:
        found = admin.list_topics(topic, timeout=timeout_s).topics[topic]
    except KafkaException:
        return None
    if found.error is not None:
        return None
    return {number: Replicas(p.leader, frozenset(p.isrs)) for number, p in sorted(found.partitions.items())}


def changes(before: State, after: State) -> list[str]:
    """What happened between two states, in words; partitions with the same change share a sentence."""
    moved: dict[tuple[int, int], list[int]] = defaultdict(list)
    left: dict[int, list[int]] = defaultdict(list)
    joined: dict[int, list[int]] = defaultdict(list)
    for partition in sorted(before.keys() & after.keys()):
        old, new = before[partition], after[partition]
        if old.leader != new.leader:
            moved[old.leader, new.leader].append(partition)
        for node in old.isr - new.isr:
            left[node].append(partition)
        for node in new.isr - old.isr:
            joined[node].append(partition)
    words = [f"leader {_node(a)} → {_node(b)}: {_numbers(which)}" for (a, b), which in sorted(moved.items())]
    words += [f"node {node} left the ISR: {_numbers(which)}" for node, which in sorted(left.items())]
    words += [f"node {node} joined the ISR: {_numbers(which)}" for node, which in sorted(joined.items())]
    return words


def _node(node: int) -> str:
    return "none" if node == NOBODY else str(node)


def _numbers(partitions: list[int]) -> str:
    return ("partition " if len(partitions) == 1 else "partitions ") + ", ".join(map(str, partitions))


class IsrWatch:
    """Polls on a thread of its own, so that a slow answer never holds up the stream."""

    def __init__(self, bootstrap: str, topic: str, first: State) -> None:
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
        self._topic = topic
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.state = first
        self.events: list[IsrEvent] = []
        self._thread.start()

    def note(self, text: str) -> None:
        """Something that we did, for the timeline."""
        self.events.append(IsrEvent(time.monotonic(), text))

    def full(self, replicas: int) -> bool:
        """Whether every partition has a leader and all its replicas in sync."""
        return all(p.leader != NOBODY and len(p.isr) == replicas for p in self.state.values())

    def has_left(self, node: int) -> bool:
        """Whether it is in no partition's ISR."""
        return all(node not in p.isr for p in self.state.values())

    def _run(self) -> None:
        while not self._stop.wait(POLL_S):
            state = read_state(self._admin, self._topic, timeout_s=1.0)
            if state is None:
                continue
            now = time.monotonic()
            self.events += [IsrEvent(now, text) for text in changes(self.state, state)]
            self.state = state

    def close(self) -> None:
        self._stop.set()
        self._thread.join(5.0)
