"""Configuration over the wire: DescribeConfigs, IncrementalAlterConfigs, AlterConfigs.

    describe   what was set (metadata image) over what this broker was started with (its Config) over defaults
    alter      forwarded to the active controller, decided in apply, published back to every broker;
               levels of loggers (broker_loggers.py) are changed where the request arrives

A value is described with its source and the chain it was taken from ("synonyms"), as Kafka does.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractAsyncContextManager, nullcontext
from enum import IntEnum
from functools import cache, partial
from typing import Any, Final, NamedTuple

from kraft.api import broker_loggers
from kraft.api.authz.topic_checks import authorize_configs
from kraft.api.bounds import check_few
from kraft.api.broker_loggers import LevelChange
from kraft.api.config_validation import NAMED_PER_SLICE, outcomes
from kraft.api.context import ControllerContext, NodeContext
from kraft.api.group_configs import group_default
from kraft.api.request_context import RequestContext
from kraft.api.row import ApiRow, Response
from kraft.api.slices import each_once, in_batches, in_slices
from kraft.config.dynamic_config import base_name
from kraft.config.key import Required, Update
from kraft.config.keys import PER_LISTENER, TOPIC_KEYS
from kraft.config.node_config import ROWS as BROKER_KEYS
from kraft.config.node_config import ConfigRow, format_value
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.decisions.client_metrics import CLIENT_METRICS_CONFIGS
from metadata_quorum.decisions.topics import name_problem
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.topic_configs import (
    DYNAMIC_BROKER_CONFIGS,
    GROUP_CONFIGS,
    THROTTLES,
    TOPIC_CONFIGS,
    ConfigKey,
    ConfigType,
)
from metadata_quorum.protocol.commands import (
    ConfigChange,
    ConfigEntry,
    ConfigOperation,
    ConfigReplacement,
)
from metadata_quorum.protocol.replies import ConfigResult
from metadata_quorum.security.acls import AclOperation

ALTERED_PER_SLICE: Final = 500
RESOURCES_PER_SLICE: Final = 3
"""Resources that are described in one turn of the loop: a broker has two hundred keys."""
_INTERNAL: Final = "internal."
"""Keys for tests: like Kafka, we show them only where they are set."""


class ConfigSource(IntEnum):
    """Where a value comes from (ConfigEntry.ConfigSource)."""

    TOPIC = 1
    DYNAMIC_BROKER = 2
    DYNAMIC_DEFAULT_BROKER = 3
    STATIC_BROKER = 4
    DEFAULT = 5
    BROKER_LOGGER = 6
    CLIENT_METRICS = 7
    GROUP = 8


class SourcedValue(NamedTuple):
    """One link of the chain of a key's values."""

    name: str
    value: str | None
    source: ConfigSource
    is_synonym: bool = True
    """False for what no other key has: it was worked out from several, or no broker's stands behind it."""


class TopicConfig(NamedTuple):
    """One effective setting of a topic, and the chain that it was taken from."""

    key: ConfigKey
    chain: tuple[SourcedValue, ...]

    @property
    def value(self) -> str | None:
        return self.chain[0].value

    @property
    def source(self) -> ConfigSource:
        return self.chain[0].source


_KAFKA_TYPES: Final = {
    "boolean": ConfigType.BOOLEAN,
    "string": ConfigType.STRING,
    "int": ConfigType.INT,
    "short": ConfigType.SHORT,
    "long": ConfigType.LONG,
    "double": ConfigType.DOUBLE,
    "list": ConfigType.LIST,
    "class": ConfigType.CLASS,
    "password": ConfigType.PASSWORD,
}


# ---- DescribeConfigs ---------------------------------------------------------------------------------


