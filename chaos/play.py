"""Plays a schedule on a cluster, and records what was really done, to which nodes, and when.

    step due --roles.fill--> text with ids --faults.parse--> Fault --Stage.begin--> event ... end --> event

The same player plays on real nodes (live/stage.py) and on simulated ones (simulator/stage.py). A role that no
node has yet (a partition without a leader) is waited for, and the schedule's clock stops meanwhile. A fault
that finds nothing to act on is skipped, and that is recorded too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final, Protocol

from chaos import faults, roles, schedule
from chaos.events import ENDED_ITSELF, SKIPPED, EventLog
from chaos.faults import Fault, FaultSkipped
from chaos.roles import RoleUnfilled
from chaos.schedule import Schedule, ScheduledFault, StepBoundary

ROLE_PATIENCE_S: Final = 15.0
LOOK_S: Final = 0.02


class Stage(Protocol):
    """A cluster that can be broken."""

    @property
    def nodes(self) -> Sequence[int]: ...

    @property
    def clients(self) -> int:
        """How many clients have links of their own: c0, c1, …"""
        ...

    def is_down(self, node: int) -> bool: ...

    def begin(self, fault: Fault) -> str | None:
        """What is worth a remark. Raises FaultSkipped."""
        ...

    def end(self, fault: Fault) -> None: ...

    def heal(self) -> None:
        """Nothing is wrong any more, and all nodes run, or are being started."""
        ...

    def fallen(self) -> Iterator[str]:
        """Nodes that ended by themselves since the last call, and how."""
        ...


class Observed(Protocol):
    """What an observer outside sees of the cluster (chaos/observer.py)."""

    def keys(self) -> Sequence[str]: ...

    def leader(self, key: str) -> int | None: ...

    def isr(self, key: str) -> Sequence[int]: ...

    def replicas(self, key: str) -> Sequence[int]: ...

    def controller(self) -> int | None: ...


Coordinator = Callable[[str], int | None]
"""Who coordinates what is named so in a schedule (roles.py)."""


@dataclass(frozen=True)
class LivingNodesView:
    """The cluster for filling roles: nodes that are down have none."""

    seen: Observed
    stage: Stage
    coordinates: Coordinator

    @property
    def nodes(self) -> Sequence[int]:
        return [node for node in self.stage.nodes if not self.stage.is_down(node)]

    def keys(self) -> Sequence[str]:
        return self.seen.keys()

    def leader(self, key: str) -> int | None:
        return self._alive(self.seen.leader(key))

    def isr(self, key: str) -> Sequence[int]:
        return [node for node in self.seen.isr(key) if not self.stage.is_down(node)]

    def replicas(self, key: str) -> Sequence[int]:
        return self.seen.replicas(key)

    def controller(self) -> int | None:
        return self._alive(self.seen.controller())

    def coordinator(self, of: str) -> int | None:
        return self._alive(self.coordinates(of))

    def _alive(self, node: int | None) -> int | None:
        return None if node is None or self.stage.is_down(node) else node


class Player:
    def __init__(
        self,
        stage: Stage,
        seen: Observed,
        events: EventLog,
        coordinates: Coordinator,
        *,
        role_patience_s: float = ROLE_PATIENCE_S,
        now_s: Callable[[], float] = time.monotonic,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._stage = stage
        self._view = LivingNodesView(seen, stage, coordinates)
        self._events = events
        self._patience_s = role_patience_s
        self._now_s = now_s
        self._sleep = sleep
        self._active: dict[ScheduledFault, Fault] = {}

    def play(self, steps: Schedule, seconds: float) -> None:
        """To the end of the schedule, at least for so long; what has no end of its own is still on then."""
        zero = self._now_s()
        for boundary in schedule.step_boundaries(steps):
            self._wait_until(zero + boundary.at_s)
            if boundary.begins:
                zero += self._begin(boundary)
            else:
                self._end(boundary.step)
        self._wait_until(zero + seconds)

    def heal(self) -> None:
        """Lift all faults."""
        self.watch()
        for fault in self._active.values():
            self._events.end(str(fault))
        self._active.clear()
        self._stage.heal()

    def watch(self) -> None:
        """Record nodes that ended by themselves."""
        for fallen in self._stage.fallen():
            self._events.point(ENDED_ITSELF, fallen)

    def _wait_until(self, due_s: float) -> None:
        while (left := due_s - self._now_s()) > 0:
            self.watch()
            self._sleep(min(left, LOOK_S))

    def _begin(self, boundary: StepBoundary) -> float:
        """How long its roles were waited for."""
        step, start_s = boundary.step, self._now_s()
        filled = self._filled(step.fault)
        waited_s = self._now_s() - start_s
        if filled is None:
            return waited_s
        text, cast = filled
        fault = faults.parse(text, self._stage.nodes, self._stage.clients)
        if not fault.lasts:
            self._do(step, fault, cast)
            return waited_s
        at = self._events.clock()
        try:
            remark = self._stage.begin(fault)
        except FaultSkipped as why:
            self._events.point(SKIPPED, f"{step.fault}: {why}")
            return waited_s
        self._events.begin(str(fault), _joined(cast, remark), at)
        self._active[step] = fault
        return waited_s

    def _do(self, step: ScheduledFault, fault: Fault, cast: str | None) -> None:
        """What is over when it is done."""
        self._events.begin(str(fault), cast)
        remark = None
        try:
            remark = self._stage.begin(fault)
        except FaultSkipped as why:
            self._events.point(SKIPPED, f"{step.fault}: {why}")
        self._events.end(str(fault), remark)

    def _end(self, step: ScheduledFault) -> None:
        fault = self._active.pop(step, None)
        if fault is not None:
            self.watch()
            self._stage.end(fault)
            self._events.end(str(fault))

    def _filled(self, text: str) -> tuple[str, str | None] | None:
        deadline_s = self._now_s() + self._patience_s
        while True:
            try:
                return roles.fill(text, self._view)
            except RoleUnfilled as why:
                if self._now_s() > deadline_s:
                    self._events.point(SKIPPED, f"{text}: {why}")
                    return None
            self.watch()
            self._sleep(LOOK_S)


def _joined(*remarks: str | None) -> str | None:
    return "; ".join(filter(None, remarks)) or None
