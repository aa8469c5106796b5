"""The definitions of docs/CHAOS.md's anomalies, word by word: slow, and sharing nothing with the checker but
History.

Every rule is a search through all operations, all offsets, all pairs. What comes out is a list of tuples:
name, partitions, whether it is tolerated, and what singles it out. The checker must find the same.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from itertools import combinations, pairwise
from typing import Any

from chaos.history import History, Operation, Poll, Send, TopicMode, topic_of
from tests.support.chaos import naive_groups
from tests.support.chaos.naive_facts import polled, sends

Found = tuple[Any, ...]

# Tolerated at acks 0, 1, all; by producers with sequence numbers.
TABLE = {
    "inconsistent-offsets": "NNNN",
    "send-poll-mismatch": "YYNN",
    "lost-write": "YYNN",
    "unseen": "YYNN",
    "vanished-read": "NNNN",
    "offset-gap": "NNNN",
    "phantom": "NNNN",
    "altered-record": "NNNN",
    "nonmonotonic-end": "NNNN",
    "G1a": "NNNN",
    "precommitted-read": "NNNN",
    "duplicate": "NYYN",
    "nonmonotonic-send": "YNNN",
    "backdated-send": "NNNN",
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
    "lost-commit": "NNNN",
    "group-skip": "NNNN",
    "double-owner": "NNNN",
    "stale-commit": "NNNN",
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
            judge.altered_records,
            *naive_groups.rules(judge),
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
            | {key for op in self.ops for key in (*op.ends, *op.committed)}
            | {key for op in self.ops if op.f == "owned" for key in op.keys}
            | {key for op in self.ops if op.txn for key in op.txn.consumed}
            | {each.key for op in self.ops for m in op.ops if isinstance(m, Poll) for each in m.altered}
        )

    def tolerated(self, kind: str, keys: str) -> bool:
        return keys != "" and all(TABLE[kind][column(self.mode(key))] == "Y" for key in keys.split(", "))

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

    def shown(self, key: str) -> set[int]:
        return {value for _, _, value in self.seen(key)}

    def ok_read(self, key: str) -> set[int]:
        return {value for i, _, value in self.seen(key) if self.ops[i].outcome == "ok"}

    def acknowledged(self, i: int, send: Send) -> bool:
        op = self.ops[i]
        return op.outcome == "ok" or (op.outcome == "info" and op.f != "txn" and send.offset is not None)

    def visible(self, i: int) -> bool:
        """ok, or unknown with something read of it."""
        op = self.ops[i]
        return op.outcome == "ok" or (
            op.outcome == "info" and any(send.value in self.shown(send.key) for send in sends(op))
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
                if send.offset is not None and (uncommitted or self.committed(i, send)):
                    at.setdefault(send.offset, set()).add(send.value)
        self.offsets_of = sorted(at)
        return [at[offset] for offset in sorted(at)]

    def indexes(self, key: str, value: int, uncommitted: bool = False) -> list[int]:
        return [index for index, values in enumerate(self.log(key, uncommitted)) if value in values]

    def superseded(self, key: str, value: int, uncommitted: bool = False) -> bool:
        """The topic is compacted, and a value with the same record key stands behind this one."""
        mine = [send.record_key for _, send in self.sent(key) if send.value == value]
        if not self.mode(key).compacted or mine in ([], [None]):
            return False
        last = max(self.indexes(key, value, uncommitted), default=-1)
        others = [send.value for _, send in self.sent(key) if send.record_key == mine[0]]
        return any(max(self.indexes(key, other, uncommitted), default=-1) > last for other in others)

    # Rules

    def offsets(self) -> Iterator[Found]:
        for key in self.keys:
            by_anyone = self.seen_by_anyone(key)
            for offset in {offset for _, offset, _ in by_anyone}:
                if len({value for _, o, value in by_anyone if o == offset}) > 1:
                    yield "inconsistent-offsets", key, offset
            if self.mode(key).acks == 0:
                continue
            reported = {(send.offset, send.value) for _, send in self.sent(key) if send.offset is not None}
            for offset, value in reported:
                polls = {v for _, o, v in by_anyone if o == offset}
                claims = {v for o, v in reported if o == offset}
                if (polls | claims) - {value}:
                    yield "send-poll-mismatch", key, offset, value

    def losses(self) -> Iterator[Found]:
        for key in self.keys:
            read = self.ok_read(key)
            bound = max((self.indexes(key, value)[0] for value in read), default=-1)
            for i, send in self.sent(key):
                places = self.indexes(key, send.value)
                if self.superseded(key, send.value):
                    continue
                if send.value in (read if self.acknowledged(i, send) else self.shown(key)):
                    continue
                if places and places[-1] <= bound and self.committed(i, send):
                    yield "lost-write", key, send.value

    def final_read(self) -> Iterator[Found]:
        if not any(op.final for op in self.ops):
            return
        for key in self.keys:
            for i, send in self.sent(key):
                if self.superseded(key, send.value):
                    continue
                if self.acknowledged(i, send) and send.value not in self.ok_read(key):
                    yield "unseen", key, send.value
            for process, polls in self.final_readers(key):
                yield from self.final_reader(key, process, polls)
            if not self.history.torn:
                values = {send.value for _, send in self.sent(key)}
                by_anyone = {(offset, value) for _, offset, value in self.seen_by_anyone(key)}
                yield from (("phantom", key, *pair) for pair in by_anyone if pair[1] not in values)

    def final_reader(self, key: str, process: int, polls: list[int]) -> Iterator[Found]:
        seen = self.seen(key)
        found = {(offset, value) for i, offset, value in seen if i in polls}
        for offset, value in {(offset, value) for _, offset, value in seen} - found:
            if not self.superseded(key, value):
                yield "vanished-read", key, offset, value, process
        offsets = {offset for offset, _ in found}
        if not self.mode(key).transactional and not self.mode(key).compacted:
            for offset in range(max(offsets, default=-1)):
                if offset not in offsets and (offset == 0 or offset - 1 in offsets):
                    yield "offset-gap", key, offset, process

    def final_readers(self, key: str) -> Iterator[tuple[int, list[int]]]:
        """Processes that were assigned the partition in the final phase, and their polls until their next
        assignment, if there are any, and the client was not thrown away."""
        for i, op in enumerate(self.ops):
            if not (op.final and op.outcome == "ok" and op.f == "assign" and key in op.keys):
                continue
            polls, ends = [], ""
            for j, later in enumerate(self.ops[i + 1 :], i + 1):
                if later.process != op.process or ends:
                    continue
                if later.f == "crash" or (later.f == "assign" and later.final and later.outcome == "ok"):
                    ends = later.f
                if later.final and later.outcome == "ok" and later.f == "poll" and not later.uncommitted:
                    polls.append(j)
            if polls and ends != "crash":
                yield op.process, polls

    def bad_reads(self) -> Iterator[Found]:
        for key in self.keys:
            for i, send in self.sent(key):
                if (self.ops[i].outcome == "fail" or send.failed) and send.value in self.shown(key):
                    yield "G1a", key, send.value
                if any(value == send.value for j, _, value in self.seen_by_anyone(key) if j == i):
                    yield "precommitted-read", key, send.value

    def duplicates(self) -> Iterator[Found]:
        for key in self.keys:
            anyone = any(
                self.reads_uncommitted(i, key) and isinstance(micro, Poll) and key in micro.messages
                for i, op in enumerate(self.ops)
                for micro in op.ops
            )
            for value in set().union(*self.log(key, anyone)):
                if len(self.indexes(key, value, anyone)) > 1:
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
                mine = [offset for k, offset, _ in polled(op) if k == key]
                for before, after in pairwise(mine):
                    kind = self.step(key, before, after, self.reads_uncommitted(i, key))
                    if kind:
                        yield f"int-{kind}", key, i, before, after
                stopped = self.stopped(i, key)
                if stopped is not None:
                    kind = self.step(key, stopped, mine[0], self.reads_uncommitted(i, key))
                    if kind:
                        yield kind, key, i, stopped, mine[0]

    def step(self, key: str, before: int, after: int, uncommitted: bool) -> str | None:
        log = self.log(key, uncommitted)
        low = sum(offset <= before for offset in self.offsets_of) - 1
        high = self.offsets_of.index(after)
        if high <= low:
            return "nonmonotonic-poll"
        skipped = [min(values) for values in log[low + 1 : high]]
        left_out = [value for value in skipped if not self.superseded(key, value, uncommitted)]
        return "poll-skip" if left_out else None

    def stopped(self, i: int, key: str) -> int | None:
        """Where the process stopped reading the partition in the last operation that tells."""
        for op in reversed(self.ops[:i]):
            if op.process != self.ops[i].process:
                continue
            if op.f == "assign" and key in op.starts:
                return op.starts[key] - 1
            if op.f in ("assign", "subscribe", "crash") or key in op.rebalanced:
                return None
            mine = [offset for k, offset, _ in polled(op) if k == key]
            if mine and op.outcome == "ok" and op.uncommitted == self.ops[i].uncommitted:
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
                for group in self.transactional_groups():
                    yield from self.lost_inputs(key, group)

    def transactional_groups(self) -> set[str]:
        return {op.txn.group for op in self.ops if op.txn and op.txn.group}

    def lost_inputs(self, key: str, group: str) -> Iterator[Found]:
        """Records before what the group has committed that none of its committed transactions polled."""
        committed = [
            op
            for i, op in enumerate(self.ops)
            if op.f == "txn" and op.txn and op.txn.group == group and self.visible(i)
        ]
        ends = [op.txn.consumed[key][1] for op in committed if op.txn and key in op.txn.consumed]
        ends += [offsets[key] for offsets in self.told_in_the_end(group) if key in offsets]
        done = {o for op in committed for k, o, _ in polled(op) if k == key and inside(o, op, key)}
        log = self.log(key)
        for offset, values in zip(self.offsets_of, log, strict=True):
            if offset < max(ends, default=0) and offset not in done and not self.superseded(key, min(values)):
                yield "lost-input", key, group, offset

    def told_in_the_end(self, group: str) -> list[Mapping[str, int]]:
        """The last answer about what it has committed, or nothing."""
        reported = [
            op.committed
            for op in self.ops
            if op.f == "committed" and op.outcome == "ok" and op.group == group
        ]
        return reported[-1:]

    def transactions(self) -> Iterator[Found]:
        for i, op in enumerate(self.ops):
            if op.f != "txn" or op.txn is None:
                continue
            unread = {send.key for send in sends(op) if send.value not in self.shown(send.key)}
            if any(each.final for each in self.ops) and self.some_are_read(op) and unread:
                yield "torn-transaction", ", ".join(sorted(unread)), i
            asked = op.txn.commit_asked
            if asked is None:
                continue
            for send in sends(op):
                times = [
                    op.end if micro.at is None else micro.at
                    for op in self.ops
                    for micro in op.ops
                    if isinstance(micro, Poll) and not op.uncommitted
                    if any(pair[1] == send.value for pair in micro.messages.get(send.key, ()))
                ]
                if self.mode(send.key).transactional and min(times, default=asked) < asked:
                    yield "intermediate-read", send.key, send.value
            takeovers = [
                (j, other)
                for j, other in enumerate(self.ops)
                if other.f == "init" and other.outcome == "ok" and other.txn and other.txn.id == op.txn.id
            ]
            own = [other.end for j, other in takeovers if other.process == op.process and j < i]
            since = own[-1] if own else op.start
            if self.visible(i) and any(since < o.start and o.end < asked for _, o in takeovers):
                yield (
                    "zombie-write",
                    ", ".join(sorted({send.key for send in sends(op)} | {*op.txn.consumed})),
                    i,
                )

    def some_are_read(self, op: Operation) -> bool:
        return any(send.value in self.shown(send.key) for send in sends(op))

    def ends(self) -> Iterator[Found]:
        reported = [op.ends for op in self.ops if op.f == "ends"]
        for key, (stable, high) in (reported[-1] if reported else {}).items():
            if stable < high:
                yield "hanging-transaction", key, stable
        for i, op in enumerate(self.ops):
            for key, (stable, high) in op.ends.items() if op.f == "ends" else ():
                least = self.shown_before(i, key)
                if high < least:
                    yield "nonmonotonic-end", key, i, "high watermark", least
                told = [o.ends[key][0] for o in self.before(i) if o.f == "ends" and key in o.ends]
                polls = [o + 1 for j, o, _ in self.seen(key) if self.ops[j].end < op.start]
                least = max([*told, *polls], default=0)
                if stable < least:
                    yield "nonmonotonic-end", key, i, "last stable offset", least
            for send in sends(op) if op.outcome != "fail" else ():
                places = self.indexes(send.key, send.value)
                least = self.shown_before(i, send.key)
                if places and self.offsets_of[places[-1]] < least:
                    yield "backdated-send", send.key, send.value, least

    def before(self, i: int) -> list[Operation]:
        """What had ended when an operation began."""
        return [op for op in self.ops if op.end < self.ops[i].start]

    def shown_before(self, i: int, key: str) -> int:
        """The lowest that the high watermark can be, by what anyone knew when an operation began."""
        told = [op.ends[key][1] for op in self.before(i) if op.f == "ends" and key in op.ends]
        polls = [o + 1 for j, o, _ in self.seen_by_anyone(key) if self.ops[j].end < self.ops[i].start]
        acks = [
            send.offset + 1
            for j, send in self.sent(key)
            if self.mode(key).acks == -1 and send.offset is not None and self.ops[j].end < self.ops[i].start
        ]
        return max([*told, *polls, *acks], default=0)

    def altered_records(self) -> Iterator[Found]:
        for i, op in enumerate(self.ops):
            for micro in op.ops:
                for key, offset, what in micro.altered if isinstance(micro, Poll) else ():
                    yield "altered-record", key, i, offset, what


def inside(offset: int, op: Operation, key: str) -> bool:
    assert op.txn is not None
    low, high = op.txn.consumed.get(key, (0, 0))
    return low <= offset < high


def column(mode: TopicMode) -> int:
    if mode.idempotent or mode.transactional:
        return 3
    return {0: 0, 1: 1, -1: 2}[mode.acks]
