"""Runs every rule over a history."""

from __future__ import annotations

from chaos.checker.anomalies import (
    DOUBLE_OWNER,
    GROUP_SKIP,
    HANGING_TRANSACTION,
    LOST_COMMIT,
    LOST_INPUT,
    LOST_WRITE,
    OFFSET_GAP,
    PHANTOM,
    TORN_TRANSACTION,
    UNSEEN,
    VANISHED_READ,
)
from chaos.checker.cycles import check_cycles
from chaos.checker.ends import check_ends, unasked
from chaos.checker.groups import check_groups, committed_in_the_end
from chaos.checker.losses import check_losses
from chaos.checker.observations import Observations, observe
from chaos.checker.polls import check_polls
from chaos.checker.reads import check_reads
from chaos.checker.sends import check_sends
from chaos.checker.transactions import check_transactions
from chaos.checker.verdict import ExpectedLosses, Findings, Verdict
from chaos.checker.version_orders import check_offsets, uncommitted_orders, version_orders
from chaos.history import History
from metadata_quorum.foundation.garbage import collection_paused


def check(history: History, expected_losses: ExpectedLosses | None = None) -> Verdict:
    """Judge a history. A history that breaks its own rules (a value sent twice) is a ValueError.
    `expected_losses`: what may be lost (chaos/ledger.py)."""
    with collection_paused():
        seen = observe(history)
        orders = version_orders(seen)
        findings = Findings(history.header.topics, _not_judged(history, seen), expected_losses or {})
        uncommitted = uncommitted_orders(seen)
        check_offsets(seen, orders, uncommitted, findings)
        check_losses(seen, orders, findings)
        check_reads(seen, findings)
        check_sends(seen, orders, findings)
        check_polls(seen, orders, uncommitted, findings)
        check_cycles(seen, orders, findings)
        check_transactions(seen, orders, findings)
        check_groups(seen, orders, findings)
        check_ends(seen, orders, findings)
        return findings.verdict(_stats(history, seen))


def _not_judged(history: History, seen: Observations) -> dict[str, str]:
    """Kinds that nothing in the history could have shown, or not everywhere. A verdict without them would say
    more than is known."""
    has_transactions = any(operation.f == "txn" for operation in history.operations)
    reasons = _of_groups(history)
    if not seen.has_final_phase:
        kinds = [UNSEEN, VANISHED_READ, OFFSET_GAP, PHANTOM, GROUP_SKIP]
        if has_transactions:
            kinds += [LOST_INPUT, TORN_TRANSACTION, HANGING_TRANSACTION]
        return reasons | {kind.name: "the history has no final phase" for kind in kinds}
    if history.torn:
        reasons |= {kind.name: "the history is torn at its end" for kind in (PHANTOM, GROUP_SKIP)}
    if unread := sorted(set(seen.partitions) - seen.final_keys):
        why = f"the final phase did not read {', '.join(unread)}"
        reasons |= {kind.name: why for kind in (VANISHED_READ, OFFSET_GAP)}
    if blank := _never_read(seen):
        reasons[LOST_WRITE.name] = f"nothing that was acknowledged in {', '.join(blank)} was ever read"
    if endless := unasked(history.operations):
        reasons[HANGING_TRANSACTION.name] = f"nobody asked for the ends of {', '.join(endless)} in the end"
    consuming = {
        operation.txn.group
        for operation in history.operations
        if operation.txn is not None and operation.txn.group is not None and operation.txn.consumed
    }
    committing = {
        operation.group
        for operation in history.operations
        if operation.f == "commit" and operation.outcome == "ok" and operation.group is not None
    }
    told = committed_in_the_end(seen).keys()
    for kind, groups in ((LOST_INPUT, consuming), (LOST_COMMIT, consuming | committing)):
        if open_ended := sorted(groups - told):
            reasons[kind.name] = f"nobody was told how far {', '.join(open_ended)} had committed in the end"
    return reasons


def _never_read(seen: Observations) -> list[str]:
    """Partitions whose mode tolerates losses, and of which all is lost: what would that be tolerant of?"""
    return sorted(
        key
        for key, partition in seen.partitions.items()
        if LOST_WRITE.tolerated(partition.mode)
        and not partition.read
        and any(seen.acknowledged(seen.senders[value]) for value in partition.sent)
    )


def _of_groups(history: History) -> dict[str, str]:
    subscribed = [operation for operation in history.operations if operation.f == "subscribe"]
    if any(operation.group is None for operation in subscribed):
        why = "not every subscription names its group"
        return {kind.name: why for kind in (LOST_COMMIT, GROUP_SKIP, DOUBLE_OWNER)}
    outspoken = {operation.group for operation in history.operations if operation.f == "owned"}
    group_of = {operation.process: operation.group for operation in subscribed}
    given = {group_of.get(operation.process) for operation in history.operations if operation.rebalanced}
    silent = {group for group in given - outspoken if group is not None}
    if not silent:
        return {}
    return {DOUBLE_OWNER.name: f"members of {', '.join(sorted(silent))} did not tell what they owned"}


def _stats(history: History, seen: Observations) -> dict[str, int]:
    sends = seen.senders.values()
    return {
        "operations": len(history.operations),
        **{
            outcome: sum(operation.outcome == outcome for operation in history.operations)
            for outcome in ("ok", "fail", "info")
        },
        "transactions": sum(operation.f == "txn" for operation in history.operations),
        "partitions": len(seen.partitions),
        "sent": len(seen.senders),
        "acknowledged": sum(seen.acknowledged(sent) for sent in sends),
        "read": sum(len(partition.read) for partition in seen.partitions.values()),
        "polled": seen.messages,
    }
