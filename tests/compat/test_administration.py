"""Smaller APIs for administrators, with the answers that an Apache Kafka 4.1 gave to the same questions."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest

from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType
from tests.support.clients.wire_client import Wire
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("U2")

UPGRADE, SAFE_DOWNGRADE, UNSAFE_DOWNGRADE = 1, 2, 3


@pytest.fixture(scope="module")
def port(tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]) -> Iterator[int]:
    """One node with two topics: t3 and t5, of so many partitions."""
    with running_cluster(tmp_path_factory.mktemp("administration"), free_ports(3)) as running, Wire() as wire:
        port = running.node(1).client_port
        new = {"replication_factor": 1, "assignments": [], "configs": []}
        topics = [{"name": f"t{count}", "num_partitions": count, **new} for count in (3, 5)]
        wire.ask(port, ApiKey.CREATE_TOPICS, 7, topics=topics, timeout_ms=30_000)
        wait_until(lambda: len(pages(wire, port, [], 9)[0]) == 2, "the topics are known")
        yield port


# ---- UpdateFeatures ----------------------------------------------------------------------------------


def update(wire: Wire, port: int, *wishes: tuple[str, int, int], validate_only: bool = False) -> Message:
    updates = [
        {"feature": name, "max_version_level": level, "upgrade_type": kind} for name, level, kind in wishes
    ]
    return wire.ask(
        port,
        ApiKey.UPDATE_FEATURES,
        2,
        timeout_ms=30_000,
        feature_updates=updates,
        validate_only=validate_only,
    )


def levels(wire: Wire, port: int) -> dict[str, int]:
    answer = wire.ask(port, ApiKey.API_VERSIONS, 4, client_software_name="test", client_software_version="1")
    return {each.name: each.max_version_level for each in answer.finalized_features}


@pytest.mark.parametrize(
    ("wish", "problem"),
    [
        (("metadata.version", 28, UPGRADE), "Local controller 1 only supports versions 7-27"),
        (("metadata.version", 6, SAFE_DOWNGRADE), "Local controller 1 only supports versions 7-27"),
        (("metadata.version", 26, UPGRADE), "Can't downgrade the version of this feature without"),
        (("metadata.version", 22, SAFE_DOWNGRADE), "because it might delete metadata information."),
        (("metadata.version", 22, UNSAFE_DOWNGRADE), "Unsafe metadata downgrade is not supported"),
        (("no.such.version", 1, UPGRADE), "Local controller 1 does not support this feature."),
        (("transaction.version", -1, SAFE_DOWNGRADE), "A feature version cannot be less than 0."),
        (("transaction.version", 1, 0), "The controller does not support the given upgrade type."),
    ],
)
def test_levels_that_cannot_be(wire: Wire, port: int, wish: tuple[str, int, int], problem: str) -> None:
    answer = update(wire, port, wish)
    assert answer.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert problem in answer.error_message


def test_levels_go_down_and_up_together_or_not_at_all(wire: Wire, port: int) -> None:
    assert levels(wire, port)["transaction.version"] == 2
    assert update(wire, port, ("transaction.version", 1, SAFE_DOWNGRADE), validate_only=True).error_code == 0
    failed = update(wire, port, ("transaction.version", 1, SAFE_DOWNGRADE), ("no.such.version", 1, UPGRADE))
    assert failed.error_code == ErrorCode.INVALID_UPDATE_VERSION
    assert levels(wire, port)["transaction.version"] == 2
    down = (("transaction.version", 0, SAFE_DOWNGRADE), ("metadata.version", 23, SAFE_DOWNGRADE))
    assert update(wire, port, *down).error_code == 0
    wait_until(lambda: levels(wire, port).get("transaction.version", 0) == 0, "the level is known")
    assert levels(wire, port)["metadata.version"] == 23
    higher = update(wire, port, ("transaction.version", 1, SAFE_DOWNGRADE))
    assert "Can't downgrade to a newer version." in higher.error_message
    up = (("transaction.version", 2, UPGRADE), ("metadata.version", 27, UPGRADE))
    assert update(wire, port, *up).error_code == 0
    wait_until(lambda: levels(wire, port).get("transaction.version") == 2, "the level is known")


# ---- DescribeTopicPartitions -------------------------------------------------------------------------

Page = list[tuple[str, int, list[int]]]
"""Topic, error, partitions."""


def pages(
    wire: Wire, port: int, names: list[str], limit: int, cursor: tuple[str, int] | None = None
) -> tuple[Page, tuple[str, int] | None]:
    answer = wire.ask(
        port, ApiKey.DESCRIBE_TOPIC_PARTITIONS, 0,
        topics=[{"name": name} for name in names], response_partition_limit=limit,
        cursor=None if cursor is None else {"topic_name": cursor[0], "partition_index": cursor[1]},
    )  # fmt: skip
    found = [(t.name, t.error_code, [p.partition_index for p in t.partitions]) for t in answer.topics]
    to = answer.next_cursor
    return found, None if to is None else (to.topic_name, to.partition_index)


T3, T5 = ("t3", 0, [0, 1, 2]), ("t5", 0, [0, 1, 2, 3, 4])


@pytest.mark.parametrize(
    ("names", "limit", "cursor", "found", "to"),
    [
        (["t5", "t3"], 2000, None, [T3, T5], None),
        (["t3", "t5"], 2, None, [("t3", 0, [0, 1])], ("t3", 2)),
        (["t3", "t5"], 2, ("t3", 2), [("t3", 0, [2]), ("t5", 0, [0])], ("t5", 1)),
        (["t3", "t5"], 4, None, [T3, ("t5", 0, [0])], ("t5", 1)),
        (["t3", "t5"], 3, None, [T3], ("t5", 0)),
        ([], 3, None, [T3], ("t5", 0)),
        (["t3"], 3, None, [T3], None),
        (["t3"], 0, None, [("t3", 0, [0])], ("t3", 1)),
        (["t3"], -1, None, [("t3", 0, [0])], ("t3", 1)),
        (["t3"], 2, ("t3", 7), [("t3", 0, [])], None),
        (["nope", "t3", "a b"], 9, None, [("a b", 17, []), ("nope", 3, []), T3], None),
        (["t3", "t5"], 2, ("t4", 2), [("t3", 42, []), ("t5", 42, [])], None),
        (["t3"], 2, ("t3", -1), [("t3", 42, [])], None),
    ],
)
def test_partitions_come_in_pages(
    wire: Wire,
    port: int,
    names: list[str],
    limit: int,
    cursor: tuple[str, int] | None,
    found: Page,
    to: tuple[str, int] | None,
) -> None:
    assert pages(wire, port, names, limit, cursor) == (found, to)


# ---- CreatePartitions --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("count", "assignments", "code", "message"),
    [
        (3, None, 37, "Topic already has 3 partition(s)."),
        (2, None, 37, "The topic t3 currently has 3 partition(s); 2 would not be an increase."),
        (
            5,
            [[1]],
            39,
            "Attempted to add 2 additional partition(s), but only 1 assignment(s) were specified.",
        ),
        (5, [], 39, "Attempted to add 2 additional partition(s), but only 0 assignment(s) were specified."),
        (
            4,
            [[9]],
            39,
            "The manual partition assignment includes broker 9, but no such broker is registered.",
        ),
        (4, [[1, 1]], 39, "The manual partition assignment includes the broker 1 more than once."),
        (4, [[]], 39, "The manual partition assignment includes an empty replica list."),
        (4, [[1]], 0, None),
    ],
)
def test_partitions_are_added_where_one_wants_them(
    wire: Wire, port: int, count: int, assignments: list[list[int]] | None, code: int, message: str | None
) -> None:
    """Only judged, so that the topic stays as the other tests know it."""
    chosen = None if assignments is None else [{"broker_ids": ids} for ids in assignments]
    wish = {"name": "t3", "count": count, "assignments": chosen}
    answer = wire.ask(port, ApiKey.CREATE_PARTITIONS, 3, topics=[wish], timeout_ms=30_000, validate_only=True)
    assert [(each.error_code, each.error_message) for each in answer.results] == [(code, message)]


def test_a_topic_to_grow_that_is_not_there(wire: Wire, port: int) -> None:
    """Without a message, so that clients say their own."""
    wish = {"name": "nowhere", "count": 2, "assignments": None}
    (answer,) = wire.ask(
        port, ApiKey.CREATE_PARTITIONS, 3, topics=[wish], timeout_ms=30_000, validate_only=True
    ).results
    assert (ErrorCode(answer.error_code), answer.error_message) == (
        ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
        None,
    )


def test_the_metadata_topic_is_nobodys_to_create(wire: Wire, port: int) -> None:
    wish = {"name": "__cluster_metadata", "num_partitions": 1, "replication_factor": 1}
    (answer,) = wire.ask(
        port, ApiKey.CREATE_TOPICS, 7, topics=[{**wish, "assignments": [], "configs": []}], timeout_ms=30_000
    ).topics
    assert answer.error_code == ErrorCode.INVALID_REQUEST
    assert answer.error_message == "Creation of internal topic __cluster_metadata is prohibited."


@pytest.mark.parametrize(
    ("name", "code", "message"),
    [
        ("", 17, "Topic name is invalid: the empty string is not allowed"),
        ("a b", 17, "Topic name is invalid: 'a b' contains one or more characters other than ASCII alphanu"),
        ("nowhere", 3, None),
    ],
)
def test_configurations_of_topics_that_cannot_be(
    wire: Wire, port: int, name: str, code: int, message: str | None
) -> None:
    resource = {"resource_type": int(ResourceType.TOPIC), "resource_name": name, "configuration_keys": None}
    (answer,) = wire.ask(port, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource]).results
    assert answer.error_code == code
    assert answer.error_message is not None
    assert answer.error_message.startswith(message or "")
    assert (message is None) == (answer.error_message == "")


def test_a_topic_that_is_being_created_on_demand_is_unknown_until_it_is_there(wire: Wire, port: int) -> None:
    def ask() -> ErrorCode:
        (found,) = wire.ask(
            port, ApiKey.METADATA, 12, topics=[{"name": "on.demand"}], allow_auto_topic_creation=True
        ).topics
        return ErrorCode(found.error_code)

    assert ask() is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    wait_until(lambda: ask() is ErrorCode.NONE, "it is there")
    names = [{"name": "on.demand"}]
    wire.ask(port, ApiKey.DELETE_TOPICS, 6, topics=names, timeout_ms=30_000)


def alter_broker(wire: Wire, port: int, broker: str, **values: str | None) -> tuple[ErrorCode, str | None]:
    configs = [
        {"name": key.replace("_", "."), "config_operation": 1 if value is None else 0, "value": value}
        for key, value in values.items()
    ]
    resource = {"resource_type": int(ResourceType.BROKER), "resource_name": broker, "configs": configs}
    (answer,) = wire.ask(
        port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    ).responses
    return ErrorCode(answer.error_code), answer.error_message


def broker_config(wire: Wire, port: int, key: str) -> tuple[str | None, int, list[int], bool]:
    """Value, source, the sources of its synonyms, and whether it is fixed."""
    resource = {"resource_type": int(ResourceType.BROKER), "resource_name": "1", "configuration_keys": [key]}
    (answer,) = wire.ask(
        port, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True
    ).results
    (found,) = answer.configs
    return found.value, found.config_source, [each.source for each in found.synonyms], found.read_only


DYNAMIC_BROKER, DYNAMIC_DEFAULT, DEFAULT = 2, 3, 5


@pytest.mark.parametrize("key", ["log.cleaner.backoff.ms", "log.cleaner.threads", "num.io.threads"])
def test_a_brokers_settings_change_while_it_runs(wire: Wire, port: int, key: str) -> None:
    """Where nothing reads it, too: administrators' tools go by what can be changed."""
    default, source, synonyms, fixed = broker_config(wire, port, key)
    assert (source, synonyms, fixed) == (DEFAULT, [DEFAULT], False)
    name = key.replace(".", "_")
    assert alter_broker(wire, port, "", **{name: "2"}) == (ErrorCode.NONE, None)
    assert alter_broker(wire, port, "1", **{name: "3"}) == (ErrorCode.NONE, None)
    expected = ("3", DYNAMIC_BROKER, [DYNAMIC_BROKER, DYNAMIC_DEFAULT, DEFAULT], False)
    wait_until(lambda: broker_config(wire, port, key) == expected, "it is described")
    alter_broker(wire, port, "1", **{name: None})
    alter_broker(wire, port, "", **{name: None})
    wait_until(lambda: broker_config(wire, port, key)[0] == default, "it is as before")


