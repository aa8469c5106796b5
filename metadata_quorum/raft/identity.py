"""Who this voter is: the marker that `kraft storage format` leaves in the quorum's directory.

A voter that lost its disk forgot its votes and what it acknowledged; if it took part as before,
a committed record could be lost. So it refuses to start without its marker, and each formatting
draws a new incarnation: the others see that this is not the voter they knew, and the voter itself
stays mute until admission.py lets it count.

File `voter.properties`, text:

    version=1
    cluster.id=...
    node.id=...
    incarnation.id=...
    voters=1,2,3          of the quorum; since the first start

A voter that counts by another list of voters than before would count another majority: two of them, of which
neither has to know what the other has committed.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Final
from uuid import UUID

from metadata_quorum.foundation.blocking import RAFT
from metadata_quorum.foundation.disk import Disk, make_dirs_durably
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.raft.journal import GENESIS, RaftJournal
from metadata_quorum.raft.snapshots import Snapshot, SnapshotStore

FILE_NAME: Final = "voter.properties"
SEED_INDEX: Final = GENESIS[1] + 1
"""Index of the snapshot that stands for all that came before."""


@dataclass(frozen=True, slots=True)
class Identity:
    """One formatting of one voter."""

    cluster_id: str
    node_id: int
    incarnation: UUID
    voters: tuple[int, ...] = ()
    """Of the quorum, in order; none before the first start."""


def format_voter(disk: Disk, directory: str, identity: Identity, *, new_cluster: bool = False) -> None:
    """Prepare a directory for this voter; what an unfinished formatting left there is gone.

    As a rule a formatted voter counts once it has heard from all others that the quorum is as new as
    itself, or, where the quorum is older, once it has caught up. `new_cluster` vouches that no voter
    of this quorum ever ran, so that it can begin with a majority; use it for all of its voters.
    """
    disk.remove_tree(directory, RAFT)
    make_dirs_durably(disk, directory, RAFT)
    RaftJournal.create(disk, directory, admitted=new_cluster)
    _write(disk, directory, identity)


def _write(disk: Disk, directory: str, identity: Identity) -> None:
    text = (
        f"version=1\ncluster.id={identity.cluster_id}\nnode.id={identity.node_id}\n"
        f"incarnation.id={identity.incarnation}\n"
    )
    if identity.voters:
        text += f"voters={_listed(identity.voters)}\n"
    disk.write_atomic(f"{directory}/{FILE_NAME}", text.encode(), RAFT)


def seed_voter(
    disk: Disk, directory: str, identity: Identity, state: bytes, *, epoch: int, term: int
) -> None:
    """Prepare an empty directory for a voter of a quorum that begins with a state from elsewhere, of that
    epoch, and in a term beyond all that its followers have seen. All of its voters are given the same."""
    format_voter(disk, directory, identity, new_cluster=True)
    SnapshotStore(disk, directory).save(Snapshot.of(SEED_INDEX, epoch, 0, state))
    journal = RaftJournal(disk, directory)
    journal.setCurrentTerm(term, None)
    journal.trim_to(SEED_INDEX, epoch)
    journal.close()


def is_formatted(disk: Disk, directory: str) -> bool:
    """Whether the directory carries a marker."""
    return disk.exists(f"{directory}/{FILE_NAME}")


def read_identity(disk: Disk, directory: str, cluster_id: str, node_id: int) -> Identity:
    """The marker, checked against the configuration. Raises `FatalError` where they disagree."""
    path = f"{directory}/{FILE_NAME}"
    if not disk.exists(path):
        raise FatalError(
            ExitCode.QUORUM_DISK_LOST,
            f"{directory} is not formatted as a voter's directory. If its disk was lost or replaced, or if "
            "this voter is new, format it (kraft storage format).",
        )
    lines = disk.read_bytes(path, RAFT).decode("utf-8", "replace").splitlines()
    found = dict(line.split("=", 1) for line in lines if "=" in line)
    try:
        voters = tuple(int(each) for each in found.get("voters", "").split(",") if each)
        identity = Identity(found["cluster.id"], int(found["node.id"]), UUID(found["incarnation.id"]), voters)
    except (KeyError, ValueError) as e:
        raise FatalError(ExitCode.QUORUM_DISK_LOST, f"{path} is damaged: it does not say whose it is") from e
    if (identity.cluster_id, identity.node_id) != (cluster_id, node_id):
        raise FatalError(
            ExitCode.WRONG_CLUSTER,
            f"{directory} belongs to voter {identity.node_id} of cluster {identity.cluster_id}, not to voter "
            f"{node_id} of cluster {cluster_id}.",
        )
    return identity


def keep_voters(
    disk: Disk, directory: str, identity: Identity, voters: Iterable[int], *, has_taken_part: bool
) -> None:
    """Write down whom this voter counts with. Raises `FatalError` where it has counted with others before;
    as long as it has taken part in no election, the list may still be put right."""
    listed = tuple(sorted(voters))
    if listed == identity.voters:
        return
    problem = other_voters(directory, identity, listed)
    if problem is not None and has_taken_part:
        raise FatalError(ExitCode.BAD_CONFIG, problem)
    _write(disk, directory, replace(identity, voters=listed))


def other_voters(directory: str, identity: Identity, voters: Iterable[int]) -> str | None:
    """What is wrong with that list for a voter that has taken part in an election."""
    listed = tuple(sorted(voters))
    if not identity.voters or listed == identity.voters:
        return None
    return (
        f"controller.quorum.voters names {_listed(listed)}, but {directory} is of a quorum of "
        f"{_listed(identity.voters)}. Who votes cannot be changed: another majority would know nothing "
        "of what that one has decided. Only the addresses may change."
    )


def _listed(voters: Iterable[int]) -> str:
    return ",".join(map(str, voters))
