"""Incremental fetch sessions (KIP-227), the leader's side: the partitions that a fetcher wants, remembered
between its requests, and which of them may have news.

Every partition of a session has a `CachedPartition`, a watcher of the replica. An append, a higher high
watermark or a change of role makes it `dirty`. A request, and a parked fetch that is woken, look at the dirty
partitions only: 600 idle ones cost nothing. They are served in the order in which they became dirty, and one
that could not be served within the size limits stays in front, so partitions take turns.

A follower gets the high watermark with the next records of the partition. If only the high watermark
advanced, the partition is deferred: deferred ones are looked at once per replica.fetch.wait.max.ms, which is
how long it takes on an idle cluster. Otherwise there would be two responses for every record.

A fetch without a session uses a `FetchSession` too, which lives as long as the request.
Read by reader.py, parked by delayed_fetch.py.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Sequence
from typing import Final, Protocol
from uuid import UUID

from data_plane.replication.leader_state import FetchClock
from data_plane.replication.partition import Partition
from fetch.messages import (
    INITIAL_EPOCH,
    NO_SESSION,
    SESSIONLESS_EPOCH,
    FetchPartition,
    FetchRequest,
    next_session_epoch,
)
from metadata_quorum.foundation.errors import NO_ERROR, BrokerError, ErrorCode

CHANGES_AT_ONCE: Final = 1000
"""Partitions of one request that a session takes over at once; each takes a microsecond or two."""
MIN_EVICTION_SECONDS: Final = 120.0
MAX_PARTITIONS: Final = 250_000
"""Partitions in all sessions together, whether they exist or not: some 75 MB, or twice that if each has a
topic of its own with the longest name that there can be. Longer ones are not read (kraft/wire/limits.py)."""

Key = tuple[int | str, int]
"""A partition by its topic's id (as a number: a UUID is hashed by a function in Python) or name."""


class PartitionSource(Protocol):
    """Where replicas are found (data_plane/replication/partition_registry.py). Raises BrokerError where there
    is none."""

    def get(self, topic: str, partition: int) -> Partition: ...

    def get_by_id(self, topic_id: UUID, partition: int) -> Partition: ...


class ParkedFetch(Protocol):
    """A fetch that is parked at a session."""

    def wake(self) -> None: ...

    def supersede(self) -> None: ...


class CachedPartition:
    """One partition of a session, and its watcher."""

    __slots__ = (
        "_session",
        "current_leader_epoch",
        "fetch_offset",
        "last_fetched_epoch",
        "listed",
        "log_start_offset",
        "max_bytes",
        "partition",
        "replica",
        "sent_high_watermark",
        "sent_log_start_offset",
        "told_error",
        "topic",
        "topic_id",
    )

    def __init__(self, session: FetchSession, wanted: FetchPartition) -> None:
        self._session = session
        self.topic_id = wanted.topic_id
        self.topic = wanted.topic
        self.partition = wanted.partition
        self.replica: Partition | None = None
        self.sent_high_watermark = -1
        self.sent_log_start_offset = -1
        self.fetch_offset = wanted.fetch_offset
        self.current_leader_epoch = wanted.current_leader_epoch
        self.update(wanted)

    def update(self, wanted: FetchPartition) -> None:
        if (
            wanted.fetch_offset <= self.fetch_offset
            or wanted.current_leader_epoch != self.current_leader_epoch
        ):
            # The fetcher does not continue from the last response (it has truncated, or follows in another
            # epoch), so it may not have taken the offsets in that one.
            self.sent_high_watermark = self.sent_log_start_offset = -1
        self.fetch_offset = wanted.fetch_offset
        self.max_bytes = wanted.max_bytes
        self.current_leader_epoch = wanted.current_leader_epoch
        self.last_fetched_epoch = wanted.last_fetched_epoch
        self.log_start_offset = wanted.log_start_offset
        self.listed = True  # named by the request at hand: a follower's progress is to be noted
        self.told_error = NO_ERROR

    # Watcher: take note, act later.

    def log_grew(self) -> None:
        session = self._session
        if session.from_follower:
            session.dirty[self] = None
            if session.parked is not None:
                session.parked.wake()

    def readable_range_changed(self) -> None:
        session = self._session
        if session.defers_high_watermarks and self.has_only_high_watermark:
            session.deferred[self] = None
            return
        session.dirty[self] = None
        # A follower learns it with its next answer; unless consumers read from it, that is soon enough.
        if session.parked is not None and (not session.from_follower or session.prompt):
            session.parked.wake()

    @property
    def has_only_high_watermark(self) -> bool:
        """Whether the fetcher knows the log start offset, so that only the high watermark can be news."""
        replica = self.replica
        return replica is not None and replica.log.log_start_offset == self.sent_log_start_offset

    @property
    def has_news(self) -> bool:
        """Whether its high watermark or log start offset differ from what the fetcher was sent."""
        replica = self.replica
        return replica is not None and (
            replica.high_watermark != self.sent_high_watermark
            or replica.log.log_start_offset != self.sent_log_start_offset
        )

    def role_changed(self) -> None:
        session = self._session
        session.dirty[self] = None
        if session.parked is not None:
            session.parked.wake()

    def resolve(self, source: PartitionSource) -> Partition:
        """The replica, found again where it is not known or has been removed. Raises BrokerError."""
        replica = self.replica
        if replica is not None and not replica.removed:
            return replica
        self.leave()
        if self._session.uses_topic_ids:
            replica = source.get_by_id(self.topic_id, self.partition)
        else:
            replica = source.get(self.topic, self.partition)
        self.replica = replica
        self.topic = replica.tp.topic
        replica.watchers.add(self)
        return replica

    def leave(self) -> None:
        if self.replica is not None:
            self.replica.watchers.remove(self)
            self.replica = None


