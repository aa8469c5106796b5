"""Answering a fetch now, or when there is enough to answer with (fetch.min.bytes, fetch.max.wait.ms).

A fetch is answered at once where it finds `min_bytes`, an error, or may not wait. Otherwise it is
parked at its session: news of a partition (for a follower an append, for a consumer a higher high
watermark) wakes it, and it reads again at the end of the loop's turn, so that all appends of a turn
are sent in one answer. At its deadline it is answered with what there is.
A newer fetch of the same session supersedes a parked one, which is answered at once: so a follower that is
assigned one more partition fetches it without delay.

Path of the data: api/fetch -> here -> sessions, reader -> (parked) -> reply.
"""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from typing import Final

from data_plane.purgatory.timing_wheel import Deadline, WheelTimer
from data_plane.quotas.replication import ReplicationQuota
from fetch.messages import (
    INITIAL_EPOCH,
    NO_SESSION,
    SESSIONLESS_EPOCH,
    FetchedPartition,
    FetchParams,
    FetchRequest,
    FetchResponse,
)
from fetch.reader import Reading, read_session
from fetch.sessions import FetchSession, PartitionSource, SessionCache
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import report_fault

MS_PER_S: Final = 1000

Reply = Callable[[FetchResponse], None]


class FetchService:
    """All fetches that this broker answers."""

    def __init__(
        self,
        source: PartitionSource,
        sessions: SessionCache,
        timer: WheelTimer,
        loop: asyncio.AbstractEventLoop,
        *,
        max_response_bytes: int = 55 * 1024 * 1024,
        quota: ReplicationQuota | None = None,
    ) -> None:
        """`quota`: for followers that catch up."""
        self.source = source
        self.sessions = sessions
        self.timer = timer
        self.loop = loop
        self.max_response_bytes = max_response_bytes  # fetch.max.bytes
        self.quota = quota or ReplicationQuota()
        self.parked = 0
        self.cold_reads = 0
        """Of partitions whose bytes were not in the page cache, or too many: another thread read them."""

    def params_of(self, request: FetchRequest) -> FetchParams:
        """Its limits, lowered to fetch.max.bytes. So is `min_bytes`: nobody waits for what is never sent."""
        most = min(request.max_bytes, self.max_response_bytes)
        return FetchParams(request, min(request.min_bytes, most), most)

    def fetch(self, params: FetchParams, reply: Reply) -> DelayedFetch | None:
        """Answer through `reply`, at once or later. Returns the parked fetch, so that it can be
        cancelled when its connection goes; None where it has been answered."""
        now = self.loop.time()
        request = params.request
        try:
            session = self.sessions.open(request, now)
        except BrokerError as e:
            reply(FetchResponse(e.code))
            return None
        session.admit_deferred(now, request.max_wait_ms / MS_PER_S)
        pending = DelayedFetch(self, session, params, reply)
        reading = read_session(session, params, self.source, now, self.quota)
        if request.max_wait_ms <= 0 or not session.partitions or pending.is_enough(reading):
            pending.answer(reading)
            return None
        if session.defers_high_watermarks:
            reading.set_aside(session)
        pending.park()
        return pending

    def count_sent(self, partitions: list[FetchedPartition]) -> None:
        """What went to followers counts against the quota, whether they are in sync or not."""
        quota = self.quota
        size = sum(
            each.slice.length
            for each in partitions
            if each.slice is not None and quota.binds(TopicPartition(each.topic, each.partition))
        )
        if size:
            quota.record(size, self.loop.time())


class DelayedFetch:
    """One fetch between its arrival and its answer."""

    __slots__ = ("_deadline", "_done", "_params", "_reply", "_request", "_service", "_session", "_woken")

    def __init__(
        self, service: FetchService, session: FetchSession, params: FetchParams, reply: Reply
    ) -> None:
        self._service = service
        self._session = session
        self._params = params
        self._request = params.request
        self._reply = reply
        self._deadline: Deadline | None = None
        self._woken = False
        self._done = False

    def is_enough(self, reading: Reading) -> bool:
        return reading.urgent or reading.size >= self._params.min_bytes

    def park(self) -> None:
        service = self._service
        self._session.parked = self
        service.parked += 1
        self._deadline = service.timer.call_later(
            self._request.max_wait_ms / MS_PER_S, self._answer_with_what_is
        )

    def wake(self) -> None:
        """There may be enough now."""
        if not self._woken:
            self._woken = True
            self._service.loop.call_soon(self._look_again)

    def supersede(self) -> None:
        """A newer fetch of the session has come, or the session ends: answer. What is found stays for
        the newer fetch, which has the fetcher's latest offsets."""
        if self._leave():
            self._reply(FetchResponse(session_id=self._session.session_id))

    def cancel(self) -> None:
        """Nobody waits for the answer any more."""
        self._leave()

    def answer(self, reading: Reading) -> None:
        session = self._session
        self._done = True
        full = self._request.session_epoch in (INITIAL_EPOCH, SESSIONLESS_EPOCH)
        meter = self._params.meter
        pause_ms = 0 if meter is None else meter(reading.size)
        if pause_ms > 0:
            self._answer_with_nothing(pause_ms, full=full)
            return
        partitions = reading.commit(session, full=full)
        if self._request.from_follower and self._service.quota.limited:
            self._service.count_sent(partitions)
        if session.session_id == 0:
            session.close()
        self._reply(FetchResponse(session_id=session.session_id, partitions=partitions))

    def _answer_with_nothing(self, pause_ms: int, *, full: bool) -> None:
        """The consumer has used up its quota. A session that this fetch opened is dropped, since the client
        does not learn its id."""
        session = self._session
        if full and session.session_id != NO_SESSION:
            self._service.sessions.drop(session.session_id)
        elif full:
            session.close()
        session_id = NO_SESSION if full else session.session_id
        self._reply(FetchResponse(session_id=session_id, throttle_time_ms=pause_ms))

    def _look_again(self) -> None:
        self._woken = False
        if self._done:
            return
        try:
            self._session.admit_deferred(self._service.loop.time(), self._request.max_wait_ms / MS_PER_S)
            reading = self._read()
            if self.is_enough(reading) and self._leave(keep_session=True):
                self.answer(reading)
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _answer_with_what_is(self) -> None:
        try:
            if self._leave(keep_session=True):
                self._session.admit_deferred(self._service.loop.time(), 0.0)
                self.answer(self._read())
        except Exception as error:  # noqa: BLE001
            self._fail(error)

    def _fail(self, error: Exception) -> None:
        """No caller is left to answer the client; its session may be half updated, and ends."""
        self._leave()
        self._service.sessions.drop(self._session.session_id)
        report_fault(self._service.loop, "a fetch that waited", error)
        self._reply(FetchResponse(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _read(self) -> Reading:
        service = self._service
        return read_session(self._session, self._params, service.source, service.loop.time(), service.quota)

    def _leave(self, *, keep_session: bool = False) -> bool:
        """Leave the parking place; False where it was left before."""
        if self._done:
            return False
        self._done = True
        self._session.parked = None
        self._service.parked -= 1
        if self._deadline is not None:
            self._deadline.cancel()
        if not keep_session and self._session.session_id == 0:
            self._session.close()
        return True
