"""AlterConfigs and IncrementalAlterConfigs: values are checked, then become ConfigRecords.

Each resource is taken whole or not at all. Where a change touches the rules of election
(min.insync.replicas, unclean.leader.election.enable) the partitions it concerns follow at once.
"""

from __future__ import annotations

from collections.abc import Collection, Mapping

from metadata_quorum.decisions.client_metrics import CLIENT_METRICS_CONFIGS, check_client_metrics
from metadata_quorum.decisions.decision import Decision
from metadata_quorum.decisions.elections import (
    MIN_INSYNC_REPLICAS,
    UNCLEAN_ELECTION,
    affected_topics,
    config_changed,
)
from metadata_quorum.decisions.topics import name_problem
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, detached
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.primitives import MAX_STRING_BYTES
from metadata_quorum.foundation.topic_configs import (
    DYNAMIC_BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigKey,
    ConfigType,
    topic_config_problem,
)
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import ConfigRecord, MetadataRecord
from metadata_quorum.protocol.commands import (
    CONFIG_APPEND,
    CONFIG_DELETE,
    CONFIG_SET,
    CONFIG_SUBTRACT,
    AlterConfigs,
    ConfigOperation,
    IncrementalAlterConfigs,
)
from metadata_quorum.protocol.replies import ConfigResult

Resource = tuple[int, str]
RequestedChange = tuple[Resource, frozenset[str], Mapping[str, str] | BrokerError]
"""A resource, the keys that the request names, and all values as the request makes them."""


def incremental_alter_configs(image: MetadataImage, command: IncrementalAlterConfigs) -> Decision:
    """Set, delete, append and subtract single values."""
    requested: list[RequestedChange] = []
    for change in command.changes:
        resource = (change.resource_type, change.resource_name)
        named = frozenset(operation.name for operation in change.operations)
        try:
            values = dict(image.config(*resource))
            if len(named) != len(change.operations):
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Error due to duplicate config keys")
            for operation in change.operations:
                _operate(values, operation, _keys(resource), bounds_lists=command.bounds_lists)
            requested.append((resource, named, values))
        except BrokerError as e:
            requested.append((resource, named, detached(e)))
    return _decide(image, requested, command.controllers)


def alter_configs(image: MetadataImage, command: AlterConfigs) -> Decision:
    """Replace all values of a resource."""
    requested: list[RequestedChange] = []
    for replacement in command.resources:
        resource = (replacement.resource_type, replacement.resource_name)
        named = frozenset(entry.name for entry in replacement.configs)
        try:
            for entry in replacement.configs:
                if entry.value is None:
                    raise BrokerError(
                        ErrorCode.INVALID_CONFIG, f"Null value not supported for : {entry.name}"
                    )
            values = {entry.name: entry.value for entry in replacement.configs if entry.value is not None}
            requested.append((resource, named, values))
        except BrokerError as e:
            requested.append((resource, named, detached(e)))
    return _decide(image, requested, command.controllers)


def _decide(image: MetadataImage, requested: list[RequestedChange], controllers: Collection[int]) -> Decision:
    decision = Decision()
    results = []
    seen: set[Resource] = set()
    topics: set[str] = set()
    for resource, named, values in requested:
        if isinstance(values, BrokerError):
            results.append(ConfigResult(*resource, error=values.code, message=values.message))
            continue
        try:
            if resource in seen:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Each resource must appear at most once.")
            seen.add(resource)
            before = image.config(*resource)
            _check_name(resource)
            _check(resource, values)
            _check_exists(image, resource, controllers)
            if image.features.get(ELR_VERSION, 0) >= 1:
                _check_min_insync(resource, named, before, values)
            changed = {k for k in before.keys() | values.keys() if before.get(k) != values.get(k)}
            # To set a broker's value again makes it read a file again (KAFKA-14136).
            written = changed | (named & values.keys() if resource[0] == ResourceType.BROKER else set())
            decision.records += [
                ConfigRecord(
                    resource_type=resource[0], resource_name=resource[1], name=name, value=values.get(name)
                )
                for name in sorted(written)
            ]
            if changed & {MIN_INSYNC_REPLICAS, UNCLEAN_ELECTION}:
                topics |= affected_topics(image, *resource)
            results.append(ConfigResult(*resource))
        except BrokerError as e:
            results.append(ConfigResult(*resource, error=e.code, message=e.message))
    if topics:
        decision.records += list(config_changed(_replayed(image, decision.records), topics))
    decision.reply = tuple(results)
    return decision


def _replayed(image: MetadataImage, records: list[MetadataRecord]) -> MetadataImage:
    delta = MetadataDelta(image)
    for record in records:
        delta.replay(record)
    return delta.apply()


