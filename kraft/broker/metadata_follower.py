"""How a node that is no controller learns the metadata: it follows the metadata log of one.

    controller's api/metadata_fetch -> here: batches -> records -> delta -> image -> subscribers

Any controller will do, since only what is committed is in its log; the active one is preferred. A reader
that is too far behind begins with a snapshot. Nothing is kept on disk: a broker starts from the
quorum's word. What takes long of a large cluster (a snapshot, a batch that changes half of it) is worked out
beside the loop, from an image that does not change.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable
from functools import partial
from typing import Final, ParamSpec

from fetch.messages import FetchPartition, FetchRequest
from kraft.net.client import PeerClient
from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message, decode_response
from kraft.wire.fast_fetch import FETCH_VERSION, write_fetch_request
from metadata_quorum.foundation.batch import BatchHeader, check_crc, decode_batch, iter_headers
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID
from metadata_quorum.foundation.supervision import bounded, restarted
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_log import SnapshotId
from metadata_quorum.metadata.records import decode
from metadata_quorum.metadata.snapshot import decode_checkpoint

FETCH_SNAPSHOT_VERSION: Final = 1

MAX_BYTES: Final = 1024 * 1024
MAX_WAIT_MS: Final = 500
TIMEOUT_S: Final = 3.0
RETRY_S: Final = 0.05

QUICK_BYTES: Final = 32_768
"""A batch of this size has some 500 records."""

P = ParamSpec("P")

Change = tuple[MetadataDelta, MetadataImage]
Listener = Callable[[MetadataDelta, MetadataImage], None]

log = logging.getLogger(__name__)


class MetadataFollower:
    """Keeps an image, and notifies its listener of every change."""

    def __init__(
        self, loop: asyncio.AbstractEventLoop, node_id: int, controller_channel: ControllerChannel
    ) -> None:
        self._loop = loop
        self._node_id = node_id
        self._controller_channel = controller_channel
        self._listeners: list[Listener] = []
        self._task: asyncio.Task[None] | None = None
        self._client: PeerClient | None = None
        self._client_of = -1
        self.image = EMPTY_IMAGE

    def subscribe(self, listener: Listener) -> None:
        self._listeners.append(listener)

    def start(self) -> None:
        self._task = restarted(self._loop, self._follow, "metadata-follower")

    async def close(self) -> None:
        if self._task is not None:
            self._task.cancel()
            await asyncio.gather(self._task, return_exceptions=True)
        if self._client is not None:
            self._client.close()

    async def _follow(self) -> None:
        while True:
            voter = self._voter()
            try:
                if voter is None:
                    raise ConnectionRefusedError("no controller is connected")
                await self._fetch_once(voter)
            except (OSError, TimeoutError, BrokerError, MalformedMessage) as error:
                log.debug("metadata is not to be had from controller %s: %s", voter, error)
                await asyncio.sleep(RETRY_S)

    def _voter(self) -> int | None:
        channel = self._controller_channel
        if channel.active >= 0 and channel.connected(channel.active):
            return channel.active
        return next((voter for voter in channel.voters if channel.connected(voter)), None)

    async def _fetch_once(self, voter: int) -> None:
        wanted = FetchPartition(METADATA_TOPIC_ID, METADATA_TOPIC, 0, self.image.offset + 1, MAX_BYTES)
        request = FetchRequest([wanted], replica_id=self._node_id, max_wait_ms=MAX_WAIT_MS)
        client = await self._connected(voter)
        body = (write_fetch_request(FETCH_VERSION, request),)
        answer = decode_response(
            ApiKey.FETCH, FETCH_VERSION, await client.exchange(ApiKey.FETCH, FETCH_VERSION, body, TIMEOUT_S)
        )
        found = answer.responses[0].partitions[0]
        if found.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(found.error_code))
        if found.snapshot_id.end_offset >= 0:
            await self._load_snapshot(
                voter, SnapshotId(found.snapshot_id.end_offset, found.snapshot_id.epoch)
            )
        elif found.records:
            await self._replay(memoryview(found.records))

    async def _connected(self, voter: int) -> PeerClient:
        """A connection for fetches alone: responses come in order, and heartbeats must not wait behind a
        fetch that is parked at the end of the log."""
        client = self._client
        if client is not None and client.connected and self._client_of == voter:
            return client
        if client is not None:
            client.close()
        self._client = await self._controller_channel.connect_apart(
            voter, f"metadata-{self._node_id}", TIMEOUT_S
        )
        self._client_of = voter
        return self._client

    async def _replay(self, batches: memoryview) -> None:
        """One delta per batch: what was decided together is applied together."""
        for position, header in iter_headers(batches):
            if header.last_offset <= self.image.offset:
                continue
            if header.base_offset > self.image.offset + 1 or not check_crc(batches, position, header):
                raise MalformedMessage(f"a gap or a damaged batch at metadata offset {header.base_offset}")
            if header.size <= QUICK_BYTES:
                self._notify(*_next(self.image, batches, position, header))
            else:
                self._notify(*await self._off_loop(_next, self.image, batches, position, header))

    async def _load_snapshot(self, voter: int, snapshot_id: SnapshotId) -> None:
        data = bytearray()
        while True:
            piece = await self._snapshot_piece(voter, snapshot_id, len(data))
            if not piece.unaligned_records:
                raise MalformedMessage(f"snapshot {snapshot_id} stops at {len(data)} of {piece.size} bytes")
            data += piece.unaligned_records
            if len(data) >= piece.size:
                break
        try:
            self._notify(*await self._off_loop(_loaded, self.image, bytes(data), snapshot_id))
        except ValueError as error:
            raise MalformedMessage(str(error)) from None

    async def _off_loop(self, work: Callable[P, Change], *args: P.args, **kwargs: P.kwargs) -> Change:
        return await self._loop.run_in_executor(None, partial(work, *args, **kwargs))

    async def _snapshot_piece(self, voter: int, snapshot_id: SnapshotId, position: int) -> Message:
        partition = {
            "partition": 0,
            "current_leader_epoch": -1,
            "snapshot_id": {"end_offset": snapshot_id.end_offset, "epoch": snapshot_id.epoch},
            "position": position,
        }
        fields = {
            "replica_id": self._node_id,
            "max_bytes": MAX_BYTES,
            "topics": [{"name": METADATA_TOPIC, "partitions": [partition]}],
        }
        client = await self._connected(voter)
        answer = await client.request(
            ApiKey.FETCH_SNAPSHOT, FETCH_SNAPSHOT_VERSION, fields, timeout_s=TIMEOUT_S
        )
        piece: Message = answer.topics[0].partitions[0]
        if piece.error_code != ErrorCode.NONE:
            raise BrokerError(ErrorCode(piece.error_code))
        return piece

    def _notify(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        for listener in self._listeners:
            bounded(self._loop, f"acting on the metadata up to offset {image.offset}", listener, delta, image)


def _next(image: MetadataImage, batches: memoryview, position: int, header: BatchHeader) -> Change:
    """The image after one batch."""
    delta = MetadataDelta(image)
    delta.offset = header.last_offset
    delta.epoch = header.partition_leader_epoch
    delta.timestamp_ms = header.max_timestamp
    if not header.is_control:
        for record in decode_batch(batches, position):
            if record.offset > image.offset:
                delta.replay(decode(record.value or b""))
    return delta, delta.apply()


def _loaded(before: MetadataImage, data: bytes, snapshot_id: SnapshotId) -> Change:
    """The image of a snapshot. Raises `ValueError` where it is damaged."""
    image = decode_checkpoint(data, snapshot_id.end_offset, snapshot_id.epoch)
    return MetadataDelta.between(before, image), image