def test_no_more_connections_from_now_on(wire: Wire, port: int) -> None:
    """But for those that are there. None at all is refused: nobody could take it back."""
    code, message = alter_broker(wire, port, "", max_connections="0")
    assert (code, message) == (
        ErrorCode.INVALID_REQUEST,
        "Invalid value 0 for configuration max.connections: must be at least 1",
    )
    assert alter_broker(wire, port, "", max_connections="1") == (ErrorCode.NONE, None)

    def is_refused() -> bool:
        try:
            with Wire() as another:
                another.ask(port, ApiKey.METADATA, 12, topics=[])
        except OSError:
            return True
        return False

    wait_until(is_refused, "nobody new is let in")
    alter_broker(wire, port, "", max_connections=None)
    wait_until(lambda: not is_refused(), "somebody new is let in")


def test_what_is_wrong_with_a_change_is_reported_in_the_order_asked_for(wire: Wire, port: int) -> None:
    def resource(kind: ResourceType, name: str, *configs: tuple[str, int, str | None]) -> dict[str, Any]:
        entries = [{"name": n, "config_operation": op, "value": value} for n, op, value in configs]
        return {"resource_type": int(kind), "resource_name": name, "configs": entries}

    topic = ResourceType.TOPIC
    resources = [
        resource(topic, "t3", ("retention.ms", 0, "5"), ("retention.ms", 0, "6")),
        resource(topic, "t5", ("retention.ms", 0, None), ("flush.ms", 0, None)),
        resource(ResourceType.BROKER, "1", ("node.id", 0, "5")),
        resource(ResourceType.GROUP, "g", ("consumer.session.timeout.ms", 9, "5")),
        resource(topic, "nowhere", ("retention.ms", 0, "5")),
        resource(topic, "twice"),
        resource(topic, "twice"),
    ]
    found = wire.ask(
        port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=resources, validate_only=True
    ).responses
    invalid = ErrorCode.INVALID_REQUEST
    assert [(each.error_code, each.error_message) for each in found] == [
        (invalid, "Error due to duplicate config keys"),
        (invalid, "Null value not supported for : retention.ms, flush.ms"),
        (invalid, "Cannot update these configs dynamically: node.id"),
        (invalid, "Unknown operations type 9"),
        (ErrorCode.UNKNOWN_TOPIC_OR_PARTITION, "The topic 'nowhere' does not exist."),
        (invalid, "Each resource must appear at most once."),
        (invalid, "Each resource must appear at most once."),
    ]


