"""One simulation: a seed's cluster, its clients and faults, and the verdict.

    boot -> topics -> clients, faults, oracles -> heal -> everything recovers
         -> a last write to each partition -> a final read -> Outcome

Safety is watched all the time, recovery only after the heal. Two runs of a seed are the same.
"""

from __future__ import annotations

import gc
import warnings
from collections.abc import Callable, Collection, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from math import inf
from typing import Any, Final

from chaos.checker.check import check
from chaos.history import ACKS_ALL, History
from chaos.simulator.clients.admin import SimAdmin
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.member import SimMember
from chaos.simulator.clients.operator import SimOperator
from chaos.simulator.clients.producer import SimProducer
from chaos.simulator.clients.reader import SimReader, bound
from chaos.simulator.clients.recorder import Recorder
from chaos.simulator.clients.session_reader import SimSessionReader
from chaos.simulator.clients.transactor import SimTransactor
from chaos.simulator.cluster import BROKER_PORT, Cluster, host_of, rack_of
from chaos.simulator.decisions import Decisions, replicas_at
from chaos.simulator.draws import Draws
from chaos.simulator.faults import SimFault, faults_of
from chaos.simulator.judgement import judge, refused_sequences
from chaos.simulator.network import Network
from chaos.simulator.oracles.committed_metadata import MetadataOracle
from chaos.simulator.oracles.coordinators import CoordinatorOracle
from chaos.simulator.oracles.images import behind, compare_images
from chaos.simulator.oracles.liveness import LivenessOracle
from chaos.simulator.oracles.nodes import NodeOracle
from chaos.simulator.oracles.quorum import QuorumOracle
from chaos.simulator.oracles.recovery import RecoveryOracle
from chaos.simulator.oracles.replicas import ReplicaOracle
from chaos.simulator.player import FaultPlayer
from chaos.simulator.process_loop import ProcessLoop
from chaos.simulator.profile import GROUPS, INPUT, Profile
from chaos.simulator.scheduler import Livelock, Scheduler
from chaos.simulator.software import THIS, Software
from chaos.simulator.story import Happening, Story
from kraft.net.client import Address
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.offset_timestamps import LATEST_TIMESTAMP

BOOT_S: Final = 30.0
CALM_S: Final = 90.0
"""From the heal until it is as it was, or reported; and for each of the last acts."""
RETRY_S: Final = 0.5
SETTLE_S: Final = 0.5
SETTLE_LOOKS: Final = 20
"""How often, and how many times at most, it is asked whether all replicas are at the same end."""
COLLECT_S: Final = 10.0
"""Garbage is collected so often, by the simulation's time: what that ends is not left to chance."""
LONGEST_PAUSE_S: Final = 3.0


@dataclass(frozen=True, slots=True)
class BrokenRule:
    """Something that must not be."""

    at_s: float
    rule: str
    what: str

    def __str__(self) -> str:
        return f"{self.at_s:.4f} s  {self.rule}: {self.what}"


@dataclass(slots=True)
class Outcome:
    """Of one simulation."""

    seed: int
    profile: str
    violations: list[BrokenRule]
    story: Story
    history: History
    digest: int
    simulated_s: float
    events: int
    operations: dict[str, int] = field(default_factory=dict)
    partitions: Sequence[str] = ()
    """Every partition and its replicas, at the first violation."""

    @property
    def ok(self) -> bool:
        return not self.violations


class _CutShort(Exception):
    """The replay ends here."""


