"""Histories of a group whose coordinator keeps every promise, or breaks one.

Two partitions that were written before, three members that come and go. A member hears of a rebalance at one
of its next polls; until then it goes on reading what it owned (a zombie), but cannot commit. Records from
before the rebalance may come first in the poll that tells of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Literal

from chaos.history import Function, Header, History, Operation, Poll, Send, TopicMode

KEYS = ("t-0", "t-1")
RECORDS = 30
STEPS = 60

Bug = Literal["forget-commits", "skip-a-record", "two-owners", "take-late-commits"]


def group_history(random: Random, bug: Bug | None = None) -> History:
    group = Group(random, bug)
    for _ in range(STEPS):
        random.choice((group.poll, group.poll, group.poll, group.commit, group.come_or_go))()
    group.end()
    return History(Header({"t": TopicMode(2, -1)}), group.done)


@dataclass
class Member:
    process: int
    generation: int = -1
    places: dict[str, int] = field(default_factory=dict)


@dataclass
class Group:
    random: Random
    bug: Bug | None
    members: dict[int, Member] = field(default_factory=dict)
    generation: int = 0
    committed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    done: list[Operation] = field(default_factory=list)
    clock: Iterator[int] = field(default_factory=count)

    def __post_init__(self) -> None:
        for place, key in enumerate(KEYS):
            sends = [Send(key, RECORDS * place + offset, offset) for offset in range(RECORDS)]
            self.note(1, "send", Operation(1, "send", 0, 0, "ok", sends))

    def note(self, process: int, f: Function, operation: Operation) -> None:
        start, end = next(self.clock), next(self.clock)
        self.done.append(operation._replace(process=process, f=f, start=start, end=end))

    def come_or_go(self) -> None:
        process = self.random.choice((2, 3, 4))
        self.generation += 1
        if process in self.members:
            del self.members[process]
            self.note(process, "assign", Operation(0, "assign", 0, 0, "ok"))
        else:
            self.members[process] = Member(process)
            self.note(process, "subscribe", Operation(0, "subscribe", 0, 0, "ok", keys=KEYS, group="g"))

    def owned_by(self, member: Member) -> list[str]:
        place = sorted(self.members).index(member.process)
        if self.bug == "two-owners":
            return list(KEYS)
        return [key for number, key in enumerate(KEYS) if number % len(self.members) == place]

    def poll(self) -> None:
        if not self.members:
            return
        member = self.random.choice(list(self.members.values()))
        messages: dict[str, list[tuple[int, int]]] = {key: [] for key in KEYS}
        hears = member.generation != self.generation and self.random.random() < 0.7
        if not hears or self.random.random() < 0.3:
            self.hand_out(member, messages)
        rebalanced = []
        if hears:
            mine = self.owned_by(member)
            rebalanced = sorted({*member.places, *mine})
            member.generation = self.generation
            member.places = {key: self.start_of(key) for key in mine}
            if self.random.random() < 0.5:
                self.hand_out(member, messages)
        found = {key: pairs for key, pairs in messages.items() if pairs}
        self.note(
            member.process, "poll", Operation(0, "poll", 0, 0, "ok", [Poll(found)], rebalanced=rebalanced)
        )
        if hears:
            self.note(
                member.process, "owned",
                Operation(0, "owned", 0, 0, "ok", keys=mine, group="g", generation=self.generation),
            )  # fmt: skip

    def start_of(self, key: str) -> int:
        match self.bug:
            case "forget-commits":
                return 0
            case "skip-a-record":
                return self.committed[key] + 1
        return self.committed[key]

    def hand_out(self, member: Member, messages: dict[str, list[tuple[int, int]]]) -> None:
        for key, place in member.places.items():
            upto = min(RECORDS, place + self.random.randint(0, 4))
            messages[key] += [(offset, RECORDS * KEYS.index(key) + offset) for offset in range(place, upto)]
            member.places[key] = max(place, upto)

    def commit(self) -> None:
        if not self.members:
            return
        member = self.random.choice(list(self.members.values()))
        is_member = member.generation == self.generation or self.bug == "take-late-commits"
        if is_member:
            self.committed |= member.places
        self.note(
            member.process, "commit",
            Operation(
                0, "commit", 0, 0, "ok" if is_member else "fail", group="g", committed=dict(member.places),
                generation=member.generation,
            ),
        )  # fmt: skip

    def end(self) -> None:
        operation = Operation(
            0, "committed", 0, 0, "ok", final=True, group="g", committed=dict(self.committed)
        )
        self.note(8, "committed", operation)
        everything = {
            key: [(offset, RECORDS * place + offset) for offset in range(RECORDS)]
            for place, key in enumerate(KEYS)
        }
        for process in (90, 91):
            self.note(process, "assign", Operation(0, "assign", 0, 0, "ok", final=True, keys=KEYS))
            self.note(process, "poll", Operation(0, "poll", 0, 0, "ok", [Poll(everything)], final=True))
