"""Exactly once: what committed transactions of one group consumed, they consumed once."""

from __future__ import annotations

from bisect import bisect_left

from chaos.checker.anomalies import DOUBLE_CONSUME
from chaos.checker.observations import Observations
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrders


def check_consumption(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    """Ranges of committed offsets may overlap in holes, such as markers; only known records count."""
    consumers: dict[
        tuple[str, str, int], int
    ] = {}  # (group, key, offset) -> transaction that consumed it first
    for index, operation in enumerate(seen.operations):
        transaction = operation.txn
        if transaction is None or transaction.group is None or not _committed(seen, index):
            continue
        for key, (start, end) in transaction.consumed.items():
            order = orders.get(key)
            if order is None:
                continue  # nobody has seen any record of it
            records = order.offsets[bisect_left(order.offsets, start) : bisect_left(order.offsets, end)]
            for offset in records:
                first = consumers.setdefault((transaction.group, key, offset), index)
                if first == index:
                    continue
                findings.add(
                    DOUBLE_CONSUME,
                    key,
                    f"value {order.values[order.index[offset]]} at offset {offset} of {key} was consumed by "
                    f"two committed transactions of group {transaction.group}, op {first} and op {index}",
                    [first, index],
                    op=index,
                    group=transaction.group,
                    offset=offset,
                )


def _committed(seen: Observations, index: int) -> bool:
    return seen.operations[index].outcome == "ok" or index in seen.proven
