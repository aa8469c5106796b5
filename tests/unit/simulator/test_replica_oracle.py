"""The oracle of replicas: after which events it looks, what it reads of their logs, what it takes for the
same."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from chaos.simulator.cluster import Cluster
from chaos.simulator.draws import Draws
from chaos.simulator.network import Network
from chaos.simulator.oracles.replica_watch import ReplicaWatch
from chaos.simulator.oracles.replicas import ReplicaOracle, last_records
from chaos.simulator.profile import COMBINED
from chaos.simulator.run import Simulation
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.story import Story
from data_plane.log.aborted import AbortedTransaction
from data_plane.log.config import LogConfig
from data_plane.purgatory.purgatory import Watchers
from data_plane.replication.leader_state import LeaderState
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from tests.support.logs import lead, open_log, truncate
from tests.support.may_block import MAY_BLOCK

TP, TOPIC = TopicPartition("t", 0), UUID(int=7)
SMALL = LogConfig(segment_bytes=400)


def made() -> Cluster:
    time, draws = Scheduler(), Draws(1)
    return Cluster(COMBINED.shape, time, Network(time, draws), draws, Story())


class Broker:
    """One that serves a replica, with a real log on its machine's disk."""

    def __init__(self, cluster: Cluster, number: int) -> None:
        self.cluster = cluster
        machine = cluster.machines[number]
        self.loop = machine.start(number)
        directory = f"/n{number}/data/t-0"
        machine.disk.make_dirs(directory)
        self.log = open_log(Path(directory), SMALL, disk=machine.disk)
        leader = SimpleNamespace(maximal_isr=(1, 2)) if number == 1 else None
        self.replica: Any = SimpleNamespace(
            tp=TP, topic_id=TOPIC, offline=False, removed=False, log=self.log, leader=leader, leader_id=1,
            leader_epoch=4, high_watermark=0, last_stable_offset=0, watchers=Watchers(),
        )  # fmt: skip
        role = SimpleNamespace(replica_manager=[self.replica])
        running: Any = SimpleNamespace(
            loop=self.loop,
            node=SimpleNamespace(
                broker_role=role, controller_role=None, events=SimpleNamespace(listeners={})
            ),
        )
        cluster.running[number] = running
        for observe in cluster.on_start:
            observe(number, running)
        self.do(lambda: None)

    def do(self, *work: Callable[[], object]) -> None:
        """Each in an event of its own, and nothing in between."""
        for each in work:
            self.loop.post(each)
        self.cluster.scheduler.run(self.cluster.scheduler.now + 0.01)

    def shows(self, high_watermark: int) -> None:
        self.replica.high_watermark = self.replica.last_stable_offset = high_watermark
        self.replica.watchers.readable_range_changed()


class Watched:
    """Two brokers of a partition, of which 1 leads, and what is reported."""

    def __init__(self) -> None:
        self.reported: set[str] = set()
        cluster = made()
        state = PartitionRegistration(
            replicas=(1, 2), isr=(1, 2), leader=1, leader_epoch=4, partition_epoch=9
        )
        known: Any = SimpleNamespace(newest=lambda *_: state)
        ReplicaOracle(cluster, lambda rule, what: self.reported.add(rule), known)
        self.leader, self.follower = Broker(cluster, 1), Broker(cluster, 2)
        cluster.scheduler.run(1.0)  # a sweep has found them

    def copy(self) -> None:
        """The follower fetches what it lacks."""

        def fetch() -> None:
            source, target = self.leader.log, self.follower.log
            while target.log_end_offset < source.log_end_offset:
                piece = source.read(target.log_end_offset, 1 << 20, at_least_one_batch=True)
                target.append_as_follower(piece.read(MAY_BLOCK))

        self.follower.do(fetch)


def test_it_looks_after_every_event_in_which_something_changes() -> None:
    cluster = made()
    seen: list[tuple[int, int]] = []
    ReplicaWatch(
        cluster, lambda broker, loop, found: seen.append((found.high_watermark, found.log.log_end_offset))
    )
    broker = Broker(cluster, 1)
    cluster.scheduler.run(1.1)
    seen.clear()
    before = cluster.scheduler.events
    broker.do(
        lambda: lead(broker.log, b"a", b"b"),
        lambda: broker.shows(2),
        lambda: None,
        lambda: broker.shows(1),
    )
    assert seen == [(0, 2), (2, 2), (1, 2)]
    assert cluster.scheduler.events == before + 4, "looking is no event"
    broker.do(lambda: truncate(broker.log, 1), lambda: broker.shows(0))
    assert seen[3:] == [(1, 0), (0, 0)]


