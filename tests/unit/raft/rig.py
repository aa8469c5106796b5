"""A quorum on a bench: nothing moves unless the test says so.

Links are queues that the test holds, cuts, and empties message by message; elections happen when
the test starts them; the clock is a number. `mutant` takes one mitigation out: a test that does not
then fail proves nothing.
"""

from __future__ import annotations

import re
from collections import defaultdict, deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from random import Random
from typing import Any, NamedTuple
from uuid import UUID

import pytest

from chaos.sim.disk import SimDisk
from chaos.sim.durable_voter import DurableVoter
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.identity import Identity, format_voter
from metadata_quorum.raft.messages import EntryKind, Message, decode
from metadata_quorum.raft.port import QUICK_WEIGHT, Applied, ProposalOutcome
from metadata_quorum.raft.voter import SyncObjRaft

DIRECTORY = "/disk/quorum"
CLUSTER = "bench"


class Machine:
    """Keeps what was applied."""

    def __init__(self) -> None:
        self.values: list[bytes] = []
        self.calls: list[str] = []
        self.raises: Exception | None = None

    def apply(self, index: int, term: int, command: bytes) -> object:
        if self.raises is not None:
            raise self.raises
        self.values.append(command)
        return b"did " + command

    @property
    def rolling_hash(self) -> bytes:
        return b"%d" % len(self.values)

    def weight(self, command: bytes) -> int:
        return QUICK_WEIGHT + 1 if command.startswith(b"slow") else 1

    def prepare(self, index: int, term: int, command: bytes) -> Callable[[], object]:
        return lambda: self.apply(index, term, command)

    def snapshot(self) -> Callable[[], bytes]:
        values = list(self.values)
        return lambda: b"\n".join(values)

    def restore(self, data: bytes, index: int, term: int) -> Callable[[], None]:
        return lambda: setattr(self, "values", data.split(b"\n") if data else [])

    def became_leader(self, term: int) -> None:
        self.calls.append(f"leads {term}")

    def lost_leadership(self, term: int) -> None:
        self.calls.append(f"lost {term}")


class _Link:
    def __init__(self, rig: Rig, source: int) -> None:
        self.rig = rig
        self.source = source

    def send(self, peer: int, frame: bytes) -> bool:
        return self.rig.post(self.source, peer, frame)


