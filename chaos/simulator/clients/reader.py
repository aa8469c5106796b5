"""A simulated consumer that assigns partitions itself: fetches, leaves out what was aborted, polls.

Every fetch that brings something is one poll. A client that begins again starts at the beginning of each log.
"""

from __future__ import annotations

import contextlib
from typing import Any, Final, NamedTuple

from chaos.history import AlteredRecord, Poll, partition_of
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.record import differences, value_of
from chaos.simulator.clients.recorder import Recorder
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import CONTROL_ABORT, control_type, decode_batch, iter_headers
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.offset_timestamps import EARLIEST_TIMESTAMP, LATEST_TIMESTAMP

READ_UNCOMMITTED: Final = 0
READ_COMMITTED: Final = 1
MAX_WAIT_MS: Final = 400
FETCH_BYTES: Final = 64 * 1024
ASK_PROBABILITY: Final = 0.1
"""That a reader asks where a partition ends, after each round of polls."""


class Fetched(NamedTuple):
    """What a read_committed consumer hands out of a fetch."""

    pairs: list[tuple[int, int]]
    """Offset, value."""
    next_offset: int
    altered: list[tuple[int, str]]
    """Offset, and what of the record is not as it was sent."""

    def poll(self, key: str) -> Poll:
        """As the history has it."""
        return Poll({key: self.pairs}, altered=[AlteredRecord(key, *each) for each in self.altered])


class OffsetOutOfRange(OSError):
    """The log does not have that offset, or no longer."""


def committed_records(data: Any, aborted: Any, start: int) -> Fetched:
    """Leaves out markers, and what was aborted."""
    begun = sorted((each.first_offset, each.producer_id) for each in aborted or ())
    open_aborts: set[int] = set()
    found = Fetched([], start, [])
    for position, header in iter_headers(data):
        while begun and begun[0][0] <= header.last_offset:
            open_aborts.add(begun.pop(0)[1])
        if header.is_control:
            (marker,) = decode_batch(data, position)
            if control_type(marker) == CONTROL_ABORT:
                open_aborts.discard(header.producer_id)
        elif not (header.is_transactional and header.producer_id in open_aborts):
            for record in decode_batch(data, position):
                if record.offset >= start:
                    found.pairs.append((record.offset, value_of(record)))
                    found.altered.extend((record.offset, what) for what in differences(record))
        found = found._replace(next_offset=header.next_offset)
    return found


