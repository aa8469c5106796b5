"""`kraft quorum status`: what it makes of DescribeQuorum."""

from __future__ import annotations

from types import SimpleNamespace

import pytest

from kraft.cli import quorum, survey
from kraft.cli.survey import Survey


def test_when_a_voter_had_caught_up_is_told_by_the_leader_s_clock(
    monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Which stands at 1970 here."""
    caught_up = {1: 60_000, 2: 59_750, 3: -1}
    voters = [
        SimpleNamespace(replica_id=node_id, log_end_offset=7, last_caught_up_timestamp=at)
        for node_id, at in caught_up.items()
    ]
    described = SimpleNamespace(
        leader_id=1, leader_epoch=4, high_watermark=7, current_voters=voters, observers=[]
    )
    found = Survey({("127.0.0.1", 9092): SimpleNamespace()}, quorum=described)  # type: ignore[arg-type,dict-item]
    monkeypatch.setattr(survey, "survey", lambda _: found)
    quorum.status("127.0.0.1:9092")
    rows = capsys.readouterr().out.splitlines()[-3:]
    assert [row.split("0", 1)[1].strip() for row in rows] == ["0 ms ago", "250 ms ago", "unknown"]
