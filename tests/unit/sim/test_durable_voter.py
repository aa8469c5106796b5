"""The oracle of durability reads on where a journal has grown, and finds what it would from the beginning."""

from __future__ import annotations

import random

import pytest

from chaos.sim.disk import SimDisk
from chaos.sim.durable_voter import DurableVoter
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.snapshots import Snapshot, SnapshotStore

DIRECTORY = "/voter"
STEPS = 300


class Life:
    """Of a voter's directory: its journal is written, and now and then it starts again."""

    def __init__(self, seed: int) -> None:
        self.chance = random.Random(seed)
        self.disk = SimDisk()
        self.disk.make_dirs(DIRECTORY)
        RaftJournal.create(self.disk, DIRECTORY, admitted=True)
        self.journal = RaftJournal(self.disk, DIRECTORY)

    def step(self) -> None:
        """One thing that a voter does; mostly it appends."""
        chance = self.chance
        deeds = (self.append, self.vote, self.commit, self.truncate, self.snapshot, self.start_again)
        (deed,) = chance.choices(deeds, (60, 5, 20, 5, 2, 2))
        deed()
        if chance.random() < 0.7:
            self.journal.sync()

    def append(self) -> None:
        for _ in range(self.chance.randrange(1, 4)):
            term = max(self.journal.getCurrentTerm(), 1)
            self.journal.add(self.chance.randbytes(9), self.journal.last_index + 1, term)

    def vote(self) -> None:
        self.journal.setCurrentTerm(self.journal.getCurrentTerm() + 1, self.chance.choice((None, 1, 2)))

    def commit(self) -> None:
        low, high = self.journal.getRaftCommitIndex(), self.journal.last_index
        if high > low:
            self.journal.sync()
            self.journal.setRaftCommitIndex(self.chance.randint(low + 1, high))

    def truncate(self) -> None:
        low, high = self.journal.getRaftCommitIndex() + 1, self.journal.last_index
        if high >= low:
            self.journal.truncate_from(self.chance.randint(low, high))

    def snapshot(self) -> None:
        index = self.journal.getRaftCommitIndex()
        term = self.journal.term_at(index)
        if term is None or index <= self.journal.base_index:
            return
        self.journal.sync()
        SnapshotStore(self.disk, DIRECTORY).save(Snapshot.of(index, term, 0, b"state"))
        if self.chance.random() < 0.5:  # else the oracle sees it before the journal is trimmed
            self.journal.trim_to(index, term)

    def start_again(self) -> None:
        if self.chance.random() < 0.5:
            self.disk.kill()
        else:
            self.disk.power_loss(self.chance)
        self.journal = RaftJournal(self.disk, DIRECTORY)


def shown(journal: RaftJournal) -> tuple[object, ...]:
    return (
        journal[:], journal.base_index, journal.getCurrentTerm(), journal.getVotedForNodeId(),
        journal.getRaftCommitIndex(), journal.admitted,
    )  # fmt: skip


@pytest.mark.row("C7")
@pytest.mark.parametrize("seed", range(5))
def test_what_is_read_on_is_what_is_there(seed: int) -> None:
    life = Life(seed)
    watching = DurableVoter(life.disk, DIRECTORY)
    for _ in range(STEPS):
        life.step()
        assert shown(watching.journal()) == shown(DurableVoter(life.disk, DIRECTORY).journal())


def test_a_journal_that_grows_is_not_opened_again(monkeypatch: pytest.MonkeyPatch) -> None:
    life = Life(1)
    watching = DurableVoter(life.disk, DIRECTORY)
    first = watching.journal()
    for _ in range(20):
        life.append()
        life.journal.sync()
        assert watching.journal() is first
    assert first.last_index == life.journal.last_index


def test_damage_behind_what_was_read_is_found() -> None:
    life = Life(1)
    watching = DurableVoter(life.disk, DIRECTORY)
    for _ in range(3):
        life.append()
        life.journal.sync()
        watching.journal()
    at = life.disk.open(f"{DIRECTORY}/journal").size()
    for _ in range(2):
        life.append()
        life.journal.sync()
    life.disk.flip_bit(f"{DIRECTORY}/journal", at + 40)
    for _ in range(2):
        with pytest.raises(FatalError, match="is damaged at"):
            watching.journal()
