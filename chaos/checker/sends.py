"""The order of sends: what a process sent later must come later in the log."""

from __future__ import annotations

from itertools import pairwise
from typing import NamedTuple

from chaos.checker.anomalies import INT_NONMONOTONIC_SEND, INT_SEND_SKIP, NONMONOTONIC_SEND
from chaos.checker.observations import Observations, sends_of
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrder, VersionOrders


class PlacedSend(NamedTuple):
    """A sent value and its index. Of a value with several indexes the first is used where others must come
    after it, the last where it must come after others: so ambiguity never counts as disorder."""

    first: int  # index
    last: int  # index
    value: int
    op: int


def check_sends(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    highest: dict[tuple[int, str], PlacedSend] = {}  # (process, key) -> the last index of earlier operations
    for index, operation in enumerate(seen.operations):
        if operation.outcome == "fail":
            continue  # surely not applied; if it was after all, that is G1a
        placed: dict[str, list[PlacedSend]] = {}
        for send in sends_of(operation):
            order = orders[send.key]
            first = order.first.get(send.value)
            if first is not None:
                here = PlacedSend(first, order.last[send.value], send.value, index)
                placed.setdefault(send.key, []).append(here)
        for key, values in placed.items():
            if len(values) > 1:
                _check_within(key, values, orders[key], findings)
            before = highest.get((operation.process, key))
            lowest = min(values, key=lambda v: v.last)
            if before is not None and lowest.last <= before.first:
                findings.add(
                    NONMONOTONIC_SEND,
                    key,
                    f"process {operation.process} sent value {before.value} (op {before.op}), then value "
                    f"{lowest.value} (op {index}), but {_reversed(key, orders[key], before, lowest)}",
                    [before.op, index],
                    op=index,
                    values=[before.value, lowest.value],
                )
            furthest = max(values, key=lambda v: v.first)
            if before is None or furthest.first > before.first:
                highest[operation.process, key] = furthest


def _check_within(key: str, values: list[PlacedSend], order: VersionOrder, findings: Findings) -> None:
    furthest = values[0]
    skipped = reordered = False
    for previous, value in pairwise(values):
        if value.last <= furthest.first and not reordered:
            reordered = True
            findings.add(
                INT_NONMONOTONIC_SEND,
                key,
                f"op {value.op} sent value {furthest.value}, then value {value.value}, but "
                f"{_reversed(key, order, furthest, value)}",
                [value.op],
                op=value.op,
                values=[furthest.value, value.value],
            )
        if value.first > previous.first + 1 and not skipped:
            skipped = True
            findings.add(
                INT_SEND_SKIP,
                key,
                f"op {value.op} sent value {previous.value}, then value {value.value}; in {key} others stand "
                f"between them, the first at offset {order.offsets[previous.first + 1]}",
                [value.op],
                op=value.op,
                values=[previous.value, value.value],
            )
        furthest = max(furthest, value, key=lambda v: v.first)


def _reversed(key: str, order: VersionOrder, earlier: PlacedSend, later: PlacedSend) -> str:
    return f"in {key} they stand at offsets {order.offsets[earlier.first]} and {order.offsets[later.last]}"
