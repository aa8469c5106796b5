"""Statistics of a running workload: times of acks, failures, latencies.

It gets every operation as it completes, from any thread; also from a history that was read back.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right
from collections import Counter, defaultdict
from collections.abc import Mapping
from itertools import pairwise
from typing import NamedTuple

from chaos.history import Function, Operation, Outcome, Poll, Send, topic_of


class Sample(NamedTuple):
    end_ns: int
    took_ns: int


class Statistics:
    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._acks: defaultdict[str, list[int]] = defaultdict(list)
        self._last_acks: dict[str, int] = {}
        self._members: set[int] = set()
        self._last_given: dict[str, int] = {}
        self._samples: defaultdict[tuple[Function, str], list[Sample]] = defaultdict(list)
        self._outcomes: defaultdict[str, list[tuple[int, Outcome]]] = defaultdict(list)
        self._acked: dict[str, int] = {}
        self._polled: dict[str, int] = {}

    def note(self, operation: Operation) -> None:
        with self._lock:
            took = Sample(operation.end, operation.end - operation.start)
            topics: set[str] = set()
            if operation.f in ("assign", "subscribe"):
                (self._members.add if operation.f == "subscribe" else self._members.discard)(
                    operation.process
                )
            for micro in operation.ops:
                if isinstance(micro, Send):
                    topic = topic_of(micro.key)
                    topics.add(topic)
                    if _is_acknowledged(micro, operation):
                        self._acks[topic].append(operation.end)
                        _raise_to(self._last_acks, micro.key, operation.end)
                    if micro.offset is not None:
                        _raise_to(self._acked, micro.key, micro.offset)
                else:
                    topics.update(map(topic_of, micro.messages))
                    self._note_poll(micro)
                    if operation.f == "poll" and operation.process in self._members:
                        for key in filter(micro.messages.get, micro.messages):
                            _raise_to(self._last_given, key, operation.end)
            for topic in topics:
                if operation.f == "send":
                    self._outcomes[topic].append((operation.end, operation.outcome))
                if operation.outcome == "ok":
                    self._samples[operation.f, topic].append(took)

    def _note_poll(self, poll: Poll) -> None:
        for key, messages in poll.messages.items():
            if messages:
                _raise_to(self._polled, key, max(offset for offset, _ in messages))

    def gap_ns(self, topic: str, since_ns: int, until_ns: int) -> int:
        """The longest time between two acks of a topic in that window, its edges counting as acks."""
        with self._lock:
            acks = sorted(self._acks[topic])
        inside = acks[bisect_left(acks, since_ns) : bisect_right(acks, until_ns)]
        times = [since_ns, *inside, until_ns]
        return max(later - sooner for sooner, later in pairwise(times))

    def acks(self, topic: str, since_ns: int, until_ns: int) -> int:
        """How many messages of a topic were acknowledged in that window."""
        with self._lock:
            return sum(since_ns <= end <= until_ns for end in self._acks[topic])

    def acks_so_far(self, topic: str) -> int:
        with self._lock:
            return len(self._acks[topic])

    def last_acks(self) -> dict[str, int]:
        """When each key was acknowledged last."""
        with self._lock:
            return dict(self._last_acks)

    def last_given(self) -> dict[str, int]:
        """When a member of a group was given a record of each key last; but for those who copy."""
        with self._lock:
            return dict(self._last_given)

    def outcomes(self, topic: str, since_ns: int, until_ns: int) -> Mapping[Outcome, int]:
        """How the sends (operations) of a topic ended that ended in that window."""
        with self._lock:
            return Counter(how for end, how in self._outcomes[topic] if since_ns <= end <= until_ns)

    def latencies(self, f: Function, topic: str, since_ns: int, until_ns: int) -> list[int]:
        """How long the successful operations took that ended in that window, shortest first. Of polls
        only those that brought something."""
        with self._lock:
            return sorted(
                sample.took_ns for sample in self._samples[f, topic] if since_ns <= sample.end_ns <= until_ns
            )

    def highest_acked(self) -> dict[str, int]:
        """Offset by key."""
        with self._lock:
            return dict(self._acked)

    def highest_polled(self) -> dict[str, int]:
        """Offset by key."""
        with self._lock:
            return dict(self._polled)


def _is_acknowledged(send: Send, operation: Operation) -> bool:
    """In a transaction nothing is before it is committed."""
    return operation.outcome == "ok" or (send.offset is not None and operation.f != "txn")


def _raise_to(highest: dict[str, int], key: str, offset: int) -> None:
    if offset > highest.get(key, -1):
        highest[key] = offset
