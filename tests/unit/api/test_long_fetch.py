"""A fetch that names very many partitions is read beside the loop, and for nobody who has gone meanwhile."""

from __future__ import annotations

import asyncio
import errno
import threading
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from data_plane.log.segment import LogSlice
from fetch.messages import FetchedPartition, FetchResponse
from kraft.api import fetch, partition_lookup
from kraft.net.connection import ProtocolError
from kraft.net.delayed_reply import DelayedReply
from kraft.net.peer import UncountedRequest
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from kraft.wire.fast_fetch import read_fetch_response
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.file_region import FileRegion
from metadata_quorum.foundation.model import ZERO_UUID
from tests.support.logs import open_log
from tests.unit.api.fetch_driver import broker_and_context, named
from tests.unit.net.harness import on_a_loop, until

pytestmark = pytest.mark.row("P7")


def asked(partitions: int) -> tuple[Any, Any, asyncio.Future[Any], Charged]:
    broker, ctx = broker_and_context(FetchResponse())
    peer, charged = ctx.connection, Charged()
    peer.started = lambda: charged
    reply = fetch.handle(broker, ctx, named(partitions))
    peer.started = asked_too_late
    assert isinstance(reply, asyncio.Future)
    return broker, peer, reply, charged


class Charged(UncountedRequest):
    size = 0

    def charge(self, size: int) -> None:
        self.size += size


def asked_too_late() -> UncountedRequest:
    raise AssertionError("a connection knows which request starts only until its handler returns")


@pytest.mark.pure("its fetch service is a stand-in")
@on_a_loop
async def test_it_is_read_beside_the_loop(monkeypatch: pytest.MonkeyPatch):
    read_on: list[int] = []
    read = fetch.read_fetch_request

    def noted(*args: Any) -> Any:
        read_on.append(threading.get_ident())
        return read(*args)

    monkeypatch.setattr(fetch, "read_fetch_request", noted)
    _, peer, reply, charged = asked(1000)
    assert await reply
    await until(lambda: not peer.parked)
    assert charged.size == len(named(1000)) + 1000 * fetch.PARTITION_BYTES
    assert len(read_on) == 1
    assert threading.get_ident() not in read_on


@on_a_loop
async def test_more_than_there_can_be_end_the_connection():
    _, _, reply, _ = asked(1001)
    with pytest.raises(ProtocolError, match="more than 1000"):
        await reply


@on_a_loop
async def test_who_has_gone_is_not_served():
    started: list[object] = []
    broker, peer, reply, _ = asked(1000)
    broker.fetch_service.fetch = lambda params, on_found: started.append(params)
    for call_off in list(peer.parked.values()):
        call_off()
    await until(lambda: not peer.parked)
    assert reply.cancelled()
    assert not started


@pytest.mark.pure("its slice is no LogSlice")
@on_a_loop
async def test_a_later_piece_that_cannot_be_read_is_a_fault_unless_its_file_has_gone():
    faults: list[BaseException] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: faults.append(context["exception"]))
    file: Any = CachedFile()
    one: Any = FetchedPartition(ZERO_UUID, "t", 0)
    one.slice = SimpleNamespace(
        segment=SimpleNamespace(path="/data/t-0/0.log"),
        position=0,
        length=5000,
        is_stale=lambda: False,
        region=lambda later, failed: FileRegion(file, 0, 5000, later, failed),
    )
    reply: Any = fetch.handle(*broker_and_context(FetchResponse(partitions=[one])), named(1))
    [region] = [each for each in reply if isinstance(each, FileRegion)]
    for error in (OSError(errno.EBADF, ""), OSError(errno.ENOENT, ""), ValueError("a bug")):
        region.failed(error)
    assert [type(each) for each in faults] == [ValueError]


class NotedFailures:
    """In the place of a ReplicaManager without partitions, and of its failures."""

    def __init__(self) -> None:
        self.failures = self
        self.paths: list[str] = []

    def __len__(self) -> int:
        return 0

    def storage_failed(self, partition: Any, error: OSError, log_path: str) -> None:
        self.paths.append(log_path)


