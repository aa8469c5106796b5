"""Simulated nodes log every fault that they suffer: here nobody reads it."""

from __future__ import annotations

import gc
import logging
from collections.abc import Iterator

import pytest

from chaos.simulator.run import unbegun_is_no_mistake


@pytest.fixture(autouse=True)
def silent_nodes() -> Iterator[None]:
    logger = logging.getLogger("metadata_quorum")
    before = logger.level
    logger.setLevel(logging.CRITICAL)
    yield
    logger.setLevel(before)


@pytest.fixture(autouse=True)
def only_its_own_garbage() -> Iterator[None]:
    """A run collects garbage four times, and looks at whatever earlier tests of this worker keep alive each
    time: that took more than a third of the seeds' time. What a killed node leaves behind goes with its test,
    or with the fixtures of that test's module."""
    collect()
    gc.freeze()
    yield
    collect()


def collect() -> None:
    with unbegun_is_no_mistake():
        gc.collect()


@pytest.fixture
def silent() -> Iterator[None]:
    """Of clients and clusters that fail on purpose nothing is logged at all."""
    logging.disable(logging.CRITICAL)
    yield
    logging.disable(logging.NOTSET)
