"""The requests of `kraft reassign`: alter and list reassignments, set throttles, choose log dirs.

It uses our own client: librdkafka has no calls for them.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from kraft.cli.bootstrap import any_broker
from kraft.cli.errors import CliError
from kraft.cli.reassignment_plan import ANY_DIR, PlacedPartition
from kraft.cli.wire_client import metadata, raise_for, request
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.topic_configs import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
)

if TYPE_CHECKING:
    from kraft.wire.bridge import Message


_SET, _DELETE = 0, 1
_TIMEOUT_MS: Final = 30_000

Place = tuple[str, int]


class OngoingReassignment(NamedTuple):
    """A partition that is being reassigned."""

    topic: str
    partition: int
    replicas: tuple[int, ...]
    adding: tuple[int, ...]
    removing: tuple[int, ...]


def topics(bootstrap: str, names: Sequence[str]) -> list[Message]:
    """Raises CliError where one does not exist."""
    descriptions: list[Message] = metadata(bootstrap, list(names)).topics
    for topic in descriptions:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CliError(f"{topic.name}: there is no such topic")
        raise_for(topic.error_code, topic.name)
    return descriptions


def placed(bootstrap: str, names: Sequence[str]) -> list[PlacedPartition]:
    """The replicas of topics' partitions, or the target of those that are being reassigned."""
    reassignments = {(each.topic, each.partition): each for each in ongoing(bootstrap)}
    partitions = []
    for topic in topics(bootstrap, names):
        for each in topic.partitions:
            move = reassignments.get((topic.name, each.partition_index))
            replicas = tuple(each.replica_nodes)
            if move is not None:
                replicas = tuple(r for r in move.replicas if r not in move.removing)
            partitions.append(PlacedPartition(topic.name, each.partition_index, replicas))
    return sorted(partitions)


def racks(bootstrap: str) -> dict[int, str | None]:
    """The racks of the brokers that are up."""
    return {each.node_id: each.rack for each in metadata(bootstrap, []).brokers}


def ongoing(bootstrap: str) -> list[OngoingReassignment]:
    answer = request(
        any_broker(bootstrap),
        ApiKey.LIST_PARTITION_REASSIGNMENTS,
        (0, 0),
        {"topics": None, "timeout_ms": _TIMEOUT_MS},
    )
    raise_for(answer.error_code, answer.error_message or "")
    return sorted(
        OngoingReassignment(
            topic.name,
            each.partition_index,
            tuple(each.replicas),
            tuple(each.adding_replicas),
            tuple(each.removing_replicas),
        )
        for topic in answer.topics
        for each in topic.partitions
    )


def alter(bootstrap: str, targets: Mapping[Place, Sequence[int] | None]) -> None:
    """None cancels a partition's reassignment. Raises BrokerError for the first that was refused."""
    by_topic: dict[str, list[dict[str, Any]]] = {}
    for (topic, number), replicas in targets.items():
        by_topic.setdefault(topic, []).append({"partition_index": number, "replicas": replicas})
    fields = {
        "timeout_ms": _TIMEOUT_MS,
        "topics": [{"name": topic, "partitions": partitions} for topic, partitions in by_topic.items()],
    }
    answer = request(any_broker(bootstrap), ApiKey.ALTER_PARTITION_REASSIGNMENTS, (0, 1), fields)
    raise_for(answer.error_code, answer.error_message or "")
    for topic in answer.responses:
        for each in topic.partitions:
            if each.error_code not in (ErrorCode.NONE, ErrorCode.NO_REASSIGNMENT_IN_PROGRESS):
                name = f"{topic.name}-{each.partition_index}"
                raise BrokerError(ErrorCode(each.error_code), f"{name}: {each.error_message}")


