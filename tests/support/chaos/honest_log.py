"""Histories of a log that keeps every promise.

The log is a list per partition. Clients begin an operation, it takes effect at one moment, they hear of it
later: so operations overlap, and effects happen in an order of their own. Some sends fail, of some nobody
hears; some of those take effect late. Transactions leave markers and aborted records as holes between the
offsets.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random
from typing import Any

from chaos.history import (
    Function,
    Header,
    History,
    HistoryTransaction,
    Operation,
    Poll,
    Send,
    TopicMode,
)

KEYS = ("t-0", "t-1")
CLIENTS = 3
OPERATIONS = 60


def honest_history(mode: TopicMode, random: Random) -> History:
    log = HonestLog(mode, random)
    clients = [HonestClient(log, number) for number in range(CLIENTS)]
    while len(log.done) < OPERATIONS:
        log.late(random)
        random.choice(clients).step()
    for client in clients:
        client.finish()
    log.late(None)
    log.tell_how_it_ended(89)
    for number in (90, 91):
        log.read_everything(number)
    return History(Header({"t": mode}), log.done)


@dataclass
class HonestLog:
    mode: TopicMode
    random: Random
    visible: dict[str, list[tuple[int, int]]] = field(default_factory=lambda: {key: [] for key in KEYS})
    ends: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))
    consumed: dict[str, int] = field(default_factory=lambda: dict.fromkeys(KEYS, 0))  # by the one group
    done: list[Operation] = field(default_factory=list)
    on_the_way: list[Callable[[], None]] = field(default_factory=list)
    clock: Iterator[int] = field(default_factory=count)
    values: Iterator[int] = field(default_factory=lambda: count(100))

    def append(self, key: str, value: int, committed: bool = True) -> int:
        offset = self.ends[key]
        self.ends[key] += 1
        if committed:
            self.visible[key].append((offset, value))
        return offset

    def offset_of(self, key: str, place: int) -> int:
        """Where the next message is, for who has read so many."""
        visible = self.visible[key]
        return visible[place][0] if place < len(visible) else self.ends[key]

    def late(self, random: Random | None) -> None:
        """What was sent and never answered arrives now and then; before the final phase, all of it."""
        while self.on_the_way and (random is None or random.random() < 0.1):
            self.on_the_way.pop(0)()

    def tell_how_it_ended(self, process: int) -> None:
        if not self.mode.transactional:
            return
        ends = {key: (end, end) for key, end in self.ends.items()}
        operations: list[tuple[Function, dict[str, Any]]] = [
            ("ends", {"ends": ends}),
            ("committed", {"group": "g", "committed": dict(self.consumed)}),
        ]
        for f, answer in operations:
            self.done.append(
                Operation(process, f, next(self.clock), next(self.clock), "ok", final=True, **answer)
            )

    def read_everything(self, process: int) -> None:
        self.done.append(
            Operation(process, "assign", next(self.clock), next(self.clock), "ok", final=True, keys=KEYS)
        )
        places = dict.fromkeys(KEYS, 0)
        messages: dict[str, list[tuple[int, int]]] = {"": []}
        while messages:
            start = next(self.clock)
            messages = {}
            for key in KEYS:
                upto = places[key] + self.random.randint(1, 9)
                if self.visible[key][places[key] : upto]:
                    messages[key] = self.visible[key][places[key] : upto]
                places[key] = upto
            self.done.append(
                Operation(process, "poll", start, next(self.clock), "ok", [Poll(messages)], final=True)
            )


@dataclass
class HonestClient:
    log: HonestLog
    process: int
    places: dict[str, int] = field(default_factory=dict)  # key -> messages read so far
    steps: Iterator[None] | None = None

    def step(self) -> None:
        if self.steps is None:
            self.steps = self.operation()
        if next(self.steps, self) is self:
            self.steps = None

    def finish(self) -> None:
        while self.steps is not None:
            self.step()

    def operation(self) -> Iterator[None]:
        start = next(self.log.clock)
        choices = [self.send, self.send, self.poll, self.poll, self.poll, self.assign, self.crash]
        if self.log.mode.transactional:
            choices += [self.transact, self.transact]
        operation = yield from self.log.random.choice(choices)(start)
        self.log.done.append(operation._replace(end=next(self.log.clock)))
        if operation.outcome == "info":
            self.process += 10
            self.places = {}

    def send(self, start: int) -> Iterator[None]:
        log, random = self.log, self.log.random
        sends = [Send(random.choice(KEYS), next(log.values)) for _ in range(random.randint(1, 3))]
        outcome = random.choice(["ok", "ok", "ok", "ok", "fail", "info"])
        reported = []
        for send in sends:
            yield
            offset = None
            if outcome == "ok":
                offset = log.append(send.key, send.value)
            elif outcome == "info" and random.random() < 0.7:
                log.on_the_way.append(lambda send=send: log.append(send.key, send.value))
            reported.append(send._replace(offset=None if log.mode.acks == 0 else offset))
        yield
        return Operation(self.process, "send", start, 0, outcome, reported)

    def poll(self, start: int) -> Iterator[None]:
        random = self.log.random
        polls = []
        for _ in range(random.randint(1, 2)):
            yield
            polls.append(Poll({}))
            for key, place in self.places.items():
                messages = self.log.visible[key][place : place + random.randint(1, 6)]
                self.places[key] += len(messages)
                if messages:
                    polls[-1].messages[key] = messages
        yield
        return Operation(self.process, "poll", start, 0, random.choice(["ok"] * 9 + ["info"]), polls)

    def assign(self, start: int) -> Iterator[None]:
        keys = self.log.random.sample(KEYS, self.log.random.randint(1, 2))
        self.places = {key: self.log.random.randint(0, len(self.log.visible[key])) for key in keys}
        starts = {key: self.log.offset_of(key, place) for key, place in self.places.items()}
        yield
        return Operation(self.process, "assign", start, 0, "ok", keys=keys, starts=starts)

    def crash(self, start: int) -> Iterator[None]:
        yield
        return Operation(self.process, "crash", start, 0, "info")

    def transact(self, start: int) -> Iterator[None]:
        """Consume from one partition, where the group left off, and produce to another."""
        log, random = self.log, self.log.random
        key = random.choice(KEYS)
        sends = [Send(random.choice(KEYS), next(log.values)) for _ in range(random.randint(1, 3))]
        outcome = random.choice(["ok", "ok", "ok", "fail", "info"])
        committed = outcome == "ok" or (outcome == "info" and random.random() < 0.5)
        yield
        messages = [m for m in log.visible[key] if m[0] >= log.consumed[key]][:4]
        reach = (log.consumed[key], messages[-1][0] + 1 if messages else log.consumed[key])
        reported = [send._replace(offset=log.append(send.key, send.value, committed)) for send in sends]
        for marked in {send.key for send in sends}:
            log.ends[marked] += 1
        if committed:
            log.consumed[key] = reach[1]
        yield
        txn = HistoryTransaction(f"txn-{self.process}", "g", {key: reach})
        ops = [Poll({key: messages}), *reported]
        return Operation(self.process, "txn", start, 0, outcome, ops, rebalanced=[key], txn=txn)
