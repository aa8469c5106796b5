"""Histories of a log that keeps every promise, and lies that can be told about them.

The log is a list per partition. Clients begin an operation, it takes effect at one moment, they hear of it
later: so operations overlap, and effects happen in an order of their own. Some sends fail, of some nobody
hears; some of those take effect late. Transactions leave markers and aborted records as holes between the
offsets.

A lie changes a history as little as it can, and names the anomalies that must be found.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from itertools import count
from random import Random

from chaos.history import Header, History, HistoryTransaction, Operation, Poll, Send, TopicMode

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

    def late(self, random: Random | None) -> None:
        """What was sent and never answered arrives now and then; before the final phase, all of it."""
        while self.on_the_way and (random is None or random.random() < 0.1):
            self.on_the_way.pop(0)()

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
        told = []
        for send in sends:
            yield
            offset = None
            if outcome == "ok":
                offset = log.append(send.key, send.value)
            elif outcome == "info" and random.random() < 0.7:
                log.on_the_way.append(lambda send=send: log.append(send.key, send.value))
            told.append(send._replace(offset=None if log.mode.acks == 0 else offset))
        yield
        return Operation(self.process, "send", start, 0, outcome, told)

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
        yield
        return Operation(self.process, "assign", start, 0, "ok", keys=keys)

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
        told = [send._replace(offset=log.append(send.key, send.value, committed)) for send in sends]
        for marked in {send.key for send in sends}:
            log.ends[marked] += 1
        if committed:
            log.consumed[key] = reach[1]
        yield
        txn = HistoryTransaction(f"txn-{self.process}", "g", {key: reach})
        ops = [Poll({key: messages}), *told]
        return Operation(self.process, "txn", start, 0, outcome, ops, rebalanced=[key], txn=txn)


# Lies -------------------------------------------------------------------------------------------------------

Corrupted = tuple[History, set[str]] | None


def lose_an_acknowledged_write(history: History, random: Random) -> Corrupted:
    sends = acknowledged(history)
    if not sends:
        return None
    _, send = random.choice(sends)
    return without(history, {send.value}), {"unseen"}


def lose_a_write_in_the_middle(history: History, random: Random) -> Corrupted:
    last = {key: max((v for o, v in final_log(history, key)[-1:]), default=None) for key in KEYS}
    sends = [
        send
        for _, send in acknowledged(history)
        if last[send.key] is not None and send.value in dict(swapped(final_log(history, send.key)[:-1]))
    ]
    if not sends:
        return None
    return without(history, {random.choice(sends).value}), {"unseen", "lost-write"}


def forget_what_was_shown(history: History, random: Random) -> Corrupted:
    shown = [value for i, _, _, value in polled(history) if not history.operations[i].final]
    if not shown:
        return None
    return without(history, {random.choice(shown)}, only_final=True), {"vanished-read"}


def show_a_value_that_nobody_sent(history: History, random: Random) -> Corrupted:
    shown = [
        (history.operations[i], value)
        for i, _, _, value in polled(history)
        if not history.operations[i].final
    ]
    if not shown:
        return None
    spot = random.choice(shown)
    lied = with_values(history, lambda op, v: 7 if (op, v) == spot else v)
    return lied, {"phantom", "inconsistent-offsets"}


def acknowledge_another_offset(history: History, random: Random) -> Corrupted:
    sends = [(i, s) for i, s in acknowledged(history) if len(final_log(history, s.key)) > 1]
    if not sends:
        return None
    _, send = random.choice(sends)
    offset = random.choice([o for o, v in final_log(history, send.key) if v != send.value])
    return with_sends(history, {send.value: send._replace(offset=offset)}), {
        "send-poll-mismatch",
        "duplicate",
    }


def show_a_failed_write(history: History, random: Random) -> Corrupted:
    sends = acknowledged(history)
    if not sends:
        return None
    index, _ = random.choice(sends)
    return changed(history, index, outcome="fail"), {"G1a"}


def show_a_transaction_itself(history: History, random: Random) -> Corrupted:
    sends = [(i, send) for i, send in acknowledged(history) if history.operations[i].f == "txn"]
    if not sends:
        return None
    index, send = random.choice(sends)
    ops = [*history.operations[index].ops, Poll({send.key: [(send.offset or 0, send.value)]})]
    return changed(history, index, ops=ops), {"precommitted-read"}


def write_twice(history: History, random: Random) -> Corrupted:
    key = random.choice(KEYS)
    log = final_log(history, key)
    if not log:
        return None
    _, value = random.choice(log)
    last = max(i for i, k, *_ in polled(history) if k == key and history.operations[i].final)
    return (
        with_polls(history, lambda k, p: [*p, (log[-1][0] + 1, value)] if k == key else p, last),
        {"duplicate"},
    )


def leave_out_inside_a_poll(history: History, random: Random) -> Corrupted:
    spot = long_poll(history, random, 3)
    if spot is None:
        return None
    index, key = spot
    return with_polls(history, lambda k, p: [p[0], *p[2:]] if k == key else p, index), {"int-poll-skip"}


def swap_inside_a_poll(history: History, random: Random) -> Corrupted:
    spot = long_poll(history, random, 2)
    if spot is None:
        return None
    index, key = spot
    swap = with_polls(history, lambda k, p: [p[1], p[0], *p[2:]] if k == key else p, index)
    return swap, {"int-nonmonotonic-poll"}


def leave_out_between_polls(history: History, random: Random) -> Corrupted:
    """The later of the two final readers finds nothing at its second poll, and goes on behind it."""
    polls = [i for i, op in enumerate(history.operations) if op.process == 91 and op.f == "poll"]
    for key in random.sample(KEYS, 2):
        mine = [i for i in polls if any(k == key for j, k, *_ in polled(history) if j == i)]
        if len(mine) > 2:
            return with_polls(history, lambda k, p, key=key: [] if k == key else p, mine[1]), {"poll-skip"}
    return None


def show_again(history: History, random: Random) -> Corrupted:
    spot = long_poll(history, random, 1)
    if spot is None:
        return None
    index = spot[0]
    again = history.operations[index]
    again = again._replace(start=again.end)
    operations = [*history.operations[: index + 1], again, *history.operations[index + 1 :]]
    return history._replace(operations=operations), {"nonmonotonic-poll"}


def exchange_two_writes(history: History, random: Random) -> Corrupted:
    pairs = [
        (a, b)
        for i, a in acknowledged(history)
        for j, b in acknowledged(history)
        if i < j and a.key == b.key and history.operations[i].process == history.operations[j].process
    ]
    return exchanged(history, random, pairs, {"nonmonotonic-send"})


def exchange_two_writes_of_an_operation(history: History, random: Random) -> Corrupted:
    sends = acknowledged(history)
    pairs = [(a, b) for i, a in sends for j, b in sends if i == j and a.key == b.key and a.value < b.value]
    return exchanged(history, random, pairs, {"int-nonmonotonic-send"})


def read_what_is_not_sent_yet(history: History, random: Random) -> Corrupted:
    sends = acknowledged(history)
    if not sends:
        return None
    index, _ = random.choice(sends)
    return changed(history, index, start=10**9, end=10**9), {"G1c"}


def consume_twice(history: History, random: Random) -> Corrupted:
    consumed = [
        op.txn
        for op in history.operations
        if op.txn is not None
        and op.outcome == "ok"
        and any(low < high for low, high in op.txn.consumed.values())
    ]
    if not consumed:
        return None
    end = history.operations[-1].end
    again = Operation(95, "txn", end, end, "ok", txn=random.choice(consumed))
    return history._replace(operations=[*history.operations, again]), {"double-consume"}


LIES = (
    lose_an_acknowledged_write,
    lose_a_write_in_the_middle,
    forget_what_was_shown,
    show_a_value_that_nobody_sent,
    acknowledge_another_offset,
    show_a_failed_write,
    show_a_transaction_itself,
    write_twice,
    leave_out_inside_a_poll,
    swap_inside_a_poll,
    leave_out_between_polls,
    show_again,
    exchange_two_writes,
    exchange_two_writes_of_an_operation,
    read_what_is_not_sent_yet,
    consume_twice,
)

# Looking at histories, and changing them -------------------------------------------------------------------

Messages = list[tuple[int, int]]


def acknowledged(history: History) -> list[tuple[int, Send]]:
    return [
        (i, micro)
        for i, op in enumerate(history.operations)
        if op.outcome == "ok"
        for micro in op.ops
        if isinstance(micro, Send)
    ]


def polled(history: History) -> list[tuple[int, str, int, int]]:
    return [
        (i, key, pair[0], pair[1])
        for i, op in enumerate(history.operations)
        for micro in op.ops
        if isinstance(micro, Poll)
        for key, pairs in micro.messages.items()
        for pair in pairs
    ]


def final_log(history: History, key: str) -> Messages:
    return sorted({(o, v) for i, k, o, v in polled(history) if k == key and history.operations[i].final})


def swapped(messages: Messages) -> Messages:
    return [(value, offset) for offset, value in messages]


def long_poll(history: History, random: Random, length: int) -> tuple[int, str] | None:
    """A successful poll, not of the final phase, whose first micro-operation read enough of one partition."""
    spots = [
        (i, key)
        for i, op in enumerate(history.operations)
        if op.f == "poll" and op.outcome == "ok" and not op.final and isinstance(op.ops[0], Poll)
        for key, pairs in op.ops[0].messages.items()
        if len(pairs) >= length
    ]
    return random.choice(spots) if spots else None


def changed(history: History, index: int, **fields: object) -> History:
    operations = list(history.operations)
    operations[index] = operations[index]._replace(**fields)  # type: ignore[arg-type]
    return history._replace(operations=operations)


def with_polls(history: History, change: Callable[[str, Messages], Messages], index: int) -> History:
    """One operation's first poll, changed."""
    ops = list(history.operations[index].ops)
    first = next(place for place, micro in enumerate(ops) if isinstance(micro, Poll) and micro.messages)
    poll = ops[first]
    assert isinstance(poll, Poll)
    ops[first] = Poll({key: change(key, [(o, v) for o, v in pairs]) for key, pairs in poll.messages.items()})
    return changed(history, index, ops=ops)


