"""What the clients saw, over time: acks and their gaps per topic, latency, outcomes.

History in, short lists of numbers out: one per bucket, however many operations there were.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from itertools import pairwise
from statistics import median
from typing import Any, Final

from chaos.history import ACKS_ALL, History, Operation, Poll, Send, TopicMode, topic_of
from chaos.report.buckets import MS, Buckets, milliseconds

LEAST_GAP_MS: Final = 500.0  # shorter silences are not worth a mark
GAP_TO_MEDIAN: Final = 20.0  # a gap is that many times longer than this topic's usual silence
MAX_GAPS: Final = 60  # per topic; the longest ones
OUTCOMES: Final = ("ok", "fail", "info")

Series = dict[str, Any]


def topics(history: History, buckets: Buckets) -> list[Series]:
    """Per topic: how it was written, acknowledged values per bucket, gaps, and the longest silence of all."""
    acked: dict[str, list[int]] = {name: [] for name in history.header.topics}
    begun: dict[str, int] = {}
    ended: dict[str, int] = {}
    for operation in history.operations:
        for send in _sends(operation):
            topic = topic_of(send.key)
            begun[topic] = min(begun.get(topic, operation.start), operation.start)
            ended[topic] = max(ended.get(topic, operation.start), operation.start)
            if _is_acked(send, operation):
                acked.setdefault(topic, []).append(operation.end)
    return [
        _topic(name, history.header.topics.get(name), times, begun.get(name, 0), ended.get(name, 0), buckets)
        for name, times in acked.items()
    ]


def _sends(operation: Operation) -> Iterator[Send]:
    return (micro for micro in operation.ops if isinstance(micro, Send))


def _is_acked(send: Send, operation: Operation) -> bool:
    """Of an operation whose outcome is unknown, some values may have been acknowledged: they have offsets."""
    return operation.outcome == "ok" or (send.offset is not None and operation.f == "send")


def _topic(
    name: str, mode: TopicMode | None, acked: list[int], begun: int, ended: int, buckets: Buckets
) -> Series:
    acked.sort()
    silences = [milliseconds(b - a) for a, b in pairwise(acked) if b > a]
    # Silence before the first ack and after the last one counts as far as any client was sending.
    edges = sorted({begun, *acked, max(ended, acked[-1] if acked else begun)})
    gaps = [(milliseconds(a), milliseconds(b)) for a, b in pairwise(edges)]
    longest = max(gaps, key=_length, default=None)
    threshold = max(LEAST_GAP_MS, GAP_TO_MEDIAN * median(silences)) if silences else LEAST_GAP_MS
    marked = sorted((gap for gap in gaps if _length(gap) >= threshold), key=_length)[-MAX_GAPS:]
    return {
        "name": name,
        "mode": mode_words(mode),
        "acked": len(acked),
        "rate": _per_bucket(acked, buckets),
        "gaps": sorted(marked),
        "longest": longest,
    }


def _length(gap: tuple[float, float]) -> float:
    return gap[1] - gap[0]


def mode_words(mode: TopicMode | None) -> str:
    if mode is None:
        return "mode unknown"
    words = ["acks=all" if mode.acks == ACKS_ALL else f"acks={mode.acks}"]
    words += ["idempotent"] if mode.idempotent else []
    words += ["transactional"] if mode.transactional else []
    return ", ".join(words)


def _per_bucket(times: Sequence[int], buckets: Buckets) -> list[int]:
    counts = [0] * buckets.count
    for time_ns in times:
        counts[buckets.of(time_ns)] += 1
    return counts


def latency(history: History, buckets: Buckets) -> Series:
    """Milliseconds that sends and polls took, per bucket of their completion. Of polls only those that
    returned something: an empty one took as long as its timeout."""
    taken: Mapping[str, list[list[int]]] = {f: [[] for _ in range(buckets.count)] for f in ("send", "poll")}
    for operation in history.operations:
        if operation.outcome == "ok" and (operation.f == "send" or _returned_something(operation)):
            taken[operation.f][buckets.of(operation.end)].append(operation.end - operation.start)
    return {f: _percentiles(per_bucket) for f, per_bucket in taken.items()}


def _returned_something(operation: Operation) -> bool:
    return operation.f == "poll" and any(
        isinstance(op, Poll) and any(op.messages.values()) for op in operation.ops
    )


def _percentiles(per_bucket: list[list[int]]) -> Series:
    for taken in per_bucket:
        taken.sort()
    return {
        "n": [len(taken) for taken in per_bucket],
        "p50": [_percentile(taken, 0.50) for taken in per_bucket],
        "p99": [_percentile(taken, 0.99) for taken in per_bucket],
    }


def _percentile(ordered: Sequence[int], quantile: float) -> float | None:
    """By nearest rank, in ms, to three figures: always something that was really measured."""
    if not ordered:
        return None
    rank = math.ceil(round(quantile * len(ordered), 9))
    return float(f"{ordered[rank - 1] / MS:.3g}")


def outcomes(history: History, buckets: Buckets) -> Series:
    """Completed sends, polls and transactions per bucket, by outcome."""
    counts = {outcome: [0] * buckets.count for outcome in OUTCOMES}
    for operation in history.operations:
        if operation.f in ("send", "poll", "txn"):
            counts[operation.outcome][buckets.of(operation.end)] += 1
    return dict(counts)


def crashes(history: History) -> list[float]:
    """When clients were thrown away, on purpose."""
    return [milliseconds(operation.end) for operation in history.operations if operation.f == "crash"]
