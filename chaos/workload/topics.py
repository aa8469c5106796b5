"""The topics that a workload writes, one per mode, and their making on a cluster."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any, Final, NamedTuple

from confluent_kafka import KafkaError, KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from chaos.history import ACKS_ALL, TopicMode

REQUEST_TIMEOUT_S: Final = 10.0
LOOK_EVERY_S: Final = 0.1


class Writing(NamedTuple):
    """The kind of producer that a topic is written by, and no other."""

    acks: int
    idempotent: bool
    transactional: bool
    copy_of: str | None = None


@dataclass(frozen=True, slots=True)
class TopicSpec:
    """A topic and the one mode in which it is written: what the checker tolerates depends on it."""

    name: str
    partitions: int = 2
    acks: int = ACKS_ALL
    idempotent: bool = False
    transactional: bool = False
    """Written in transactions: of several records over several partitions, committed or aborted."""
    copy_of: str | None = None
    """Written by clients that consume that topic, and produce to this one, in the same transaction."""
    replication: int = 3
    min_insync_replicas: int = 2
    settings: Mapping[str, str] = field(default_factory=dict)
    """More of the topic's configuration."""

    def __post_init__(self) -> None:
        if self.acks not in (0, 1, ACKS_ALL):
            raise ValueError(f"acks of {self.name} is {self.acks}, not 0, 1 or -1")
        if self.idempotent and self.acks != ACKS_ALL:
            raise ValueError(f"{self.name}: an idempotent producer needs acks=-1")
        if self.transactional and self.acks != ACKS_ALL:
            raise ValueError(f"{self.name}: a transactional producer needs acks=-1")
        if self.copy_of is not None and not self.transactional:
            raise ValueError(f"{self.name}: copies are written in transactions")

    @property
    def keys(self) -> tuple[str, ...]:
        return tuple(f"{self.name}-{number}" for number in range(self.partitions))

    @property
    def allows_unclean_election(self) -> bool:
        """Whether a replica out of sync may be elected: what the others have is lost then."""
        return self.settings.get("unclean.leader.election.enable") == "true"

    @property
    def writing(self) -> Writing:
        return Writing(self.acks, self.idempotent, self.transactional, self.copy_of)

    @property
    def mode(self) -> TopicMode:
        """As the history's header has it."""
        return TopicMode(self.partitions, self.acks, self.idempotent, self.transactional)


def create_topics(
    bootstrap: str,
    topics: Iterable[TopicSpec],
    *,
    patience_s: float = 60.0,
    now_s: Callable[[], float] = time.monotonic,
) -> None:
    """Create them and wait until every partition has a leader and its full ISR. Raises `KafkaException`
    where the cluster refuses (a topic of that name is there already), `TimeoutError` where it is not done."""
    specs = {spec.name: spec for spec in topics}
    admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})
    made = admin.create_topics(
        [
            NewTopic(
                spec.name,
                num_partitions=spec.partitions,
                replication_factor=spec.replication,
                config={"min.insync.replicas": str(spec.min_insync_replicas), **spec.settings},
            )
            for spec in specs.values()
        ],
        request_timeout=REQUEST_TIMEOUT_S,
    )
    for future in made.values():
        future.result()
    deadline = now_s() + patience_s
    while not all(_is_whole(admin, spec) for spec in specs.values()):
        if now_s() > deadline:
            raise TimeoutError(f"after {patience_s:g} s not every partition has all its replicas in sync")
        time.sleep(LOOK_EVERY_S)


def _is_whole(admin: AdminClient, spec: TopicSpec) -> bool:
    try:
        topic: Any = admin.list_topics(spec.name, timeout=REQUEST_TIMEOUT_S).topics[spec.name]
    except KafkaException as error:
        if error.args[0].code() in (KafkaError._TRANSPORT, KafkaError._TIMED_OUT):
            return False
        raise
    partitions = topic.partitions.values()
    return len(partitions) == spec.partitions and all(
        each.leader >= 0 and len(each.isrs) == spec.replication for each in partitions
    )
