"""One fetcher: copies the partitions it is given from one leader, in one task.

One fetch is in flight as a rule, parked at the leader until there is something to append. When there
is something new for the leader meanwhile (one more partition, one whose delay is over), a second one is
sent, and the leader answers the first at once; so a new partition never waits for a poll to end.

follower.py says what each partition's answer asks for. A partition that was refused leaves the session
and comes again after a short, growing delay: the leader may only be about to learn that it leads.
Path of the data: leader -> LeaderEndpoint -> here -> partition.append_as_follower -> log.
"""

from __future__ import annotations

import asyncio
import logging
import random
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Any, Final, NamedTuple

from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.quotas.replication import ReplicationQuota
from data_plane.replication.partition import Partition
from fetch.follower import (
    TRUNCATE_BY_EPOCHS,
    FetchOutcome,
    FollowerRules,
    RestartAt,
    TruncateTo,
    fetch_outcome,
    resolve_out_of_range,
    retry_delay,
    truncation_offset,
)
from fetch.follower_session import FetchLimits, FollowerFetchSession, Key, key_of
from fetch.leader_endpoint import LeaderEndpoint
from fetch.messages import FetchedPartition, FetchRequest, FetchResponse, LogBounds
from metadata_quorum.foundation.batch import BATCH_OVERHEAD, read_header
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH
from metadata_quorum.foundation.supervision import report_fault, restarted

logger = logging.getLogger(__name__)

MAX_IN_FLIGHT: Final = 2
TRUNCATIONS_PER_TURN: Final = 20
BOUNDS_PER_TURN: Final = 300
"""To ask for those of one log takes some 25 microseconds."""
RECONNECT_FIRST_SECONDS: Final = 0.02
RECONNECT_LAST_SECONDS: Final = 0.25
RETRY_FIRST_SECONDS: Final = 0.01


@dataclass(slots=True)
class FetcherContext:
    """What all fetchers of a broker share."""

    broker_id: int
    broker_epoch: Callable[[], int]
    now_ms: Callable[[], int]
    loop: asyncio.AbstractEventLoop
    timer: WheelTimer
    rng: random.Random
    limits: FetchLimits
    retry_last: float = 1.0  # replica.fetch.backoff.ms, in seconds
    rules: FollowerRules = TRUNCATE_BY_EPOCHS
    quota: ReplicationQuota = field(default_factory=ReplicationQuota)


def process_partition_data(partition: Partition, answer: FetchedPartition, now_ms: int) -> bool:
    """Append an answer whose outcome is APPEND. Returns whether the leader has to be sent a new fetch offset,
    last epoch or log start. Raises BrokerError if the log refuses the records."""
    log, records = partition.log, answer.records
    if records and _ends_below(records, log.log_end_offset):
        # Read for an older request, before the leader knew how far we had come. Its offsets come only once.
        partition.append_as_follower(None, answer.high_watermark, answer.log_start_offset, now_ms)
        return True
    start_before = log.log_start_offset
    partition.append_as_follower(records, answer.high_watermark, answer.log_start_offset, now_ms)
    return bool(records) or log.log_start_offset != start_before


def truncation_offset_for(partition: Partition, answer: FetchedPartition) -> int:
    """Where to truncate, as far as this answer shows where the logs diverge."""
    diverging = answer.diverging_epoch or (NO_EPOCH, 0)
    log = partition.log
    return truncation_offset(diverging, log.offset_for_epoch(diverging[0]), log.log_end_offset)


def _ends_below(records: memoryview, log_end: int) -> bool:
    """Whether the log already has the first batch. (An empty log may begin inside it.)"""
    if int.from_bytes(records[:8], "big", signed=True) >= log_end:
        return False
    return len(records) >= BATCH_OVERHEAD and read_header(records).next_offset <= log_end


class InFlightFetch(NamedTuple):
    """A request, and its answer to come."""

    number: int
    request: FetchRequest
    response: asyncio.Future[FetchResponse]


class PartitionFetchState:
    """One partition of a fetcher, in one leader epoch."""

    __slots__ = ("attempt", "ignored_up_to", "key", "lag", "leader_epoch", "partition", "resolving", "turn")

    def __init__(self, partition: Partition, ignored_up_to: int) -> None:
        self.ignored_up_to = ignored_up_to
        """Fetches up to this number were sent in an earlier leader epoch, or before a truncation: what they
        bring may not follow on what the log has now."""
        self.key = key_of(partition)
        self.partition = partition
        self.leader_epoch = partition.leader_epoch
        self.attempt = 0  # refusals in a row
        self.resolving = False
        """Where to truncate is asked for, or it is being truncated: nothing is fetched or appended meanwhile.
        What the leader is told that we have must not be truncated by an answer from before."""
        self.lag = 0  # records that the leader's high watermark was ahead of us
        self.turn = 0  # counts changes, so that a delayed return knows whether it is still wanted


