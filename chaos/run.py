"""One run of a scenario: a cluster, clients, faults, quiet again, everything read once more, and the verdict.

    cluster, topics, observer, clients -> schedule -> all faults lifted -> whole again? -> final phase
    -> cluster ends -> checker, expectations -> verdict.json, report.html

The directory holds history.jsonl, events.jsonl, cluster.jsonl, schedule.txt, verdict.json and report.html;
the nodes' own directories stay below `cluster` only where something failed. However a run ends, its processes
end with it.
"""

from __future__ import annotations

import contextlib
import json
import random
import shutil
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Final, Self

from chaos import schedule
from chaos.committed import committed_offsets
from chaos.events import CALM, HEALED, Event, EventLog
from chaos.evidence import Evidence, RecoveryTimes
from chaos.faults import FaultContext
from chaos.healing import RecoveryProgress, await_recovery
from chaos.history import Header, HistoryWriter
from chaos.ledger import expected_losses, unclean_elections
from chaos.live.cluster import ChaosCluster
from chaos.live.decisions import watched_decisions
from chaos.live.stage import LiveStage
from chaos.observer import Coordinated, Observer, addresses_of
from chaos.play import Coordinator, Player
from chaos.report.page import write_report
from chaos.roles import COPIES, READERS, WRITER
from chaos.run_files import CLUSTER, EVENTS, HISTORY, NODES, SCHEDULE, STORY, TWIN, VERDICT
from chaos.scenarios.expect import Expectation, Finding
from chaos.scenarios.scenario import LEAST_ACKS, Scenario
from chaos.schedule import Schedule
from chaos.workload import TopicSpec, Workload, create_topics
from kraft.local.free_ports import HOST, Ports
from kraft.net.client import Address
from kraft.wire.coordinator_type import CoordinatorType

WARM_ACKS: Final = 10
"""Of every topic, before the first fault."""
WARM_PATIENCE_S: Final = 30.0
HEAL_PATIENCE_S: Final = 60.0
"""Beyond every bound, so that a cluster that is late differs from one that never heals."""
QUIET_S: Final = 1.0
"""The clients go on for so long in the healed cluster, at least."""
PROGRESS_PATIENCE_S: Final = 30.0
"""Until each partition is written and read there, and clients have had work: a producer may have to give up
a delivery or a transaction, members wait for the sessions of others, and a machine may be busy."""
FINAL_PATIENCE_S: Final = 60.0
LOOK_S: Final = 0.05
TWIN_RUNS: Final = 3
"""At most, until the planted bug shows: a kill that comes while a write is under way may show nothing."""

Say = Callable[[str], None]


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What to run, and where to write its record."""

    scenario: Scenario
    directory: Path
    seed: int = 1
    seconds: float | None = None
    """Of faults; None: as the scenario says."""
    steps: Schedule | None = None
    """In place of the scenario's own."""
    plant: str | None = None
    ports: Ports = field(default_factory=Ports)
    say: Say = lambda _: None

    @property
    def schedule(self) -> Schedule:
        if self.steps is not None:
            return self.steps
        return self.scenario.steps_of(self.seed, self.seconds)

    @property
    def lasts_s(self) -> float:
        """Its faults, of all runs where there is a planted twin."""
        once = max(self.fault_seconds, schedule.duration_s(self.schedule))
        return once if self.scenario.twin_plant is None else (1 + TWIN_RUNS) * once

    @property
    def fault_seconds(self) -> float:
        return self.seconds or self.scenario.seconds or 0.0


@dataclass(frozen=True)
class RunVerdict:
    """As verdict.json has it."""

    scenario: str
    seed: int
    ok: bool
    expectations: Sequence[Finding]
    checker: Mapping[str, Any]
    healing: RecoveryTimes | None
    ledger: Sequence[str] = ()
    """Whose records may be lost, in sentences."""
    story: str = ""
    """The scenario's."""
    simulated: bool = False
    command: str = ""
    """That plays it again, where it is no scenario of the lab."""

    def to_dict(self) -> dict[str, Any]:
        return {
            "scenario": self.scenario,
            "seed": self.seed,
            "ok": self.ok,
            "expectations": [finding._asdict() for finding in self.expectations],
            "checker": self.checker,
            "ledger": list(self.ledger),
            "story": self.story,
            "simulated": self.simulated,
            "command": self.command,
            "healing": None
            if self.healing is None
            else {
                "controller_s": self.healing.controller_s,
                "leaders_s": self.healing.leaders_s,
                "isr_s": self.healing.isr_s,
                "unread": dict(self.healing.unread),
            },
        }

    @classmethod
    def from_dict(cls, fields: Mapping[str, Any]) -> Self:
        healing = fields["healing"]
        return cls(
            fields["scenario"],
            fields["seed"],
            fields["ok"],
            [Finding(**finding) for finding in fields["expectations"]],
            fields["checker"],
            None if healing is None else RecoveryTimes(**healing),
            fields.get("ledger", ()),
            fields.get("story", ""),
            fields.get("simulated", False),
            fields.get("command", ""),
        )


