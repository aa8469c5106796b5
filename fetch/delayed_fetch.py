"""Answering a fetch now, or when there is enough to answer with (fetch.min.bytes, fetch.max.wait.ms).

A fetch is answered at once if it finds `min_bytes` or an error, or may not wait. Otherwise it is
parked at its session: news of a partition (for a follower an append, for a consumer a higher high
watermark) wakes it, and it reads again at the end of the turn of the loop, so that all appends of a
turn are sent in one response. At its deadline it is answered with what there is. However many fetches
are woken or expire at once, and however many partitions one of them has, one turn looks at only as many
partitions as take some milliseconds.

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
from fetch.session_ends import FEW, SessionEnds
from fetch.sessions import FetchSession, PartitionSource, SessionCache
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.next_turn import NextTurn
from metadata_quorum.foundation.supervision import report_fault

MS_PER_S: Final = 1000

LOOKS_PER_TURN: Final = 1000
"""Partitions that are looked at in one turn of the loop; each takes some 5 microseconds."""
LOOKS_OF_AN_ANSWER: Final = 10
"""To read, encode and send an answer takes as long as so many looks, or longer."""

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
        """`quota`: for followers that are catching up."""
        self.source = source
        self.sessions = sessions
        self.timer = timer
        self.loop = loop
        self.max_response_bytes = max_response_bytes  # fetch.max.bytes
        self.quota = quota or ReplicationQuota()
        self.ends = SessionEnds(loop)
        sessions.on_end = self.ends.end
        self.parked = 0
        self.cold_reads = 0
        """How often a partition was read in another thread because its bytes were not in the page cache, or
        too many."""
        self._followers: dict[DelayedFetch, None] = {}
        self._consumers: dict[DelayedFetch, None] = {}
        """Parked fetches that were woken or have expired."""
        self._next_turn = NextTurn(loop, self._look)

    def params_of(self, request: FetchRequest) -> FetchParams:
        """The limits of a request, lowered to fetch.max.bytes. So is `min_bytes`: otherwise the fetch would
        wait for more than is ever sent."""
        most = min(request.max_bytes, self.max_response_bytes)
        return FetchParams(request, min(request.min_bytes, most), most)

    def fetch(self, params: FetchParams, reply: Reply) -> DelayedFetch | None:
        """Answer through `reply`, at once or later. Returns the parked fetch, so that it can be
        cancelled when its connection goes; None where it has been answered."""
        now = self.loop.time()
        request = params.request
        try:
            # Whoever names a broker's id would be preferred to all consumers.
            remembers = params.may_read is None or not request.from_follower
            session = self.sessions.open(request, now, remembers)
        except BrokerError as e:
            reply(FetchResponse(e.code))
            return None
        session.admit_deferred(now, request.max_wait_ms / MS_PER_S)
        pending = DelayedFetch(self, session, params, reply)
        if session.wants_more or len(session.dirty) > LOOKS_PER_TURN:
            pending.park()
            pending.begin()
            return pending
        reading = read_session(session, params, self.source, now, self.quota)
        if request.max_wait_ms <= 0 or not session.partitions or pending.is_enough(reading):
            pending.answer(reading)
            return None
        pending.put_back(reading)
        pending.park()
        return pending

    def look_again(self, parked: DelayedFetch) -> None:
        """Look at it in the next turn of the loop or, where very many are woken, in one of the next:
        followers have their own share of it, for whoever may name a broker's id, and comes very often, is one
        too."""
        woken = self._followers if parked._session.from_follower else self._consumers
        woken[parked] = None
        self._next_turn.ask()

    def _look(self) -> None:
        try:
            left = LOOKS_PER_TURN
            while self._followers and left > 0:
                left -= _first_of(self._followers).look()
            left = LOOKS_PER_TURN
            while self._consumers and left > 0:
                left -= _first_of(self._consumers).look()
        finally:
            if self._followers or self._consumers:
                self._next_turn.ask()

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


def _first_of(woken: dict[DelayedFetch, None]) -> DelayedFetch:
    """Take the first one out."""
    parked = next(iter(woken))
    del woken[parked]
    return parked


class DelayedFetch:
    """One fetch from its arrival to its response."""

    __slots__ = (
        "_answering",
        "_deadline",
        "_done",
        "_expired",
        "_params",
        "_pause_ms",
        "_reading",
        "_reply",
        "_request",
        "_service",
        "_session",
        "_woken",
    )

    def __init__(
        self, service: FetchService, session: FetchSession, params: FetchParams, reply: Reply
    ) -> None:
        self._service = service
        self._session = session
        self._params = params
        self._request = params.request
        self._reply = reply
        self._deadline: Deadline | None = None
        self._expired = False
        self._done = False
        self._reading: Reading | None = None
        """One that has been begun; it continues in later turns of the loop."""
        self._woken = False
        """Whether there was news since that began."""
        self._answering = False
        """Whether it has found enough, and is being committed."""
        self._pause_ms = 0

    def is_enough(self, reading: Reading) -> bool:
        enough = min(self._params.min_bytes, reading.limit)
        return reading.urgent or reading.limit_reached or reading.size >= enough

    def park(self) -> None:
        service = self._service
        self._session.parked = self
        service.parked += 1
        self._deadline = service.timer.call_later(self._request.max_wait_ms / MS_PER_S, self._expire)

    def wake(self) -> None:
        """Look again soon: there may be enough to answer."""
        self._woken = True
        self._service.look_again(self)

    def _expire(self) -> None:
        self._expired = True
        self._service.look_again(self)

    def look(self) -> int:
        """Answer the fetch if there is enough or its time is up; of one with very many partitions do a piece.
        Returns how many partitions were looked at."""
        if self._done:
            return 0
        try:
            return self._piece(LOOKS_PER_TURN)
        except BrokerError as error:
            if self._leave():
                self._reply(FetchResponse(error.code))
        except Exception as error:  # noqa: BLE001
            self._fail(error)
        return 1

    def _piece(self, most: int) -> int:
        service, session = self._service, self._session
        if session.wants_more:
            service.sessions.want_more(session, most)
            return self._go_on(most)
        now, reading = service.loop.time(), self._reading
        if reading is None:
            wait_s = 0.0 if self._expired else self._request.max_wait_ms / MS_PER_S
            session.admit_deferred(now, wait_s)
            self._reading = reading = Reading(session, self._params, service.source, service.quota)
            self._woken = False
        if not reading.is_whole:
            reading.look(now, most)
            if not reading.is_whole:
                return self._go_on(most)
        looked_at = 1 + len(reading.found)
        if not self._answering:
            if not (self._expired or self.is_enough(reading)):
                self._wait(reading)
                return looked_at
            self._answering = True
            self._pause_ms = self._metered(reading)
        if self._pause_ms == 0 and not reading.commit(most, full=self._is_full_fetch):
            return self._go_on(most)
        self._leave(keep_session=True)
        self._send(reading)
        return looked_at + LOOKS_OF_AN_ANSWER

    def _wait(self, reading: Reading) -> None:
        """Wait for news; look again at once if some came during this reading."""
        self._reading = None
        self._session.busy = False
        self.put_back(reading)
        if self._woken:
            self._service.look_again(self)

    def put_back(self, reading: Reading) -> None:
        """Undo a reading that did not find enough."""
        reading.put_back(aside=self._session.defers_high_watermarks)

    def begin(self) -> None:
        """Begin to look at very many partitions, in the next turn of the loop."""
        self._go_on(0)

    def _go_on(self, looked_at: int) -> int:
        """Continue in another turn of the loop."""
        self._session.busy = True
        self._service.look_again(self)
        return looked_at

    def supersede(self) -> None:
        """A newer fetch of the session has come, or the session ends: answer without records. They are left
        for the newer fetch, which has the fetcher's latest offsets."""
        if self._leave():
            self._reply(FetchResponse(session_id=self._session.session_id))

    def cancel(self) -> None:
        """The connection has gone, so nobody waits for the response; the session ends too."""
        self._leave()
        self._service.sessions.drop(self._session.session_id)

    def answer(self, reading: Reading) -> None:
        """Answer at once, without having been parked."""
        self._done = True
        self._pause_ms = self._metered(reading)
        if self._pause_ms == 0:
            reading.commit(len(reading.found), full=self._is_full_fetch)
        self._send(reading)

    @property
    def _is_full_fetch(self) -> bool:
        """Whether the response names all partitions (KIP-227)."""
        return self._request.session_epoch in (INITIAL_EPOCH, SESSIONLESS_EPOCH)

    def _metered(self, reading: Reading) -> int:
        """Charge the consumer's quota. Returns for how many ms it must pause without getting records, or
        0."""
        meter = self._params.meter
        return 0 if meter is None else max(meter(reading.size), 0)

    def _send(self, reading: Reading) -> None:
        session = self._session
        if self._pause_ms > 0:
            reading.put_back(aside=False)
            self._answer_with_nothing(self._pause_ms, full=self._is_full_fetch)
            return
        if self._request.from_follower and self._service.quota.limited:
            self._service.count_sent(reading.answered)
        if session.session_id == NO_SESSION:
            if len(session.partitions) <= FEW:  # most fetches: not even a call more
                session.take_down_at_once()
            else:
                self._service.ends.end(session)
        self._reply(FetchResponse(session_id=session.session_id, partitions=reading.answered))

    def _answer_with_nothing(self, pause_ms: int, *, full: bool) -> None:
        """The consumer has used up its quota. A session that this fetch opened is dropped, since the client
        does not learn its id."""
        session = self._session
        if full and session.session_id != NO_SESSION:
            self._service.sessions.drop(session.session_id)
        elif full:
            self._service.ends.end(session)
        session_id = NO_SESSION if full else session.session_id
        self._reply(FetchResponse(session_id=session_id, throttle_time_ms=pause_ms))

    def _fail(self, error: Exception) -> None:
        """A bug: there is no caller that could answer the client. Its session may be half updated, so it
        ends."""
        self._leave()
        self._service.sessions.drop(self._session.session_id)
        report_fault(self._service.loop, "a fetch that waited", error)
        self._reply(FetchResponse(ErrorCode.UNKNOWN_SERVER_ERROR))

    def _leave(self, *, keep_session: bool = False) -> bool:
        """Leave the parking place. False if the fetch had left it before."""
        if self._done:
            return False
        self._done = True
        self._session.parked = None
        self._session.busy = False
        self._reading = None
        self._service.parked -= 1
        if self._deadline is not None:
            self._deadline.cancel()
        if not keep_session and self._session.session_id == NO_SESSION:
            self._service.ends.end(self._session)
        return True