class Rig:
    """Voters 1..n, connected, without a leader."""

    def __init__(
        self, voters: int = 3, config: RaftConfig | None = None, *, new_cluster: bool = True
    ) -> None:
        self.now = 1000.0
        self.config = config or RaftConfig()
        self.ids = list(range(1, voters + 1))
        self.disks = {i: SimDisk() for i in self.ids}
        self.durable = {i: DurableVoter(self.disks[i], DIRECTORY) for i in self.ids}
        self.rafts: dict[int, SyncObjRaft] = {}
        self.machines: dict[int, Machine] = {}
        self.queue: dict[tuple[int, int], deque[bytes]] = defaultdict(deque)
        self.held: set[tuple[int, int]] = set()
        """Links whose messages stay in the queue: delay."""
        self.cut: set[tuple[int, int]] = set()
        """Links that drop what is sent: loss."""
        self.sent: list[tuple[int, int, bytes]] = []
        self.elections_held = True
        self.jobs: list[tuple[Callable[[], Any], Callable[[Any], None]]] | None = None
        """Work beside the loops, held until `run_jobs`; None: done at once."""
        self._incarnations = iter(range(1, 1000))
        for i in self.ids:
            self.format(i, new_cluster=new_cluster)
        for i in self.ids:
            self.start(i)

    # -- voters

    def format(self, i: int, *, new_cluster: bool = False) -> None:
        identity = Identity(CLUSTER, i, UUID(int=next(self._incarnations)))
        format_voter(self.disks[i], DIRECTORY, identity, new_cluster=new_cluster)

    def start(self, i: int, voters: list[int] | None = None) -> SyncObjRaft:
        """`voters`: that it is told of, where these are not the ones that there are."""
        machine = Machine()
        raft = SyncObjRaft(
            i, voters or self.ids, CLUSTER, self.disks[i], DIRECTORY, _Link(self, i), machine,
            lambda: self.now, Random(i), self.config, self._beside,
        )  # fmt: skip
        self.rafts[i], self.machines[i] = raft, machine
        for peer in self.ids:
            if peer != i and peer in self.rafts:
                self.rafts[i].connected(peer)
                self.rafts[peer].connected(i)
        return raft

    def _beside(self, work: Callable[[], Any], done: Callable[[Any], None]) -> None:
        if self.jobs is None:
            done(work())
        else:
            self.jobs.append((work, done))

    def run_jobs(self) -> None:
        """What was held back beside the loop is done, and noticed."""
        jobs, self.jobs = self.jobs or [], []
        for work, done in jobs:
            done(work())

    def kill(self, i: int, *, power: bool = False, seed: int = 0, broken: bool = True) -> None:
        del self.rafts[i]
        self.disks[i].power_loss(Random(seed)) if power else self.disks[i].kill()
        for a, b in list(self.queue):
            if i in (a, b):
                self.queue[a, b].clear()
        for peer in self.ids:
            if peer in self.rafts:
                self.rafts[peer].disconnected(i, broken=broken)

    def wipe(self, i: int) -> None:
        """The disk of a dead voter is replaced, and formatted."""
        self.disks[i].wipe()
        self.format(i)

    # -- links

    def post(self, source: int, target: int, frame: bytes) -> bool:
        if source in self.rafts:
            live = self.rafts[source].journal
            broken = self.durable[source].broken_promise(source, target, decode(frame).message, live)
            assert broken is None, broken
        if (source, target) not in self.cut and target in self.rafts:
            self.queue[source, target].append(frame)
            self.sent.append((source, target, frame))
        return True

    def deliver(self, source: int, target: int, count: int | None = None) -> int:
        done = 0
        queue = self.queue[source, target]
        while queue and (count is None or done < count):
            frame = queue.popleft()
            done += 1
            if target in self.rafts:
                self.rafts[target].receive(source, frame)
        return done

    def inject(self, source: int, target: int, frame: bytes) -> None:
        """A late or second copy arrives."""
        self.rafts[target].receive(source, frame)

    def drop_all(self) -> None:
        self.queue.clear()

    def cut_between(self, some: tuple[int, ...], others: tuple[int, ...]) -> None:
        for a in some:
            for b in others:
                self.cut |= {(a, b), (b, a)}

    def messages(self, source: int, target: int, kind: type[Any]) -> list[bytes]:
        """Frames of one kind that were sent so far."""
        return [
            f for s, t, f in self.sent if (s, t) == (source, target) and isinstance(decode(f).message, kind)
        ]

    # -- time

    def tick(self, *ids: int, seconds: float = 0.0) -> None:
        self.now += seconds
        for i in ids or tuple(sorted(self.rafts)):
            if self.elections_held:
                self.rafts[i].elections.due_at = float("inf")
            self.rafts[i].tick(self.now)

    def settle(self, *ids: int) -> None:
        """Tick and deliver, without time passing, until nothing moves any more."""
        for _ in range(1000):
            self.tick(*ids)
            moved = 0
            for source, target in sorted(self.queue):
                if (source, target) not in self.held:
                    moved += self.deliver(source, target)
            if not moved:
                return
        raise AssertionError("messages go round for ever")

    def run(self, seconds: float, step: float = 0.01, *ids: int) -> None:
        """Time passes; heartbeats and, unless held, elections happen."""
        end = self.now + seconds
        while self.now < end:
            self.now += step
            self.settle(*ids)

    def elect(self, i: int, *ids: int) -> None:
        """Voter i becomes a candidate, without a pre-vote, and everything is delivered."""
        self.rafts[i].core.start_election()
        self.settle(*ids)

    # -- looking

    def propose(self, i: int, *values: bytes) -> list[Applied]:
        ends: list[Applied] = []
        for value in values:
            self.rafts[i].propose(value, ends.append)
        return ends

    def log(self, i: int) -> list[tuple[int, int, bytes]]:
        """(index, term, command) of voter i's log; b"-" for what is not a command."""
        return [
            (index, term, command[1:] if command[0] == EntryKind.COMMAND else b"-")
            for command, index, term in self.rafts[i].journal[:]
        ]

    def leaders(self) -> list[int]:
        return [i for i in sorted(self.rafts) if self.rafts[i].is_leader]

    def committed(self, ends: list[Applied]) -> bool:
        return bool(ends) and all(end.outcome is ProposalOutcome.COMMITTED for end in ends)


class Mutant(NamedTuple):
    """One mitigation, and what stands in its place."""

    owner: Any
    name: str
    replacement: Any


@contextmanager
def expecting(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """With the mitigation: the block passes. Without it: the block must fail."""
    if mutant is None:
        yield
        return
    monkeypatch.setattr(mutant.owner, mutant.name, mutant.replacement)
    with pytest.raises((AssertionError, pytest.fail.Exception)) as found:
        yield
    assert not re.search("TypeError|AttributeError|NameError", str(found.value)), "the mutant itself is wrong"


def last_message(rig: Rig, source: int, target: int) -> Message:
    return next(decode(f).message for s, t, f in reversed(rig.sent) if (s, t) == (source, target))