# ---- client metrics, telemetry -----------------------------------------------------------------------


def subscribe(wire: Wire, port: int, name: str, values: dict[str, str | None]) -> tuple[int, str | None]:
    configs: list[dict[str, Any]] = [
        {"name": key, "config_operation": 1 if value is None else 0, "value": value}
        for key, value in values.items()
    ]
    resource = {
        "resource_type": int(ResourceType.CLIENT_METRICS), "resource_name": name, "configs": configs,
    }  # fmt: skip
    (answer,) = wire.ask(
        port, ApiKey.INCREMENTAL_ALTER_CONFIGS, 1, resources=[resource], validate_only=False
    ).responses
    return answer.error_code, answer.error_message


@pytest.mark.parametrize(
    ("name", "values", "code", "message"),
    [
        ("bad", {"foo": "1"}, 42, "Unknown client metrics configuration: foo"),
        (
            "bad",
            {"interval.ms": "10"},
            42,
            "Invalid value 10 for interval.ms, interval must be between 100 and",
        ),
        (
            "bad",
            {"interval.ms": "x"},
            40,
            "Invalid value x for configuration interval.ms: Not a number of type",
        ),
        ("bad", {"match": "nokey=1"}, 40, "Illegal client matching pattern: nokey=1"),
        ("bad", {"match": "client_id=("}, 40, "Illegal client matching pattern: client_id=("),
        ("", {"interval.ms": "1000"}, 42, "Subscription name can't be empty"),
    ],
)
def test_subscriptions_that_make_no_sense(
    wire: Wire, port: int, name: str, values: dict[str, str | None], code: int, message: str
) -> None:
    refused, text = subscribe(wire, port, name, values)
    assert refused == code
    assert text is not None
    assert text.startswith(message)


