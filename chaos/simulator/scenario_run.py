"""A scenario of the lab on simulated nodes: the same schedule, record, expectations and verdict.

    Plan -> Profile, Simulation -> chaos/play.py on a simulated stage -> history.jsonl, events.jsonl,
    cluster.jsonl -> the lab's own judgement, and the simulator's oracles as one more expectation

A run of half a minute takes a second or two, and is the same each time.
"""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from typing import Final

from chaos import faults, history, roles, schedule
from chaos.events import CALM, HEALED, EventLog
from chaos.history import Header
from chaos.live.link_faults import BadFault
from chaos.observed import Line
from chaos.play import Player
from chaos.roles import READERS
from chaos.run import QUIET_S, WARM_ACKS, WARM_PATIENCE_S, Plan, RunVerdict, event_line, healed_line, judge
from chaos.run_files import CLUSTER, EVENTS, HISTORY, SCHEDULE, STORY
from chaos.scenarios.expect import Expectation, Finding
from chaos.scenarios.scenario import Scenario
from chaos.simulator.cluster import ClusterShape
from chaos.simulator.observer import LOOK_S, SimulatedObserver
from chaos.simulator.profile import SESSIONS, Profile
from chaos.simulator.record import Recovery, story_lines, write_lines
from chaos.simulator.run import BrokenRule, Simulation
from chaos.simulator.stage import SimulatedStage, simulated_faults
from data_plane.coordinator.topics import OFFSETS_TOPIC, partition_for_key

PAUSE_S: Final = 0.05
"""Between two operations of a client, at most."""
MEMBERS: Final = 2
GROUP: Final = "classic"
"""The group that a schedule calls the readers'."""


class NotSimulated(ValueError):
    """The simulator cannot play it; the sentence says why."""


def play(plan: Plan) -> RunVerdict:
    """Raises NotSimulated."""
    steps = plan.schedule
    profile = simulated_profile(plan)
    plan.directory.mkdir(parents=True, exist_ok=True)
    (plan.directory / SCHEDULE).write_text(schedule.text_of(steps))
    with _silent_nodes():
        run = _Run(plan, profile)
        outcome = run.simulation.run()
    run.events.close()
    write_lines(plan.directory / CLUSTER, run.lines)
    write_lines(plan.directory / STORY, story_lines(outcome.story))
    header = Header(profile.topics, plan.scenario.name, plan.seed)
    history.write(plan.directory / HISTORY, outcome.history._replace(header=header))
    scenario = plan.scenario
    if scenario.twin_plant is not None:  # bugs are planted in real processes only
        scenario = replace(scenario, expectations=())
    expectations = (*scenario.all_expectations, oracles_hold(outcome.violations))
    return judge(plan, run.recovery.times, expectations, simulated=True)


@contextmanager
def _silent_nodes() -> Iterator[None]:
    """What they say of the faults in their logs is not the story."""
    before = logging.root.manager.disable
    logging.disable(logging.CRITICAL)
    try:
        yield
    finally:
        logging.disable(before)