@pytest.mark.pure("its slice is no LogSlice")
@on_a_loop
async def test_a_disk_that_fails_is_the_one_on_which_the_records_lay(monkeypatch: pytest.MonkeyPatch):
    """Not where the replica has moved while they were read."""
    monkeypatch.setattr(partition_lookup, "find", lambda *_: None)
    one: Any = FetchedPartition(ZERO_UUID, "t", 0)
    region: list[Any] = []
    one.slice = SimpleNamespace(
        segment=SimpleNamespace(path="/data/a/t-0/0.log"),
        position=0,
        length=5000,
        is_stale=lambda: False,
        region=lambda later, failed: region.append(failed),
    )
    broker, ctx = broker_and_context(FetchResponse(partitions=[one]))
    broker.replica_manager = NotedFailures()
    fetch.handle(broker, ctx, named(1))
    region[0](OSError(errno.EIO, ""))
    assert broker.replica_manager.paths == ["/data/a/t-0"]


class CachedFile:
    """In the page cache, all of it."""

    read_bytes = 0

    def read_cached(self, offset: int, length: int) -> bytes:
        self.read_bytes += length
        return b"records"


def test_of_a_large_answer_only_the_beginning_is_copied_on_the_loop(tmp_path: Path):
    file: Any = CachedFile()
    segment = open_log(tmp_path).segments[0]
    mib = 1024 * 1024
    pieces = [LogSlice(segment, file, 0, 0, mib) for _ in range(55)]
    small, unplaced = LogSlice(segment, file, 0, 0, 100), LogSlice.unplaced(segment, file, 0, mib, mib, True)
    partitions = [
        FetchedPartition(ZERO_UUID, "t", n, slice=piece) for n, piece in enumerate([*pieces, small, unplaced])
    ]
    cold, left = fetch.read_first(partitions, 3 * mib)
    assert file.read_bytes == 3 * mib + small.length
    assert [n for n, each in enumerate(partitions) if each.records is not None] == [0, 1, 2, 55]
    assert cold == [partitions[-1]]
    assert left <= 0


@pytest.mark.pure("its constant is compiled in")
@on_a_loop
async def test_an_answer_of_very_many_partitions_is_written_in_pieces_and_is_the_same(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    segment, file = open_log(tmp_path).segments[0], cast("Any", CachedFile())

    def answered() -> bytes:
        broker, ctx = broker_and_context(FetchResponse(partitions=partitions()))
        reply = fetch.handle(broker, ctx, named(1))
        return b"".join(reply if isinstance(reply, tuple) else [])

    def partitions() -> list[FetchedPartition]:
        slices = {n: LogSlice(segment, file, 0, 0, 7) for n in range(0, 25, 3)}
        errors = {4: ErrorCode.NOT_LEADER_OR_FOLLOWER, 24: ErrorCode.OFFSET_OUT_OF_RANGE}
        return [
            FetchedPartition(ZERO_UUID, "t", n, errors.get(n, ErrorCode.NONE), slice=slices.get(n))
            for n in range(25)
        ]

    at_once = answered()
    monkeypatch.setattr(fetch, "LOOKS_PER_TURN", 10)
    broker, ctx = broker_and_context(FetchResponse(partitions=partitions()))
    reply = fetch.handle(broker, ctx, named(1))
    assert isinstance(reply, DelayedReply)
    assert b"".join(await reply.wait(broker.node.loop)) == at_once
    assert at_once.count(b"records") == 9


@pytest.mark.pure("its fetch service is a stand-in")
@pytest.mark.parametrize(
    ("version", "code"), [(5, ErrorCode.NOT_LEADER_OR_FOLLOWER), (6, ErrorCode.KAFKA_STORAGE_ERROR)]
)
@on_a_loop
async def test_a_client_that_knows_no_storage_error_is_told_to_look_for_another_leader(
    version: int, code: ErrorCode
):
    one = FetchedPartition(ZERO_UUID, "t", 0, ErrorCode.KAFKA_STORAGE_ERROR)
    broker, ctx = broker_and_context(FetchResponse(partitions=[one]))
    ctx.version = version
    topics = [{"topic": "t", "partitions": [{"partition": 0}]}]
    body = encode_request(ApiKey.FETCH, version, {"topics": topics})
    reply: Any = fetch.handle(broker, ctx, memoryview(body))
    answer = read_fetch_response(version, memoryview(b"".join(bytes(each) for each in reply)))
    assert [each.error for each in answer.partitions] == [code]
