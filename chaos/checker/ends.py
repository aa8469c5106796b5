"""The ends of partitions, as clients asked for them: high watermarks and last stable offsets never go back;
when every transaction had to be over, they are the same."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from chaos.checker.anomalies import HANGING_TRANSACTION, NONMONOTONIC_END
from chaos.checker.observations import Observations, polls_of, sends_of
from chaos.checker.verdict import Findings
from chaos.history import ACKS_ALL, Operation

NAMES = ("last stable offset", "high watermark")

Known = tuple[int, int]
"""The lowest that an end can be, and the operation that shows it."""
NOTHING: Known = (0, -1)


def check_ends(seen: Observations, findings: Findings) -> None:
    _nonmonotonic_ends(seen, findings)
    _hanging_transactions(seen, findings)


def _nonmonotonic_ends(seen: Observations, findings: Findings) -> None:
    """An end lies behind what was polled or acknowledged before it was asked for, and is no lower than what
    was reported before."""
    asked = [index for index, operation in enumerate(seen.operations) if operation.f == "ends"]
    if not asked:
        return
    asked.sort(key=lambda index: seen.operations[index].start)
    by_end = iter(sorted(range(len(seen.operations)), key=lambda index: seen.operations[index].end))
    upcoming = next(by_end, None)
    lowest: dict[tuple[str, str], Known] = {}  # (name, key)
    for index in asked:
        operation = seen.operations[index]
        while upcoming is not None and seen.operations[upcoming].end < operation.start:
            for name, key, offset in _ends_shown_by(seen, seen.operations[upcoming]):
                lowest[name, key] = max(lowest.get((name, key), NOTHING), (offset, -upcoming))
            upcoming = next(by_end, None)
        for key, both in operation.ends.items():
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


def _ends_shown_by(seen: Observations, operation: Operation) -> Iterator[tuple[str, str, int]]:
    """(name, key, the lowest that it can be from now on)."""
    stable, high = NAMES
    if operation.f == "ends":
        for key, both in operation.ends.items():
            yield stable, key, both[0]
            yield high, key, both[1]
        return
    for poll in polls_of(operation) if operation.ops else ():
        for key, pairs in poll.messages.items():
            if pairs:
                end = max(pair[0] for pair in pairs) + 1
                yield high, key, end
                if not (operation.uncommitted and seen.partitions[key].mode.transactional):
                    yield stable, key, end
    for send in sends_of(operation) if operation.ops else ():
        if send.offset is not None and seen.partitions[send.key].mode.acks == ACKS_ALL:
            yield high, send.key, send.offset + 1


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