def profile_of(scenario: Scenario) -> Profile:
    """Its cluster, topics and clients. Raises NotSimulated."""
    nodes = tuple(range(1, scenario.nodes + 1))
    if any(topic.transactional for topic in scenario.topics):
        raise NotSimulated(f"{scenario.name} writes in transactions, which simulated clients do otherwise")
    if any(topic.allows_unclean_election for topic in scenario.topics):
        raise NotSimulated(
            f"{scenario.name} loses records on purpose, which no oracle of the simulator bears"
        )
    chases_groups = "coordinator" in schedule.text_of(scenario.steps_of(1))
    return Profile(
        scenario.name,
        ClusterShape(nodes, nodes, {**(SESSIONS if chases_groups else {}), **scenario.settings}),
        {topic.name: topic.mode for topic in scenario.topics},
        pause_s=PAUSE_S,
        paces=(1,),  # schedules count on the lab's load
        producers=max(1, scenario.clients // len(scenario.topics)),
        members=MEMBERS if chases_groups else 0,
        resends=scenario.counts_failures,
        topic_configs={
            topic.name: {"min.insync.replicas": str(topic.min_insync_replicas), **topic.settings}
            for topic in scenario.topics
        },
    )


def simulated_profile(plan: Plan) -> Profile:
    """Raises NotSimulated where the simulator cannot play the plan."""
    profile = profile_of(plan.scenario)
    nodes = profile.shape.nodes
    for step in plan.schedule:
        fault = faults.parse(roles.fill_with(step.fault, nodes), nodes, plan.scenario.clients)
        try:
            simulated_faults(fault, clients_of(profile))
        except BadFault:
            raise NotSimulated(f"`{step}`: the simulator cannot do that") from None
    return profile


def clients_of(profile: Profile) -> list[str]:
    """The hosts of c0, c1, …"""
    return [f"{topic}{number}" for topic, number in profile.writers]


def oracles_hold(violations: Sequence[BrokenRule]) -> Expectation:
    """What the simulator's own oracles found."""
    detail = "; ".join(map(str, violations)) or "all of them"
    return lambda _: Finding("the simulator's oracles hold", not violations, detail)


class _Run:
    """One simulation, with the lab's record of it."""

    def __init__(self, plan: Plan, profile: Profile) -> None:
        self.plan = plan
        self.profile = profile
        self.lines: list[Line] = []
        seconds = max(plan.fault_seconds, schedule.duration_s(plan.schedule))
        self.simulation = Simulation(plan.seed, profile, seconds, breaking=lambda _: self._break())
        self._now_ns = self.simulation.recorder.now_ns
        self.events = EventLog(
            plan.directory / EVENTS, self._now_ns, lambda event: plan.say(event_line(event))
        )
        self.recovery = Recovery(self.simulation.cluster, self._now_ns)

    def _break(self) -> None:
        simulation = self.simulation
        observer = SimulatedObserver(
            simulation.cluster, list(self.profile.topics), self._now_ns, self.lines.append
        )
        observer.keep_looking()
        stage = SimulatedStage(
            simulation.cluster, simulation.player, clients_of(self.profile), simulation.pass_time
        )
        player = Player(
            stage, observer, self.events, self._coordinator,
            now_s=lambda: simulation.scheduler.now, sleep=simulation.pass_time,
        )  # fmt: skip
        self._warm_up()
        player.play(self.plan.schedule, self.plan.fault_seconds)
        player.heal()
        self.events.point(CALM)
        self.recovery = Recovery(simulation.cluster, self._now_ns)
        self._look()
        simulation.pass_time(QUIET_S)

    def _warm_up(self) -> None:
        """So many acks of each topic come before the first fault."""
        until = self.simulation.scheduler.now + WARM_PATIENCE_S
        while not self._is_warm() and self.simulation.scheduler.now < until:
            self.simulation.pass_time(LOOK_S)

    def _is_warm(self) -> bool:
        acks = Counter(
            history.topic_of(micro.key)
            for operation in self.simulation.recorder.operations
            if operation.f == "send" and operation.outcome == "ok"
            for micro in operation.ops
            if isinstance(micro, history.Send)
        )
        return all(acks[topic] >= WARM_ACKS for topic in self.profile.topics)

    def _coordinator(self, of: str) -> int | None:
        leader = self.simulation.cluster.leader
        if of != READERS or leader is None:
            return None
        topic = leader.node.context.metadata_cache.image.topics_by_name.get(OFFSETS_TOPIC)
        if topic is None:
            return None
        return topic.partitions[partition_for_key(GROUP, len(topic.partitions))].leader

    def _look(self) -> None:
        """After the heal."""
        if self.recovery.look():
            self.events.point(HEALED, healed_line(self.recovery.times))
        else:
            scheduler = self.simulation.scheduler
            scheduler.at(scheduler.now + LOOK_S, self._look)
