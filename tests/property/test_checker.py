"""The checker against an independent one, and against logs that are known to be right or wrong.

Random histories of a few operations, most of them impossible: both checkers find the same. Histories of a
simulated log that does what it promises: nothing is found. The same with one lie: the lie is found.
"""

from __future__ import annotations

from collections.abc import Sequence
from random import Random

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from chaos.checker import Verdict, check
from chaos.checker.anomalies import KINDS, MODES
from chaos.history import (
    AlteredRecord,
    Header,
    History,
    HistoryTransaction,
    MicroOperation,
    Operation,
    Poll,
    Send,
    TopicMode,
)
from tests.support.chaos.honest_group import Bug, group_history
from tests.support.chaos.honest_log import honest_history
from tests.support.chaos.lies import LIES
from tests.support.chaos.naive_checker import TABLE, Found, judge
from tests.support.suite.examples import examples

KEYS = ("t-0", "u-0")
SINGLED_OUT_BY = {  # what in an anomaly's detail tells it from others of its kind
    "inconsistent-offsets": ("offset",),
    "send-poll-mismatch": ("offset", "value"),
    "lost-write": ("value",),
    "unseen": ("value",),
    "vanished-read": ("offset", "value", "reader"),
    "offset-gap": ("offset", "reader"),
    "altered-record": ("op", "offset", "what"),
    "nonmonotonic-end": ("op", "end", "least"),
    "lost-commit": ("op", "group", "offset"),
    "group-skip": ("group", "offset"),
    "double-owner": ("op", "group", "generation"),
    "stale-commit": ("op", "group"),
    "phantom": ("offset", "value"),
    "G1a": ("value",),
    "precommitted-read": ("value",),
    "duplicate": ("value",),
    "nonmonotonic-send": ("op",),
    "backdated-send": ("value", "least"),
    "int-nonmonotonic-send": ("op",),
    "int-send-skip": ("op",),
    "G0": ("operations",),
    "poll-skip": ("op", "after", "offset"),
    "nonmonotonic-poll": ("op", "after", "offset"),
    "int-poll-skip": ("op", "after", "offset"),
    "int-nonmonotonic-poll": ("op", "after", "offset"),
    "G1c": ("operations",),
    "double-consume": ("group", "offset", "op"),
    "lost-input": ("group", "offset"),
    "intermediate-read": ("value",),
    "torn-transaction": ("op",),
    "zombie-write": ("op",),
    "hanging-transaction": ("offset",),
}
CYCLES = ("G0", "G1c")  # which partitions a cycle names depends on the way that is shown


@st.composite
def histories(draw: st.DrawFn) -> History:
    """Anything at all, as long as values are unique and processes do one thing after the other."""
    modes = st.builds(
        TopicMode._replace,
        st.sampled_from(list(MODES.values())),
        compacted=st.sampled_from([False, False, True]),
    )
    topics = {"t": draw(modes), "u": draw(modes)}
    functions, keys = draw(st.sampled_from([(FUNCTIONS, KEYS), (OF_READERS, KEYS[:1])]))
    operations: list[Operation] = []
    clock: dict[int, int] = {}
    values = iter(range(100))
    for _ in range(draw(st.integers(0, 9))):
        process = draw(st.integers(0, 2))
        f = draw(st.sampled_from(functions))
        if f in ("ends", "committed"):
            process = 8  # always the same one: the last word counts
        start = draw(st.integers(clock.get(process, 0), 12))
        end = clock[process] = draw(st.integers(start, 12))
        operations.append(
            Operation(
                process,
                f,  # type: ignore[arg-type]
                start,
                end,
                draw(st.sampled_from(["ok", "ok", "ok", "fail", "info"])),  # type: ignore[arg-type]
                [draw(micro(f, keys, values)) for _ in range(draw(st.integers(1, 3)))] if f in MICRO else (),
                final=draw(st.integers(0, 3)) == 0,
                keys=draw(st.lists(st.sampled_from(keys), unique=True)) if f in KEYED else (),
                rebalanced=draw(st.sampled_from([(), (), (), KEYS[:1]])),
                txn=draw(transactions) if f in ("txn", "init") else None,
                uncommitted=f == "poll" and draw(st.booleans()),
                ends=draw(ends) if f == "ends" else {},
                group=draw(st.sampled_from(["g", "g", "h", None])) if f in OF_GROUPS else None,
                generation=draw(generations) if f in ("owned", "commit") else None,
                committed=draw(committed) if f in ("commit", "committed") else {},
                starts=draw(committed) if f == "assign" else {},
            )
        )
    if draw(st.booleans()):
        final = {"start": 12, "end": 12, "outcome": "ok", "final": True}
        assigned = draw(st.lists(st.sampled_from(keys), unique=True))
        operations.append(Operation(9, "assign", keys=assigned, **final))
        operations.append(Operation(9, "poll", ops=[draw(micro("poll", keys, values))], **final))
    return History(Header(topics), operations, torn=draw(st.integers(0, 9)) == 0)