class Simulation:
    """See the module. `run` once."""

    def __init__(
        self,
        seed: int,
        profile: Profile,
        seconds: float,
        *,
        listener: Callable[[Happening], None] | None = None,
        trace: Callable[[str], None] | None = None,
        until: float | None = None,
        faults: Sequence[SimFault] | None = None,
        deviating: Collection[str] | None = None,
        breaking: Callable[[Simulation], None] | None = None,
        software: Software = THIS,
    ) -> None:
        """`until`: stop there, and judge nothing that comes later. `faults`: these instead of the seed's.
        `deviating`: only these links, disks and threads (draws.py). `breaking`: breaks the cluster and heals
        it, instead of any list of faults. `software`: of every node, until an operator has upgraded it."""
        self.seed = seed
        self.profile = profile
        self.seconds = seconds
        self.violations: list[BrokenRule] = []
        self._partitions: Sequence[str] = ()
        self.scheduler = Scheduler()
        self.scheduler.trace = trace
        self.draws = Draws(seed, deviating)
        self.story = Story(listener)
        self.network = Network(self.scheduler, self.draws)
        self.cluster = Cluster(profile.shape, self.scheduler, self.network, self.draws, self.story, software)
        self.recorder = Recorder(self.scheduler, profile.topics, seed, self.story.visit)
        self._fleeting = Recorder(self.scheduler, profile.fleeting, seed, self.story.visit)
        self._until = until
        self._breaking = breaking
        self._collects_at = COLLECT_S
        self._look: Callable[[], None] = lambda: None
        self._look_every_s = inf
        self.clients: list[ClusterClient] = []
        """They work until all is calm."""
        self._pause_s = min(
            profile.pause_s * self.draws.stream("pace").choice(profile.paces), LONGEST_PAUSE_S
        )
        self._tasks: list[Any] = []
        self._transactors: list[SimTransactor] = []
        self._members: list[SimMember] = []
        self._session_readers: list[SimSessionReader] = []
        self._admins: list[SimAdmin] = []
        if faults is None:
            chance = self.draws.stream("faults")
            faults = faults_of(
                chance, profile.severity, profile.shape.nodes, profile.exposed, seconds,
                states=profile.states, tolerance=profile.tolerance,
            )  # fmt: skip
        self.player = FaultPlayer(self.cluster, faults, self.draws)
        Decisions(self.cluster)
        NodeOracle(self.cluster, self.violated)
        QuorumOracle(self.cluster, self.violated)
        self._metadata = MetadataOracle(self.cluster, self.violated)
        self._replicas = ReplicaOracle(self.cluster, self.violated, self._metadata)
        self._coordinators = CoordinatorOracle(self.cluster, self.violated)
        LivenessOracle(self.cluster, self._coordinators, self.violated)
        self._addresses = {broker: Address(host_of(broker), BROKER_PORT) for broker in profile.shape.brokers}

    def run(self) -> Outcome:
        with deterministic_garbage():
            try:
                self._play()
            except _CutShort:
                pass
            except Livelock as error:
                self.violated("live-lock", str(error))
            finally:
                self.cluster.close()
            return Outcome(
                self.seed, self.profile.name, self.violations, self.story, self.recorder.history(),
                self.scheduler.digest, self.scheduler.now, self.scheduler.events,
                dict(self.recorder.outcomes), self._partitions,
            )  # fmt: skip

    def watch(self, look: Callable[[], None], every_s: float) -> None:
        """Call it so often, between two callbacks: what only looks changes nothing of the run."""
        self._look, self._look_every_s = look, every_s

    def violated(self, rule: str, what: str) -> None:
        """The first of each rule is kept."""
        if any(each.rule == rule for each in self.violations):
            return
        if not self.violations:
            self._partitions = list(replicas_at(self.cluster))
        self.violations.append(BrokenRule(self.scheduler.now, rule, what))
        self.story.tell(self.scheduler.now, "!!", f"{rule}: {what}")

    # ---- the acts

    def _play(self) -> None:
        for node_id in self.profile.shape.nodes:
            self.cluster.start(node_id)
        self._expect("start", self._await(lambda: self.cluster.is_ready, BOOT_S))
        self._create_topics()
        if self.profile.upgrade:
            self._start_operator()
        self._start_clients()
        if self._breaking is not None:
            self._breaking(self)
        else:
            self.player.play()
            self.pass_time(self.seconds)
            self.player.heal()
        self._recover()
        self._expect("", True)
        self._judge()

    def _expect(self, rule: str, reached: bool, what: str = "") -> None:
        """What was waited for. Raises `_CutShort` where the run was to end before."""
        if self._until is not None and self.scheduler.now >= self._until:
            raise _CutShort
        if not reached:
            self.violated(rule, what or "not in time")

    def _recover(self) -> None:
        """As it was, and then quiet."""
        for member in self._members:
            member.is_steady = True
        self._expect("restarts", self._await(lambda: not self.player.restarting, CALM_S))
        recovery = RecoveryOracle(
            self.cluster,
            self.clients,
            self._members,
            self._session_readers,
            self._coordinators,
            self.violated,
        )
        self._expect("recovery", self._await(lambda: recovery.is_calm, CALM_S))
        for client in self.clients:
            client.is_stopping = True
        ended = self._await(lambda: all(task.done() for task in self._tasks), CALM_S)
        self._expect("clients stop", ended)
        for task in self._tasks:
            if task.done():
                task.result()  # a client that has failed has judged nothing
        self.story.tell(self.scheduler.now, "world", "all is calm, the clients have stopped")

    def _judge(self) -> None:
        self.story.tell(self.scheduler.now, "world", "a last write, and the final read")
        self._write_everywhere()
        final = SimReader(self._client("final"), self.recorder, self.profile.keys, final=True)
        loop = final.client.loop
        tidied = all(self._do(each.finish(), CALM_S, each.client.loop) for each in self._transactors)
        self._expect("transactions end", tidied)
        one_of_each = {member.group: member for member in self._members}.values()
        answered = all(self._do(each.note_committed(), CALM_S, each.client.loop) for each in one_of_each)
        self._expect("groups tell", answered)
        read = self._do(self._read_all(final), CALM_S, loop)
        self._expect("final read", read, f"stuck at {final.positions} of {self.recorder.highest_seen}")
        self._expect("ends", self._do(final.note_ends(), CALM_S, loop))
        self._settle()
        self._replicas.compare()
        compare_images(self.cluster, self.violated)
        leader = self.cluster.leader
        assert leader is not None
        assert leader.node.controller_role is not None
        for admin in self._admins:
            for what in admin.violations(leader.node.controller_role.state_machine.image):
                self.violated("administration", what)
        for rule, what in refused_sequences(self._fleeting.operations):
            self.violated(rule, what)
        history = self.recorder.history()
        resends = self.profile.resends
        judge(history, check(history), self._metadata.elected, self.violated, resends=resends)

    def _settle(self) -> None:
        """Followers learn by their next fetch how far everything is replicated, brokers what is decided."""
        for _ in range(SETTLE_LOOKS):
            if not self._unsettled():
                return
            self.pass_time(SETTLE_S)
        self._expect("replicas settle", False, self._unsettled())

    def _unsettled(self) -> str:
        return self._replicas.unsettled() or behind(self.cluster)

    def _create_topics(self) -> None:
        topics = [
            {
                "name": name, "num_partitions": mode.partitions, "assignments": [],
                "replication_factor": self.profile.shape.copies,
                "configs": [
                    {"name": key, "value": value}
                    for key, value in self.profile.topic_configs.get(name, {}).items()
                ],
            }
            for name, mode in {**self.profile.topics, **self.profile.fleeting}.items()
        ]  # fmt: skip
        client = self._client("admin")

        async def create() -> None:
            fields = {"topics": topics, "timeout_ms": 5000, "validate_only": False}
            while True:
                try:
                    answer = await client.request_any(ApiKey.CREATE_TOPICS, fields)
                except OSError:
                    await client.pause(0.5)
                    continue
                codes = {ErrorCode(topic.error_code) for topic in answer.topics}
                if codes <= {ErrorCode.NONE, ErrorCode.TOPIC_ALREADY_EXISTS}:
                    return
                await client.pause(0.5)

        self._expect("topics", self._do(create(), BOOT_S, client.loop))

    def _start_clients(self) -> None:
        for topic, number in self.profile.writers:
            is_judged = topic in self.profile.topics
            mode = self.profile.topics[topic] if is_judged else self.profile.fleeting[topic]
            recorder = self.recorder if is_judged else self._fleeting
            keys = [f"{topic}-{i}" for i in range(mode.partitions)]
            if mode.transactional:
                self._start_transactors(topic, keys, recorder)
                continue
            producer = SimProducer(
                self._client(f"{topic}{number}"), recorder, keys, acks=mode.acks,
                idempotent=mode.idempotent, pause_s=self._pause_s, resends=self.profile.resends,
            )  # fmt: skip
            self._employ(producer.client, producer.run())
        for group, classic in GROUPS.items():
            for number in range(self.profile.members):
                client = self._client(f"{group}{number}")
                is_static = number < self.profile.static_members
                member = SimMember(
                    client, self.recorder, group, self.profile.keys, classic=classic,
                    instance_id=f"{group}-{number}" if is_static else None,
                )  # fmt: skip
                self._members.append(member)
                self._employ(client, member.run())
        for number in range(self.profile.admins):
            brokers = self.profile.shape.brokers
            client = self._client(f"admin{number}")
            copies = self.profile.shape.copies
            admin = SimAdmin(
                client, self.recorder, self.profile.keys, brokers, copies, self.profile.shape.log_dirs_of
            )
            self._admins.append(admin)
            self._employ(client, admin.run())
        for number in range(self.profile.readers):
            reader = SimReader(self._client(f"reader{number}"), self.recorder, self.profile.keys)
            self._employ(reader.client, reader.run())
        for number in range(self.profile.session_readers):
            sessions = SimSessionReader(
                self._client(f"session{number}"), self.recorder, self.profile.keys, rack_of(number)
            )
            self._session_readers.append(sessions)
            self._employ(sessions.client, sessions.run())

    def _start_transactors(self, topic: str, targets: list[str], recorder: Recorder) -> None:
        """One for each partition of the input."""
        for number in range(self.profile.topics[INPUT].partitions):
            name = f"{topic}{number}"
            transactor = SimTransactor(
                self._client(name), recorder, name, f"{INPUT}-{number}", targets, self._pause_s,
                is_second=self.profile.second_transactors and number % 2 == 0,
            )  # fmt: skip
            self._transactors.append(transactor)
            self._employ(transactor.client, transactor.run())

    def _start_operator(self) -> None:
        operator = SimOperator(self._client("operator"), self.cluster)
        lowered = self._do(operator.lower_levels(), BOOT_S, operator.client.loop)
        self._expect("levels", lowered)
        self._begin(operator.client, operator.upgrade())

    def _employ(self, client: ClusterClient, work: Coroutine[Any, Any, None]) -> None:
        """From now on until all is calm."""
        self.clients.append(client)
        self._begin(client, work)

    def _begin(self, client: ClusterClient, work: Coroutine[Any, Any, None]) -> None:
        """It has to end, too."""
        client.loop.post(lambda: self._tasks.append(client.loop.create_task(work)))

    def _write_everywhere(self) -> None:
        """Each partition takes a write: clients choose among those of a topic, and one that takes none would
        hold nobody up."""
        client, left = self._client("last"), list(self.profile.keys)
        producer = SimProducer(
            client, self.recorder, self.profile.keys, acks=ACKS_ALL, idempotent=False, pause_s=RETRY_S
        )

        async def write() -> None:
            while left:
                await producer.write(left[0])
                left.pop(0)

        written = self._do(write(), CALM_S, client.loop)
        self._expect("last write", written, f"{left[:1]} take none")

    async def _read_all(self, reader: SimReader) -> None:
        """Every key to its end."""
        reader.assign()
        left = dict.fromkeys(self.profile.keys)
        while left:
            for key in list(left):
                try:
                    await reader.poll(key)
                    end = await bound(reader.client, key, LATEST_TIMESTAMP)
                except OSError:
                    reader.client.forget_leader(key)
                    await reader.client.pause(0.2)
                    continue
                position = reader.positions.get(key, 0)
                if end is not None and position >= max(end, self.recorder.highest_seen.get(key, 0)):
                    del left[key]

    # ---- time

    def _client(self, name: str) -> ClusterClient:
        loop = self.cluster.client(name)
        client = ClusterClient(loop, self._addresses, self.draws.stream(f"client {name}"))
        client.is_deposed, client.report = self._metadata.is_deposed, self.violated
        return client

    def _spawn(self, loop: ProcessLoop, work: Coroutine[Any, Any, None]) -> list[Any]:
        """A list that holds its task as soon as it runs."""
        tasks: list[Any] = []
        loop.post(lambda: tasks.append(loop.create_task(work)))
        return tasks

    def _do(self, work: Coroutine[Any, Any, None], seconds: float, loop: ProcessLoop) -> bool:
        """Run it to its end; False where the time was up before."""
        tasks = self._spawn(loop, work)
        done = self._await(lambda: bool(tasks) and tasks[0].done(), seconds)
        if done:
            tasks[0].result()
        return done

    def _await(self, reached: Callable[[], bool], seconds: float) -> bool:
        end = self._end(self.scheduler.now + seconds)
        while not reached() and self.scheduler.now < end:
            self._run_until(end, reached)
        return reached()

    def pass_time(self, seconds: float) -> None:
        end = self._end(self.scheduler.now + seconds)
        while self.scheduler.now < end:
            self._run_until(end)

    def _run_until(self, end: float, reached: Callable[[], bool] | None = None) -> None:
        """Until then, or until garbage is to be collected, or somebody looks, or until it is reached."""
        looks_at = self.scheduler.now + self._look_every_s
        self.scheduler.run(min(end, self._collects_at, looks_at), reached)
        if self.scheduler.now >= looks_at:
            self._look()
        if self.scheduler.now >= self._collects_at:
            gc.collect()
            self._collects_at = self.scheduler.now + COLLECT_S

    def _end(self, time: float) -> float:
        return time if self._until is None else min(time, self._until)


@contextmanager
def unbegun_is_no_mistake() -> Iterator[None]:
    """What dies before its first step, as in a process that is killed, is nothing that was forgotten."""
    with warnings.catch_warnings():
        warnings.filterwarnings("ignore", "coroutine .* was never awaited", RuntimeWarning)
        yield


@contextmanager
def deterministic_garbage() -> Iterator[None]:
    """No collection but at times that the seed decides.

    What was there before is not looked at, and the garbage of an earlier run goes first. A process of many
    runs freezes what it begins with by itself; then nothing else is, or it would never be freed.
    """
    was_enabled, is_frozen = gc.isenabled(), gc.get_freeze_count() > 0
    with unbegun_is_no_mistake():
        gc.collect()
        if not is_frozen:
            gc.freeze()
        gc.disable()
        try:
            yield
            gc.collect()
        finally:
            if not is_frozen:
                gc.unfreeze()
            if was_enabled:
                gc.enable()
