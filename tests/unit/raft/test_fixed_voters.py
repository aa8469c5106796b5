"""Who votes cannot be changed: two majorities, each of another list of voters, need have nobody in common."""

from __future__ import annotations

from uuid import UUID

import pytest

from chaos.sim.disk import SimDisk
from metadata_quorum.foundation.blocking import RAFT
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.raft import voter
from metadata_quorum.raft.identity import FILE_NAME, Identity, format_voter, read_identity
from tests.unit.raft.rig import DIRECTORY, Mutant, Rig, expecting

pytestmark = pytest.mark.row("Q1")

NOT_KEPT = Mutant(voter, "keep_voters", lambda *_, **__: None)


@pytest.mark.parametrize("mutant", [None, NOT_KEPT])
def test_a_voter_does_not_go_on_in_another_quorum(
    mutant: Mutant | None, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Else the third one, alone, leads without an entry that the other two have acknowledged."""
    with expecting(mutant, monkeypatch):
        rig = Rig()
        rig.elect(1)
        rig.cut_between((1, 2), (3,))
        ends = rig.propose(1, b"x")
        rig.settle()
        assert rig.committed(ends)
        rig.kill(3)
        with pytest.raises(FatalError, match=r"names 3, but .* is of a quorum of 1,2,3\.") as refused:
            rig.start(3, [3])
        assert refused.value.exit_code == ExitCode.BAD_CONFIG
        with pytest.raises(FatalError, match="names 1,2,3,4,5, but"):
            rig.start(3, [5, 4, 3, 2, 1])
        rig.cut = set()
        rig.start(3)
        rig.run(1.0, 0.05)
        assert rig.machines[3].values == [b"x"]


def test_a_list_may_be_put_right_before_the_first_election() -> None:
    disk = SimDisk()
    rig = Rig()
    format_voter(disk, DIRECTORY, Identity("bench", 1, UUID(int=9)), new_cluster=True)
    rig.kill(1)
    rig.disks[1] = disk
    rig.start(1, [1, 2, 3, 4])
    rig.kill(1)
    rig.start(1)
    rig.kill(1, power=True)
    assert read_identity(disk, DIRECTORY, "bench", 1).voters == (1, 2, 3)


def test_a_voter_of_an_older_version_writes_its_list_down() -> None:
    """Its marker has none."""
    rig = Rig()
    rig.elect(1)
    rig.kill(3)
    marker = f"{DIRECTORY}/{FILE_NAME}"
    disk = rig.disks[3]
    lines = disk.read_bytes(marker, RAFT).decode().splitlines(keepends=True)
    disk.write_atomic(marker, "".join(each for each in lines if "voters" not in each).encode(), RAFT)
    rig.start(3)
    rig.kill(3, power=True)
    with pytest.raises(FatalError, match="is of a quorum of 1,2,3"):
        rig.start(3, [2, 3])
