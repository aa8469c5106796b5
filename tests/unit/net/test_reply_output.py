"""Replies on their way out: of what is in files only the piece is in memory that a socket is being given."""

from __future__ import annotations

import asyncio
import errno
import os
import random
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from kraft.net.listener import OPEN, ServerLimits
from kraft.net.peer import Peer, Reply
from kraft.net.unread import LEAST_BYTES, MOST_BYTES
from metadata_quorum.foundation.disk import File, OsDisk
from tests.unit.net.echo_node import framed, node
from tests.unit.net.file_answers import Served
from tests.unit.net.harness import on_a_loop, until

pytestmark = pytest.mark.row("P7")

MIB = 1024 * 1024
SIZE = 12 * MIB


@asynccontextmanager
async def serving_a_file(tmp_path: Path, limits: ServerLimits | None = None) -> AsyncIterator[Served]:
    content = random.Random(1).randbytes(SIZE)
    (tmp_path / "log").write_bytes(content)
    file = OsDisk().open(str(tmp_path / "log"))
    async with node(limits, OPEN=OPEN) as running:
        yield Served(running, file, content)
    file.close()


@on_a_loop
async def test_files_and_other_bytes_leave_in_order(tmp_path: Path):
    async with serving_a_file(tmp_path) as served:
        reader, writer = await served.node.connect("OPEN")
        writer.write(framed(b"file") + framed(b"x") + framed(b"file"))
        expected = served.answer + framed(b"x") + served.answer
        assert await reader.readexactly(len(expected)) == expected
        writer.write(framed(b"y"))
        assert await reader.readexactly(5) == framed(b"y")
        assert served.unread.held_bytes == 0


@on_a_loop
async def test_what_the_page_cache_does_not_have_is_read_outside_the_loop(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    async with serving_a_file(tmp_path) as served:
        monkeypatch.setattr(type(served.file), "read_cached", lambda self, offset, length: None)
        reader, writer = await served.node.connect("OPEN")
        writer.write(framed(b"file") + framed(b"x"))
        expected = served.answer + framed(b"x")
        assert await reader.readexactly(len(expected)) == expected
        assert served.cold_reads >= SIZE // MOST_BYTES


@on_a_loop
async def test_who_reads_nothing_holds_no_more_than_a_piece(tmp_path: Path):
    limits = ServerLimits(max_unread_bytes=4 * MIB)
    clients = 40
    async with serving_a_file(tmp_path, limits) as served:
        streams = [await served.node.connect("OPEN") for _ in range(clients)]
        for _, writer in streams:
            writer.transport.pause_reading()
            writer.write(framed(b"file") * 3)
        await until(lambda: served.started == clients)
        for _ in range(500):
            await asyncio.sleep(0)
        assert served.started == clients  # of each one answer, whatever else it asks for
        assert served.unread.held_bytes <= 4 * MIB + clients * LEAST_BYTES
        reader, writer = streams[0]
        writer.transport.resume_reading()
        for _ in range(3):
            assert await reader.readexactly(len(served.answer)) == served.answer


@on_a_loop
async def test_a_file_that_became_shorter_ends_the_connection(tmp_path: Path):
    async with serving_a_file(tmp_path) as served:
        served.file.truncate(MIB)
        reader, writer = await served.node.connect("OPEN")
        writer.write(framed(b"file"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(len(served.answer))
        assert served.failures == []


@on_a_loop
async def test_a_disk_that_fails_is_reported_and_ends_the_connection(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    def fails(self: File, offset: int, length: int) -> bytes:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    async with serving_a_file(tmp_path) as served:
        monkeypatch.setattr(type(served.file), "read_cached", fails)
        monkeypatch.setattr(type(served.file), "read", fails)
        reader, writer = await served.node.connect("OPEN")
        writer.write(framed(b"file"))
        with pytest.raises((asyncio.IncompleteReadError, ConnectionError)):
            await reader.readexactly(len(served.answer))
        assert [type(each) for each in served.failures] == [OSError]


@on_a_loop
async def test_replies_that_wait_for_an_earlier_one_are_counted():
    limits = ServerLimits(max_unread_bytes=4 * MIB)
    async with node(limits, OPEN=OPEN) as running:
        started = 0
        echo = running.serve

        def serve(peer: Peer, frame: memoryview) -> Reply:
            nonlocal started
            if frame != b"large":
                return echo(peer, frame)
            started += 1
            return (bytes(100_000),)

        running.server.services.serve = serve
        unread = running.server.memory.unread
        clients = [await running.connect("OPEN") for _ in range(8)]
        for _, writer in clients:
            writer.write(framed(b"wait") + framed(b"large") * 30)
        await until(lambda: len(running.waiting) == len(clients))
        for _ in range(100):
            await asyncio.sleep(0)
        assert unread.held_bytes <= MIB + len(clients) * 200_000
        assert started < 8 * 30
        for each in running.waiting:
            each.set_result((b"done",))
        for reader, _ in clients:
            assert len(await reader.readexactly(4 + 30 * 100_000)) > 0
        assert unread.held_bytes == 0


@on_a_loop
async def test_who_reads_nothing_makes_room_when_that_is_scarce(tmp_path: Path):
    limits = ServerLimits(max_unread_bytes=MIB, max_idle_s=1.0)  # looked at ten times as often
    clients = 48
    async with serving_a_file(tmp_path, limits) as served:
        for _ in range(clients):
            _, writer = await served.node.connect("OPEN")
            writer.transport.pause_reading()
            writer.write(framed(b"file"))
        await until(lambda: served.node.server.connections.closed["OPEN"])
        await until(lambda: not served.unread.is_scarce)
        while served.node.server.connections:
            for each in list(served.node.server.connections):
                each.abort()
            await asyncio.sleep(0)
        assert served.unread.held_bytes == 0
