"""Tests that take it for granted that the machine does not stand still: where it did, and only there, what
they found proves nothing, and they are run again. Who is run again is named at the end.

    @pytest.mark.real_time(0.05)   a timer in this test may be late by so many seconds

For what waits for a real time that must not be long (a session of a few milliseconds). What can wait for a
condition, or for a virtual clock, does not need it. Tests of real nodes have a mark of `ELECTION_S`: nodes
that stand still for longer elect another controller, and there is hardly a test that this could not disturb.
"""

from __future__ import annotations

import threading
import time
from types import TracebackType
from typing import Final, Self

import pytest
from _pytest.runner import runtestprotocol

TRIES: Final = 10
"""Of a test that fails on a machine that stands still again and again."""
PERIODS_S: Final = (0.002, 0.05)
"""Between two looks at the clock: at least, at most."""
LOOKS_IN_LIMIT: Final = 10
REAL_NODES: Final = ("chaos", "cli", "compat", "robustness", "spark", "users")
"""Below tests/."""
ELECTION_S: Final = 1.0
PROPERTY: Final = "run again"


class Ticker:
    """Meanwhile, how late a thread wakes up at most."""

    def __init__(self, limit_s: float) -> None:
        least_s, most_s = PERIODS_S
        self.late_s = 0.0
        self._period_s = min(max(limit_s / LOOKS_IN_LIMIT, least_s), most_s)
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._tick, name="ticker", daemon=True)

    def _tick(self) -> None:
        before = time.monotonic()
        is_over = False
        while not is_over:
            is_over = self._ended.wait(self._period_s)
            now = time.monotonic()
            self.late_s = max(self.late_s, now - before - self._period_s)
            before = now

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._ended.set()
        self._thread.join()


class Disturbances:
    """A pytest plugin."""

    def __init__(self) -> None:
        self._again: list[str] = []

    @pytest.hookimpl
    def pytest_runtest_protocol(self, item: pytest.Item, nextitem: pytest.Item | None) -> bool | None:
        limit_s = limit_of(item)
        if limit_s is None:
            return None
        item.ihook.pytest_runtest_logstart(nodeid=item.nodeid, location=item.location)
        for left in reversed(range(TRIES)):
            with Ticker(limit_s) as ticker:
                reports = runtestprotocol(item, log=False, nextitem=nextitem)
            has_failed = any(report.failed for report in reports)
            if not has_failed or ticker.late_s <= limit_s or not left:
                break
            item.user_properties.append((PROPERTY, f"{item.nodeid} ({ticker.late_s:.1f} s)"))
        for report in reports:
            item.ihook.pytest_runtest_logreport(report=report)
        item.ihook.pytest_runtest_logfinish(nodeid=item.nodeid, location=item.location)
        return True

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.when == "call":
            self._again += [str(told) for name, told in report.user_properties if name == PROPERTY]

    def pytest_terminal_summary(self, terminalreporter: pytest.TerminalReporter) -> None:
        if self._again:
            told = ", ".join(self._again)
            terminalreporter.write_line(f"run again, for the machine stood still: {told}", yellow=True)


def limit_of(item: pytest.Item) -> float | None:
    """How long the machine may stand still in it; None where that does not matter."""
    marker = item.get_closest_marker("real_time")
    if marker is not None:
        return float(marker.args[0])
    return ELECTION_S if item.nodeid.split("/")[1] in REAL_NODES else None
