"""What a run may lose: the ledger of unclean elections.

    cluster.jsonl: who was elected without being in sync, and whom it replaced
    events.jsonl: since when it had been away        -> UncleanElection -> the values that nobody else had

A topic that allows unclean elections trades records for availability. What is lost then is expected, and
nothing else: not what the elected replica had before it went away, nor what it has acknowledged itself, nor
anything of another partition.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import NamedTuple

from chaos.checker.verdict import ExpectedLosses, LostRecords
from chaos.evidence import NS, Evidence, Span
from chaos.history import Poll, Send, topic_of
from chaos.observer import SILENCE_S

UNSEEN_NS = round(SILENCE_S * NS)
"""The observer waits for an answer that long."""


class UncleanElection(NamedTuple):
    """One entry: a replica leads that lacks what its predecessor had alone."""

    key: str
    victim: int
    """Whose records are lost."""
    elected: int
    since: int
    """ns; what was acknowledged before, the elected replica had."""
    until: int
    """ns; it leads."""

    def __str__(self) -> str:
        return (
            f"{self.key}: node {self.elected}, away since {self.since / NS:.1f} s, was elected at "
            f"{self.until / NS:.1f} s without being in sync; what node {self.victim} alone had may be lost"
        )


def unclean_elections(evidence: Evidence, topics: Iterable[str]) -> Iterator[UncleanElection]:
    """Of the partitions of those topics, as they were seen from outside."""
    allowed = set(topics)
    for key in evidence.keys:
        if topic_of(key) not in allowed:
            continue
        isr: tuple[int, ...] = ()
        victim = -1
        for seen in evidence.partition(key):
            if isr and seen.leader >= 0 and seen.leader not in isr:
                left = _seen_to_leave(evidence, key, seen.leader, seen.time)
                since = _away_since(evidence, seen.leader, left)
                yield UncleanElection(key, victim, seen.leader, since, seen.time)
            isr = seen.isr or isr
            victim = seen.leader if seen.leader >= 0 else victim


def _seen_to_leave(evidence: Evidence, key: str, node: int, before: int) -> int:
    """When it was last seen to leave the ISR."""
    left, was_in = before, False
    for seen in evidence.partition(key):
        if seen.time >= before:
            break
        if was_in and node not in seen.isr:
            left = seen.time
        was_in = node in seen.isr
    return left


def _away_since(evidence: Evidence, node: int, left: int) -> int:
    """It is seen later to have left than it did: later than the fault that took it out began, and later by a
    look of the observer where it fell behind before any fault."""
    faults = [span.start for span in evidence.spans() if _is_of(span, node) and span.start <= left]
    return min(max(faults, default=left), left - UNSEEN_NS)


def _is_of(span: Span, node: int) -> bool:
    return span.fault.split()[1:2] == [str(node)]


def expected_losses(evidence: Evidence, ledger: Iterable[UncleanElection]) -> ExpectedLosses:
    """What was sent while only the victim could have it."""
    return {entry.key: _lost(evidence, entry) for entry in ledger}


def _lost(evidence: Evidence, entry: UncleanElection) -> LostRecords:
    values: set[int] = set()
    offsets: set[int] = set()
    for operation in evidence.history.operations:
        if operation.start < entry.until and operation.end >= entry.since:
            for micro in operation.ops:
                if isinstance(micro, Send) and micro.key == entry.key:
                    values.add(micro.value)
                    offsets |= set() if micro.offset is None else {micro.offset}
    for operation in evidence.history.operations:
        for micro in operation.ops:
            if isinstance(micro, Poll):
                pairs = micro.messages.get(entry.key, ())
                offsets.update(offset for offset, value in pairs if value in values)
    return LostRecords(frozenset(values), frozenset(offsets))
