"""Transactions as coordinators and leaders tell them, and which of them hang."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from kraft.http.transactions_view import SETTLED_MS, transactions

NOW_MS = 1_000_000_000
MAY_ALL: Any = SimpleNamespace(
    may_see_transactional_id=lambda name: True,
    may_see_topic=lambda name: True,
    may_read_topic=lambda name: True,
)


def image(*fenced: bool) -> Any:
    return SimpleNamespace(brokers={i: SimpleNamespace(fenced=each) for i, each in enumerate(fenced, 1)})


def coordinated(name: str, producer_id: int, *, started_ms: int, state: str = "Ongoing") -> dict[str, Any]:
    return {
        "transactional_id": name, "producer_id": producer_id, "producer_epoch": 0, "state": state,
        "started_ms": started_ms, "timeout_ms": 60_000, "partitions": [["t", 0]],
    }  # fmt: skip


def view(*known: dict[str, Any], opened: list[list[int]] = []) -> dict[str, Any]:  # noqa: B006
    return {
        "replicas": [{"topic": "t", "partition": 0, "open_transactions": opened}], "transactions": list(known)
    }  # fmt: skip


def test_one_that_is_open_has_no_problem() -> None:
    views = {
        1: view(coordinated("a", 7, started_ms=NOW_MS - 5000)),
        2: view(opened=[[7, 0, 42, NOW_MS - 5000]]),
    }
    (row,) = transactions(views, image(False, False), MAY_ALL, NOW_MS)
    assert (row["transactional_id"], row["coordinator"], row["open_ms"], row["problem"]) == (
        "a",
        1,
        5000,
        None,
    )
    assert row["partitions"] == [{"topic": "t", "partition": 0, "first_offset": 42}]


def test_one_that_no_coordinator_knows_hangs_and_comes_first() -> None:
    views = {
        1: view(coordinated("a", 7, started_ms=NOW_MS - 5000)),
        2: view(opened=[[7, 0, 42, NOW_MS], [8, 0, 43, NOW_MS - SETTLED_MS]]),
    }
    first, second = transactions(views, image(False, False), MAY_ALL, NOW_MS)
    assert (first["producer_id"], first["transactional_id"]) == (8, None)
    assert "hangs" in first["problem"]
    assert second["problem"] is None


def test_what_may_have_ended_meanwhile_does_not_hang() -> None:
    just_written = {1: view(opened=[[8, 0, 43, NOW_MS - SETTLED_MS + 1]])}
    assert transactions(just_written, image(False), MAY_ALL, NOW_MS) == []


def test_while_a_broker_is_silent_its_transactions_are_not_said_to_hang() -> None:
    views = {1: view(opened=[[8, 0, 43, NOW_MS - 10 * SETTLED_MS]])}
    assert transactions(views, image(False, False), MAY_ALL, NOW_MS) == []
    assert len(transactions(views, image(False, True), MAY_ALL, NOW_MS)) == 1


def test_markers_that_are_not_written_and_timeouts_that_are_over() -> None:
    old = NOW_MS - 60_000 - 3 * SETTLED_MS
    views = {
        1: view(
            coordinated("a", 7, started_ms=old),
            coordinated("b", 8, started_ms=old, state="PrepareCommit"),
            coordinated("c", 9, started_ms=NOW_MS, state="PrepareCommit"),
        )
    }
    problems = {
        row["transactional_id"]: row["problem"] for row in transactions(views, image(False), MAY_ALL, NOW_MS)
    }
    assert "timeout" in problems["a"]
    assert "markers" in problems["b"]
    assert problems["c"] is None


def test_who_may_not_see_does_not() -> None:
    views = {
        1: view(coordinated("a", 7, started_ms=NOW_MS), opened=[[7, 0, 1, 0], [8, 0, 2, 0]]),
    }
    nobody: Any = SimpleNamespace(
        may_see_transactional_id=lambda name: False,
        may_see_topic=lambda name: False,
        may_read_topic=lambda name: False,
    )
    assert transactions(views, image(False), nobody, NOW_MS) == []
