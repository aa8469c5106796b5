"""What ends a simulation, or accuses a node in it, without any client noticing."""

from __future__ import annotations

import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from chaos.simulator import scheduler
from chaos.simulator.cluster import CONTROLLER_PORT, Cluster
from chaos.simulator.draws import Draws
from chaos.simulator.network import Network
from chaos.simulator.oracles.committed_metadata import MetadataOracle
from chaos.simulator.oracles.coordinators import CoordinatorOracle
from chaos.simulator.oracles.images import behind, compare_images
from chaos.simulator.oracles.nodes import NodeOracle
from chaos.simulator.oracles.quorum import QuorumOracle
from chaos.simulator.oracles.recovery import RecoveryOracle
from chaos.simulator.oracles.replica_watch import SWEEP_S
from chaos.simulator.oracles.replicas import ReplicaOracle
from chaos.simulator.profile import COMBINED
from chaos.simulator.scheduler import Livelock, Scheduler
from chaos.simulator.story import Story
from data_plane.log.aborted import AbortedTransaction
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.purgatory.purgatory import Watchers
from kraft.wire import raft_frame
from kraft.wire.api_keys import ApiKey
from kraft.wire.header import request_header
from kraft.wire.raft_frame import RAFT_API_VERSION, RaftFrame
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.foundation.model import PartitionRegistration, TopicPartition
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from metadata_quorum.raft.messages import Append, Message, PreVoteReply, VoteReply, encode
from tests.support.logs import NOW_MS, open_log


def made() -> Cluster:
    time, draws = Scheduler(), Draws(1)
    return Cluster(COMBINED.shape, time, Network(time, draws), draws, Story())


@pytest.fixture
def cluster() -> Cluster:
    return made()


