"""The record of a run for its expectations: faults, the cluster and its clients.

Everything comes from the files of the run, so that an expectation sees what its reader can see. Times are
nanoseconds since the start, as everywhere in a run; figures in sentences are seconds.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from pathlib import Path
from typing import Any, Final, NamedTuple

from chaos import events, history
from chaos.checker import Verdict, check
from chaos.checker.verdict import ExpectedLosses
from chaos.events import Event
from chaos.history import History
from chaos.run_files import CLUSTER, EVENTS, HISTORY
from chaos.workload import Statistics

NS: Final = 1_000_000_000


class Span(NamedTuple):
    """From when to when a fault was on."""

    start: int
    end: int
    fault: str
    detail: str | None

    @property
    def seconds(self) -> float:
        return (self.end - self.start) / NS


class Leadership(NamedTuple):
    """A partition as it was seen from `time` on."""

    time: int
    leader: int  # -1: none
    leader_epoch: int
    isr: tuple[int, ...]


class Term(NamedTuple):
    time: int
    controller: int
    term: int


@dataclass(frozen=True, slots=True)
class RecoveryTimes:
    """How long after the last fault was lifted everything was there again; None: not within the patience."""

    controller_s: float | None
    leaders_s: float | None
    isr_s: float | None
    unread: Mapping[str, int]
    """Keys that the final phase could not read to their end, and how far it came."""


class Evidence:
    def __init__(self, directory: Path, healing: RecoveryTimes | None) -> None:
        self.directory = directory
        self.healing = healing
        """None: nothing was broken."""
        self.history: History = history.read(directory / HISTORY)
        path = directory / EVENTS
        self.events: Sequence[Event] = events.read(path) if path.exists() else ()
        self.statistics = Statistics()
        for operation in self.history.operations:
            self.statistics.note(operation)

        self.expected_losses: ExpectedLosses = {}
        """What the run's ledger has (chaos/ledger.py)."""

    @cached_property
    def verdict(self) -> Verdict:
        return check(self.history, self.expected_losses)

    # -- faults ---------------------------------------------------------------------------------

    def spans(self, prefix: str = "") -> list[Span]:
        """All faults whose text begins so, in the order in which they began."""
        spans: list[Span] = []
        for place, event in enumerate(self.events):
            if event.kind == "begin" and event.fault.startswith(prefix):
                ends = (e.time for e in self.events[place:] if e.kind == "end" and e.fault == event.fault)
                spans.append(Span(event.time, next(ends, self.calm), event.fault, event.detail))
        return spans

    def span(self, prefix: str) -> Span:
        """The first of them. Raises LookupError where there was none."""
        for span in self.spans(prefix):
            return span
        raise LookupError(f"no fault {prefix} was ever applied")

    def points(self, fault: str) -> list[Event]:
        return [event for event in self.events if event.kind == "point" and event.fault == fault]

    @property
    def calm(self) -> int:
        """When the last fault was lifted."""
        return max((event.time for event in self.points(events.CALM)), default=0)

    @property
    def end(self) -> int:
        """Of the workload: when its last operation before the final phase was over."""
        return max((op.end for op in self.history.operations if not op.final), default=0)

    # -- cluster --------------------------------------------------------------------------------

    @cached_property
    def _lines(self) -> list[dict[str, Any]]:
        path = self.directory / CLUSTER
        whole, _, _ = path.read_text().rpartition("\n") if path.exists() else ("", "", "")
        return [json.loads(line) for line in whole.splitlines()]

    @cached_property
    def keys(self) -> Sequence[str]:
        return sorted({line["key"] for line in self._lines if line["f"] == "partition"})

    def partition(self, key: str) -> list[Leadership]:
        """Changes of leader, epoch and ISR."""
        leaderships: list[Leadership] = []
        for line in self._lines:
            if line["f"] == "partition" and line["key"] == key:
                seen = Leadership(line["time"], line["leader"], line["leader_epoch"], tuple(line["isr"]))
                if not leaderships or leaderships[-1][1:] != seen[1:]:
                    leaderships.append(seen)
        return leaderships

    @property
    def terms(self) -> list[Term]:
        return [
            Term(line["time"], line["id"], line["term"]) for line in self._lines if line["f"] == "controller"
        ]

    def committed(self) -> dict[tuple[str, str], list[int]]:
        """(group, key) -> how far it had committed, one after the other."""
        commits: dict[tuple[str, str], list[int]] = {}
        for line in self._lines:
            if line["f"] == "committed":
                commits.setdefault((line["group"], line["key"]), []).append(line["offset"])
        return commits

    def partition_at(self, key: str, time: int) -> Leadership | None:
        return next((seen for seen in reversed(self.partition(key)) if seen.time <= time), None)

    # -- clients --------------------------------------------------------------------------------

    def longest_gap_s(self, topic: str, start: int, end: int) -> float:
        """Between two acks of the topic."""
        return self.statistics.gap_ns(topic, start, end) / NS
