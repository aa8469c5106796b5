"""The simulated quorum's state machine: the list of the commands that were applied, and its hash."""

from __future__ import annotations

import zlib
from collections.abc import Callable
from typing import Protocol

from metadata_quorum.foundation.invariants import Invariant, InvariantViolation
from metadata_quorum.raft.port import QUICK_WEIGHT


class HistoryObserver(Protocol):
    """Checks what the voters do against each other."""

    def leads(self, node_id: int, term: int) -> None: ...

    def applied(self, node_id: int, index: int, term: int, digest: int) -> None: ...


class AppliedHistory:
    """The replicated state machine: a list of commands, and its hash."""

    def __init__(self, observer: HistoryObserver, node_id: int) -> None:
        self._observer = observer
        self._node_id = node_id
        self.values: list[bytes] = []
        self.digest = 0
        self.index = 0

    def apply(self, index: int, term: int, command: bytes) -> object:
        if index <= self.index:
            raise InvariantViolation(
                Invariant.RAFT_LOG_DENSE, f"voter {self._node_id} applies {index} after {self.index}"
            )
        self.index = index
        self.values.append(command)
        self.digest = zlib.crc32(command, self.digest)
        self._observer.applied(self._node_id, index, term, self.digest)
        return len(self.values)

    @property
    def rolling_hash(self) -> bytes:
        return self.digest.to_bytes(4)

    def weight(self, command: bytes) -> int:
        """As if one in so many took long, and the others half of an iteration."""
        return QUICK_WEIGHT // 2 if zlib.crc32(command) % 32 else QUICK_WEIGHT + 1

    def prepare(self, index: int, term: int, command: bytes) -> Callable[[], object]:
        return lambda: self.apply(index, term, command)

    def snapshot(self) -> Callable[[], bytes]:
        digest, values = self.digest, list(self.values)
        return lambda: b"\n".join([str(digest).encode(), *values])

    def restore(self, data: bytes, index: int, term: int) -> Callable[[], None]:
        digest, *values = data.split(b"\n")

        def adopt() -> None:
            self.index, self.digest, self.values = index, int(digest), values

        return adopt

    def became_leader(self, term: int) -> None:
        self._observer.leads(self._node_id, term)

    def lost_leadership(self, term: int) -> None:
        pass
