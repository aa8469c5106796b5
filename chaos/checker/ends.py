"""The ends of partitions. What was shown or told of one stays: a later answer is no lower, and what is sent
later, by whomever, comes behind it. When every transaction had to be over, both ends are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.checker.anomalies import BACKDATED_SEND, HANGING_TRANSACTION, NONMONOTONIC_END
from chaos.checker.observations import Observations, polls_of, sends_of
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrders
from chaos.history import ACKS_ALL, Operation

STABLE, HIGH_WATERMARK = NAMES = ("last stable offset", "high watermark")

Known = tuple[int, int]
"""The lowest that an end can be, and the operation that shows it."""
NOTHING: Known = (0, -1)
Lowest = dict[tuple[str, str], Known]
"""By name and key."""


def check_ends(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    _compare_with_what_was_shown(seen, orders, findings)
    _hanging_transactions(seen, findings)


def _compare_with_what_was_shown(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    """In the order of time: with what was polled, acknowledged or reported before an operation began."""
    operations = seen.operations
    judged = [index for index, operation in enumerate(operations) if _is_judged(operation)]
    judged.sort(key=lambda index: operations[index].start)
    by_end = iter(sorted(range(len(operations)), key=lambda index: operations[index].end))
    upcoming = next(by_end, None)
    lowest: Lowest = {}
    for index in judged:
        operation = operations[index]
        while upcoming is not None and operations[upcoming].end < operation.start:
            for name, key, offset in _ends_shown_by(seen, operations[upcoming]):
                lowest[name, key] = max(lowest.get((name, key), NOTHING), (offset, -upcoming))
            upcoming = next(by_end, None)
        _judge_answer(index, operation, lowest, findings)
        _judge_sends(index, operation, orders, lowest, findings)


def _is_judged(operation: Operation) -> bool:
    return operation.f == "ends" or (operation.outcome != "fail" and bool(operation.ops))


def _judge_answer(index: int, operation: Operation, lowest: Lowest, findings: Findings) -> None:
    for key, both in operation.ends.items() if operation.f == "ends" else ():
        for name, offset in zip(NAMES, both, strict=True):
            least, witness = lowest.get((name, key), NOTHING)
            if offset < least:
                findings.add(
                    NONMONOTONIC_END,
                    key,
                    f"the {name} of {key} was reported as {offset} (op {index}), and had been {least} "
                    f"before (op {-witness})",
                    [-witness, index],
                    op=index,
                    end=name,
                    least=least,
                )


def _judge_sends(
    index: int, operation: Operation, orders: VersionOrders, lowest: Lowest, findings: Findings
) -> None:
    """A value may be there twice: the last place counts."""
    for send in sends_of(operation):
        order = orders[send.key]
        place = order.last.get(send.value)
        least, witness = lowest.get((HIGH_WATERMARK, send.key), NOTHING)
        if place is not None and order.offsets[place] < least:
            findings.add(
                BACKDATED_SEND,
                send.key,
                f"value {send.value} was sent (op {index}) when {send.key} was known to reach up to offset "
                f"{least} (op {-witness}), and is at offset {order.offsets[place]}",
                [-witness, index],
                value=send.value,
                offset=order.offsets[place],
                least=least,
            )


def _ends_shown_by(seen: Observations, operation: Operation) -> Iterator[tuple[str, str, int]]:
    """(name, key, the lowest that it can be from now on)."""
    if operation.f == "ends":
        for key, both in operation.ends.items():
            yield STABLE, key, both[0]
            yield HIGH_WATERMARK, key, both[1]
        return
    for poll in polls_of(operation) if operation.ops else ():
        for key, pairs in poll.messages.items():
            if pairs:
                end = max(pair[0] for pair in pairs) + 1
                yield HIGH_WATERMARK, key, end
                if not (operation.uncommitted and seen.partitions[key].mode.transactional):
                    yield STABLE, key, end
    for send in sends_of(operation) if operation.ops else ():
        if send.offset is not None and seen.partitions[send.key].mode.acks == ACKS_ALL:
            yield HIGH_WATERMARK, send.key, send.offset + 1


def unasked(operations: Sequence[Operation]) -> list[str]:
    """Partitions that were written in transactions, and whose ends nobody asked for in the end."""
    last = [operation.ends for operation in operations if operation.f == "ends"][-1:]
    written = {send.key for operation in operations if operation.f == "txn" for send in sends_of(operation)}
    return sorted(written - (last[0].keys() if last else set()))


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