def run(plan: Plan) -> RunVerdict:
    """Run it on a cluster of its own, and on a planted twin where the scenario has one."""
    plan.directory.mkdir(parents=True, exist_ok=True)
    healing = _on_own_cluster(plan)
    twin = plan.scenario.twin_plant
    if twin is not None:
        planted = replace(plan, directory=plan.directory / TWIN, plant=twin)
        for _ in range(TWIN_RUNS):
            plan.say(f"the same once more, with the bug {twin} planted")
            shutil.rmtree(planted.directory, ignore_errors=True)
            planted.directory.mkdir()
            if not judge(planted, _on_own_cluster(planted), ()).ok:
                break
    verdict = judge(plan, healing, plan.scenario.all_expectations)
    if verdict.ok:
        for directory in (plan.directory, plan.directory / TWIN):
            shutil.rmtree(directory / NODES, ignore_errors=True)
    return verdict


def run_against(plan: Plan, bootstrap: str) -> RunVerdict:
    """The workload and the checker against a cluster that is there, and that is not broken by us."""
    plan.directory.mkdir(parents=True, exist_ok=True)
    started_ms = int(time.time() * 1000)
    addresses = addresses_of(bootstrap)
    copies = min(3, len(addresses))
    topics = tuple(
        replace(
            topic, name=f"chaos-{started_ms}-{topic.name}", replication=copies,
            min_insync_replicas=min(2, copies),
        )
        for topic in plan.scenario.topics
    )  # fmt: skip
    now_ns = _clock()
    plan.say(f"making topics on a cluster of {len(addresses)}")
    create_topics(bootstrap, topics)
    bootstraps = [bootstrap] * plan.scenario.clients
    with _clients(plan, topics, bootstraps, addresses, now_ns, started_ms) as (workload, _):
        _await_warm(workload, topics)
        plan.say(f"the clients work for {plan.fault_seconds:g} s")
        time.sleep(plan.fault_seconds)
        _await_acks(workload, topics, LEAST_ACKS, PROGRESS_PATIENCE_S)  # an expectation judges it
        unread = _finish(plan, workload)
    return judge(plan, RecoveryTimes(0.0, 0.0, 0.0, unread), plan.scenario.expectations_without_faults)


# The steps of a run -----------------------------------------------------------------------------------------


def _on_own_cluster(plan: Plan) -> RecoveryTimes:
    scenario, steps = plan.scenario, plan.schedule
    (plan.directory / SCHEDULE).write_text(schedule.text_of(steps))
    with (
        plan.ports,
        ChaosCluster.create(
            plan.directory / NODES, nodes=scenario.nodes, clients=scenario.clients,
            settings=scenario.settings, plant=plan.plant, take_ports=plan.ports,
        ) as cluster,
    ):  # fmt: skip
        plan.say(f"starting {scenario.nodes} nodes, and the links between them")
        cluster.start()
        now_ns = _clock()
        create_topics(cluster.bootstrap(), scenario.topics)
        bootstraps = [cluster.bootstrap(client) for client in range(scenario.clients)]
        addresses = {node.id: Address(HOST, node.client_port) for node in cluster.local.nodes.values()}
        clients = _clients(plan, scenario.topics, bootstraps, addresses, now_ns, int(time.time() * 1000))
        with clients as (workload, observer), _events(plan, now_ns) as events:
            _await_warm(workload, scenario.topics)
            watched = (workload.group, workload.copiers_group) if scenario.watches_groups else ()
            context = FaultContext.of(cluster, random.Random(f"damage/{plan.seed}"))
            http = {node.id: node.http_port for node in cluster.local.nodes.values()}
            player = Player(LiveStage(context, events), observer, events, _coordinator(workload, observer))
            decisions = watched_decisions(http, plan.directory / STORY, now_ns)
            with committed_offsets(observer, watched), decisions:
                player.play(steps, plan.fault_seconds)
                player.heal()
                events.point(CALM)
                whole = await_recovery(cluster, observer, HEAL_PATIENCE_S)
                events.point(HEALED, healed_line(whole))
                _await_progress(workload, scenario, now_ns)
            unread = _finish(plan, workload)
            player.watch()
        return RecoveryTimes(*whole, unread)


def _coordinator(workload: Workload, observer: Observer) -> Coordinator:
    """Whose coordinator a schedule may name."""
    named = {READERS: Coordinated(workload.group), COPIES: Coordinated(workload.copiers_group)}
    for transactional_id in workload.transactional_ids[:1]:
        named[WRITER] = Coordinated(transactional_id, CoordinatorType.TRANSACTION)
    return lambda of: observer.coordinator(named[of]) if of in named else None


