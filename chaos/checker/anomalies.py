"""The table of anomalies: what each one is, and where it is tolerated.

The names are those of Jepsen's Kafka workload; *phantom*, *send-poll-mismatch*, *vanished-read*,
*offset-gap*, *altered-record*, *nonmonotonic-end*, *backdated-send* and those of transactions and groups
from *double-consume* on are ours. A *version order* is one partition's log as all clients together observed
it: the offsets that were polled, and, at acks=all, those of acknowledged sends that are known to be
committed. Holes are left out (markers of transactions, aborted records), so that neighbours in the log have
neighbouring *indexes*. A *final reader* is what one process polled since its assignment in the final phase;
one whose client was thrown away before it was done does not count. In a compacted topic a value is
*superseded* by a later one with the same record key, and need not be there any more. docs/CHAOS.md shows
this table.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import NamedTuple

from chaos.history import ACKS_ALL, TopicMode

Tolerance = Callable[[TopicMode], bool]


def never(mode: TopicMode) -> bool:
    return False


def always(mode: TopicMode) -> bool:
    return True


def unless_acks_all(mode: TopicMode) -> bool:
    """What only the leader has may go with the leader."""
    return mode.acks != ACKS_ALL


def at_acks_0(mode: TopicMode) -> bool:
    """A client that gets no acks cannot order what it sends."""
    return mode.acks == 0


def where_retries_repeat(mode: TopicMode) -> bool:
    """A client that retries without a sequence number may write twice; at acks=0 there are no retries."""
    return mode.acks != 0 and not deduplicated(mode)


def where_retries_overtake(mode: TopicMode) -> bool:
    """Without sequence numbers, what is retried lands behind what was already in flight."""
    return not deduplicated(mode)


def deduplicated(mode: TopicMode) -> bool:
    return mode.idempotent or mode.transactional


class AnomalyKind(NamedTuple):
    name: str
    definition: str
    tolerated: Tolerance


INCONSISTENT_OFFSETS = AnomalyKind(
    "inconsistent-offsets",
    "Two polls found different values at one offset.",
    never,
)
SEND_POLL_MISMATCH = AnomalyKind(
    "send-poll-mismatch",
    "A send was acknowledged at an offset where a poll, or another acknowledgement, has a different value.",
    unless_acks_all,
)
LOST_WRITE = AnomalyKind(
    "lost-write",
    "A committed value never came back in a successful poll, though later parts of its log were read.",
    unless_acks_all,
)
UNSEEN = AnomalyKind(
    "unseen",
    "An acknowledged value was in no successful poll, not even in one of the final phase.",
    unless_acks_all,
)
VANISHED_READ = AnomalyKind(
    "vanished-read",
    "A value was polled at an offset, and a final reader did not find it there.",
    never,
)
OFFSET_GAP = AnomalyKind(
    "offset-gap",
    "A final reader found nothing at an offset, although it found something behind it, and neither "
    "transactions nor compaction make holes in that topic.",
    never,
)
PHANTOM = AnomalyKind(
    "phantom",
    "A poll returned a value that nobody sent to that partition.",
    never,
)
ALTERED_RECORD = AnomalyKind(
    "altered-record",
    "A poll returned a record with another key, other headers or another timestamp than it was sent with.",
    never,
)
NONMONOTONIC_END = AnomalyKind(
    "nonmonotonic-end",
    "A high watermark or a last stable offset was reported that lies before what clients had polled, seen "
    "reported or got acknowledged already: it went back.",
    never,
)
G1A = AnomalyKind(
    "G1a",
    "A poll returned a value whose send surely failed, or whose transaction was aborted.",
    never,
)
PRECOMMITTED_READ = AnomalyKind(
    "precommitted-read",
    "A transaction polled what it had sent itself, before it was committed.",
    never,
)
DUPLICATE = AnomalyKind(
    "duplicate",
    "One value is at two or more offsets.",
    where_retries_repeat,
)
NONMONOTONIC_SEND = AnomalyKind(
    "nonmonotonic-send",
    "A process sent a value after another was acknowledged, and it is before that one in the log.",
    at_acks_0,
)
BACKDATED_SEND = AnomalyKind(
    "backdated-send",
    "A value is before an offset that had been polled, acknowledged or reported when its send began.",
    never,
)
INT_NONMONOTONIC_SEND = AnomalyKind(
    "int-nonmonotonic-send",
    "Of two values sent by one operation, the later is before the earlier.",
    where_retries_overtake,
)
INT_SEND_SKIP = AnomalyKind(
    "int-send-skip",
    "Between two values sent by one operation stand values of others. Writers interleave; counted only.",
    always,
)
G0 = AnomalyKind(
    "G0",
    "Operations that stand before each other in the logs (a cycle of write-write edges). Counted only.",
    always,
)
POLL_SKIP = AnomalyKind(
    "poll-skip",
    "A process's next poll jumped over values, or its first one after an assignment. Rebalances start anew.",
    never,
)
NONMONOTONIC_POLL = AnomalyKind(
    "nonmonotonic-poll",
    "A process's next poll went back, or stood still, or lies before its assignment. Rebalances start anew.",
    never,
)
INT_POLL_SKIP = AnomalyKind(
    "int-poll-skip",
    "One operation's polls jumped over values. Keys that were rebalanced meanwhile are exempt.",
    never,
)
INT_NONMONOTONIC_POLL = AnomalyKind(
    "int-nonmonotonic-poll",
    "One operation's polls went back, or stood still. Keys that were rebalanced meanwhile are exempt.",
    never,
)
G1C = AnomalyKind(
    "G1c",
    "Operations that each depend on the next: one polled what the other sent, or began after it ended. "
    "No write-write edges are added: with them cycles would be normal.",
    never,
)
DOUBLE_CONSUME = AnomalyKind(
    "double-consume",
    "One input record was consumed by two committed transactions of a group.",
    never,
)
LOST_INPUT = AnomalyKind(
    "lost-input",
    "A group committed offsets beyond an input record that no committed transaction of it has polled.",
    never,
)
LOST_COMMIT = AnomalyKind(
    "lost-commit",
    "A group's commit of an offset was acknowledged, and later its coordinator reported a lower one, or a "
    "member was started at a lower one; no commit without an answer can have taken it back.",
    never,
)
GROUP_SKIP = AnomalyKind(
    "group-skip",
    "A group, which begins at the log's beginning, went on beyond a record that no member was ever given.",
    never,
)
DOUBLE_OWNER = AnomalyKind(
    "double-owner",
    "Two members of a group owned one partition in the same generation.",
    never,
)
STALE_COMMIT = AnomalyKind(
    "stale-commit",
    "A member's commit was acknowledged, although another member had been given the partition, or a place in "
    "a later generation, when it asked for that.",
    never,
)
INTERMEDIATE_READ = AnomalyKind(
    "intermediate-read",
    "A read_committed poll returned a value of a transaction before its commit was asked for.",
    never,
)
TORN_TRANSACTION = AnomalyKind(
    "torn-transaction",
    "Of one transaction some values were read, and others never were, not even in the final phase.",
    never,
)
ZOMBIE_WRITE = AnomalyKind(
    "zombie-write",
    "A transaction committed although another producer had taken over its transactional id before the "
    "commit was asked for.",
    never,
)
HANGING_TRANSACTION = AnomalyKind(
    "hanging-transaction",
    "A partition's last stable offset stays below its high watermark after every transaction had to be over.",
    never,
)

KINDS = (
    INCONSISTENT_OFFSETS,
    SEND_POLL_MISMATCH,
    LOST_WRITE,
    UNSEEN,
    VANISHED_READ,
    OFFSET_GAP,
    PHANTOM,
    ALTERED_RECORD,
    NONMONOTONIC_END,
    G1A,
    PRECOMMITTED_READ,
    DUPLICATE,
    NONMONOTONIC_SEND,
    BACKDATED_SEND,
    INT_NONMONOTONIC_SEND,
    INT_SEND_SKIP,
    G0,
    POLL_SKIP,
    NONMONOTONIC_POLL,
    INT_POLL_SKIP,
    INT_NONMONOTONIC_POLL,
    G1C,
    DOUBLE_CONSUME,
    LOST_INPUT,
    LOST_COMMIT,
    GROUP_SKIP,
    DOUBLE_OWNER,
    STALE_COMMIT,
    INTERMEDIATE_READ,
    TORN_TRANSACTION,
    ZOMBIE_WRITE,
    HANGING_TRANSACTION,
)

MODES = {
    "acks=0": TopicMode(1, 0),
    "acks=1": TopicMode(1, 1),
    "acks=all": TopicMode(1, -1),
    "idempotent": TopicMode(1, -1, idempotent=True),
    "transactional": TopicMode(1, -1, idempotent=True, transactional=True),
}


def markdown() -> list[str]:
    """The table for the documentation: a mode's cell is empty where the anomaly is forbidden."""
    lines = [f"| anomaly | what it is | {' | '.join(MODES)} |", "|-" * (len(MODES) + 2) + "|"]
    for kind in KINDS:
        cells = ["tolerated" if kind.tolerated(mode) else "" for mode in MODES.values()]
        lines.append(f"| {kind.name} | {kind.definition} | {' | '.join(cells)} |")
    return lines
