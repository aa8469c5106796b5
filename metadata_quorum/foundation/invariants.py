"""Invariants: what can only be false through a bug of ours. This is the one table of them.

`invariant(condition, Invariant.NAME, ...)` survives `python -O`. The simulators check the same ones from
outside, so that a report from the field and a failing seed speak of the same thing; docs/ARCHITECTURE.md
shows the table.
"""

from __future__ import annotations

from enum import Enum, unique


@unique
class Invariant(Enum):
    """The invariants, by name, with what each says."""

    # Raft, as its paper names them where it does.
    ONE_LEADER_PER_TERM = "at most one leader per term"
    LEADER_COMPLETENESS = "an entry committed in a term is in the log of every leader of a later term"
    STATE_MACHINE_SAFETY = "committed prefixes, and what came of them, are identical on all voters"
    TERM_AND_COMMIT_MONOTONIC = (
        "term, vote within a term and commit index never go back; nothing committed is truncated"
    )
    DURABLE_BEFORE_COUNTED = "nothing is acknowledged or counted that is not durable"
    COMMITTED_ON_A_MAJORITY = "a majority durably holds what is committed"
    LEADER_INSTALLS_NO_SNAPSHOT = "a leader never installs a snapshot"
    LOG_BEGINS_AT_A_SNAPSHOT = "the log starts at its beginning, or where a durable snapshot ends"
    RAFT_LOG_DENSE = "entries follow each other without gaps, in the log and when they are applied"
    APPLIED_ONCE = "no command is applied twice"
    APPLY_NEVER_RAISES = "the state machine raises nothing but a disk's error"
    RAFT_NEVER_RAISES = "a voter raises nothing but a disk's error or a broken invariant"

    # Partitions, in the metadata and in their logs.
    ONE_LEADER_PER_EPOCH = "one leader per partition and leader epoch"
    PARTITION_EPOCH_MONOTONIC = (
        "each change raises the partition epoch by one, a change of leader the leader epoch too"
    )
    ISR_WELL_FORMED = "the leader is in the ISR, the ISR is among the replicas, ISR and ELR are apart"
    ISR_ALIVE = "members of the ISR are unfenced and not shutting down"
    OFFSETS_IN_ORDER = "log start ≤ last stable offset ≤ high watermark ≤ log end"
    HIGH_WATERMARK_MONOTONIC = "the high watermark never falls within a leader epoch"
    REPLICAS_AGREE = "replicas agree byte for byte below the high watermark"
    BATCH_EPOCHS_MONOTONIC = "epochs of batches never decrease, and the epoch cache agrees with them"
    ACKED_IN_LOG = "what was acknowledged is in the log"

    # Coordinators.
    GROUP_TRANSITION = "a group changes its state only as its table of transitions allows"


class InvariantViolation(AssertionError):
    """A broken invariant. The node stops: going on could only spread the damage."""

    def __init__(self, broken: Invariant, detail: str) -> None:
        super().__init__(f"invariant {broken.name} broken ({broken.value}): {detail}")
        self.invariant = broken


def invariant(condition: bool, name: Invariant, detail: object = "") -> None:
    """Raise `InvariantViolation` unless `condition` holds.

    `detail` is turned into text only on failure, so passing a tuple of values is cheap.
    """
    if not condition:
        raise InvariantViolation(name, str(detail))