@contextlib.contextmanager
def _clients(
    plan: Plan,
    topics: Sequence[TopicSpec],
    bootstraps: Sequence[str],
    addresses: Mapping[int, Address],
    now_ns: Callable[[], int],
    started_ms: int,
) -> Iterator[tuple[Workload, Observer]]:
    header = Header({topic.name: topic.mode for topic in topics}, plan.scenario.name, plan.seed, started_ms)
    with (
        HistoryWriter(plan.directory / HISTORY, header) as writer,
        Observer(
            addresses, [topic.name for topic in topics], now_ns=now_ns, path=plan.directory / CLUSTER
        ) as observer,
        Workload(
            bootstraps, topics, seed=plan.seed, now_ns=now_ns, record=writer.append, mix=plan.scenario.mix,
            pace=plan.scenario.pace,
        ) as workload,
    ):  # fmt: skip
        yield workload, observer


@contextlib.contextmanager
def _events(plan: Plan, now_ns: Callable[[], int]) -> Iterator[EventLog]:
    log = EventLog(plan.directory / EVENTS, now_ns, lambda event: plan.say(event_line(event)))
    with contextlib.closing(log):
        yield log


def _await_warm(workload: Workload, topics: Sequence[TopicSpec]) -> None:
    if not _await_acks(workload, topics, WARM_ACKS, WARM_PATIENCE_S):
        raise TimeoutError(f"not every topic has had {WARM_ACKS} acks after {WARM_PATIENCE_S:g} s")


def _await_acks(workload: Workload, topics: Sequence[TopicSpec], least: int, patience_s: float) -> bool:
    """Whether every topic comes to as many."""
    deadline = time.monotonic() + patience_s
    while not _have_acks(workload, topics, least):
        workload.raise_error()
        if time.monotonic() > deadline:
            return False
        time.sleep(LOOK_S)
    return True


def _have_acks(workload: Workload, topics: Sequence[TopicSpec], least: int) -> bool:
    return all(workload.statistics.acks_so_far(topic.name) >= least for topic in topics)


def _await_progress(workload: Workload, scenario: Scenario, now_ns: Callable[[], int]) -> None:
    """Each partition is written from now on, and given to members where all readers are members, and all in
    all the clients have work enough, if that happens within the patience; expectations judge it."""
    since_ns, began, statistics = now_ns(), time.monotonic(), workload.statistics
    watched = [statistics.last_acks, *([statistics.last_given] if scenario.members_stay else [])]
    keys = {key for topic in scenario.topics for key in topic.keys}
    left = QUIET_S
    while time.monotonic() < began + left:
        time.sleep(LOOK_S)
        is_done = all(last().get(key, -1) > since_ns for last in watched for key in keys)
        is_done = is_done and _have_acks(workload, scenario.topics, LEAST_ACKS)
        left = QUIET_S if is_done else PROGRESS_PATIENCE_S


def _finish(plan: Plan, workload: Workload) -> Mapping[str, int]:
    plan.say("the clients stop, and read everything once more")
    workload.stop()
    return workload.final_phase(FINAL_PATIENCE_S).missing


def judge(
    plan: Plan, healing: RecoveryTimes, expectations: Sequence[Expectation], *, simulated: bool = False
) -> RunVerdict:
    plan.say("checking the history")
    evidence = Evidence(plan.directory, healing)
    lossy = [topic.name for topic in plan.scenario.topics if topic.allows_unclean_election]
    ledger = list(unclean_elections(evidence, lossy))
    evidence.expected_losses = expected_losses(evidence, ledger)
    findings = [expect(evidence) for expect in expectations]
    checked = evidence.verdict
    verdict = RunVerdict(
        scenario=plan.scenario.name,
        seed=plan.seed,
        ok=all(finding.ok for finding in findings) and checked.ok,
        expectations=findings,
        checker=checked.to_dict(),
        healing=healing,
        ledger=list(map(str, ledger)),
        story=plan.scenario.story,
        simulated=simulated,
    )
    (plan.directory / VERDICT).write_text(json.dumps(verdict.to_dict(), indent=1) + "\n")
    write_report(plan.directory)
    return verdict


def _clock() -> Callable[[], int]:
    start = time.monotonic_ns()
    return lambda: time.monotonic_ns() - start


def healed_line(whole: RecoveryProgress | RecoveryTimes) -> str:
    def seconds(value: float | None) -> str:
        return "never" if value is None else f"{value:.1f} s"

    return (
        f"controller {seconds(whole.controller_s)}, leaders {seconds(whole.leaders_s)}, "
        f"ISR full {seconds(whole.isr_s)}"
    )


def event_line(event: Event) -> str:
    what = {"begin": "begins", "end": "ends", "point": ""}[event.kind]
    detail = f" ({event.detail})" if event.detail else ""
    return f"{event.time / 1e9:7.2f} s  {event.fault} {what}{detail}".rstrip()