class SimReader:
    """See the module."""

    def __init__(
        self, client: ClusterClient, recorder: Recorder, keys: list[str], *, final: bool = False
    ) -> None:
        self.positions: dict[str, int] = {}
        """How far each key has been read."""
        self.client = client
        self._recorder = recorder
        self._keys = keys
        self._final = final
        self._process = recorder.process()

    async def run(self) -> None:
        """Until it is asked to stop."""
        self.assign()
        while not self.client.is_stopping:
            for key in self._keys:
                try:
                    await self.poll(key)
                except OSError:
                    self.client.forget_leader(key)
                    await self.client.pause(0.2)
            if self.client.random.random() < ASK_PROBABILITY:
                with contextlib.suppress(OSError):
                    await self._note_end_of(self.client.random.choice(self._keys))
            await self.client.pause(0.1)

    def assign(self) -> None:
        now = self._recorder.now_ns()
        self.positions.clear()
        starts = dict.fromkeys(self._keys, 0)
        self._recorder.add(
            self._process, "assign", now, "ok", keys=self._keys, final=self._final, starts=starts
        )

    async def poll(self, key: str) -> None:
        """Fetch once. Raises OSError."""
        position = await self.position(key)
        if position is None:
            return
        start = self._recorder.now_ns()
        try:
            fetched = await fetch(self.client, key, position)
        except OffsetOutOfRange:
            await self.out_of_range(key, position)
            return
        if fetched is None:
            await self.client.pause(0.2)
            return
        self.take(key, start, fetched)

    async def position(self, key: str) -> int | None:
        """From where to fetch; None where nobody says yet where the log begins. Raises OSError."""
        if key not in self.positions:
            found = await bound(self.client, key, EARLIEST_TIMESTAMP)
            if found is None:
                return None
            self.positions[key] = found
        return self.positions[key]

    def take(self, key: str, start_ns: int, fetched: Fetched) -> None:
        """What was asked for at that time."""
        self.positions[key] = fetched.next_offset
        self.client.last_ok_s = self.client.loop.time()
        if fetched.pairs:
            self._recorder.add(self._process, "poll", start_ns, "ok", [fetched.poll(key)], final=self._final)

    async def out_of_range(self, key: str, position: int) -> None:
        """At acks=1 a log may end before what was read. A new client reads from the beginning."""
        end = await bound(self.client, key, LATEST_TIMESTAMP)
        if end is not None and end < position:
            self._recorder.add(self._process, "crash", self._recorder.now_ns(), "info", final=self._final)
            self._process = self._recorder.process(self._process)
            self.assign()

    async def _note_end_of(self, key: str) -> None:
        """Where it ends now, if who says so leads it: one that was deposed may know less. Raises OSError."""
        broker, start = await self.client.leader(key), self._recorder.now_ns()
        stable = await bound(self.client, key, LATEST_TIMESTAMP)
        high_watermark = await bound(self.client, key, LATEST_TIMESTAMP, READ_UNCOMMITTED)
        if stable is None or high_watermark is None or self.client.is_deposed(key, broker):
            return
        self._recorder.add(self._process, "ends", start, "ok", ends={key: (stable, high_watermark)})

    async def note_ends(self) -> None:
        """Where each key ends for each isolation level; when every transaction is over. Raises OSError."""
        start = self._recorder.now_ns()
        ends: dict[str, tuple[int, int]] = {}
        while len(ends) < len(self._keys):
            for key in self._keys:
                stable = await bound(self.client, key, LATEST_TIMESTAMP)
                high_watermark = await bound(self.client, key, LATEST_TIMESTAMP, READ_UNCOMMITTED)
                if stable is not None and high_watermark is not None:
                    ends[key] = (stable, high_watermark)
        self._recorder.add(self._process, "ends", start, "ok", final=True, ends=ends)


async def fetch(
    client: ClusterClient, key: str, position: int, max_wait_ms: int = MAX_WAIT_MS
) -> Fetched | None:
    """What a partition has from there on; None where its leader has changed. Raises OSError, also
    `OffsetOutOfRange`."""
    topic, number = partition_of(key)
    wanted = {
        "partition": number, "current_leader_epoch": -1, "fetch_offset": position,
        "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": FETCH_BYTES,
    }  # fmt: skip
    fields = {
        "replica_id": -1, "max_wait_ms": max_wait_ms, "min_bytes": 1, "max_bytes": FETCH_BYTES,
        "isolation_level": READ_COMMITTED, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic": topic, "partitions": [wanted]}], "forgotten_topics_data": [], "rack_id": "",
    }  # fmt: skip
    broker = await client.leader(key)
    try:
        answer = await client.request(broker, ApiKey.FETCH, fields)
    except OSError:
        client.drop(broker)
        client.forget_leader(key)
        raise
    (partition,) = answer.responses[0].partitions
    code = ErrorCode(partition.error_code)
    if code is ErrorCode.OFFSET_OUT_OF_RANGE:
        if not client.is_deposed(key, broker):
            what = f"{broker} does not have {position} of {key}, up to which {client.loop.name} was shown all"
            client.report("out of range", what)
        raise OffsetOutOfRange(f"{key} does not have {position}")
    if code is not ErrorCode.NONE:
        client.forget_leader(key)
        return None
    return committed_records(partition.records or b"", partition.aborted_transactions, position)


async def bound(client: ClusterClient, key: str, which: int, isolation: int = READ_COMMITTED) -> int | None:
    """Where a partition begins or ends; None where its leader cannot say. Raises OSError."""
    topic, number = partition_of(key)
    partition = {"partition_index": number, "current_leader_epoch": -1, "timestamp": which}
    fields = {
        "replica_id": -1, "isolation_level": isolation,
        "topics": [{"name": topic, "partitions": [partition]}],
    }  # fmt: skip
    broker = await client.leader(key)
    answer = await client.request(broker, ApiKey.LIST_OFFSETS, fields)
    (found,) = answer.topics[0].partitions
    if found.error_code:
        client.forget_leader(key)
        return None
    return int(found.offset)
