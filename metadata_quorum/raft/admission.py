"""When a freshly formatted voter may count.

A voter that was formatted may be new with its cluster, or may have lost its disk; it cannot tell.
Until it knows, it is *mute*: no vote, no candidacy, and its acknowledgements move the leader's
sending, never the commit index. Two ways lead out:

* Bootstrap. All other voters vouch, after this voter started, that nothing committed ever needed
  them: each is mute itself, or was admitted by bootstrap together with this very incarnation.
* Rejoin. A nonce drawn at this voter's start is committed by the leader and is in the log of
  *every* other voter that counts. All of them then were in the leader's term after the disk was
  lost, so no vote the voter forgot is still good for an election, and each of them holds
  everything that its lost acknowledgements ever helped to commit.

`VoterAdmission` is the voter's own side, `Rejoins` the leader's. No I/O, no clock.
"""

from __future__ import annotations

import logging
import struct
from collections.abc import Iterable, Mapping
from typing import Final, NamedTuple
from uuid import UUID

from metadata_quorum.raft.messages import EntryKind

logger = logging.getLogger(__name__)

_NONCE: Final = struct.Struct(">BiQ")  # entry kind, voter, nonce


def nonce_entry(voter: int, nonce: int) -> bytes:
    """The log entry that carries a mute voter's nonce."""
    return _NONCE.pack(EntryKind.NONCE, voter, nonce)


def warn_of_replaced(voter: int) -> None:
    """It says hello from the directory that it had before the present one was formatted."""
    logger.error(
        "voter %d runs on a directory that another one had replaced, and is not listened to: what it has "
        "acknowledged since is not there. Give it the other one back, or remove its raft directory and "
        "format it again (kraft storage format)",
        voter,
    )


class VoterAdmission:
    """Whether this voter counts."""

    def __init__(self, others: Iterable[int], nonce: int, admitted: Mapping[int, UUID] | None) -> None:
        self.nonce = nonce
        """Drawn at this start; never 0, which in a Hello means "no question"."""
        self._admitted = admitted
        self._missing = set(others)
        self._vouched: dict[int, UUID] = {}

    @property
    def mute(self) -> bool:
        return self._admitted is None

    def vouches_for(self, peer: int, incarnation: UUID) -> bool:
        """Whether nothing committed ever needed this voter without that incarnation of `peer`."""
        return self._admitted is None or self._admitted.get(peer) == incarnation

    def vouched(self, peer: int, incarnation: UUID) -> None:
        """`peer` answered our question, asked after our start."""
        if self.mute:
            self._missing.discard(peer)
            self._vouched[peer] = incarnation

    @property
    def bootstrapped(self) -> Mapping[int, UUID] | None:
        """The quorum this voter is new with, once all others have vouched."""
        return self._vouched if self.mute and not self._missing else None

    def admitted_with(self, peers: Mapping[int, UUID]) -> None:
        """This voter counts; the journal has it."""
        self._admitted = dict(peers)


class ProvenNonce(NamedTuple):
    """A nonce, and its index in the leader's log."""

    nonce: int
    at: int


class Rejoins:
    """The nonces that a leader has in its log for mute voters; forgotten with its leadership."""

    def __init__(self) -> None:
        self._pending: dict[int, ProvenNonce] = {}

    def clear(self) -> None:
        self._pending.clear()

    def is_new(self, peer: int, nonce: int) -> bool:
        """Whether the nonce still has to be appended."""
        pending = self._pending.get(peer)
        return pending is None or pending.nonce != nonce

    def appended(self, peer: int, nonce: int, index: int) -> None:
        self._pending[peer] = ProvenNonce(nonce, index)

    def proven(
        self, peer: int, *, commit_index: int, match_index: Mapping[int, int], mute: Mapping[int, int]
    ) -> ProvenNonce | None:
        """The nonce of `peer` if every other voter holds it.

        `match_index` covers the leader and all other voters; `mute` maps those known to be mute to what
        they hold: they prove nothing about the past, so nothing is asked of them but the peer itself.
        """
        pending = self._pending.get(peer)
        if pending is None or pending.at > commit_index or mute.get(peer, 0) < pending.at:
            return None
        others = [index for voter, index in match_index.items() if voter != peer and voter not in mute]
        return pending if all(index >= pending.at for index in others) else None
