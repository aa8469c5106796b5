"""Errors of a query, under the names of Spark's own Kafka source: a search finds the same advice."""

from __future__ import annotations

from typing import Final

FAIL_ON_DATA_LOSS_ADVICE: Final = (
    "The records were deleted by retention, or their topic was. To go on without them,"
    " set the option 'failOnDataLoss' to 'false'."
)


class OptionError(ValueError):
    """An option is missing, unknown or cannot be meant as it was written; the message names it."""

    def __init__(self, option: str, problem: str) -> None:
        super().__init__(option, problem)
        self.option = option

    def __str__(self) -> str:
        return f"Option '{self.option}': {self.args[1]}"


class ConnectorError(RuntimeError):
    """The query cannot be served. `condition` is the error's name in Spark."""

    def __init__(self, condition: str, problem: str) -> None:
        super().__init__(condition, problem)
        self.condition = condition

    def __str__(self) -> str:
        return f"[{self.condition}] {self.args[1]}"


class SinkError(ConnectorError):
    """Rows cannot be written."""


class SourceError(ConnectorError):
    """Records cannot be read."""


class DataLossError(SourceError):
    """Records of the query's range are deleted, and `failOnDataLoss` is on."""

    def __init__(self, kind: str, problem: str) -> None:
        super().__init__(f"KAFKA_DATA_LOSS.{kind}", problem)
        self.args = (kind, problem)  # what `__init__` takes, so that it can be pickled

    def __str__(self) -> str:
        return f"{super().__str__()} {FAIL_ON_DATA_LOSS_ADVICE}"


class Retry(Exception):
    """Another leader, or the same one later, may succeed. The message becomes the timeout's reason."""
