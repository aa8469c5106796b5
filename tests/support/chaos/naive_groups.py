"""Of the naive checker: the definitions of what groups promise."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import takewhile
from typing import TYPE_CHECKING

from chaos.history import Operation
from tests.support.chaos.naive_facts import polled

if TYPE_CHECKING:
    from tests.support.chaos.naive_checker import Found, NaiveChecker


def rules(judge: NaiveChecker) -> list[Callable[[], Iterator[Found]]]:
    groups = NaiveGroups(judge)
    return [groups.lost_commits, groups.group_skips, groups.double_owners, groups.stale_commits]


class NaiveGroups:
    def __init__(self, judge: NaiveChecker) -> None:
        self.judge = judge
        self.ops = judge.ops
        self.keys = judge.keys

    def commits(self, group: str, key: str, before: int) -> list[int]:
        return [offset for offset, _ in self.commits_by(group, key, before)]

    def commits_by(
        self, group: str, key: str, before: int, *, in_the_end: bool = False
    ) -> list[tuple[int, Operation]]:
        """Offsets whose commit had been acknowledged by then; in the end, that was made, as anyone saw."""
        offsets = []
        for i, op in enumerate(self.ops):
            is_known = op.outcome == "ok" or (in_the_end and op.f == "txn" and self.judge.visible(i))
            if not is_known or op.end >= before:
                continue
            if op.f == "commit" and op.group == group and key in op.committed:
                offsets.append((op.committed[key], op))
            if op.f == "txn" and op.txn and op.txn.group == group and key in op.txn.consumed:
                offsets.append((op.txn.consumed[key][1], op))
        return offsets

    def lost(self, group: str, key: str, told: int, asked: int, heard: int, **more: bool) -> bool:
        """Whether more had been committed than somebody is told of, and nothing can have taken it back."""
        for offset, by in self.commits_by(group, key, asked, **more):
            late = [
                op
                for op in self.ops
                if (op.f, op.outcome, op.group) == ("commit", "info", group)
                if key in op.committed and op.committed[key] <= told and op.start < heard
                if by.generation is None or op.generation is None or op.generation >= by.generation
            ]
            is_shown = by.f == "txn" and by.outcome != "ok"
            if offset > told and (is_shown or not late):
                return True
        return False

    def lost_commits(self) -> Iterator[Found]:
        for i, op in enumerate(self.ops):
            for key in self.keys:
                if op.f == "committed" and op.outcome == "ok" and op.group is not None:
                    final_offset = op.committed.get(key, 0)
                    if self.lost(op.group, key, final_offset, op.start, op.end, in_the_end=op.final):
                        yield "lost-commit", key, i, op.group, final_offset
                began = self.began(i, key)
                if began is None:
                    continue
                offset, assigned = began
                group = self.subscription(i)
                assert group is not None
                if self.lost(group[0], key, offset, assigned.start, op.end):
                    yield "lost-commit", key, i, group[0], offset

    def subscription(self, i: int) -> tuple[str, int] | None:
        """The group that the process of operation i is a member of, and since which operation."""
        for j in range(i, -1, -1):
            op = self.ops[j]
            if op.process == self.ops[i].process and op.f in ("assign", "subscribe", "crash"):
                return (op.group, j) if op.f == "subscribe" and op.group is not None else None
        return None

    def began(self, i: int, key: str) -> tuple[int, Operation] | None:
        """Where a member surely began to read again in operation i, and the one in which it was given the
        partition. In an operation with a rebalance, what it had not been given yet may be from before."""
        op, member = self.ops[i], self.subscription(i)
        mine = [offset for k, offset, _ in polled(op) if k == key]
        if member is None or not mine:
            return None
        since = [other for other in self.ops[member[1] : i] if other.process == op.process]
        touched = [
            other
            for other in since[1:]
            if key in other.rebalanced or any(k == key for k, *_ in polled(other))
        ]
        silent = list(takewhile(lambda each: not any(k == key for k, *_ in polled(each)), reversed(touched)))
        last = touched[-1] if touched else since[0]
        before = [offset for k, offset, _ in polled(last) if k == key]
        if not before and key in op.rebalanced:
            return mine[0], silent[-1] if silent else op
        if not before:
            return mine[0], last
        again = [offset for offset in mine if offset <= before[-1]]
        is_certain = last.outcome == "ok" and (touched[:-1] == [] or key not in last.rebalanced)
        if key in op.rebalanced and is_certain and again:
            return again[0], op
        return None

    def group_skips(self) -> Iterator[Found]:
        if not any(op.final for op in self.ops) or self.judge.history.torn:
            return
        for group in {op.group for op in self.ops if op.group} - self.judge.transactional_groups():
            for key in self.keys:
                given = {
                    offset
                    for i, offset, _ in self.judge.seen_by_anyone(key)
                    if (member := self.subscription(i)) is not None and member[0] == group
                }
                ends = [offset + 1 for offset in given]
                ends += self.commits(group, key, before=10**30)
                ends += [offsets[key] for offsets in self.judge.told_in_the_end(group) if key in offsets]
                log = self.judge.log(key)
                for offset, values in zip(self.judge.offsets_of, log, strict=True):
                    passed = offset < max(ends, default=0)
                    if passed and offset not in given and not self.judge.superseded(key, min(values)):
                        yield "group-skip", key, group, offset

    def double_owners(self) -> Iterator[Found]:
        owned = [(i, op) for i, op in enumerate(self.ops) if op.f == "owned" and op.generation is not None]
        for i, op in owned:
            for key in op.keys:
                others = [
                    other.process
                    for j, other in owned
                    if j < i and (other.group, other.generation) == (op.group, op.generation)
                    if key in other.keys
                ]
                if op.group is not None and others and others[0] != op.process:
                    yield "double-owner", key, i, op.group, op.generation

    def stale_commits(self) -> Iterator[Found]:
        for i, commit in enumerate(self.ops):
            if commit.f != "commit" or commit.outcome != "ok":
                continue
            if commit.group is None or commit.generation is None:
                continue
            for key in commit.committed:
                others = [
                    op
                    for op in self.ops
                    if op.f == "owned" and op.group == commit.group and op.process != commit.process
                    if op.end < commit.start
                ]
                later = [
                    op for op in others if op.generation is not None and op.generation > commit.generation
                ]
                mine = [op for op in self.ops[:i] if op.f == "owned" and op.process == commit.process]
                after = [
                    op
                    for op in others
                    if op.generation is None and key in op.keys
                    if not mine or mine[-1].end <= op.start
                ]
                if later or after:
                    yield "stale-commit", key, i, commit.group
