"""The oracle of durability: what a voter would find if its machine lost power now.

Durable is what a journal opened on durable bytes alone shows, never what the voter's own reports. The
simulated worlds check by it every message that leaves and everything that is committed.
"""

from __future__ import annotations

from chaos.sim.disk import SimDisk
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.raft.journal import FILE_NAME, RaftJournal
from metadata_quorum.raft.messages import (
    Ack,
    Append,
    AppendReply,
    Message,
    PreVoteReply,
    VoteReply,
    VoteRequest,
)
from metadata_quorum.raft.snapshots import SnapshotStore


class DurableVoter:
    """One voter's directory, opened on a disk of its durable bytes alone whenever those have changed."""

    def __init__(self, disk: SimDisk, directory: str) -> None:
        self._disk = disk
        self._directory = directory
        self._seen = (-1, -1)
        self._files: dict[str, bytes] | None = None
        """Whose journal is known."""
        self._journal: RaftJournal
        self._may_grow = False
        """Whether it is exactly what its file says, to the end: then what is appended follows it."""

    def journal(self) -> RaftJournal:
        """What the voter would begin with; `FatalError` where it could not begin at all."""
        now = (self._disk.generation, self._disk.syncs)
        if now != self._seen:
            files = self._disk.durable_files(self._directory)
            if files != self._files:
                if not self._has_grown(files):
                    self._journal = self._opened(files)
                self._files = files
            self._seen = now
        return self._journal

    def _has_grown(self, files: dict[str, bytes]) -> bool:
        """Whether nothing is new but the end of its file, which it has then. To read a journal from its
        beginning after each fsync would take longer than all else that watches a voter."""
        before = self._files
        if before is None or not self._may_grow:
            return False
        old, new = before[FILE_NAME], files.get(FILE_NAME, b"")
        if not new.startswith(old) or {**before, FILE_NAME: new} != files:
            return False
        self._may_grow = False
        self._may_grow = self._journal.read_on(new, len(old)) == len(new)
        return True

    def _opened(self, files: dict[str, bytes]) -> RaftJournal:
        """On a disk that has nothing else."""
        disk = SimDisk()
        disk.make_dirs(self._directory)
        for name, data in files.items():
            disk.open(f"{self._directory}/{name}", create=True).append([data])
        self._may_grow = False
        journal = RaftJournal(disk, self._directory)
        snapshot = SnapshotStore(disk, self._directory).latest()
        if snapshot is not None and snapshot.index > journal.base_index:
            journal.trim_to(snapshot.index, snapshot.term)
            return journal
        if journal.base_index > (1 if snapshot is None else snapshot.index):
            raise InvariantViolation(
                Invariant.LOG_BEGINS_AT_A_SNAPSHOT,
                f"the log starts at {journal.base_index}, its snapshot is lost",
            )
        self._may_grow = journal.read_to == len(files[FILE_NAME])
        return journal

    def holds(self, index: int, term: int) -> bool:
        """Whether an entry would be there, itself or in the snapshot."""
        try:
            journal = self.journal()
        except FatalError:
            return False
        return index < journal.base_index or journal.term_at(index) == term

    def broken_promise(self, me: int, peer: int, message: Message, live: RaftJournal) -> str | None:
        """What of a message to `peer`, leaving now, would be forgotten after a power loss."""
        if not isinstance(message, Append | AppendReply | PreVoteReply | VoteReply | VoteRequest):
            return None
        try:
            journal = self.journal()
        except FatalError as error:
            return f"voter {me} could not start again: {error}"
        if journal.getCurrentTerm() < message.term:
            return f"voter {me} speaks in term {message.term}, durable is {journal.getCurrentTerm()}"
        if isinstance(message, VoteReply | VoteRequest) and journal.getCurrentTerm() == message.term:
            vote = peer if isinstance(message, VoteReply) else me
            if journal.getVotedForNodeId() != vote:
                return f"voter {me} would forget its vote for {vote} in term {message.term}"
        if isinstance(message, AppendReply) and message.ack == Ack.MATCHED:
            index = message.next_index - 1
            term = live.term_at(index)
            if term is not None and not self.holds(index, term):
                return f"voter {me} acknowledges {index} from memory"
        return None
