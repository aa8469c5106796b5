"""A verdict as text and as JSON; more anomalies than one wants to read."""

from __future__ import annotations

import json

import pytest

from chaos.checker import Verdict, check
from chaos.checker.anomalies import KINDS, markdown
from chaos.checker.text import NOT_ALL_JUDGED, lines
from chaos.checker.verdict import SHOWN_PER_KIND_AND_KEY
from chaos.history import Header, History, Operation, Poll, Send, TopicMode


def history(acks: int, lost: int) -> History:
    """One value that is read, and many behind it that are not."""
    sends = [Operation(1, "send", n, n, "ok", [Send("t-0", n, n)]) for n in range(lost + 1)]
    final = [
        Operation(2, "assign", lost, lost, "ok", final=True, keys=["t-0"]),
        Operation(2, "poll", lost, lost, "ok", [Poll({"t-0": [(0, 0)]})], final=True),
    ]
    return History(Header({"t": TopicMode(1, acks)}), [*sends, *final])


def test_a_verdict_reads_as_text() -> None:
    assert lines(check(history(acks=-1, lost=1))) == [
        "4 operations on 1 partitions: 4 ok, 0 failed, 0 unknown",
        "2 values sent, 2 acknowledged, 1 read",
        "forbidden: unseen (1): An acknowledged value was in no successful poll, "
        "not even in one of the final phase.",
        "  value 1 was acknowledged to process 1 at offset 1 of t-0 (op 1); no successful poll returned it, "
        "and the final read ended at 0",
        "FORBIDDEN: 1 unseen",
    ]


def test_what_is_tolerated_is_shown_too() -> None:
    text = lines(check(history(acks=1, lost=1)))
    assert text[2].startswith("tolerated: unseen (1): ")
    assert text[-1] == "no forbidden anomaly"


def test_what_was_not_judged_is_said() -> None:
    cut_short = history(acks=-1, lost=1)
    verdict = check(cut_short._replace(operations=cut_short.operations[:-2]))
    assert not verdict.ok, "nobody knows"
    text = lines(verdict)
    assert (
        "not judged: unseen, vanished-read, offset-gap, phantom, group-skip: the history has no final phase"
        in text
    )
    assert text[-1] == NOT_ALL_JUDGED


def test_of_many_anomalies_all_are_counted_and_some_are_shown() -> None:
    lost = SHOWN_PER_KIND_AND_KEY + 10
    verdict = check(history(acks=-1, lost=lost))
    assert verdict.counts["unseen"].forbidden == lost
    assert len(verdict.anomalies) == SHOWN_PER_KIND_AND_KEY
    assert "  and 10 more" in lines(verdict)


def test_a_verdict_survives_json() -> None:
    verdict = check(history(acks=-1, lost=3))
    assert Verdict.from_dict(json.loads(json.dumps(verdict.to_dict()))) == verdict


def test_a_value_that_is_sent_twice_leaves_nothing_to_judge() -> None:
    twice = history(acks=-1, lost=1)
    with pytest.raises(ValueError, match="value 0 is sent by op 0 and by op 4"):
        check(twice._replace(operations=[*twice.operations, twice.operations[0]]))


def test_a_topic_without_a_mode_cannot_be_judged() -> None:
    with pytest.raises(ValueError, match="t-0 is of no topic"):
        check(history(acks=-1, lost=1)._replace(header=Header({"u": TopicMode(1, -1)})))


def test_the_table_for_the_documentation_has_a_line_per_anomaly() -> None:
    table = markdown()
    assert [line.split(" | ")[0].removeprefix("| ") for line in table[2:]] == [kind.name for kind in KINDS]
    assert {line.count("|") for line in table} == {8}
