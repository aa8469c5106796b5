"""Committed entries into the state machine, and its snapshots.

PySyncObj calls in commit order, once per entry. A rolling hash of everything applied, and of what the
state machine made of it, travels with the leader's messages and with snapshots: two voters that applied
different histories, or the same one differently, find out at the next heartbeat and stop.

What may take seconds is done beside the loop: snapshots are encoded, written and read there, and commands
that change much of a large cluster decided. Commands are applied while a snapshot is being written; but
only one command or one snapshot is taken in at a time.
"""

from __future__ import annotations

import logging
import struct
import zlib
from collections import OrderedDict
from collections.abc import Callable
from functools import partial
from typing import Final, TypeVar

from metadata_quorum.foundation.disk import is_of_disk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.invariants import Invariant, InvariantViolation, invariant
from metadata_quorum.raft.config import RaftConfig
from metadata_quorum.raft.journal import GENESIS, RaftJournal
from metadata_quorum.raft.messages import EntryKind, MalformedFrame
from metadata_quorum.raft.port import QUICK_WEIGHT, Background, StateMachine
from metadata_quorum.raft.snapshots import IncomingSnapshot, Snapshot, SnapshotStore

logger = logging.getLogger(__name__)

T = TypeVar("T")

_POSITION: Final = struct.Struct(">QQ")
_REMEMBERED: Final = 1024
"""Entries whose hash is kept for comparison with the leader's."""
_PUT_OFF_ENTRIES: Final = 100
_DIVERGED: Final = (
    "the entries up to {} came to something else here than at the leader. Voters of different builds decide"
    " differently: run one build on all; where this quorum was created by an earlier build of 0.1.0,"
    " stop them and start again with empty directories (CHANGELOG.md). Where neither is so, this is a bug"
)


