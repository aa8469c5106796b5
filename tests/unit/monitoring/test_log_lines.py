"""Log lines as JSON, and settings of the log that are none."""

from __future__ import annotations

import json
import logging
import sys

import pytest

from kraft.monitoring.log_lines import JsonFormatter, set_up
from metadata_quorum.foundation.errors import ExitCode, FatalError
from tests.support.nodes.forks import run_kraft


def record(message: str, *args: object, failed: bool = False) -> logging.LogRecord:
    made = logging.getLogger("kraft.some").makeRecord(
        "kraft.some", logging.WARNING, __file__, 1, message, args, sys.exc_info() if failed else None
    )
    made.created = 1_795_370_463.3061
    return made


def test_a_line_is_one_object() -> None:
    line = JsonFormatter().format(record('two\nlines and a "quote" of %s', "kräft"))
    assert "\n" not in line
    assert json.loads(line) == {
        "time": "2026-11-22T18:01:03.306Z",
        "level": "WARNING",
        "logger": "kraft.some",
        "message": 'two\nlines and a "quote" of kräft',
    }


def test_a_traceback_stays_in_its_line() -> None:
    try:
        _ = 1 // 0
    except ZeroDivisionError:
        line = JsonFormatter().format(record("a bug", failed=True))
    assert "\n" not in line
    assert json.loads(line)["exception"].startswith("Traceback (most recent call last):\n")


@pytest.mark.parametrize("environment", [{"KRAFT_LOG": "LOUD"}, {"KRAFT_LOG_FORMAT": "xml"}])
def test_settings_that_are_none(environment: dict[str, str]) -> None:
    with pytest.raises(FatalError) as refused:
        set_up(environment)
    assert refused.value.exit_code is ExitCode.BAD_CONFIG


def test_a_node_writes_as_it_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("KRAFT_LOG_FORMAT", "xml")
    done = run_kraft("start", "server.properties")
    assert (done.returncode, done.stderr) == (10, "kraft: KRAFT_LOG_FORMAT=xml: text or json\n")
