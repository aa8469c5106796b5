"""Progress while faults last: what the nodes that can talk to each other must bring about, and by when.

contact.py: who talks, since when -> a quorum that talks has a controller; who has none resigns
                                  -> the controller fences who is silent, and none that talks
                                  -> leaders are elected, ISRs and high watermarks follow, coordinators load

Every bound counts from the moment at which the last of its conditions became true. It is generous: what is
accused here stands still.
"""

from __future__ import annotations

from collections import deque
from itertools import combinations
from typing import Final, NamedTuple
from uuid import UUID

from chaos.simulator.cluster import Cluster, RunningNode
from chaos.simulator.oracles.contact import Contact, ContactLedger
from chaos.simulator.oracles.coordinators import COORDINATED, CoordinatorOracle
from chaos.simulator.oracles.quorum import Report
from chaos.simulator.oracles.recovery import CONTROLLER_S
from chaos.simulator.software import THIS
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import BrokerError
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration, TopicPartition
from metadata_quorum.metadata.image import MetadataImage

SAMPLE_S: Final = 0.25
LAGS: Final = 1.5
"""replica.lag.time.max.ms, and half of it until the leader looks again."""
ASKED_S: Final = 2.0
"""Until the controller, which it can reach, has changed the ISR."""


class ActiveController(NamedTuple):
    """One that a majority of the voters hears."""

    node_id: int
    process: int
    term: int


