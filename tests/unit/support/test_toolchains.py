"""The line that says what this machine lacks."""

from __future__ import annotations

from tests.support.suite.toolchains import not_tested


def test_a_missing_toolchain_is_one_part_of_one_line():
    reasons = ["Skipped: no go on PATH", "Skipped: no java on PATH", "Skipped: no java on PATH"]
    summary = not_tested([*reasons, "Skipped: mvn could not fetch Apache Kafka: timed out\n  at line 3\n"])
    assert summary == (
        "not tested here: no java on PATH (2 skipped); no go on PATH (1 skipped); "
        "mvn could not fetch Apache Kafka: timed out (1 skipped)"
    )
