"""Client quotas on real sockets: what is throttled, what the answers say, and that the connection rests."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable, Iterator
from itertools import count
from typing import Any

import pytest
from confluent_kafka import Producer

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from tests.support.clients.rdkafka import QUIET
from tests.support.clients.wire_client import Wire
from tests.support.nodes.cluster import running_cluster
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = pytest.mark.row("R12")

UNASSIGNED = {"replication_factor": 1, "assignments": [], "configs": []}
CLIENT = "test"
"""What `Wire` calls itself."""
LIMIT = 20_000
"""Bytes a second."""
PAID_S = 1.4
"""Later the debt of six partitions and one more is paid, at two a second with a credit of four."""

Entity = dict[str, str | None]


@pytest.fixture(scope="module")
def node(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    """One node whose rates are means over two seconds, so that a test sees throttling soon."""
    settings = {"quota.window.num": "3", "controller.quota.window.num": "2"}
    with running_cluster(tmp_path_factory.mktemp("quotas"), free_ports(3), settings) as running:
        yield running


@pytest.fixture
def port(node: LocalCluster) -> int:
    return node.node(1).client_port


@pytest.fixture(scope="module")
def topic(node: LocalCluster) -> str:
    with Wire() as wire:
        return make_topic(wire, node.node(1).client_port, "limited")


@contextlib.contextmanager
def quota(wire: Wire, port: int, entity: Entity, **values: float) -> Iterator[None]:
    """Set for as long as it is needed; every node acts on it before this begins and after it ends."""
    alter(wire, port, entity, values)
    try:
        yield
    finally:
        alter(wire, port, entity, dict.fromkeys(values))


def alter(wire: Wire, port: int, entity: Entity, values: dict[str, Any]) -> None:
    coordinates = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    ops = [{"key": k, "value": v or 0.0, "remove": v is None} for k, v in values.items()]
    answer = wire.ask(
        port,
        ApiKey.ALTER_CLIENT_QUOTAS,
        1,
        entries=[{"entity": coordinates, "ops": ops}],
        validate_only=False,
    )
    assert [each.error_code for each in answer.entries] == [0], answer
    wanted = {k: v for k, v in values.items() if v is not None}
    wait_until(lambda: values_of(wire, port, entity) == wanted, "the quota is known")


def values_of(wire: Wire, port: int, entity: Entity) -> dict[str, float]:
    components = [
        {"entity_type": kind, "match_type": 1 if name is None else 0, "match": name}
        for kind, name in entity.items()
    ]
    found = wire.ask(port, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=components, strict=True).entries
    return {each.key: each.value for entry in found for each in entry.values}


def make_topic(wire: Wire, port: int, name: str, partitions: int = 1) -> str:
    new = {
        "name": name,
        "num_partitions": partitions,
        "replication_factor": 1,
        "assignments": [],
        "configs": [],
    }
    (made,) = wire.ask(port, ApiKey.CREATE_TOPICS, 7, topics=[new], timeout_ms=30_000).topics
    assert made.error_code == 0, made
    wait_until(lambda: leads(wire, port, name), "the topic has a leader")
    return name


def leads(wire: Wire, port: int, name: str) -> bool:
    (found,) = wire.ask(
        port, ApiKey.METADATA, 12, topics=[{"name": name}], allow_auto_topic_creation=False
    ).topics
    return found.error_code == 0 and all(each.leader_id >= 0 for each in found.partitions)


def produce(wire: Wire, port: int, topic: str, size: int, acks: int = -1) -> Message:
    batch = encode_batch([Record(timestamp=time.time_ns() // 1_000_000, value=bytes(size))])
    partitions = [{"index": 0, "records": batch}]
    return wire.ask(
        port, ApiKey.PRODUCE, 9, acks=acks, timeout_ms=30_000,
        topic_data=[{"name": topic, "partition_data": partitions}],
    )  # fmt: skip


def fetch(wire: Wire, port: int, topic: str, offset: int, **more: Any) -> Message:
    wanted = {"partition": 0, "fetch_offset": offset, "partition_max_bytes": 1_000_000}
    return wire.ask(
        port, ApiKey.FETCH, 12,
        **({"replica_id": -1, "max_wait_ms": 0, "min_bytes": 0, "max_bytes": 1_000_000, "session_id": 0,
            "session_epoch": -1, "topics": [{"topic": topic, "partitions": [wanted]}]} | more),
    )  # fmt: skip


def test_a_producer_is_held_to_its_rate(wire: Wire, port: int, topic: str) -> None:
    with quota(wire, port, {"client-id": CLIENT}, producer_byte_rate=LIMIT):
        sent, told_ms = 0, 0
        begun = time.monotonic()
        while told_ms < 2500:
            answer = produce(wire, port, topic, 10_000)
            assert answer.responses[0].partition_responses[0].error_code == 0
            sent += 10_000
            told_ms += answer.throttle_time_ms
        fetch(wire, port, topic, 0)  # is answered when the last pause is over
        took_s = time.monotonic() - begun
        # Every pause was kept, however fast the client asked again. Timers have whole milliseconds.
        assert took_s >= 0.98 * told_ms / 1000
        # The first windows are free; from then on the mean is the limit.
        assert sent <= LIMIT * (took_s + 6.5)
    assert produce(wire, port, topic, 100_000).throttle_time_ms == 0


def test_a_consumer_is_held_to_its_rate(wire: Wire, port: int, topic: str) -> None:
    """What is over the limit is not handed out, and is there at the next try."""
    first = produce(wire, port, topic, 15_000).responses[0].partition_responses[0].base_offset
    for _ in range(3):
        produce(wire, port, topic, 15_000)
    with quota(wire, port, {"client-id": CLIENT}, consumer_byte_rate=LIMIT):
        read_batches, read_bytes, empty = 0, 0, 0
        begun = time.monotonic()
        while read_batches < 4 or not empty:  # where the machine stands still it has been within its rate
            answer = fetch(wire, port, topic, first + read_batches % 4, max_bytes=1)
            if answer.throttle_time_ms:
                assert answer.responses == []
                empty += 1
                continue
            (partition,) = answer.responses[0].partitions
            read_bytes += len(partition.records)
            read_batches += 1
        took_s = time.monotonic() - begun
        assert read_bytes <= LIMIT * (took_s + 6.5)


def test_a_session_that_is_opened_while_throttled_is_opened_later(wire: Wire, port: int, topic: str) -> None:
    produce(wire, port, topic, 30_000)
    with quota(wire, port, {"client-id": CLIENT}, consumer_byte_rate=LIMIT):
        answer = fetch(wire, port, topic, 0, session_epoch=0)
        while not answer.throttle_time_ms:
            answer = fetch(wire, port, topic, 0, session_epoch=0)
        assert (answer.session_id, answer.responses) == (0, [])
    assert fetch(wire, port, topic, 0, session_epoch=0).session_id > 0


def test_the_pause_is_in_every_response(wire: Wire, port: int, topic: str) -> None:
    """request_percentage: so little that the first answer is over it. A pause lasts a sample at most."""
    with quota(wire, port, {"user": "ANONYMOUS", "client-id": None}, request_percentage=1e-6):
        begun = time.monotonic()
        answer = wire.ask(port, ApiKey.METADATA, 12, topics=[], allow_auto_topic_creation=False)
        assert answer.throttle_time_ms == 1000
        assert produce(wire, port, topic, 10).throttle_time_ms == 1000
        assert time.monotonic() - begun >= 0.98  # timers have whole milliseconds


def test_created_partitions_are_counted(wire: Wire, port: int) -> None:
    """A burst of two samples' worth is free; who owes is refused, with the time to wait."""
    with quota(wire, port, {"user": "ANONYMOUS"}, controller_mutation_rate=2):
        for number in count():
            begun = time.monotonic()
            make_topic(wire, port, f"burst-{number}", 6)
            late = {"name": f"late-{number}", "num_partitions": 1, **UNASSIGNED}
            refused = wire.ask(port, ApiKey.CREATE_TOPICS, 7, topics=[late], timeout_ms=30_000)
            served = wire.ask(port, ApiKey.CREATE_TOPICS, 5, topics=[late], timeout_ms=30_000)
            if time.monotonic() - begun < PAID_S:
                break
            # The machine stood still, and what was owed is paid. Again, when the credit is whole.
            whole_at = begun + 5 * PAID_S
            wait_until(lambda at=whole_at: time.monotonic() > at, "the credit is whole")  # type: ignore[misc]
        assert [each.error_code for each in refused.topics] == [ErrorCode.THROTTLING_QUOTA_EXCEEDED]
        assert 0 < refused.throttle_time_ms <= 1000
        # An older client cannot be refused: it is served, and has to wait.
        assert [each.error_code for each in served.topics] == [0]
        assert served.throttle_time_ms > 0
        gone = wire.ask(port, ApiKey.DELETE_TOPICS, 6, topics=[{"name": late["name"]}], timeout_ms=30_000)
        assert gone.responses[0].error_code in (0, ErrorCode.THROTTLING_QUOTA_EXCEEDED)


