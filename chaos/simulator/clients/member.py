"""A simulated member of a consumer group, of either protocol: it polls what it is assigned, and commits.

    join -> assigned partitions -> committed offsets -> poll, commit, heartbeat … -> a rebalance: join again

Classic: JoinGroup and SyncGroup, where the leader assigns by range. Consumer (KIP-848): heartbeats alone.
A static member has a name of its own, under which each client that follows gets what the last one had.
"""

from __future__ import annotations

import asyncio
import contextlib
import struct
from collections.abc import Collection, Mapping, Sequence
from typing import Any, Final, NamedTuple

from chaos.history import Outcome, Poll, partition_of, topic_of
from chaos.simulator.clients.cluster_client import ClusterClient, NoLeader
from chaos.simulator.clients.reader import OffsetOutOfRange, fetch
from chaos.simulator.clients.recorder import Recorder
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Fields, Message
from kraft.wire.coordinator_type import CoordinatorType
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import by_topic
from metadata_quorum.foundation.uuids import random_uuid, uuid_text

SESSION_MS: Final = 6_000
REBALANCE_MS: Final = 4_000
END_PROBABILITY: Final = 0.04
"""That a member ends, after each round of polls."""
LEAVE_PROBABILITY: Final = 0.5
"""That it then leaves the group; else its session has to end."""
STALLS: Final = 0.02
"""How often it stands still between a poll and its commit, until the group has gone on without it."""
OVERTAKEN: Final = 0.3
"""How often a member of a classic group that joins again has a commit under way on another connection,
which its join overtakes."""
OVERTAKEN_S: Final = REBALANCE_MS / 1000
"""So late that comes, at most."""
STALL_S: Final = (1.2 * SESSION_MS / 1000, 2.0 * SESSION_MS / 1000)
LATE: Final = frozenset(
    {
        ErrorCode.UNKNOWN_MEMBER_ID,
        ErrorCode.ILLEGAL_GENERATION,
        ErrorCode.STALE_MEMBER_EPOCH,
        ErrorCode.FENCED_INSTANCE_ID,
    }
)
"""What a coordinator says to the commit of one that has been replaced."""
LEAVES_FOR_GOOD: Final = 0.3
"""How often a static member that ends leaves the group; else another client of its name follows."""
LEFT, LEFT_FOR_NOW = -1, -2
"""Epochs of a member that ends (KIP-848)."""
REBALANCE_S: Final = REBALANCE_MS / 1000 + 2
_COUNT: Final = struct.Struct(">i")


REPLACED: Final = frozenset({ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_INSTANCE_ID})
"""What is said to one that has to begin anew."""


class Rejoin(Exception):
    """The member has to join again."""


class _Commit(NamedTuple):
    """What a member commits, and as whom."""

    positions: dict[str, int]
    member_id: str
    generation: int
    process: int