class LivenessOracle:
    """See the module."""

    def __init__(self, cluster: Cluster, coordinators: CoordinatorOracle, report: Report) -> None:
        self._cluster = cluster
        self._coordinators = coordinators
        self._report = report
        self._ledger = ContactLedger(cluster)
        config = THIS.config(cluster.shape.properties(cluster.shape.nodes[0]))
        self._fenced_s = config.broker_session_timeout_ms / 1000 + CONTROLLER_S
        self._lag_s = LAGS * config.replica_lag_time_max_ms / 1000 + ASKED_S
        self._majority = len(cluster.shape.controllers) // 2 + 1
        self._controller: ActiveController | None = None
        self._since_s = 0.0
        """Since when it is who it is."""
        self._acts_since_s = 0.0
        """Since when it can also commit what it decides."""
        self._had_controller_s = 0.0
        self._ends: dict[tuple[UUID, int, int, tuple[int, ...]], deque[tuple[float, int]]] = {}
        """Where the log of a leader has ended, and since when: by partition, leader epoch and process."""
        self._registered: dict[tuple[UUID, int], tuple[PartitionRegistration, float]] = {}
        """The state of each partition, and since when it is known."""
        self._joined: dict[tuple[UUID, int, int], float] = {}
        """When a replica was seen to have come into the ISR: it had what is committed, not all."""
        cluster.scheduler.at(cluster.scheduler.now + SAMPLE_S, self._sample)

    def _sample(self) -> None:
        scheduler = self._cluster.scheduler
        scheduler.at(scheduler.now + SAMPLE_S, self._sample)
        self._ledger.look()
        self._judge_minorities()
        running = self._look_for_controller()
        if running is None or running.node.controller_role is None:
            self._judge_silence()
            return
        me = running.node.config.node_id
        commits_since_s = self._commits_since_s(me)
        if commits_since_s is not None:
            self._acts_since_s = max(self._since_s, commits_since_s)
            image = running.node.controller_role.state_machine.image
            self._judge_brokers(me, image)
            self._judge_partitions(me, image)

    @property
    def _now(self) -> float:
        return self._cluster.scheduler.now

    def _for_s(self, *since_s: float) -> float:
        """How long all of it has been so."""
        return self._now - max(since_s)

    # ---- the quorum

    def _look_for_controller(self) -> RunningNode | None:
        """The active controller, where a majority may hear it."""
        running = self._cluster.leader
        if running is None or running.node.controller_role is None or not self._may_be_heard(running):
            return None
        self._had_controller_s = self._now
        found = ActiveController(
            running.node.config.node_id, running.loop.number, running.node.controller_role.raft.term
        )
        if found != self._controller:
            self._controller, self._since_s = found, self._now
        return running

    def _may_be_heard(self, running: RunningNode) -> bool:
        me = running.node.config.node_id
        heard = [self._ledger.pair(me, voter).contact for voter in self._cluster.shape.controllers]
        return sum(contact is not Contact.SILENT for contact in heard) >= self._majority

    def _commits_since_s(self, me: int) -> float | None:
        """Since when it talks to a majority, itself included; None where it does not, or is slow."""
        pairs = [self._ledger.pair(me, voter) for voter in self._cluster.shape.controllers]
        since = sorted(pair.since_s for pair in pairs if pair.contact is Contact.TALKS)
        if self._ledger.node(me).contact is not Contact.TALKS or len(since) < self._majority:
            return None
        return since[self._majority - 1]

    def _judge_silence(self) -> None:
        """There is no controller. A majority that talks must elect one."""
        for some in combinations(self._cluster.shape.controllers, self._majority):
            lasting = [self._ledger.node(each) for each in some]
            lasting += [self._ledger.pair(*pair) for pair in combinations(some, 2)]
            if any(each.contact is not Contact.TALKS for each in lasting):
                continue
            for_s = self._for_s(self._had_controller_s, *(each.since_s for each in lasting))
            if for_s > CONTROLLER_S:
                self._report("liveness: controller", f"{some} talk, and have none after {for_s:.1f} s")

    def _judge_minorities(self) -> None:
        """A controller that a majority cannot hear has to resign."""
        voters = self._cluster.shape.controllers
        for node_id in voters:
            running = self._cluster.running.get(node_id)
            if running is None or running.node.controller_role is None:
                continue
            here = self._ledger.node(node_id)
            if not running.node.controller_role.controller.is_active or here.contact is not Contact.TALKS:
                continue
            silent = [
                voter
                for voter in voters
                if (pair := self._ledger.pair(node_id, voter)).contact is Contact.SILENT
                and self._for_s(pair.since_s, here.since_s) > CONTROLLER_S
            ]
            if len(voters) - len(silent) < self._majority:
                self._report("liveness: minority", f"{node_id} is active, and does not hear {silent}")

    # ---- brokers

    def _judge_brokers(self, controller: int, image: MetadataImage) -> None:
        for broker in self._cluster.shape.brokers:
            pair = self._ledger.pair(controller, broker)
            for_s = self._for_s(self._acts_since_s, pair.since_s)
            if for_s <= self._fenced_s or pair.contact is Contact.UNCLEAR:
                continue
            if image.is_active(broker) != (pair.contact is Contact.TALKS):
                what = "fenced, and talks" if pair.contact is Contact.TALKS else "not fenced, and silent"
                self._report("liveness: brokers", f"{broker} is {what} to {controller} for {for_s:.1f} s")

    # ---- partitions

    def _judge_partitions(self, controller: int, image: MetadataImage) -> None:
        loaded: set[tuple[int, TopicPartition, int]] | None = None
        for topic in image.topics_by_name.values():
            for number, state in topic.partitions.items():
                partition_id, tp = (topic.id, number), TopicPartition(topic.name, number)
                before = self._registered.get(partition_id)
                if before is None or before[0] != state:
                    for joined in set(state.isr).difference(before[0].isr if before else ()):
                        self._joined[*partition_id, joined] = self._now
                    before = self._registered[partition_id] = (state, self._now)
                if state.leader == NO_LEADER:
                    self._judge_leaderless(controller, tp, state, before[1])
                    continue
                pair = self._ledger.pair(controller, state.leader)
                if pair.contact is not Contact.TALKS:
                    continue
                led_s = self._for_s(self._acts_since_s, pair.since_s, before[1])
                self._judge_leader(tp, topic.id, state, pair.since_s, led_s)
                if tp.topic in COORDINATED and led_s > self._fenced_s:
                    loaded = self._coordinators.serving() if loaded is None else loaded
                    if (state.leader, tp, state.leader_epoch) not in loaded:
                        self._report("liveness: coordinators", f"{tp} is not loaded on {state.leader}")

    def _judge_leaderless(
        self, controller: int, tp: TopicPartition, state: PartitionRegistration, since_s: float
    ) -> None:
        for candidate in state.isr or state.elr:
            pair = self._ledger.pair(controller, candidate)
            for_s = self._for_s(self._acts_since_s, pair.since_s, since_s)
            if pair.contact is Contact.TALKS and for_s > self._fenced_s:
                self._report("liveness: leaders", f"{tp} has none, {candidate} talks for {for_s:.1f} s")

    def _judge_leader(
        self,
        tp: TopicPartition,
        topic_id: UUID,
        state: PartitionRegistration,
        talks_since_s: float,
        led_s: float,
    ) -> None:
        """It leads; what its log held some time ago, everybody in the ISR has, and it is acknowledged."""
        partition = self._replica(state.leader, tp)
        process = self._ledger.node(state.leader).causes
        if partition is None or partition.leader is None or partition.leader_epoch != state.leader_epoch:
            if led_s > self._fenced_s:
                what = f"{state.leader} does not lead {tp} in epoch {state.leader_epoch}"
                self._report("liveness: leaders", f"{what} after {led_s:.1f} s")
            return
        key = (topic_id, tp.partition, state.leader_epoch, process)
        ends, end = self._ends.setdefault(key, deque()), partition.log.log_end_offset
        if not ends or ends[-1][1] != end:
            ends.append((self._now, end))
        while len(ends) > 1 and self._now - ends[1][0] > self._lag_s:
            ends.popleft()
        at_s, due = ends[0]
        if self._for_s(self._acts_since_s, talks_since_s, at_s) <= self._lag_s:
            return
        for follower in state.isr:
            if self._now - self._joined[topic_id, tp.partition, follower] <= self._lag_s:
                continue
            replica = self._replica(follower, tp)
            if replica is not None and replica.log.log_end_offset < due:
                what = f"{follower} is in that of {tp} with {replica.log.log_end_offset} of {due}"
                self._report("liveness: isr", f"{what} for {self._lag_s:.1f} s")
        min_isr = min(partition.log.config.min_insync_replicas, len(state.replicas))
        is_enough = len(state.isr) >= min_isr and led_s > self._lag_s
        if is_enough and partition.high_watermark < due:
            what = f"{tp} stands at {partition.high_watermark} of {due}"
            self._report("liveness: high watermark", f"{what} for {self._lag_s:.1f} s")

    def _replica(self, broker: int, tp: TopicPartition) -> Partition | None:
        running = self._cluster.running.get(broker)
        if running is None or running.node.broker_role is None or not running.is_ready:
            return None
        try:
            found = running.node.broker_role.replica_manager.get(tp.topic, tp.partition)
        except BrokerError:
            return None
        return None if found.offline or found.removed else found
