"""Lies about the histories of an honest log: each changes one as little as it can, and names the anomalies
that must be found."""

from __future__ import annotations

from collections.abc import Callable
from random import Random

from chaos.history import AlteredRecord, History, Operation, Poll, Send
from tests.support.chaos.honest_log import KEYS

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


def exchange_the_writes_of_two_clients(history: History, random: Random) -> Corrupted:
    """The one was acknowledged before the other was sent."""
    sends = acknowledged(history)
    pairs = [
        (a, b)
        for i, a in sends
        for j, b in sends
        if a.key == b.key and history.operations[i].end < history.operations[j].start
    ]
    return exchanged(history, random, pairs, {"backdated-send"})


def begin_behind_where_it_was_assigned(history: History, random: Random) -> Corrupted:
    for index, op in enumerate(history.operations):
        for key in op.starts:
            first = first_poll_after(history, index, key)
            if first is not None and final_log(history, key)[0][0] < first:
                return changed(history, index, starts={**op.starts, key: 0}), {"poll-skip"}
    return None


def first_poll_after(history: History, index: int, key: str) -> int | None:
    """The first offset that the process of an assignment has polled by it."""
    for later in history.operations[index + 1 :]:
        if later.process != history.operations[index].process:
            continue
        if later.f in ("assign", "crash") or key in later.rebalanced:
            return None
        offsets = [
            pairs[0][0]
            for micro in later.ops
            if isinstance(micro, Poll)
            for each, pairs in micro.messages.items()
            if each == key and pairs
        ]
        if offsets:
            return offsets[0]
    return None


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


def hand_out_another_header(history: History, random: Random) -> Corrupted:
    spot = long_poll(history, random, 1)
    if spot is None:
        return None
    index, key = spot
    poll, *rest = history.operations[index].ops
    assert isinstance(poll, Poll)
    altered = [AlteredRecord(key, poll.messages[key][0][0], "headers")]
    return changed(history, index, ops=[poll._replace(altered=altered), *rest]), {"altered-record"}


def tell_an_end_that_went_back(history: History, random: Random) -> Corrupted:
    final_ends = [(i, op) for i, op in enumerate(history.operations) if op.f == "ends"]
    for index, op in final_ends:
        for key, (stable, high) in op.ends.items():
            if final_log(history, key):
                lower = (min(stable, 0), min(high, 0))
                return changed(history, index, ends={**op.ends, key: lower}), {"nonmonotonic-end"}
    return None


def forget_what_a_transaction_committed(history: History, random: Random) -> Corrupted:
    consumed = any(op.txn and op.outcome == "ok" and any(end for _, end in op.txn.consumed.values())
                   for op in history.operations)  # fmt: skip
    [index] = [i for i, op in enumerate(history.operations) if op.f == "committed"]
    return (changed(history, index, committed={}), {"lost-commit"}) if consumed else None


def leave_offsets_of_an_aborted_transaction(history: History, random: Random) -> Corrupted:
    """The group's offset is behind everything, and not everything was copied."""
    [(index, op)] = [(i, op) for i, op in enumerate(history.operations) if op.f == "committed"]
    for key in KEYS:
        log = final_log(history, key)
        if log and log[-1][0] >= op.committed[key]:
            return changed(history, index, committed={**op.committed, key: log[-1][0] + 1}), {"lost-input"}
    return None


def hide_the_tail_from_one_final_reader(history: History, random: Random) -> Corrupted:
    polls = [i for i, op in enumerate(history.operations) if op.process == 91 and op.f == "poll"]
    tails = [(i, k) for i, k, *_ in polled(history) if i in polls]
    if not tails:
        return None
    index, key = tails[-1]
    return with_polls(history, lambda k, p: p[:-1] if k == key else p, index), {"vanished-read"}


LIES = (
    hand_out_another_header,
    tell_an_end_that_went_back,
    forget_what_a_transaction_committed,
    leave_offsets_of_an_aborted_transaction,
    hide_the_tail_from_one_final_reader,
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
    exchange_the_writes_of_two_clients,
    begin_behind_where_it_was_assigned,
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
    moved = {a.value: a._replace(offset=b.offset), b.value: b._replace(offset=a.offset)}
    return with_values(with_sends(history, moved), lambda _, v: swap.get(v, v)), kinds
