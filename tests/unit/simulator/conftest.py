"""Simulated nodes log every fault that they suffer: here nobody reads it."""

from __future__ import annotations

import logging
from collections.abc import Iterator

import pytest


@pytest.fixture(autouse=True)
def silent_nodes() -> Iterator[None]:
    logger = logging.getLogger("metadata_quorum")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.fixture
def silent() -> Iterator[None]:
    """Of clients and clusters that fail on purpose nothing is logged at all."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
