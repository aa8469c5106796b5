"""A simulated administrator: it moves partitions between brokers; it makes, writes, empties, deletes topics.

    run -> AlterPartitionReassignments | CreateTopics, Produce, DeleteRecords, DeleteTopics … -> `violations`

It remembers what was acknowledged. What was not answered may be carried out at any later time.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Final

from chaos.history import ACKS_ALL, partition_of
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.producer import encoded, send_once
from chaos.simulator.clients.recorder import Recorder
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.metadata.image import MetadataImage

PAUSE_S: Final = 1.5
TIMEOUT_MS: Final = 4_000
MOVE_PROBABILITY: Final = 0.6
"""That it moves a partition; else it creates a topic, or deletes it."""
TRIM_PROBABILITY: Final = 0.5
"""That it deletes the records of a topic before the topic itself."""
UP_TO_THE_HIGH_WATERMARK: Final = -1
RECORDS: Final = 3
REFUSALS: Final = (ErrorCode.INVALID_REPLICA_ASSIGNMENT, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
"""They prove that nothing has changed; other errors do not, after a request that was passed on."""


class SimAdmin:
    """See the module."""

    def __init__(
        self,
        client: ClusterClient,
        recorder: Recorder,
        keys: Sequence[str],
        brokers: Sequence[int],
        copies: int,
    ) -> None:
        """`keys`: of the partitions that it moves."""
        self.client = client
        self._recorder = recorder
        self._keys = keys
        self._brokers = brokers
        self._copies = copies
        self._placed: dict[str, tuple[int, ...]] = {}
        """Where each partition was last sent, as was acknowledged."""
        self._maybe_placed: dict[str, set[tuple[int, ...]]] = {}
        """Where it may be instead: what was not answered may be carried out at any later time."""
        self._may_exist: dict[str, set[bool]] = {}
        """Of each topic that it created: whether it may exist, and whether it may not."""
        self._created: set[str] = set()
        self._trimmed: set[str] = set()
        self._topics = 0
        self._topic: str | None = None

    async def run(self) -> None:
        """Until it is asked to stop."""
        client = self.client
        while not client.is_stopping:
            try:
                if client.random.random() < MOVE_PROBABILITY:
                    await self._move()
                elif self._topic is None:
                    await self._create()
                elif self._topic not in self._trimmed and client.random.random() < TRIM_PROBABILITY:
                    await self._trim(self._topic)
                else:
                    await self._delete(self._topic)
                client.last_ok_s = client.loop.time()
            except OSError:
                pass
            await client.pause(PAUSE_S)

    async def _move(self) -> None:
        key = self.client.random.choice(list(self._keys))
        topic, number = partition_of(key)
        replicas = tuple(self.client.random.sample(list(self._brokers), self._copies))
        partition = {"partition_index": number, "replicas": list(replicas)}
        fields = {"timeout_ms": TIMEOUT_MS, "topics": [{"name": topic, "partitions": [partition]}]}
        maybe = self._maybe_placed.setdefault(key, set())
        is_new = replicas not in maybe
        maybe.add(replicas)
        answer = await self.client.request_any(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
        code = ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)
        if is_new and code in (ErrorCode.NONE, *REFUSALS):
            maybe.discard(replicas)
        if code is ErrorCode.NONE:
            self._placed[key] = replicas
            self._recorder.visited("move")

    async def _create(self) -> None:
        self._topics += 1
        name = self._topic = f"extra-{self._topics}"
        self._may_exist[name] = {True, False}
        topic = {
            "name": name, "num_partitions": 2, "replication_factor": self._copies, "assignments": [],
            "configs": [],
        }  # fmt: skip
        fields = {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": False}
        answer = await self.client.request_any(ApiKey.CREATE_TOPICS, fields)
        if answer.topics[0].error_code:
            return
        self._may_exist[name] = {True}
        self._created.add(name)
        self._recorder.visited("topic created")
        for number in range(RECORDS):
            batch = encoded(self.client, [number])
            await send_once(self.client, f"{name}-{number % 2}", batch, ACKS_ALL)

    async def _trim(self, name: str) -> None:
        """Delete the records of one partition: its logs begin later, on every replica."""
        key = f"{name}-0"
        partition = {"partition_index": 0, "offset": UP_TO_THE_HIGH_WATERMARK}
        fields = {"topics": [{"name": name, "partitions": [partition]}], "timeout_ms": TIMEOUT_MS}
        answer = await self.client.request(await self.client.leader(key), ApiKey.DELETE_RECORDS, fields)
        if answer.topics[0].partitions[0].error_code:
            self.client.forget_leader(key)
        else:
            self._trimmed.add(name)
            self._recorder.visited("records deleted")

    async def _delete(self, name: str) -> None:
        self._may_exist[name] |= {False}
        fields = {"topics": [{"name": name, "topic_id": None}], "timeout_ms": TIMEOUT_MS}
        answer = await self.client.request_any(ApiKey.DELETE_TOPICS, fields)
        code = ErrorCode(answer.responses[0].error_code)
        if code in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            self._topic = None
            if code is ErrorCode.NONE:
                self._recorder.visited("topic deleted")
            if name in self._created:  # else a request to make it may be carried out yet
                self._may_exist[name] = {False}

    def violations(self, image: MetadataImage) -> Iterator[str]:
        """What was acknowledged and does not hold, once the cluster has recovered."""
        for key, place in sorted(self._placed.items()):
            state = image.partition(partition_of(key))
            if state is None or state.replicas not in {place, *self._maybe_placed[key]}:
                yield f"{key} was sent to {place}, and is {state}"
        for name, may_be in sorted(self._may_exist.items()):
            if (name in image.topics_by_name) not in may_be:
                yield f"{name} was {'created' if True in may_be else 'deleted'}, and is not as it should be"
