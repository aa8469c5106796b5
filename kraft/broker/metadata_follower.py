"""How a node that is no controller learns the metadata: it follows the metadata log of one.

    controller's api/metadata_fetch -> here: batches -> records -> delta -> image -> subscribers

Any controller of ours will do, since only what is committed is in its log; Apache Kafka's name the leader,
which hands out what is not committed, too: only what is below the high watermark is taken. A reader
that is too far behind begins with a snapshot. Nothing is kept on disk: a broker starts from the
quorum's word, and ends where that is taken back. What takes long of a large cluster (a snapshot, a batch
that changes half of it) is worked out beside the loop, from an image that does not change. An answer may
have thousands of small batches: after some the loop's other work has its turn, and finds the image of the
last one that was taken.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from typing import Final, TypeVar

from fetch.messages import FetchPartition, FetchRequest
from kraft.net.client import Address, PeerClient
from kraft.peers.controller_channel import ControllerChannel
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import MalformedMessage, Message, decode_response
from kraft.wire.fast_fetch import FETCH_VERSION
from kraft.wire.fast_fetch_request import write_fetch_request
from metadata_quorum.foundation.batch import check_crc, iter_headers
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, ExitCode, FatalError
from metadata_quorum.foundation.model import METADATA_TOPIC, METADATA_TOPIC_ID
from metadata_quorum.foundation.supervision import bounded, ended, restarted
from metadata_quorum.metadata.batch_loader import Transaction, load_batch
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_log import SnapshotId
from metadata_quorum.metadata.snapshot import decode_checkpoint

FETCH_SNAPSHOT_VERSION: Final = 1

MAX_BYTES: Final = 1024 * 1024
MAX_WAIT_MS: Final = 500
TIMEOUT_S: Final = 3.0
RETRY_S: Final = 0.05
STALE_ANSWERS: Final = 100
"""So often no leader answers that only does not know of the next one yet: without its voters it stops after
two seconds, and there are RETRY_S between two answers. Answers, not seconds: all may have stood still."""
UNCOMMITTED_S: Final = 0.005
"""The pause before what was not committed yet is fetched again: the first one; it doubles."""

QUICK_BYTES: Final = 32_768
"""A batch of this size has some 500 records."""
TURN_S: Final = 0.002
"""So long one turn of the loop takes batches, and to the end of the last one: beside tens of thousands of
topics or access control entries each takes milliseconds, else a hundredth of that."""

ACTIVE_S: Final = 2.0
"""Four times as long as Kafka's controllers are idle without writing a record."""

_REDIRECTS: Final = frozenset(
    {
        ErrorCode.NOT_LEADER_OR_FOLLOWER,
        ErrorCode.FENCED_LEADER_EPOCH,
        ErrorCode.UNKNOWN_LEADER_EPOCH,
    }
)
"""Who answers so names the leader, and its epoch."""

T = TypeVar("T")

Change = tuple[MetadataDelta, MetadataImage]
Listener = Callable[[MetadataDelta, MetadataImage], None]
Preparing = Callable[[MetadataImage], None]

log = logging.getLogger(__name__)


