"""Runs every rule over a history."""

from __future__ import annotations

from chaos.checker.anomalies import LOST_INPUT, PHANTOM, TORN_TRANSACTION, UNSEEN, VANISHED_READ
from chaos.checker.cycles import check_cycles
from chaos.checker.losses import check_losses
from chaos.checker.observations import Observations, observe
from chaos.checker.polls import check_polls
from chaos.checker.reads import check_reads
from chaos.checker.sends import check_sends
from chaos.checker.transactions import check_transactions
from chaos.checker.verdict import Findings, Verdict
from chaos.checker.version_orders import check_offsets, uncommitted_orders, version_orders
from chaos.garbage import collection_paused
from chaos.history import History


def check(history: History) -> Verdict:
    """Judge a history. A history that breaks its own rules (a value sent twice) is a ValueError."""
    with collection_paused():
        seen = observe(history)
        orders = version_orders(seen)
        findings = Findings(history.header.topics, _not_judged(history, seen))
        check_offsets(seen, orders, findings)
        check_losses(seen, orders, findings)
        check_reads(seen, findings)
        check_sends(seen, orders, findings)
        check_polls(seen, orders, uncommitted_orders(seen), findings)
        check_cycles(seen, orders, findings)
        check_transactions(seen, orders, findings)
        return findings.verdict(_stats(history, seen))


def _not_judged(history: History, seen: Observations) -> dict[str, str]:
    if not any(operation.final for operation in history.operations):
        why = "the history has no final phase"
        kinds = [UNSEEN, VANISHED_READ, PHANTOM]
        if any(operation.txn is not None for operation in history.operations):
            kinds += [LOST_INPUT, TORN_TRANSACTION]
        return {kind.name: why for kind in kinds}
    reasons = {}
    if history.torn:
        reasons[PHANTOM.name] = "the history is torn at its end"
    unread = sorted(set(seen.partitions) - seen.final_keys)
    if unread:
        reasons[VANISHED_READ.name] = f"the final phase did not read {', '.join(unread)}"
    return reasons


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
