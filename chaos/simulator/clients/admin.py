"""A simulated administrator: it moves partitions, elects preferred leaders, sets values of topics;
it creates topics, which it writes, empties, makes larger and deletes.

    run -> AlterPartitionReassignments | AlterReplicaLogDirs | ElectLeaders | IncrementalAlterConfigs
         | CreateTopics, Produce, DeleteRecords, CreatePartitions, DeleteTopics … -> `violations`

It remembers what was acknowledged. What was not answered may be carried out at any later time.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Final

from chaos.history import ACKS_ALL, partition_of, topic_of
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.producer import encoded, send_once
from chaos.simulator.clients.recorder import Recorder
from chaos.simulator.clients.settings import Setting, Value
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.image import MetadataImage

PAUSE_S: Final = 1.5
TIMEOUT_MS: Final = 4_000
ACTS: Final = {"move": 5.0, "elect": 1.0, "configure": 1.5, "extra": 4.0}
"""How often each, against the others; the last is about topics of its own."""
SHIFTS: Final = {"shift": 5.0}
"""Where brokers have several log directories."""
TRIM_PROBABILITY: Final = 0.4
GROW_PROBABILITY: Final = 0.4
"""That it deletes the records of a topic of its own, or adds partitions, before it deletes the topic."""
UP_TO_THE_HIGH_WATERMARK: Final = -1
PREFERRED: Final = 0
"""Of ElectLeaders: no other election."""
SET, DELETE = 0, 1
"""What IncrementalAlterConfigs does with a value."""
CONFIG: Final = "retention.ms"
CONFIG_FROM: Final = 1_000_000_000
"""A time for which nothing is deleted. No value is used twice."""
PARTITIONS: Final = 2
"""Of a new topic."""
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
        log_dirs_of: Callable[[int], Sequence[str]],
    ) -> None:
        """`keys`: of the partitions that it moves. `log_dirs_of`: a broker's."""
        self.client = client
        self._recorder = recorder
        self._keys = keys
        self._brokers = brokers
        self._copies = copies
        self._log_dirs_of = log_dirs_of
        self._placed: dict[str, Setting[tuple[int, ...]]] = {}
        """Where each partition was sent."""
        self._configured: dict[str, Setting[str | None]] = {}
        """The value of `CONFIG` of each topic."""
        self._values = 0
        self._may_exist: dict[str, set[bool]] = {}
        """Of each topic that it created: whether it may exist, and whether it may not."""
        self._counts: dict[str, Setting[int]] = {}
        """How many partitions each of these has."""
        self._created: set[str] = set()
        self._trimmed: set[str] = set()
        self._topics = 0
        self._topic: str | None = None

    async def run(self) -> None:
        """Until it is asked to stop."""
        client = self.client
        acts = {
            "move": self._move, "elect": self._elect, "configure": self._configure,
            "extra": self._next_of_its_own, "shift": self._shift,
        }  # fmt: skip
        odds = ACTS | (SHIFTS if len(self._log_dirs_of(self._brokers[0])) > 1 else {})
        while not client.is_stopping:
            (act,) = client.random.choices(list(odds), list(odds.values()))
            try:
                await acts[act]()
                client.last_ok_s = client.loop.time()
            except OSError:
                pass
            await client.pause(PAUSE_S)

    async def _next_of_its_own(self) -> None:
        """A topic's life."""
        name, chance = self._topic, self.client.random
        if name is None:
            await self._create()
        elif name not in self._trimmed and chance.random() < TRIM_PROBABILITY:
            await self._trim(name)
        elif name in self._created and chance.random() < GROW_PROBABILITY:
            await self._grow(name)
        else:
            await self._delete(name)

    async def _move(self) -> None:
        key = self.client.random.choice(list(self._keys))
        topic, number = partition_of(key)
        replicas = tuple(self.client.random.sample(list(self._brokers), self._copies))
        partition = {"partition_index": number, "replicas": list(replicas)}
        fields = {"timeout_ms": TIMEOUT_MS, "topics": [{"name": topic, "partitions": [partition]}]}
        placed = self._placed.setdefault(key, Setting())
        placed.ask(replicas)
        answer = await self.client.request_any(ApiKey.ALTER_PARTITION_REASSIGNMENTS, fields)
        code = ErrorCode(answer.error_code or answer.responses[0].partitions[0].error_code)
        self._heard(placed, replicas, code, "move")

    async def _shift(self) -> None:
        """From one log directory to another. Nothing has to be so in the end: directories are lost."""
        chance = self.client.random
        broker = chance.choice(list(self._brokers))
        path = chance.choice(list(self._log_dirs_of(broker)))
        topic, number = partition_of(chance.choice(list(self._keys)))
        fields = {"dirs": [{"path": path, "topics": [{"name": topic, "partitions": [number]}]}]}
        answer = await self.client.request(broker, ApiKey.ALTER_REPLICA_LOG_DIRS, fields)
        if answer.results[0].partitions[0].error_code == ErrorCode.NONE:
            self._recorder.visited("shift between log directories")

    async def _elect(self) -> None:
        """Nothing holds for good afterwards: the next fault may take the leader away."""
        topic, number = partition_of(self.client.random.choice(list(self._keys)))
        fields = {
            "election_type": PREFERRED, "topic_partitions": [{"topic": topic, "partitions": [number]}],
            "timeout_ms": TIMEOUT_MS,
        }  # fmt: skip
        answer = await self.client.request_any(ApiKey.ELECT_LEADERS, fields)
        rows = [row for each in answer.replica_election_results for row in each.partition_result]
        if not answer.error_code and [row.error_code for row in rows] == [0]:
            self._recorder.visited("preferred election")

    async def _configure(self) -> None:
        """Set a value that no topic has had, or remove it."""
        chance = self.client.random
        names = sorted({*map(topic_of, self._keys), *self._created & {self._topic}})
        name = chance.choice(names)
        self._values += 1
        value = None if chance.random() < 0.3 else str(CONFIG_FROM + self._values)
        entry = {"name": CONFIG, "config_operation": DELETE if value is None else SET, "value": value}
        resource = {"resource_type": ResourceType.TOPIC, "resource_name": name, "configs": [entry]}
        configured = self._configured.setdefault(name, Setting(None))
        configured.ask(value)
        fields = {"resources": [resource], "validate_only": False}
        answer = await self.client.request_any(ApiKey.INCREMENTAL_ALTER_CONFIGS, fields)
        code = ErrorCode(answer.responses[0].error_code)
        self._heard(configured, value, code, "config")

    async def _create(self) -> None:
        self._topics += 1
        name = self._topic = f"extra-{self._topics}"
        self._may_exist[name] = {True, False}
        topic = {
            "name": name, "num_partitions": PARTITIONS, "replication_factor": self._copies, "assignments": [],
            "configs": [],
        }  # fmt: skip
        fields = {"topics": [topic], "timeout_ms": TIMEOUT_MS, "validate_only": False}
        answer = await self.client.request_any(ApiKey.CREATE_TOPICS, fields)
        if answer.topics[0].error_code:
            return
        self._may_exist[name] = {True}
        self._created.add(name)
        self._counts[name] = Setting(PARTITIONS)
        self._recorder.visited("topic created")
        for number in range(RECORDS):
            batch = encoded(self.client, [number])
            await send_once(self.client, f"{name}-{number % PARTITIONS}", batch, ACKS_ALL)

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

    async def _grow(self, name: str) -> None:
        """To more than was ever asked for: a smaller count is refused, and would prove nothing."""
        counts = self._counts[name]
        count = max(counts.possible) + 1
        fields = {
            "topics": [{"name": name, "count": count, "assignments": None}], "timeout_ms": TIMEOUT_MS,
            "validate_only": False,
        }  # fmt: skip
        counts.ask(count)
        answer = await self.client.request_any(ApiKey.CREATE_PARTITIONS, fields)
        code = ErrorCode(answer.results[0].error_code)
        self._heard(counts, count, code, "partitions created")

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

    def _heard(self, setting: Setting[Value], asked: Value, code: ErrorCode, visit: str) -> None:
        """Other codes tell nothing: it may be carried out yet."""
        if code in (ErrorCode.NONE, *REFUSALS):
            setting.answered(asked, is_done=code is ErrorCode.NONE)
        if code is ErrorCode.NONE:
            self._recorder.visited(visit)

    def violations(self, image: MetadataImage) -> Iterator[str]:
        """What was acknowledged and does not hold, once the cluster has recovered."""
        for key, placed in sorted(self._placed.items()):
            state = image.partition(partition_of(key))
            if placed.possible and (state is None or state.replicas not in placed.possible):
                yield f"{key} was sent to {placed.acknowledged}, and is {state}"
        for name, may_be in sorted(self._may_exist.items()):
            if (name in image.topics_by_name) not in may_be:
                yield f"{name} was {'created' if True in may_be else 'deleted'}, and is not as it should be"
        for name, configured in sorted(self._configured.items()):
            value, exists = image.config(ResourceType.TOPIC, name).get(CONFIG), name in image.topics_by_name
            if value not in (configured.possible if exists else {None}):
                was = f"was set to {configured.acknowledged}" if exists else "is of no topic"
                yield f"{CONFIG} of {name} {was}, and is {value}"
        for name, counts in sorted(self._counts.items()):
            topic = image.topics_by_name.get(name)
            found = {count for count in counts.possible if count >= (counts.acknowledged or 0)}
            if topic is not None and len(topic.partitions) not in found:
                yield f"{name} has {len(topic.partitions)} partitions, of {sorted(found)}"