class MetadataFollower:
    """Keeps an image, and notifies its listener of every change."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        node_id: int,
        controller_channel: ControllerChannel,
        stopwatch: Callable[[], float] = time.perf_counter,
    ) -> None:
        """`stopwatch`: in seconds; the loop's own time stands still within a turn."""
        self._loop = loop
        self._stopwatch = stopwatch
        self._node_id = node_id
        self._controller_channel = controller_channel
        self._listeners: list[Listener] = []
        self._preparing: list[Preparing] = []
        self._task: asyncio.Task[None] | None = None
        self._client: PeerClient | None = None
        self._client_of = -1
        self._leader = -1
        self._leader_epoch = 0
        """The quorum's, as told by the last answer. Kafka's controllers refuse a fetch without it."""
        self._leader_since = 0.0
        self._elected_epoch = -1
        """The last one that is known to have had a leader: a majority of the voters has it on its disks."""
        self._behind: set[int] = set()
        """Voters that have answered since, and knew of an earlier one only."""
        self._active_epoch = -1
        """The epoch in which a controller has last been seen to be active: it wrote a record."""
        self._asked = 0
        """How many voters have failed to answer: the next one has its turn."""
        self._stale = 0
        """How many answers since the last good one came from an earlier leader than we know, and lacked what
        we have."""
        self._uncommitted_s = UNCOMMITTED_S
        self._transaction: Transaction = None
        self._failure = ""
        """What was logged last; empty while metadata comes."""
        self.image = EMPTY_IMAGE

    def subscribe(self, listener: Listener, prepare: Preparing | None = None) -> None:
        """`prepare`: called in another thread, before the listener is called with the image of a snapshot."""
        self._listeners.append(listener)
        if prepare is not None:
            self._preparing.append(prepare)

    def start(self) -> None:
        self._task = restarted(self._loop, self._follow, "metadata-follower")

    async def close(self) -> None:
        await ended(self._task)
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
                self._failed(voter, error)
                await asyncio.sleep(RETRY_S)
            else:
                if self._failure:
                    log.info("metadata comes from controller %s", voter)
                self._failure = ""

    def _failed(self, voter: int | None, error: Exception) -> None:
        self._asked += 1
        if voter == self._leader and isinstance(error, OSError):
            self._leader = -1
        if isinstance(error, BrokerError) and error.code in _REDIRECTS:
            return
        failure = f"metadata is not to be had from controller {voter}: {error}"
        if failure != self._failure:  # else it is known
            log.log(logging.INFO if voter is None else logging.WARNING, failure)
            self._failure = failure

    def _voter(self) -> int | None:
        channel = self._controller_channel
        for known in (self._leader, channel.active):
            if known >= 0 and known not in self._behind and channel.connected(known):
                return known
        # Also those that were behind: they may have caught up, and all others be silent.
        connected = [voter for voter in channel.voters if channel.connected(voter)]
        return connected[self._asked % len(connected)] if connected else None

    async def _fetch_once(self, voter: int) -> None:
        image = self.image
        wanted = FetchPartition(
            METADATA_TOPIC_ID,
            METADATA_TOPIC,
            0,
            image.offset + 1,
            MAX_BYTES,
            current_leader_epoch=self._leader_epoch,
            last_fetched_epoch=max(image.epoch, 0),
        )
        request = FetchRequest(
            [wanted], replica_id=self._node_id, max_wait_ms=MAX_WAIT_MS, max_bytes=MAX_BYTES
        )
        client = await self._connected(voter)
        body = (write_fetch_request(FETCH_VERSION, request),)
        answer = decode_response(
            ApiKey.FETCH, FETCH_VERSION, await client.exchange(ApiKey.FETCH, FETCH_VERSION, body, TIMEOUT_S)
        )
        found = _only_partition(answer.error_code, answer.responses)
        for each in answer.node_endpoints:
            self._controller_channel.learn_address(each.node_id, Address(each.host, each.port))
        self._learn_leader(found.current_leader)
        self._learn_who_is_behind(voter, found.current_leader.leader_epoch)
        if found.error_code == ErrorCode.NOT_LEADER_OR_FOLLOWER:
            self._leads_not(voter)
        if found.error_code == ErrorCode.OFFSET_OUT_OF_RANGE:
            self._check_history(voter, found.current_leader, found.high_watermark)
        _check(found.error_code)
        self._check_history(voter, found.current_leader, found.diverging_epoch.end_offset)
        self._stale = 0
        if found.snapshot_id.end_offset >= 0:
            await self._load_snapshot(
                voter, SnapshotId(found.snapshot_id.end_offset, found.snapshot_id.epoch)
            )
        elif found.records:
            await self._replay(memoryview(found.records), found.high_watermark)
            if self.image is image:
                await asyncio.sleep(self._uncommitted_s)
                self._uncommitted_s = min(self._uncommitted_s * 2, MAX_WAIT_MS / 1000)
            else:
                self._uncommitted_s = UNCOMMITTED_S
        self._look_who_is_active()

    def _check_history(self, voter: int, current: Message, diverges_at: int) -> None:
        """`diverges_at`: where the controller's log and what we have diverge, or where that log ends; below 0
        if they do not. What we have was committed: it is lost, and the controller goes on without it. Who
        follows it mixes two histories, and acknowledges records of topics that it does not know.

        But for a leader that was replaced and has yet to notice: it lacks what the next one decided. Its
        epoch tells. That of controllers that were restored may be an older one, too: of all of them, or for
        good."""
        if diverges_at < 0:
            return
        if current.leader_epoch < self._leader_epoch:
            self._stale += 1
            if not self._is_majority_behind() and self._stale <= STALE_ANSWERS:
                self._leads_not(voter)
                raise BrokerError(ErrorCode.NOT_LEADER_OR_FOLLOWER, f"it led epoch {current.leader_epoch}")
        elif diverges_at > self.image.offset:
            raise MalformedMessage(f"it diverges at offset {diverges_at}, which was not asked for")
        applied = self.image.offset
        lost = min(diverges_at, applied)
        raise FatalError(
            ExitCode.WRONG_CLUSTER,
            f"controller {voter} has lost metadata from offset {lost} on, and this broker has applied what "
            f"is up to offset {applied}: were the controllers restored from a backup?",
        )

    def _learn_who_is_behind(self, voter: int, epoch: int) -> None:
        """The voter knew of that epoch when it answered. Below 0 it said nothing of it (it refuses), and 0 is
        that of a new disk, whose voter has no vote yet: neither is a witness of what was elected."""
        if epoch >= self._elected_epoch:
            self._behind.discard(voter)
        elif epoch > 0:
            self._behind.add(voter)

    def _is_majority_behind(self) -> bool:
        """Whoever elected a leader has had its epoch on disk before that: a majority that knows of none has
        lost it. How many voters there are is known where all are configured."""
        channel = self._controller_channel
        return not channel.discovers and 2 * len(self._behind) > len(channel.voters)

    def _learn_leader(self, current: Message) -> None:
        elected = max(current.leader_epoch if current.leader_id >= 0 else -1, self.image.epoch)
        if elected > self._elected_epoch:
            self._elected_epoch = elected
            self._behind.clear()
        if current.leader_epoch < self._leader_epoch:
            return
        if current.leader_epoch > self._leader_epoch:
            self._leader_since = self._loop.time()
            if current.leader_id != self._leader:
                self._controller_channel.forget_active(self._leader)
        self._leader, self._leader_epoch = current.leader_id, current.leader_epoch

    def _leads_not(self, voter: int) -> None:
        """The voter says so. (One that has just resigned may still name itself as the leader.)"""
        self._controller_channel.forget_active(voter)
        if self._leader == voter:
            self._leader = -1

    def _look_who_is_active(self) -> None:
        """A leader is not the active controller at once, and until it is, Apache Kafka's logs an ERROR for
        whoever asks it. One that has written a record is; so is one that surely had the time to, where idle
        controllers write nothing."""
        had_time = (
            self._loop.time() - self._leader_since > ACTIVE_S and self.image.epoch == self._leader_epoch
        )
        if self._leader >= 0 and (had_time or self._active_epoch == self._leader_epoch):
            self._controller_channel.learn_active(self._leader)

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

    async def _replay(self, batches: memoryview, high_watermark: int) -> None:
        """One delta per batch: what was decided together is applied together."""
        began = self._stopwatch()
        for position, header in iter_headers(batches):
            if header.last_offset <= self.image.offset:
                continue
            if header.last_offset >= high_watermark:
                break
            if header.base_offset > self.image.offset + 1 or not check_crc(batches, position, header):
                raise MalformedMessage(f"a gap or a damaged batch at metadata offset {header.base_offset}")
            work = partial(load_batch, self.image, self._transaction, batches, position, header)
            try:
                loaded = work() if header.size <= QUICK_BYTES else await self._off_loop(work)
            except ValueError as error:
                raise MalformedMessage(str(error)) from None
            delta, image, self._transaction = loaded
            if not header.is_control:
                self._active_epoch = header.partition_leader_epoch
            self._notify(delta, image)
            if self._stopwatch() - began >= TURN_S:
                await asyncio.sleep(0)
                began = self._stopwatch()

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
            loaded = partial(_loaded, self.image, bytes(data), snapshot_id, self._preparing)
            delta, image = await self._off_loop(loaded)
        except ValueError as error:
            raise MalformedMessage(str(error)) from None
        self._transaction = None
        self._notify(delta, image)

    async def _off_loop(self, work: Callable[[], T]) -> T:
        return await self._loop.run_in_executor(None, work)

    async def _snapshot_piece(self, voter: int, snapshot_id: SnapshotId, position: int) -> Message:
        partition = {
            "partition": 0,
            "current_leader_epoch": self._leader_epoch,
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
        piece = _only_partition(answer.error_code, answer.topics)
        self._learn_leader(piece.current_leader)
        _check(piece.error_code)
        return piece

    def _notify(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.image = image
        for listener in self._listeners:
            bounded(self._loop, f"acting on the metadata up to offset {image.offset}", listener, delta, image)


def _only_partition(error_code: int, topics: Sequence[Message]) -> Message:
    """What is answered for the one partition that was asked for."""
    _check(error_code)
    if len(topics) != 1 or len(topics[0].partitions) != 1:
        raise MalformedMessage(f"an answer for {len(topics)} topics, none or not only {METADATA_TOPIC}")
    partition: Message = topics[0].partitions[0]
    return partition


def _check(error_code: int) -> None:
    if error_code != ErrorCode.NONE:
        raise BrokerError(ErrorCode(error_code))


def _loaded(
    before: MetadataImage, data: bytes, snapshot_id: SnapshotId, preparing: Iterable[Preparing]
) -> Change:
    """The image of a snapshot. Raises `ValueError` where it is damaged."""
    image = decode_checkpoint(data, snapshot_id.end_offset, snapshot_id.epoch)
    for prepare in preparing:
        prepare(image)
    return MetadataDelta.between(before, image), image
