"""Raft's work beside the loop: done in a thread, noticed on the loop, and never late for a closed node."""

from __future__ import annotations

import asyncio
import threading

from kraft.peers.raft_driver import BackgroundThreads


class Driver:
    def __init__(self) -> None:
        self.woken = asyncio.Event()

    def wake(self) -> None:
        self.woken.set()


def test_work_is_done_in_a_thread_and_noticed_on_the_loop() -> None:
    async def run() -> None:
        beside = BackgroundThreads(asyncio.get_running_loop())
        driver = Driver()
        beside.driver = driver  # type: ignore[assignment]
        here = threading.get_ident()
        noticed: asyncio.Future[tuple[bool, bool]] = asyncio.get_running_loop().create_future()
        beside(
            lambda: threading.get_ident() != here,
            lambda elsewhere: noticed.set_result((elsewhere, threading.get_ident() == here)),
        )
        assert await noticed == (True, True)
        await driver.woken.wait()
        driver.woken.clear()

        def fail(_: None) -> None:
            raise AssertionError("the voter has kept it, and says so at its next tick")

        beside(lambda: None, fail)
        await driver.woken.wait()
        await beside.close()

    asyncio.run(run())


def test_a_closed_node_waits_for_what_runs_and_hears_of_nothing_more() -> None:
    async def run() -> None:
        beside = BackgroundThreads(asyncio.get_running_loop())
        go = threading.Event()
        heard: list[bool] = []
        begun = [asyncio.get_running_loop().create_future() for _ in range(3)]
        for each in begun:
            beside(go.wait, each.set_result)
        beside(lambda: False, heard.append)  # waits for a thread
        closed = asyncio.ensure_future(beside.close())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        assert not closed.done()
        go.set()
        await closed
        assert all(each.done() for each in begun)
        assert heard == []

    asyncio.run(run())
