"""Voters whose processes do not run: which of them knows most, and what their log comes to.

    DIR/raft -> StoppedVoter -> the newest one -> apply_all -> state machine -> metadata log

What a quorum acknowledged is in the log of the voter that would win its next election, and all of that log
would be committed. The metadata log alone does not tell: it is derived, never fsynced, and a voter that was
stopped while it started had not derived it yet.
"""

from __future__ import annotations

from dataclasses import dataclass

from metadata_quorum.foundation.disk import Disk
from metadata_quorum.raft.applier import Applier
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.port import StateMachine, at_once
from metadata_quorum.raft.snapshots import SnapshotStore


@dataclass(frozen=True, slots=True)
class StoppedVoter:
    """What its journal says."""

    directory: str
    term: int
    """The newest that it has seen."""
    last_entry: tuple[int, int]
    """Term and index; of two voters the one with the greater has the newer log."""


def read_stopped_voter(disk: Disk, directory: str) -> StoppedVoter:
    """Raises `FatalError` where the journal is missing or damaged, `OSError`."""
    journal = RaftJournal(disk, directory)
    journal.close()
    return StoppedVoter(directory, journal.getCurrentTerm(), (journal.last_term, journal.last_index))


def apply_all(disk: Disk, voter: StoppedVoter, machine: StateMachine) -> None:
    """Apply a stopped voter's snapshot and all of its log. Raises `FatalError` if they are damaged,
    `OSError`."""
    journal = RaftJournal(disk, voter.directory)
    try:
        applier = Applier(machine, journal, SnapshotStore(disk, voter.directory), at_once)
        while applier.index < journal.last_index:
            command, _, _ = journal[applier.index + 1 - journal.base_index]
            applier.apply(command, lambda index, term, reply: None)
    finally:
        journal.close()