async def handle_describe(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    resources = each_once(node.long_work, request.resources, RESOURCES_PER_SLICE, _described)
    usual = cache(partial(_usual_of_topics, node, request))
    return {"results": [_describe(node, request, resource, usual) async for resource in resources]}


def _described(resource: Message) -> Hashable:
    """Which one: of one that is named twice, with what keys soever, the first counts."""
    return resource.resource_type, resource.resource_name


Entry = Mapping[str, Any]
"""One setting of a resource, as it is answered."""
UsualEntries = Callable[[], Mapping[str, Entry]]
"""By their names those of a topic that has none of its own: one object for all topics of a request."""


def _usual_of_topics(node: NodeContext, request: Message) -> Mapping[str, Entry]:
    entries = (_topic_entry(each, request) for each in topic_configs(node, {}))
    return {each["name"]: _with_synonyms(request, each) for each in entries}


def _topic_entry(config: TopicConfig, request: Message) -> Entry:
    key = config.key
    return _entry(key.name, config.chain, key.type, key.doc if request.include_documentation else None)


def _with_synonyms(request: Message, entry: Entry) -> Entry:
    return entry if request.include_synonyms or not entry["synonyms"] else {**entry, "synonyms": []}


def _describe(node: NodeContext, request: Message, resource: Message, usual: UsualEntries) -> dict[str, Any]:
    answer = {"resource_type": resource.resource_type, "resource_name": resource.resource_name}
    try:
        check_few(resource.configuration_keys or ())
        entries = list(_entries(node, request, resource, usual))
    except BrokerError as error:
        failed = {"error_code": int(error.code), "error_message": error.message}
        return {**answer, **failed, "configs": []}
    wanted = set(resource.configuration_keys or ())
    chosen = [_with_synonyms(request, each) for each in entries if not wanted or each["name"] in wanted]
    return {**answer, "error_code": int(ErrorCode.NONE), "error_message": "", "configs": chosen}


def _entries(node: NodeContext, request: Message, resource: Message, usual: UsualEntries) -> Iterator[Entry]:
    name, documented = resource.resource_name, request.include_documentation
    match resource.resource_type:
        case ResourceType.TOPIC:
            yield from _topic(node, request, name, usual)
        case ResourceType.BROKER:
            _check_broker(node, name)
            for row in BROKER_KEYS.values():
                chain = list(_broker_chain(node, row.name, name))
                if name:
                    yield _broker_entry(row, chain, documented)
                elif chain[0].source is not ConfigSource.DEFAULT:  # nobody is the broker of that default
                    yield _broker_entry(row, chain[:1], documented)
            yield from _dynamic_only(node, name, documented)
        case ResourceType.GROUP:
            if not name:
                raise BrokerError(ErrorCode.INVALID_REQUEST, "Group name must not be empty")
            values = node.image.config(ResourceType.GROUP, name)
            for key in GROUP_CONFIGS.values():
                if key.name in values:
                    value = SourcedValue(key.name, values[key.name], ConfigSource.GROUP)
                else:
                    default = group_default(key.name, node.config) or key.default
                    value = SourcedValue(key.name, default, ConfigSource.DEFAULT)
                yield _entry(key.name, [value], key.type, key.doc if documented else None)
        case ResourceType.CLIENT_METRICS:
            yield from _subscription(node, name, documented)
        case ResourceType.BROKER_LOGGER:
            broker_loggers.check_node(name, node.node_id)
            for logger, level in broker_loggers.levels():
                entry = _entry(
                    logger,
                    [SourcedValue(logger, level, ConfigSource.BROKER_LOGGER)],
                    ConfigType.UNKNOWN,
                    None,
                )
                yield {**entry, "synonyms": []}
        case _:
            raise BrokerError(
                ErrorCode.INVALID_REQUEST, f"Unsupported resource type: {resource.resource_type}"
            )


def _topic(node: NodeContext, request: Message, name: str, usual: UsualEntries) -> Iterator[Entry]:
    if (problem := name_problem(name)) is not None:
        raise BrokerError(ErrorCode.INVALID_TOPIC_EXCEPTION, problem)
    if node.image.topic(name) is None:
        raise BrokerError(ErrorCode.UNKNOWN_TOPIC_OR_PARTITION)
    own = node.image.config(ResourceType.TOPIC, name)
    if not own:
        yield from usual().values()
        return
    for each in topic_configs(node, own):
        yield _topic_entry(each, request) if each.key.name in own else usual()[each.key.name]


def _subscription(node: NodeContext, name: str, documented: bool) -> Iterator[dict[str, Any]]:
    """A client metrics subscription. One that does not exist has defaults too; here they have no synonyms."""
    if not name:
        raise BrokerError(ErrorCode.INVALID_REQUEST, "Client metrics subscription name must not be empty")
    values = node.image.config(ResourceType.CLIENT_METRICS, name)
    for key in CLIENT_METRICS_CONFIGS.values():
        source = ConfigSource.CLIENT_METRICS if key.name in values else ConfigSource.DEFAULT
        chain = [SourcedValue(key.name, values.get(key.name, key.default), source)]
        entry = _entry(key.name, chain, key.type, key.doc if documented else None)
        yield entry if key.name in values else {**entry, "synonyms": []}


def _check_broker(node: NodeContext, name: str) -> None:
    """A broker describes only itself; the empty name is the default of all brokers. Raises `BrokerError`."""
    if name not in ("", str(node.node_id)):
        raise BrokerError(
            ErrorCode.INVALID_REQUEST,
            f"Unexpected broker id, expected {node.node_id} or empty string, but received {name}",
        )


def topic_configs(node: NodeContext, own: Mapping[str, str]) -> Iterator[TopicConfig]:
    """Every setting of a topic with these values of its own; CreateTopics answers with it too."""
    for key in TOPIC_CONFIGS.values():
        if key.name.startswith(_INTERNAL) and key.name not in own:
            continue
        chain = [SourcedValue(key.name, own[key.name], ConfigSource.TOPIC)] if key.name in own else []
        broker_key = TOPIC_KEYS.get(key.name)
        if broker_key is not None and broker_key in BROKER_KEYS:
            *overrides, default = _broker_chain(node, broker_key, str(node.node_id))
            default_of_topic = node.config.topic_defaults.get(key.name, default.value)
            is_set = default.value is not None
            chain += [*overrides, SourcedValue(default.name, default_of_topic, ConfigSource.DEFAULT, is_set)]
        else:
            name = key.synonyms[0] if key.synonyms else key.name
            chain.append(SourcedValue(name, key.default, ConfigSource.DEFAULT, bool(key.synonyms)))
        yield TopicConfig(key, tuple(chain))


def _broker_entry(row: ConfigRow, chain: list[SourcedValue], documented: bool) -> dict[str, Any]:
    kind = ConfigType.PASSWORD if row.rule.secret else _KAFKA_TYPES[row.type]
    entry = _entry(row.name, chain, kind, row.rule.why if documented else None)
    return {**entry, "read_only": row.rule.update is Update.READ_ONLY}


def _dynamic_only(node: NodeContext, broker: str, documented: bool) -> Iterator[dict[str, Any]]:
    """Keys that nothing here reads at the start: what they are set to, of one broker their defaults too (but
    for the rates of throttles, which no server.properties may have). Last what only listeners have."""
    for key in DYNAMIC_BROKER_CONFIGS.values():
        if key.name in BROKER_KEYS:
            continue
        chain = list(_dynamic_chain(node, key.name, broker))
        if broker and key.name not in THROTTLES:
            if key.name in node.config.given:
                chain.append(SourcedValue(key.name, node.config.given[key.name], ConfigSource.STATIC_BROKER))
            chain.append(SourcedValue(key.name, key.default, ConfigSource.DEFAULT))
        if chain:
            yield _entry(key.name, chain, key.type, key.doc if documented else None)
    for name in node.image.config(ResourceType.BROKER, broker) if broker else ():
        if (base := base_name(name)) != name:
            row = BROKER_KEYS.get(base)
            known = row is not None and base in PER_LISTENER and not row.rule.secret
            kind = ConfigType.STRING if known else ConfigType.PASSWORD
            yield _entry(name, list(_dynamic_chain(node, name, broker)), kind, None)


def _dynamic_chain(node: NodeContext, key: str, broker: str) -> Iterator[SourcedValue]:
    own = node.image.config(ResourceType.BROKER, broker) if broker else {}
    shared = node.image.config(ResourceType.BROKER, "")
    if key in own:
        yield SourcedValue(key, own[key], ConfigSource.DYNAMIC_BROKER)
    if key in shared:
        yield SourcedValue(key, shared[key], ConfigSource.DYNAMIC_DEFAULT_BROKER)


def _broker_chain(node: NodeContext, key: str, broker: str) -> Iterator[SourcedValue]:
    """A broker key's values, the strongest first; the last one is the default."""
    yield from _dynamic_chain(node, key, broker)
    if broker and key in node.config.given:
        yield SourcedValue(key, node.config.given[key], ConfigSource.STATIC_BROKER)
    default = BROKER_KEYS[key].default
    text = None if default is None or default is Required.TOKEN else format_value(default)
    yield SourcedValue(key, text, ConfigSource.DEFAULT)


def _entry(
    name: str, chain: Sequence[SourcedValue], kind: ConfigType, documentation: str | None
) -> dict[str, Any]:
    secret = kind is ConfigType.PASSWORD
    return {
        "name": name,
        "value": None if secret else chain[0].value,
        "read_only": False,
        "config_source": int(chain[0].source),
        "is_sensitive": secret,
        "synonyms": [
            {"name": each.name, "value": None if secret else each.value, "source": int(each.source)}
            for each in chain
            if each.value is not None and each.is_synonym
        ],
        "config_type": int(kind),
        "documentation": documentation,
    }


def describe_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "results": [
            {
                "error_code": int(code),
                "error_message": message or None,
                "resource_type": each.resource_type,
                "resource_name": each.resource_name,
                "configs": [],
            }
            for each in request.resources
        ]
    }