def test_what_is_over_before_anybody_looks_again() -> None:
    """Each of these is put right in the next event."""
    watched = Watched()
    leader, follower = watched.leader, watched.follower
    leader.do(lambda: lead(leader.log, b"a"), lambda: lead(leader.log, b"b"))
    watched.copy()
    leader.do(lambda: leader.shows(2), lambda: leader.shows(2))
    assert watched.reported == set()
    leader.do(lambda: leader.shows(1), lambda: leader.shows(2))
    assert watched.reported == {"HIGH_WATERMARK_MONOTONIC"}
    watched.reported.clear()
    follower.do(lambda: truncate(follower.log, 1))
    watched.copy()
    assert watched.reported == {"ACKED_IN_LOG"}, "it is in the ISR, and 2 was shown"
    watched.reported.clear()
    leader.do(lambda: lead(leader.log, b"c"), lambda: leader.shows(3))
    watched.copy()
    assert watched.reported == {"ACKED_IN_LOG"}, "2 is in the ISR, and had not got it yet"


def test_one_that_may_have_lost_it_is_not_accused() -> None:
    watched = Watched()
    leader, follower = watched.leader, watched.follower
    follower.cluster.machines[2].boots += 1
    leader.do(lambda: lead(leader.log, b"a"), lambda: leader.shows(1))
    assert watched.reported == set()


def test_one_that_follows_a_later_leader_is_not_accused_by_the_old_one() -> None:
    """Seed 771105: it was taken away and brought back, which the old leader had not heard of."""
    watched = Watched()
    leader, follower = watched.leader, watched.follower
    follower.do(lambda: setattr(follower.replica, "leader_epoch", 5))
    leader.do(lambda: lead(leader.log, b"a"), lambda: leader.shows(1))
    assert watched.reported == set()


def test_batches_are_read_as_they_are_written() -> None:
    watched = Watched()
    leader, follower = watched.leader, watched.follower
    leader.do(*[lambda: lead(leader.log, b"v" * 150)] * 7)
    assert len(leader.log.segments) > 1
    watched.copy()
    assert watched.reported == set()
    leader.do(lambda: lead(leader.log, b"mine", epoch=4))
    follower.do(lambda: lead(follower.log, b"yours", epoch=4))
    assert watched.reported == {"REPLICAS_AGREE"}


def test_other_epochs_below_the_high_watermark() -> None:
    """The batches are of other epochs, so nothing else compares them."""
    watched = Watched()
    leader, follower = watched.leader, watched.follower
    leader.do(lambda: lead(leader.log, b"a", epoch=1), lambda: lead(leader.log, b"b", epoch=3))
    follower.do(lambda: lead(follower.log, b"a", epoch=1), lambda: lead(follower.log, b"b", epoch=2))
    follower.do(lambda: follower.shows(1))
    leader.do(lambda: leader.shows(2))
    assert watched.reported == set()
    follower.do(lambda: follower.shows(2))
    assert watched.reported == {"REPLICAS_AGREE"}


def test_an_epoch_that_was_begun_and_never_written_in() -> None:
    """As by a leader that is deposed at once: it forgets the epoch when it truncates, and takes the older
    records that it lacks."""
    watched = Watched()
    leader, follower = watched.leader, watched.follower
    leader.do(lambda: lead(leader.log, b"a", epoch=1))
    watched.copy()
    follower.do(lambda: follower.log.epochs.assign(3, 1), lambda: follower.shows(1))
    leader.do(lambda: lead(leader.log, b"b", epoch=1))
    follower.do(lambda: truncate(follower.log, 1))
    watched.copy()
    assert (follower.log.log_end_offset, watched.reported) == (2, set())


def test_epochs_that_the_log_does_not_know() -> None:
    watched = Watched()
    log = watched.leader.log

    def forget() -> None:
        lead(log, b"a", epoch=1)
        log.epochs.clear()

    watched.leader.do(forget)
    assert watched.reported == {"BATCH_EPOCHS_MONOTONIC"}


@pytest.mark.pure("a bug is planted in Python")
def test_a_leader_that_counts_itself_alone_is_seen_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """Without any fault: no client can notice yet."""
    monkeypatch.setattr(LeaderState, "high_watermark", lambda self, before, end, now, own: own)
    outcome = Simulation(5, COMBINED, 1.0, faults=[], until=3.0).run()
    assert {violation.rule for violation in outcome.violations} == {"ACKED_IN_LOG"}


def test_what_was_aborted_is_no_last_record() -> None:
    """The cleaner of one replica has removed it, and another's not yet."""
    kept = encode_batch([Record(value=b"kept", key=b"k")], base_offset=0)
    aborted = encode_batch(
        [Record(value=b"aborted", key=b"k")],
        base_offset=1, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip
    transaction = AbortedTransaction(producer_id=7, first_offset=1, last_offset=2, last_stable_offset=3)
    assert last_records(kept + aborted, [transaction]) == last_records(kept, []) == {b"k": (0, b"kept")}
    assert last_records(kept + aborted, []) == {b"k": (1, b"aborted")}


def test_nothing_is_settled_while_no_controller_is_active() -> None:
    """One that was cut off until the heal may resign behind it (seed 603221)."""
    known: Any = SimpleNamespace()
    oracle = ReplicaOracle(made(), lambda rule, what: None, known)
    assert oracle.unsettled() == "no controller is active"
