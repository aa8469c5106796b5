"""What simulated clients did and the responses they got: the history that the checker judges."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Final

from chaos.history import (
    ACKS_ALL,
    Function,
    Header,
    History,
    HistoryTransaction,
    MicroOperation,
    Operation,
    Outcome,
    Poll,
    TopicMode,
    topic_of,
)
from chaos.simulator.scheduler import Scheduler

STRIDE: Final = 2520
"""Between the numbers of one client. As in the lab, a process number is its client's modulo the number of
clients: of as many as ten."""


class Recorder:
    """Of all clients of a run."""

    def __init__(
        self,
        scheduler: Scheduler,
        topics: Mapping[str, TopicMode],
        seed: int,
        visited: Callable[[str], None],
    ) -> None:
        """`visited(state)` counts the states that clients lead the cluster into."""
        self.topics = topics
        self.visited = visited
        self.operations: list[Operation] = []
        self.outcomes: Counter[str] = Counter()
        """`send ok`, `poll info`, …"""
        self.highest_seen: dict[str, int] = {}
        """The end, by key, of what was polled, or acknowledged where that holds for good."""
        self._scheduler = scheduler
        self._seed = seed
        self._processes = 0
        self._values = 0

    def process(self, retired: int | None = None) -> int:
        """A number for a client, or for one that continues after an operation of unknown outcome."""
        if retired is not None:
            return retired + STRIDE
        self._processes += 1
        return self._processes - 1

    def value(self) -> int:
        """A value that no other client sends."""
        self._values += 1
        return self._values

    def now_ns(self) -> int:
        return int(self._scheduler.now * 1e9)

    def add(
        self,
        process: int,
        function: Function,
        start_ns: int,
        outcome: Outcome,
        ops: Sequence[MicroOperation] = (),
        *,
        error: str | None = None,
        final: bool = False,
        keys: Sequence[str] = (),
        rebalanced: Sequence[str] = (),
        txn: HistoryTransaction | None = None,
        ends: Mapping[str, Sequence[int]] | None = None,
        group: str | None = None,
        generation: int | None = None,
        committed: Mapping[str, int] | None = None,
        starts: Mapping[str, int] | None = None,
    ) -> None:
        """An operation has ended."""
        self.operations.append(
            Operation(
                process, function, start_ns, self.now_ns(), outcome, tuple(ops), error=error, final=final,
                keys=tuple(keys), rebalanced=tuple(rebalanced), txn=txn, ends=ends or {},
                group=group, generation=generation, committed=committed or {}, starts=starts or {},
            )
        )  # fmt: skip
        self.outcomes[f"{function} {outcome}"] += 1
        for op in ops:
            if isinstance(op, Poll):
                for key, pairs in op.messages.items():
                    self._saw(key, max((offset for offset, _ in pairs), default=-1))
            elif outcome == "ok" and op.offset is not None and self.topics[topic_of(op.key)].acks == ACKS_ALL:
                self._saw(op.key, op.offset)

    def _saw(self, key: str, offset: int) -> None:
        self.highest_seen[key] = max(self.highest_seen.get(key, 0), offset + 1)

    def history(self) -> History:
        return History(Header(self.topics, "simulation", self._seed), self.operations)
