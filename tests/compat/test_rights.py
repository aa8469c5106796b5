"""An authorizer on one node that everybody must log in to: who has no right gets nothing out of any API,
in any version, not even whether a topic exists; and each right lets through what it is for, no more."""

from __future__ import annotations

import base64
import contextlib
import http.client
import json
from collections.abc import Callable, Iterator
from typing import Any
from uuid import UUID

import pytest
from confluent_kafka import Consumer, KafkaError, KafkaException, Message, Producer, TopicPartition
from confluent_kafka.admin import (
    AclBinding,
    AclBindingFilter,
    AclOperation,
    AclPermissionType,
    AdminClient,
    NewTopic,
    ResourcePatternType,
    ResourceType,
)

from kraft.api.request_context import Role
from kraft.api.row import ApiRow
from kraft.api.table import ROWS
from kraft.local.free_ports import HOST
from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message as WireMessage
from metadata_quorum.foundation.errors import ErrorCode
from tests.compat.secured import Asking, secured
from tests.compat.small_requests import ASKED, SmallRequests
from tests.support.clients.rdkafka import read, send
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.row("U4")

PLAIN_MODULE = "org.apache.kafka.common.security.plain.PlainLoginModule required"
USERS = ("node", "anna", "nobody")
THERE, NOT_THERE = "there", "gone!"
REFUSED = {
    ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    ErrorCode.GROUP_AUTHORIZATION_FAILED,
    ErrorCode.CLUSTER_AUTHORIZATION_FAILED,
    ErrorCode.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
}
OPEN = {"ApiVersions", "SaslHandshake", "SaslAuthenticate", "GetTelemetrySubscriptions", "PushTelemetry"}
"""APIs that ask for no right."""
SILENT_BEFORE = {
    "DescribeCluster": 99,
    "ListGroups": 99,
    "ListTransactions": 99,
    "DescribeLogDirs": 3,
}
"""Those that leave out what may not be seen, instead of refusing, in all versions or in the oldest."""


def login(user: str) -> dict[str, Any]:
    return {
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanism": "PLAIN",
        "sasl.username": user,
        "sasl.password": f"of {user}",
    }


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    passwords = " ".join(f'user_{user}="of {user}"' for user in USERS)
    jaas = f'{PLAIN_MODULE} username="node" password="of node" {passwords};'
    settings = {
        "listener.security.protocol.map": "PLAINTEXT:SASL_PLAINTEXT,CONTROLLER:SASL_PLAINTEXT",
        "inter.broker.listener.name": "PLAINTEXT",
        "sasl.enabled.mechanisms": "PLAIN",
        "sasl.mechanism.inter.broker.protocol": "PLAIN",
        "sasl.mechanism.controller.protocol": "PLAIN",
        "listener.name.plaintext.plain.sasl.jaas.config": jaas,
        "listener.name.controller.plain.sasl.jaas.config": jaas,
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": "User:node",
        "kraft.http.writes": "true",
    }
    with secured(tmp_path_factory.mktemp("rights"), free_ports(3), settings, login("node")) as cluster:
        create_topics(admin_of(cluster, "node"), THERE)
        send(cluster.bootstrap, THERE, [{"value": b"secret"}], acks="all", **login("node"))
        yield cluster


