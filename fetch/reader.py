"""Reading many partitions for one fetch, within its limits.

Only the session's dirty partitions are looked at. Each gets what is left of the response's bytes, up
to its own maximum; the first batch of a response is allowed however large it is, so that no fetcher gets
stuck. What is found are slices of files; their bytes are read when the response is written.

Followers read to the end of the log, and their offset says how far they have come; consumers read to
the high watermark, or to the last stable offset, or are sent to a nearer replica. A follower
that is catching up gets nothing of a throttled partition while the quota is used up; an in-sync follower is
never held back.

Path of the data: api/fetch -> delayed_fetch -> here -> partition -> log.
"""

from __future__ import annotations

from itertools import islice
from typing import Final

from data_plane.log.epochs import UNDEFINED_OFFSET
from data_plane.log.segment import LogSlice
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.partition import Partition
from fetch.messages import FetchedPartition, FetchParams
from fetch.sessions import CachedPartition, FetchSession, PartitionSource
from metadata_quorum.foundation.errors import NO_ERROR, BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH

_FAILURES: Final = frozenset(
    {ErrorCode.OFFSET_OUT_OF_RANGE, ErrorCode.CORRUPT_MESSAGE, ErrorCode.UNKNOWN_SERVER_ERROR}
)
"""Kafka counts these as failed fetches; all others are normal when leaders change."""

_ABSENT: Final = frozenset(
    {
        ErrorCode.TOPIC_AUTHORIZATION_FAILED,
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorCode.UNKNOWN_TOPIC_ID,
    }
)
"""Once reported, these are answered only together with something else, as in Kafka. Otherwise a consumer that
still fetches a deleted topic among others would be answered, and ask again, without a pause."""


