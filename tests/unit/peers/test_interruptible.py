"""Ctrl-C in the midst of a coroutine's step is raised where it is run, and told once."""

from __future__ import annotations

import asyncio
import gc
import signal
from collections.abc import Callable, Coroutine, Iterator
from typing import Any

import pytest

from kraft.cli.interruption import interrupt
from kraft.peers.interruptible import run


async def interrupted() -> None:
    signal.raise_signal(signal.SIGUSR1)


@pytest.fixture(autouse=True)
def _raised_anywhere() -> Iterator[None]:
    """As a command's handlers do (kraft/cli/interruption.py); asyncio's own for Ctrl-C only cancels."""
    before = signal.signal(signal.SIGUSR1, interrupt)
    yield
    signal.signal(signal.SIGUSR1, before)


async def beside_another() -> None:
    await asyncio.gather(interrupted(), asyncio.sleep(3600.0))


def is_raised(work: Coroutine[Any, Any, None]) -> bool:
    try:
        run(work)
    except KeyboardInterrupt:
        return True
    return False


@pytest.mark.parametrize("work", [interrupted, beside_another])
def test_it_is_told_once(
    work: Callable[[], Coroutine[Any, Any, None]], caplog: pytest.LogCaptureFixture
) -> None:
    assert is_raised(work())
    gc.collect()
    assert caplog.messages == []


def test_other_errors_that_nobody_takes_are_told(caplog: pytest.LogCaptureFixture) -> None:
    async def fails() -> None:
        raise ValueError("nobody takes it")

    async def leaves_it() -> None:
        task = asyncio.create_task(fails())
        await asyncio.wait([task])

    run(leaves_it())
    gc.collect()
    assert ["Task exception was never retrieved" in message for message in caplog.messages] == [True]
