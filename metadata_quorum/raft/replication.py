"""The leader's view of one follower: how far its log matches, and what it was sent.

Sending is optimistic: `next_index` moves on with each message, answers come later. An answer that
asks to go back counts only if it speaks of a message sent after the last such step back (`floor`):
older ones would undo the progress made since, for ever if the link is slow.

Pure; leading.py sends.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from metadata_quorum.raft.snapshots import OutgoingSnapshot

_FIRST: Final = 1


@dataclass(slots=True)
class FollowerProgress:
    """One follower, as its leader knows it in this term."""

    next_index: int
    seq: int = 0
    """Number of the last message sent."""
    answered_seq: int = 0
    floor: int = _FIRST
    """Requests to go back that answer an older message are void."""
    commit_sent: int = 0
    """The highest commit index that it was sent."""
    mute_index: int | None = None
    """What it has, while it is mute and its answers do not count; else None."""
    counts: bool = False
    """It has given an answer that counts."""
    transfer: OutgoingSnapshot | None = None
    reading: bool = False
    """The snapshot for a transfer is being read."""
    unread: bool = False
    """It could not be read: again with the next heartbeat."""

    def next_seq(self) -> int:
        self.seq += 1
        return self.seq

    @property
    def in_flight(self) -> int:
        """Messages without an answer."""
        return self.seq - self.answered_seq

    def answered(self, seq: int) -> None:
        self.answered_seq = max(self.answered_seq, min(seq, self.seq))

    def answered_mute(self, index: int) -> None:
        """It says that it is mute, and has everything up to `index`. A voter that counts does not become mute
        but as another incarnation: what it said before that may come late."""
        if not self.counts:
            self.mute_index = max(self.mute_index or 0, index)

    def answered_counting(self) -> None:
        """Its answers count (again)."""
        self.counts, self.mute_index = True, None

    def advanced_to(self, next_index: int) -> None:
        """The follower holds everything below `next_index`."""
        self.next_index = max(self.next_index, next_index)

    def rewind(self, seq: int, next_index: int) -> bool:
        """Go back to `next_index`, unless the answer is older than the last step back."""
        if seq < self.floor:
            return False
        self.next_index = next_index
        self.floor = self.seq + 1
        self.transfer = None
        return True

    def reconnected(self, next_index: int) -> None:
        """A new connection: what was on the way is lost."""
        self.answered_seq = self.seq
        self.rewind(self.floor, next_index)