def test_connections_of_an_address_are_counted(port: int, wire: Wire) -> None:
    """One that is over the rate is kept waiting and closed without an answer."""
    with Wire() as before, quota(before, port, {"ip": None}, connection_creation_rate=2):
        refused = 0
        while not refused:
            with Wire() as other:
                try:
                    other.ask(port, ApiKey.API_VERSIONS, 0)
                except ConnectionError:
                    refused += 1


@pytest.mark.parametrize(
    ("entity", "values", "message"),
    [
        ({}, {"producer_byte_rate": 1}, "Invalid empty client quota entity"),
        ({"user": ""}, {"producer_byte_rate": 1}, "Empty user not supported"),
        ({"group": "g"}, {"producer_byte_rate": 1}, "Unhandled client quota entity type: group"),
        ({"ip": "127.0.0.1", "user": "u"}, {"connection_creation_rate": 1}, "should not be combined"),
        ({"ip": "no such host"}, {"connection_creation_rate": 1}, "is not a valid IP or resolvable host."),
        ({"ip": None}, {"producer_byte_rate": 1}, "Invalid configuration key producer_byte_rate"),
        (
            {"user": "u"},
            {"connection_creation_rate": 1},
            "Invalid configuration key connection_creation_rate",
        ),
        ({"user": "u"}, {"consumer_byte_rate": 0}, "Quota consumer_byte_rate must be greater than 0"),
        ({"user": "u"}, {"consumer_byte_rate": 1.5}, "consumer_byte_rate cannot be a fractional value."),
        ({"ip": None}, {"connection_creation_rate": 2**31}, "is too large for an INT."),
    ],
)
def test_what_makes_no_sense_is_refused(
    wire: Wire, port: int, entity: Entity, values: dict[str, float], message: str
) -> None:
    coordinates = [{"entity_type": kind, "entity_name": name} for kind, name in entity.items()]
    ops = [{"key": key, "value": value, "remove": False} for key, value in values.items()]
    wish = {"entity": coordinates, "ops": ops}
    answer = wire.ask(port, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[wish], validate_only=False)
    assert [each.error_code for each in answer.entries] == [ErrorCode.INVALID_REQUEST]
    assert message in answer.entries[0].error_message