class ReplicaFetcher:
    """Follows one leader for some of its partitions."""

    def __init__(self, leader_id: int, endpoint: LeaderEndpoint, context: FetcherContext) -> None:
        self.leader_id = leader_id
        self._endpoint = endpoint
        self._context = context
        self._session = FollowerFetchSession(context.broker_id, context.limits, context.rules)
        self._states: dict[Key, PartitionFetchState] = {}
        self._in_flight: deque[InFlightFetch] = deque()
        self._wake = asyncio.Event()
        self._failures = 0
        self.fetches = 0
        self._lookups: dict[Key, asyncio.Future[LogBounds]] = {}
        self._out_of_range: deque[PartitionFetchState] = deque()
        self._to_truncate: deque[tuple[PartitionFetchState, TruncateTo | RestartAt]] = deque()
        self._task = restarted(context.loop, self._run, f"fetcher-{leader_id}")

    def __len__(self) -> int:
        return len(self._states)

    def __contains__(self, partition: Partition) -> bool:
        return key_of(partition) in self._states

    @property
    def max_lag(self) -> int:
        """How many records the partition that lags most is behind its leader's high watermark."""
        return max((state.lag for state in self._states.values()), default=0)

    # --- what is followed ---------------------------------------------------------------------

    def add(self, partition: Partition) -> None:
        """Follow `partition`, or note that its leader epoch is a new one."""
        state = PartitionFetchState(partition, self.fetches)
        known = self._states.get(state.key)
        if known is not None:
            if known.leader_epoch == partition.leader_epoch and known.partition is partition:
                return
            self.remove(partition)
        offset = self._context.rules.initial_truncation_offset(partition.high_watermark)
        self._states[state.key] = state
        if offset is not None:
            self._truncate(state, TruncateTo(offset))
        else:
            self._fetch_on(state)

    def remove(self, partition: Partition) -> None:
        key = key_of(partition)
        state = self._states.pop(key, None)
        if state is not None:
            state.turn += 1
            self._session.remove(key)
            lookup = self._lookups.pop(key, None)
            if lookup is not None:
                lookup.cancel()
            self._kick()

    def stop(self) -> None:
        """Close the connection and stop following; nothing more is appended."""
        self._states.clear()
        self._out_of_range.clear()
        self._to_truncate.clear()
        self._drop_in_flight()
        self._task.cancel()
        for lookup in self._lookups.values():
            lookup.cancel()
        self._endpoint.close()

    async def close(self) -> None:
        """Stop, and wait until the fetcher's tasks have ended."""
        under_way: list[asyncio.Future[Any]] = [self._task, *self._lookups.values()]
        self.stop()
        await asyncio.gather(*under_way, return_exceptions=True)

    # --- the loop -----------------------------------------------------------------------------

    async def _run(self) -> None:
        self._drop_in_flight()  # where an error has ended the run before
        self._session.reset()
        await self._find_bounds()
        while True:
            if not self._in_flight:
                if not self._session:
                    self._wake.clear()
                    await self._wake.wait()
                    continue
                self._send()
            fetch = self._in_flight[0]
            try:
                response = await fetch.response
            except (OSError, TimeoutError, EOFError, BrokerError):
                self._connection_lost()
                await self._pause(self._failures - 1)
                continue
            if not self._in_flight or self._in_flight[0] is not fetch:
                continue  # dropped meanwhile
            self._in_flight.popleft()
            self._take(fetch, response)
            await self._find_bounds()
            if self._failures > 1:  # after the first, as where a session was not found, at once
                await self._pause(self._failures - 2)

    async def _pause(self, attempt: int) -> None:
        random = self._context.rng.random()
        await asyncio.sleep(retry_delay(attempt, RECONNECT_FIRST_SECONDS, RECONNECT_LAST_SECONDS, random))

    def _send(self) -> None:
        self.fetches += 1
        request = self._session.next_request(self._context.broker_epoch())
        response = asyncio.ensure_future(self._endpoint.fetch(request))
        self._in_flight.append(InFlightFetch(self.fetches, request, response))

    def _kick(self) -> None:
        """Fetch as soon as possible: there is something new to tell the leader, or to fetch again."""
        if self._out_of_range:
            return  # what is asked of those comes first; then this is called again
        if not self._in_flight:
            self._wake.set()
        elif len(self._in_flight) < MAX_IN_FLIGHT and self._session.established and self._session.has_changes:
            self._send()

    def _connection_lost(self) -> None:
        self._failures += 1
        self._drop_in_flight()
        self._session.reset()

    def _drop_in_flight(self) -> None:
        for _, _, response in self._in_flight:
            if not response.done():
                response.cancel()
            elif not response.cancelled():
                response.exception()  # looked at, so that the loop does not complain of it
        self._in_flight.clear()

    # --- answers ------------------------------------------------------------------------------

    def _take(self, fetch: InFlightFetch, response: FetchResponse) -> None:
        if not self._session.answered(fetch.request, response.error, response.session_id):
            self._failures += 1
            self._drop_in_flight()  # they belong to the session that is over
            return
        self._failures = 0
        for answer in response.partitions:
            state = self._states.get((answer.topic_id.int, answer.partition))
            if state is not None and fetch.number > state.ignored_up_to:
                try:
                    self._take_partition(state, answer)
                except Exception as error:  # noqa: BLE001 - one partition's affair; it comes again later
                    report_fault(self._context.loop, f"following {state.partition.tp}", error)
                    self._delay(state)
        # Records are sent again until their successors are asked for: if there are any, the other is answered
        # at once, and one more fetch beside it would be answered with what that one brings.
        if self._in_flight and not any(answer.records for answer in response.partitions):
            self._kick()

    def _take_partition(self, state: PartitionFetchState, answer: FetchedPartition) -> None:
        partition = state.partition
        if state.resolving or not self._is_current(state):
            return
        outcome = fetch_outcome(answer)
        if outcome is FetchOutcome.WAIT:
            self._delay(state)
            return
        if outcome is FetchOutcome.DIVERGED:
            self._truncate(state, TruncateTo(truncation_offset_for(partition, answer)))
            return
        if outcome is FetchOutcome.OUT_OF_RANGE:
            self._session.remove(state.key)
            state.resolving = True
            self._out_of_range.append(state)
            return
        try:
            moved = process_partition_data(partition, answer, self._context.now_ms())
        except BrokerError as e:
            if state.attempt == 0 and e.code is not ErrorCode.NOT_LEADER_OR_FOLLOWER:  # else it is not ready
                logger.warning("%s takes no records from broker %d: %s", partition.tp, self.leader_id, e)
            self._refused(state)
            return
        state.attempt = 0
        state.lag = answer.high_watermark - partition.log.log_end_offset
        if answer.records:
            partition.stats.replication_bytes_in += len(answer.records)
        if answer.records and self._context.quota.binds(partition.tp):
            self._context.quota.record(len(answer.records), self._context.loop.time())
            if partition.log.log_end_offset < answer.high_watermark and self._held_back(state):
                return
        if moved:
            if partition.flushes_each_append:
                self._await_flush(state)
            else:
                self._session.moved(state.key)

    def _is_current(self, state: PartitionFetchState) -> bool:
        """Whether the partition follows in this epoch still; otherwise `add` or `remove` is about to come."""
        partition = state.partition
        is_followed = partition.leader is None and self._states.get(state.key) is state
        return is_followed and partition.leader_epoch == state.leader_epoch

    def _fetch_on(self, state: PartitionFetchState) -> None:
        partition = state.partition
        if partition.flushes_each_append and partition.log.unflushed_records:
            self._await_flush(state)
        else:
            self._session.add(state.key, partition)
            self._kick()

    def _await_flush(self, state: PartitionFetchState) -> None:
        """With flush.messages=1: fetch no more of the partition before everything in its log is durable,
        since a fetch offset says that all before it is kept. Meanwhile the leader sends none of it again
        either."""
        self._session.remove(state.key)
        state.partition.when_flushed(partial(self._flushed, state, state.turn))

    def _flushed(self, state: PartitionFetchState, turn: int, error: ErrorCode) -> None:
        if error is ErrorCode.NONE:
            self._return(state, turn)

    def _truncate(self, state: PartitionFetchState, change: TruncateTo | RestartAt) -> None:
        """Truncate the log, or restart it, then fetch again. One response, or one change of leaders, may
        truncate many logs, so only a few are started per turn of the loop."""
        self._session.remove(state.key)
        state.resolving = True
        self._to_truncate.append((state, change))
        if len(self._to_truncate) == 1:
            self._context.loop.call_soon(self._start_truncations)

    def _start_truncations(self) -> None:
        for _ in range(min(len(self._to_truncate), TRUNCATIONS_PER_TURN)):
            state, change = self._to_truncate.popleft()
            partition = state.partition
            if not self._is_current(state):
                continue
            try:
                restart = isinstance(change, RestartAt)
                partition.truncate_to(change.offset, partial(self._was_truncated, state), restart=restart)
            except Exception as error:  # noqa: BLE001 - one partition's affair; it comes again later
                report_fault(self._context.loop, f"the truncation of {partition.tp}", error)
                self._was_truncated(state, False)
        if self._to_truncate:
            self._context.loop.call_soon(self._start_truncations)

    def _was_truncated(self, state: PartitionFetchState, done: bool) -> None:
        state.resolving = False
        state.ignored_up_to = self.fetches  # also where it is not durable yet
        if self._states.get(state.key) is not state:
            return
        if state.partition.offline:
            self.remove(state.partition)
        elif done:
            state.attempt = 0
            self._return(state, state.turn)
        else:
            self._delay(state)

    def _refused(self, state: PartitionFetchState) -> None:
        if state.partition.offline:
            self.remove(state.partition)  # our own disk has failed
        else:
            self._delay(state)

    def _delay(self, state: PartitionFetchState) -> None:
        context = self._context
        self._session.remove(state.key)
        delay = retry_delay(state.attempt, RETRY_FIRST_SECONDS, context.retry_last, context.rng.random())
        state.attempt += 1
        turn = state.turn
        context.timer.call_later(delay, lambda: self._return(state, turn))

    def _return(self, state: PartitionFetchState, turn: int) -> None:
        if state.turn == turn and not state.resolving and self._states.get(state.key) is state:
            self._fetch_on(state)

    def _held_back(self, state: PartitionFetchState) -> bool:
        """Whether a partition that is catching up must wait for its quota; if so, it is fetched again
        later."""
        context = self._context
        pause = context.quota.pause_s(context.loop.time())
        if pause <= 0:
            return False
        self._session.remove(state.key)
        turn = state.turn
        context.timer.call_later(pause, lambda: self._try_again(state, turn))
        return True

    def _try_again(self, state: PartitionFetchState, turn: int) -> None:
        if state.turn == turn and not self._held_back(state):
            self._return(state, turn)

    async def _find_bounds(self) -> None:
        """Asked before the next fetch: behind one that waits at the leader the answers would wait, too, and
        retention would have moved the beginnings of its logs by the time they come. One that waits there
        already is answered when the next one comes."""
        if not self._out_of_range:
            return
        while self._out_of_range:
            for _ in range(min(len(self._out_of_range), BOUNDS_PER_TURN)):
                state = self._out_of_range.popleft()
                try:
                    self._ask_for_bounds(state)
                except Exception as error:  # noqa: BLE001 - one partition's affair; it comes again later
                    report_fault(self._context.loop, f"the bounds of {state.partition.tp}", error)
                    state.resolving = False
                    self._delay(state)
            if self._out_of_range:
                await asyncio.sleep(0)
        self._kick()

    def _ask_for_bounds(self, state: PartitionFetchState) -> None:
        if not self._is_current(state):
            return
        tp = state.partition.tp
        asked = asyncio.ensure_future(self._endpoint.log_bounds(tp.topic, tp.partition, state.leader_epoch))
        self._lookups[state.key] = asked
        asked.add_done_callback(partial(self._take_bounds, state))

    def _take_bounds(self, state: PartitionFetchState, asked: asyncio.Future[LogBounds]) -> None:
        if asked.cancelled():
            return
        error, partition = asked.exception(), state.partition
        if error is not None and not isinstance(error, (OSError, BrokerError)):
            report_fault(self._context.loop, f"the bounds of {partition.tp}", error)
        if not self._is_current(state):
            return
        del self._lookups[state.key]
        state.resolving = False
        if isinstance(error, BrokerError):
            self._refused(state)
        elif error is not None:
            self._delay(state)
        elif resolution := resolve_out_of_range(partition.log.log_end_offset, asked.result()):
            self._truncate(state, resolution)
        else:
            self._return(state, state.turn)
