"""Errors in a change of configurations that are found before the controller decides on it.

Kafka's broker checks the same before it forwards a request: duplicates, nulls, and keys of brokers that
cannot change while they run. Here the controller's node checks it, with Kafka's codes and messages.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import cache, partial
from typing import Final

from kraft.api.bounds import MOST_OF_A_KIND, check_few
from kraft.api.context import NodeContext
from kraft.api.group_configs import group_config_problem
from kraft.api.slices import in_slices
from kraft.config.dynamic_config import base_name
from kraft.config.key import Update
from kraft.config.keys import CLASSES, CLUSTER_WIDE_OF_LISTENERS, FIXED_IN_KAFKA, NO_EFFECT, PER_LISTENER
from kraft.config.node_config import ROWS, parse_value
from kraft.wire.bridge import Message
from metadata_quorum.decisions.client_metrics import CLIENT_METRICS_CONFIGS
from metadata_quorum.decisions.elections import MIN_INSYNC_REPLICAS
from metadata_quorum.foundation.errors import BrokerError, ErrorCode, FatalError
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.topic_configs import (
    DYNAMIC_BROKER_CONFIGS,
    GROUP_CONFIGS,
    TOPIC_CONFIGS,
    ConfigKey,
    ConfigType,
)
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.protocol.commands import CONFIG_APPEND, CONFIG_DELETE, CONFIG_SET, CONFIG_SUBTRACT
from metadata_quorum.protocol.replies import ConfigResult

RESOURCES_PER_SLICE: Final = 200
"""Resources, and configs of resources, that are checked in one turn of the loop."""
NAMED_PER_SLICE: Final = 2000
CHARS_AS_ONE: Final = 256
"""A list of so many characters takes as long to check as a few configs."""
_LONGEST_ID: Final = 10
"""Digits of the id of a broker."""

Validate = Callable[[Message], ConfigResult | None]
"""For a resource without errors so far: the outcome, or None if the controller decides."""

_ALTERABLE: Final = frozenset(
    {ResourceType.TOPIC, ResourceType.BROKER, ResourceType.GROUP, ResourceType.CLIENT_METRICS}
)
_REPORTERS: Final = frozenset({"metric.reporters"})
"""May change without effect."""
_FIXED: Final = FIXED_IN_KAFKA.union(NO_EFFECT)
_LOGINS: Final = "sasl.jaas.config"
"""Behind a mechanism's name."""
_GZIP_LEVEL: Final = "compression.gzip.level"
_NEVER_NONE: Final = frozenset({"log.cleaner.threads", "max.connection.creation.rate", "max.connections"})
"""May be 0 in server.properties only: who sets it at run time might not come in again to set it back."""
_NUMBERS: Final = frozenset({ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE})
_LIMIT: Final = "max.connections.per.ip"
_EXCEPTIONS: Final = "max.connections.per.ip.overrides"
_OVERRIDES: Final = re.compile(r"(|[^,]+:[0-9]{1,9}(,[^,]+:[0-9]{1,9})*)", re.ASCII)
"""HOST:COUNT,…"""
_WHILE_ELIGIBLE: Final = (
    "Broker-level min.insync.replicas cannot be altered while there are eligible leader replicas."
)
_OPERATIONS: Final = frozenset({CONFIG_SET, CONFIG_DELETE, CONFIG_APPEND, CONFIG_SUBTRACT})


async def outcomes(
    node: NodeContext,
    resources: Sequence[Message],
    *,
    incremental: bool,
    levels: Validate | None = None,
    present: MetadataImage = EMPTY_IMAGE,
) -> list[ConfigResult | None]:
    """The outcome for each resource that is known already. `levels`: handles those of broker loggers.
    `present`: has the values to which a change adds or from which it takes."""
    times: Counter[tuple[int, str]] = Counter()
    async for resource in in_slices(node.long_work, resources, NAMED_PER_SLICE):
        times[resource.resource_type, resource.resource_name] += 1
    has_eligible = cache(partial(_has_leftover_eligible, node.image))  # once, however many brokers are named
    found: list[ConfigResult | None] = []
    async for resource in in_slices(node.long_work, resources, RESOURCES_PER_SLICE, _weight):
        kind, name = resource.resource_type, resource.resource_name
        try:
            if times[kind, name] > 1:
                raise _invalid("Each resource must appear at most once.")
            _check_form(resource, incremental=incremental)
            if kind == ResourceType.BROKER_LOGGER and levels is not None:
                found.append(levels(resource))
                continue
            if kind not in _ALTERABLE:
                raise _invalid(f"Unknown resource type {kind}")
            _check_values(node, present, resource, incremental=incremental)
            if _names_min_insync_of_a_broker(resource) and has_eligible():
                raise BrokerError(ErrorCode.INVALID_CONFIG, _WHILE_ELIGIBLE)
            found.append(None)
        except BrokerError as error:
            found.append(ConfigResult(kind, name, error.code, error.message))
    return found


