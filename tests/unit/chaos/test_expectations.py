"""What a scenario expects of clients once all is well again, from records that are made up."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.events import CALM, EventLog
from chaos.evidence import NS, Evidence
from chaos.history import Function, Header, History, Operation, Outcome, Poll, Send, TopicMode, write
from chaos.run_files import EVENTS, HISTORY
from chaos.scenarios import expect
from chaos.scenarios.expect import Finding
from chaos.scenarios.table import SCENARIOS

CALM_S = 5


def operation(
    at_s: int, key: str, *, f: Function = "send", outcome: Outcome = "ok", offset: int | None = 7
) -> Operation:
    micro = Poll({key: [[at_s, at_s]]}) if f == "poll" else Send(key, 10 * at_s + int(key[-1]), offset)
    return Operation(1, f, 0, at_s * NS, outcome, [micro])


def found(directory: Path, expectation: expect.Expectation, *operations: Operation) -> Finding:
    """Of a topic of two partitions."""
    write(directory / HISTORY, History(Header({"t": TopicMode(2, -1, transactional=True)}), operations))
    log = EventLog(directory / EVENTS, lambda: CALM_S * NS)
    log.point(CALM)
    log.close()
    return expectation(Evidence(directory, None))


@pytest.mark.parametrize(
    ("last", "missing"),
    [
        (operation(6, "t-1"), ""),
        (operation(6, "t-1", f="txn"), ""),
        (operation(4, "t-1"), "not t-1"),
        (operation(6, "t-0"), "not t-1"),
        (operation(6, "t-1", outcome="info", offset=None), "not t-1"),
        (operation(6, "t-1", f="txn", outcome="fail"), "not t-1"),
    ],
)
def test_a_partition_that_takes_no_write_any_more_is_named(
    tmp_path: Path, last: Operation, missing: str
) -> None:
    """Its topic has acks, the metadata is whole, and all that it holds was read."""
    name = "every partition takes writes after the heal"
    finding = found(tmp_path, expect.takes_writes_again, operation(7, "t-0"), operation(1, "t-1"), last)
    assert finding == Finding(name, not missing, missing or "all 2")


def test_a_partition_that_no_member_is_given_any_more_is_named(tmp_path: Path) -> None:
    before = [Operation(1, "subscribe", 0, 0, "ok"), *(operation(1, key, f="poll") for key in ("t-0", "t-1"))]
    finding = found(tmp_path, expect.is_read_again, *before, operation(6, "t-0", f="poll"))
    assert (finding.ok, finding.detail) == (False, "not t-1")
    finding = found(
        tmp_path, expect.is_read_again, *before, *(operation(6, k, f="poll") for k in ("t-0", "t-1"))
    )
    assert finding.ok


def test_every_scenario_expects_writes_and_those_whose_members_stay_expect_reads() -> None:
    assert all(expect.takes_writes_again in each.all_expectations for each in SCENARIOS.values())
    of_members = {name for name, each in SCENARIOS.items() if expect.is_read_again in each.all_expectations}
    assert of_members == {"coordinator-kill"}
