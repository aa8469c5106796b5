"""A quorum of 1, 3 or 5 voters in virtual time: every option and every fault drawn from one seed.

Each voter is the real `SyncObjRaft` on a `SimDisk`; only the clock, the network and the disk are
simulated. First come faults (kills, power loss, delay, loss, duplicates, one-way cuts, broken connections,
lost disks), under which safety must hold; then everything heals, and the quorum has to agree
and to commit again within seconds.

    RaftWorld(seed, Options.from_seed(seed, voters=3)).run()      # raises InvariantViolation, Violation

The checks are those of `Invariant`.
"""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass
from random import Random
from typing import Final, TypeVar
from uuid import UUID

from chaos.sim.applied_history import AppliedHistory
from chaos.sim.disk import Killed, SimDisk
from chaos.sim.durable_voter import DurableVoter
from chaos.sim.raft_options import Options
from metadata_quorum.foundation.blocking import RAFT
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.raft.identity import Identity, format_voter
from metadata_quorum.raft.messages import VoteReply, VoteRequest, decode
from metadata_quorum.raft.port import Applied, ProposalOutcome
from metadata_quorum.raft.voter import SyncObjRaft

T = TypeVar("T")

CLUSTER: Final = "simulated-cluster"
DIRECTORY: Final = "/disk/quorum"
FAST_LINK: Final = 0.003
"""Seconds, one way, without faults."""


class Violation(AssertionError):
    """The quorum did not recover after the heal."""


class _SimLink:
    def __init__(self, world: RaftWorld, source: int) -> None:
        self._world = world
        self._source = source

    def send(self, peer: int, frame: bytes) -> bool:
        return self._world.send(self._source, peer, frame)


@dataclass(slots=True)
class SimVoter:
    """A living voter."""

    raft: SyncObjRaft
    machine: AppliedHistory
    tick_at: float = float("inf")
    commit_seen: int = 0
    term_seen: int = 0


