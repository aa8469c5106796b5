"""Transactions: all or nothing, once, and by nobody but the owner of the transactional id.

A transaction is one operation. It committed if its client got that response, or if anything that it sent was
read. Aborted and premature reads by single values are G1a and precommitted-read (reads.py).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator

from chaos.checker.anomalies import (
    DOUBLE_CONSUME,
    HANGING_TRANSACTION,
    INTERMEDIATE_READ,
    LOST_INPUT,
    TORN_TRANSACTION,
    ZOMBIE_WRITE,
)
from chaos.checker.observations import Observations, sends_of
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrders
from chaos.history import HistoryTransaction, Operation, Send


def check_transactions(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    _consumption(seen, orders, findings)
    _intermediate_reads(seen, findings)
    _torn_transactions(seen, findings)
    _zombie_writes(seen, findings)
    _hanging_transactions(seen, findings)


def _transactions(seen: Observations) -> Iterator[tuple[int, Operation, HistoryTransaction]]:
    for index, operation in enumerate(seen.operations):
        if operation.f == "txn" and operation.txn is not None:
            yield index, operation, operation.txn


def _committed(seen: Observations, index: int) -> bool:
    return seen.operations[index].outcome == "ok" or index in seen.proven


# Consumed and produced --------------------------------------------------------------------------------------


def _consumption(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    """Every input in exactly one committed transaction of a group. Ranges of committed offsets may overlap
    in holes, such as markers; only known records count."""
    consumers: defaultdict[tuple[str, str], dict[int, int]] = defaultdict(dict)
    """(group, key) -> offset -> the transaction that consumed it first."""
    for index, _, transaction in _transactions(seen):
        if transaction.group is None or not _committed(seen, index):
            continue
        for key, (start, end) in transaction.consumed.items():
            order = orders.get(key)
            if order is None:
                continue  # no client has read any record of it
            known = consumers[transaction.group, key]
            records = order.offsets[bisect_left(order.offsets, start) : bisect_left(order.offsets, end)]
            for offset in records:
                first = known.setdefault(offset, index)
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
    if LOST_INPUT.name in findings.not_judged:
        return
    for (group, key), consumed in consumers.items():
        furthest = max(consumed, default=-1)
        order = orders[key]
        for offset in order.offsets[: bisect_left(order.offsets, furthest)]:
            if offset not in consumed:
                findings.add(
                    LOST_INPUT,
                    key,
                    f"value {order.values[order.index[offset]]} at offset {offset} of {key} was consumed by "
                    f"no committed transaction of group {group}; op {consumed[furthest]} consumed offset "
                    f"{furthest}",
                    [consumed[furthest]],
                    group=group,
                    offset=offset,
                )


# Too early, or in part --------------------------------------------------------------------------------------


def _intermediate_reads(seen: Observations, findings: Findings) -> None:
    for key, partition in seen.partitions.items():
        if not partition.mode.transactional:
            continue
        for value, reader in partition.read.items():
            sent = seen.sender(key, value)
            transaction = seen.operations[sent.op].txn if sent is not None else None
            if sent is None or transaction is None or transaction.commit_asked is None:
                continue
            if seen.operations[reader].end < transaction.commit_asked:
                findings.add(
                    INTERMEDIATE_READ,
                    key,
                    f"value {value} was polled from {key} (op {reader}) before the commit of its transaction "
                    f"(op {sent.op}) was asked for",
                    [sent.op, reader],
                    value=value,
                )


def _torn_transactions(seen: Observations, findings: Findings) -> None:
    if TORN_TRANSACTION.name in findings.not_judged:
        return
    for index, operation, _ in _transactions(seen):
        read: list[Send] = []
        unread: list[Send] = []
        for send in sends_of(operation):
            (read if send.value in seen.partitions[send.key].read else unread).append(send)
        if not read or not unread:
            continue
        witness = seen.partitions[read[0].key].read[read[0].value]
        findings.add(
            TORN_TRANSACTION,
            sorted({send.key for send in unread}),
            f"of op {index} value {read[0].value} was polled from {read[0].key} (op {witness}), and value "
            f"{unread[0].value} never from {unread[0].key}",
            [index, witness],
            op=index,
        )


# Fenced, and hanging ----------------------------------------------------------------------------------------


def _zombie_writes(seen: Observations, findings: Findings) -> None:
    takeovers: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    """Transactional id -> (start, end, operation) of each takeover."""
    for index, operation in enumerate(seen.operations):
        if operation.f == "init" and operation.outcome == "ok" and operation.txn is not None:
            takeovers[operation.txn.id].append((operation.start, operation.end, index))
    for index, operation, transaction in _transactions(seen):
        asked = transaction.commit_asked
        if asked is None or not _committed(seen, index):
            continue
        since = [
            by for start, end, by in takeovers[transaction.id] if operation.start < start and end < asked
        ]
        if since:
            findings.add(
                ZOMBIE_WRITE,
                sorted({send.key for send in sends_of(operation)}),
                f"op {index} of process {operation.process} was committed; before it asked for that, process "
                f"{seen.operations[since[0]].process} had taken over {transaction.id} (op {since[0]})",
                [index, since[0]],
                op=index,
            )


def _hanging_transactions(seen: Observations, findings: Findings) -> None:
    """By the ends of partitions when every transaction had to be over: the last that were recorded."""
    ends = [(index, operation) for index, operation in enumerate(seen.operations) if operation.f == "ends"]
    for index, operation in ends[-1:]:
        for key, (stable, high_watermark) in operation.ends.items():
            if stable >= high_watermark:
                continue
            openers = [
                seen.senders[value].op
                for value in (seen.partitions[key].sent if key in seen.partitions else ())
                if seen.senders[value].offset == stable
            ]
            opened = f"; op {openers[0]} wrote there" if openers else ""
            findings.add(
                HANGING_TRANSACTION,
                key,
                f"the last stable offset of {key} stays at {stable}, its high watermark is {high_watermark} "
                f"(op {index}){opened}",
                [index, *openers],
                offset=stable,
            )
