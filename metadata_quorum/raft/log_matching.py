"""The follower's judgement of an append: what matches, what conflicts, what is new.

Pure. PySyncObj truncates its log at every append, so that a late copy of a message takes back
entries already acknowledged; here only a real conflict truncates, and only above the commit
index. The commit index follows the leader's no further than the last entry that this very
message verified.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from metadata_quorum.foundation.invariants import Invariant, invariant
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.messages import Append, LogEntry


@dataclass(frozen=True, slots=True)
class Matched:
    """The log agrees with the leader's up to `last_verified` once `new` is appended."""

    truncate_from: int | None
    """First index that conflicts and must go, if any."""
    new: Sequence[LogEntry]
    last_verified: int
    commit_index: int
    """What may be regarded as committed, by this message alone."""


@dataclass(frozen=True, slots=True)
class Mismatch:
    """The leader has to come again from `next_index`."""

    next_index: int


def judge_append(log: RaftJournal, commit_index: int, message: Append) -> Matched | Mismatch:
    """Compare the message with the log; changes nothing."""
    if message.prev_index > log.last_index:
        return Mismatch(log.last_index + 1)
    known = log.term_at(message.prev_index)
    if known is not None and known != message.prev_term:
        invariant(
            message.prev_index > commit_index,
            Invariant.LEADER_COMPLETENESS,
            ("leader's log differs at committed", message.prev_index, known, message.prev_term),
        )
        return Mismatch(_start_of_term(log, message.prev_index, commit_index))
    # Where prev_index lies below our snapshot (`known is None`), the log from there to the commit
    # index is the leader's too: a leader holds everything that is committed.
    entries = message.entries
    skipped = 0
    truncate_from: int | None = None
    for command, index, term in entries:
        ours = log.term_at(index)
        if ours is None and index > log.last_index:
            break
        if ours is not None and ours != term:
            invariant(
                index > commit_index,
                Invariant.LEADER_COMPLETENESS,
                ("leader's log differs at committed", index, ours, term),
            )
            truncate_from = index
            break
        del command
        skipped += 1
    last_verified = message.prev_index + len(entries)
    return Matched(truncate_from, entries[skipped:], last_verified, min(message.commit_index, last_verified))


def _start_of_term(log: RaftJournal, index: int, commit_index: int) -> int:
    """First index of the run of entries with the term at `index`: the leader lacks all of them, so
    one answer skips a whole term of conflicts, however long the backlog."""
    term = log.term_at(index)
    while index - 1 > commit_index and log.term_at(index - 1) == term:
        index -= 1
    return index
