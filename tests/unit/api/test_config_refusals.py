"""Configurations that are refused before they are proposed, as Apache Kafka refuses them."""

from __future__ import annotations

import asyncio
from collections.abc import Mapping
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.config_validation import outcomes
from kraft.api.topics import handle_create_topics
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import ConfigRecord
from metadata_quorum.protocol.commands import CONFIG_DELETE, CONFIG_SET, CONFIG_SUBTRACT
from tests.support.contexts import controller_context, node_context
from tests.support.node_config import config, mapped

CONFIG = config(listener_security_protocol_map=mapped("PLAINTEXT"))


def refusal(
    kind: ResourceType, name: str, image: MetadataImage = EMPTY_IMAGE, /, **values: str | None
) -> ErrorCode:
    """Of an incremental change; None deletes."""
    return outcome_of(
        kind,
        name,
        image,
        *(
            (key.replace("_", "."), CONFIG_DELETE if value is None else CONFIG_SET, value)
            for key, value in values.items()
        ),
    )


def outcome_of(
    kind: ResourceType, name: str, image: MetadataImage, *changes: tuple[str, int, str | None]
) -> ErrorCode:
    named = [
        SimpleNamespace(name=key, value=value, config_operation=operation)
        for key, operation, value in changes
    ]
    resource: Any = SimpleNamespace(resource_type=kind, resource_name=name, configs=named)

    async def ask() -> ErrorCode:
        node = node_context(asyncio.get_running_loop(), config=CONFIG, image=image)
        (outcome,) = await outcomes(node, [resource], incremental=True)
        return ErrorCode.NONE if outcome is None else outcome.error

    return asyncio.run(ask())


def with_values(**values: str) -> MetadataImage:
    """All brokers have them."""
    delta, kind = MetadataDelta(EMPTY_IMAGE), int(ResourceType.BROKER)
    for key, value in values.items():
        name = key.replace("_", ".")
        delta.replay(ConfigRecord(resource_type=kind, resource_name="", name=name, value=value))
    return delta.apply()


@pytest.mark.parametrize("broker", ["", "1"])
def test_a_limit_that_shuts_everybody_out_is_refused(broker: str) -> None:
    """Whoever set it could not set it back."""
    kind, excepted = ResourceType.BROKER, "127.0.0.1:9"
    assert refusal(kind, broker, max_connections_per_ip="0") is ErrorCode.INVALID_REQUEST
    assert refusal(kind, broker, max_connections_per_ip="1") is ErrorCode.NONE
    both = {"max_connections_per_ip": "0", "max_connections_per_ip_overrides": excepted}
    assert refusal(kind, broker, **both) is ErrorCode.NONE
    known = with_values(max_connections_per_ip_overrides=excepted)
    assert refusal(kind, broker, known, max_connections_per_ip="0") is ErrorCode.NONE
    known = with_values(**both)
    assert refusal(kind, "", known, max_connections_per_ip_overrides=None) is ErrorCode.INVALID_REQUEST
    assert refusal(kind, "", known, max_connections_per_ip=None) is ErrorCode.NONE


@pytest.mark.parametrize(
    "key", ["max.connections", "max.connection.creation.rate", "log.cleaner.threads",
            "listener.name.plaintext.max.connections"],
)  # fmt: skip
def test_a_limit_of_0_is_for_the_file_only(key: str) -> None:
    """Nobody could come in to raise it again."""
    for broker in ("", "1"):
        assert refusal(ResourceType.BROKER, broker, **{key: "0"}) is ErrorCode.INVALID_REQUEST
        assert refusal(ResourceType.BROKER, broker, **{key: " 00 "}) is ErrorCode.INVALID_REQUEST
        assert refusal(ResourceType.BROKER, broker, **{key: "7"}) is ErrorCode.NONE


