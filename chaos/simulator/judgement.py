"""The verdict over the responses that the clients of a simulation got: the lab's checker, and what it must
tolerate of real clients but not of these.

    history -> chaos/checker -> forbidden, not judged -> tolerated without a cause -> idle clients -> report

Simulated clients send a batch once, or under its sequence numbers: nothing that they sent may be there twice,
or in another order; unless they resend, as Kafka's clients do. At acks=1 a record goes with its leader, and
only so: of a partition that had only one leader nothing may be lost.
"""

from __future__ import annotations

from collections.abc import Container, Iterable, Iterator
from typing import Final

from chaos.checker import Anomaly, Verdict
from chaos.history import History, Operation, Send, topic_of
from chaos.simulator.clients.producer import SEQUENCE_ERRORS
from chaos.simulator.oracles.quorum import Report

ONLY_BY_RESENDING: Final = frozenset({"duplicate", "int-nonmonotonic-send"})
LOSSES: Final = frozenset({"unseen", "lost-write", "send-poll-mismatch"})
SEQUENCE_REFUSALS: Final = frozenset(code.name for code in SEQUENCE_ERRORS)
"""One batch of a producer is under way at a time, and is sent until it is there: no sequence number is ever
missing."""


def judge(
    history: History, verdict: Verdict, was_elected: Container[str], report: Report, *, resends: bool = False
) -> None:
    """Report every rule that is broken. `was_elected`: the partitions that more than one leader has led.
    `resends`: clients send what was not acknowledged again."""
    for rule, what in _broken(history, verdict, was_elected, resends=resends):
        report(rule, what)


def _broken(
    history: History, verdict: Verdict, was_elected: Container[str], *, resends: bool
) -> Iterator[tuple[str, str]]:
    for anomaly in verdict.anomalies:
        if not anomaly.allowed or _is_without_cause(history, anomaly, was_elected, resends=resends):
            yield anomaly.kind, f"{anomaly.key}: {anomaly.summary}"
    for kind, why in verdict.not_judged.items():
        yield f"not judged: {kind}", why
    yield from refused_sequences(history.operations)
    yield from _idle(history)


def refused_sequences(operations: Iterable[Operation]) -> Iterator[tuple[str, str]]:
    """Rule and what, of each."""
    for operation in operations:
        if operation.f in ("send", "txn") and _code_in(operation.error) in SEQUENCE_REFUSALS:
            yield "sequence refused", f"of {_keys(operation)}: {operation.error}"


def _code_in(error: str | None) -> str:
    """With which an error ends: `Refused: Produce: OUT_OF_ORDER_SEQUENCE_NUMBER` of a transaction."""
    return (error or "").rpartition(": ")[2]


def _is_without_cause(
    history: History, anomaly: Anomaly, was_elected: Container[str], *, resends: bool
) -> bool:
    if anomaly.kind in ONLY_BY_RESENDING:
        return not resends
    if anomaly.kind not in LOSSES or anomaly.key in was_elected:
        return False
    return history.header.topics[topic_of(anomaly.key)].acks != 0


def _idle(history: History) -> Iterator[tuple[str, str]]:
    """A verdict over idle clients would mean nothing."""
    done = [each for each in history.operations if each.outcome == "ok" and not each.final]
    written = {topic_of(key) for operation in done for key in _keys(operation)}
    for topic in sorted(history.header.topics.keys() - written):
        yield "idle", f"nothing was acknowledged in {topic}"
    active = {(operation.group, operation.f) for operation in done if operation.group is not None}
    for group, f in sorted(active):
        if f == "subscribe" and not {(group, "owned"), (group, "commit")} <= active:
            yield "idle", f"no member of {group} was given anything, or has committed it"


def _keys(operation: Operation) -> list[str]:
    """Where it sent something."""
    return sorted({micro.key for micro in operation.ops if isinstance(micro, Send)})