class Applier:
    """The state machine, and how far it is."""

    def __init__(
        self, machine: StateMachine, journal: RaftJournal, store: SnapshotStore, beside: Background
    ) -> None:
        self._beside = beside
        self._writing = False
        self.busy = False
        """A command or a snapshot is being taken in beside the loop."""
        self._spent = 0
        """The weight of what was applied in this turn."""
        self._machine = machine
        self._journal = journal
        self.store = store
        self.index = GENESIS[1]
        """The last entry applied."""
        self.digest = 0
        """Rolling hash of all entries up to `index`, and of what came of them."""
        self._bytes_since_snapshot = 0
        self._put_off_to = self.index
        """No snapshot before that entry: the process had no file handle left for the last one."""
        self.digests: OrderedDict[int, int] = OrderedDict({self.index: 0})
        self._expected: tuple[int, int] | None = None
        self._load()

    def apply(self, command: bytes, applied: Callable[[int, int, object], None]) -> None:
        """The next entry; `applied` is called with index, term and the proposer's answer, now or later. A
        state machine that raises is broken: the node stops, and the entry is not applied again."""
        index = self.index + 1
        term = self._journal.term_at(index)
        invariant(term is not None, Invariant.RAFT_LOG_DENSE, ("apply", index))
        assert term is not None

        def take(adopt: Callable[[], object]) -> None:
            self.busy = False
            result = _never_raising(f"index {index}", adopt)
            digest = zlib.crc32(command, zlib.crc32(_POSITION.pack(index, term), self.digest))
            self._move_to(index, zlib.crc32(self._machine.rolling_hash, digest))
            self._bytes_since_snapshot += len(command)
            applied(index, term, result)

        if command[0] != EntryKind.COMMAND:
            take(lambda: None)
            return
        weight = self._machine.weight(command[1:])
        self._spent += weight
        if weight <= QUICK_WEIGHT:
            take(lambda: self._machine.apply(index, term, command[1:]))
            return
        self.busy = True
        prepare = partial(self._machine.prepare, index, term, command[1:])
        self._beside(lambda: _never_raising(f"index {index}", prepare), take)

    @property
    def may_apply(self) -> bool:
        """Whether the next entry is to be applied now: what a restart or a burst brings is shared out over
        many turns, between which messages go out."""
        return not self.busy and self._spent < QUICK_WEIGHT

    def begin_turn(self) -> None:
        self._spent = 0

    def compare(self, index: int, digest: int) -> None:
        """The leader applied up to `index` and has this hash; so must we, now or when we get there."""
        known = self.digests.get(index)
        if known is not None:
            _must_agree(index, known, digest)
        elif index > self.index:
            self._expected = (index, digest)

    def snapshot_is_due(self, config: RaftConfig) -> bool:
        """Whether enough was applied since the last one."""
        return not (self._writing or self.index < self._put_off_to) and (
            self.index - self._journal.base_index >= config.snapshot_entries
            or self._bytes_since_snapshot >= config.snapshot_bytes
        )

    def take_snapshot(self) -> None:
        """Save the state, then forget the log that led to it."""
        index, digest, term = self.index, self.digest, self._journal.term_at(self.index)
        invariant(term is not None, Invariant.RAFT_LOG_DENSE, ("snapshot", index))
        assert term is not None
        encode = self._machine.snapshot()

        def write() -> OSError | None:
            try:
                self.store.save(Snapshot.of(index, term, digest, encode()))
            except OSError as e:
                if is_of_disk(e):
                    raise
                return e
            return None

        def written(refused: OSError | None) -> None:
            self._writing = False
            if refused is None and index > self._journal.base_index:  # else a leader's came in meanwhile
                try:
                    self._forget_log(index, term)
                except OSError as e:
                    if is_of_disk(e):
                        raise
                    refused = e
            if refused is not None:
                self._put_off_to = self.index + _PUT_OFF_ENTRIES
                logger.warning("The metadata snapshot at %d is put off: %s", index, refused)

        self._writing = True
        self._bytes_since_snapshot = 0
        self._beside(write, written)

    def install(
        self, incoming: IncomingSnapshot, installed: Callable[[], None], refused: Callable[[], None]
    ) -> None:
        """A leader's snapshot replaces the state. On the device first. Refused where it
        is damaged or the process has no file left for it; then nothing has changed."""
        invariant(
            incoming.index > self._journal.getRaftCommitIndex(),
            Invariant.TERM_AND_COMMIT_MONOTONIC,
            ("snapshot", incoming.index),
        )

        def take_in() -> tuple[Snapshot, Callable[[], None]] | Exception:
            try:
                snapshot = incoming.put_together()
                self.store.save(snapshot)
                return snapshot, self._read(snapshot)
            except MalformedFrame as e:
                return e
            except OSError as e:
                if is_of_disk(e):
                    raise
                return e

        def taken_in(taken: tuple[Snapshot, Callable[[], None]] | Exception) -> None:
            self.busy = False
            if not isinstance(taken, Exception):
                snapshot, adopt = taken
                try:
                    self._journal.trim_to(snapshot.index, snapshot.term)
                except OSError as e:
                    if is_of_disk(e):
                        raise
                    taken = e
            if isinstance(taken, Exception):
                logger.warning("The leader's snapshot at %d is refused: %s", incoming.index, taken)
                refused()
                return
            self._bytes_since_snapshot = 0
            self._adopt(snapshot, adopt)
            installed()
            self._prune(snapshot.index)

        self.busy = True
        self._beside(take_in, taken_in)

    def read_snapshot(self, read: Callable[[Snapshot | None], None]) -> None:
        """The newest one, to be sent to a follower that needs what the log no longer holds; None where the
        process has no file left for it. Raises `FatalError` where there is none that is whole."""

        def look() -> Snapshot | None:
            try:
                snapshot = self.store.latest()
            except OSError as e:
                if is_of_disk(e):
                    raise
                logger.warning("The metadata snapshot is sent later: %s", e)
                return None
            if snapshot is None:
                raise FatalError(ExitCode.QUORUM_DISK_LOST, "the metadata snapshot has disappeared.")
            return snapshot

        self._beside(look, read)

    def _forget_log(self, index: int, term: int) -> None:
        """A durable snapshot replaces it."""
        self._journal.trim_to(index, term)
        self._prune(index)

    def _prune(self, index: int) -> None:
        try:
            self.store.prune(index)
        except OSError as e:
            if is_of_disk(e):
                raise
            logger.warning("Metadata snapshots before %d are left until the next one: %s", index, e)

    def _read(self, snapshot: Snapshot) -> Callable[[], None]:
        return _never_raising(
            f"snapshot {snapshot.index}",
            lambda: self._machine.restore(snapshot.data, snapshot.index, snapshot.term),
        )

    def _adopt(self, snapshot: Snapshot, adopt: Callable[[], None]) -> None:
        adopt()
        self.digests.clear()
        self._move_to(snapshot.index, snapshot.digest)

    def _move_to(self, index: int, digest: int) -> None:
        self.index, self.digest = index, digest
        self.digests[index] = digest
        if len(self.digests) > _REMEMBERED:
            self.digests.popitem(last=False)
        if self._expected is not None and self._expected[0] <= index:
            if self._expected[0] == index:
                _must_agree(index, digest, self._expected[1])
            self._expected = None

    def _load(self) -> None:
        """At the start: the newest snapshot, and the journal trimmed to it if a crash came between."""
        snapshot = self.store.latest()
        base = self._journal.base_index
        if snapshot is None or snapshot.index < base:
            if base > GENESIS[1]:
                raise FatalError(
                    ExitCode.QUORUM_DISK_LOST,
                    f"the metadata log starts at {base}, and the snapshot before it is missing. Format this "
                    "voter again (kraft storage format) to let it rejoin.",
                )
            return
        if snapshot.index > base:
            # A kill came between, perhaps before its name was durable: written again before the log that
            # it replaces is truncated. One at `base` was durable before the journal was written that says so.
            self.store.save(snapshot)
            self._journal.trim_to(snapshot.index, snapshot.term)
        self._adopt(snapshot, self._read(snapshot))


def _must_agree(index: int, ours: int, the_leaders: int) -> None:
    if ours != the_leaders:
        raise InvariantViolation(Invariant.STATE_MACHINE_SAFETY, _DIVERGED.format(index))


def _never_raising(what: str, step: Callable[[], T]) -> T:
    """But for a failing disk, or where this version of the node cannot go on."""
    try:
        return step()
    except (OSError, FatalError):
        raise
    except Exception as e:
        raise InvariantViolation(Invariant.APPLY_NEVER_RAISES, f"{what}: {e!r}") from e
