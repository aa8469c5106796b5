"""What an unclean election may lose is on a ledger: those records, and no other."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from chaos.checker.verdict import Count, Verdict
from chaos.events import EventLog
from chaos.evidence import NS, Evidence
from chaos.history import Header, History, Operation, Poll, Send, TopicMode, write
from chaos.ledger import expected_losses, unclean_elections
from chaos.run_files import CLUSTER, EVENTS, HISTORY

ISRS = ((0, 1, 0, (1, 2)), (3, 1, 0, (1,)), (5, -1, 1, ()), (6, 2, 2, (2,)), (8, 2, 2, (1, 2)))
"""At 3 s node 2 is seen to have left; it is elected at 6 s, when node 1 is dead."""


def send(value: int, at_s: float, key: str = "t-0", offset: int | None = None) -> Operation:
    sent = Send(key, value, value if offset is None else offset)
    return Operation(1, "send", int(at_s * NS), int((at_s + 0.1) * NS), "ok", [sent])


def judged(
    directory: Path, *lost: Operation, unclean: tuple[str, ...] = ("t",), killed_s: int = 2
) -> tuple[Evidence, Verdict]:
    """Values 0 and 99 are read in the end; of the others nothing."""
    kept = [send(0, 0.1), send(99, 9.0, offset=1)]
    final = [
        Operation(2, "assign", 10 * NS, 10 * NS, "ok", keys=("t-0", "u-0"), final=True),
        Operation(2, "poll", 10 * NS, 11 * NS, "ok", [Poll({"t-0": [(0, 0), (1, 99)]})], final=True),
    ]
    modes = {name: TopicMode(1, -1, idempotent=True) for name in "tu"}
    operations = sorted([*kept, *lost], key=lambda operation: operation.end)
    write(directory / HISTORY, History(Header(modes), [*operations, *final]))
    times = iter([killed_s, 4])
    log = EventLog(directory / EVENTS, lambda: next(times) * NS)
    log.begin("kill 2", "follower(t-0) is 2")
    log.begin("kill 1", "leader(t-0) is 1")
    log.close()
    lines = [
        {"time": at * NS, "f": "partition", "key": f"{topic}-0", "leader": leader, "leader_epoch": epoch,
         "isr": isr, "hw": None}
        for at, leader, epoch, isr in ISRS for topic in "tu"
    ]  # fmt: skip
    (directory / CLUSTER).write_text("".join(json.dumps(line) + "\n" for line in lines))
    evidence = Evidence(directory, None)
    evidence.expected_losses = expected_losses(evidence, unclean_elections(evidence, unclean))
    return evidence, evidence.verdict


def test_the_victim_is_who_led_and_the_time_begins_with_the_fault(tmp_path: Path) -> None:
    evidence, _ = judged(tmp_path)
    (entry,) = unclean_elections(evidence, ["t"])
    assert entry == ("t-0", 1, 2, 2 * NS, 6 * NS)
    assert "node 2, away since 2.0 s, was elected at 6.0 s" in str(entry)


def test_what_the_victim_alone_had_is_expected(tmp_path: Path) -> None:
    _, verdict = judged(tmp_path, send(10, 2.5), send(11, 3.5))
    assert verdict.counts["unseen"] == Count(0, 2, expected=2)
    assert {kind for kind, count in verdict.counts.items() if count.forbidden} == set()
    assert verdict.counts["nonmonotonic-send"].expected == 1, "the log was longer before"
    assert verdict.counts["backdated-send"] == Count(0, 1, expected=1), "whoever sends"
    assert all(anomaly.expected for anomaly in verdict.anomalies if anomaly.kind == "unseen")
    assert Verdict.from_dict(verdict.to_dict()).to_dict() == verdict.to_dict()


def test_a_replica_that_falls_behind_before_any_fault_is_away_by_a_look_longer(tmp_path: Path) -> None:
    _, verdict = judged(tmp_path, send(10, 2.5), killed_s=3)
    assert verdict.counts["unseen"] == Count(0, 1, expected=1)


@pytest.mark.parametrize(
    ("lost", "unclean"),
    [
        (send(10, 1.0), ("t",)),  # the elected replica had it
        (send(10, 6.5), ("t",)),  # the elected replica acknowledged it
        (send(10, 3.5, "u-0"), ("t",)),  # of another topic, which allows no such election
        (send(10, 3.5), ()),
    ],
)
def test_nothing_else_is(lost: Operation, unclean: tuple[str, ...], tmp_path: Path) -> None:
    _, verdict = judged(tmp_path, lost, unclean=unclean)
    assert verdict.counts["unseen"] == Count(1, 0)
    assert not verdict.ok
