"""Levels of a node's loggers as its configuration: `kafka-configs --entity-type broker-loggers`.

    api/configs -> here -> Python's logging, in this process; nothing is kept beyond it, as in Kafka

Names are those of our modules; `root` stands for what has no level of its own. A level that was given is
taken back by deleting it.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from typing import Final, NamedTuple

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.protocol.commands import CONFIG_DELETE, CONFIG_SET

ROOT: Final = "root"
LEVELS: Final = {
    "FATAL": logging.CRITICAL,
    "ERROR": logging.ERROR,
    "WARN": logging.WARNING,
    "INFO": logging.INFO,
    "DEBUG": logging.DEBUG,
    "TRACE": 5,
}
"""Kafka's levels, in Python's numbers."""


class LevelChange(NamedTuple):
    """One entry of IncrementalAlterConfigs."""

    name: str
    operation: int
    value: str | None


def check_node(name: str, node_id: int) -> None:
    """A node changes and describes only its own loggers. Raises `BrokerError`."""
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Broker id must not be empty")
    if name != str(node_id):
        message = f"Unexpected broker id, expected {node_id} but received {name}"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)


def levels() -> Iterator[tuple[str, str]]:
    """Every logger with the level that counts for it."""
    names = [name for name, known in logging.root.manager.loggerDict.items() if _is_logger(known)]
    for name in (ROOT, *sorted(names)):
        yield name, _level_name(_logger(name).getEffectiveLevel())


def alter(changes: list[LevelChange], *, validate_only: bool) -> None:
    """All of them or, where `BrokerError` is raised, none."""
    for change in changes:
        _check(change)
    if not validate_only:
        for name, operation, value in changes:
            _logger(name).setLevel(LEVELS[value or ""] if operation == CONFIG_SET else logging.NOTSET)


def _check(change: LevelChange) -> None:
    name, operation, value = change
    if operation not in (CONFIG_SET, CONFIG_DELETE):
        message = "Only SET and DELETE are allowed for the BROKER_LOGGER resource"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)
    if name != ROOT and not _is_logger(logging.root.manager.loggerDict.get(name)):
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Logger {name} does not exist!")
    if operation == CONFIG_SET and value not in LEVELS:
        message = (
            f"Cannot set the log level of {name} to {value} as it is not a supported log level. "
            f"Valid log levels are {', '.join(LEVELS)}"
        )
        raise BrokerError(ErrorCode.INVALID_CONFIG, message)
    if operation == CONFIG_DELETE and name == ROOT:
        message = "Removing the log level of the root logger is not allowed"
        raise BrokerError(ErrorCode.INVALID_REQUEST, message)


def _logger(name: str) -> logging.Logger:
    return logging.root if name == ROOT else logging.getLogger(name)


def _is_logger(known: object) -> bool:
    """Whether it is a logger, and not only a name in the tree between two loggers."""
    return isinstance(known, logging.Logger)


def _level_name(level: int) -> str:
    """The name of the nearest level at or below it."""
    return max((known, name) for name, known in LEVELS.items() if known <= max(level, LEVELS["TRACE"]))[1]
