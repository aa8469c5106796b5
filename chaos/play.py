"""Plays a schedule on a cluster, and records what was really done, to which nodes, and when.

    step due --roles.fill--> text with ids --faults.parse--> Fault --begin--> event ... end of step --> event

A role that no node has yet (a partition without a leader) is waited for, and the schedule's clock stops
meanwhile. A fault that finds nothing to act on is skipped, and that is recorded too.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Final

from chaos import faults, roles, schedule
from chaos.events import ENDED_ITSELF, LINKS_RENEWED, SKIPPED, EventLog
from chaos.faults import Fault, FaultContext, FaultSkipped
from chaos.observer import Coordinated, Observer
from chaos.roles import RoleUnfilled
from chaos.schedule import Schedule, ScheduledFault, StepBoundary
from kraft.cli.errors import CliError

ROLE_PATIENCE_S: Final = 15.0
LOOK_S: Final = 0.02


@dataclass(frozen=True)
class LivingNodesView:
    """The cluster for filling roles: nodes that are down have none."""

    view: Observer
    context: FaultContext
    coordinated: Mapping[str, Coordinated]

    @property
    def nodes(self) -> Sequence[int]:
        return [node for node in self.view.nodes if not self.context.is_down(node)]

    def leader(self, key: str) -> int | None:
        return self._alive(self.view.leader(key))

    def isr(self, key: str) -> Sequence[int]:
        return [node for node in self.view.isr(key) if not self.context.is_down(node)]

    def replicas(self, key: str) -> Sequence[int]:
        return self.view.replicas(key)

    def controller(self) -> int | None:
        return self._alive(self.view.controller())

    def coordinator(self, of: str) -> int | None:
        if of not in self.coordinated:
            return None
        return self._alive(self.view.coordinator(self.coordinated[of]))

    def _alive(self, node: int | None) -> int | None:
        return None if node is None or self.context.is_down(node) else node


class Player:
    def __init__(
        self,
        context: FaultContext,
        observer: Observer,
        events: EventLog,
        coordinated: Mapping[str, Coordinated],
        role_patience_s: float = ROLE_PATIENCE_S,
        now_s: Callable[[], float] = time.monotonic,
    ) -> None:
        self._context = context
        self._view = LivingNodesView(observer, context, coordinated)
        self._events = events
        self._patience_s = role_patience_s
        self._now_s = now_s
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
        faults.wake_all(self._context)
        try:
            faults.heal_links(self._context)
        except CliError as error:
            self._renew_links(error)
        faults.heal_nodes(self._context)

    def watch(self) -> None:
        """Record nodes that ended by themselves."""
        for who, code in self._context.cluster.local.reap():
            self._events.point(ENDED_ITSELF, f"{who}, {_how(code)}")

    def _wait_until(self, due_s: float) -> None:
        while (left := due_s - self._now_s()) > 0:
            self.watch()
            time.sleep(min(left, LOOK_S))

    def _begin(self, boundary: StepBoundary) -> float:
        """How long its roles were waited for."""
        step, start_s = boundary.step, self._now_s()
        filled = self._filled(step.fault)
        waited_s = self._now_s() - start_s
        if filled is None:
            return waited_s
        text, cast = filled
        fault = faults.parse(text, self._context.cluster.nodes, self._context.cluster.wiring.clients)
        if not fault.lasts:
            self._do(step, fault, cast)
            return waited_s
        at = self._events.clock()
        try:
            remark = self._begun(fault)
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
            remark = self._begun(fault)
        except FaultSkipped as why:
            self._events.point(SKIPPED, f"{step.fault}: {why}")
        self._events.end(str(fault), remark)

    def _end(self, step: ScheduledFault) -> None:
        fault = self._active.pop(step, None)
        if fault is not None:
            self.watch()
            try:
                fault.end(self._context)
            except CliError as error:
                self._renew_links(error)
            self._events.end(str(fault))

    def _begun(self, fault: Fault) -> str | None:
        try:
            return fault.begin(self._context)
        except CliError as error:
            self._renew_links(error)
            return None

    def _renew_links(self, error: CliError) -> None:
        """Toxiproxy hangs: it waits for the far end of a connection that may never read again. All
        connections break then; what is wrong with links stays."""
        self._events.point(LINKS_RENEWED, str(error))
        self._context.cluster.renew_links()
        for fault in self._context.links:
            self._context.cluster.links.apply(fault)

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
            time.sleep(LOOK_S)


def _joined(*remarks: str | None) -> str | None:
    return "; ".join(filter(None, remarks)) or None


def _how(code: int) -> str:
    return f"by signal {-code}" if code < 0 else f"with code {code}"