def admin_of(cluster: LocalCluster, user: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": cluster.bootstrap, "log_level": 0, **login(user)})


def create_topics(admin: AdminClient, *names: str) -> None:
    for future in admin.create_topics([NewTopic(name, 1, 1) for name in names]).values():
        future.result(60)


# ---- without any right -------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def nobody(guarded: LocalCluster) -> Iterator[Asking]:
    with contextlib.closing(Asking(guarded, "nobody")) as asking:
        yield asking


@pytest.fixture(scope="module")
def there(guarded: LocalCluster) -> UUID:
    """The id of the topic that nobody may know of."""
    with contextlib.closing(Asking(guarded, "node")) as node:
        answer = node(
            Role.BROKER,
            ApiKey.METADATA,
            12,
            {"topics": [{"name": THERE}], "allow_auto_topic_creation": False},
        )
    found: UUID = answer.topics[0].topic_id
    return found


def codes_in(message: Any) -> Iterator[ErrorCode]:
    if isinstance(message, list):
        for each in message:
            yield from codes_in(each)
    elif isinstance(message, WireMessage):
        for name, value in vars(message).items():
            if name.endswith("error_code") and value:
                yield ErrorCode(value)
            else:
                yield from codes_in(value)


def test_every_api_asks_for_something_but_those_that_are_open() -> None:
    assert {row.name for row in ROWS.values() if not row.authorization} == OPEN


@pytest.mark.parametrize("row", [row for row in ASKED if row.name not in OPEN], ids=lambda row: row.name)
def test_nobody_gets_nothing(guarded: LocalCluster, nobody: Asking, there: UUID, row: ApiRow) -> None:
    known = SmallRequests(THERE, there, guarded.cluster_id)
    unknown = SmallRequests(NOT_THERE, there, guarded.cluster_id)
    for role in sorted(row.listeners, key=lambda role: role.value):
        for version in range(row.min_version, row.max_version + 1):
            answer = nobody(role, row.key, version, known(row.key, version))
            codes = set(codes_in(answer))
            assert codes <= REFUSED, f"v{version}: {codes}"
            assert codes or version < SILENT_BEFORE.get(row.name, 0), f"v{version}: {answer}"
            shown = repr(answer)
            assert "secret" not in shown
            other = repr(nobody(role, row.key, version, unknown(row.key, version)))
            assert other.replace(NOT_THERE, THERE) == shown, f"v{version} tells whether the topic exists"


@pytest.mark.parametrize("api_key", [ApiKey.NODE_VIEW, ApiKey.CLIENT_ENVELOPE], ids=lambda key: key.api_name)
def test_what_nodes_ask_each_other_ends_the_connection_of_anybody_else(
    guarded: LocalCluster, api_key: ApiKey
) -> None:
    with contextlib.closing(Asking(guarded, "nobody")) as asking, pytest.raises(ConnectionError):
        asking.exchange(api_key)


def test_nobody_sees_no_topics(guarded: LocalCluster) -> None:
    seen = admin_of(guarded, "nobody").list_topics(timeout=60)
    assert seen.topics == {}
    assert set(seen.brokers) == {1}


# ---- with some rights --------------------------------------------------------------------------------


def allow(
    cluster: LocalCluster,
    operation: AclOperation,
    name: str,
    *,
    kind: ResourceType = ResourceType.TOPIC,
    pattern: ResourcePatternType = ResourcePatternType.LITERAL,
    permission: AclPermissionType = AclPermissionType.ALLOW,
    user: str = "anna",
) -> AclBinding:
    acl = AclBinding(kind, name, pattern, f"User:{user}", "*", operation, permission)
    admin = admin_of(cluster, "node")
    for future in admin.create_acls([acl]).values():
        future.result(60)
    return acl


def forget(cluster: LocalCluster, user: str = "anna", kind: ResourceType = ResourceType.ANY) -> int:
    """Take all that a user may; how many entries that were."""
    everything = AclBindingFilter(
        kind,
        None,
        ResourcePatternType.ANY,
        f"User:{user}",
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    admin = admin_of(cluster, "node")
    (future,) = admin.delete_acls([everything]).values()
    return len(future.result(60))


@pytest.fixture(autouse=True)
def _clean(guarded: LocalCluster, request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "anna" in request.node.name:
        forget(guarded)


def produced(cluster: LocalCluster, user: str, topic: str, **more: Any) -> KafkaError | None:
    """What became of one message."""
    reports: list[KafkaError | None] = []
    settings = {"bootstrap.servers": cluster.bootstrap, "log_level": 0, "message.timeout.ms": 150_000}
    producer = Producer({**settings, **login(user), **more})
    producer.produce(topic, b"x", on_delivery=lambda error, message: reports.append(error))
    producer.flush(180)
    return reports[0]


def test_anna_writes_and_reads_what_she_may(guarded: LocalCluster) -> None:
    allow(guarded, AclOperation.WRITE, "hers-", pattern=ResourcePatternType.PREFIXED)
    allow(guarded, AclOperation.READ, "*", kind=ResourceType.GROUP)
    allow(guarded, AclOperation.CREATE, "hers-", pattern=ResourcePatternType.PREFIXED)
    anna = login("anna")
    create_topics(admin_of(guarded, "anna"), "hers-1")
    assert produced(guarded, "anna", "hers-1", **{"enable.idempotence": True}) is None
    error = produced(guarded, "anna", THERE)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as refused:
        create_topics(admin_of(guarded, "anna"), "not-hers")
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    with pytest.raises(KafkaException) as refused:
        read(guarded.bootstrap, "hers-1", 1, **anna)
    assert refused.value.args[0].code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    allow(guarded, AclOperation.READ, "hers-1")
    assert [each.value() for each in read(guarded.bootstrap, "hers-1", 1, **anna)] == [b"x"]
    assert set(admin_of(guarded, "anna").list_topics(timeout=60).topics) == {"hers-1"}


def test_anna_stops_reading_when_her_right_is_revoked_and_continues_when_it_comes_back(
    guarded: LocalCluster,
) -> None:
    """In one fetch session: nothing of what was written meanwhile reaches her before."""
    create_topics(admin_of(guarded, "node"), "ticker")

    def send_one(value: bytes) -> None:
        send(guarded.bootstrap, "ticker", [{"value": value}], acks="all", **login("node"))

    allow(guarded, AclOperation.READ, "none", kind=ResourceType.GROUP)
    allow(guarded, AclOperation.READ, "ticker")
    send_one(b"first")
    settings = {"bootstrap.servers": guarded.bootstrap, "log_level": 0, "group.id": "none", **login("anna")}
    consumer = Consumer({**settings, "enable.auto.commit": False})
    with contextlib.closing(consumer):
        consumer.assign([TopicPartition("ticker", 0, 0)])
        assert polled(consumer).value() == b"first"
        forget(guarded, kind=ResourceType.TOPIC)
        send_one(b"second")
        refused = polled(consumer)
        error = refused.error()
        assert error is not None
        assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        allow(guarded, AclOperation.READ, "ticker")
        while (message := polled(consumer)).error() is not None:  # what it heard before
            assert message.error().code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
        assert message.value() == b"second"


def polled(consumer: Consumer) -> Message:
    """What comes next, be it an error of the topic."""
    found = wait_until(lambda: consumer.poll(0.2), "a message or an error")
    assert found is not None
    return found


def test_who_denies_anna_wins_at_once(guarded: LocalCluster) -> None:
    allow(guarded, AclOperation.ALL, "*")
    assert produced(guarded, "anna", THERE) is None
    allow(guarded, AclOperation.WRITE, THERE, permission=AclPermissionType.DENY)
    error = produced(guarded, "anna", THERE)
    assert error is not None
    assert error.code() == KafkaError.TOPIC_AUTHORIZATION_FAILED
    assert produced(guarded, "anna", "any-other") is None


def test_a_group_takes_a_right_of_anna_too(guarded: LocalCluster) -> None:
    allow(guarded, AclOperation.READ, THERE)
    admin = admin_of(guarded, "anna")
    place = TopicPartition(THERE, 0, 1)

    def commit() -> None:
        from confluent_kafka import ConsumerGroupTopicPartitions

        wanted = [ConsumerGroupTopicPartitions("herd", [place])]
        (future,) = admin.alter_consumer_group_offsets(wanted).values()
        future.result(60)

    with pytest.raises(KafkaException) as refused:
        commit()
    assert refused.value.args[0].code() == KafkaError.GROUP_AUTHORIZATION_FAILED
    allow(guarded, AclOperation.READ, "herd", kind=ResourceType.GROUP)
    wait_until(lambda: not raised(commit), "the commit is let through")
    listed = admin.list_consumer_groups().result(60)
    assert [each.group_id for each in listed.valid] == ["herd"]
    stranger = admin_of(guarded, "nobody")
    assert stranger.list_consumer_groups().result(60).valid == []


def raised(work: Callable[[], None]) -> bool:
    try:
        work()
    except KafkaException:
        return True
    return False


def test_a_transactional_id_takes_a_right_of_anna_too(guarded: LocalCluster) -> None:
    allow(guarded, AclOperation.WRITE, THERE)
    settings = {"bootstrap.servers": guarded.bootstrap, "log_level": 0, "transactional.id": "her-id"}
    with pytest.raises(KafkaException) as refused:
        Producer({**settings, **login("anna")}).init_transactions(60)
    assert refused.value.args[0].code() == KafkaError.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    allow(guarded, AclOperation.WRITE, "her-id", kind=ResourceType.TRANSACTIONAL_ID)
    producer = Producer({**settings, **login("anna")})
    producer.init_transactions(60)
    producer.begin_transaction()
    producer.produce(THERE, b"committed")
    producer.commit_transaction(60)


def test_what_anna_may_do_is_described_on_request(guarded: LocalCluster) -> None:
    allow(guarded, AclOperation.WRITE, THERE)
    allow(guarded, AclOperation.DESCRIBE, "kafka-cluster", kind=ResourceType.BROKER)
    allow(guarded, AclOperation.READ, "herd", kind=ResourceType.GROUP)
    with contextlib.closing(Asking(guarded, "anna")) as anna:
        answer = anna(
            Role.BROKER,
            3,
            10,
            {
                "topics": [{"name": THERE}],
                "allow_auto_topic_creation": False,
                "include_topic_authorized_operations": True,
                "include_cluster_authorized_operations": True,
            },
        )
        pages = anna(Role.BROKER, 75, 0, {"topics": [], "response_partition_limit": 10, "cursor": None})
        cluster = anna(Role.BROKER, 60, 1, {"include_cluster_authorized_operations": True})
        groups = anna(
            Role.BROKER, 15, 5, {"groups": ["herd", "flock"], "include_authorized_operations": True}
        ).groups
    assert answer.topics[0].topic_authorized_operations == 1 << 4 | 1 << 8  # WRITE, DESCRIBE
    assert [(each.name, each.topic_authorized_operations) for each in pages.topics] == [
        (THERE, 1 << 4 | 1 << 8)
    ]
    assert answer.cluster_authorized_operations == cluster.cluster_authorized_operations == 1 << 8
    described = {each.group_id: (ErrorCode(each.error_code), each.authorized_operations) for each in groups}
    assert described == {
        "herd": (ErrorCode.NONE, 1 << 3 | 1 << 8),  # READ, DESCRIBE
        "flock": (ErrorCode.GROUP_AUTHORIZATION_FAILED, -(2**31)),
    }


def test_acls_are_found_and_taken_from_anna(guarded: LocalCluster) -> None:
    mine = allow(guarded, AclOperation.READ, "there-and-", pattern=ResourcePatternType.PREFIXED)
    allow(guarded, AclOperation.READ, "elsewhere")
    allow(guarded, AclOperation.READ, "elsewhere")  # no second one
    admin = admin_of(guarded, "node")
    about = AclBindingFilter(
        ResourceType.TOPIC,
        "there-and-then",
        ResourcePatternType.MATCH,
        None,
        None,
        AclOperation.ANY,
        AclPermissionType.ANY,
    )
    assert admin.describe_acls(about).result(60) == [mine]
    assert forget(guarded) == 2


# ---- over HTTP ----------------------------------------------------------------------------------------


def over_http(
    cluster: LocalCluster,
    path: str,
    user: str | None,
    password: str | None = None,
    body: bytes | None = None,
    **headers: str,
) -> Any:
    """The status, and the JSON. With a body it is a POST."""
    connection = http.client.HTTPConnection(HOST, cluster.nodes[1].http_port, timeout=PATIENCE_S)
    try:
        credentials = base64.b64encode(f"{user}:{password or f'of {user}'}".encode()).decode()
        headers |= {"Authorization": f"Basic {credentials}"} if user else {}
        connection.request("GET" if body is None else "POST", path, body, headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


@pytest.mark.row("U5")
def test_the_console_asks_for_the_clusters_login_and_its_rights(guarded: LocalCluster) -> None:
    path = "/api/v1/topics"
    assert over_http(guarded, path, None)[0] == 401
    assert over_http(guarded, path, "node", "wrong")[0] == 401
    assert over_http(guarded, path, "stranger", "wrong")[0] == 401
    assert over_http(guarded, "/", None)[0] == 401
    status, refused = over_http(guarded, path, "nobody")
    assert (status, refused["error"]) == (403, "User:nobody may not DESCRIBE the cluster")
    status, answer = over_http(guarded, path, "node")
    assert status == 200
    assert THERE in {each["name"] for each in answer["topics"]}


@pytest.mark.row("U5")
def test_anna_sees_over_http_what_she_may(guarded: LocalCluster) -> None:
    create_topics(admin_of(guarded, "node"), "shown", "hidden")
    allow(guarded, AclOperation.DESCRIBE, "kafka-cluster", kind=ResourceType.BROKER)
    allow(guarded, AclOperation.DESCRIBE, "shown")
    wait_until(lambda: over_http(guarded, "/api/v1/topics", "anna")[0] == 200, "the right counts")
    _, answer = over_http(guarded, "/api/v1/topics", "anna")
    assert [each["name"] for each in answer["topics"]] == ["shown"]
    _, answer = over_http(guarded, "/api/v1/cluster", "anna")
    assert {each["topic"] for each in answer["partitions"]} == {"shown"}
    _, answer = over_http(guarded, "/api/v1/events", "anna")
    assert {each["topic"] for each in answer["events"]} == {"", "shown"}
    assert over_http(guarded, "/api/v1/topics/hidden", "anna")[0] == 404
    assert over_http(guarded, "/api/v1/topics/shown", "anna")[1]["configs"] is None
    status, refused = over_http(guarded, "/api/v1/topics/shown/partitions/0/messages", "anna")
    assert (status, refused["error"]) == (403, "User:anna may not READ topic shown")


@pytest.mark.row("U5")
def test_what_anna_writes_over_http_counts_for_her_quota(guarded: LocalCluster) -> None:
    admin = admin_of(guarded, "node")
    create_topics(admin, "written")
    for operation, name, kind in (
        (AclOperation.DESCRIBE, "kafka-cluster", ResourceType.BROKER),
        (AclOperation.WRITE, "written", ResourceType.TOPIC),
    ):
        allow(guarded, operation, name, kind=kind)
    wait_until(lambda: over_http(guarded, "/api/v1/topics/written", "anna")[0] == 200, "she may")
    token = over_http(guarded, "/api/v1/writes", "anna")[1]["token"]
    page = {
        "Content-Type": "application/json",
        "X-Kraft-Token": token,
        "Origin": f"http://{HOST}:{guarded.nodes[1].http_port}",
    }

    def write(size: int) -> Any:
        body = json.dumps({"value": "v" * size}).encode()
        return over_http(guarded, "/api/v1/topics/written/partitions/0/messages", "anna", None, body, **page)

    status, told = write(10_000)
    assert (status, told.get("throttle_time_ms")) == (200, 0), told
    with contextlib.closing(Asking(guarded, "node")) as node:
        entity = [{"entity_type": "user", "entity_name": "anna"}]
        ops = [{"key": "producer_byte_rate", "value": 500.0, "remove": False}]
        fields = {"entries": [{"entity": entity, "ops": ops}], "validate_only": False}
        node(Role.BROKER, ApiKey.ALTER_CLIENT_QUOTAS, 1, fields)
        wait_until(lambda: write(10_000)[1].get("throttle_time_ms"), "the quota counts")
        status, refused = write(1)
        assert (status, "User:anna is over its quota" in refused["error"]) == (429, True)
        ops[0]["remove"] = True
        node(Role.BROKER, ApiKey.ALTER_CLIENT_QUOTAS, 1, fields)
