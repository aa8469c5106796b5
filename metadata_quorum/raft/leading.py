"""The leader's side: sending entries and snapshots, and what the answers mean.

Everything is sent from `replicate`, at the end of a tick, after PySyncObj counted and applied: a
proposal leaves in the turn in which it was made, a commit is sent in the turn in which it happened,
and the heartbeat only keeps silent links awake.
"""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Final

from metadata_quorum.raft.admission import Rejoins, nonce_entry
from metadata_quorum.raft.applier import Applier
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.journal import GENESIS, RaftJournal
from metadata_quorum.raft.messages import (
    MAX_ENTRIES,
    Ack,
    Admit,
    Append,
    AppendReply,
    LogEntry,
    MalformedFrame,
    Rejoin,
    SnapshotReply,
)
from metadata_quorum.raft.outbox import Outbox
from metadata_quorum.raft.replication import FollowerProgress
from metadata_quorum.raft.snapshots import OutgoingSnapshot, Snapshot
from metadata_quorum.raft.syncobj import Core

logger = logging.getLogger(__name__)

_MS: Final = 0.001


class Leading:
    """What this voter does while it leads."""

    def __init__(
        self,
        node_id: int,
        config: RaftConfig,
        core: Core,
        journal: RaftJournal,
        applier: Applier,
        outbox: Outbox,
        is_connected: Callable[[int], bool],
    ) -> None:
        self._node_id = node_id
        self._config = config
        self._core = core
        self._journal = journal
        self._applier = applier
        self._outbox = outbox
        self._is_connected = is_connected
        self.followers: dict[int, FollowerProgress] = {}
        self._rejoins = Rejoins()
        self.heartbeat_at = 0.0

    def won(self, others: list[int]) -> None:
        """A new leadership starts with no knowledge of the others' logs. Its first entry, PySyncObj's
        no-op, is the last of the log: the first message to all brings it."""
        self.followers = {peer: FollowerProgress(self._journal.last_index) for peer in others}
        self._rejoins.clear()
        self.heartbeat_at = float("-inf")

    def reconnected(self, peer: int) -> None:
        """A new connection to that follower."""
        if self._core.is_leader:
            self.followers[peer].reconnected(self._known_index(peer) + 1)
            self.heartbeat_at = float("-inf")

    def reincarnated(self, peer: int) -> None:
        """That voter lost its disk, and what it acknowledged with it."""
        if self._core.is_leader:
            self._core.matches_nothing(peer)
            self.followers[peer] = FollowerProgress(self._journal.last_index + 1)

    # -- sending -----------------------------------------------------------------------------------

    def replicate(self, now: float) -> None:
        """Send every follower what it lacks, as far as it keeps up."""
        beat = now >= self.heartbeat_at
        if beat:
            self.heartbeat_at = now + self._config.heartbeat_ms * _MS
        for peer, follower in self.followers.items():
            if not self._is_connected(peer):
                continue
            if self._needs_snapshot(follower):
                if beat and (follower.reading or follower.unread):
                    self._send_append(peer, follower, self._journal.base_index, ())
                if not follower.reading and (beat or not follower.unread):
                    self._start_transfer(peer, follower)
            elif follower.transfer is not None:
                if beat:
                    self._outbox.put(peer, follower.transfer.probe(self._core.term, follower.next_seq()))
            else:
                self._send_entries(peer, follower, beat=beat)

    def _send_entries(self, peer: int, follower: FollowerProgress, *, beat: bool) -> None:
        last = self._journal.last_index
        sent = False
        while follower.next_index <= last and follower.in_flight < self._config.appends_in_flight:
            entries = self._journal.entries_from(follower.next_index, self._config.append_bytes, MAX_ENTRIES)
            self._send_append(peer, follower, follower.next_index - 1, entries)
            follower.next_index = entries[-1][1] + 1
            sent = True
        if not sent and (beat or follower.commit_sent < self._applier.index):
            self._send_append(peer, follower, follower.next_index - 1, ())

    def _send_append(
        self, peer: int, follower: FollowerProgress, prev_index: int, entries: tuple[LogEntry, ...]
    ) -> None:
        prev_term = self._journal.term_at(prev_index)
        assert prev_term is not None
        follower.commit_sent = self._applier.index
        message = Append(
            term=self._core.term,
            seq=follower.next_seq(),
            prev_index=prev_index,
            prev_term=prev_term,
            commit_index=self._applier.index,
            digest=self._applier.digest,
            entries=entries,
        )
        self._outbox.put(peer, message)

    def _needs_snapshot(self, follower: FollowerProgress) -> bool:
        """The log no longer holds what comes next, and nothing is on its way."""
        return follower.transfer is None and follower.next_index <= self._journal.base_index

    def _start_transfer(self, peer: int, follower: FollowerProgress) -> None:
        """The snapshot is read beside the loop; meanwhile heartbeats ask for the log's beginning."""

        def read(snapshot: Snapshot | None) -> None:
            follower.reading = False
            follower.unread = snapshot is None
            current = self._core.is_leader and self.followers.get(peer) is follower
            if (
                snapshot is not None
                and current
                and self._is_connected(peer)
                and self._needs_snapshot(follower)
            ):
                follower.transfer = OutgoingSnapshot(snapshot)
                self._send_chunk(peer, follower, follower.transfer)

        follower.reading = True
        self._applier.read_snapshot(read)

    def _send_chunk(self, peer: int, follower: FollowerProgress, transfer: OutgoingSnapshot) -> None:
        chunk = transfer.chunk(self._core.term, follower.next_seq(), self._config.snapshot_chunk_bytes)
        self._outbox.put(peer, chunk)

    # -- answers -----------------------------------------------------------------------------------

    def append_reply(self, peer: int, message: AppendReply, now: float) -> None:
        """What a follower has, or where it needs the leader to begin. Raises `MalformedFrame`."""
        follower = self._heard(peer, message.term, message.seq, now if message.counts else None)
        if follower is None:
            return
        if message.ack == Ack.MATCHED:
            index = message.next_index - 1
            if index > self._journal.last_index:
                raise MalformedFrame(f"voter {peer} acknowledges {index}, the log ends before")
            if message.counts:
                follower.answered_counting()
                self._core.matched(peer, index)
            else:
                follower.answered_mute(index)
            follower.advanced_to(message.next_index)
            if follower.transfer is not None and index >= follower.transfer.snapshot.index:
                follower.transfer = None
        elif message.ack == Ack.REWIND:
            if not message.counts:
                follower.answered_mute(0)
            elif message.next_index <= self._known_index(peer) and message.seq >= follower.floor:
                self._forgot(peer, message.next_index)
            known = self._known_index(peer)
            target = min(max(message.next_index, known + 1), self._journal.last_index + 1)
            follower.rewind(message.seq, target)

    def _forgot(self, peer: int, index: int) -> None:
        """It asks for what it has acknowledged: its directory is a copy from before, or its disk lost pages.
        It gets that again, and counts with it from then on."""
        logger.error(
            "voter %d has lost the metadata log from index %d to %d, which it had acknowledged: is its "
            "directory an older copy? It gets them again",
            peer, index, self._known_index(peer),
        )  # fmt: skip
        self._core.matches_nothing(peer)
        self.followers[peer].answered_counting()

    def snapshot_reply(self, peer: int, message: SnapshotReply, now: float) -> None:
        """The follower needs the next chunk."""
        follower = self._heard(peer, message.term, message.seq, now)
        if follower is None or follower.transfer is None:
            return
        if follower.transfer.wants(message.index, message.seq, message.offset):
            self._send_chunk(peer, follower, follower.transfer)

    def rejoin(self, peer: int, message: Rejoin) -> None:
        """A mute voter shows its nonce: put it in the log, or answer that all others have it."""
        if not self._core.is_leader or message.term != self._core.term:
            return
        if self._rejoins.is_new(peer, message.nonce):
            index = self._journal.last_index + 1
            self._journal.add(nonce_entry(peer, message.nonce), index, self._core.term)
            self._rejoins.appended(peer, message.nonce, index)
            return
        proven = self._rejoins.proven(
            peer, commit_index=self._core.commit_index, match_index=self.match_index(), mute=self._mute()
        )
        if proven is not None:
            self._outbox.put(peer, Admit(self._core.term, proven.nonce, proven.at))

    def match_index(self) -> dict[int, int]:
        """Per voter, what it holds for certain; this leader included."""
        return {**self._core.match_index, self._node_id: self._journal.last_index}

    def _mute(self) -> dict[int, int]:
        followers = self.followers.items()
        return {peer: f.mute_index for peer, f in followers if f.mute_index is not None}

    def _known_index(self, peer: int) -> int:
        """What it is known to hold: the first entry, which every log has, at least."""
        mute_index = self.followers[peer].mute_index
        return max(self._core.match_index[peer] if mute_index is None else mute_index, GENESIS[1])

    def _heard(self, peer: int, term: int, seq: int, now: float | None) -> FollowerProgress | None:
        """The follower, if the answer belongs to this leadership: one from an earlier term speaks of
        a log that may have been overwritten since."""
        if term > self._core.term:
            self._core.adopt_term(term)
        if not self._core.is_leader or term != self._core.term:
            return None
        follower = self.followers[peer]
        follower.answered(seq)
        if now is not None:
            self._core.answered(peer, now)
        return follower