def choose_log_dirs(bootstrap: str, plan: Iterable[PlacedPartition]) -> None:
    """Assign replicas to log dirs, on brokers that have them already and on those that will get them.
    Raises CliError."""
    by_broker: dict[int, dict[str, dict[str, list[int]]]] = {}
    for each in plan:
        for broker, path in zip(each.replicas, each.log_dirs, strict=False):
            if path != ANY_DIR:
                numbers = by_broker.setdefault(broker, {}).setdefault(path, {}).setdefault(each.topic, [])
                numbers.append(each.partition)
    addresses = {each.node_id: (each.host, each.port) for each in metadata(bootstrap, []).brokers}
    for broker, paths in by_broker.items():
        if broker not in addresses:
            raise CliError(f"{broker}: no such broker is up")
        dirs = [
            {"path": path, "topics": [{"name": t, "partitions": numbers} for t, numbers in named.items()]}
            for path, named in paths.items()
        ]
        for topic in request(
            addresses[broker], ApiKey.ALTER_REPLICA_LOG_DIRS, (1, 2), {"dirs": dirs}
        ).results:
            for each in topic.partitions:
                # REPLICA_NOT_AVAILABLE: the broker notes the directory for when the replica comes.
                if each.error_code != ErrorCode.REPLICA_NOT_AVAILABLE:
                    raise_for(each.error_code, f"{topic.topic_name}-{each.partition_index} on {broker}")


def throttle(
    bootstrap: str, rate: int, before: Iterable[PlacedPartition], plan: Iterable[PlacedPartition]
) -> None:
    """Throttle what the moves from `before` to `plan` copy: former replicas send, new ones fetch."""
    held = {(each.topic, each.partition): each.replicas for each in before}
    senders: dict[str, list[str]] = {}
    fetchers: dict[str, list[str]] = {}
    brokers: set[int] = set()
    for each in plan:
        sources = held.get((each.topic, each.partition), ())
        new = [broker for broker in each.replicas if broker not in sources]
        if new:
            senders.setdefault(each.topic, []).extend(f"{each.partition}:{b}" for b in sources)
            fetchers.setdefault(each.topic, []).extend(f"{each.partition}:{b}" for b in new)
            brokers |= {*sources, *new}
    rates = {LEADER_THROTTLED_RATE: str(rate), FOLLOWER_THROTTLED_RATE: str(rate)}
    resources = [_resource(ResourceType.BROKER, str(broker), rates) for broker in sorted(brokers)]
    resources += [
        _resource(
            ResourceType.TOPIC,
            topic,
            {
                LEADER_THROTTLED_REPLICAS: ",".join(senders[topic]),
                FOLLOWER_THROTTLED_REPLICAS: ",".join(fetchers[topic]),
            },
        )
        for topic in sorted(senders)
    ]
    _configure(bootstrap, resources)


def lift_throttle(bootstrap: str, names: Iterable[str]) -> None:
    """Remove throttles of these topics, and those of all brokers if nothing else is being reassigned."""
    replicas = dict.fromkeys((LEADER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_REPLICAS))
    resources = [_resource(ResourceType.TOPIC, topic, replicas) for topic in sorted(set(names))]
    if not ongoing(bootstrap):
        rates = dict.fromkeys((LEADER_THROTTLED_RATE, FOLLOWER_THROTTLED_RATE))
        resources += [
            _resource(ResourceType.BROKER, str(broker), rates) for broker in sorted(racks(bootstrap))
        ]
    _configure(bootstrap, resources)


def _resource(kind: ResourceType, name: str, values: Mapping[str, str | None]) -> dict[str, Any]:
    configs = [
        {"name": key, "config_operation": _DELETE if value is None else _SET, "value": value}
        for key, value in values.items()
    ]
    return {"resource_type": int(kind), "resource_name": name, "configs": configs}


def _configure(bootstrap: str, resources: list[dict[str, Any]]) -> None:
    fields = {"resources": resources, "validate_only": False}
    answer = request(any_broker(bootstrap), ApiKey.INCREMENTAL_ALTER_CONFIGS, (0, 1), fields)
    for each in answer.responses:
        if each.error_code not in (ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION):
            raise BrokerError(ErrorCode(each.error_code), each.error_message or "")