def test_validate_only_changes_nothing(wire: Wire, port: int) -> None:
    entity = [{"entity_type": "user", "entity_name": "nobody"}]
    ops = [{"key": "producer_byte_rate", "value": 5.0, "remove": False}]
    answer = wire.ask(
        port, ApiKey.ALTER_CLIENT_QUOTAS, 1, entries=[{"entity": entity, "ops": ops}], validate_only=True
    )
    assert [each.error_code for each in answer.entries] == [0]
    assert values_of(wire, port, {"user": "nobody"}) == {}


@pytest.mark.parametrize(
    ("components", "code"),
    [
        ([("", 0, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 0, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 1, "u")], ErrorCode.INVALID_REQUEST),
        ([("user", 7, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("user", 1, None)], ErrorCode.INVALID_REQUEST),
        ([("user", 2, None), ("ip", 2, None)], ErrorCode.INVALID_REQUEST),
        ([("group", 2, None)], ErrorCode.UNSUPPORTED_VERSION),
    ],
)
def test_filters_that_make_no_sense(
    wire: Wire, port: int, components: list[tuple[str, int, str | None]], code: ErrorCode
) -> None:
    wanted = [{"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components]
    answer = wire.ask(port, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=wanted, strict=False)
    assert (answer.error_code, answer.entries) == (code, None)


def test_filters(wire: Wire, port: int) -> None:
    entities: list[Entity] = [{"user": "a"}, {"user": None}, {"user": "a", "client-id": "c"}]
    with contextlib.ExitStack() as stack:
        for entity in entities:
            stack.enter_context(quota(wire, port, entity, producer_byte_rate=7_000_000))

        def found(*components: tuple[str, int, str | None], strict: bool) -> list[Entity]:
            wanted = [
                {"entity_type": kind, "match_type": match, "match": name} for kind, match, name in components
            ]
            answer = wire.ask(port, ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, components=wanted, strict=strict)
            return [{c.entity_type: c.entity_name for c in entry.entity} for entry in answer.entries]

        assert found(("user", 0, "a"), strict=False) == [entities[0], entities[2]]
        assert found(("user", 0, "a"), strict=True) == [entities[0]]
        assert found(("user", 1, None), strict=True) == [entities[1]]
        assert found(("user", 2, None), strict=True) == entities[:2]
        assert found(strict=False) == entities
        assert found(strict=True) == []


def test_librdkafka_gets_the_error(wire: Wire, node: LocalCluster, port: int, topic: str) -> None:
    pauses_s: list[float] = []
    name = "limited-client"
    with quota(wire, port, {"client-id": name}, producer_byte_rate=2 * LIMIT):
        producer = Producer(
            {
                "bootstrap.servers": node.bootstrap, "client.id": name, "linger.ms": 0,
                "throttle_cb": lambda event: pauses_s.append(event.throttle_time), **QUIET,
            }
        )  # fmt: skip

        def rests() -> bool:
            for _ in range(16):
                producer.produce(topic, bytes(LIMIT // 2))
                producer.poll(0)
            assert producer.flush(PATIENCE_S) == 0
            return max(pauses_s, default=0.0) > 0

        wait_until(rests, "it is told of a pause")


def test_who_asks_another_broker_rests_there(wire: Wire, shared_cluster: LocalCluster) -> None:
    """The controller counts, and tells; the broker that passed the request on does not read for so long."""
    first = shared_cluster.node(1).client_port
    wanted = [{"topic_name": "__cluster_metadata", "partitions": [{"partition_index": 0}]}]
    leader = wire.ask(first, ApiKey.DESCRIBE_QUORUM, 2, topics=wanted).topics[0].partitions[0].leader_id
    other = next(node.client_port for node in shared_cluster.nodes.values() if node.id != leader)
    at_controller = shared_cluster.node(leader).client_port
    with quota(wire, at_controller, {"client-id": CLIENT}, controller_mutation_rate=1):
        wait_until(lambda: values_of(wire, other, {"client-id": CLIENT}), "the other broker knows the quota")
        # The credit is of eleven samples; what is owed then takes longer than this test.
        burst = {"name": "a-burst", "num_partitions": 60, **UNASSIGNED}
        wire.ask(at_controller, ApiKey.CREATE_TOPICS, 7, topics=[burst], timeout_ms=30_000)
        late = {"name": "too-late", "num_partitions": 1, **UNASSIGNED}
        answer = wire.ask(other, ApiKey.CREATE_TOPICS, 7, topics=[late], timeout_ms=30_000)
        assert answer.topics[0].error_code == ErrorCode.THROTTLING_QUOTA_EXCEEDED
        assert answer.throttle_time_ms > 0
        with pytest.raises(TimeoutError):
            wire.run(wire.client(other).request(ApiKey.METADATA, 12, {"topics": []}, timeout_s=0.5))
    gone = wire.ask(at_controller, ApiKey.DELETE_TOPICS, 6, topics=[{"name": "a-burst"}], timeout_ms=30_000)
    assert [each.error_code for each in gone.responses] == [0]