class FetchSession:
    """The partitions that one fetcher wants, and which of them may have news."""

    __slots__ = (
        "_unread",
        "_unread_from",
        "busy",
        "clock",
        "counted",
        "created_at",
        "deferred",
        "deferred_at",
        "defers_high_watermarks",
        "dirty",
        "expected_epoch",
        "from_follower",
        "last_used",
        "parked",
        "partitions",
        "prompt",
        "session_id",
        "uses_topic_ids",
    )

    def __init__(self, session_id: int, request: FetchRequest, now: float, *, prompt: bool = False) -> None:
        """`prompt`: send a higher high watermark to a follower at once."""
        self.session_id = session_id
        self.prompt = prompt
        self.expected_epoch = next_session_epoch(INITIAL_EPOCH)
        self.from_follower = request.from_follower
        self.uses_topic_ids = request.uses_topic_ids
        self.partitions: dict[Key, CachedPartition] = {}
        self.dirty: dict[CachedPartition, None] = {}
        self.defers_high_watermarks = request.from_follower and not prompt
        self.deferred: dict[CachedPartition, None] = {}
        """Partitions of which only the high watermark rose since the follower's last response about them."""
        self.deferred_at = now
        """When deferred partitions were last looked at."""
        self.clock = FetchClock(now)
        self.created_at = now
        self.last_used = now
        self.parked: ParkedFetch | None = None
        self.busy = False
        """Whether a fetch of very many partitions is being looked at in pieces: no other may use the session
        meanwhile."""
        self.counted = 0
        """Partitions that the cache counts for it."""
        self._unread: FetchRequest | None = None
        self._unread_from = 0
        """A long request, and the place from which on its changes have not been taken over."""
        self.want(request, now)

    def want(self, request: FetchRequest, now: float) -> None:
        """Take over the changes that a request names; if they are very many, `want_more` does it."""
        self.last_used = now
        self.clock.last_fetch = now
        if len(request.forgotten) + len(request.partitions) > CHANGES_AT_ONCE:
            self._unread, self._unread_from = request, 0
        else:
            self._forget(request.forgotten)
            self._name(request.partitions)

    @property
    def wants_more(self) -> bool:
        return self._unread is not None

    def want_more(self, most: int) -> None:
        """Take over `most` more of a long request's changes."""
        request = self._unread
        assert request is not None, "asked only of one that wants more"
        start, first = self._unread_from, self._unread_from - len(request.forgotten)
        self._unread_from += most
        if start < len(request.forgotten):
            self._forget(request.forgotten[start : start + most])
        self._name(request.partitions[max(first, 0) : max(first + most, 0)])
        if first + most >= len(request.partitions):
            self._unread = None

    def _forget(self, forgotten: Sequence[tuple[UUID, str, int]]) -> None:
        by_id = self.uses_topic_ids
        for topic_id, topic, partition in forgotten:
            gone = self.partitions.pop((topic_id.int if by_id else topic, partition), None)
            if gone is not None:
                self.dirty.pop(gone, None)
                self.deferred.pop(gone, None)
                gone.leave()

    def _name(self, named: Sequence[FetchPartition]) -> None:
        by_id = self.uses_topic_ids
        for wanted in named:
            key = (wanted.topic_id.int if by_id else wanted.topic, wanted.partition)
            known = self.partitions.get(key)
            if known is None:
                self.partitions[key] = known = CachedPartition(self, wanted)
            else:
                known.update(wanted)
                self.dirty.pop(known, None)  # it has had its turn: behind all others
            self.dirty[known] = None

    def admit_deferred(self, now: float, wait_s: float) -> None:
        """Make the deferred partitions dirty, if that was done `wait_s` or longer ago."""
        if self.deferred and now - self.deferred_at >= wait_s:
            self.dirty.update(self.deferred)
            self.deferred.clear()
            self.deferred_at = now

    def must_send_high_watermark(self, partition: CachedPartition, high_watermark: int) -> bool:
        """Whether the high watermark must be sent to a follower now."""
        return self.prompt and self.from_follower and high_watermark != partition.sent_high_watermark

    def close(self) -> None:
        """It has ended, and is to be taken down; a parked fetch is answered."""
        if self.parked is not None:
            self.parked.supersede()
        self._unread = None
        self.dirty.clear()
        self.deferred.clear()

    def take_down_at_once(self) -> None:
        """`close` it, and let all its partitions leave their replicas."""
        if self.parked is not None:
            self.parked.supersede()
        for partition in self.partitions.values():
            partition.leave()
        # They refer to the session and it to them: freed now, not by the cycle collector.
        self.partitions, self.dirty, self.deferred = {}, {}, {}

    def take_down(self, most: int) -> int:
        """After `close`: let up to `most` partitions leave their replicas, and forget them. Returns how many
        did."""
        partitions, dirty, deferred = self.partitions, self.dirty, self.deferred
        count = min(most, len(partitions))
        for _ in range(count):
            _, partition = partitions.popitem()
            partition.leave()
            dirty.pop(partition, None)  # there was news of it since
            deferred.pop(partition, None)
        return count


