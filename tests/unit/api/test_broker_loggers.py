"""Levels of loggers as a configuration."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest

from kraft.api import broker_loggers
from kraft.api.broker_loggers import LevelChange
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.protocol.commands import CONFIG_APPEND, CONFIG_DELETE, CONFIG_SET

NAME = "test_broker_loggers"


@pytest.fixture(autouse=True)
def logger() -> Iterator[logging.Logger]:
    logger = logging.getLogger(NAME)
    yield logger
    logger.setLevel(logging.NOTSET)


def test_a_level_is_given_and_taken_back(logger: logging.Logger) -> None:
    inherited = dict(broker_loggers.levels())
    assert inherited[NAME] == inherited["root"]
    broker_loggers.alter([LevelChange(NAME, CONFIG_SET, "TRACE")], validate_only=True)
    assert logger.level == logging.NOTSET
    broker_loggers.alter([LevelChange(NAME, CONFIG_SET, "TRACE")], validate_only=False)
    assert dict(broker_loggers.levels())[NAME] == "TRACE"
    broker_loggers.alter([LevelChange(NAME, CONFIG_DELETE, None)], validate_only=False)
    assert dict(broker_loggers.levels()) == inherited


@pytest.mark.parametrize(
    ("wrong", "code"),
    [
        (LevelChange("no.such.logger", CONFIG_SET, "INFO"), ErrorCode.INVALID_CONFIG),
        (LevelChange(NAME, CONFIG_SET, "LOUD"), ErrorCode.INVALID_CONFIG),
        (LevelChange(NAME, CONFIG_SET, None), ErrorCode.INVALID_CONFIG),
        (LevelChange(NAME, CONFIG_APPEND, "INFO"), ErrorCode.INVALID_REQUEST),
        (LevelChange("root", CONFIG_DELETE, None), ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_cannot_be_changes_nothing(logger: logging.Logger, wrong: LevelChange, code: ErrorCode) -> None:
    with pytest.raises(BrokerError) as refused:
        broker_loggers.alter([LevelChange(NAME, CONFIG_SET, "DEBUG"), wrong], validate_only=False)
    assert refused.value.code is code
    assert logger.level == logging.NOTSET


@pytest.mark.parametrize("name", ["", "2"])
def test_a_node_speaks_for_itself_only(name: str) -> None:
    with pytest.raises(BrokerError):
        broker_loggers.check_node(name, 1)
