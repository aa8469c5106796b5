"""Coroutines run by code that has no event loop, where a signal may raise KeyboardInterrupt anywhere.

For commands: `asyncio.run`, but for what Ctrl-C would leave half done or report a second time.
"""

from __future__ import annotations

import asyncio
from collections.abc import Coroutine
from typing import Any, TypeVar

from kraft.peers.held_signals import signals_wait

T = TypeVar("T")


class _WholeEventLoop(asyncio.SelectorEventLoop):
    """An event loop that Ctrl-C never leaves half closed: such a one prints a traceback when it is collected,
    behind the program's own last words."""

    def close(self) -> None:
        with signals_wait():
            super().close()

    def call_exception_handler(self, context: dict[str, Any]) -> None:
        """A task in whose midst Ctrl-C came has raised it out of the loop already."""
        if not isinstance(context.get("exception"), KeyboardInterrupt):
            super().call_exception_handler(context)


def run(main: Coroutine[Any, Any, T]) -> T:
    """As `asyncio.run`."""
    runner = asyncio.Runner(loop_factory=_WholeEventLoop)
    try:
        with signals_wait():
            runner.get_loop()  # makes it; nor is it left half made
        return runner.run(main)
    finally:
        runner.close()
        main.close()  # Ctrl-C may come before the coroutine starts