def _weight(resource: Message) -> int:
    return weight_of(resource.configs)


def weight_of(configs: Sequence[Message]) -> int:
    """How many configs those of one resource count as, in slices. Of too many, none is looked at."""
    if len(configs) > MOST_OF_A_KIND:
        return MOST_OF_A_KIND
    return 1 + len(configs) + sum(len(each.value or "") for each in configs) // CHARS_AS_ONE


def _check_form(resource: Message, *, incremental: bool) -> None:
    check_few(resource.configs)
    names = [each.name for each in resource.configs]
    if len(set(names)) < len(names):
        raise _invalid("Error due to duplicate config keys")
    empty = [
        each.name
        for each in resource.configs
        if each.value is None and not (incremental and each.config_operation == CONFIG_DELETE)
    ]
    if empty:
        raise _invalid(f"Null value not supported for : {', '.join(empty)}")
    for each in resource.configs if incremental else ():
        if each.config_operation not in _OPERATIONS:
            raise _invalid(f"Unknown operations type {each.config_operation}")


def _check_values(node: NodeContext, present: MetadataImage, resource: Message, *, incremental: bool) -> None:
    kind, name = resource.resource_type, resource.resource_name
    values = {
        each.name: each.value
        for each in resource.configs
        if not (incremental and each.config_operation in (CONFIG_DELETE, CONFIG_SUBTRACT))
    }
    if kind == ResourceType.BROKER:
        if len(name) > _LONGEST_ID:
            raise _invalid(f"Invalid broker name '{name[:_LONGEST_ID]}...'")
        # What is taken from a list need be no value, and what is left of it may be none.
        lessened = {
            each.name: ""
            for each in resource.configs
            if incremental and each.config_operation == CONFIG_SUBTRACT
        }
        check_broker_values(values | lessened, per_broker=bool(name))
        if any(each.name in (_LIMIT, _EXCEPTIONS) for each in resource.configs):
            _check_limit(node, name, _after(node, resource, values, incremental=incremental))
    elif kind == ResourceType.TOPIC:
        check_topic_values(values)
    elif kind == ResourceType.CLIENT_METRICS:
        _check_read(CLIENT_METRICS_CONFIGS, values)
    elif kind == ResourceType.GROUP:
        _check_read(GROUP_CONFIGS, values)
        if incremental:  # its values must fit together with those that it has
            gone = {each.name for each in resource.configs} - values.keys()
            before = present.config(ResourceType.GROUP, name)
            values = {key: value for key, value in before.items() if key not in gone} | values
        problem = group_config_problem(values, node.config)
        if problem:
            raise BrokerError(ErrorCode.INVALID_CONFIG, problem)


def _after(
    node: NodeContext, resource: Message, values: Mapping[str, str], *, incremental: bool
) -> Mapping[str, str]:
    """All values of the broker's resource after the change."""
    if not incremental:
        return values
    named = {each.name for each in resource.configs}
    before = node.image.config(ResourceType.BROKER, resource.resource_name)
    return {**{key: value for key, value in before.items() if key not in named}, **values}


def _check_limit(node: NodeContext, broker: str, values: Mapping[str, str]) -> None:
    """Nobody could connect any more, to change it back. Raises `BrokerError`."""
    shared = node.image.config(ResourceType.BROKER, "") if broker else {}
    effective = {**node.config.given, **shared, **values}
    if int(effective.get(_LIMIT) or 1) == 0 and not effective.get(_EXCEPTIONS):
        raise _invalid(f"{_LIMIT} can be set to zero only if {_EXCEPTIONS} property is set.")


def _names_min_insync_of_a_broker(resource: Message) -> bool:
    return (
        resource.resource_type == ResourceType.BROKER
        and bool(resource.resource_name)
        and any(each.name == MIN_INSYNC_REPLICAS for each in resource.configs)
    )


def _has_leftover_eligible(image: MetadataImage) -> bool:
    """ELR that is turned off leaves eligible leaders where the ISR is too small: they have nothing of what a
    broker acknowledges by a lower value of its own. While it is on, the controller refuses those values."""
    is_on = image.features.get(ELR_VERSION, 0) > 0
    return not is_on and any(partition.elr for partition in image.partitions())


