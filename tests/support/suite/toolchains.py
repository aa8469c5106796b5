"""What this machine lacks (Java, Go, a browser, a registry), in one line at the end of the run.

The tests of a whole toolchain skip together; without the line a green run could mean that none of them ran.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable
from typing import Final

import pytest

REASON_CHARS: Final = 100


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    skipped = terminalreporter.stats.get("skipped", [])
    reasons = [report.longrepr[2] for report in skipped]
    if reasons:
        terminalreporter.write_line(not_tested(reasons), yellow=True, bold=True)


def not_tested(reasons: Iterable[str]) -> str:
    """One line: every reason, as far as its first line goes, and how many tests it took out of the run."""
    counts = Counter(
        reason.removeprefix("Skipped: ").strip().partition("\n")[0][:REASON_CHARS] for reason in reasons
    )
    return "not tested here: " + "; ".join(
        f"{reason} ({count} skipped)" for reason, count in counts.most_common()
    )
