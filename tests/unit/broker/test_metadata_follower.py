"""A broker without a controller: what takes long of the metadata is worked out beside the loop."""

from __future__ import annotations

import asyncio
import threading

import pytest

from kraft.broker.metadata_follower import MetadataFollower
from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.bridge import MalformedMessage
from metadata_quorum.metadata.metadata_log import SnapshotId
from metadata_quorum.metadata.snapshot import encode_checkpoint
from tests.support.metadata_machine import MetadataMachine


class Piece:
    def __init__(self, data: bytes, size: int) -> None:
        self.unaligned_records, self.size = data, size


def _large() -> MetadataMachine:
    machine = MetadataMachine()
    machine.claim()
    machine.brokers(1, 2, 3)
    machine.create("t", 1000, 3)
    return machine


def _follow(machine: MetadataMachine, pieces: list[bytes]) -> tuple[MetadataFollower, list[int]]:
    """Through the log, then through a snapshot of the same; and the threads that listeners heard it on."""
    heard_on: list[int] = []

    async def follow() -> MetadataFollower:
        loop = asyncio.get_running_loop()
        controller_channel = ControllerChannel.__new__(ControllerChannel)  # nothing is sent
        follower = MetadataFollower(loop, 4, controller_channel)
        follower.subscribe(lambda delta, image: heard_on.append(threading.get_ident()))
        await follower._replay(memoryview(machine.log.read(0, 1 << 30)))
        assert follower.image == machine.image
        waiting = iter(pieces)

        async def piece(voter: int, snapshot_id: SnapshotId, position: int) -> Piece:
            return Piece(next(waiting), sum(map(len, pieces)) or 1)

        follower._snapshot_piece = piece  # type: ignore[method-assign,assignment]
        image = machine.image
        await follower._load_snapshot(1, SnapshotId(image.offset + 1, image.epoch))
        return follower

    return asyncio.run(follow()), heard_on


def test_large_changes_are_worked_out_beside_the_loop(monkeypatch: pytest.MonkeyPatch) -> None:
    machine = _large()
    machine.fence(3)
    beside: list[str] = []
    original = MetadataFollower._off_loop

    async def counted(self, work, *args):
        beside.append(work.__name__)
        return await original(self, work, *args)

    monkeypatch.setattr(MetadataFollower, "_off_loop", counted)
    data = encode_checkpoint(machine.image)
    follower, heard_on = _follow(machine, [data[:1000], data[1000:]])
    assert follower.image == machine.image
    assert beside == ["_next", "_next", "_loaded"]  # the topic, the fence, the snapshot
    assert set(heard_on) == {threading.get_ident()}


@pytest.mark.parametrize("pieces", [[b""], [b"no snapshot"], [b"x" * 10, b""]])
def test_a_snapshot_that_is_none(pieces: list[bytes]) -> None:
    with pytest.raises(MalformedMessage):
        _follow(_large(), pieces)
