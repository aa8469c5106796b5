"""A simulated consumer that assigns partitions itself: fetches, leaves out what was aborted, polls.

Every fetch that brings something is one poll. A client that begins anew starts at the beginning of each log.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final

from chaos.history import Poll
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.recorder import Recorder
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import CONTROL_ABORT, control_type, decode_batch, iter_headers
from metadata_quorum.foundation.errors import ErrorCode

EARLIEST: Final = -2
LATEST: Final = -1
READ_COMMITTED: Final = 1
MAX_WAIT_MS: Final = 400
FETCH_BYTES: Final = 64 * 1024


def committed_records(data: Any, aborted: Any, start: int) -> Iterator[tuple[int, int]]:
    """(offset, value) of what a read_committed consumer hands out, and the offset to go on at as the last
    item, with the value -1."""
    begun = sorted((each.first_offset, each.producer_id) for each in aborted or ())
    open_aborts: set[int] = set()
    place = start
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
                    yield record.offset, int(record.value or b"0")
        place = header.last_offset + 1
    yield place, -1


class SimReader:
    """See the module."""

    def __init__(
        self, client: ClusterClient, recorder: Recorder, keys: list[str], *, final: bool = False
    ) -> None:
        self.places: dict[str, int] = {}
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
            await self.client.pause(0.1)

    def assign(self) -> None:
        now = self._recorder.now_ns()
        self.places.clear()
        self._recorder.add(self._process, "assign", now, "ok", keys=self._keys, final=self._final)

    async def poll(self, key: str) -> None:
        """Fetch once. Raises OSError."""
        place = self.places.get(key)
        if place is None:
            found = await self.bound(key, EARLIEST)
            if found is None:
                return
            place = self.places[key] = found
        start = self._recorder.now_ns()
        partition = await self._fetch(key, place)
        code = ErrorCode(partition.error_code)
        if code is ErrorCode.OFFSET_OUT_OF_RANGE:
            await self._out_of_range(key, place)
            return
        if code is not ErrorCode.NONE:
            self.client.forget_leader(key)
            await self.client.pause(0.2)
            return
        *pairs, (self.places[key], _) = committed_records(
            partition.records or b"", partition.aborted_transactions, place
        )
        self.client.last_ok_s = self.client.loop.time()
        if pairs:
            polled = Poll({key: pairs})
            self._recorder.add(self._process, "poll", start, "ok", [polled], final=self._final)

    async def _out_of_range(self, key: str, place: int) -> None:
        """At acks=1 a log may end before what was read. It goes on at the end, as a client is told to."""
        end = await self.bound(key, LATEST)
        if end is not None and end < place:
            self._recorder.add(self._process, "crash", self._recorder.now_ns(), "ok", final=self._final)
            self._process = self._recorder.process()
            self.assign()

    async def _fetch(self, key: str, place: int) -> Any:
        topic, _, number = key.rpartition("-")
        wanted = {
            "partition": int(number), "current_leader_epoch": -1, "fetch_offset": place,
            "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": FETCH_BYTES,
        }  # fmt: skip
        fields = {
            "replica_id": -1, "max_wait_ms": MAX_WAIT_MS, "min_bytes": 1, "max_bytes": FETCH_BYTES,
            "isolation_level": READ_COMMITTED, "session_id": 0, "session_epoch": -1,
            "topics": [{"topic": topic, "partitions": [wanted]}], "forgotten_topics_data": [], "rack_id": "",
        }  # fmt: skip
        broker = await self.client.leader(key)
        try:
            answer = await self.client.request(broker, ApiKey.FETCH, fields)
        except OSError:
            self.client.drop(broker)
            raise
        return answer.responses[0].partitions[0]

    async def bound(self, key: str, which: int, isolation: int = READ_COMMITTED) -> int | None:
        """Where a partition begins or ends; None where its leader cannot say. Raises OSError."""
        topic, _, number = key.rpartition("-")
        partition = {"partition_index": int(number), "current_leader_epoch": -1, "timestamp": which}
        fields = {
            "replica_id": -1, "isolation_level": isolation,
            "topics": [{"name": topic, "partitions": [partition]}],
        }  # fmt: skip
        broker = await self.client.leader(key)
        answer = await self.client.request(broker, ApiKey.LIST_OFFSETS, fields)
        (found,) = answer.topics[0].partitions
        if found.error_code:
            self.client.forget_leader(key)
            return None
        return int(found.offset)
