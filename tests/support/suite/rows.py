"""Feature rows and the tests that prove them.

A test names the rows it drives: `@pytest.mark.row("R4")`. While the suite runs, `RowRecorder`
notes in build/rows.json which tests with rows passed; `python -m tests.support.suite.rows` then lists the
rows of docs/FEATURES.md that no passing test names.
"""

from __future__ import annotations

import json
import re
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[3]
RECORD = ROOT / "build" / "rows.json"
FEATURES = ROOT / "docs" / "FEATURES.md"


class RowRecorder:
    """A pytest plugin. Rows travel with the reports, so that xdist's workers need no file."""

    def __init__(self, *, writes: bool) -> None:
        self._writes = writes
        """False in an xdist worker: the controller sees all reports."""
        self._passed: dict[str, list[str]] = {}
        self._failed: set[str] = set()

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        known = set(rows_of(FEATURES.read_text()))
        for item in items:
            rows = [str(row) for mark in item.iter_markers("row") for row in mark.args]
            if unknown := set(rows) - known:
                raise pytest.UsageError(f"{item.nodeid} names rows that docs/FEATURES.md lacks: {unknown}")
            if rows:
                item.user_properties.append(("rows", sorted(set(rows))))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        rows = dict(report.user_properties).get("rows")
        if not isinstance(rows, list | tuple):
            return
        if report.failed:
            self._failed.add(report.nodeid)
        elif report.when == "call" and report.passed:
            self._passed[report.nodeid] = [str(row) for row in rows]

    def pytest_sessionfinish(self) -> None:
        if not self._writes or not (self._passed or self._failed):
            return
        record: dict[str, list[str]] = json.loads(RECORD.read_text()) if RECORD.exists() else {}
        record.update(self._passed)
        for nodeid in self._failed:
            record.pop(nodeid, None)
        RECORD.parent.mkdir(exist_ok=True)
        RECORD.write_text(json.dumps(record, indent=1, sort_keys=True))


def rows_of(features: str) -> dict[str, str]:
    """Row id -> what a user sees, in the order of the tables."""
    return dict(re.findall(r"^\| ([A-Z]\d+) \| (.*?) \| ", features, re.MULTILINE))


def main() -> int:
    """Print the rows without proof."""
    if not RECORD.exists():
        print("no build/rows.json yet: run `make test test-heavy` first", file=sys.stderr)
        return 1
    rows = rows_of(FEATURES.read_text())
    proven = {row for rows_of_test in json.loads(RECORD.read_text()).values() for row in rows_of_test}
    missing = [row for row in rows if row not in proven]
    for row in missing:
        print(f"{row:<4} {rows[row]}")
    print(f"{len(rows) - len(missing)} of {len(rows)} rows have a passing test; {len(missing)} have none.")
    return 0


if __name__ == "__main__":
    sys.exit(main())