class RaftWorld:
    """The quorum, its network, and the checks."""

    def __init__(self, seed: int, options: Options) -> None:
        self.options = options
        self.random = Random(seed)
        self.now = 1000.0
        self.ids = list(range(1, options.voters + 1))
        self.nodes: dict[int, SimVoter] = {}
        self.disks = {i: SimDisk() for i in self.ids}
        self.acked: list[bytes] = []
        self.events = 0
        self._queue: list[tuple[float, int, Callable[[], None]]] = []
        self._counter = itertools.count()
        self._values = itertools.count()
        self._incarnation = itertools.count(1)
        self._latency = {(a, b): FAST_LINK for a in self.ids for b in self.ids if a != b}
        self._last_arrival: dict[tuple[int, int, int], float] = {}
        self._epoch = dict.fromkeys(itertools.combinations(self.ids, 2), 0)
        self._up = dict.fromkeys(self._epoch, False)
        self._cut: set[tuple[int, int]] = set()
        self._durable = {i: DurableVoter(self.disks[i], DIRECTORY) for i in self.ids}
        self.wiped: set[int] = set()
        """Voters whose disk was lost in this run; what they held before is not counted in a majority."""
        self._quiet = False
        self.leaders: dict[int, int] = {}
        """Term -> its leader."""
        self._committed: dict[int, tuple[int, int]] = {}
        """Index -> (term of the entry, term in which it was first seen committed)."""
        self.histories: dict[int, tuple[int, int]] = {}
        self._votes: dict[tuple[UUID, int], int] = {}
        self._identities: dict[int, UUID] = {}
        for i in self.ids:
            self._format(i)
            self.start(i)

    # -- time ------------------------------------------------------------------------------------------

    def at(self, delay: float, action: Callable[[], None]) -> None:
        heapq.heappush(self._queue, (self.now + delay, next(self._counter), action))

    def run_until(self, end: float) -> None:
        while self._queue and self._queue[0][0] <= end:
            when, _, action = heapq.heappop(self._queue)
            self.now = max(self.now, when)
            self.events += 1
            action()
        self.now = end

    def run(self) -> None:
        """Faults, heal, convergence."""
        self.at(0.3, self._client)
        self.at(1.0, self._fault)
        self.run_until(self.now + self.options.fault_seconds)
        self.heal()
        self.converge()

    # -- voters ----------------------------------------------------------------------------------------

    def _format(self, node_id: int) -> None:
        incarnation = UUID(int=next(self._incarnation))
        self._identities[node_id] = incarnation
        format_voter(self.disks[node_id], DIRECTORY, Identity(CLUSTER, node_id, incarnation))

    def start(self, node_id: int) -> None:
        """Start the voter's process."""
        if node_id in self.nodes:
            return
        machine = AppliedHistory(self, node_id)

        def beside(work: Callable[[], T], done: Callable[[T], None]) -> None:
            self._beside(node_id, work, done)

        disk, link, random = self.disks[node_id], _SimLink(self, node_id), Random(self.random.getrandbits(32))
        try:
            raft = SyncObjRaft(
                node_id, self.ids, CLUSTER, disk, DIRECTORY, link, machine, lambda: self.now, random,
                self.options.config, beside,
            )  # fmt: skip
        except Killed:
            self.at(self.random.random(), lambda: self.start(node_id))
            return
        node = self.nodes[node_id] = SimVoter(raft, machine)
        self._check_start(node_id, node)
        for peer in self.ids:
            if peer != node_id:
                self._reconnect_later(node_id, peer, 0.02)
        self._schedule(node)

    def kill(self, node_id: int, *, power: bool) -> None:
        """SIGKILL, or the machine's power."""
        if self.nodes.pop(node_id, None) is None:
            return
        if power:
            self.disks[node_id].power_loss(self.random)
        else:
            self.disks[node_id].kill()
        for peer in self.ids:
            if peer != node_id:
                self._break(node_id, peer, broken=True)

    def _schedule(self, node: SimVoter) -> None:
        delay = node.raft.next_tick_in()
        if delay > 0:
            delay += self.random.random() * 0.01
        if self.now + delay < node.tick_at:
            node.tick_at = self.now + delay
            self.at(delay, lambda: self._tick(node))

    def _tick(self, node: SimVoter) -> None:
        if self.nodes.get(node.raft.node_id) is not node or self.now < node.tick_at:
            return
        node.tick_at = float("inf")
        self._run(node, lambda: node.raft.tick(self.now))

    def _beside(self, node_id: int, work: Callable[[], T], done: Callable[[T], None]) -> None:
        """A thread of that voter: some time later it works, and some time later that is noticed."""
        life = self.disks[node_id].generation

        def alive(step: Callable[[], None]) -> None:
            node = self.nodes.get(node_id)
            if node is not None and self.disks[node_id].generation == life:
                self._run(node, step)

        def working() -> None:
            result = work()
            self.at(delay(), lambda: alive(lambda: done(result)))

        def delay() -> float:
            return self.random.choice([0.0, 0.01, 0.5])

        self.at(delay(), lambda: alive(working))

    def _run(self, node: SimVoter, step: Callable[[], None]) -> None:
        """One step of a voter, unless it is killed between two disk operations of it."""
        try:
            step()
        except Killed:
            self._kill_and_restart(node.raft.node_id)
            return
        self._check(node)
        self._schedule(node)

    # -- network ---------------------------------------------------------------------------------------

    def send(self, source: int, target: int, frame: bytes) -> bool:
        self._check_frame(source, target, frame)
        pair = (min(source, target), max(source, target))
        if not self._up[pair]:
            return False
        link = (source, target)
        if link in self._cut or (not self._quiet and self.random.random() < self.options.loss):
            return True
        epoch = self._epoch[pair]
        arrival = self.now + self._latency[link] * (0.5 + self.random.random())
        arrival = max(arrival, self._last_arrival.get((*link, epoch), 0.0) + 1e-6)
        self._last_arrival[(*link, epoch)] = arrival
        self.at(arrival - self.now, lambda: self._arrive(source, target, epoch, frame))
        if not self._quiet and self.random.random() < self.options.duplicates:
            late = arrival - self.now + self.random.random() * 2
            self.at(late, lambda: self._arrive(source, target, epoch, frame))
        return True

    def _arrive(self, source: int, target: int, epoch: int, frame: bytes) -> None:
        node = self.nodes.get(target)
        pair = (min(source, target), max(source, target))
        if node is None or (source, target) in self._cut:
            return
        if epoch != self._epoch[pair] and (self._quiet or not self.options.lingering):
            return
        self._run(node, lambda: node.raft.receive(source, frame))

    def _break(self, a: int, b: int, *, broken: bool) -> None:
        pair = (min(a, b), max(a, b))
        if not self._up[pair]:
            return
        self._up[pair] = False
        self._epoch[pair] += 1
        for me, peer in (pair, pair[::-1]):
            if me in self.nodes:
                self.nodes[me].raft.disconnected(peer, broken=broken)
                self._schedule(self.nodes[me])

    def _reconnect_later(self, a: int, b: int, delay: float) -> None:
        pair = (min(a, b), max(a, b))

        def connect() -> None:
            if self._up[pair] or not set(pair) <= self.nodes.keys():
                return
            if {pair, pair[::-1]} & self._cut:
                self._reconnect_later(a, b, 0.1)
                return
            self._up[pair] = True
            self._epoch[pair] += 1
            for me, peer in (pair, pair[::-1]):
                self.nodes[me].raft.connected(peer)
                self._schedule(self.nodes[me])

        self.at(delay * (0.5 + self.random.random()), connect)

    # -- load and faults -------------------------------------------------------------------------------

    def _client(self) -> None:
        if self._quiet:
            return
        node = self.nodes.get(self.random.choice(self.ids))
        if node is not None:
            for _ in range(self.random.randint(1, 5)):
                self.propose(node)
        self.at(self.random.random() * 0.1, self._client)

    def propose(self, node: SimVoter) -> None:
        value = b"v%d" % next(self._values)

        def done(applied: Applied) -> None:
            if applied.outcome is ProposalOutcome.COMMITTED:
                self.acked.append(value)

        node.raft.propose(value, done)
        self._schedule(node)

    def _fault(self) -> None:
        if self._quiet:
            return
        random = self.random
        kind = random.random()
        a, b = random.sample(self.ids, 2) if len(self.ids) > 1 else (self.ids[0], self.ids[0])
        if a == b:
            self._kill_and_restart(a)
        elif kind < 0.25:
            self._latency[a, b] = random.choice([FAST_LINK, 0.05, 0.2, 0.6, 1.5])
        elif kind < 0.5:
            self._break(a, b, broken=random.random() < 0.7)
            self._reconnect_later(a, b, random.random() * 0.3)
        elif kind < 0.65:
            self._cut.add((a, b))
            if random.random() < 0.5:
                self._cut.add((b, a))
        elif kind < 0.78:
            self._cut.clear()
        elif len(self.ids) - len(self.nodes) < (len(self.ids) - 1) // 2:
            if random.random() < 0.5:
                self._kill_and_restart(a)
            elif a in self.nodes:
                self.disks[a].kill_before(random.randrange(8))
        self.at(random.random() * 0.4, self._fault)

    def _kill_and_restart(self, node_id: int) -> None:
        if node_id not in self.nodes:
            return
        self.kill(node_id, power=self.options.power_loss and self.random.random() < 0.5)
        # One disk is lost at most: more would be more than the claim tolerates.
        if self.options.wipes and not self.wiped and len(self.ids) > 1 and self.random.random() < 0.3:
            self.wiped.add(node_id)
            self.disks[node_id].wipe()
            self._format(node_id)
        if self.random.random() < 0.3:
            self.disks[node_id].kill_before(self.random.randrange(6))  # once more, while it starts
        self.at(self.random.random() * 2, lambda: self.start(node_id))

    # -- healing ---------------------------------------------------------------------------------------

    def heal(self) -> None:
        """Nothing is wrong from now on."""
        self._quiet = True
        self._cut.clear()
        for disk in self.disks.values():
            disk.heal()
        for link in self._latency:
            self._latency[link] = FAST_LINK
        for i in self.ids:
            self.start(i)
        for a, b in self._epoch:
            self._reconnect_later(a, b, 0.05)

    def converge(self) -> None:
        """One leader, one log, one state, everything acknowledged in it, and a new command commits."""
        end = self.now + self.options.heal_seconds
        before = len(self.acked)
        while self.now < end:
            self.run_until(self.now + 0.1)
            if len(self.acked) == before:
                for node in list(self.nodes.values()):
                    if node.raft.is_leader:
                        self.propose(node)
            elif self._agreed():
                break
        else:
            raise Violation(f"LIVENESS: not converged {self.options.heal_seconds} s after the heal")
        missing = set(self.acked) - set(self.nodes[self.ids[0]].machine.values)
        if missing:
            raise InvariantViolation(Invariant.ACKED_IN_LOG, f"lost: {sorted(missing)}")
        values = self.nodes[self.ids[0]].machine.values
        if len(values) != len(set(values)):
            raise InvariantViolation(Invariant.APPLIED_ONCE, "")
        for i in self.ids:
            self._check_start(i, self.nodes[i])

    def _agreed(self) -> bool:
        states = [node.raft.state() for node in self.nodes.values()]
        heads = {(s.term, s.leader_id, s.commit_index, s.last_index) for s in states}
        digests = {node.machine.digest for node in self.nodes.values()}
        return len(heads) == 1 and len(digests) == 1 and not any(n.raft.is_mute for n in self.nodes.values())

    # -- checks ----------------------------------------------------------------------------------------

    def leads(self, node_id: int, term: int) -> None:
        """A voter begins to lead: alone in its term, with all that is committed."""
        if self.leaders.setdefault(term, node_id) != node_id:
            raise InvariantViolation(
                Invariant.ONE_LEADER_PER_TERM, f"{self.leaders[term]} and {node_id} lead term {term}"
            )
        journal = self.nodes[node_id].raft.journal
        for index, (entry_term, commit_term) in self._committed.items():
            if commit_term < term and index > journal.base_index and journal.term_at(index) != entry_term:
                raise InvariantViolation(
                    Invariant.LEADER_COMPLETENESS,
                    f"leader {node_id} of term {term} lacks committed ({index}, {entry_term})",
                )

    def applied(self, node_id: int, index: int, term: int, digest: int) -> None:
        """Every voter applies the same history."""
        if self.histories.setdefault(index, (term, digest)) != (term, digest):
            raise InvariantViolation(
                Invariant.STATE_MACHINE_SAFETY, f"voter {node_id} applied another history at {index}"
            )

    def _check(self, node: SimVoter) -> None:
        raft = node.raft
        core, journal = raft.core, raft.journal
        if core.term < node.term_seen or core.commit_index < node.commit_seen:
            raise InvariantViolation(
                Invariant.TERM_AND_COMMIT_MONOTONIC, f"term or commit of voter {raft.node_id} went back"
            )
        node.term_seen = core.term
        if core.is_leader and core.commit_index > journal.durable_index:
            raise InvariantViolation(
                Invariant.DURABLE_BEFORE_COUNTED,
                f"leader {raft.node_id} commits {core.commit_index} before it is durable",
            )
        for index in range(max(node.commit_seen, journal.base_index) + 1, core.commit_index + 1):
            term = journal.term_at(index)
            assert term is not None
            if index not in self._committed:
                self._committed[index] = (term, core.term)
                self._check_majority(index, term)
            elif self._committed[index][0] != term:
                raise InvariantViolation(
                    Invariant.STATE_MACHINE_SAFETY, f"voter {raft.node_id} commits {index} of another term"
                )
        node.commit_seen = core.commit_index

    def _check_majority(self, index: int, term: int) -> None:
        """What is committed is on a majority of disks."""
        holders = sum(durable.holds(index, term) for durable in self._durable.values())
        if holders + len(self.wiped) <= len(self.ids) // 2:
            raise InvariantViolation(
                Invariant.COMMITTED_ON_A_MAJORITY,
                f"({index}, {term}) is committed and on {holders} disks only",
            )

    def _check_frame(self, source: int, target: int, frame: bytes) -> None:
        """What a response or a vote claims is on the device when it leaves; one vote per term."""
        message = decode(frame).message
        live = self.nodes[source].raft.journal
        broken = self._durable[source].broken_promise(source, target, message, live)
        if broken is not None:
            raise InvariantViolation(Invariant.DURABLE_BEFORE_COUNTED, f"{broken}")
        if isinstance(message, VoteReply | VoteRequest):
            vote = target if isinstance(message, VoteReply) else source
            if self._votes.setdefault((self._identities[source], message.term), vote) != vote:
                raise InvariantViolation(
                    Invariant.TERM_AND_COMMIT_MONOTONIC, f"voter {source} voted twice in term {message.term}"
                )

    def _check_start(self, node_id: int, node: SimVoter) -> None:
        """The log starts where a snapshot ends; a newer one may just have been written beside it."""
        names = [
            n
            for n in self.disks[node_id].list(DIRECTORY, RAFT)
            if n.startswith("snapshot-") and ".tmp" not in n
        ]
        ends = {int(name.removeprefix("snapshot-")) for name in names}
        start = node.raft.journal.base_index
        if start > 1 and start not in ends:
            raise InvariantViolation(
                Invariant.LOG_BEGINS_AT_A_SNAPSHOT,
                f"log of voter {node_id} starts at {start}, snapshots end at {sorted(ends)}",
            )


def run_seed(seed: int, voters: int) -> RaftWorld:
    """One run; returns the world for inspection."""
    world = RaftWorld(seed, Options.from_seed(seed, voters))
    world.run()
    return world
