"""A simulated consumer that fetches as newer clients do: in sessions, by topic ids, from followers nearby.

    positions -> for each broker one Fetch of what has changed in its session
              <- partitions that have news -> polls; `preferred_read_replica`: read there for a while

In all else it is the plain reader (reader.py): it assigns its partitions itself.
"""

from __future__ import annotations

import contextlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from chaos.history import partition_of
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.reader import FETCH_BYTES, READ_COMMITTED, SimReader, committed_records
from chaos.simulator.clients.recorder import Recorder
from kraft.net.client import PeerClient
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition, by_topic

FETCH_VERSION: Final = 16
MAX_WAIT_MS: Final = 200
NEARBY_S: Final = 5.0
"""After this the leader is asked again who is nearest."""
NO_SESSION: Final = 0
FULL: Final = 0
"""The epoch of a request that begins a session."""
NOBODY: Final = -1


class _Row(NamedTuple):
    """What a session knows of a partition."""

    position: int
    leader_epoch: int


@dataclass(slots=True)
class _FetchSession:
    """With one broker, on one connection."""

    connection: PeerClient
    id: int = NO_SESSION
    epoch: int = FULL
    sent: dict[str, _Row] = field(default_factory=dict)
    """The partitions in it, by key."""


class _Nearby(NamedTuple):
    """The replica that a leader sent it to."""

    broker: int
    until_s: float


class SimSessionReader:
    """See the module."""

    def __init__(self, client: ClusterClient, recorder: Recorder, keys: list[str], rack: str) -> None:
        client.versions = {**client.versions, ApiKey.FETCH: FETCH_VERSION}
        self.client = client
        self._reader = SimReader(client, recorder, keys)
        self._recorder = recorder
        self.keys = keys
        self._rack = rack
        self._sessions: dict[int, _FetchSession] = {}
        self._nearby: dict[str, _Nearby] = {}

    @property
    def positions(self) -> dict[str, int]:
        """How far each key has been read."""
        return self._reader.positions

    async def run(self) -> None:
        """Until it is asked to stop."""
        self._reader.assign()
        while not self.client.is_stopping:
            for broker, rows in (await self._rows()).items():
                try:
                    await self._fetch(broker, rows)
                except OSError:
                    self._give_up(broker, rows)
            await self.client.pause(0.2)

    async def _rows(self) -> dict[int, dict[str, _Row]]:
        """What to read next from each broker."""
        client, found = self.client, dict[int, dict[str, _Row]]()
        for key in self.keys:
            with contextlib.suppress(OSError):
                position = await self._reader.position(key)
                leader = await client.leader(key)
                nearby = self._nearby.get(key)
                is_left = nearby is None or nearby.until_s < client.loop.time()
                broker = leader if nearby is None or is_left else nearby.broker
                if position is not None:
                    found.setdefault(broker, {})[key] = _Row(position, client.leader_epochs[key])
        return found

    def _give_up(self, broker: int, keys: Iterable[str]) -> None:
        """It does not answer: whether the session has gone on there is not known."""
        self._sessions.pop(broker, None)
        self.client.drop(broker)
        for key in keys:
            self._nearby.pop(key, None)
            self.client.forget_leader(key)

    async def _fetch(self, broker: int, rows: Mapping[str, _Row]) -> None:
        """Raises OSError."""
        client = self.client
        connection = await client.connection(broker)
        session = self._sessions.get(broker)
        if session is None or session.connection is not connection:
            session = self._sessions[broker] = _FetchSession(connection)
        changed = {key: row for key, row in rows.items() if session.sent.get(key) != row}
        gone = [key for key in session.sent if key not in rows]
        topic_ids = await client.topic_ids()
        fields = {
            "max_wait_ms": MAX_WAIT_MS, "min_bytes": 1, "max_bytes": FETCH_BYTES,
            "isolation_level": READ_COMMITTED, "session_id": session.id, "session_epoch": session.epoch,
            "rack_id": self._rack,
            "topics": [
                {"topic_id": topic_ids[topic], "partitions": [_wanted(tp, changed) for tp in partitions]}
                for topic, partitions in _by_topic(changed).items()
            ],
            "forgotten_topics_data": [
                {"topic_id": topic_ids[topic], "partitions": numbers}
                for topic, numbers in by_topic(map(partition_of, gone)).items()
            ],
        }  # fmt: skip
        start = self._recorder.now_ns()
        answer = await client.request(broker, ApiKey.FETCH, fields)
        if answer.error_code or answer.session_id == NO_SESSION:
            del self._sessions[broker]
        else:
            session.id, session.epoch, session.sent = answer.session_id, session.epoch + 1, dict(rows)
            self._recorder.visited("incremental fetch" if session.epoch > 1 else "fetch session")
        names = {topic_id: name for name, topic_id in topic_ids.items()}
        for topic in answer.responses:
            for partition in topic.partitions:
                key = f"{names[topic.topic_id]}-{partition.partition_index}"
                await self._take(broker, key, rows[key].position, partition, start)

    async def _take(self, broker: int, key: str, position: int, answer: Message, start_ns: int) -> None:
        client, code = self.client, ErrorCode(answer.error_code)
        leads = client.leaders.get(key) == broker
        if code is ErrorCode.OFFSET_OUT_OF_RANGE and leads:
            if not client.is_deposed(key, broker):
                client.report("out of range", f"{broker} does not have {position} of {key}, which was shown")
            await self._reader.out_of_range(key, position)
        elif code is not ErrorCode.NONE:
            client.forget_leader(key)
            self._nearby.pop(key, None)
        elif answer.preferred_read_replica != NOBODY:
            self._nearby[key] = _Nearby(answer.preferred_read_replica, client.loop.time() + NEARBY_S)
        else:
            found = committed_records(answer.records or b"", answer.aborted_transactions, position)
            if found.pairs and not leads:
                self._recorder.visited("read from a follower")
            self._reader.take(key, start_ns, found)


def _by_topic(rows: Mapping[str, _Row]) -> dict[str, Sequence[TopicPartition]]:
    topics: dict[str, list[TopicPartition]] = {}
    for tp in map(partition_of, rows):
        topics.setdefault(tp.topic, []).append(tp)
    return dict(topics)


def _wanted(tp: TopicPartition, rows: Mapping[str, _Row]) -> dict[str, Any]:
    row = rows[f"{tp.topic}-{tp.partition}"]
    return {
        "partition": tp.partition, "current_leader_epoch": row.leader_epoch, "fetch_offset": row.position,
        "last_fetched_epoch": -1, "log_start_offset": -1, "partition_max_bytes": FETCH_BYTES,
    }  # fmt: skip
