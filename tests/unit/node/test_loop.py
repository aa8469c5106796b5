"""The event loop of a node where uvloop is not installed."""

from __future__ import annotations

import asyncio
import socket
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from kraft.node.serve import RESOLVER_THREADS, new_loop

WITHIN_S = 30.0


def test_names_that_nobody_answers_for_hold_up_nothing_else(monkeypatch: pytest.MonkeyPatch) -> None:
    """A silent name server: the threads that read logs have other work."""
    monkeypatch.setitem(sys.modules, "uvloop", None)
    answered = threading.Event()
    asked: list[str] = []

    def silent(host: str, *_: Any, **__: Any) -> list[Any]:
        asked.append(host)
        answered.wait(WITHIN_S)
        raise socket.gaierror(socket.EAI_AGAIN, "try again")

    monkeypatch.setattr(socket, "getaddrinfo", silent)

    async def test() -> None:
        loop = asyncio.get_running_loop()
        loop.set_default_executor(ThreadPoolExecutor(RESOLVER_THREADS))
        dialling = [
            loop.create_task(loop.create_connection(asyncio.Protocol, f"host-{n}", 9092))
            for n in range(2 * RESOLVER_THREADS)
        ]
        while len(asked) < RESOLVER_THREADS:  # noqa: ASYNC110 - what is waited for has no event
            await asyncio.sleep(0)
        assert await asyncio.wait_for(loop.run_in_executor(None, len, "done"), WITHIN_S / 2) == 4
        answered.set()
        failed = await asyncio.gather(*dialling, return_exceptions=True)
        assert all(isinstance(each, socket.gaierror) for each in failed)

    with asyncio.Runner(loop_factory=new_loop) as runner:
        try:
            runner.run(test())
        finally:
            answered.set()
