"""Finding h: a voter that lost its disk forgot its votes and what it acknowledged."""

from __future__ import annotations

import pytest

from metadata_quorum.foundation.disk import Disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.raft.admission import ProvenNonce, Rejoins, VoterAdmission, nonce_entry
from metadata_quorum.raft.identity import is_formatted
from metadata_quorum.raft.journal import FILE_NAME
from metadata_quorum.raft.leading import Leading
from metadata_quorum.raft.messages import AppendReply, Hello, VoteReply, decode
from metadata_quorum.raft.replication import FollowerProgress
from metadata_quorum.raft.voter import SyncObjRaft
from tests.support.may_block import MAY_BLOCK
from tests.unit.raft.rig import DIRECTORY, Mutant, Rig, expecting


def _proven_by_a_majority(
    self: Rejoins, peer: int, *, commit_index: int, match_index: dict[int, int], mute: dict[int, int]
) -> ProvenNonce | None:
    pending = self._pending.get(peer)
    return pending if pending is not None and mute.get(peer, 0) >= pending.at else None


NEVER_MUTE = Mutant(VoterAdmission, "mute", False)


@pytest.mark.row("Q9")
@pytest.mark.parametrize("mutant", [None, NEVER_MUTE])
def test_a_wiped_voter_elects_nobody(mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch) -> None:
    """Else a leader without an acknowledged entry wins with its vote."""
    with expecting(mutant, monkeypatch):
        rig = Rig()
        rig.elect(1)
        rig.cut_between((1, 2), (3,))
        ends = rig.propose(1, b"x")
        rig.settle()
        assert rig.committed(ends)
        rig.kill(2)
        rig.wipe(2)
        rig.start(2)
        rig.cut = set()
        rig.cut_between((1,), (2, 3))
        rig.elections_held = False
        rig.rafts[3].core.start_election()
        rig.run(5.0, 0.05, 2, 3)
        assert 3 not in rig.leaders()
        assert not rig.messages(2, 3, VoteReply)