def check_broker_values(values: Mapping[str, str], *, per_broker: bool) -> None:
    """Of what is set: anything may be deleted. Raises INVALID_REQUEST, as Kafka does for every kind of value
    that cannot be (KAFKA-13609)."""
    fixed = [key for key in values if not _may_change(key)]
    if fixed:
        raise _invalid(f"Cannot update these configs dynamically: {', '.join(fixed)}")
    bare = [key for key in values if key in PER_LISTENER]
    if bare:
        raise _invalid(
            "These security configs can be dynamically updated only per-listener using the listener prefix: "
            + ", ".join(bare)
        )
    for key, value in values.items():
        _check_value(key, value)
    single = [key for key in values if _is_of_one_broker(key)]
    if single and not per_broker:
        raise _invalid(
            "Cannot update these configs at default cluster level, broker id must be specified: "
            + ", ".join(single)
        )


def check_topic_values(values: Mapping[str, str | None]) -> None:
    """Of what is set: what decisions let pass, for commands that are in the log stay decided as they are.
    Raises `BrokerError`, INVALID_CONFIG."""
    _check_read(TOPIC_CONFIGS, values)
    level = (values.get(_GZIP_LEVEL) or "").strip()
    if re.fullmatch("[+-]?0+", level, re.ASCII):
        wrong = "Value must be between 1 and 9 or equal to -1"
        raise BrokerError(
            ErrorCode.INVALID_CONFIG, f"Invalid value {level} for configuration {_GZIP_LEVEL}: {wrong}"
        )


def _check_read(keys: Mapping[str, ConfigKey], values: Mapping[str, str | None]) -> None:
    """Raises `BrokerError`, INVALID_CONFIG."""
    for name, value in values.items():
        problem = _misread(keys.get(name), value)
        if problem:
            raise BrokerError(ErrorCode.INVALID_CONFIG, problem)


def _misread(key: ConfigKey | None, value: str | None) -> str | None:
    """What is wrong with a value that decisions read, and Kafka does not: 1_000, which is Python's own
    notation, and a list of choices with an empty item."""
    if key is None or not value:
        return None
    if key.type in _NUMBERS and "_" in value:
        return f"Invalid value {value} for configuration {key.name}: Not a number of type {key.type.name}"
    is_empty = key.type is ConfigType.LIST and not all(item.strip() for item in value.split(","))
    if is_empty and key.one_of and value.strip():
        choices = ", ".join(key.one_of)
        return f"Invalid value  for configuration {key.name}: String must be one of: {choices}"
    return None


def _may_change(key: str) -> bool:
    """What nobody knows may be set to anything."""
    base = base_name(key)
    if base != key:
        known = base in ROWS or base in _FIXED or base.endswith(_LOGINS)
        return not known or base in PER_LISTENER or base in CLUSTER_WIDE_OF_LISTENERS or base in CLASSES
    row = ROWS.get(key)
    if row is not None:
        return row.rule.update is not Update.READ_ONLY
    return key in DYNAMIC_BROKER_CONFIGS or key in _REPORTERS or key not in _FIXED


def _is_of_one_broker(key: str) -> bool:
    base, row = base_name(key), ROWS.get(key)
    if base != key:
        return base not in CLUSTER_WIDE_OF_LISTENERS
    return key in CLASSES or (row is not None and row.rule.update is Update.PER_BROKER)


def _check_value(key: str, value: str) -> None:
    dynamic, row = DYNAMIC_BROKER_CONFIGS.get(key), ROWS.get(base_name(key))
    problem = None if dynamic is None else dynamic.problem(value) or _misread(dynamic, value)
    if problem:
        raise _invalid(problem)
    if value and base_name(key) in CLASSES and value != CLASSES[base_name(key)]:
        raise _invalid(f"Invalid value {value} for configuration {key}: Class {value} could not be found.")
    if key == _EXCEPTIONS and not _OVERRIDES.fullmatch(value):
        raise _invalid(f"Error parsing configuration property '{key}': {value}")
    if row is not None:
        try:
            parse_value(row, value)
        except FatalError as error:
            raise _invalid(f"Invalid value {value} for configuration {key}: {error}") from None
    if base_name(key) in _NEVER_NONE and int(value) == 0:
        raise _invalid(f"Invalid value {value} for configuration {key}: must be at least 1")


def _invalid(message: str) -> BrokerError:
    return BrokerError(ErrorCode.INVALID_REQUEST, message)
