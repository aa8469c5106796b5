"""The follower's side: entries and snapshots from the leader, and what is answered.

receive -> judge_append (pure) -> journal -> answer in the outbox -> (fsync) -> leader
"""

from __future__ import annotations

from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.raft.admission import VoterAdmission
from metadata_quorum.raft.applier import Applier
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.log_matching import Mismatch, judge_append
from metadata_quorum.raft.messages import (
    Ack,
    Admit,
    Append,
    AppendReply,
    MalformedFrame,
    Rejoin,
    SnapshotChunk,
    SnapshotReply,
)
from metadata_quorum.raft.outbox import Outbox
from metadata_quorum.raft.snapshots import IncomingSnapshot
from metadata_quorum.raft.syncobj import Core


class Following:
    """Takes what a leader sends."""

    def __init__(
        self,
        config: RaftConfig,
        core: Core,
        journal: RaftJournal,
        applier: Applier,
        admission: VoterAdmission,
        outbox: Outbox,
    ) -> None:
        self._config = config
        self._core = core
        self._journal = journal
        self._applier = applier
        self._admission = admission
        self._outbox = outbox
        self._incoming: IncomingSnapshot | None = None
        self._installing = False
        self._learned_commit = 0

    @property
    def commit_index(self) -> int:
        """What is known to be committed; PySyncObj gets it at the next tick."""
        return max(self._core.commit_index, self._learned_commit)

    @property
    def installing(self) -> bool:
        """Whether a leader's snapshot is being taken in."""
        return self._installing

    def is_stale(self, peer: int, message: Append | SnapshotChunk) -> bool:
        """Whether the sender no longer leads; it is told so, or it would never learn that this voter
        has moved on to a higher term."""
        if message.term < self._core.term:
            self._answer(peer, message.seq, Ack.STALE, 0)
            return True
        invariant(
            not (self._core.is_leader and message.term == self._core.term),
            Invariant.ONE_LEADER_PER_TERM,
            ("second leader", peer, "in term", message.term),
        )
        return False

    def append(self, peer: int, message: Append) -> None:
        """Entries, a heartbeat, or news of a commit, from the leader of this term."""
        if self._installing:
            self._answer(peer, message.seq, Ack.BUSY, 0)
            return
        verdict = judge_append(self._journal, self.commit_index, message)
        if isinstance(verdict, Mismatch):
            self._answer(peer, message.seq, Ack.REWIND, verdict.next_index)
            return
        if verdict.truncate_from is not None:
            self._journal.truncate_from(verdict.truncate_from)
        for command, index, term in verdict.new:
            self._journal.add(command, index, term)
        self._learned_commit = max(self._learned_commit, verdict.commit_index)
        if message.commit_index <= verdict.last_verified:
            self._applier.compare(message.commit_index, message.digest)
        self._answer(peer, message.seq, Ack.MATCHED, verdict.last_verified + 1)
        if self._admission.mute and not message.entries:
            self._outbox.put(peer, Rejoin(self._core.term, self._admission.nonce))

    def commit(self) -> None:
        """Hand what was learned to PySyncObj, which applies it; once per tick, after the fsync."""
        if self._learned_commit > self._core.commit_index:
            self._core.commit_to(self._learned_commit)

    def snapshot_chunk(self, peer: int, chunk: SnapshotChunk) -> None:
        """A piece of a snapshot. Only its own index is ever acknowledged. Raises
        `MalformedFrame`."""
        if chunk.total > self._config.max_snapshot_bytes:
            raise MalformedFrame(f"snapshot {chunk.index} claims {chunk.total} bytes")
        if self._applier.busy:
            self._answer(peer, chunk.seq, Ack.BUSY, 0)
            return
        if chunk.index <= self.commit_index:
            self._incoming = None
            self._answer(peer, chunk.seq, Ack.MATCHED, chunk.index + 1)
            return
        if self._incoming is None or not self._incoming.is_of(chunk):
            self._incoming = IncomingSnapshot(chunk)
        incoming, self._incoming = self._incoming, None
        if not incoming.take(chunk):
            self._incoming = incoming
            self._outbox.put(peer, SnapshotReply(self._core.term, chunk.seq, chunk.index, incoming.wanted))
            return

        def installed() -> None:
            invariant(
                not self._core.is_leader,
                Invariant.LEADER_INSTALLS_NO_SNAPSHOT,
                ("a leader installs snapshot", chunk.index),
            )
            self._installing = False
            self._core.restored_to(chunk.index)
            if self._core.term == chunk.term:
                self._answer(peer, chunk.seq, Ack.MATCHED, chunk.index + 1)

        def refused() -> None:
            self._installing = False  # and the leader, whose next probe finds nothing here, sends it again

        self._installing = True
        self._applier.install(incoming, installed, refused)

    def admit(self, peer: int, message: Admit) -> bool:
        """The leader found our nonce in all other logs, and we have caught up with it: True if this
        voter may count."""
        if (
            not self._admission.mute
            or message.term != self._core.term
            or message.nonce != self._admission.nonce
            or message.index > self.commit_index
        ):
            return False
        # A vote of this term may have been given before the disk was lost.
        if self._core.voted_for is None:
            self._core.record_vote(peer)
        return True

    def _answer(self, peer: int, seq: int, ack: Ack, next_index: int) -> None:
        counts = not self._admission.mute
        self._outbox.put(peer, AppendReply(self._core.term, seq, ack, next_index, counts))
