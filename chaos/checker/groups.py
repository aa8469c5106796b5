"""Groups: what is committed stays committed, nothing is left out between two members, and a partition has one
owner at a time.

A group is either of members that commit by themselves, after they were given records, or of transactions that
commit offsets with their output (transactions.py judges what those consume).
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate
from typing import Final, NamedTuple

from chaos.checker.anomalies import DOUBLE_OWNER, GROUP_SKIP, LOST_COMMIT, STALE_COMMIT
from chaos.checker.observations import Observations, polls_of
from chaos.checker.verdict import Findings
from chaos.checker.version_orders import VersionOrders
from chaos.history import Operation

GroupKey = tuple[str, str]
"""A group, and a partition that it reads."""


class Commit(NamedTuple):
    end: int  # ns, when it was acknowledged
    offset: int
    op: int


@dataclass(slots=True)
class Commits:
    """Of a group and a partition."""

    acknowledged: list[Commit] = field(default_factory=list)
    """In the order of time."""
    highest: list[Commit] = field(default_factory=list)
    """Of these up to each."""
    unknown: list[tuple[int, Operation]] = field(default_factory=list)
    """Offsets whose commit was not answered. It may be carried out at any later time, and take back what was
    committed meanwhile; but not what was in a later generation, where it is refused."""


NO_COMMITS: Final = Commits()


def check_groups(seen: Observations, orders: VersionOrders, findings: Findings) -> None:
    commits = _commits(seen)
    given: defaultdict[GroupKey, dict[int, int]] = defaultdict(dict)
    """Offset -> the first operation in which a member of the group was given the record there."""
    for start in _starts_and_given(seen, given):
        _lost_before_start(seen, start, commits, findings)
    _lost_in_the_end(seen, commits, findings)
    if seen.is_whole:
        _group_skips(seen, orders, commits, given, findings)
    _double_owners(seen, findings)
    _stale_commits(seen, findings)


def transactional_groups(seen: Observations) -> set[str]:
    """Those whose offsets are committed by transactions."""
    return {
        operation.txn.group
        for operation in seen.operations
        if operation.txn is not None and operation.txn.group is not None
    }


def committed_in_the_end(seen: Observations) -> dict[str, tuple[int, Mapping[str, int]]]:
    """Group -> the last operation that asked how far it had committed, and the answer."""
    return {
        operation.group: (index, operation.committed)
        for index, operation in enumerate(seen.operations)
        if operation.f == "committed" and operation.outcome == "ok" and operation.group is not None
    }


# Commits ----------------------------------------------------------------------------------------------------


def _commits(seen: Observations) -> dict[GroupKey, Commits]:
    commits: defaultdict[GroupKey, Commits] = defaultdict(Commits)
    for index, operation in enumerate(seen.operations):
        if operation.f == "commit" and operation.group is not None and operation.outcome != "fail":
            for key, offset in operation.committed.items():
                if operation.outcome == "ok":
                    acknowledged = Commit(operation.end, offset, index)
                    commits[operation.group, key].acknowledged.append(acknowledged)
                else:
                    commits[operation.group, key].unknown.append((offset, operation))
        elif operation.f == "txn" and operation.outcome == "ok":
            for each, commit in _committed_by_transaction(operation, index):
                commits[each].acknowledged.append(commit)
    for found in commits.values():
        found.acknowledged.sort()
        found.highest = list(accumulate(found.acknowledged, _higher))
    return commits


def _acknowledged_at(commit: Commit) -> int:
    return commit.end


def _higher(before: Commit, commit: Commit) -> Commit:
    return commit if commit.offset > before.offset else before


class Told(NamedTuple):
    """How far a group has committed, as somebody was told."""

    offset: int
    asked: int  # ns: no earlier
    heard: int  # ns: no later


def _lost(seen: Observations, commits: Commits, told: Told) -> Commit | None:
    """The highest commit that was acknowledged before somebody was told of less, and that nothing can have
    taken back."""
    before = bisect_left(commits.acknowledged, told.asked, key=_acknowledged_at)
    if not before or commits.highest[before - 1].offset <= told.offset:
        return None
    late = [
        operation.generation
        for offset, operation in commits.unknown
        if offset <= told.offset and operation.start < told.heard
    ]
    if not late:
        return commits.highest[before - 1]
    kept = [
        each
        for each in commits.acknowledged[:before]
        if each.offset > told.offset
        and all(_is_later(seen.operations[each.op].generation, generation) for generation in late)
    ]
    return max(kept, key=_offset_of, default=None)


def _is_later(generation: int | None, than: int | None) -> bool:
    """Where both are known."""
    return generation is not None and than is not None and generation > than


def _offset_of(commit: Commit) -> int:
    return commit.offset


class Start(NamedTuple):
    """Where a member began to read a partition that it had been given."""

    group: str
    key: str
    offset: int
    op: int
    assigned: Operation  # before this one began, no offset had been asked for


@dataclass(slots=True)
class Membership:
    group: str
    subscribed: Operation
    last: dict[str, int | None] = field(default_factory=dict)
    """Key -> the last offset that was given to the member; None: it may go back from there by itself, or was
    given it before a rebalance."""
    assigned: dict[str, list[Operation]] = field(default_factory=dict)
    """Of keys that were rebalanced, and nothing was polled of them since: the operations that did it."""


def _starts_and_given(seen: Observations, given: defaultdict[GroupKey, dict[int, int]]) -> Iterator[Start]:
    members: dict[int, Membership] = {}  # by process
    for index, operation in enumerate(seen.operations):
        if operation.f in ("assign", "crash"):
            members.pop(operation.process, None)
        elif operation.f == "subscribe":
            members.pop(operation.process, None)
            if operation.group is not None:
                members[operation.process] = Membership(operation.group, operation)
        member = members.get(operation.process)
        if member is None:
            continue
        polled: defaultdict[str, list[int]] = defaultdict(list)
        for poll in polls_of(operation) if operation.ops else ():
            for key, pairs in poll.messages.items():
                polled[key] += [pair[0] for pair in pairs]
        for key in dict.fromkeys((*polled, *operation.rebalanced)):
            offsets = polled.get(key, [])
            for offset in offsets:
                given[member.group, key].setdefault(offset, index)
            start = _start_of(member, operation, key, offsets)
            if start is not None:
                yield Start(member.group, key, start[0], index, start[1])


def _start_of(
    member: Membership, operation: Operation, key: str, offsets: list[int]
) -> tuple[int, Operation] | None:
    """Where the member was started during the operation, and the one that assigned it.

    Where the key was rebalanced during the operation itself, records from before may come first: only what
    the member had been given already must have been read after it, or what follows the first assignment."""
    start: tuple[int, Operation] | None = None
    is_anew = key not in member.last and key not in member.assigned
    if key in operation.rebalanced:
        if key not in member.last:
            first = member.assigned.get(key, [operation])[0]
            start = (offsets[0], first) if offsets else None
        else:
            last = member.last.pop(key)
            again = [offset for offset in offsets if last is not None and offset <= last]
            start = (again[0], operation) if again else None
        if not offsets:
            member.assigned.setdefault(key, []).append(operation)
    elif offsets and key in member.assigned:
        start = (offsets[0], member.assigned[key][-1])
    elif offsets and key not in member.last:
        start = (offsets[0], member.subscribed)
    if offsets:
        member.assigned.pop(key, None)
        is_certain = operation.outcome == "ok" and (is_anew or key not in operation.rebalanced)
        member.last[key] = offsets[-1] if is_certain else None
    return start


def _lost_before_start(
    seen: Observations, start: Start, commits: Mapping[GroupKey, Commits], findings: Findings
) -> None:
    told = Told(start.offset, start.assigned.start, seen.operations[start.op].end)
    commit = _lost(seen, commits.get((start.group, start.key), NO_COMMITS), told)
    if commit is not None:
        findings.add(
            LOST_COMMIT,
            start.key,
            f"offset {commit.offset} of {start.key} had been committed to group {start.group} "
            f"(op {commit.op}) when a member was started at offset {start.offset} (op {start.op})",
            [commit.op, start.op],
            op=start.op,
            group=start.group,
            offset=start.offset,
            committed=commit.offset,
        )


def _lost_in_the_end(seen: Observations, commits: Mapping[GroupKey, Commits], findings: Findings) -> None:
    shown = _shown_to_be_committed(seen)
    keys: dict[str, dict[str, None]] = {}  # of each group, in order
    for name, key in (*commits, *shown):
        keys.setdefault(name, {})[key] = None
    for index, operation in enumerate(seen.operations):
        group = operation.group
        if operation.f != "committed" or operation.outcome != "ok" or group is None:
            continue
        for key in keys.get(group, ()):
            answer = operation.committed.get(key, 0)
            told = Told(answer, operation.start, operation.end)
            lost = [_lost(seen, commits.get((group, key), NO_COMMITS), told)]
            if operation.final:
                lost += [
                    each
                    for each in shown.get((group, key), ())
                    if each.end < operation.start and each.offset > answer
                ]
            commit = max((each for each in lost if each is not None), key=_offset_of, default=None)
            if commit is not None:
                findings.add(
                    LOST_COMMIT,
                    key,
                    f"offset {commit.offset} of {key} had been committed to group {group} (op {commit.op}), "
                    f"whose coordinator later reported {answer} (op {index})",
                    [commit.op, index],
                    op=index,
                    group=group,
                    offset=answer,
                    committed=commit.offset,
                )


def _shown_to_be_committed(seen: Observations) -> dict[GroupKey, list[Commit]]:
    """By transactions whose producers heard nothing of it, though their output was read. In the end, when no
    transaction is open any more, their offsets are committed like those of any other."""
    commits: defaultdict[GroupKey, list[Commit]] = defaultdict(list)
    for index in sorted(seen.proven):
        operation = seen.operations[index]
        if operation.f == "txn":
            for key, commit in _committed_by_transaction(operation, index):
                commits[key].append(commit)
    return commits


def _committed_by_transaction(operation: Operation, op: int) -> Iterator[tuple[GroupKey, Commit]]:
    txn = operation.txn
    if txn is not None and txn.group is not None:
        for key, (_, offset) in txn.consumed.items():
            yield (txn.group, key), Commit(operation.end, offset, op)


# Members ----------------------------------------------------------------------------------------------------


def _group_skips(
    seen: Observations,
    orders: VersionOrders,
    commits: Mapping[GroupKey, Commits],
    given: Mapping[GroupKey, Mapping[int, int]],
    findings: Findings,
) -> None:
    """From the first record of the log to the last that the group was given, or to what was committed."""
    nowhere = (-1, -1)
    reached = {each: max(offsets.items()) for each, offsets in given.items() if offsets}
    for each, of_group in commits.items():
        for last in of_group.highest[-1:]:
            reached[each] = max(reached.get(each, nowhere), (last.offset - 1, last.op))
    for group, (index, answer) in committed_in_the_end(seen).items():
        for key, offset in answer.items():
            reached[group, key] = max(reached.get((group, key), nowhere), (offset - 1, index))
    by_transactions = transactional_groups(seen)
    for (group, key), (furthest, witness) in reached.items():
        if group in by_transactions or key not in orders:
            continue
        order, offsets = orders[key], given.get((group, key), {})
        for index in range(bisect_left(order.offsets, furthest + 1)):
            offset, value = order.offsets[index], order.values[index]
            if offset not in offsets and value not in order.superseded:
                findings.add(
                    GROUP_SKIP,
                    key,
                    f"value {value} at offset {offset} of {key} was given to no member of group {group}, "
                    f"which went on to offset {furthest} (op {witness})",
                    [witness],
                    group=group,
                    offset=offset,
                )


def _double_owners(seen: Observations, findings: Findings) -> None:
    owners: dict[tuple[str, int, str], int] = {}  # group, generation, key -> who was given it first
    for index, operation in enumerate(seen.operations):
        if operation.f != "owned" or operation.group is None or operation.generation is None:
            continue
        for key in operation.keys:
            first = owners.setdefault((operation.group, operation.generation, key), index)
            if seen.operations[first].process != operation.process:
                findings.add(
                    DOUBLE_OWNER,
                    key,
                    f"in generation {operation.generation} of group {operation.group} {key} was given to "
                    f"process {seen.operations[first].process} (op {first}) and to process "
                    f"{operation.process} (op {index})",
                    [first, index],
                    op=index,
                    group=operation.group,
                    generation=operation.generation,
                )


class Given(NamedTuple):
    """A member was given partitions."""

    operation: Operation
    op: int


def _stale_commits(seen: Observations, findings: Findings) -> None:
    """Of members that say in which generation they commit: only those name the time when they asked. Where
    owners have no generation in common (KIP-848), by who was given the partition last."""
    given: defaultdict[str, list[Given]] = defaultdict(list)
    for index, operation in enumerate(seen.operations):
        if operation.f == "owned" and operation.group is not None:
            given[operation.group].append(Given(operation, index))
    own: dict[int, Operation] = {}  # process -> when it was last given partitions
    for index, operation in enumerate(seen.operations):
        if operation.f == "owned":
            own[operation.process] = operation
        if operation.f != "commit" or operation.outcome != "ok" or operation.generation is None:
            continue
        for key in operation.committed if operation.group is not None else ():
            by = _successor(operation, key, own.get(operation.process), given[operation.group or ""])
            if by is not None:
                findings.add(
                    STALE_COMMIT,
                    key,
                    f"process {operation.process} committed {key} to group {operation.group} (op {index}) "
                    f"after process {by.operation.process} had been given its place (op {by.op})",
                    [by.op, index],
                    op=index,
                    group=operation.group,
                )


def _successor(commit: Operation, key: str, own: Operation | None, given: Sequence[Given]) -> Given | None:
    """The first other member that had been given the place of one that commits, when that asked for it."""
    assert commit.generation is not None
    for each in given:
        operation = each.operation
        if operation.process == commit.process or operation.end >= commit.start:
            continue
        if operation.generation is not None:
            if operation.generation > commit.generation:
                return each
        elif key in operation.keys and (own is None or own.end <= operation.start):
            return each
    return None