@pytest.mark.row("Q9")
@pytest.mark.parametrize("mutant", [None, Mutant(Rejoins, "proven", _proven_by_a_majority)])
def test_a_wiped_voter_stays_mute_until_every_other_voter_has_its_nonce(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    with expecting(mutant, monkeypatch):
        rig = Rig(5)
        rig.elect(1)
        rig.propose(1, b"x")
        rig.settle()
        rig.kill(2)
        rig.wipe(2)
        rig.cut_between((5,), (1, 2, 3, 4))
        rig.start(2)
        rig.run(3.0, 0.05)
        assert rig.machines[2].values == [b"x"]  # caught up, and still mute
        assert rig.rafts[2].is_mute
        assert rig.rafts[1].state().match_index[2] == 0
        rig.cut.clear()
        rig.run(1.5, 0.05)
        assert not rig.rafts[2].is_mute
        # It counts again: 1 and 2 and one more are a majority.
        rig.cut_between((4, 5), (1, 2, 3))
        ends = rig.propose(1, b"y")
        rig.settle()
        assert rig.committed(ends)
        rig.cut_between((3,), (1, 2))
        lonely = rig.propose(1, b"z")
        rig.settle()
        assert not rig.committed(lonely)


def _mute_again(self: FollowerProgress, index: int) -> None:
    self.mute_index = max(self.mute_index or 0, index)


@pytest.mark.row("Q9")
@pytest.mark.parametrize("mutant", [None, Mutant(FollowerProgress, "answered_mute", _mute_again)])
def test_what_a_voter_said_while_it_was_mute_may_come_late(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By then it counts: who loses its disk next needs the nonce in that voter's log, too."""
    with expecting(mutant, monkeypatch):
        rig = Rig(5)
        rig.elect(1)
        rig.kill(2)
        rig.wipe(2)
        rig.start(2)
        rig.run(1.5, 0.05)
        assert not rig.rafts[2].is_mute
        said_before = [f for f in rig.messages(2, 1, AppendReply) if not _counts(f)]
        rig.kill(3)
        rig.wipe(3)
        rig.cut_between((2,), (1, 3, 4, 5))
        rig.start(3)
        for frame in said_before:
            rig.inject(2, 1, frame)
        rig.run(1.5, 0.05)
        assert rig.rafts[3].is_mute
        rig.cut.clear()
        rig.run(1.5, 0.05)
        assert not rig.rafts[3].is_mute


def _counts(frame: bytes) -> bool:
    reply = decode(frame).message
    assert isinstance(reply, AppendReply)
    return reply.counts


@pytest.mark.row("Q9")
@pytest.mark.parametrize(
    "mutant", [None, Mutant(Leading, "reincarnated", lambda self, peer: None), NEVER_MUTE]
)
def test_what_the_lost_disk_acknowledged_is_not_counted(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Five voters: 2 acknowledged, lost its disk; then 3 acknowledges. Two copies of five."""
    with expecting(mutant, monkeypatch):
        rig = Rig(5)
        rig.elect(1)
        rig.cut_between((1, 2), (3, 4, 5))
        ends = rig.propose(1, b"x")
        rig.tick(1)
        rig.deliver(1, 2)
        rig.tick(2)
        rig.deliver(2, 1)
        rig.kill(2)
        rig.wipe(2)
        rig.cut_between((2,), (1,))
        rig.start(2)
        # All that 1 hears of the new incarnation is its hello.
        answer = Hello(0, -1, 0, rig.rafts[1].admission.nonce, True, False)
        rig.rafts[2].outbox.put(1, answer)
        rig.cut.discard((2, 1))
        rig.tick(2)
        rig.deliver(2, 1)
        rig.cut -= {(1, 3), (3, 1)}
        rig.cut.add((1, 2))
        rig.run(0.5, 0.1, 1, 3)
        if rig.rafts[2].is_mute:
            assert not rig.committed(ends)
        else:
            raise AssertionError("the new incarnation counts at once")


@pytest.mark.row("Q9")
def test_a_voter_that_was_given_an_older_copy_of_its_directory_is_brought_up_to_date(caplog) -> None:
    """The leader sent it again and again what it could not take yet."""
    rig = Rig()
    rig.elect(1)
    rig.propose(1, b"a")
    rig.run(1.0, 0.05)
    rig.kill(2)
    path = f"{DIRECTORY}/{FILE_NAME}"
    backup = rig.disks[2].read_bytes(path, MAY_BLOCK)
    rig.start(2)
    rig.propose(1, b"b", b"c")
    rig.run(1.0, 0.05)
    held = rig.rafts[1].state().match_index[2]
    rig.kill(2)
    rig.disks[2].write_atomic(path, backup, MAY_BLOCK)
    rig.start(2)
    rig.cut_between((1,), (3,))
    ends = rig.propose(1, b"d")
    rig.tick(1)
    assert rig.rafts[1].state().match_index[2] == held
    rig.settle(1, 2)
    assert rig.machines[2].values[:3] == [b"a", b"b", b"c"]
    assert rig.committed(ends)
    assert rig.rafts[1].state().match_index[2] > held
    assert caplog.text.count("voter 2 has lost the metadata log") == 1


@pytest.mark.row("Q9")
def test_a_voter_without_its_marker_refuses_to_start() -> None:
    rig = Rig()
    rig.kill(2)
    rig.disks[2].wipe()
    assert not is_formatted(rig.disks[2], DIRECTORY)
    with pytest.raises(FatalError, match="kraft storage format") as caught:
        rig.start(2)
    assert caught.value.exit_code is ExitCode.QUORUM_DISK_LOST


@pytest.mark.row("Q9")
def test_a_voter_that_lost_its_journal_refuses_to_start() -> None:
    rig = Rig()
    rig.kill(2)
    rig.disks[2].remove(f"{DIRECTORY}/{FILE_NAME}")
    with pytest.raises(FatalError, match="is missing although") as caught:
        rig.start(2)
    assert caught.value.exit_code is ExitCode.QUORUM_DISK_LOST


def test_a_directory_of_another_cluster_or_node_is_refused() -> None:
    rig = Rig()
    disk: Disk = rig.disks[2]

    def start(node_id: int, cluster: str) -> None:
        SyncObjRaft(
            node_id, rig.ids, cluster, disk, DIRECTORY, rig.rafts[1].outbox.link, rig.machines[1],
            lambda: rig.now, rig.rafts[1].elections.random,
        )  # fmt: skip

    for node_id, cluster in ((2, "elsewhere"), (3, "bench")):
        with pytest.raises(FatalError, match="belongs to voter 2") as caught:
            start(node_id, cluster)
        assert caught.value.exit_code is ExitCode.WRONG_CLUSTER


@pytest.mark.row("Q1")
def test_a_new_quorum_starts_by_itself() -> None:
    """All voters are freshly formatted: they vouch for each other, in any order of starting."""
    rig = Rig(new_cluster=False)
    rig.elections_held = False
    assert all(raft.is_mute for raft in rig.rafts.values())
    rig.run(1.0)
    assert len(rig.leaders()) == 1
    assert not any(raft.is_mute for raft in rig.rafts.values())


def test_a_new_quorum_waits_for_all_of_its_voters_once() -> None:
    """Two fresh voters cannot know whether the third holds what they lost."""
    rig = Rig(new_cluster=False)
    rig.elections_held = False
    del rig.rafts[3]
    rig.run(3.0, 0.05)
    assert rig.leaders() == []
    rig.start(3)
    rig.run(1.0)
    assert len(rig.leaders()) == 1
    rig.kill(3)
    rig.kill(1)
    rig.start(1)  # what was learned is kept
    assert not rig.rafts[1].is_mute
    rig.run(4.0, 0.05)
    assert len(rig.leaders()) == 1


def test_two_of_three_lost_disks_do_not_form_a_quorum() -> None:
    """More is lost than can be replaced: the quorum stops, it does not forget."""
    rig = Rig(new_cluster=False)
    rig.elections_held = False
    rig.run(1.0)
    (leader,) = rig.leaders()
    ends = rig.propose(leader, b"x")
    rig.settle()
    assert rig.committed(ends)
    for i in [i for i in rig.ids if i != leader]:
        rig.kill(i)
        rig.wipe(i)
        rig.start(i)
    rig.run(10.0, 0.05)
    assert rig.leaders() == []


def test_a_restart_while_mute_stays_mute() -> None:
    rig = Rig()
    rig.elect(1)
    rig.cut_between((3,), (1, 2))
    rig.kill(2)
    rig.wipe(2)
    rig.start(2)
    rig.run(0.5)
    rig.kill(2, power=True)
    rig.start(2)
    rig.run(0.5)
    assert rig.rafts[2].is_mute
    answers = [decode(f).message for f in rig.messages(2, 1, AppendReply)]
    assert answers
    assert isinstance(answers[-1], AppendReply)
    assert not answers[-1].counts


def test_a_frame_of_the_lost_incarnation_is_void() -> None:
    """It was said by a voter that no longer exists."""
    rig = Rig()
    rig.elect(1)
    rig.propose(1, b"x")
    rig.settle()
    old = rig.messages(2, 1, AppendReply)[-1]
    rig.kill(2)
    rig.wipe(2)
    rig.start(2)
    rig.settle()
    before = rig.rafts[1].state().match_index[2]
    rig.inject(2, 1, old)
    rig.tick(1)
    assert rig.rafts[1].state().match_index[2] == before == 0


def test_a_nonce_is_forgotten_with_the_leadership_in_which_it_was_appended() -> None:
    """It may be in no log any more: another leader's entries have taken its place."""
    rig = Rig(5)
    rig.elect(1)
    rig.propose(1, b"x")
    rig.settle()
    rig.kill(2)
    rig.wipe(2)
    rig.cut_between((1, 2), (3, 4, 5))
    rig.start(2)
    rig.run(0.3, 0.05)
    nonce = nonce_entry(2, rig.rafts[2].admission.nonce)

    def has_it(voter: int) -> bool:
        return nonce in [command for command, _, _ in rig.rafts[voter].journal[:]]

    assert has_it(1)
    rig.elect(3)
    rig.propose(3, *(b"y" for _ in range(5)))
    rig.settle()
    rig.cut.clear()
    rig.cut_between((2,), (3, 4, 5))
    rig.run(0.3, 0.05)
    assert not has_it(1)
    rig.elect(1)
    rig.cut.clear()
    rig.run(1.5, 0.05)
    assert not rig.rafts[2].is_mute
    assert all(map(has_it, rig.ids))


def test_a_replaced_directory_that_is_back_does_not_count_and_the_others_say_so(
    caplog: pytest.LogCaptureFixture,
) -> None:
    """It has neither the votes nor the entries that the one in its place has given."""
    rig = Rig()
    rig.elect(1)
    rig.propose(1, b"x")
    rig.settle()
    rig.kill(3)
    disk = rig.disks[3]
    paths = [f"{DIRECTORY}/{name}" for name in disk.list(DIRECTORY, MAY_BLOCK)]
    replaced = {path: disk.read_bytes(path, MAY_BLOCK) for path in paths}
    rig.wipe(3)
    rig.start(3)
    rig.run(1.5, 0.05)
    assert not rig.rafts[3].is_mute
    assert "replaced" not in caplog.text
    rig.kill(3)
    for path, data in replaced.items():
        disk.write_atomic(path, data, MAY_BLOCK)
    rig.start(3)
    rig.run(1.5, 0.05)
    assert caplog.text.count("voter 3 runs on a directory that another one had replaced") == 2
    rig.cut_between((2,), (1, 3))
    ends = rig.propose(1, b"y")
    rig.run(0.3, 0.05)
    assert not rig.committed(ends)
