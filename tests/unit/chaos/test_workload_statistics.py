"""What a workload tells of itself while it runs."""

from __future__ import annotations

from dataclasses import replace

import pytest

from chaos.history import Function, MicroOperation, Operation, Outcome, Poll, Send
from chaos.workload import TopicSpec
from chaos.workload.final import bounds_of
from chaos.workload.statistics import Statistics

MS = 1_000_000


def send(end_ms: int, *sends: Send, outcome: Outcome = "ok", took_ms: int = 1) -> Operation:
    ops: list[MicroOperation] = list(sends)
    return Operation(0, "send", (end_ms - took_ms) * MS, end_ms * MS, outcome, ops)


@pytest.fixture
def statistics() -> Statistics:
    measured = Statistics()
    for operation in (
        send(100, Send("one-0", 1, 0)),
        send(200, Send("one-1", 2, 0), Send("all-0", 3, 0), took_ms=7),
        send(900, Send("one-0", 4, 1)),
        send(950, Send("all-0", 5), outcome="info"),
        send(960, Send("all-0", 6, 9), Send("all-0", 7), outcome="info"),
        Operation(1, "poll", 0, 990 * MS, "ok", [Poll({"one-0": [[0, 1], [1, 4]], "all-0": []})]),
    ):
        measured.note(operation)
    return measured


def test_a_gap_is_the_longest_time_without_an_ack_of_that_topic(statistics: Statistics):
    assert statistics.gap_ns("one", 0, 1_000 * MS) == 700 * MS
    assert statistics.gap_ns("one", 850 * MS, 1_000 * MS) == 100 * MS
    assert statistics.gap_ns("one", 300 * MS, 800 * MS) == 500 * MS  # none at all in there
    # Of an operation of unknown outcome, what was acknowledged counts, and no more.
    assert statistics.gap_ns("all", 0, 1_000 * MS) == 760 * MS
    assert statistics.gap_ns("never written", 5, 9) == 4


def test_in_a_transaction_nothing_is_acknowledged_before_it_is_committed() -> None:
    """However long its records are taken: one that can never be committed is no progress."""
    measured = Statistics()
    for end_ms, outcome in ((100, "ok"), (200, "fail"), (300, "info"), (900, "ok")):
        sent = send(end_ms, Send("txn-0", end_ms, end_ms), outcome=outcome)  # type: ignore[arg-type]
        measured.note(sent._replace(f="txn"))
    assert measured.gap_ns("txn", 0, 900 * MS) == 800 * MS
    assert measured.acks("txn", 0, 900 * MS) == 2
    assert measured.last_acks() == {"txn-0": 900 * MS}


def test_what_members_were_given() -> None:
    measured = Statistics()

    def note(process: int, f: Function, end_ms: int, *keys: str) -> None:
        ops = [Poll({"silent-0": [], **{key: [[end_ms, end_ms]] for key in keys}})] if keys else []
        measured.note(Operation(process, f, 0, end_ms * MS, "ok", ops))

    note(1, "subscribe", 1)
    note(1, "poll", 2, "t-0", "t-1")
    note(2, "poll", 3, "t-0")  # it is no member
    note(1, "poll", 4, "t-1")
    note(1, "assign", 5)
    note(1, "poll", 6, "t-0")  # nor is this one any more
    assert measured.last_given() == {"t-0": 2 * MS, "t-1": 4 * MS}


def test_outcomes_acks_and_latencies_are_those_of_the_window(statistics: Statistics):
    assert statistics.outcomes("all", 0, 1_000 * MS) == {"ok": 1, "info": 2}
    assert statistics.outcomes("all", 0, 300 * MS) == {"ok": 1}
    assert statistics.acks("one", 0, 500 * MS) == 2
    assert statistics.latencies("send", "one", 0, 1_000 * MS) == [MS, MS, 7 * MS]
    assert statistics.latencies("poll", "one", 0, 1_000 * MS) == [990 * MS]


def test_how_far_each_key_is_known_to_reach(statistics: Statistics):
    assert statistics.highest_acked() == {"one-0": 1, "one-1": 0, "all-0": 9}
    assert statistics.highest_polled() == {"one-0": 1}


def test_the_final_read_continues_to_what_is_there_for_good_or_where_losses_are_meant_to_the_end(
    statistics: Statistics,
):
    """An unclean election leaves a log that may end, for good, before what was acknowledged in it."""
    topics = (TopicSpec("one", acks=1), TopicSpec("all", partitions=1))
    assert bounds_of(topics, statistics) == {"one-0": 2, "one-1": 0, "all-0": 10}
    unclean = [replace(each, settings={"unclean.leader.election.enable": "true"}) for each in topics]
    assert bounds_of(unclean, statistics) == {"one-0": 0, "one-1": 0, "all-0": 0}
    assert bounds_of((topics[0], unclean[1]), statistics) == {"one-0": 2, "one-1": 0, "all-0": 0}
