"""What was done to the cluster, and what it did: faults, nodes, controller, and each partition's leader, ISR
and high watermark over time. Events and observations in, lists of changes out.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import Any, Final

from chaos.events import CALM, ENDED_ITSELF, HEALED, SKIPPED, Event
from chaos.history import partition_of
from chaos.report.buckets import Buckets, milliseconds, thinned
from chaos.report.recorded import Fields

MAX_CHANGES: Final = 1_200  # per list; beyond that, the first and last of each bucket
MAX_TARGETS: Final = 6  # rows of one kind of fault before its spans share rows

# Points that are about the run, not faults; they share a row.
REMARKS: Final = frozenset({CALM, HEALED, SKIPPED, ENDED_ITSELF})

Span = dict[str, Any]


def faults(events: Iterable[Event], buckets: Buckets) -> list[dict[str, Any]]:
    """Per kind of fault its rows of spans, in the order of their first appearance, remarks last. A kind has a
    row for each target where the targets are few; else as many rows as spans lay beside one another."""
    kinds: dict[str, list[Span]] = {}
    for span in _spans(events):
        text = span["text"]
        kinds.setdefault("remarks" if text in REMARKS else text.split(" ", 1)[0], []).append(span)
    in_order = sorted(kinds, key=lambda kind: kind == "remarks")
    return [{"kind": kind, "rows": _rows(kinds[kind], buckets)} for kind in in_order]


def _spans(events: Iterable[Event]) -> list[Span]:
    """Begin and end of the same text belong together; an end without a begin is a point of its own."""
    spans: list[Span] = []
    open_spans: dict[str, list[Span]] = {}
    for event in events:
        at, text = milliseconds(event.time), event.fault
        if event.kind == "end" and open_spans.get(text):
            span = open_spans[text].pop()
            span["end"] = at
            span["detail"] = "; ".join(filter(None, [span["detail"], event.detail]))
            continue
        span = {"start": at, "end": at, "text": text, "detail": event.detail or ""}
        if event.kind == "begin":
            span["end"] = None  # to the end of the run, unless an end is recorded
            open_spans.setdefault(text, []).append(span)
        spans.append(span)
    return sorted(spans, key=lambda span: span["start"])


def _rows(spans: Sequence[Span], buckets: Buckets) -> list[dict[str, Any]]:
    by_target: dict[str, list[Span]] = {}
    for span in spans:
        by_target.setdefault(_target(span["text"]), []).append(span)
    groups = by_target if len(by_target) <= MAX_TARGETS else {"": spans}
    return [
        {"target": target, "spans": row}
        for target, group in groups.items()
        for row in _packed(group, buckets)
    ]


def _target(text: str) -> str:
    words = text.split()
    return words[1] if len(words) > 1 and text not in REMARKS else ""


def _packed(spans: Sequence[Span], buckets: Buckets) -> list[list[Span]]:
    """Each span in the first row that is free again when it starts; a point is taken to last one bucket."""
    point_ms = milliseconds(buckets.width_ns)
    rows: list[list[Span]] = []
    free_at: list[float] = []
    for span in spans:
        end = float("inf") if span["end"] is None else max(span["end"], span["start"] + point_ms)
        row = next((i for i, free in enumerate(free_at) if free <= span["start"]), len(rows))
        if row == len(rows):
            rows.append([])
            free_at.append(0.0)
        rows[row].append(span)
        free_at[row] = end
    return rows


def cluster(observed: Iterable[Fields], buckets: Buckets) -> dict[str, Any]:
    """States of each node, controllers with their terms, and the partitions in the order of their keys."""
    nodes: dict[int, list[tuple[float, str]]] = {}
    controllers: list[tuple[float, int, int]] = []
    partitions: dict[str, list[Fields]] = {}
    for line in observed:
        at = milliseconds(line["time"])
        if line["f"] == "node":
            nodes.setdefault(line["id"], []).append((at, line["state"]))
        elif line["f"] == "controller":
            controllers.append((at, line["id"], line["term"]))
        elif line["f"] == "partition":
            partitions.setdefault(line["key"], []).append(line)
    made = [_partition(key, partitions[key], buckets) for key in sorted(partitions, key=partition_of)]
    seen = {
        member for lines in partitions.values() for line in lines for member in (*line["isr"], line["leader"])
    }
    seen |= {controller for _, controller, _ in controllers} | set(nodes)
    return {
        "nodes": [
            {"id": node, "states": thinned(nodes.get(node, []), buckets, MAX_CHANGES)}
            for node in sorted(node for node in seen if node >= 0)
        ],
        "controllers": thinned(controllers, buckets, MAX_CHANGES),
        "partitions": made,
    }


def _partition(key: str, lines: Sequence[Fields], buckets: Buckets) -> dict[str, Any]:
    leaders: list[tuple[float, int, int]] = []
    isr: list[tuple[float, list[int]]] = []
    watermark: list[tuple[float, int]] = []
    for line in lines:
        at = milliseconds(line["time"])
        leader, epoch, members = line["leader"], line["leader_epoch"], sorted(line["isr"])
        if not leaders or leaders[-1][1:] != (leader, epoch):
            leaders.append((at, leader, epoch))
        if not isr or isr[-1][1] != members:
            isr.append((at, members))
        if line["hw"] is not None and (not watermark or watermark[-1][1] != line["hw"]):
            watermark.append((at, line["hw"]))
    return {
        "key": key,
        "leaders": thinned(leaders, buckets, MAX_CHANGES),
        "isr": thinned(isr, buckets, MAX_CHANGES),
        "hw": thinned(watermark, buckets, MAX_CHANGES),
        "hw_falls": _falls(watermark),
    }


def _falls(watermark: Sequence[tuple[float, int]]) -> list[tuple[float, int, int]]:
    """Where the high watermark went back, from and to: a leader that lacks committed records."""
    steps = pairwise(watermark)
    falls = [(at, before, after) for (_, before), (at, after) in steps if after < before]
    return falls[:MAX_CHANGES]
