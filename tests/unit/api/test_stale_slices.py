"""Slices that were found before the log was truncated: what has come in their place is not sent for them."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import pytest

from data_plane.log.log import UnifiedLog
from fetch.messages import FetchedPartition, FetchResponse
from kraft.api import fetch
from kraft.net.connection import ProtocolError
from kraft.net.delayed_reply import DelayedReply
from kraft.net.file_send import FileSend
from kraft.wire.fast_fetch import COPY_BELOW_BYTES, read_fetch_response
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.file_region import FileRegion
from metadata_quorum.foundation.model import ZERO_UUID
from tests.support.logs import lead, open_log, raw_bytes, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.api.fetch_driver import VERSION, broker_and_context, named
from tests.unit.net.harness import on_a_loop, until

pytestmark = pytest.mark.row("R5", "P2")


def follow(log: UnifiedLog, leader: UnifiedLog) -> None:
    """Take all that the leader has more."""
    data = leader.read(log.log_end_offset, 1 << 20).read(MAY_BLOCK)
    log.append_as_follower(bytes(data))


def three_logs(path: Path) -> tuple[UnifiedLog, UnifiedLog, UnifiedLog]:
    """A leader of epoch 1, its follower, which lacks its last record, and the leader of epoch 2, which never
    had a record of epoch 1 but more of epoch 0 than they."""
    next_leader, leader, follower = (open_log(path / name) for name in ("next", "leader", "follower"))
    for number in range(8):
        lead(next_leader, b"common %d" % number)
    follow(leader, next_leader)
    follow(follower, next_leader)
    for number in range(8, 11):
        lead(next_leader, b"second %d" % number)
    for number in range(8, 11):
        lead(leader, b"record %d" % number, epoch=1)
    follower.append_as_follower(bytes(leader.read(8, 1 << 20, upper_offset=10).read(MAY_BLOCK)))
    next_leader.assign_epoch(2)
    return next_leader, leader, follower


def become_follower(leader: UnifiedLog, next_leader: UnifiedLog) -> None:
    assert truncate(leader, 8)
    follow(leader, next_leader)
    assert raw_bytes(leader) == raw_bytes(next_leader)


def test_a_follower_takes_nothing_of_what_its_leader_has_from_the_next_one(tmp_path: Path):
    """Its log would differ from all others, below a high watermark, and nobody would see it."""
    next_leader, leader, follower = three_logs(tmp_path)
    found = leader.read(10, 1 << 20)
    become_follower(leader, next_leader)
    assert found.is_stale()
    with pytest.raises(BrokerError):
        follower.append_as_follower(bytes(found.read(MAY_BLOCK)), leader_epoch=1)
    assert follower.log_end_offset == 10


def test_a_slice_that_ends_below_the_truncation_is_as_it_was(tmp_path: Path):
    next_leader, leader, _ = three_logs(tmp_path)
    below, beyond = leader.read(0, 1 << 20, upper_offset=8), leader.read(0, 1 << 20)
    become_follower(leader, next_leader)
    assert not below.is_stale()
    assert beyond.is_stale()
    assert not leader.read(0, 1 << 20).is_stale()


def answered(reply: Any) -> FetchedPartition:
    body = b"".join(bytes(each) for each in reply)
    [one] = read_fetch_response(VERSION, memoryview(body)).partitions[-1:]
    return one


@pytest.mark.pure("its constant is compiled in")
@on_a_loop
async def test_of_a_long_answer_what_was_truncated_before_its_turn_is_refused(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
):
    monkeypatch.setattr(fetch, "LOOKS_PER_TURN", 1)
    next_leader, leader, _ = three_logs(tmp_path)
    parts = [FetchedPartition(ZERO_UUID, "t", n, slice=leader.read(8, 1 << 20)) for n in range(2)]
    parts[0].slice = next_leader.read(0, 1 << 20)
    reply = fetch.handle(*broker_and_context(FetchResponse(partitions=parts)), named(1))
    assert isinstance(reply, DelayedReply)
    await until(lambda: parts[0].records is not None)
    become_follower(leader, next_leader)
    last = answered(await reply.wait(asyncio.get_running_loop()))
    assert (last.error, bytes(last.records or b"")) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


@pytest.mark.pure("its fetch service is a stand-in")
@on_a_loop
async def test_what_was_truncated_while_another_thread_read_it_is_refused(tmp_path: Path):
    next_leader, leader, _ = three_logs(tmp_path)
    segment = leader.segments[-1]
    piece = type(leader.read(8, 1)).unplaced(segment, segment.file, 8, 1 << 20, segment.size, True)
    part = FetchedPartition(ZERO_UUID, "t", 0, slice=piece)
    reply = fetch.handle(*broker_and_context(FetchResponse(partitions=[part])), named(1))
    assert isinstance(reply, DelayedReply)
    become_follower(leader, next_leader)
    last = answered(await reply.wait(asyncio.get_running_loop()))
    assert (last.error, bytes(last.records or b"")) == (ErrorCode.NOT_LEADER_OR_FOLLOWER, b"")


@on_a_loop
async def test_an_answer_that_leaves_its_file_ends_where_that_was_truncated(tmp_path: Path):
    """Its head has left, with its length: the connection ends."""
    next_leader, leader, _ = three_logs(tmp_path)
    loop = asyncio.get_running_loop()
    lead(leader, b"x" * 2 * COPY_BELOW_BYTES, epoch=1)

    def read_later(read: Any) -> asyncio.Future[Any]:
        return loop.run_in_executor(None, read, MAY_BLOCK)

    sends = [FileSend([leader.read(8, 1 << 20).region(read_later, lambda error: None)]) for _ in range(2)]
    assert sends[0].take(100)
    came = await sends[1].read(100)
    become_follower(leader, next_leader)
    for number in range(20):
        lead(leader, b"y" * COPY_BELOW_BYTES, epoch=3 + number)
    with pytest.raises(ProtocolError):
        sends[0].take(100)
    with pytest.raises(ProtocolError):
        sends[1].came(came)


def test_a_region_of_a_file_that_stays_is_sent(tmp_path: Path):
    _, leader, _ = three_logs(tmp_path)
    region = leader.read(0, 1 << 20).region(lambda read: pytest.fail("it is cached"), lambda error: None)
    assert isinstance(region, FileRegion)
    sent = FileSend([region])
    assert b"".join(bytes(each) for each in sent.take(1 << 20)) == raw_bytes(leader)