FUNCTIONS = [
    "send", "send", "poll", "poll", "poll", "poll", "txn", "txn", "assign", "crash", "init", "ends",
    "subscribe", "subscribe", "owned", "commit", "committed",
]  # fmt: skip
OF_READERS = ["send", "poll", "poll", "poll", "subscribe", "owned", "commit", "committed", "ends", "txn"]
KEYED = ("assign", "subscribe", "owned")
OF_GROUPS = ("subscribe", "owned", "commit", "committed")
MICRO = {"send": ("send",), "poll": ("poll",), "txn": ("send", "poll")}
OFFSETS = st.integers(0, 4)
generations = st.sampled_from([None, 0, 1])
transactions = st.builds(
    lambda group, low, length, asked: HistoryTransaction("id", group, {"t-0": (low, low + length)}, asked),
    st.sampled_from([None, "g", "g", "h"]),
    OFFSETS,
    OFFSETS,
    st.none() | st.integers(0, 12),
)
committed = st.dictionaries(st.sampled_from(KEYS), OFFSETS, max_size=2)
ends = st.dictionaries(
    st.sampled_from(KEYS), st.tuples(OFFSETS, OFFSETS).map(lambda both: (min(both), max(both))), max_size=2
)


@st.composite
def micro(draw: st.DrawFn, f: str, keys: Sequence[str], values: object) -> MicroOperation:
    key = st.sampled_from(keys)
    if draw(st.sampled_from(MICRO[f])) == "send":
        record_key = draw(st.sampled_from([None, 1, 1]))
        is_failed = draw(st.sampled_from([False, False, True]))
        value: int = next(values)  # type: ignore[call-overload]
        return Send(draw(key), value, draw(st.none() | OFFSETS), record_key, is_failed)
    pairs = st.lists(st.tuples(OFFSETS, st.integers(0, 6)), max_size=3)
    altered = st.builds(AlteredRecord, key, OFFSETS, st.just("headers"))
    return Poll(
        draw(st.dictionaries(key, pairs, max_size=2)),
        draw(st.none() | st.integers(0, 12)),
        draw(st.lists(altered, max_size=1)),
    )


def found(verdict: Verdict) -> list[Found]:
    return sorted(
        (
            (
                a.kind,
                "" if a.kind in CYCLES else a.key,
                a.allowed,
                *(
                    tuple(d) if isinstance(d := a.detail[name], list) else d
                    for name in SINGLED_OUT_BY[a.kind]
                ),
            )
            for a in verdict.anomalies
        ),
        key=repr,
    )


def naively_found(history: History) -> list[Found]:
    return sorted(
        ((kind, "" if kind in CYCLES else key, *rest) for kind, key, *rest in judge(history)), key=repr
    )