def test_a_subscription_is_kept_listed_and_described(wire: Wire, port: int) -> None:
    values: dict[str, str | None] = {
        "metrics": "org.apache.kafka.producer.,org.x", "interval.ms": "1000",
        "match": "client_id=te.*,client_source_address=127.0.0.1",
    }  # fmt: skip

    def listed(*kinds: ResourceType) -> list[tuple[str, int]]:
        answer = wire.ask(port, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=[int(kind) for kind in kinds])
        return [(each.resource_name, each.resource_type) for each in answer.config_resources]

    def asked_for() -> Message:
        return wire.ask(port, ApiKey.GET_TELEMETRY_SUBSCRIPTIONS, 0, client_instance_id=UUID(int=7))

    assert asked_for().requested_metrics == []
    assert subscribe(wire, port, "sub", values) == (0, None)
    wait_until(lambda: listed(ResourceType.CLIENT_METRICS) == [("sub", 16)], "the subscription is known")
    assert [
        each.resource_name for each in wire.ask(port, ApiKey.LIST_CONFIG_RESOURCES, 0).config_resources
    ] == ["sub"]
    resource = {"resource_type": 16, "resource_name": "sub", "configuration_keys": None}
    (result,) = wire.ask(
        port, ApiKey.DESCRIBE_CONFIGS, 4, resources=[resource], include_synonyms=True
    ).results
    assert {each.name: each.value for each in result.configs} == values
    assert {each.config_source for each in result.configs} == {7}
    answer = asked_for()
    assert answer.client_instance_id == UUID(int=7)
    assert answer.requested_metrics == ["org.apache.kafka.producer.", "org.x"]
    assert (answer.push_interval_ms, answer.telemetry_max_bytes) == (1000, 1024 * 1024)

    def push(subscription_id: int, **more: Any) -> int:
        fields = {"terminating": False, "compression_type": 0, "metrics": b"m", **more}
        answered = wire.ask(
            port,
            ApiKey.PUSH_TELEMETRY,
            0,
            client_instance_id=UUID(int=7),
            subscription_id=subscription_id,
            **fields,
        )
        return int(answered.error_code)

    assert push(answer.subscription_id) == 0
    assert push(answer.subscription_id + 1) == ErrorCode.UNKNOWN_SUBSCRIPTION_ID
    assert push(answer.subscription_id, compression_type=9) == ErrorCode.UNSUPPORTED_COMPRESSION_TYPE
    assert push(answer.subscription_id, metrics=bytes(1024 * 1024 + 1)) == ErrorCode.TELEMETRY_TOO_LARGE
    assert subscribe(wire, port, "sub", dict.fromkeys(values)) == (0, None)
    wait_until(lambda: listed(ResourceType.CLIENT_METRICS) == [], "it is gone")


def test_what_can_be_configured_is_listed(wire: Wire, port: int) -> None:
    def listed(*kinds: int) -> tuple[int, list[tuple[str, int]]]:
        answer = wire.ask(port, ApiKey.LIST_CONFIG_RESOURCES, 1, resource_types=list(kinds))
        return answer.error_code, sorted(
            (each.resource_name, each.resource_type) for each in answer.config_resources
        )

    assert listed(2) == (0, [("t3", 2), ("t5", 2)])
    assert listed(4) == (0, [("1", 4)])
    assert listed(8, 32) == (0, [("1", 8)])
    assert listed(3) == (ErrorCode.UNSUPPORTED_VERSION, [])
    assert set(listed()[1]) == {("1", 8), ("1", 4), ("t3", 2), ("t5", 2)}
