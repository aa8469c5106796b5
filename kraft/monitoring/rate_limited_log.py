"""What strangers cause is not theirs to write: log lines about their requests are short, and few.

    log = paced(logging.getLogger(__name__))

Of warnings and lesser lines a logger writes `LINES` in `PERIOD_S`; the first one after that says how many
were left out. A line that quotes a long name is cut. Errors pass: they are ours, and the error boundary
counts them.
"""

from __future__ import annotations

import logging
import time
from typing import Final

LINES: Final = 20
PERIOD_S: Final = 10.0
LONGEST_LINE: Final = 300
"""Characters."""


class _RateLimit(logging.Filter):
    """Of one logger. The time is that of the records themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._since = float("-inf")
        self._written = 0
        self._left_out = 0

    def lets_through(self, level: int) -> bool:
        """Whether a line is to be made at all: what is left out costs next to nothing."""
        if level >= logging.ERROR or self._written < LINES or abs(time.time() - self._since) >= PERIOD_S:
            return True
        self._left_out += 1
        return False

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno >= logging.ERROR:
            return True
        if abs(record.created - self._since) >= PERIOD_S:  # also where the clock was set back
            self._since = record.created
            self._written = 0
        self._written += 1
        if self._written > LINES:
            self._left_out += 1
            return False
        said = record.getMessage()
        if len(said) > LONGEST_LINE:
            said = f"{said[:LONGEST_LINE]}..."
        if self._left_out:
            said += f" (and {self._left_out} lines before it were left out)"
            self._left_out = 0
        record.msg, record.args = said, ()
        return True


def rate_limited(log: logging.Logger) -> logging.Logger:
    """The same logger, from now on at that pace."""
    limit = _RateLimit()
    log.addFilter(limit)
    is_enabled = log.isEnabledFor

    def is_enabled_for(level: int) -> bool:
        return is_enabled(level) and limit.lets_through(level)

    log.isEnabledFor = is_enabled_for  # type: ignore[method-assign]
    return log
