"""How a node's log lines are written: as text, or as JSON objects for log collectors.

    KRAFT_LOG          the lowest level that is written, INFO by default
    KRAFT_LOG_FORMAT   text (the default) or json

Environment variables, because what is wrong with server.properties is logged too.
"""

from __future__ import annotations

import json
import logging
from collections.abc import Mapping
from datetime import UTC, datetime
from typing import Final

from metadata_quorum.foundation.errors import ExitCode, FatalError

LEVEL_VARIABLE: Final = "KRAFT_LOG"
FORMAT_VARIABLE: Final = "KRAFT_LOG_FORMAT"
TEXT_FORMAT: Final = "%(asctime)s.%(msecs)03d %(levelname)s %(name)s: %(message)s"
TEXT_DATE: Final = "%Y-%m-%d %H:%M:%S"


class JsonFormatter(logging.Formatter):
    """One line, whatever is in the message."""

    def format(self, record: logging.LogRecord) -> str:
        at = datetime.fromtimestamp(record.created, UTC)
        line = {
            "time": at.isoformat(timespec="milliseconds").replace("+00:00", "Z"),
            "level": record.levelname,
            "logger": record.name,
            "message": record.getMessage(),
        }
        if record.exc_info:
            line["exception"] = self.formatException(record.exc_info)
        if record.stack_info:
            line["stack"] = self.formatStack(record.stack_info)
        return json.dumps(line)


def set_up(environment: Mapping[str, str]) -> None:
    """Log to standard error. Raises `FatalError` for an unknown level or format."""
    level = environment.get(LEVEL_VARIABLE, "INFO").upper()
    if level not in logging.getLevelNamesMapping():
        raise FatalError(ExitCode.BAD_CONFIG, f"{LEVEL_VARIABLE}={level}: DEBUG, INFO, WARNING or ERROR")
    chosen = environment.get(FORMAT_VARIABLE, "text")
    if chosen not in ("text", "json"):
        raise FatalError(ExitCode.BAD_CONFIG, f"{FORMAT_VARIABLE}={chosen}: text or json")
    handler = logging.StreamHandler()
    handler.setFormatter(JsonFormatter() if chosen == "json" else logging.Formatter(TEXT_FORMAT, TEXT_DATE))
    logging.basicConfig(level=level, handlers=[handler])