class SessionCache:
    """The sessions that a broker keeps (max.incremental.fetch.session.cache.slots).

    When it is full, a new session takes the place of one that has not been used for long; otherwise a
    follower's takes a consumer's; otherwise a larger one takes the smallest of its kind that has existed
    for long. It is also full when its sessions together have as many partitions as it may remember; then the
    largest of consumers give way to a follower's. If no session gives way, the fetch is answered without a
    session. A session ends with the
    connection on which it was last used (api/fetch): an abandoned one would watch its
    partitions, and be woken by every append, until the cache is full.
    """

    def __init__(
        self,
        slots: int,
        rng: random.Random,
        *,
        prompt: bool = False,
        max_request_partitions: Callable[[], int] = lambda: MAX_PARTITIONS,
        max_partitions: int = MAX_PARTITIONS,
    ) -> None:
        """`prompt`: consumers read from followers, which must know a new high watermark at once.
        `max_request_partitions`: how many partitions one session may have; `max_partitions`: all together."""
        self._slots = slots
        self.max_request_partitions = max_request_partitions
        self._max_partitions = max_partitions
        self.partitions = 0
        """How many partitions all sessions together have."""
        self.evictions = 0
        """How many sessions had to make room for another one."""
        self.prompt = prompt
        self.on_end: Callable[[FetchSession], None] = FetchSession.take_down_at_once
        """Takes down a session that has ended."""
        self._rng = rng
        self._sessions: dict[int, FetchSession] = {}  # least recently used first

    def __len__(self) -> int:
        return len(self._sessions)

    def open(self, request: FetchRequest, now: float, remembers: bool = True) -> FetchSession:
        """The session that serves `request`; it may be one for this request only (session_id 0), as it always
        is if it opens one and not `remembers`.

        Raises BrokerError: FETCH_SESSION_ID_NOT_FOUND, INVALID_FETCH_SESSION_EPOCH,
        FETCH_SESSION_TOPIC_ID_ERROR.
        """
        if request.session_epoch in (SESSIONLESS_EPOCH, INITIAL_EPOCH):
            if request.session_id != NO_SESSION:
                self.drop(request.session_id)
            keeps = remembers and request.session_epoch == INITIAL_EPOCH
            if not keeps or not self._make_room(request, now):
                return FetchSession(NO_SESSION, request, now)
            session = FetchSession(self._new_id(), request, now, prompt=self.prompt)
            self._sessions[session.session_id] = session
            self._count(session, len(request.partitions) if session.wants_more else len(session.partitions))
            return session
        known = self._sessions.get(request.session_id)
        if known is None:
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, str(request.session_id))
        if known.expected_epoch != request.session_epoch:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, f"expected {known.expected_epoch}")
        if known.busy:
            raise BrokerError(ErrorCode.INVALID_FETCH_SESSION_EPOCH, "its last fetch is not answered yet")
        if known.uses_topic_ids != request.uses_topic_ids:
            raise BrokerError(ErrorCode.FETCH_SESSION_TOPIC_ID_ERROR)
        if known.parked is not None:
            # The fetcher has more to ask than when it sent the parked one.
            known.parked.supersede()
        known.expected_epoch = next_session_epoch(request.session_epoch)
        before = known.counted
        known.want(request, now)
        self._count(known, before + len(request.partitions) if known.wants_more else len(known.partitions))
        if not known.wants_more and known.counted > before:
            self._check(known)
        del self._sessions[known.session_id]
        self._sessions[known.session_id] = known
        return known

    def want_more(self, session: FetchSession, most: int) -> None:
        """Let the session take over `most` more of a long request's changes. Until all are taken over the
        request counts in full. Raises BrokerError: FETCH_SESSION_ID_NOT_FOUND."""
        session.want_more(most)
        if session.session_id != NO_SESSION and not session.wants_more:
            self._count(session, len(session.partitions))
            self._check(session)

    def _count(self, session: FetchSession, partitions: int) -> None:
        self.partitions += partitions - session.counted
        session.counted = partitions

    def _check(self, session: FetchSession) -> None:
        if session.from_follower:
            self._take_from_consumers(0)
        if self.partitions > self._max_partitions or session.counted > self.max_request_partitions():
            session.parked = None  # it is answered with the error
            self.drop(session.session_id)
            raise BrokerError(ErrorCode.FETCH_SESSION_ID_NOT_FOUND, "too many partitions to remember")

    def _new_id(self) -> int:
        while True:
            session_id = self._rng.randint(1, 0x7FFFFFFF)
            if session_id not in self._sessions:
                return session_id

    def overtaken(self, session_id: int | None) -> None:
        """The follower has sent a newer fetch, which waits on its connection behind the one that is parked.
        (A consumer's next fetch waits, as with Kafka.)"""
        session = self._sessions.get(session_id) if session_id is not None else None
        if session is not None and session.from_follower and not session.busy and session.parked is not None:
            session.parked.supersede()

    def drop(self, session_id: int) -> None:
        """End a session, if there is one of that id."""
        session = self._sessions.pop(session_id, None)
        if session is not None:
            self._count(session, 0)
            self.on_end(session)

    def _make_room(self, request: FetchRequest, now: float) -> bool:
        if not request.partitions or self._slots <= 0:
            return False
        while self._sessions and not self._has_room(request):
            oldest = next(iter(self._sessions.values()))
            if now - oldest.last_used < MIN_EVICTION_SECONDS:
                break
            self._evict(oldest)
        if request.from_follower:
            self._take_from_consumers(len(request.partitions))
        if self.partitions + len(request.partitions) > self._max_partitions:
            return False
        if len(self._sessions) < self._slots:
            return True
        victims = [
            s
            for s in self._sessions.values()
            if (request.from_follower and not s.from_follower)
            or (
                request.from_follower == s.from_follower
                and now - s.created_at >= MIN_EVICTION_SECONDS
                and len(s.partitions) < len(request.partitions)
            )
        ]
        if not victims:
            return False
        # Consumers before followers, then the smallest, then the least recently used.
        self._evict(min(victims, key=lambda s: (s.from_follower, len(s.partitions))))
        return True

    def _take_from_consumers(self, more: int) -> None:
        """Make room for `more` partitions of a follower, if that helps: without a session it names all that
        it has in each of its requests. Any client may fill the cache, so the largest go first."""
        excess = self.partitions + more - self._max_partitions
        if excess <= 0:
            return
        consumers = [each for each in self._sessions.values() if not each.from_follower]
        if sum(each.counted for each in consumers) < excess:
            return
        for each in sorted(consumers, key=lambda each: each.counted, reverse=True):
            if self.partitions + more <= self._max_partitions:
                break
            self._evict(each)

    def _evict(self, session: FetchSession) -> None:
        self.evictions += 1
        self.drop(session.session_id)

    def _has_room(self, request: FetchRequest) -> bool:
        return (
            len(self._sessions) < self._slots
            and self.partitions + len(request.partitions) <= self._max_partitions
        )