# ---- IncrementalAlterConfigs, AlterConfigs -----------------------------------------------------------


async def handle_alter_loggers(node: NodeContext, ctx: RequestContext, request: Message) -> Response:
    """A request about the loggers of one node alone needs no controller."""
    levels = partial(_alter_levels, node, request)
    known = await outcomes(node, request.resources, incremental=True, levels=levels)
    return await _all_altered(node, known, ())


async def handle_incremental_alter(
    controller: ControllerContext, ctx: RequestContext, request: Message
) -> Response:
    async with await _turn(controller, request.resources):
        known = await outcomes(
            controller.node,
            request.resources,
            incremental=True,
            levels=partial(_alter_levels, controller.node, request),
            present=controller.quorum_controller.image,
        )
        results = await _results(
            controller.node,
            request.resources,
            known,
            lambda resources: controller.quorum_controller.incremental_alter_configs(
                [_change(each) for each in resources], validate_only=request.validate_only
            ),
        )
    return await _all_altered(controller.node, known, results)


async def _turn(
    controller: ControllerContext, resources: Sequence[Message]
) -> AbstractAsyncContextManager[None]:
    """A group's values must fit together: two changes, each of which fits the values of before, need not."""
    async for each in in_slices(controller.node.long_work, resources, NAMED_PER_SLICE):
        if each.resource_type == ResourceType.GROUP:
            return controller.group_config_changes
    return nullcontext()