class Reading:
    """One look at the dirty partitions of a session. It takes them from the session; those that change
    meanwhile become dirty again. Very many are looked at, and put into the response, in several pieces. Ends
    with `commit`, or with `put_back`, which undoes it."""

    __slots__ = (
        "_absent",
        "_again",
        "_budget",
        "_committed",
        "_params",
        "_quota",
        "_rest",
        "_session",
        "_source",
        "_stay",
        "_taken",
        "answered",
        "found",
        "limit",
        "limit_reached",
        "size",
        "starved",
        "urgent",
    )

    def __init__(
        self, session: FetchSession, params: FetchParams, source: PartitionSource, quota: ReplicationQuota
    ) -> None:
        self._session = session
        self._params = params
        self._source = source
        self._quota = quota
        self._taken, session.dirty = session.dirty, {}
        self._rest = iter(self._taken)
        self._absent = 0
        self.limit = self._budget = params.max_bytes  # of records
        self.limit_reached = False  # the next batch did not fit into the limit
        self.found: list[tuple[CachedPartition, FetchedPartition | None]] = []
        """None: nothing but offsets, as most looks for followers find; the answer is made when it is sent."""
        self.starved: set[CachedPartition] = set()  # have data that did not fit
        self.size = 0  # bytes of records
        self.urgent = False  # worth an answer at once, without data
        self._committed = 0
        self._stay: dict[CachedPartition, None] = {}
        self._again: dict[CachedPartition, None] = {}
        self.answered: list[FetchedPartition] = []

    @property
    def is_whole(self) -> bool:
        """Whether all have been looked at."""
        return len(self.found) == len(self._taken)

    def look(self, now: float, most: int) -> None:
        """Look at `most` more partitions; notes a follower's progress on the way."""
        session, params = self._session, self._params
        for wanted in islice(self._rest, most):
            try:
                if params.may_read is not None and not params.may_read(wanted.topic, wanted.topic_id):
                    raise BrokerError(ErrorCode.TOPIC_AUTHORIZATION_FAILED)
                replica = wanted.resolve(self._source)
                result: FetchedPartition | None = _read_partition(wanted, replica, params, session, self, now)
            except BrokerError as error:
                result = _refusal(wanted, error.code)
            except Exception as error:  # noqa: BLE001 - one partition's affair: the others are read all the same
                result = _refusal(wanted, _code_of_bug(error, wanted))
            if result is None:
                if session.must_send_high_watermark(wanted, replica.high_watermark):
                    self.urgent = True
            elif result.slice is not None:
                self.size += result.slice.length
                self._budget -= result.slice.length
            elif result.error in _ABSENT and result.error is wanted.told_error:
                self._absent += 1
            else:
                self.urgent = True
            self.found.append((wanted, result))
        if self._absent == len(session.partitions):
            self.urgent = True

    def piece_of(self, wanted: CachedPartition, replica: Partition, end: int, now: float) -> LogSlice | None:
        """Records before `end`, which is ahead, as many as fit; notes a partition that gets none."""
        first = self.size == 0
        limit = min(wanted.max_bytes, self._budget)
        held_back = self._session.from_follower and self._holds_back(replica, now)
        if not held_back and (first or limit > 0):
            piece = replica.read(wanted.fetch_offset, limit, end, at_least_one_batch=first)
            if piece is not None:
                return piece
        self.starved.add(wanted)
        if not held_back and self._budget < wanted.max_bytes:
            self.limit_reached = True
        return None

    def _holds_back(self, replica: Partition, now: float) -> bool:
        """Whether the follower must wait because the replication quota is used up."""
        quota, leader = self._quota, replica.leader
        return (
            quota.binds(replica.tp)
            and leader is not None
            and self._params.request.replica_id not in leader.isr
            and quota.exceeded(now)
        )

    def commit(self, most: int, *, full: bool) -> bool:
        """Add `most` more partitions to `answered`: all of them in a full response, those with news in an
        incremental one. Returns whether all are done."""
        session, first = self._session, self._committed
        self._committed += most
        for wanted, result in self.found[first : self._committed]:
            _count(wanted, result, by_follower=session.from_follower)
            if result is not None:
                # Stays dirty until a look finds nothing: only the next request shows that the fetcher got it.
                # Behind all others, so that partitions take turns.
                self._again[wanted] = None
            else:
                if wanted in self.starved:
                    self._stay[wanted] = None
                if not full and not wanted.has_news:
                    continue
                result = self._numbers_now(wanted)
            wanted.sent_high_watermark = result.high_watermark
            wanted.sent_log_start_offset = result.log_start_offset
            wanted.told_error = result.error
            session.deferred.pop(wanted, None)
            self.answered.append(result)
        if self._committed < len(self.found):
            return False
        session.dirty = {**self._stay, **session.dirty, **self._again}
        return True

    def _numbers_now(self, wanted: CachedPartition) -> FetchedPartition:
        """Its offsets, or an error: since the look, in an earlier turn of the loop, another leader may have
        been elected, whose offsets must not be sent to a fetcher in the old epoch."""
        replica, session = wanted.replica, self._session
        assert replica is not None, "it was resolved when it was looked at"
        leader_only = session.from_follower or self._params.request.leader_only
        try:
            replica.check_epoch(wanted.current_leader_epoch, leader_only=leader_only)
        except BrokerError as e:
            self._again[wanted] = None
            return FetchedPartition(wanted.topic_id, wanted.topic, wanted.partition, e.code)
        return _numbers(wanted, session)

    def put_back(self, *, aside: bool) -> None:
        """Make all of them dirty again. `aside`: a follower's fetch is parked; partitions without news are
        not looked at again before they have any."""
        session = self._session
        if aside:
            for wanted, result in self.found:
                if result is None and wanted not in self.starved and wanted.has_only_high_watermark:
                    del self._taken[wanted]
                    if wanted.has_news:
                        session.deferred[wanted] = None
        session.dirty = {**self._taken, **session.dirty} if session.dirty else self._taken


def _count(wanted: CachedPartition, result: FetchedPartition | None, *, by_follower: bool) -> None:
    replica = wanted.replica
    if replica is None:
        return
    piece = None if result is None else result.slice
    replica.stats.fetched(0 if piece is None else piece.length, by_follower=by_follower)
    if result is not None and result.error in _FAILURES:
        replica.stats.failed_fetch_requests += 1


def _refusal(wanted: CachedPartition, code: ErrorCode) -> FetchedPartition:
    wanted.listed = False
    return FetchedPartition(wanted.topic_id, wanted.topic, wanted.partition, code)