class SimMember:
    """See the module."""

    def __init__(
        self,
        client: ClusterClient,
        recorder: Recorder,
        group: str,
        keys: Sequence[str],
        *,
        classic: bool,
        instance_id: str | None = None,
    ) -> None:
        """`instance_id`: of a static member."""
        self.client = client
        self._instance_id = instance_id
        self._other_connections = client.with_own_connections()
        self._recorder = recorder
        self.group = group
        self.keys = keys
        self._is_classic = classic
        self._process = recorder.process()
        self._member_id = ""
        self._generation = -1
        self._positions: dict[str, int] = {}
        self._is_answered = True
        """Its last heartbeat, and not by an error. If not, the next one tells everything, so that its answer
        does, too: the one that was lost, or not written in time, may have had an assignment."""
        self.read_at_s: dict[str, float] = {}
        """When each of its partitions was last fetched with success; by its own clock."""
        self.assigned_at_s = 0.0
        """When it was last told what it is assigned, by its own clock."""
        self.is_steady = False
        """It neither ends nor stands still."""

    async def run(self) -> None:
        """Until it is asked to stop."""
        client = self.client
        self._subscribe()
        while not client.is_stopping:
            try:
                await (self._join() if self._is_classic else self._consumer_heartbeat())
                while not client.is_stopping:
                    await self._poll_all()
                    if not self.is_steady and client.random.random() < STALLS:
                        await asyncio.sleep(client.random.uniform(*STALL_S))
                    await self._commit()
                    await (self._heartbeat() if self._is_classic else self._consumer_heartbeat())
                    await client.pause(0.4)
                    if not self.is_steady and client.random.random() < END_PROBABILITY:
                        share = LEAVE_PROBABILITY if self._instance_id is None else LEAVES_FOR_GOOD
                        await self._end(leave=client.random.random() < share)
                        break
            except (OSError, Rejoin):
                client.forget_coordinator(CoordinatorType.GROUP, self.group)
                if self._is_classic and self._positions and client.random.random() < OVERTAKEN:
                    client.loop.create_task(self._commit_late(self._commit_request(self._positions)))
                await client.pause(0.4)

    @property
    def owned(self) -> Collection[str]:
        """What it reads."""
        return self._positions.keys()

    def _subscribe(self) -> None:
        """A client that begins."""
        now = self._recorder.now_ns()
        self._recorder.add(self._process, "subscribe", now, "ok", keys=self.keys, group=self.group)

    async def _end(self, *, leave: bool) -> None:
        """Its client ends, and another one takes over. Raises OSError, Rejoin."""
        if self._is_classic and self._instance_id is not None and self._positions:  # under way already
            self.client.loop.create_task(self._commit_late(self._commit_request(self._positions)))
        member_id, self._member_id, self._generation = self._member_id, "", -1
        self._positions = {}
        self._recorder.add(self._process, "crash", self._recorder.now_ns(), "info")
        self._process = self._recorder.process(self._process)
        self._subscribe()
        self._recorder.visited("member leaves" if leave else "member is gone")
        is_followed = self._instance_id is not None and not leave
        if not leave and (self._is_classic or not is_followed or self.client.random.random() < 0.5):
            return
        if self._is_classic:
            member = {"member_id": member_id, "group_instance_id": self._instance_id, "reason": None}
            await self._ask(ApiKey.LEAVE_GROUP, {"group_id": self.group, "members": [member]})
        else:
            fields = {
                "group_id": self.group, "member_id": member_id,
                "member_epoch": LEFT_FOR_NOW if is_followed else LEFT, "instance_id": self._instance_id,
                "rack_id": None, "rebalance_timeout_ms": -1, "subscribed_topic_names": None,
                "server_assignor": None, "topic_partitions": None,
            }  # fmt: skip
            await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, fields)

    async def note_committed(self) -> None:
        """How far the group has committed, in the end; asked by nobody's name, since members may be gone."""
        self._member_id, self._generation = "", -1
        while True:
            start = self._recorder.now_ns()
            try:
                committed = await self._committed(self.keys)
                break
            except (OSError, Rejoin):
                self.client.forget_coordinator(CoordinatorType.GROUP, self.group)
                await self.client.pause(0.4)
        found = {key: offset for key, offset in committed.items() if offset >= 0}
        self._recorder.add(
            self._process, "committed", start, "ok", final=True, group=self.group, committed=found
        )

    # ---- its assignment

    async def _assign(self, keys: Sequence[str], start_ns: int, generation: int | None) -> None:
        """Read these from now on, each from where the group has committed."""
        self.assigned_at_s = self.client.loop.time()
        changed = sorted(
            set(keys) ^ self._positions.keys() if not self._is_classic else {*keys, *self._positions}
        )
        kept = (
            {} if self._is_classic else {key: self._positions[key] for key in keys if key in self._positions}
        )
        self._positions = {}
        recorder = self._recorder
        recorder.add(self._process, "poll", start_ns, "ok", [Poll({})], rebalanced=changed)
        # It was decided since it was asked for; the answer may be older than what others have been told.
        recorder.add(
            self._process, "owned", start_ns, "ok", keys=keys, group=self.group, generation=generation
        )
        fresh = [key for key in keys if key not in kept]
        committed = await self._committed(fresh) if fresh else {}
        self._positions = kept | {key: max(offset, 0) for key, offset in committed.items()}
        recorder.visited("rebalance")

    async def _poll_all(self) -> None:
        for key in list(self._positions):
            start, position = self._recorder.now_ns(), self._positions[key]
            try:
                found = await fetch(self.client, key, position, max_wait_ms=50)
            except OffsetOutOfRange:
                raise Rejoin("behind the end of the log") from None
            if found is None:
                await self.client.pause(0.1)
                continue
            self._positions[key] = found.next_offset
            self.read_at_s[key] = self.client.loop.time()
            if found.pairs:
                self._recorder.add(self._process, "poll", start, "ok", [found.poll(key)])
        self.client.last_ok_s = self.client.loop.time()

    async def _committed(self, keys: Sequence[str]) -> dict[str, int]:
        topics = by_topic(map(partition_of, keys))
        wanted = [{"name": topic, "partition_indexes": numbers} for topic, numbers in topics.items()]
        of_member = {"member_id": self._member_id or None, "member_epoch": self._generation}
        fields = {
            "groups": [{"group_id": self.group, **of_member, "topics": wanted}], "require_stable": True,
        }  # fmt: skip
        answer = await self._ask(ApiKey.OFFSET_FETCH, fields)
        (group,) = answer.groups
        _check(group.error_code)
        found: dict[str, int] = {}
        for topic in group.topics:
            for partition in topic.partitions:
                _check(partition.error_code)
                found[f"{topic.name}-{partition.partition_index}"] = int(partition.committed_offset)
        return found

    async def _commit(self) -> None:
        if self._positions:
            await self._send_commit(self.client, self._commit_request(self._positions))

    def _commit_request(self, positions: Mapping[str, int]) -> _Commit:
        """In the present generation."""
        return _Commit(dict(positions), self._member_id, self._generation, self._process)

    async def _commit_late(self, commit: _Commit) -> None:
        """On another connection, when the member is in a later generation, or has been replaced by one of its
        name. In its own it would be as good as any, and take back what was committed meanwhile."""
        await self.client.pause(OVERTAKEN_S)
        is_replaced = self._instance_id is not None and self._member_id not in ("", commit.member_id)
        if self._generation <= commit.generation and not is_replaced:
            return
        with contextlib.suppress(OSError, Rejoin):
            await self._send_commit(self._other_connections, commit)

    async def _send_commit(self, client: ClusterClient, commit: _Commit) -> None:
        """Raises OSError, Rejoin."""
        start = self._recorder.now_ns()
        topics: dict[str, list[dict[str, Any]]] = {}
        for key, offset in commit.positions.items():
            topic, number = partition_of(key)
            topics.setdefault(topic, []).append(
                {
                    "partition_index": number, "committed_offset": offset,
                    "committed_leader_epoch": -1, "committed_metadata": "",
                }
            )  # fmt: skip
        fields = {
            "group_id": self.group, "generation_id_or_member_epoch": commit.generation,
            "member_id": commit.member_id, "group_instance_id": self._instance_id,
            "topics": [{"name": topic, "partitions": rows} for topic, rows in topics.items()],
        }  # fmt: skip
        codes: set[int] = set()
        outcome: Outcome = "info"
        try:
            answer = await self._ask(ApiKey.OFFSET_COMMIT, fields, client)
            codes = {partition.error_code for found in answer.topics for partition in found.partitions}
            outcome = "ok" if codes == {ErrorCode.NONE} else "fail" if codes <= LATE else "info"
        except NoLeader:
            outcome = "fail"  # it was not sent
            raise
        finally:
            self._recorder.add(
                commit.process, "commit", start, outcome,
                group=self.group, committed=commit.positions, generation=commit.generation,
            )  # fmt: skip
        for code in sorted(codes):
            if code in LATE:
                self._recorder.visited("late commit refused")
            _check(code)

    # ---- the classic protocol

    async def _join(self) -> None:
        start = self._recorder.now_ns()
        topics = sorted(set(map(topic_of, self.keys)))
        names = b"".join(struct.pack(">h", len(name)) + name.encode() for name in topics)
        subscription = struct.pack(">hi", 0, len(topics)) + names + _COUNT.pack(-1)
        fields = {
            "group_id": self.group, "session_timeout_ms": SESSION_MS, "rebalance_timeout_ms": REBALANCE_MS,
            "member_id": self._member_id, "group_instance_id": self._instance_id,
            "protocol_type": "consumer",
            "protocols": [{"name": "range", "metadata": subscription}], "reason": None,
        }  # fmt: skip
        answer = await self._ask(ApiKey.JOIN_GROUP, fields)
        if ErrorCode(answer.error_code) is ErrorCode.MEMBER_ID_REQUIRED:
            self._member_id = answer.member_id
        elif ErrorCode(answer.error_code) in REPLACED:
            self._member_id = ""
        _check(answer.error_code)
        self._member_id, self._generation = answer.member_id, answer.generation_id
        assignments = []
        if answer.leader == self._member_id and not answer.skip_assignment:
            members = sorted(member.member_id for member in answer.members)
            for index, member in enumerate(members):
                mine = [key for i, key in enumerate(self.keys) if i % len(members) == index]
                assignments.append({"member_id": member, "assignment": "\n".join(mine).encode()})
        fields = {
            "group_id": self.group, "generation_id": self._generation, "member_id": self._member_id,
            "group_instance_id": self._instance_id, "protocol_type": "consumer", "protocol_name": "range",
            "assignments": assignments,
        }  # fmt: skip
        answer = await self._ask(ApiKey.SYNC_GROUP, fields)
        self._note_replaced(answer)
        _check(answer.error_code)
        keys = [key for key in bytes(answer.assignment).decode().split("\n") if key]
        # Whoever follows a static member is given the same in the same generation.
        await self._assign(keys, start, self._generation if self._instance_id is None else None)

    async def _heartbeat(self) -> None:
        fields = {
            "group_id": self.group, "generation_id": self._generation, "member_id": self._member_id,
            "group_instance_id": self._instance_id,
        }  # fmt: skip
        answer = await self._ask(ApiKey.HEARTBEAT, fields)
        self._note_replaced(answer)
        _check(answer.error_code)

    def _note_replaced(self, answer: Message) -> None:
        if ErrorCode(answer.error_code) in REPLACED:
            self._member_id = ""

    # ---- the consumer protocol

    async def _consumer_heartbeat(self) -> None:
        start = self._recorder.now_ns()
        joins = self._generation <= 0
        if joins:
            self._member_id = self._member_id or uuid_text(random_uuid(self.client.random))
            self._generation, self._positions = 0, {}
        topics = await self.client.topic_ids()
        tells_all, self._is_answered = joins or not self._is_answered, False
        owned = by_topic(map(partition_of, self._positions))
        fields = {
            "group_id": self.group, "member_id": self._member_id, "member_epoch": self._generation,
            "instance_id": self._instance_id, "rack_id": None,
            "rebalance_timeout_ms": REBALANCE_MS if tells_all else -1,
            "subscribed_topic_names": sorted(set(map(topic_of, self.keys))) if tells_all else None,
            "server_assignor": None,
            "topic_partitions": [
                {"topic_id": topics[topic], "partitions": numbers} for topic, numbers in owned.items()
            ],
        }  # fmt: skip
        answer = await self._ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, fields)
        code = ErrorCode(answer.error_code)
        self._is_answered = code is ErrorCode.NONE
        if code in (ErrorCode.UNKNOWN_MEMBER_ID, ErrorCode.FENCED_MEMBER_EPOCH):
            self._generation = 0
        elif code is ErrorCode.FENCED_INSTANCE_ID:
            self._member_id, self._generation = "", 0
        _check(answer.error_code)
        self._generation = answer.member_epoch
        if answer.assignment is None:
            return
        names = {topic_id: name for name, topic_id in topics.items()}
        keys = [
            f"{names[each.topic_id]}-{number}"
            for each in answer.assignment.topic_partitions
            for number in each.partitions
        ]
        if set(keys) != self._positions.keys():
            await self._assign(keys, start, None)

    async def _ask(self, api_key: ApiKey, fields: Fields, client: ClusterClient | None = None) -> Message:
        client = client or self.client
        broker = await client.coordinator(CoordinatorType.GROUP, self.group)
        return await client.request(broker, api_key, fields, REBALANCE_S)


def _check(code: int) -> None:
    if code:
        raise Rejoin(ErrorCode(code).name)
