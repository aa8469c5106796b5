"""Connections that end at any moment give back all that they held."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable
from pathlib import Path

import pytest

from kraft.net.listener import OPEN, ServerLimits
from kraft.net.peer import Peer, Reply
from metadata_quorum.foundation.disk import OsDisk
from tests.unit.net.echo_node import Node, framed, node
from tests.unit.net.file_answers import Served
from tests.unit.net.harness import on_a_loop, until

pytestmark = pytest.mark.row("P7")

MIB = 1024 * 1024
CONNECTIONS = 150


class Hasty:
    """Requests of every kind, and connections that end in the midst of them, by either side."""

    def __init__(self, running: Node, seed: int) -> None:
        self.node = running
        self.rng = random.Random(seed)
        self.tasks: set[asyncio.Task[tuple[bytes, ...]]] = set()
        self._serve = running.server.services.serve
        running.server.services.serve = self.serve

    def serve(self, peer: Peer, frame: memoryview) -> Reply:
        if frame != b"task":
            return self._serve(peer, frame)
        started = peer.started()
        started.charge(1000)
        if self.rng.random() < 0.5:
            started.answer_first()
        if self.rng.random() < 0.3:
            started.pause_others()
        task = self.node.loop.create_task(self._later())
        self.tasks.add(task)
        task.add_done_callback(self.tasks.discard)
        return task

    async def _later(self) -> tuple[bytes, ...]:
        for _ in range(self.rng.randrange(50)):
            await asyncio.sleep(0)
        return (bytes(self.rng.randrange(200_000)),)

    def bytes_of_requests(self) -> bytes:
        kinds: list[Callable[[], bytes]] = [
            lambda: framed(b"file"),
            lambda: framed(b"task"),
            lambda: framed(b"wait"),
            lambda: framed(bytes(self.rng.randrange(1, 300_000))),
            lambda: framed(b"file")[:6],
            lambda: (10 * MIB).to_bytes(4, "big") + bytes(self.rng.randrange(600_000)),
        ]
        return b"".join(self.rng.choice(kinds)() for _ in range(self.rng.randrange(1, 12)))

    async def one_comes_and_one_goes(self) -> None:
        _, writer = await self.node.connect("OPEN")
        if self.rng.random() < 0.7:
            writer.transport.pause_reading()
        writer.write(self.bytes_of_requests())
        for _ in range(self.rng.randrange(8)):
            await asyncio.sleep(0)
        if self.rng.random() < 0.3:
            self.answer_waiting()
        if self.rng.random() < 0.6:
            self.rng.choice(self.node.writers).transport.abort()
        here = list(self.node.server.connections)
        if here and self.rng.random() < 0.2:
            self.rng.choice(here).abort()

    def answer_waiting(self) -> None:
        for each in self.node.waiting:
            if not each.done():
                each.set_result((b"done",))


@pytest.mark.parametrize("seed", range(2))
@on_a_loop
async def test_all_that_they_held_is_given_back(tmp_path: Path, seed: int):
    content = bytes(3 * MIB)
    (tmp_path / "log").write_bytes(content)
    file = OsDisk().open(str(tmp_path / "log"))
    limits = ServerLimits(max_unread_bytes=4 * MIB, max_queued_bytes=2 * MIB)
    async with node(limits, OPEN=OPEN) as running:
        Served(running, file, content)
        hasty, memory = Hasty(running, seed), running.server.memory
        for _ in range(CONNECTIONS):
            await hasty.one_comes_and_one_goes()
        for writer in running.writers:
            writer.transport.abort()

        def all_gone() -> bool:
            hasty.answer_waiting()
            return not len(running.server.connections) and not hasty.tasks

        await until(all_gone)
        assert (memory.queued["OPEN"].used_bytes, memory.unread.held_bytes) == (0, 0)
    file.close()
