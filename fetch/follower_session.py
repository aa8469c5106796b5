"""Incremental fetch sessions (KIP-227), the follower's side: what the leader knows of the session,
and what the next request must name.

The first request of a session is full; it waits for nothing, so that the session is known at once
(unless the leader has refused one: then every request is full, and waits as any other).
Later ones name only the partitions that moved or were added, and those to forget.
Used by fetcher.py; the leader's side is sessions.py.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from itertools import islice
from typing import Final

from data_plane.replication.partition import Partition
from fetch.follower import FollowerRules
from fetch.messages import (
    INITIAL_EPOCH,
    NO_SESSION,
    FetchPartition,
    FetchRequest,
    next_session_epoch,
)
from metadata_quorum.foundation.errors import ErrorCode

Key = tuple[int, int]
"""A partition: its topic's id, as a number (a UUID is hashed by a function in Python), and its own."""


def key_of(partition: Partition) -> Key:
    return partition.topic_id.int, partition.tp.partition


MOST_NAMED: Final = 1000
"""Partitions in one request: the leader reads them in one turn of its loop, the rest in the next ones."""


@dataclass(frozen=True, slots=True)
class FetchLimits:
    """Kafka's replica.fetch.* settings."""

    max_wait_ms: int = 500  # replica.fetch.wait.max.ms
    min_bytes: int = 1  # replica.fetch.min.bytes
    max_bytes: int = 10 * 1024 * 1024  # replica.fetch.response.max.bytes
    partition_max_bytes: int = 1024 * 1024  # replica.fetch.max.bytes


class FollowerFetchSession:
    """One fetcher's session with one leader."""

    def __init__(self, replica_id: int, limits: FetchLimits, rules: FollowerRules) -> None:
        self._replica_id = replica_id
        self._limits = limits
        self._rules = rules
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._broker_epoch = -1  # with which the leader has been asked last
        self._refused = False  # the leader has no room for a session of ours
        self._wanted: dict[Key, Partition] = {}
        self._changed: dict[Key, None] = {}  # to be named in the next request
        self._known: dict[Key, Partition] = {}  # what the leader has in the session
        self._forgotten: dict[Key, None] = {}

    def __len__(self) -> int:
        return len(self._wanted)

    @property
    def established(self) -> bool:
        return self._session_id != NO_SESSION

    @property
    def has_changes(self) -> bool:
        return bool(self._changed or self._forgotten)

    def add(self, key: Key, partition: Partition) -> None:
        """Fetch it from now on."""
        self._wanted[key] = partition
        self._changed[key] = None
        self._forgotten.pop(key, None)

    def moved(self, key: Key) -> None:
        """Name the partition in the next fetch: its offset, epoch or log start has changed."""
        if key in self._wanted:
            self._changed[key] = None

    def remove(self, key: Key) -> None:
        """Leave it out: it is delayed for now, or not followed any more."""
        if self._wanted.pop(key, None) is not None:
            self._changed.pop(key, None)
            if key in self._known:
                self._forgotten[key] = None

    def reset(self) -> None:
        """The leader does not know the session, or the connection broke: begin with a full request."""
        self._session_id = NO_SESSION
        self._epoch = INITIAL_EPOCH
        self._refused = False
        self._known.clear()
        self._forgotten.clear()

    def next_request(self, broker_epoch: int) -> FetchRequest:
        """With a new broker epoch all are named: a leader lets nobody into the ISR by an old one."""
        if broker_epoch != self._broker_epoch:
            self._broker_epoch = broker_epoch
            self._changed |= dict.fromkeys(self._wanted)
        full = not self.established
        keys: Iterable[Key] = self._wanted if full else self._changed
        left: dict[Key, None] = {}
        if len(self._wanted) > MOST_NAMED and not self._refused:  # without a session all must be named
            left = dict.fromkeys(islice(keys, MOST_NAMED, None))
            keys = list(islice(keys, MOST_NAMED))
        if full:
            self._known.clear()
            self._forgotten.clear()
        forgotten = [self._known.pop(key) for key in self._forgotten]
        partitions: list[FetchPartition] = []
        for key in keys:
            partition = self._known[key] = self._wanted[key]
            partitions.append(self._describe(partition))
        limits = self._limits
        request = FetchRequest(
            partitions,
            [(gone.topic_id, gone.tp.topic, gone.tp.partition) for gone in forgotten],
            self._replica_id,
            broker_epoch,
            0 if left or (full and not self._refused) else limits.max_wait_ms,
            limits.min_bytes,
            limits.max_bytes,
            session_id=self._session_id,
            session_epoch=self._epoch,
        )
        self._changed = left
        self._forgotten.clear()
        if not full:
            self._epoch = next_session_epoch(self._epoch)
        return request

    def answered(self, request: FetchRequest, error: ErrorCode, session_id: int) -> bool:
        """The answer to `request`, as a whole; False where it was refused and the session is over."""
        if error != ErrorCode.NONE:
            self.reset()
            return False
        self._refused = session_id == NO_SESSION
        if request.session_epoch == INITIAL_EPOCH and session_id != NO_SESSION:
            self._session_id = session_id
            self._epoch = next_session_epoch(INITIAL_EPOCH)
        return True

    def _describe(self, partition: Partition) -> FetchPartition:
        log, tp = partition.log, partition.tp
        return FetchPartition(
            partition.topic_id,
            tp.topic,
            tp.partition,
            log.log_end_offset,
            self._limits.partition_max_bytes,
            partition.leader_epoch,
            self._rules.last_fetched_epoch(log.epochs.latest),
            log.log_start_offset,
        )
