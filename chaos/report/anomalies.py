"""The anomalies of a verdict with the operations that prove them, as the page unfolds them.

Operations are given once, by their index in the history, however many anomalies name them.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, Final

from chaos.checker.anomalies import KINDS
from chaos.history import MicroOperation, Operation, Poll
from chaos.report.buckets import milliseconds
from chaos.report.recorded import Fields, RecordedRun

# Bounds that only a badly broken run reaches; what they leave out is counted on the page.
MAX_SHOWN: Final = {False: 500, True: 60}  # anomalies of one kind, by whether they are allowed
MAX_OPERATIONS: Final = 100  # named by one anomaly
MAX_MESSAGES: Final = 1_000  # of one key, returned by one poll


def shown(run: RecordedRun) -> dict[str, Any]:
    """The forbidden ones first, each with its time; how many are not shown; the operations; what the kinds
    mean, and which could not be checked."""
    found: list[dict[str, Any]] = []
    per_kind: Counter[tuple[str, bool]] = Counter()
    operations: dict[int, dict[str, Any]] = {}
    for anomaly in sorted(run.findings.get("anomalies", ()), key=lambda found: bool(found["allowed"])):
        kind, allowed = anomaly["kind"], anomaly["allowed"]
        if per_kind[kind, allowed] == MAX_SHOWN[allowed]:
            continue
        per_kind[kind, allowed] += 1
        named = anomaly["evidence"][:MAX_OPERATIONS]
        evidence = [run.history.operations[index] for index in named]
        operations |= {index: _unfolded(operation) for index, operation in zip(named, evidence, strict=True)}
        found.append(_shown(anomaly, evidence))
    return {
        "shown": found,
        "left_out": list(_left_out(run.findings.get("counts", {}), per_kind)),
        "operations": operations,
        "definitions": {
            kind.name: kind.definition for kind in KINDS if kind.name in {k for k, _ in per_kind}
        },
        "not_judged": run.findings.get("not_judged", {}),
    }


def _left_out(counts: Fields, shown: Mapping[tuple[str, bool], int]) -> Iterator[dict[str, Any]]:
    """The checker counts more than it keeps, and the page shows no more than it can."""
    for kind, count in counts.items():
        for allowed in (False, True):
            if rest := count["allowed" if allowed else "forbidden"] - shown.get((kind, allowed), 0):
                yield {"kind": kind, "allowed": allowed, "n": rest}


def _shown(anomaly: Fields, evidence: Sequence[Operation]) -> dict[str, Any]:
    return {
        "kind": anomaly["kind"],
        "key": anomaly["key"],
        "allowed": anomaly["allowed"],
        "expected": anomaly.get("expected", False),
        "summary": anomaly["summary"],
        "marks": _marks(anomaly.get("detail", {})),
        "evidence": anomaly["evidence"][: len(evidence)],
        "unnamed": len(anomaly["evidence"]) - len(evidence),
        "start": milliseconds(min((operation.start for operation in evidence), default=0)),
        "end": milliseconds(max((operation.end for operation in evidence), default=0)),
    }


def _marks(detail: Fields) -> dict[str, list[int]]:
    """The offsets and values that the anomaly is about, to be found among the many of a poll."""

    def all_of(*names: str) -> list[int]:
        values = [detail[name] for name in names if detail.get(name) is not None]
        return [number for one in values for number in (one if isinstance(one, list) else [one])]

    return {"offsets": all_of("offset", "offsets", "after"), "values": all_of("value", "values", "other")}


def _unfolded(operation: Operation) -> dict[str, Any]:
    unfolded: dict[str, Any] = {
        "process": operation.process,
        "f": operation.f,
        "start": milliseconds(operation.start),
        "end": milliseconds(operation.end),
        "outcome": operation.outcome,
        "ops": [_micro(micro) for micro in operation.ops],
    }
    if operation.error:
        unfolded["error"] = operation.error
    if operation.final:
        unfolded["final"] = True
    if operation.keys:
        unfolded["keys"] = list(operation.keys)
    if operation.txn is not None:
        unfolded["txn"] = operation.txn._asdict()
    return unfolded


def _micro(micro: MicroOperation) -> list[Any]:
    if isinstance(micro, Poll):
        return [
            "poll",
            {key: list(pairs)[:MAX_MESSAGES] for key, pairs in micro.messages.items()},
            _cut(micro),
        ]
    return ["send", micro.key, micro.value, micro.offset]


def _cut(poll: Poll) -> int:
    """How many messages of the poll are not shown."""
    return sum(max(len(pairs) - MAX_MESSAGES, 0) for pairs in poll.messages.values())