def _check_name(resource: Resource) -> None:
    """Raises `BrokerError` where nothing of that kind can have the name."""
    kind, name = resource
    match kind:
        case ResourceType.TOPIC:
            if not name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Default topic resources are not allowed.")
            if (problem := name_problem(name)) is not None:
                raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
        case ResourceType.BROKER:
            if name and not name.isdecimal():
                raise BrokerError(ErrorCode.INVALID_REQUEST, f"Invalid broker name '{name}'")
        case ResourceType.CLIENT_METRICS:
            if not name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Subscription name can't be empty")
        case ResourceType.GROUP:
            if not name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Default resources are not allowed here.")
        case _:
            raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unexpected resource type {kind}.")


def _check_exists(image: MetadataImage, resource: Resource, controllers: Collection[int]) -> None:
    """Last, as in Kafka: what is wrong with the values is told of a topic that there is not, too."""
    kind, name = resource
    if kind == ResourceType.TOPIC and name not in image.topics_by_name:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, f"The topic '{name}' does not exist.")
    if kind == ResourceType.BROKER and name and int(name) not in image.brokers.keys() | set(controllers):
        raise BrokerError(ErrorCode.BROKER_ID_NOT_REGISTERED, f"No broker with id {name} found.")


def _keys(resource: Resource) -> Mapping[str, ConfigKey]:
    match resource[0]:
        case ResourceType.TOPIC:
            return TOPIC_CONFIGS
        case ResourceType.BROKER:
            return DYNAMIC_BROKER_CONFIGS
        case ResourceType.GROUP:
            return GROUP_CONFIGS
        case ResourceType.CLIENT_METRICS:
            return CLIENT_METRICS_CONFIGS
        case _:
            return {}


def _operate(
    values: dict[str, str],
    operation: ConfigOperation,
    keys: Mapping[str, ConfigKey],
    *,
    bounds_lists: bool,
) -> None:
    name, value = operation.name, operation.value
    if operation.operation == CONFIG_DELETE:
        values.pop(name, None)
        return
    if value is None:
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"Null value not supported for : {name}")
    if operation.operation == CONFIG_SET:
        values[name] = value
        return
    if operation.operation not in (CONFIG_APPEND, CONFIG_SUBTRACT):
        raise BrokerError(ErrorCode.INVALID_REQUEST, f"Unknown operation type {operation.operation}")
    changed = _changed_list(values.get(name), operation, value, keys.get(name), unique=bounds_lists)
    if bounds_lists and len(changed.encode()) > MAX_STRING_BYTES:
        text = "The configuration value cannot be added because it exceeds the maximum value size of"
        raise BrokerError(ErrorCode.INVALID_CONFIG, f"{text} {MAX_STRING_BYTES} bytes.")
    values[name] = changed


def _changed_list(
    before: str | None, operation: ConfigOperation, value: str, key: ConfigKey | None, *, unique: bool
) -> str:
    """With the items of `value` that it lacks (`unique`: each once), or without them."""
    if key is None or key.type is not ConfigType.LIST:
        verb = "APPEND" if operation.operation == CONFIG_APPEND else "SUBTRACT"
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"Can't {verb} to key {operation.name} because its type is not LIST."
        )
    present = [item for item in (key.default or "" if before is None else before).split(",") if item]
    given = [item.strip() for item in value.split(",") if item.strip()]
    if operation.operation == CONFIG_SUBTRACT:
        gone = set(given)
        return ",".join(item for item in present if item not in gone)
    known = set(present)
    return ",".join(
        present + [item for item in (dict.fromkeys(given) if unique else given) if item not in known]
    )


def _check(resource: Resource, values: Mapping[str, str]) -> None:
    problem: str | None = None
    kind = resource[0]
    if kind == ResourceType.CLIENT_METRICS:
        check_client_metrics(values)
    elif kind == ResourceType.TOPIC:
        problem = topic_config_problem(values)
    elif kind in (ResourceType.BROKER, ResourceType.GROUP):
        for key_name, value in values.items():
            key = _keys(resource).get(key_name)
            if key is not None:
                problem = problem or key.problem(value)
            elif kind == ResourceType.GROUP:
                problem = problem or f"Unknown group config name: {key_name}"
    if problem:
        raise BrokerError(ErrorCode.INVALID_CONFIG, problem)


def _check_min_insync(
    resource: Resource, named: frozenset[str], before: Mapping[str, str], values: Mapping[str, str]
) -> None:
    """A cluster with ELR needs one committed min.insync.replicas: it stays, and no broker has another."""
    kind, name = resource
    if kind != ResourceType.BROKER:
        return
    if name and MIN_INSYNC_REPLICAS in named:
        text = "Broker-level min.insync.replicas cannot be altered while ELR is enabled."
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)
    if not name and MIN_INSYNC_REPLICAS in (named | before.keys()) - values.keys():
        text = "Cluster-level min.insync.replicas cannot be removed while ELR is enabled."
        raise BrokerError(ErrorCode.INVALID_CONFIG, text)
