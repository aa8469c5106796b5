"""The order of polls: a process reads a partition in the log's order, leaving nothing out and repeating
nothing.

A reader has a position for each isolation level. An assignment sets it, where the client says from which
offset it reads. It is reset when a client subscribes or is replaced, and for single keys when a group
rebalances them: it then continues from committed offsets. An operation that failed does not change it.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from typing import NamedTuple

from chaos.checker.anomalies import (
    INT_NONMONOTONIC_POLL,
    INT_POLL_SKIP,
    NONMONOTONIC_POLL,
    POLL_SKIP,
)
from chaos.checker.observations import Observations, polls_of
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrder, VersionOrders
from chaos.history import Operation

NAMED = 5  # skipped values that a sentence names


class PolledOffset(NamedTuple):
    offset: int
    op: int
    is_assigned: bool = False
    """That operation has polled nothing: it assigned the partition, from the next offset on."""


def check_polls(
    seen: Observations, orders: VersionOrders, uncommitted: VersionOrders, findings: Findings
) -> None:
    """`uncommitted`: what readers of uncommitted records see, where it differs."""
    positions: dict[tuple[int, bool], dict[str, PolledOffset]] = {}
    """Process, and whether it read uncommitted -> key -> where its last operation stopped reading."""
    for index, operation in enumerate(seen.operations):
        if operation.f in ("assign", "subscribe", "crash"):
            for uncommitted_too in (False, True):
                positions[operation.process, uncommitted_too] = {
                    key: PolledOffset(start - 1, index, is_assigned=True)
                    for key, start in operation.starts.items()
                }
            continue
        mine = positions.setdefault((operation.process, operation.uncommitted), {})
        for key in operation.rebalanced:
            mine.pop(key, None)
            positions.get((operation.process, not operation.uncommitted), {}).pop(key, None)
        reached: dict[str, PolledOffset] = {}
        visible = {**orders, **uncommitted} if operation.uncommitted else orders
        for poll in polls_of(operation):
            for key, pairs in poll.messages.items():
                if not pairs or key in operation.rebalanced:
                    continue
                begin = PolledOffset(pairs[0][0], index)
                before = reached.get(key) or mine.get(key)
                if before is not None:
                    _judge(operation, key, before, begin, visible[key], findings)
                for last, following in _jumps(pairs):
                    _judge(
                        operation,
                        key,
                        PolledOffset(last, index),
                        PolledOffset(following, index),
                        visible[key],
                        findings,
                    )
                reached[key] = PolledOffset(pairs[-1][0], index)
        if operation.outcome == "ok":
            mine.update(reached)


def _jumps(pairs: Sequence[Sequence[int]]) -> list[tuple[int, int]]:
    """Neighbouring messages that are not one offset apart. Few are, and only those need a closer look."""
    jumps = []
    last = pairs[0][0] - 1
    for pair in pairs:
        offset = pair[0]
        if offset != last + 1:
            jumps.append((last, offset))
        last = offset
    return jumps


def _judge(
    operation: Operation,
    key: str,
    last: PolledOffset,
    begin: PolledOffset,
    order: VersionOrder,
    findings: Findings,
) -> None:
    """Whether `begin` is the next message that anyone knows after `last`."""
    low, high = bisect_right(order.offsets, last.offset) - 1, order.index[begin.offset]
    within = last.op == begin.op
    if high > low + 1:
        if order.superseded and order.superseded.issuperset(order.values[low + 1 : high]):
            return
        skipped = order.between(low, min(high, low + 1 + NAMED))
        more = high - low - 1 - len(skipped)
        findings.add(
            INT_POLL_SKIP if within else POLL_SKIP,
            key,
            f"process {operation.process} polled {key} {_from_to(last, begin)} and so skipped "
            + ", ".join(f"value {value} at offset {offset}" for offset, value in skipped)
            + (f" and {more} more" if more else ""),
            [last.op, begin.op],
            op=begin.op,
            offset=begin.offset,
            after=last.offset,
        )
    elif high <= low:
        findings.add(
            INT_NONMONOTONIC_POLL if within else NONMONOTONIC_POLL,
            key,
            f"process {operation.process} polled {key} {_from_to(last, begin)}"
            + ("" if last.is_assigned else _back_by(low - high)),
            [last.op, begin.op],
            op=begin.op,
            offset=begin.offset,
            after=last.offset,
        )


def _back_by(places: int) -> str:
    return f", which is {places} back" if places else ", which is the same place"


def _from_to(last: PolledOffset, begin: PolledOffset) -> str:
    if last.is_assigned:
        return (
            f"from offset {begin.offset} (op {begin.op}), though it was assigned from {last.offset + 1} on "
            f"(op {last.op})"
        )
    if last.op == begin.op:
        return f"up to offset {last.offset}, then from {begin.offset} (op {begin.op})"
    return f"up to offset {last.offset} (op {last.op}), then from {begin.offset} (op {begin.op})"