def test_callbacks_that_only_call_callbacks_are_a_live_lock(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(scheduler, "BUSY_EVENTS", 1_000)
    cluster = made()
    process = cluster.machines[1].start(1)

    def again() -> None:
        process.call_soon(again)

    process.post(again)
    with pytest.raises(Livelock):
        cluster.scheduler.run(1.0)
    assert cluster.scheduler.now < 1.0


DISK_FAILED = FatalError(ExitCode.DISK_FAILED, "its disk")
NO_FILE = OSError(errno.EIO, "its disk")


@pytest.mark.parametrize(
    ("error", "struck", "is_accused"),
    [
        (DISK_FAILED, 1, False),
        (DISK_FAILED, 2, True),
        (NO_FILE, 1, False),
        (NO_FILE, None, True),
        (ConnectionResetError("the network"), 1, True),
        (TimeoutError("nobody answers"), 1, True),
        (FatalError(ExitCode.USAGE, "no reason"), 1, True),
        (InvariantViolation(Invariant.ACKED_IN_LOG, "gone"), 1, True),
        (ValueError("a bug"), 1, True),
    ],
)
def test_only_its_own_failed_disk_excuses_a_node(
    cluster: Cluster, error: Exception, struck: int | None, is_accused: bool
) -> None:
    """`struck`: the node whose disk has failed."""
    reported: list[str] = []
    NodeOracle(cluster, lambda rule, what: reported.append(rule))
    if struck is not None:
        disk = cluster.machines[struck].disk
        disk.fail("open", errno.EIO)
        with pytest.raises(OSError, match="Input/output"):
            disk.open("/a/file")
    for told in cluster.on_end:
        told(1, error, "why")
    for heard in cluster.on_error:
        heard(1, "its work", error)
    assert reported == (["fallen node", "unexpected error"] if is_accused else [])


TOPIC = UUID(int=7)
FIRST = PartitionRegistration(replicas=(1, 2, 3), isr=(1, 2, 3), leader=1, leader_epoch=4, partition_epoch=9)


class Machine:
    """A controller's state machine, as it shows itself to who looks on."""

    def __init__(self, cluster: Cluster, node_id: int) -> None:
        self.heard: list[Any] = []
        self.applied_index = 0
        self.rolling_hash = b""
        self.subscribe = self.heard.append
        role = SimpleNamespace(state_machine=self)
        running: Any = SimpleNamespace(node=SimpleNamespace(controller_role=role))
        for observe in cluster.on_start:
            observe(node_id, running)

    def apply(self, index: int, state: PartitionRegistration, *, came_to: bytes = b"same") -> None:
        self.applied_index, self.rolling_hash = index, came_to
        delta, image = changed(state, index)
        for each in self.heard:
            each(delta, image)


def changed(state: PartitionRegistration, offset: int) -> tuple[MetadataDelta, MetadataImage]:
    """Brokers 1 and 2 are active, 3 is fenced where it is not in that ISR."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for broker in (1, 2, 3):
        incarnation = UUID(int=broker)
        delta.replay(
            RegisterBrokerRecord(
                broker_id=broker,
                incarnation_id=incarnation,
                broker_epoch=1,
                fenced=broker not in (1, 2, *state.isr),
            )
        )
    delta.replay(TopicRecord(name="t", topic_id=TOPIC))
    delta.replay(
        PartitionRecord(
            partition_id=0, topic_id=TOPIC, replicas=state.replicas, isr=state.isr, leader=state.leader,
            leader_epoch=state.leader_epoch, partition_epoch=state.partition_epoch,
            eligible_leader_replicas=state.elr or None,
        )
    )  # fmt: skip
    image = replace(delta.apply(), offset=offset)
    return delta, image


@pytest.mark.parametrize(
    ("changes", "rule"),
    [
        ({"leader": 2, "leader_epoch": 5}, None),
        ({"isr": (1, 2)}, None),
        ({"partition_epoch": 8}, "PARTITION_EPOCH_MONOTONIC"),
        ({"leader_epoch": 3}, "PARTITION_EPOCH_MONOTONIC"),
        ({"leader": 2}, "PARTITION_EPOCH_MONOTONIC"),
        ({"leader": 2}, "ONE_LEADER_PER_EPOCH"),
        ({"partition_epoch": 9, "isr": (1,)}, "PARTITION_EPOCH_MONOTONIC"),
        ({"isr": (2, 3)}, "ISR_WELL_FORMED"),
        ({"isr": (1, 2), "elr": (2,)}, "ISR_WELL_FORMED"),
    ],
)
def test_what_no_partition_becomes(cluster: Cluster, changes: dict[str, Any], rule: str | None) -> None:
    reported: list[str] = []
    MetadataOracle(cluster, lambda rule, what: reported.append(rule))
    machine = Machine(cluster, 1)
    machine.apply(1, FIRST)
    assert reported == []
    machine.apply(2, replace(FIRST, **{"partition_epoch": 10, **changes}))
    assert (rule in reported) if rule else reported == []


def test_voters_that_come_to_different_things(cluster: Cluster) -> None:
    reported: list[str] = []
    MetadataOracle(cluster, lambda rule, what: reported.append(rule))
    one, other = Machine(cluster, 1), Machine(cluster, 2)
    one.apply(1, FIRST)
    other.apply(1, FIRST)
    assert reported == []
    one.apply(2, replace(FIRST, partition_epoch=10))
    other.apply(2, replace(FIRST, partition_epoch=10), came_to=b"another")
    assert reported == ["STATE_MACHINE_SAFETY"]


class Voter:
    """A voter that is what it says, whatever its disk has."""

    def __init__(self, cluster: Cluster, node_id: int, *, term: int = 1, commit_index: int = 0) -> None:
        self.node_id = node_id
        self.core = SimpleNamespace(term=term, commit_index=commit_index, is_leader=False)
        self.journal = SimpleNamespace(durable_index=9, base_index=0, term_at=lambda index: self.core.term)
        role = SimpleNamespace(voter=self)
        running: Any = SimpleNamespace(node=SimpleNamespace(controller_role=role))
        cluster.on_start[-1](node_id, running)
        self._tap = cluster.network.taps[-1]

    def say(self, target: int, message: Message) -> None:
        """As it leaves for another voter's port."""
        incarnation = UUID(int=self.node_id)
        frame = raft_frame.encode(RaftFrame("c", self.node_id, target, encode(incarnation, message)))
        request = request_header(ApiKey.RAFT_FRAME, RAFT_API_VERSION, 0, None)
        stream: Any = SimpleNamespace(remote=("there", CONTROLLER_PORT))
        self._tap(stream, (len(request) + len(frame)).to_bytes(4, "big") + request + frame)


def append(term: int) -> Append:
    return Append(term=term, seq=1, prev_index=1, prev_term=0, commit_index=1, digest=0, entries=())


def test_what_no_voter_says_or_does(cluster: Cluster) -> None:
    reported: set[str] = set()
    QuorumOracle(cluster, lambda rule, what: reported.add(rule))
    one, other = Voter(cluster, 1, term=0), Voter(cluster, 2, term=0)
    one.say(2, append(0))
    assert reported == set()
    other.say(1, append(0))
    assert reported == {"ONE_LEADER_PER_TERM"}
    reported.clear()
    one.say(2, VoteReply(1))
    assert reported == {"DURABLE_BEFORE_COUNTED"}, "its disk has term 0"
    reported.clear()
    one.say(3, VoteReply(1))
    assert "TERM_AND_COMMIT_MONOTONIC" in reported, "it has another vote in that term"
    reported.clear()
    one.core.commit_index, one.core.term = 2, 1
    one.say(2, append(0))
    assert reported == {"COMMITTED_ON_A_MAJORITY"}, "no disk has it"
    reported.clear()
    one.core.commit_index = 1
    one.say(2, append(0))
    assert reported == {"TERM_AND_COMMIT_MONOTONIC"}
    other.core.commit_index, other.core.term = 2, 2
    reported.clear()
    other.say(3, PreVoteReply(0, 1, granted=True))
    assert "STATE_MACHINE_SAFETY" in reported, "another entry than the first voter"
    reported.clear()
    one.core.term = one.core.commit_index = 2
    one.journal.term_at = lambda index: 1
    one.say(2, append(3))
    assert "LEADER_COMPLETENESS" not in reported
    other.journal.term_at = lambda index: None
    other.say(1, append(4))
    assert "LEADER_COMPLETENESS" in reported, "it has nothing"


class Log:
    """As much of it as the oracle looks at."""

    def __init__(self, epochs: SimpleNamespace) -> None:
        self.log_start_offset, self.log_end_offset, self.epochs = 0, 8, epochs
        self.config = LogConfig()
        self.log_segments = SimpleNamespace(active=SimpleNamespace(path="/n/data/t-0/0.log", size=0))


class Replica:
    """As much of a partition as the oracle looks at."""

    def __init__(self, *, leads: bool = True, epoch: int = 4) -> None:
        self.tp, self.topic_id = TopicPartition("t", 0), TOPIC
        self.offline = self.removed = False
        self.leader = SimpleNamespace(maximal_isr=(1,)) if leads else None
        self.watchers = Watchers()
        self.leader_id, self.leader_epoch = 1, epoch
        self.high_watermark = self.last_stable_offset = 5
        self.epochs = SimpleNamespace(entries=[(1, 0), (4, 2)], latest=4, epoch_at=lambda _: 4)
        self.log = Log(self.epochs)


def looked_at(cluster: Cluster, *replicas: Replica) -> set[str]:
    """On nodes 1, 2, … one after the other; what is reported."""
    reported: set[str] = set()
    known: Any = SimpleNamespace(newest=lambda *_: FIRST)
    ReplicaOracle(cluster, lambda rule, what: reported.add(rule), known)
    for number, replica in enumerate(replicas):
        role = SimpleNamespace(replica_manager=[replica])
        running: Any = SimpleNamespace(
            is_ready=True, loop=SimpleNamespace(number=number), node=SimpleNamespace(broker_role=role)
        )
        cluster.running = {number + 1: running}
        cluster.scheduler.run(cluster.scheduler.now + SWEEP_S)
    return reported


def test_what_no_replica_shows(cluster: Cluster) -> None:
    assert looked_at(cluster, Replica(), Replica(leads=False)) == set()
    behind = Replica()
    behind.last_stable_offset = 6
    assert looked_at(made(), behind) == {"OFFSETS_IN_ORDER"}
    twice = Replica()
    twice.epochs.entries = [(1, 0), (1, 2)]
    assert looked_at(made(), twice) == {"BATCH_EPOCHS_MONOTONIC"}
    assert looked_at(made(), Replica(), Replica()) == {"ONE_LEADER_PER_EPOCH"}
    back = Replica()
    back.high_watermark = back.last_stable_offset = 4
    assert "HIGH_WATERMARK_MONOTONIC" in looked_at(made(), Replica(), back)
    lacks = Replica()
    lacks.high_watermark = lacks.last_stable_offset = lacks.log.log_end_offset = 3
    assert "ACKED_IN_LOG" in looked_at(made(), Replica(epoch=3), lacks)


def compared(
    cluster: Cluster,
    tmp_path: Path,
    *contents: Sequence[bytes],
    then: Callable[[UnifiedLog], None] = lambda log: None,
    **config: Any,
) -> set[str]:
    """Of replicas with these values, all of one key and one producer; on nodes 1, 2, …

    `then`: what befalls the last of them."""
    reported: set[str] = set()
    state = replace(FIRST, replicas=(1, 2), isr=(1, 2))
    _, image = changed(state, 1)
    machine = SimpleNamespace(image=image)
    known: Any = None
    for number, values in enumerate(contents, 1):
        log = open_log(tmp_path / f"{len(list(tmp_path.iterdir()))}", LogConfig(**config))
        for value in values:
            batch = encode_batch(
                [Record(-1, NOW_MS, b"key", value)],
                producer_id=7,
                producer_epoch=0,
                base_sequence=log.log_end_offset,
            )
            log.append_as_leader(bytearray(batch), leader_epoch=0, now_ms=NOW_MS)
        if number == len(contents):
            then(log)
        partition = SimpleNamespace(
            tp=TopicPartition("t", 0), topic_id=TOPIC, offline=False, removed=False, log=log, high_watermark=2
        )
        role = SimpleNamespace(
            controller=SimpleNamespace(is_active=True), raft=SimpleNamespace(term=1), state_machine=machine
        )
        running: Any = SimpleNamespace(
            node=SimpleNamespace(
                controller_role=role, broker_role=SimpleNamespace(replica_manager=[partition])
            )
        )
        cluster.running[number] = running
    ReplicaOracle(cluster, lambda rule, what: reported.add(rule), known).compare()
    return reported


def test_replicas_that_differ(tmp_path: Path) -> None:
    same, other = (b"a", b"b"), (b"a", b"B")
    assert compared(made(), tmp_path, same, same) == set()
    assert compared(made(), tmp_path, same, other) == {"REPLICAS_AGREE"}
    compact = {"cleanup_policy": ("compact",)}
    assert compared(made(), tmp_path, same, same, **compact) == set()
    assert compared(made(), tmp_path, same, other, **compact) == {"REPLICAS_AGREE"}


def test_replicas_whose_producers_differ(tmp_path: Path) -> None:
    """The next leader would take a repeated batch for a new one."""
    same = (b"a", b"b")

    def forget(log: UnifiedLog) -> None:
        log.producers.states.clear()

    def be_told_another_epoch(log: UnifiedLog) -> None:
        log.producers.states[7].coordinator_epoch = 3

    def know_of_an_abort(log: UnifiedLog) -> None:
        log.aborted.entries.append(AbortedTransaction(7, 0, 1, 2))

    def begin_behind_the_beginning(log: UnifiedLog) -> None:
        know_of_an_abort(log)
        log.log_start_offset = 1

    for then in (forget, be_told_another_epoch, know_of_an_abort):
        assert compared(made(), tmp_path, same, same, then=then) == {"REPLICAS_AGREE"}
    # Where the others begin, it had come before the transaction's records were deleted; they came later.
    assert compared(made(), tmp_path, same, same, then=begin_behind_the_beginning) == set()
    compact = {"cleanup_policy": ("compact",)}
    assert compared(made(), tmp_path, same, same, then=forget, **compact) == set()


def test_nodes_that_know_another_cluster(cluster: Cluster) -> None:
    """One has missed a change, another is behind, a third has all of it from a snapshot."""
    _, image = changed(FIRST, 4)
    missed = replace(image, configs={(2, "t"): {"retention.ms": "1"}})
    role = SimpleNamespace(
        controller=SimpleNamespace(is_active=True),
        raft=SimpleNamespace(term=1),
        state_machine=SimpleNamespace(image=image),
    )

    def told(*images: MetadataImage) -> tuple[str, list[str]]:
        for number, known in enumerate((image, *images), 1):
            context = SimpleNamespace(metadata_cache=SimpleNamespace(image=known))
            running: Any = SimpleNamespace(
                node=SimpleNamespace(controller_role=role if number == 1 else None, context=context)
            )
            cluster.running[number] = running
        reported: list[str] = []
        compare_images(cluster, lambda rule, what: reported.append(what))
        return behind(cluster), reported

    assert told(replace(image, timestamp_ms=7, epoch=3)) == ("", [])
    late, reported = told(replace(missed, offset=3))
    assert late == "2 knows the metadata up to 3 of 4"
    assert reported == []
    late, reported = told(image, missed)
    assert late == ""
    assert len(reported) == 1
    assert reported[0].startswith("3 has configs {(2, 't'): ")


def test_nothing_recovers_and_each_bound_is_over_in_its_time(cluster: Cluster) -> None:
    """No node is ever started."""
    reported: dict[str, float] = {}
    loop: Any = cluster.client("stuck")
    stuck: Any = SimpleNamespace(loop=loop, last_ok_s=loop.time() - 1.0)
    member: Any = SimpleNamespace(
        client=stuck, group="g", keys={"t-0"}, read_at_s={}, owned=(), assigned_at_s=-1.0
    )

    def report(rule: str, what: str) -> None:
        reported[rule] = cluster.scheduler.now

    coordinators = CoordinatorOracle(cluster, report)
    oracle = RecoveryOracle(cluster, [stuck], [member], [], coordinators, report)
    cluster.scheduler.run(120.0)
    assert oracle.is_calm
    rounded = {rule.removeprefix("recovery: "): round(at_s) for rule, at_s in reported.items()}
    assert rounded == {
        "controller": 9, "nodes": 18, "brokers": 18, "leaders": 18, "coordinators": 18, "clients": 33,
        "isr": 45, "groups": 46, "transactions": 51, "readers": 56, "rebalances": 63,
    }  # fmt: skip


@pytest.mark.parametrize(("position", "is_missed"), [(None, True), (6, True), (7, False)])
def test_a_consumer_whose_session_has_forgotten_a_partition(
    cluster: Cluster, position: int | None, is_missed: bool
) -> None:
    """It reads all others. What is not committed it need not read."""
    state_machine = SimpleNamespace(image=changed(FIRST, 4)[1])
    role = SimpleNamespace(
        controller=SimpleNamespace(is_active=True), raft=SimpleNamespace(term=1), state_machine=state_machine
    )
    controller: Any = SimpleNamespace(node=SimpleNamespace(controller_role=role, broker_role=None))
    controller.is_ready = True
    cluster.running[1] = controller
    coordinators: Any = SimpleNamespace(
        ends=lambda: {TopicPartition("t", 0): 10}, stable_end=lambda image, tp: 7,
        unloaded=lambda image: "", open_transactions=lambda image, ends: "",
    )  # fmt: skip
    reader: Any = SimpleNamespace(
        keys=["t-0"],
        positions={} if position is None else {"t-0": position},
        client=SimpleNamespace(loop=SimpleNamespace(name="session0")),
    )
    reported: dict[str, str] = {}
    RecoveryOracle(cluster, [], [], [reader], coordinators, reported.__setitem__)
    cluster.scheduler.run(70.0)
    assert ("recovery: readers" in reported) == is_missed