def _code_of_bug(bug: Exception, wanted: CachedPartition) -> ErrorCode:
    """Reports it and returns what the fetcher is told.

    Raises:
        Exception: the bug, if no replica was found to report it.
    """
    if wanted.replica is None:
        raise bug
    wanted.replica.fault(f"a fetch of {wanted.replica.tp}", bug)
    return ErrorCode.UNKNOWN_SERVER_ERROR


def read_session(
    session: FetchSession,
    params: FetchParams,
    source: PartitionSource,
    now: float,
    quota: ReplicationQuota,
) -> Reading:
    """Look at all dirty partitions of the session at once."""
    reading = Reading(session, params, source, quota)
    reading.look(now, len(session.partitions))
    return reading


def _read_partition(
    wanted: CachedPartition,
    replica: Partition,
    params: FetchParams,
    session: FetchSession,
    reading: Reading,
    now: float,
) -> FetchedPartition | None:
    """The answer for one partition; None if there is nothing but offsets. Notes a follower's progress. Raises
    BrokerError."""
    request = params.request
    follower = session.from_follower
    offset = wanted.fetch_offset
    replica.check_epoch(wanted.current_leader_epoch, leader_only=follower or request.leader_only)
    if params.preferred_replica_of is not None and replica.leader is not None:
        preferred = params.preferred_replica_of(replica, offset)
        if preferred >= 0:
            return _elsewhere(wanted, replica, preferred)
    diverging = diverging_epoch(replica, offset, wanted.last_fetched_epoch)
    piece: LogSlice | None = None
    if diverging is None:
        if follower and wanted.listed:
            replica.follower_fetched(
                request.replica_id,
                request.replica_epoch,
                offset,
                wanted.log_start_offset,
                session.clock,
                now,
            )
        end = replica.read_limit(for_follower=follower, committed_only=request.committed_only)
        if offset < end:
            piece = reading.piece_of(wanted, replica, end, now)
    wanted.listed = False
    if piece is None and diverging is None:
        return None
    result = _numbers(wanted, session)
    result.diverging_epoch = diverging
    result.slice = piece
    if piece is not None and request.committed_only and not follower:
        result.aborted_transactions = replica.log.aborted_in(piece)
    return result


def _numbers(wanted: CachedPartition, session: FetchSession) -> FetchedPartition:
    """The offsets of a partition, without records. A follower does not use the last stable offset."""
    replica = wanted.replica
    assert replica is not None, "it was resolved when it was looked at"
    return FetchedPartition(
        wanted.topic_id,
        replica.tp.topic,
        wanted.partition,
        NO_ERROR,
        replica.high_watermark,
        -1 if session.from_follower else replica.last_stable_offset,
        replica.log.log_start_offset,
    )


def diverging_epoch(replica: Partition, fetch_offset: int, last_fetched_epoch: int) -> tuple[int, int] | None:
    """Where the fetcher's log diverges from the replica's, as (epoch, end offset of that epoch there); None
    where it does not. Raises BrokerError: OFFSET_OUT_OF_RANGE."""
    log = replica.log
    if last_fetched_epoch != NO_EPOCH and (
        last_fetched_epoch != log.epochs.latest or fetch_offset > log.log_end_offset
    ):
        epoch, end = log.offset_for_epoch(last_fetched_epoch)
        if epoch == NO_EPOCH or end == UNDEFINED_OFFSET:
            replica.refuse_offset(fetch_offset)
        if epoch < last_fetched_epoch or end < fetch_offset:
            return epoch, end
    if not log.log_start_offset <= fetch_offset <= log.log_end_offset:
        replica.refuse_offset(fetch_offset)
    return None


def _elsewhere(wanted: CachedPartition, replica: Partition, preferred: int) -> FetchedPartition:
    """Read nothing: the consumer will fetch from the preferred replica."""
    wanted.listed = False
    return FetchedPartition(
        wanted.topic_id,
        replica.tp.topic,
        wanted.partition,
        NO_ERROR,
        replica.high_watermark,
        replica.last_stable_offset,
        replica.log.log_start_offset,
        preferred_read_replica=preferred,
    )