@pytest.mark.row("C3")
@settings(max_examples=examples(400), deadline=None)
@given(histories())
def test_both_checkers_find_the_same(history: History) -> None:
    verdict = check(history)
    assert found(verdict) == naively_found(history)
    assert verdict.ok == (not verdict.not_judged and all(allowed for _, _, allowed, *_ in found(verdict)))
    assert Verdict.from_dict(verdict.to_dict()) == verdict


@settings(max_examples=examples(100), deadline=None)
@given(histories(), st.randoms(use_true_random=False))
def test_only_the_order_within_a_process_matters(history: History, random: Random) -> None:
    """Operations of different processes may be recorded in any order: their times tell."""
    waiting: dict[int, list[int]] = {}
    for index, operation in enumerate(history.operations):
        waiting.setdefault(operation.process, []).append(index)
    order = []
    while waiting:
        process = random.choice(list(waiting))
        order.append(waiting[process].pop(0))
        if not waiting[process]:
            del waiting[process]
    shuffled = history._replace(operations=[history.operations[index] for index in order])

    def renamed(anomaly: Found) -> Found:
        kind, key, allowed, *rest = anomaly
        if "op" in SINGLED_OUT_BY[kind]:
            place = SINGLED_OUT_BY[kind].index("op")
            rest[place] = order[rest[place]]
        if kind in CYCLES:
            rest = [tuple(sorted(order[index] for index in rest[0]))]
        if kind == "double-consume":
            rest = rest[:2]  # which of the two came first is no part of the anomaly
        return (kind, key, allowed, *rest)

    def plain(anomaly: Found) -> Found:
        return anomaly[:5] if anomaly[0] == "double-consume" else anomaly

    before = sorted({plain(anomaly) for anomaly in found(check(history))}, key=repr)
    after = sorted({renamed(anomaly) for anomaly in found(check(shuffled))}, key=repr)
    assert before == after


@pytest.mark.row("C3")
@settings(max_examples=examples(100), deadline=None)
@given(st.sampled_from(list(MODES)), st.integers(0, 2**32))
def test_nothing_is_found_in_the_history_of_an_honest_log(mode: str, seed: int) -> None:
    verdict = check(honest_history(MODES[mode], Random(seed)))
    assert {a.kind for a in verdict.anomalies} <= {"int-send-skip", "G0"}, verdict.anomalies
    assert verdict.ok
    assert not verdict.not_judged


@pytest.mark.row("C3")
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@settings(max_examples=examples(25), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_a_single_lie_is_found(lie: object, seed: int) -> None:
    random = Random(seed)
    history = honest_history(TopicMode(1, -1, idempotent=True, transactional=True), random)
    corrupted = lie(history, random)  # type: ignore[operator]
    assume(corrupted is not None)
    history, kinds = corrupted
    verdict = check(history)
    assert not verdict.ok
    assert kinds <= {a.kind for a in verdict.anomalies if not a.allowed}


@pytest.mark.row("C3")
@settings(max_examples=examples(50), deadline=None)
@given(seed=st.integers(0, 2**32))
def test_nothing_is_found_in_the_history_of_an_honest_group(seed: int) -> None:
    verdict = check(group_history(Random(seed)))
    assert verdict.ok, (verdict.anomalies, verdict.not_judged)
    assert not verdict.anomalies


@pytest.mark.row("C3")
@pytest.mark.parametrize(
    ("bug", "kind"),
    [
        ("forget-commits", "lost-commit"),
        ("skip-a-record", "group-skip"),
        ("two-owners", "double-owner"),
        ("take-late-commits", "stale-commit"),
    ],
)
def test_a_group_that_breaks_a_promise_is_found(bug: Bug, kind: str) -> None:
    seeds = range(40)
    found = [seed for seed in seeds if kind in check(group_history(Random(seed), bug)).counts]
    assert len(found) > len(seeds) / 4  # it does not show in every history


def test_the_tables_of_both_checkers_agree() -> None:
    columns = ("acks=0", "acks=1", "acks=all", "idempotent")
    assert {
        kind.name: "".join("NY"[kind.tolerated(MODES[mode])] for mode in columns) for kind in KINDS
    } == TABLE
