"""Between any two disk operations of a voter it may be killed, and any of them may fail; then it starts
again on whatever the page cache shows, is killed once more, answers, and the machine loses power.

A walk through an election, commits, snapshots on both ways and a change of the leader is run once per
operation; `make test` takes every fifth of them, `make test-long` all. The rig asks the oracle of
chaos/sim/durable_voter.py about every message that leaves, so what is not durable on
a clone opened on durable bytes is never acknowledged, voted or committed.
"""

from __future__ import annotations

import errno
from collections.abc import Callable
from random import Random

import pytest

from chaos.sim.disk import Killed, SimDisk
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.journal import FILE_NAME, RaftJournal
from metadata_quorum.raft.messages import LogEntry
from metadata_quorum.raft.port import Applied, ProposalOutcome
from tests.unit.raft.rig import DIRECTORY, Mutant, Rig, expecting

CONFIG = RaftConfig(snapshot_entries=6, snapshot_chunk_bytes=16)
CHANGES = ("append", "sync", "rename", "remove", "sync_dir")


class Walk:
    """The steps, and a victim that is brought back whenever its disk ends it."""

    def __init__(self, victim: int, deaths: list[int | None], *, power_seed: int) -> None:
        self.rig = Rig(3, CONFIG)
        self.victim = victim
        self.deaths = deaths
        """Before which operation each further life ends; used up one by one."""
        self.power_seed = power_seed
        self.acked: list[bytes] = []
        self.died = 0
        self.operations = 0
        """Changes of the victim's disk until all was proposed."""
        self.rig.disks[victim].operations = 0

    def step(self, action: Callable[[], object]) -> None:
        try:
            action()
            self.rig.settle()
        except (Killed, FatalError):
            self._bring_back()

    def _bring_back(self) -> None:
        self.died += 1
        self.rig.kill(self.victim)
        while True:
            self.rig.disks[self.victim].kill_before(self.deaths.pop(0) if self.deaths else None)
            try:
                self.rig.start(self.victim)
                self.rig.settle()
                break
            except Killed:
                self.rig.rafts.pop(self.victim, None)
            except FatalError as error:
                raise AssertionError("what was written safely is gone") from error
        # It has answered; now the machine dies, and what it said must still be true.
        self.rig.kill(self.victim, power=True, seed=self.power_seed)
        self.rig.start(self.victim)
        self.rig.settle()

    def propose(self, leader: int, value: bytes) -> None:
        def done(end: Applied) -> None:
            if end.outcome is ProposalOutcome.COMMITTED:
                self.acked.append(value)

        self.step(lambda: self.rig.rafts[leader].propose(value, done))

    def run(self) -> None:
        rig = self.rig
        self.step(lambda: rig.rafts[1].core.start_election())
        self.propose(1, b"a")
        rig.cut_between((3,), (1, 2))
        for n in range(8):
            self.propose(1, b"b%d" % n)
        rig.cut.clear()
        rig.cut_between((2,), (1, 3))
        self.step(lambda: rig.run(0.4))
        for n in range(8):
            self.propose(1, b"c%d" % n)
        rig.cut.clear()
        self.step(lambda: rig.run(0.4))
        self.step(lambda: rig.rafts[2].core.start_election())
        self.propose(2, b"d")
        self.operations = rig.disks[self.victim].operations
        self.converge()

    def converge(self) -> None:
        """Nothing is lost, and all agree."""
        rig = self.rig
        rig.disks[self.victim].heal()
        rig.elections_held = False
        for i, raft in rig.rafts.items():
            raft.elections.due_at = rig.now + 0.1 * i
        ends: list[Applied] = []
        for _ in range(100):
            rig.run(0.1, 0.05)
            leaders = rig.leaders()
            if not leaders:
                continue
            if not rig.committed(ends):
                ends = rig.propose(leaders[0], b"end")
            elif len({tuple(m.values) for m in rig.machines.values()}) == 1:
                break
        else:
            raise AssertionError("they do not agree")
        values = rig.machines[1].values
        assert [value for value in self.acked if value not in values] == []
        assert [value for value in values if values.count(value) > 1 and value != b"end"] == []


def _operations(victim: int) -> int:
    """How many changes of its disk the victim makes on an undisturbed walk."""
    walk = Walk(victim, [], power_seed=0)
    walk.run()
    assert walk.died == 0
    assert len(walk.acked) == 18
    return walk.operations


def _believe_the_page_cache(self: RaftJournal, entries: list[LogEntry], commit: int) -> None:
    if hasattr(self, "_durable_bytes"):  # after a snapshot
        _rewrite(self, entries, commit)
        return
    self._durable_bytes, self._durable_index = self._file.size(), self.last_index


_rewrite = RaftJournal._rewrite

RUNS = [
    (None, 5),
    pytest.param(None, 1, marks=pytest.mark.long),  # takes as long as all other tests of Raft
    (Mutant(RaftJournal, "_rewrite", _believe_the_page_cache), 1),  # ends at the first that finds it
]
"""Of so many operations one is disturbed."""


@pytest.mark.row("Q9")
@pytest.mark.parametrize(("mutant", "every"), RUNS)
@pytest.mark.parametrize("victim", [1, 2, 3])
def test_killed_between_any_two_operations(
    victim: int, mutant: Mutant | None, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    with expecting(mutant, monkeypatch):
        for operation in range(0, _operations(victim), every):
            for again in (None, operation % 6):
                walk = Walk(victim, [again], power_seed=operation)
                walk.rig.disks[victim].kill_before(operation)
                walk.run()
                assert walk.died >= 1


@pytest.mark.row("Q9")
@pytest.mark.parametrize(("mutant", "every"), RUNS)
@pytest.mark.parametrize("victim", [1, 2, 3])
def test_any_operation_fails_once(
    victim: int, mutant: Mutant | None, every: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next process is shown what the device does not have."""
    with expecting(mutant, monkeypatch):
        for kind in CHANGES:
            for after in range(0, 1000, every):
                walk = Walk(victim, [None], power_seed=after)
                walk.rig.disks[victim].fail(kind, errno.EIO, after=after)
                walk.run()
                if not walk.died:
                    break


def test_the_page_cache_of_a_dead_process_counts_for_nothing() -> None:
    """The shortest way to it: written, not synced, killed, started, asked."""
    for failure in ("kill", "fail"):
        rig = Rig()
        rig.elect(1)
        rig.cut_between((3,), (1, 2))
        ends = rig.propose(1, b"x")
        rig.tick(1)
        rig.deliver(1, 2)
        if failure == "kill":
            rig.disks[2].kill_before(1)  # after the append
        else:
            rig.disks[2].fail("sync", errno.EIO, path_part=FILE_NAME)
        with pytest.raises((Killed, FatalError)):
            rig.tick(2)
        rig.kill(2)
        rig.start(2)
        rig.run(0.5, 0.05, 1, 2)
        assert rig.committed(ends)
        rig.kill(1)  # the leader's machine is away
        for seed in range(20):
            clone: SimDisk = rig.disks[2].durable_clone()
            clone.power_loss(Random(seed))
            assert b"x" in [command[1:] for command, _, _ in RaftJournal(clone, DIRECTORY)[:]]
