"""A quorum of controllers, of Apache Kafka's or ours, as a broker that follows the metadata sees it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any, Final

from kraft.broker.metadata_follower import MetadataFollower
from kraft.net.client import Address
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import decode_request, encode_response
from metadata_quorum.foundation.batch import Record, encode_batch, iter_headers
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import FeatureLevelRecord, MetadataRecord, encode
from tests.support.virtual_loop import run_virtually

PIECE_BYTES: Final = 1000
"""Of a snapshot, in one answer."""


@dataclass
class KraftQuorum:
    """Controllers 1 and 2 as Apache Kafka's answer: the leader alone, who is sent its epoch, and hands out
    what is not committed, too. It is both the channel to them and a connection."""

    batches: list[bytes]
    high_watermark: int = 1 << 30
    leader: int = 2
    epoch: int = 7
    snapshot: bytes = b""
    """Where there is one, the log begins behind it, at `snapshot_end`."""
    snapshot_end: int = 100
    snapshot_size: int | None = None
    """What is said of it; None: its size."""
    broken: Callable[[], dict[str, Any]] | None = None
    """What is answered instead, once."""
    stand_by: dict[int, dict[str, Any]] = field(default_factory=dict)
    """What a voter answers instead, as long as it is here."""
    reached: set[int] | None = None
    """Voters; None: all."""
    silent: set[int] = field(default_factory=set)  # paused: their connections stay
    discovers: bool = False
    asked: list[tuple[int, int, int, int]] = field(default_factory=list)
    """Voter, offset, leader epoch, last fetched epoch."""
    snapshot_epochs: list[int] = field(default_factory=list)
    active: int = -1
    voters: Sequence[int] = (1, 2)
    resigned: bool = False
    """The leader, which names itself until another one is elected."""

    def connected(self, voter: int) -> bool:
        return self.reached is None or voter in self.reached

    def learn_address(self, voter: int, address: Address) -> None:
        assert (voter, address) == (self.leader, Address("h", 9))

    def learn_active(self, voter: int) -> None:
        self.active = voter

    def forget_active(self, voter: int) -> None:
        if self.active == voter:
            self.active = -1

    async def connect_apart(self, voter: int, client_id: str, timeout_s: float) -> Any:
        async def exchange(api_key: ApiKey, version: int, body: tuple[bytes], timeout_s: float) -> memoryview:
            request = decode_request(api_key, version, memoryview(body[0]))
            await asyncio.sleep(0.001)
            if voter in self.silent:
                await asyncio.sleep(timeout_s)
                raise TimeoutError
            return memoryview(encode_response(api_key, version, self._answer(voter, request)))

        async def request(api_key: ApiKey, version: int, fields: dict[str, Any], *, timeout_s: float) -> Any:
            wanted = fields["topics"][0]["partitions"][0]
            self.snapshot_epochs.append(wanted["current_leader_epoch"])
            if wanted["current_leader_epoch"] != self.epoch:
                return SimpleNamespace(error_code=ErrorCode.FENCED_LEADER_EPOCH, topics=[])
            piece = SimpleNamespace(
                error_code=0,
                size=len(self.snapshot) if self.snapshot_size is None else self.snapshot_size,
                unaligned_records=self.snapshot[wanted["position"] :][:PIECE_BYTES],
                current_leader=SimpleNamespace(leader_id=self.leader, leader_epoch=self.epoch),
            )
            return SimpleNamespace(error_code=0, topics=[SimpleNamespace(partitions=[piece])])

        return SimpleNamespace(connected=True, exchange=exchange, request=request, close=lambda: None)

    def _answer(self, voter: int, request: Any) -> dict[str, Any]:
        wanted = request.topics[0].partitions[0]
        self.asked.append(
            (voter, wanted.fetch_offset, wanted.current_leader_epoch, wanted.last_fetched_epoch)
        )
        if self.broken is not None:
            broken, self.broken = self.broken, None
            return broken()
        if voter in self.stand_by:
            return self.stand_by[voter]
        code = ErrorCode.NONE
        if wanted.last_fetched_epoch < 0 or wanted.current_leader_epoch < 0:
            code = ErrorCode.INVALID_REQUEST
        elif wanted.current_leader_epoch < self.epoch:
            code = ErrorCode.FENCED_LEADER_EPOCH
        elif voter != self.leader or self.resigned:
            code = ErrorCode.NOT_LEADER_OR_FOLLOWER
        partition: dict[str, Any] = {
            "partition_index": 0, "error_code": int(code), "high_watermark": self.high_watermark,
            "current_leader": {"leader_id": self.leader, "leader_epoch": self.epoch},
            "aborted_transactions": None, "records": b"",
        }  # fmt: skip
        if code is ErrorCode.NONE and self.snapshot and wanted.fetch_offset < self.snapshot_end:
            partition["snapshot_id"] = {"end_offset": self.snapshot_end, "epoch": 5}
        elif code is ErrorCode.NONE:
            left = b"".join(self.batches)
            partition["records"] = b"".join(
                left[position : position + header.size]
                for position, header in iter_headers(left)
                if header.last_offset >= wanted.fetch_offset
            )
        topic = {"topic": METADATA_TOPIC, "topic_id": METADATA_TOPIC_ID, "partitions": [partition]}
        return {"responses": [topic], "node_endpoints": [{"node_id": self.leader, "host": "h", "port": 9}]}


def batch(offset: int, *records: MetadataRecord, epoch: int = 3) -> bytes:
    stored = [Record(timestamp=1, value=encode(each)) for each in records]
    return encode_batch(stored, base_offset=offset, leader_epoch=epoch)


def feature(level: int) -> FeatureLevelRecord:
    return FeatureLevelRecord(name="metadata.version", feature_level=level)


def following(
    quorum: Any,
    test: Callable[[MetadataFollower], Any],
    loop: Callable[..., None] = run_virtually,
    stopwatch: Callable[[], float] = lambda: 0.0,
) -> None:
    async def run() -> None:
        follower = MetadataFollower(asyncio.get_running_loop(), 4, quorum, stopwatch)
        follower.start()
        await test(follower)
        await follower.close()

    loop(run())


async def reached(follower: MetadataFollower, holds: Callable[[MetadataImage], bool]) -> None:
    changed = asyncio.Event()
    follower.subscribe(lambda delta, image: changed.set())
    async with asyncio.timeout(10):
        while not holds(follower.image):
            await changed.wait()
            changed.clear()


async def level(follower: MetadataFollower, wanted: int) -> None:
    await reached(follower, lambda image: image.features.get("metadata.version") == wanted)


def diverging(end_offset: int = 5, epoch: int = 7) -> dict[str, Any]:
    partition = {"partition_index": 0, "error_code": 0, "high_watermark": 9, "records": b"",
                 "aborted_transactions": None, "diverging_epoch": {"epoch": 2, "end_offset": end_offset},
                 "current_leader": {"leader_id": 2, "leader_epoch": epoch}}  # fmt: skip
    return {"responses": [{"topic_id": METADATA_TOPIC_ID, "partitions": [partition]}]}