@pytest.mark.parametrize(
    ("kind", "values", "code"),
    [
        (ResourceType.TOPIC, {"retention.ms": "1_000"}, ErrorCode.INVALID_CONFIG),
        (ResourceType.TOPIC, {"min.cleanable.dirty.ratio": "0_0.5"}, ErrorCode.INVALID_CONFIG),
        (ResourceType.TOPIC, {"cleanup.policy": "compact,"}, ErrorCode.INVALID_CONFIG),
        (ResourceType.TOPIC, {"cleanup.policy": ","}, ErrorCode.INVALID_CONFIG),
        (ResourceType.TOPIC, {"cleanup.policy": "compact , delete"}, ErrorCode.NONE),
        (ResourceType.TOPIC, {"cleanup.policy": " "}, ErrorCode.NONE),
        (ResourceType.GROUP, {"consumer.session.timeout.ms": "45_000"}, ErrorCode.INVALID_CONFIG),
        (ResourceType.GROUP, {"consumer.session.timeout.ms": " 99000 "}, ErrorCode.INVALID_CONFIG),
        (ResourceType.GROUP, {"consumer.session.timeout.ms": " 50000 "}, ErrorCode.NONE),
        (ResourceType.CLIENT_METRICS, {"interval.ms": "1_000"}, ErrorCode.INVALID_CONFIG),
        (ResourceType.BROKER, {"log.retention.ms": "1_000"}, ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, {"leader.replication.throttled.rate": "1_000"}, ErrorCode.INVALID_REQUEST),
        (ResourceType.BROKER, {"log.cleanup.policy": "compact,"}, ErrorCode.INVALID_REQUEST),
    ],
)
def test_what_kafka_cannot_read_is_refused(
    kind: ResourceType, values: Mapping[str, str], code: ErrorCode
) -> None:
    """A broker of Apache Kafka's, of the same cluster, would stop at it."""
    assert refusal(kind, "" if kind is ResourceType.BROKER else "x", **values) is code


@pytest.mark.parametrize(
    ("kind", "key", "code"),
    [
        (ResourceType.BROKER, "log.cleanup.policy", ErrorCode.NONE),
        (ResourceType.TOPIC, "cleanup.policy", ErrorCode.NONE),
        (ResourceType.BROKER, "controller.listener.names", ErrorCode.INVALID_REQUEST),  # which never changes
    ],
)
def test_what_is_taken_from_a_list_need_be_no_value(kind: ResourceType, key: str, code: ErrorCode) -> None:
    for taken in ("none", "delete,", "compact"):
        assert outcome_of(kind, "1", EMPTY_IMAGE, (key, CONFIG_SUBTRACT, taken)) is code


@pytest.mark.parametrize(
    ("level", "code"),
    [
        ("0", ErrorCode.INVALID_CONFIG),
        (" -0", ErrorCode.INVALID_CONFIG),
        ("-1", ErrorCode.NONE),
        ("9", ErrorCode.NONE),
        ("10", ErrorCode.NONE),  # which the decision refuses
    ],
)
def test_gzip_has_no_level_0(level: str, code: ErrorCode) -> None:
    assert refusal(ResourceType.TOPIC, "t", compression_gzip_level=level) is code


def test_no_topic_is_made_with_gzips_level_0() -> None:
    value = SimpleNamespace(name="compression.gzip.level", value="0")
    wanted = SimpleNamespace(
        name="t", num_partitions=1, replication_factor=1, assignments=[], configs=[value]
    )
    request: Any = SimpleNamespace(topics=[wanted], validate_only=False, timeout_ms=1000)

    async def create_topics(topics: list[Any], **_: Any) -> tuple[()]:
        assert not topics
        return ()

    async def ask() -> Any:
        node = node_context(asyncio.get_running_loop(), config=CONFIG)
        quorum: Any = SimpleNamespace(image=EMPTY_IMAGE, create_topics=create_topics)
        controller: Any = controller_context(node, quorum_controller=quorum)
        ctx: Any = SimpleNamespace(version=7, principal="User:me", client_id="me", forwarded_for=None)
        return await handle_create_topics(controller, ctx, request)

    (answer,) = asyncio.run(ask())["topics"]
    assert answer["error_code"] == ErrorCode.INVALID_CONFIG
