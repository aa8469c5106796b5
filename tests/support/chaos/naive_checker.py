"""The definitions of docs/CHAOS.md's anomalies, word by word: slow, and sharing nothing with the checker but
History.

Every rule is a search through all operations, all offsets, all pairs. What comes out is a list of tuples:
name, partitions, whether it is tolerated, and what singles it out. The checker must find the same.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import combinations, pairwise
from typing import Any

from chaos.history import History, Operation, Poll, Send, TopicMode, topic_of

Found = tuple[Any, ...]

# Tolerated at acks 0, 1, all; by producers with sequence numbers.
TABLE = {
    "inconsistent-offsets": "NNNN",
    "send-poll-mismatch": "YYNN",
    "lost-write": "YYNN",
    "unseen": "YYNN",
    "vanished-read": "NNNN",
    "phantom": "NNNN",
    "G1a": "NNNN",
    "precommitted-read": "NNNN",
    "duplicate": "NYYN",
    "nonmonotonic-send": "YNNN",
    "int-nonmonotonic-send": "YYYN",
    "int-send-skip": "YYYY",
    "G0": "YYYY",
    "poll-skip": "NNNN",
    "nonmonotonic-poll": "NNNN",
    "int-poll-skip": "NNNN",
    "int-nonmonotonic-poll": "NNNN",
    "G1c": "NNNN",
    "double-consume": "NNNN",
    "lost-input": "NNNN",
    "intermediate-read": "NNNN",
    "torn-transaction": "NNNN",
    "zombie-write": "NNNN",
    "hanging-transaction": "NNNN",
}


def judge(history: History) -> list[Found]:
    judge = NaiveChecker(history)
    found = [
        (kind, key, judge.tolerated(kind, key), *rest)
        for rule in (
            judge.offsets,
            judge.losses,
            judge.final_read,
            judge.bad_reads,
            judge.duplicates,
            judge.order_of_sends,
            judge.order_of_polls,
            judge.cycles,
            judge.consumption,
            judge.transactions,
            judge.ends,
        )
        for kind, key, *rest in rule()
    ]
    return sorted(found, key=repr)


class NaiveChecker:
    def __init__(self, history: History) -> None:
        self.history = history
        self.ops = history.operations
        self.keys = sorted(
            {send.key for op in self.ops for send in sends(op)}
            | {key for op in self.ops for key, *_ in polled(op)}
            | {key for op in self.ops for key in op.ends}
        )

    def tolerated(self, kind: str, keys: str) -> bool:
        return all(TABLE[kind][column(self.mode(key))] == "Y" for key in keys.split(", "))

    def mode(self, key: str) -> TopicMode:
        return self.history.header.topics[topic_of(key)]

    # Facts

    def sent(self, key: str) -> list[tuple[int, Send]]:
        return [(i, send) for i, op in enumerate(self.ops) for send in sends(op) if send.key == key]

    def seen(self, key: str) -> list[tuple[int, int, int]]:
        """(operation, offset, value) of every poll of what is committed."""
        return [each for each in self.seen_by_anyone(key) if not self.reads_uncommitted(each[0], key)]

    def seen_by_anyone(self, key: str) -> list[tuple[int, int, int]]:
        return [(i, at, value) for i, op in enumerate(self.ops) for k, at, value in polled(op) if k == key]

    def reads_uncommitted(self, i: int, key: str) -> bool:
        return self.ops[i].uncommitted and self.mode(key).transactional

    def ok_read(self, key: str) -> set[int]:
        return {value for i, _, value in self.seen(key) if self.ops[i].outcome == "ok"}

    def acknowledged(self, i: int, send: Send) -> bool:
        op = self.ops[i]
        return op.outcome == "ok" or (op.outcome == "info" and op.f != "txn" and send.offset is not None)

    def visible(self, i: int) -> bool:
        """ok, or unknown with something read of it."""
        op = self.ops[i]
        return op.outcome == "ok" or (
            op.outcome == "info" and any(send.value in self.ok_read(send.key) for send in sends(op))
        )

    def committed(self, i: int, send: Send) -> bool:
        return self.visible(i) or self.acknowledged(i, send)

    def log(self, key: str, uncommitted: bool = False) -> list[set[int]]:
        """The version order: by index, the values that stand there."""
        at: dict[int, set[int]] = {}
        for _, offset, value in self.seen_by_anyone(key) if uncommitted else self.seen(key):
            at.setdefault(offset, set()).add(value)
        if self.mode(key).acks == -1:
            for i, send in self.sent(key):
                if send.offset is not None and self.committed(i, send):
                    at.setdefault(send.offset, set()).add(send.value)
        self.offsets_of = sorted(at)
        return [at[offset] for offset in sorted(at)]

    def indexes(self, key: str, value: int) -> list[int]:
        return [index for index, values in enumerate(self.log(key)) if value in values]

    # Rules

    def offsets(self) -> Iterator[Found]:
        for key in self.keys:
            seen, by_anyone = self.seen(key), self.seen_by_anyone(key)
            for offset in {offset for _, offset, _ in by_anyone}:
                if len({value for _, o, value in by_anyone if o == offset}) > 1:
                    yield "inconsistent-offsets", key, offset
            if self.mode(key).acks == 0:
                continue
            told = {
                (send.offset, send.value)
                for i, send in self.sent(key)
                if self.committed(i, send) and send.offset is not None
            }
            for offset, value in told:
                polls = {v for _, o, v in seen if o == offset}
                claims = {v for o, v in told if o == offset}
                if (polls | claims) - {value}:
                    yield "send-poll-mismatch", key, offset, value

    def losses(self) -> Iterator[Found]:
        for key in self.keys:
            read = self.ok_read(key)
            bound = max((self.indexes(key, value)[0] for value in read), default=-1)
            for i, send in self.sent(key):
                places = self.indexes(key, send.value)
                if places and places[-1] <= bound and send.value not in read and self.committed(i, send):
                    yield "lost-write", key, send.value

    def final_read(self) -> Iterator[Found]:
        if not any(op.final for op in self.ops):
            return
        for key in self.keys:
            for i, send in self.sent(key):
                if self.acknowledged(i, send) and send.value not in self.ok_read(key):
                    yield "unseen", key, send.value
            seen = self.seen(key)
            pairs = {(offset, value) for _, offset, value in seen}
            found = {(o, v) for i, o, v in seen if self.ops[i].final and self.ops[i].outcome == "ok"}
            if self.finally_read(key):
                yield from (("vanished-read", key, *pair) for pair in pairs - found)
            if not self.history.torn:
                values = {send.value for _, send in self.sent(key)}
                by_anyone = {(offset, value) for _, offset, value in self.seen_by_anyone(key)}
                yield from (("phantom", key, *pair) for pair in by_anyone if pair[1] not in values)

    def finally_read(self, key: str) -> bool:
        """A process of the final phase was assigned the partition, and polled before its next assignment."""
        for i, op in enumerate(self.ops):
            if not (op.final and op.outcome == "ok" and op.f == "assign" and key in op.keys):
                continue
            for later in self.ops[i + 1 :]:
                if later.process != op.process or not later.final or later.outcome != "ok":
                    continue
                if later.f == "poll":
                    return True
                if later.f == "assign":
                    break
        return False

    def bad_reads(self) -> Iterator[Found]:
        for key in self.keys:
            for i, send in self.sent(key):
                if self.ops[i].outcome == "fail" and send.value in self.ok_read(key):
                    yield "G1a", key, send.value
                if any(value == send.value for j, _, value in self.seen_by_anyone(key) if j == i):
                    yield "precommitted-read", key, send.value

    def duplicates(self) -> Iterator[Found]:
        for key in self.keys:
            for value in set().union(*self.log(key)):
                if len(self.indexes(key, value)) > 1:
                    yield "duplicate", key, value

    def order_of_sends(self) -> Iterator[Found]:
        for key in self.keys:
            placed = [
                (i, self.indexes(key, send.value))
                for i, send in self.sent(key)
                if self.ops[i].outcome != "fail" and self.indexes(key, send.value)
            ]
            found = set()
            for (i, earlier), (j, later) in combinations(placed, 2):
                if self.ops[i].process == self.ops[j].process and later[-1] <= earlier[0]:
                    found.add(("int-nonmonotonic-send" if i == j else "nonmonotonic-send", key, j))
            for i in {i for i, _ in placed}:
                mine = [places[0] for j, places in placed if j == i]
                if any(b > a + 1 for a, b in pairwise(mine)):
                    found.add(("int-send-skip", key, i))
            yield from found

    def order_of_polls(self) -> Iterator[Found]:
        for i, op in enumerate(self.ops):
            if op.f in ("assign", "subscribe", "crash"):
                continue
            for key in {key for key, *_ in polled(op)} - set(op.rebalanced):
                log, offsets = self.log(key, self.reads_uncommitted(i, key)), self.offsets_of
                assert len(log) == len(offsets)
                mine = [offset for k, offset, _ in polled(op) if k == key]
                for before, after in pairwise(mine):
                    delta = offsets.index(after) - offsets.index(before)
                    if delta != 1:
                        kind = "int-poll-skip" if delta > 1 else "int-nonmonotonic-poll"
                        yield kind, key, i, before, after
                stopped = self.stopped(i, key)
                if stopped is not None:
                    delta = offsets.index(mine[0]) - offsets.index(stopped)
                    if delta != 1:
                        kind = "poll-skip" if delta > 1 else "nonmonotonic-poll"
                        yield kind, key, i, stopped, mine[0]

    def stopped(self, i: int, key: str) -> int | None:
        """Where the process stopped reading the partition in the last operation that tells."""
        for op in reversed(self.ops[:i]):
            if op.process != self.ops[i].process:
                continue
            if op.f in ("assign", "subscribe", "crash") or key in op.rebalanced:
                return None
            mine = [offset for k, offset, _ in polled(op) if k == key]
            if mine and op.outcome == "ok":
                return mine[-1]
        return None

    def cycles(self) -> Iterator[Found]:
        writes = set()
        for key in self.keys:
            writers = [
                next((i for i, send in self.sent(key) if send.value == min(values)), None)
                for values in self.log(key)
            ]
            known = [i for i in writers if i is not None]
            writes |= {(a, b) for a, b in pairwise(known) if a != b}
        for component in self.components(writes):
            yield "G0", ", ".join(self.keys), component
        reads = {
            (i, j)
            for key in self.keys
            for i, send in self.sent(key)
            for j, _, value in self.seen(key)
            if value == send.value and i != j and not self.ops[j].uncommitted
        }
        after = {
            (i, j)
            for i, first in enumerate(self.ops)
            for j, second in enumerate(self.ops)
            if (first.process == second.process and i < j)
            or (first.outcome != "info" and first.end < second.start)
        }
        for component in self.components(reads | after):
            yield "G1c", ", ".join(self.keys), component

    def components(self, edges: set[tuple[int, int]]) -> set[tuple[int, ...]]:
        """Sets of operations that all lead to each other, found by making the relation transitive."""
        everyone = range(len(self.ops))
        leads = set(edges)
        for via in everyone:
            leads |= {(a, b) for a in everyone for b in everyone if (a, via) in leads and (via, b) in leads}
        return {
            tuple(b for b in everyone if b == a or ((a, b) in leads and (b, a) in leads))
            for a in everyone
            if any((a, b) in leads and (b, a) in leads for b in everyone if b != a)
        }

    def consumption(self) -> Iterator[Found]:
        for key in self.keys:
            self.log(key)
            found = set()
            for (i, a), (j, b) in combinations(enumerate(self.ops), 2):
                if not (
                    a.f == b.f == "txn" and a.txn and b.txn and a.txn.group and a.txn.group == b.txn.group
                ):
                    continue
                if not (self.visible(i) and self.visible(j)):
                    continue
                for offset in self.offsets_of:
                    if all(inside(offset, op, key) for op in (a, b)):
                        found.add((a.txn.group, offset, j))
            for group, offset, j in found:
                yield "double-consume", key, group, offset, j
            if any(op.final for op in self.ops):
                for group in {op.txn.group for op in self.ops if op.f == "txn" and op.txn and op.txn.group}:
                    by_group = [
                        op
                        for i, op in enumerate(self.ops)
                        if op.f == "txn" and op.txn and op.txn.group == group and self.visible(i)
                    ]
                    done = [o for o in self.offsets_of if any(inside(o, op, key) for op in by_group)]
                    for offset in self.offsets_of:
                        if offset not in done and offset < max(done, default=-1):
                            yield "lost-input", key, group, offset

    def transactions(self) -> Iterator[Found]:
        for i, op in enumerate(self.ops):
            if op.f != "txn" or op.txn is None:
                continue
            unread = {send.key for send in sends(op) if send.value not in self.ok_read(send.key)}
            if any(each.final for each in self.ops) and self.some_are_read(op) and unread:
                yield "torn-transaction", ", ".join(sorted(unread)), i
            asked = op.txn.commit_asked
            if asked is None:
                continue
            for send in sends(op):
                polls = [
                    j for j, _, v in self.seen(send.key) if v == send.value and self.ops[j].outcome == "ok"
                ]
                if self.mode(send.key).transactional and polls and self.ops[polls[0]].end < asked:
                    yield "intermediate-read", send.key, send.value
            if self.visible(i) and any(
                other.f == "init" and other.outcome == "ok" and other.txn and other.txn.id == op.txn.id
                and op.start < other.start and other.end < asked
                for other in self.ops
            ):  # fmt: skip
                yield "zombie-write", ", ".join(sorted({send.key for send in sends(op)})), i

    def some_are_read(self, op: Operation) -> bool:
        return any(send.value in self.ok_read(send.key) for send in sends(op))

    def ends(self) -> Iterator[Found]:
        told = [op.ends for op in self.ops if op.f == "ends"]
        for key, (stable, high) in (told[-1] if told else {}).items():
            if stable < high:
                yield "hanging-transaction", key, stable


def inside(offset: int, op: Operation, key: str) -> bool:
    assert op.txn is not None
    low, high = op.txn.consumed.get(key, (0, 0))
    return low <= offset < high


def sends(op: Operation) -> list[Send]:
    return [micro for micro in op.ops if isinstance(micro, Send)]


def polled(op: Operation) -> list[tuple[str, int, int]]:
    return [
        (key, pair[0], pair[1])
        for micro in op.ops
        if isinstance(micro, Poll)
        for key, pairs in micro.messages.items()
        for pair in pairs
    ]


def column(mode: TopicMode) -> int:
    if mode.idempotent or mode.transactional:
        return 3
    return {0: 0, 1: 1, -1: 2}[mode.acks]
