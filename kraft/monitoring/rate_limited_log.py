"""Log lines that clients cause are short and few: no client can flood a node's log.

    log = rate_limited(logging.getLogger(__name__))

Of warnings and lower levels a logger writes `LINES` in `PERIOD_S`; the first one after that says how many
were left out. A line that quotes a long name is cut. Errors are not limited: they are ours, and the error
boundary counts them.
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
    """Limits one logger. The time is that of the log records themselves."""

    def __init__(self) -> None:
        super().__init__()
        self._since = float("-inf")
        self._written = 0
        self._left_out = 0

    def allows(self, level: int) -> bool:
        """Whether to format the line: one that is left out costs next to nothing."""
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
        text = record.getMessage()
        if len(text) > LONGEST_LINE:
            text = f"{text[:LONGEST_LINE]}..."
        if self._left_out:
            text += f" (and {self._left_out} lines before it were left out)"
            self._left_out = 0
        record.msg, record.args = text, ()
        return True


def rate_limited(log: logging.Logger) -> logging.Logger:
    """The same logger, limited from now on."""
    limit = _RateLimit()
    log.addFilter(limit)
    is_enabled = log.isEnabledFor

    def is_enabled_for(level: int) -> bool:
        return is_enabled(level) and limit.allows(level)

    log.isEnabledFor = is_enabled_for  # type: ignore[method-assign]
    return log
