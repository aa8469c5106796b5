"""A broker of one partition that answers as a test tells it to: what a healthy one does only by chance."""

from __future__ import annotations

import socket
import socketserver
import threading
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from typing import Any
from uuid import UUID

from kraft.local.free_ports import HOST
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_request, encode_response
from kraft.wire.fast_fetch import FetchedPartition, FetchResponse, write_fetch_response
from kraft.wire.fast_fetch_request import read_fetch_request
from kraft.wire.header import read_request_header, response_prefix
from metadata_quorum.foundation.batch import read_header
from metadata_quorum.foundation.errors import ErrorCode

TOPIC = "scripted"
TOPIC_ID = UUID(int=7)
VERSIONS = {
    ApiKey.FETCH: (4, 17),
    ApiKey.LIST_OFFSETS: (1, 9),
    ApiKey.METADATA: (0, 12),
    ApiKey.API_VERSIONS: (0, 3),
}

HANG_UP = "hang up"
GARBAGE = "garbage"
Failure = ErrorCode | str | Callable[["Partition"], None]
"""For one request: an answer with that error, no answer but the end of the connection, an answer that no
schema has (of fetches), or a change of the partition before it is answered."""


@dataclass
class Partition:
    """What the broker holds."""

    batches: list[bytes] = field(default_factory=list)
    start: int = 0
    end: int | None = None
    """The high watermark, if it is not the end of the last batch."""
    last_stable: int | None = None
    aborted: list[tuple[int, int]] = field(default_factory=list)
    leader: int = 0
    topic_id: UUID = TOPIC_ID
    is_there: bool = True

    @property
    def high_watermark(self) -> int:
        return self.end if self.end is not None else read_header(self.batches[-1]).next_offset


class ScriptedBroker:
    """Made by `scripted_broker`; `partition` and the failures may be changed before and while it is asked."""

    def __init__(self) -> None:
        self.partition = Partition()
        self.fetch_failures: deque[Failure] = deque()
        self.offsets_failures: deque[Failure] = deque()
        self.questions: list[int] = []
        """The API keys of all requests but fetches."""
        self.fetches: list[int] = []
        """The offsets that were asked for."""
        self.fetch_sizes: list[int] = []
        """How many bytes an answer might have."""
        self.answers_fetches = True
        self.replica: tuple[str, ScriptedBroker] | None = None
        """A rack, and who has the partition there, as node 1."""
        self.versions = dict(VERSIONS)
        self.port = 0

    @property
    def bootstrap(self) -> str:
        return f"{HOST}:{self.port}"

    def serve(self, connection: socket.socket) -> None:
        """Until it ends."""
        with suppress(ConnectionError), connection.makefile("rb") as incoming:
            while length := incoming.read(4):
                frame = memoryview(incoming.read(int.from_bytes(length)))
                header = read_request_header(frame)
                body = self._answer(header.api_key, header.version, frame[header.body :])
                if body == HANG_UP:
                    break
                if isinstance(body, bytes):
                    prefix = response_prefix(header.api_key, header.version, header.correlation_id, len(body))
                    connection.sendall(prefix + body)

    def _answer(self, api_key: int, version: int, body: memoryview) -> bytes | str | None:
        if api_key == ApiKey.FETCH:
            return self._fetch(version, body)
        self.questions.append(api_key)
        request = decode_request(api_key, version, body)
        answer: dict[str, Any] | str = {
            ApiKey.API_VERSIONS: lambda _: {
                "api_keys": [
                    {"api_key": key, "min_version": low, "max_version": high}
                    for key, (low, high) in self.versions.items()
                ]
            },
            ApiKey.METADATA: self.metadata,
            ApiKey.LIST_OFFSETS: self._offsets,
        }[api_key](request)
        return answer if isinstance(answer, str) else encode_response(api_key, version, answer)

    def metadata(self, request: Any) -> dict[str, Any]:
        there = self.partition.is_there
        row = {"partition_index": 0, "leader_id": self.partition.leader, "leader_epoch": 3}
        topic = {
            "name": TOPIC,
            "topic_id": self.partition.topic_id,
            "partitions": [row] if there else [],
            "error_code": 0 if there else int(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        }
        nodes = [self] if self.replica is None else [self, self.replica[1]]
        brokers = [{"node_id": node, "host": HOST, "port": each.port} for node, each in enumerate(nodes)]
        return {"brokers": brokers, "topics": [topic]}

    def _offsets(self, request: Any) -> dict[str, Any] | str:
        (wanted,) = request.topics[0].partitions
        error = self._failure(self.offsets_failures)
        if error == HANG_UP:
            return HANG_UP
        offset = {-1: self.partition.high_watermark, -2: self.partition.start}.get(wanted.timestamp, -1)
        row = {"partition_index": 0, "error_code": int(error), "offset": offset}
        return {"topics": [{"name": TOPIC, "partitions": [row]}]}

    def _fetch(self, version: int, body: memoryview) -> bytes | str | None:
        request = read_fetch_request(version, body)
        (wanted,) = request.partitions
        self.fetches.append(wanted.fetch_offset)
        self.fetch_sizes.append(wanted.max_bytes)
        if not self.answers_fetches:
            return None
        error = self._failure(self.fetch_failures)
        if error == HANG_UP:
            return HANG_UP
        if error == GARBAGE:
            return b"\xff"
        held = self.partition
        if error == ErrorCode.NONE and (not held.is_there or wanted.topic_id != held.topic_id):
            error = ErrorCode.UNKNOWN_TOPIC_ID
        if error == ErrorCode.NONE and not held.start <= wanted.fetch_offset <= held.high_watermark:
            error = ErrorCode.OFFSET_OUT_OF_RANGE
        answer = FetchedPartition(wanted.topic_id, TOPIC, 0, ErrorCode(error), held.high_watermark)
        if self.replica is not None and request.rack_id == self.replica[0]:
            answer.preferred_read_replica = 1
        elif error == ErrorCode.NONE:
            answer.records = self.records(wanted.fetch_offset, wanted.max_bytes, request.committed_only)
            answer.aborted_transactions = tuple(held.aborted) if request.committed_only else ()
        return b"".join(write_fetch_response(version, FetchResponse(partitions=[answer])))

    def records(self, offset: int, max_bytes: int, committed_only: bool) -> memoryview:
        """Cut where the answer is full, wherever that is."""
        end = self.partition.last_stable if committed_only else None
        wanted = [
            batch
            for batch in self.partition.batches
            if read_header(batch).next_offset > offset
            and (end is None or read_header(batch).base_offset < end)
        ]
        return memoryview(b"".join(wanted)[:max_bytes])

    def _failure(self, queue: deque[Failure]) -> ErrorCode | str:
        failure = queue.popleft() if queue else ErrorCode.NONE
        if callable(failure):
            failure(self.partition)
            return ErrorCode.NONE
        return failure


@contextmanager
def scripted_broker() -> Iterator[ScriptedBroker]:
    """On threads of its own. Connections to it are to be closed before it ends."""
    broker = ScriptedBroker()

    class Connection(socketserver.BaseRequestHandler):
        def handle(self) -> None:
            broker.serve(self.request)

    with socketserver.ThreadingTCPServer((HOST, 0), Connection) as server:
        broker.port = server.server_address[1]
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        try:
            yield broker
        finally:
            server.shutdown()
            thread.join()
