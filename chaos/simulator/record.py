"""The record of a seed's run: the files of the lab, and its report page.

    Simulation -> SeedRecord: faults, what is seen of the cluster -> write: history, story, verdict
    -> chaos/report

It looks between two callbacks and schedules none, so a run that is recorded is the run that is not.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Final, Literal

from chaos import history
from chaos.checker.check import check
from chaos.events import CALM, ENDED_ITSELF, HEALED, SKIPPED, EventLog
from chaos.evidence import RecoveryTimes
from chaos.observed import Line
from chaos.report.page import write_report
from chaos.run import RunVerdict, healed_line
from chaos.run_files import CLUSTER, EVENTS, HISTORY, SCHEDULE, STORY, VERDICT
from chaos.scenarios.expect import Finding
from chaos.simulator.cluster import WORLD, Cluster
from chaos.simulator.faults import SimFault
from chaos.simulator.observer import LOOK_S, SimulatedObserver
from chaos.simulator.oracles.recovery import leaderless, under_replicated
from chaos.simulator.run import Outcome, Simulation
from chaos.simulator.story import Story

AT_THE_VIOLATION: Final = "then"
"""Who, in the story: the partitions as they were when the first rule broke."""


def write_lines(path: Path, lines: Iterable[Line]) -> None:
    path.write_text("".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines))


def story_lines(story: Story) -> Iterator[Line]:
    """Without the faults: events.jsonl has those."""
    for at_s, who, what in story.lines:
        if who != WORLD:
            yield {"time": int(at_s * 1e9), "who": who, "what": what}


class Recovery:
    """From the heal on: how long it takes until each part of the cluster is whole again."""

    def __init__(self, cluster: Cluster, now_ns: Callable[[], int]) -> None:
        self._cluster = cluster
        self._now_ns = now_ns
        self._calm_ns = now_ns()
        self._took: dict[str, float | None] = {"controller": None, "leaders": None, "ISR": None}

    @property
    def times(self) -> RecoveryTimes:
        return RecoveryTimes(self._took["controller"], self._took["leaders"], self._took["ISR"], {})

    def look(self) -> bool:
        """Whether it is whole, since this look."""
        leader = self._cluster.leader
        if leader is None or None not in self._took.values():
            return False
        image = leader.node.context.metadata_cache.image
        whole = {
            "controller": True,
            "leaders": not any(leaderless(image)),
            "ISR": not any(under_replicated(image)),
        }
        for part, is_whole in whole.items():
            if is_whole and self._took[part] is None:
                self._took[part] = (self._now_ns() - self._calm_ns) / 1e9
        return None not in self._took.values()


class SeedRecord:
    """Of a simulation that has not run yet."""

    def __init__(self, simulation: Simulation, directory: Path) -> None:
        directory.mkdir(parents=True, exist_ok=True)
        self._simulation = simulation
        self._directory = directory
        self._now_ns = simulation.recorder.now_ns
        self._events = EventLog(directory / EVENTS, self._now_ns)
        self._cluster_lines: list[Line] = []
        self._observer = SimulatedObserver(
            simulation.cluster, list(simulation.profile.topics), self._now_ns, self._cluster_lines.append
        )
        self._recovery: Recovery | None = None
        simulation.player.noted = self._note
        simulation.cluster.on_end.append(lambda node, error, why: self._events.point(ENDED_ITSELF, why))
        simulation.watch(self._look, LOOK_S)

    def _note(self, kind: Literal["begin", "end", "point"], fault: SimFault, why: str) -> None:
        if why:
            self._events.point(SKIPPED, f"{fault}: {why}")
            return
        target = str(self._simulation.player.victims.get(fault, fault.target))
        role = "" if target == fault.target else f"{fault.target} is {target}"
        text = " ".join(f"{fault.kind} {target} {fault.detail}".split())
        match kind:
            case "begin":
                self._events.begin(text, role or None)
            case "end":
                self._events.end(text)
            case "point":
                self._events.point(text, role or None)

    def _look(self) -> None:
        self._observer.look()
        if not self._simulation.player.is_over:
            return
        if self._recovery is None:
            self._events.point(CALM)
            self._recovery = Recovery(self._simulation.cluster, self._now_ns)
        if self._recovery.look():
            self._events.point(HEALED, healed_line(self._recovery.times))

    def write(self, outcome: Outcome, command: str) -> Path:
        """The report's path. `command` plays it again."""
        self._events.close()
        profile, directory = self._simulation.profile, self._directory
        header = outcome.history.header._replace(scenario=profile.name)
        history.write(directory / HISTORY, outcome.history._replace(header=header))
        write_lines(directory / CLUSTER, self._cluster_lines)
        write_lines(directory / STORY, [*story_lines(outcome.story), *_partitions(outcome)])
        faults = "".join(f"{fault}\n" for fault in self._simulation.player.faults)
        (directory / SCHEDULE).write_text(faults)
        verdict = RunVerdict(
            scenario=profile.name,
            seed=outcome.seed,
            ok=outcome.ok,
            expectations=list(_findings(outcome)),
            checker=check(outcome.history).to_dict(),
            healing=None if self._recovery is None else self._recovery.times,
            story=f"{len(profile.shape.nodes)} simulated nodes, and faults of chance for "
            f"{self._simulation.seconds:g} s.",
            simulated=True,
            command=command,
        )
        (directory / VERDICT).write_text(json.dumps(verdict.to_dict(), indent=1) + "\n")
        return write_report(directory)


def _findings(outcome: Outcome) -> Iterator[Finding]:
    for broken in outcome.violations:
        yield Finding(broken.rule, False, f"at {broken.at_s:.3f} s: {broken.what}")
    if outcome.ok:
        yield Finding("the simulator's oracles hold", True, "all of them")


def _partitions(outcome: Outcome) -> Iterator[Line]:
    for line in outcome.partitions:
        at_ns = int(outcome.violations[0].at_s * 1e9)
        yield {"time": at_ns, "who": AT_THE_VIOLATION, "what": line}
