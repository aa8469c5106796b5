"""What fails while the machine stands still is run again; what fails while it does not has failed."""

from __future__ import annotations

import ctypes
from types import SimpleNamespace
from typing import Any

import pytest

from tests.support.suite import disturbances
from tests.support.suite.disturbances import ELECTION_S, TRIES, Disturbances, Ticker


class Runs:
    """Of a test: whether each fails, and how late a thread wakes up meanwhile."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, *runs: tuple[bool, float]) -> None:
        self.left = list(runs)
        self.told: list[bool] = []
        monkeypatch.setattr(disturbances, "runtestprotocol", self._run)
        monkeypatch.setattr(disturbances, "Ticker", lambda limit_s: self)
        self.late_s = 0.0

    def _run(self, item: Any, log: bool, nextitem: Any) -> list[Any]:
        has_failed, self.late_s = self.left.pop(0)
        return [SimpleNamespace(failed=False), SimpleNamespace(failed=has_failed)]

    def __enter__(self) -> Runs:
        return self

    def __exit__(self, *_error: object) -> None:
        pass

    def play(self, *limit: float, room: str = "unit") -> bool | None:
        def report(report: Any) -> None:
            self.told.append(report.failed)

        nothing = lambda **_named: None  # noqa: E731
        hooks = SimpleNamespace(
            pytest_runtest_logstart=nothing, pytest_runtest_logfinish=nothing, pytest_runtest_logreport=report
        )
        mark = SimpleNamespace(args=limit) if limit else None
        item: Any = SimpleNamespace(
            ihook=hooks, nodeid=f"tests/{room}/test_it.py::test", location="", user_properties=[],
            get_closest_marker=lambda name: mark,
        )  # fmt: skip
        return Disturbances().pytest_runtest_protocol(item, None)


def test_a_failure_while_nothing_disturbs_it_is_told_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, (True, 0.01), (False, 0.0))
    assert runs.play(0.05)
    assert runs.told == [False, True]
    assert len(runs.left) == 1


def test_a_failure_on_a_machine_that_stood_still_is_not(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, (True, 0.06), (True, 2.0), (False, 2.0), (True, 0.0))
    assert runs.play(0.05)
    assert runs.told == [False, False]
    assert len(runs.left) == 1


def test_but_for_the_last_of_many_tries(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, *[(True, 2.0)] * TRIES)
    assert runs.play(0.05)
    assert runs.told == [False, True]
    assert runs.left == []


def test_other_tests_are_left_to_pytest(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, (True, 2.0))
    assert runs.play() is None
    assert len(runs.left) == 1


def test_of_real_nodes_a_standstill_is_one_in_which_they_elect(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = Runs(monkeypatch, (True, ELECTION_S + 0.1), (True, ELECTION_S - 0.1), (False, 0.0))
    assert runs.play(room="compat")
    assert runs.told == [False, True]
    assert len(runs.left) == 1


def test_a_process_that_stands_still_is_noticed() -> None:
    with Ticker(0.02) as ticker:
        ctypes.PyDLL(None).usleep(60_000)  # with the interpreter's lock
    assert ticker.late_s > 0.04
