"""Finding a: what was said is on the device, whatever the device does."""

from __future__ import annotations

import errno

import pytest

from chaos.sim.disk import SimFile
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.raft.journal import FILE_NAME, RaftJournal
from metadata_quorum.raft.messages import Append, AppendReply, VoteReply, VoteRequest
from tests.support.may_block import MAY_BLOCK
from tests.unit.raft.rig import DIRECTORY, Mutant, Rig, expecting

JOURNAL = f"{DIRECTORY}/{FILE_NAME}"


def _without_fsync(self: SimFile, may_block: MayBlock) -> None:
    self._check("sync")


def _forgettable_term(self: RaftJournal, term: int, voted_for: int | None) -> None:
    self._term, self._voted_for = term, -1 if voted_for is None else voted_for


@pytest.mark.row("Q9")
@pytest.mark.parametrize("mutant", [None, Mutant(SimFile, "sync", _without_fsync)])
def test_an_acknowledged_entry_survives_power_loss_of_all(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with expecting(mutant, monkeypatch):
        for seed in range(10):
            rig = Rig()
            rig.elect(1)
            rig.cut_between((3,), (1, 2))
            ends = rig.propose(1, b"x")
            rig.tick(1)
            rig.deliver(1, 2)
            rig.tick(2)
            rig.deliver(2, 1)
            rig.tick(1)
            assert rig.committed(ends)
            for i in (1, 2):
                rig.kill(i, power=True, seed=seed)
            rig.cut.clear()
            rig.start(2)  # the follower that acknowledged, and the one that never knew
            rig.elect(2)
            assert rig.machines[3].values == [b"x"]


@pytest.mark.row("Q9")
@pytest.mark.parametrize("mutant", [None, Mutant(RaftJournal, "setCurrentTerm", _forgettable_term)])
def test_a_candidate_remembers_its_own_vote_after_power_loss(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Random search does not find this one: it leads a term on its own vote, forgets, votes again."""
    with expecting(mutant, monkeypatch):
        rig = Rig()
        rig.rafts[1].core.start_election()
        rig.tick(1)
        assert rig.messages(1, 2, VoteRequest)
        rig.kill(1, power=True, seed=1)
        rig.start(1)
        rig.tick(1)
        assert rig.rafts[1].term == 1
        rig.elect(2, 1, 2)  # term 1 too
        assert not rig.messages(1, 2, VoteReply)
        assert rig.leaders() == []


@pytest.mark.row("Q9")
@pytest.mark.parametrize("mutant", [None, Mutant(RaftJournal, "setCurrentTerm", _forgettable_term)])
def test_a_voter_remembers_whom_it_voted_for_after_power_loss(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with expecting(mutant, monkeypatch):
        rig = Rig()
        rig.cut_between((1,), (2,))
        rig.held.add((1, 3))  # the new leader's entries do not get through yet
        rig.rafts[1].core.start_election()
        rig.tick(1)
        rig.deliver(1, 3, 1)
        rig.deliver(1, 3)
        rig.tick(3)
        rig.deliver(3, 1)
        assert rig.leaders() == [1]
        rig.kill(3, power=True, seed=1)
        rig.start(3)
        rig.elect(2, 2, 3)
        assert rig.leaders() == [1]


def test_a_commit_index_never_runs_ahead_of_the_journal() -> None:
    """Stock: a saved commit index ahead of the surviving log commits what was never committed."""
    rig = Rig()
    rig.elect(1)
    rig.propose(1, *(b"%d" % n for n in range(20)))
    rig.settle()
    for seed in range(20):
        for power in (True, False):
            rig.kill(2, power=power, seed=seed)
            journal = RaftJournal(rig.disks[2], DIRECTORY)
            assert journal.getRaftCommitIndex() <= journal.last_index
            rig.start(2)
            rig.propose(1, b"more")
            rig.settle()


@pytest.mark.parametrize("operation", ["append", "sync"])
@pytest.mark.parametrize("code", [errno.ENOSPC, errno.EIO])
def test_a_failed_disk_ends_the_voter_and_nothing_is_acknowledged(operation: str, code: int) -> None:
    rig = Rig()
    rig.elect(1)
    rig.disks[2].fail(operation, code, path_part=FILE_NAME)
    ends = rig.propose(1, b"x")
    rig.tick(1)
    rig.deliver(1, 2)
    before = len(rig.messages(2, 1, AppendReply))
    with pytest.raises(FatalError) as caught:
        rig.tick(2)
    assert caught.value.exit_code is ExitCode.DISK_FAILED
    syncs = rig.disks[2].syncs
    with pytest.raises(FatalError):
        rig.tick(2)  # never retried
    assert rig.disks[2].syncs == syncs
    assert len(rig.messages(2, 1, AppendReply)) == before
    assert not rig.rafts[2].is_leader
    rig.kill(2)
    rig.settle()
    assert rig.committed(ends)  # the other two


def test_a_full_disk_is_said_plainly() -> None:
    rig = Rig(1)
    rig.elect(1)
    rig.disks[1].capacity = rig.disks[1].capacity or 400
    ends = rig.propose(1, b"x" * 1000)
    with pytest.raises(FatalError, match="No space left"):
        rig.tick(1)
    rig.rafts[1].close()
    assert [end.outcome.value for end in ends] == ["unknown"]


def test_a_torn_tail_is_cut_at_any_byte() -> None:
    rig = Rig(1)
    rig.elect(1)
    rig.propose(1, b"first")
    rig.settle()
    whole = rig.disks[1].open(JOURNAL).size()
    before = rig.log(1)
    durable = rig.rafts[1].journal.last_index
    rig.propose(1, b"second")
    rig.settle()
    data = rig.disks[1].read_bytes(JOURNAL, MAY_BLOCK)
    for cut in range(whole, len(data)):
        rig.disks[1].write_atomic(JOURNAL, data[:cut], MAY_BLOCK)
        journal = RaftJournal(rig.disks[1], DIRECTORY)
        assert journal.last_index == durable
        assert [(index, term) for _, index, term in journal[:]] == [(i, t) for i, t, _ in before]


def test_damage_before_the_tail_is_not_taken_for_a_torn_tail() -> None:
    """Cutting there would forget votes and acknowledged entries."""
    rig = Rig(1)
    rig.elect(1)
    for n in range(5):
        rig.propose(1, b"%d" % n)
        rig.settle()
    data = rig.disks[1].read_bytes(JOURNAL, MAY_BLOCK)
    tail = data.rfind(b"KRJ1")
    for position in range(0, tail, 3):
        damaged = bytearray(data)
        damaged[position] ^= 0x20
        rig.disks[1].write_atomic(JOURNAL, bytes(damaged), MAY_BLOCK)
        with pytest.raises(FatalError) as caught:
            RaftJournal(rig.disks[1], DIRECTORY)
        assert caught.value.exit_code is ExitCode.QUORUM_DISK_LOST


def test_many_proposals_share_one_fsync_and_one_message() -> None:
    rig = Rig()
    rig.elect(1)
    rig.run(1.0)
    before = {i: rig.disks[i].syncs for i in rig.ids}
    sent = len(rig.messages(1, 2, Append))
    ends = rig.propose(1, *(b"%d" % n for n in range(100)))
    rig.tick(1)
    assert len(rig.messages(1, 2, Append)) == sent + 1
    rig.settle()
    assert rig.committed(ends)
    assert {i: rig.disks[i].syncs - before[i] for i in rig.ids} == dict.fromkeys(rig.ids, 1)


def test_commits_are_sent_without_time_passing() -> None:
    """No heartbeat is waited for, on the way there and back."""
    rig = Rig()
    rig.elect(1)
    rig.run(0.5)
    now = rig.now
    ends = rig.propose(1, b"x")
    assert rig.rafts[1].next_tick_in() == 0.0
    rig.settle()
    assert rig.now == now
    assert rig.committed(ends)
    assert all(machine.values == [b"x"] for machine in rig.machines.values())
    assert all(raft.next_tick_in() > 0.0 for raft in rig.rafts.values())