def with_sends(history: History, sends: dict[int, Send]) -> History:
    operations = [
        op._replace(ops=[sends.get(m.value, m) if isinstance(m, Send) else m for m in op.ops])
        for op in history.operations
    ]
    return history._replace(operations=operations)


def with_values(history: History, change: Callable[[Operation, int], int | None]) -> History:
    """Every polled value replaced by what `change` makes of it, or left out."""

    def messages(op: Operation, poll: Poll) -> Poll:
        return Poll(
            {
                key: [(o, new) for o, v in pairs if (new := change(op, v)) is not None]
                for key, pairs in poll.messages.items()
            }
        )

    operations = [
        op._replace(ops=[messages(op, m) if isinstance(m, Poll) else m for m in op.ops])
        for op in history.operations
    ]
    return history._replace(operations=operations)


def without(history: History, values: set[int], only_final: bool = False) -> History:
    return with_values(history, lambda op, v: None if v in values and (op.final or not only_final) else v)


def exchanged(history: History, random: Random, pairs: list[tuple[Send, Send]], kinds: set[str]) -> Corrupted:
    if not pairs:
        return None
    a, b = random.choice(pairs)
    swap = {a.value: b.value, b.value: a.value}
    told = {a.value: a._replace(offset=b.offset), b.value: b._replace(offset=a.offset)}
    return with_values(with_sends(history, told), lambda _, v: swap.get(v, v)), kinds
