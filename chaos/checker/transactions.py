"""Transactions: all or nothing, once, and by nobody but the owner of the transactional id.

A transaction is one operation. It committed if its client got that response, or if anything that it sent was
polled. Aborted and premature reads by single values are G1a and precommitted-read (reads.py); transactions
that never end are in ends.py.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass, field

from chaos.checker.anomalies import (
    DOUBLE_CONSUME,
    INTERMEDIATE_READ,
    LOST_INPUT,
    TORN_TRANSACTION,
    ZOMBIE_WRITE,
)
from chaos.checker.groups import committed_in_the_end, transactional_groups
from chaos.checker.observations import Observations, polls_of, sends_of
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrder, VersionOrders
from chaos.history import HistoryTransaction, Operation, Send


def check_transactions(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    _consumption(seen, orders, findings)
    _intermediate_reads(seen, findings)
    _torn_transactions(seen, findings)
    _zombie_writes(seen, findings)


def _transactions(seen: Observations) -> Iterator[tuple[int, Operation, HistoryTransaction]]:
    for index, operation in enumerate(seen.operations):
        if operation.f == "txn" and operation.txn is not None:
            yield index, operation, operation.txn


def _committed(seen: Observations, index: int) -> bool:
    return seen.operations[index].outcome == "ok" or index in seen.proven


# Consumed and produced --------------------------------------------------------------------------------------


@dataclass(slots=True)
class Consumption:
    """Of one partition, by the committed transactions of one group."""

    first: dict[int, int] = field(default_factory=dict)  # offset -> the transaction that consumed it first
    polled: set[int] = field(default_factory=set)  # offsets that a transaction polled, and consumed
    end: int = 0  # before which offset the group has consumed everything, as it says
    said_by: int = -1  # in that operation

    def reach(self, end: int, index: int) -> None:
        if end > self.end:
            self.end, self.said_by = end, index


def _consumption(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    """Every input in exactly one committed transaction of a group. Ranges of committed offsets may overlap
    in holes, such as markers; only known records count."""
    consumed: defaultdict[tuple[str, str], Consumption] = defaultdict(Consumption)  # by group and key
    for index, operation, transaction in _transactions(seen):
        if transaction.group is None or not _committed(seen, index):
            continue
        for key, (start, end) in transaction.consumed.items():
            known = consumed[transaction.group, key]
            known.reach(end, index)
            known.polled.update(
                pair[0]
                for poll in polls_of(operation)
                for pair in poll.messages.get(key, ())
                if start <= pair[0] < end
            )
            _double_consume(key, transaction.group, (start, end), index, known, orders.get(key), findings)
    groups = transactional_groups(seen)
    for group, (index, offsets) in committed_in_the_end(seen).items():
        for key, offset in offsets.items() if group in groups else ():
            consumed[group, key].reach(offset, index)
    if not seen.has_final_phase:
        return
    for (group, key), known in consumed.items():
        order = orders.get(key)
        if order is not None:
            _lost_inputs(key, group, known, order, findings)


def _double_consume(
    key: str,
    group: str,
    reach: tuple[int, int],
    index: int,
    known: Consumption,
    order: VersionOrder | None,
    findings: Findings,
) -> None:
    if order is None:
        return  # no client has read any record of it
    for offset in order.offsets[bisect_left(order.offsets, reach[0]) : bisect_left(order.offsets, reach[1])]:
        first = known.first.setdefault(offset, index)
        if first != index:
            findings.add(
                DOUBLE_CONSUME,
                key,
                f"value {order.values[order.index[offset]]} at offset {offset} of {key} was consumed by "
                f"two committed transactions of group {group}, op {first} and op {index}",
                [first, index],
                op=index,
                group=group,
                offset=offset,
            )


def _lost_inputs(key: str, group: str, known: Consumption, order: VersionOrder, findings: Findings) -> None:
    for offset in order.offsets[: bisect_left(order.offsets, known.end)]:
        value = order.values[order.index[offset]]
        if offset not in known.polled and value not in order.superseded:
            findings.add(
                LOST_INPUT,
                key,
                f"value {value} at offset {offset} of {key} was polled by no committed transaction of group "
                f"{group}; op {known.said_by} says that the group has consumed all before offset {known.end}",
                [known.said_by],
                group=group,
                offset=offset,
            )


# Too early, or in part --------------------------------------------------------------------------------------


def _intermediate_reads(seen: Observations, findings: Findings) -> None:
    """By the time of the poll, where it is known: an operation may go on for long after it."""
    early: dict[int, tuple[str, int]] = {}  # value -> its key, the first operation that polled it too early
    for index, operation in enumerate(seen.operations):
        for poll in polls_of(operation) if operation.ops and not operation.uncommitted else ():
            at = operation.end if poll.at is None else poll.at
            for key, pairs in poll.messages.items():
                for _, value in pairs if seen.partitions[key].mode.transactional else ():
                    sent = seen.sender(key, value)
                    transaction = seen.operations[sent.op].txn if sent is not None else None
                    asked = transaction.commit_asked if transaction is not None else None
                    if asked is not None and at < asked:
                        early.setdefault(value, (key, index))
    for value, (key, reader) in early.items():
        sender = seen.senders[value].op
        findings.add(
            INTERMEDIATE_READ,
            key,
            f"value {value} was polled from {key} (op {reader}) before the commit of its transaction "
            f"(op {sender}) was asked for",
            [sender, reader],
            value=value,
        )


def _torn_transactions(seen: Observations, findings: Findings) -> None:
    if TORN_TRANSACTION.name in findings.not_judged:
        return
    transactions = [(index, sends_of(operation)) for index, operation, _ in _transactions(seen)]
    written = {send.key for _, sends in transactions for send in sends}
    shown = {key: seen.partitions[key].first_sightings() for key in written}
    for index, sends in transactions:
        read: list[Send] = []
        unread: list[Send] = []
        for send in sends:
            (read if send.value in shown[send.key] else unread).append(send)
        if not read or not unread:
            continue
        witness = shown[read[0].key][read[0].value]
        findings.add(
            TORN_TRANSACTION,
            sorted({send.key for send in unread}),
            f"of op {index} value {read[0].value} was polled from {read[0].key} (op {witness}), and value "
            f"{unread[0].value} never from {unread[0].key}",
            [index, witness],
            op=index,
        )


# Fenced -----------------------------------------------------------------------------------------------------


def _zombie_writes(seen: Observations, findings: Findings) -> None:
    takeovers: defaultdict[str, list[tuple[int, int, int]]] = defaultdict(list)
    """Transactional id -> (start, end, operation) of each takeover."""
    for index, operation in enumerate(seen.operations):
        if operation.f == "init" and operation.outcome == "ok" and operation.txn is not None:
            takeovers[operation.txn.id].append((operation.start, operation.end, index))
    own_since: dict[tuple[int, str], int] = {}  # process, id -> since when it has that, by its last takeover
    for index, operation in enumerate(seen.operations):
        transaction = operation.txn
        if transaction is None:
            continue
        mine = operation.process, transaction.id
        if operation.f == "init" and operation.outcome == "ok":
            own_since[mine] = operation.end
        asked = transaction.commit_asked
        if operation.f != "txn" or asked is None or not _committed(seen, index):
            continue
        mine_since = own_since.get(mine, operation.start)
        since = [by for start, end, by in takeovers[transaction.id] if mine_since < start and end < asked]
        if since:
            findings.add(
                ZOMBIE_WRITE,
                sorted({send.key for send in sends_of(operation)} | transaction.consumed.keys()),
                f"op {index} of process {operation.process} was committed; before it asked for that, process "
                f"{seen.operations[since[0]].process} had taken over {transaction.id} (op {since[0]})",
                [index, since[0]],
                op=index,
            )
