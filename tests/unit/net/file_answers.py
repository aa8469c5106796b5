"""A server that answers "file" with a file between other bytes."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from kraft.net.connection import Buffers
from kraft.net.peer import Peer, Reply
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import File
from metadata_quorum.foundation.file_region import FileRegion
from tests.support.may_block import MAY_BLOCK
from tests.unit.net.echo_node import Node

HEAD, TAIL = b"before", b"behind"


class Served:
    """A node that answers "file" with a file between other bytes, and what became of its reads."""

    def __init__(self, running: Node, file: File, content: bytes) -> None:
        self.node = running
        self.unread = running.server.memory.unread
        self.file = file
        self.content = content
        self.failures: list[Exception] = []
        self.started = 0
        self.cold_reads = 0
        self._echo = running.serve
        running.server.services.serve = self.serve

    def serve(self, peer: Peer, frame: memoryview) -> Reply:
        if frame != b"file":
            return self._echo(peer, frame)
        self.started += 1
        region = FileRegion(self.file, 0, len(self.content), self._later, self.failures.append)
        reply: Buffers = (HEAD, region, TAIL)
        return reply

    def _later(self, read: Callable[[MayBlock], bytes | bytearray], /) -> Any:
        self.cold_reads += 1
        return self.node.loop.run_in_executor(None, read, MAY_BLOCK)

    @property
    def answer(self) -> bytes:
        return HEAD + self.content + TAIL