async def _results(
    node: NodeContext,
    resources: Sequence[Message],
    known: Iterable[ConfigResult | None],
    ask: Callable[[Sequence[Message]], Awaitable[Iterable[ConfigResult]]],
) -> list[ConfigResult]:
    """What the controller says of those of which nothing is known."""
    asked: list[Message] = []
    both = zip(resources, known, strict=True)
    async for resource, outcome in in_slices(node.long_work, both, ALTERED_PER_SLICE):
        if outcome is None:
            asked.append(resource)
    return await in_batches(node.long_work, asked, ask) if asked else []


def _change(resource: Message) -> ConfigChange:
    return ConfigChange(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        operations=tuple(
            ConfigOperation(name=each.name, operation=each.config_operation, value=each.value)
            for each in resource.configs
        ),
    )


def _replacement(resource: Message) -> ConfigReplacement:
    return ConfigReplacement(
        resource_type=resource.resource_type,
        resource_name=resource.resource_name,
        configs=tuple(ConfigEntry(name=each.name, value=each.value) for each in resource.configs),
    )


async def _all_altered(
    node: NodeContext, known: Sequence[ConfigResult | None], results: Iterable[ConfigResult]
) -> Response:
    """The results in the order of the request."""
    rest = iter(results)
    return {
        "responses": [
            _altered(next(rest) if outcome is None else outcome)
            async for outcome in in_slices(node.long_work, known, ALTERED_PER_SLICE)
        ]
    }


def _is_of_loggers(resource: Message) -> bool:
    return bool(resource.resource_type == ResourceType.BROKER_LOGGER)


def _is_all_of_loggers(request: Message) -> bool:
    return all(_is_of_loggers(each) for each in request.resources)


def _alter_levels(node: NodeContext, request: Message, resource: Message) -> ConfigResult:
    changes = [LevelChange(each.name, each.config_operation, each.value) for each in resource.configs]
    try:
        broker_loggers.check_node(resource.resource_name, node.node_id)
        broker_loggers.alter(changes, validate_only=request.validate_only)
    except BrokerError as error:
        return ConfigResult(resource.resource_type, resource.resource_name, error.code, error.message)
    return ConfigResult(resource.resource_type, resource.resource_name, ErrorCode.NONE, "")


async def handle_alter(controller: ControllerContext, ctx: RequestContext, request: Message) -> Response:
    async with await _turn(controller, request.resources):
        known = await outcomes(controller.node, request.resources, incremental=False)
        results = await _results(
            controller.node,
            request.resources,
            known,
            lambda resources: controller.quorum_controller.alter_configs(
                [_replacement(each) for each in resources], validate_only=request.validate_only
            ),
        )
    return await _all_altered(controller.node, known, results)


def _altered(result: ConfigResult) -> dict[str, Any]:
    return {
        "error_code": int(result.error),
        "error_message": result.message or None,
        "resource_type": result.resource_type,
        "resource_name": result.resource_name,
    }


def alter_error(request: Message, code: ErrorCode, message: str) -> Response:
    return {
        "responses": [
            _altered(ConfigResult(each.resource_type, each.resource_name, code, message))
            for each in request.resources
        ]
    }


ROWS: Final = (
    ApiRow(
        ApiKey.DESCRIBE_CONFIGS,
        (1, 4),
        (authorize_configs(AclOperation.DESCRIBE_CONFIGS, "results", describe_error),),
        node=handle_describe,
        on_error=describe_error,
    ),
    ApiRow(
        ApiKey.ALTER_CONFIGS,
        (0, 2),
        (authorize_configs(AclOperation.ALTER_CONFIGS, "responses", alter_error),),
        forwarded=handle_alter,
        on_error=alter_error,
    ),
    ApiRow(
        ApiKey.INCREMENTAL_ALTER_CONFIGS,
        (0, 1),
        (authorize_configs(AclOperation.ALTER_CONFIGS, "responses", alter_error),),
        node=handle_alter_loggers,
        forwarded=handle_incremental_alter,
        on_error=alter_error,
        is_local=_is_all_of_loggers,
    ),
)
