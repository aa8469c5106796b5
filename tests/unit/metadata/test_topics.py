"""Topics, placement and configs: what is made, and Kafka's codes for what is not."""

from __future__ import annotations

from collections import Counter
from itertools import zip_longest
from random import Random
from uuid import UUID

import pytest

from metadata_quorum.decisions.placement import place
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import BrokerRegistration, ResourceType
from metadata_quorum.foundation.topic_configs import DYNAMIC_BROKER_CONFIGS, TOPIC_CONFIGS, ConfigType
from metadata_quorum.protocol import commands as c
from tests.support.cpu_time import cpu_s
from tests.support.metadata_machine import MetadataMachine, entries

TOPIC, BROKER = ResourceType.TOPIC, ResourceType.BROKER


def ready(*brokers: int) -> MetadataMachine:
    machine = MetadataMachine()
    machine.claim()
    machine.brokers(*(brokers or (1, 2, 3)))
    return machine


def error_of(results: object) -> ErrorCode:
    assert isinstance(results, tuple)
    (result,) = results
    return result.error


@pytest.mark.parametrize(
    ("name", "partitions", "replication", "configs", "error"),
    [
        ("", 1, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("..", 1, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("a b", 1, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("x" * 250, 1, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("__cluster_metadata", 1, 1, {}, ErrorCode.INVALID_REQUEST),
        ("known", 1, 1, {}, ErrorCode.TOPIC_ALREADY_EXISTS),
        ("dotted_name", 1, 1, {}, ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("t", 0, 1, {}, ErrorCode.INVALID_PARTITIONS),
        ("t", 20_000, 1, {}, ErrorCode.POLICY_VIOLATION),
        ("t", 1, 0, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", 0, 0, {}, ErrorCode.INVALID_REPLICATION_FACTOR),  # which Kafka's controller finds first
        ("t", 1, 4, {}, ErrorCode.INVALID_REPLICATION_FACTOR),
        ("t", 1, 1, {"no_such": "1"}, ErrorCode.INVALID_CONFIG),
        ("t", 1, 1, {"retention_ms": "soon"}, ErrorCode.INVALID_CONFIG),
        ("t", 1, 1, {"segment_bytes": "1"}, ErrorCode.INVALID_CONFIG),
        ("t", 1, 1, {"remote_storage_enable": "true"}, ErrorCode.INVALID_CONFIG),
        ("t", 1, 1, {"cleanup_policy": "burn"}, ErrorCode.INVALID_CONFIG),
        ("t", 1, 1, {"min_cleanable_dirty_ratio": "1.5"}, ErrorCode.INVALID_CONFIG),
        ("t", 1, 1, {"retention_ms": None}, ErrorCode.INVALID_CONFIG),
        ("t", 1, 1, {"cleanup_policy": "compact,delete"}, ErrorCode.NONE),
    ],
)
def test_creating_topics(name, partitions, replication, configs, error) -> None:
    machine = ready()
    machine.create("known")
    machine.create("dotted.name")
    assert error_of(machine.create(name, partitions, replication, **configs)) is error
    assert (name in machine.image.topics_by_name) == (error is ErrorCode.NONE or name == "known")


@pytest.mark.parametrize(
    ("assignments", "error"),
    [
        ({0: (1, 2), 1: (2, 3)}, ErrorCode.NONE),
        ({0: (1, 2), 2: (2, 3)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: (1, 2), 1: (3,)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: (1, 1)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: (1, 9)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: ()}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
        ({0: (4,)}, ErrorCode.INVALID_REPLICA_ASSIGNMENT),
    ],
)
def test_assigning_by_hand(assignments, error) -> None:
    machine = ready()
    machine.register(4)  # fenced
    topic = c.NewTopic(
        name="t",
        topic_id=UUID(int=777),
        partitions=-1,
        replication_factor=-1,
        assignments=tuple(c.Assignment(partition=p, broker_ids=ids) for p, ids in assignments.items()),
    )
    assert error_of(machine.run(c.CreateTopics(topics=(topic,)))) is error


def test_a_fenced_replica_is_assigned_but_not_in_sync() -> None:
    machine = ready()
    machine.fence(2)
    machine.create_assigned("t", [[2, 1, 3]])
    partition = machine.partition("t")
    assert (partition.isr, partition.leader) == ((1, 3), 1)


def test_growing_and_deleting() -> None:
    machine = ready()
    machine.create("t", 2, 2, retention_ms="5")

    def grow(name: str, count: int, *assignments: tuple[int, ...]) -> ErrorCode:
        given = tuple(c.Assignment(partition=i, broker_ids=ids) for i, ids in enumerate(assignments))
        topic = c.NewPartitions(name=name, count=count, assignments=given)
        return error_of(machine.run(c.CreatePartitions(topics=(topic,))))

    assert grow("u", 3) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert grow("t", 2) is ErrorCode.INVALID_PARTITIONS
    assert grow("t", 1) is ErrorCode.INVALID_PARTITIONS
    assert grow("t", 3, (1, 2), (2, 3)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow("t", 3, (1, 2, 3)) is ErrorCode.INVALID_REPLICA_ASSIGNMENT
    assert grow("t", 3, (3, 1)) is ErrorCode.NONE
    assert grow("t", 5) is ErrorCode.NONE
    assert machine.partition("t", 2).replicas == (3, 1)
    assert len(machine.image.topics_by_name["t"].partitions) == 5
    topic_id = machine.image.topics_by_name["t"].id
    assert error_of(machine.run(c.DeleteTopics(topic_ids=(topic_id,)))) is ErrorCode.NONE
    assert error_of(machine.run(c.DeleteTopics(topic_ids=(topic_id,)))) is ErrorCode.UNKNOWN_TOPIC_ID
    assert not machine.image.config(TOPIC, "t")
    assert machine.create("t"), "the name is free again"


# -- placement ------------------------------------------------------------------------


def broker(number: int, rack: str | None = None, *, fenced: bool = False) -> BrokerRegistration:
    return BrokerRegistration(number, number, UUID(int=number), rack=rack, fenced=fenced)


@pytest.mark.row("Q12")
def test_round_robin_with_shifted_followers() -> None:
    brokers = [broker(n) for n in (1, 2, 3)]
    assert place(brokers, 0, 6, 3, start=0) == [
        (1, 2, 3),
        (2, 3, 1),
        (3, 1, 2),
        (1, 3, 2),
        (2, 1, 3),
        (3, 2, 1),
    ]


@pytest.mark.row("Q12")
@pytest.mark.parametrize("start", range(7))
def test_leaders_and_replicas_are_even(start: int) -> None:
    brokers = [broker(n) for n in range(5)]
    placed = place(brokers, 0, 60, 3, start)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {12}
    assert set(Counter(b for replicas in placed for b in replicas).values()) == {36}


@pytest.mark.row("Q12")
@pytest.mark.parametrize("start", range(5))
def test_replicas_are_spread_over_racks(start: int) -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b", 5: "c", 6: "c"}
    placed = place([broker(n, rack) for n, rack in racks.items()], 0, 24, 3, start)
    assert all({racks[b] for b in replicas} == {"a", "b", "c"} for replicas in placed)
    assert set(Counter(replicas[0] for replicas in placed).values()) == {4}


@pytest.mark.row("Q12")
def test_more_replicas_than_racks_are_as_even_as_can_be() -> None:
    racks = {1: "a", 2: "a", 3: "b", 4: "b"}
    for replicas in place([broker(n, rack) for n, rack in racks.items()], 0, 8, 4, start=3):
        assert sorted(replicas) == [1, 2, 3, 4]
    for replicas in place([broker(n, rack) for n, rack in racks.items()], 0, 8, 3, start=3):
        assert Counter(racks[b] for b in replicas).most_common(1)[0][1] == 2


@pytest.mark.row("Q12")
def test_fenced_brokers_come_last_and_never_lead() -> None:
    brokers = [broker(1), broker(2, fenced=True), broker(3)]
    assert place(brokers, 0, 2, 2, start=0) == [(1, 3), (3, 1)]
    assert place(brokers, 0, 2, 3, start=0) == [(1, 3, 2), (3, 1, 2)]
    for impossible in ([broker(1, fenced=True)], []):
        with pytest.raises(BrokerError) as e:
            place(impossible, 0, 1, 1, start=0)
        assert e.value.code is ErrorCode.INVALID_REPLICATION_FACTOR


def _alternating(brokers: list[BrokerRegistration]) -> list[BrokerRegistration]:
    racks: dict[str, list[BrokerRegistration]] = {}
    for each in brokers:
        racks.setdefault(each.rack or "", []).append(each)
    turns = zip_longest(*(racks[name] for name in sorted(racks)))
    return [each for turn in turns for each in turn if each is not None]


def _as_first_written(
    row: list[BrokerRegistration], spare: list[BrokerRegistration], count: int, factor: int, start: int
) -> list[tuple[int, ...]]:
    """The rule itself. What it gives is in the logs of clusters, and voters of other builds give it too."""
    placed = []
    for partition in range(start, start + count):
        at, shift = partition % len(row), partition // len(row)
        walk = row[at + 1 :] + row[:at]
        turn = shift % len(walk) if walk else 0
        chosen = [row[at]]
        for candidates in (walk[turn:] + walk[:turn], spare):
            left = list(candidates)
            while left and len(chosen) < factor:
                best = min(left, key=lambda each: sum(each.rack == other.rack for other in chosen))
                chosen.append(best)
                left.remove(best)
        placed.append(tuple(each.broker_id for each in chosen))
    return placed


@pytest.mark.row("Q12")
@pytest.mark.parametrize("seed", range(30))
def test_replicas_go_where_the_rule_puts_them(seed: int) -> None:
    rng = Random(seed)
    some: list[list[str | None]] = [[None], ["a", "b"], ["a", "b", "c", None], [str(n) for n in range(9)]]
    racks = rng.choice(some)
    brokers = [
        broker(n, rng.choice(racks), fenced=n > 0 and rng.random() < 0.2) for n in range(rng.randint(1, 9))
    ]
    row, spare = (_alternating([b for b in brokers if b.fenced == fenced]) for fenced in (False, True))
    factor, start = rng.randint(1, len(brokers)), rng.randrange(100)
    assert place(brokers, 0, 100, factor, start) == _as_first_written(row, spare, 100, factor, start)


@pytest.mark.row("Q12")
def test_as_many_replicas_as_brokers_are_placed_without_comparing_each_with_each() -> None:
    """A user who may create topics held up all decisions for minutes, in a cluster of a hundred brokers."""
    brokers = [broker(n, f"rack-{n % 3}") for n in range(60)]
    assert cpu_s(lambda: place(brokers, 0, 2000, 60, start=0)) < 1.5


# -- configs -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("kind", "resource", "key", "value", "error"),
    [
        (TOPIC, "t", "retention.ms", "7", ErrorCode.NONE),
        (TOPIC, "t", "retention.ms", "-2", ErrorCode.INVALID_CONFIG),
        (TOPIC, "t", "bogus", "1", ErrorCode.INVALID_CONFIG),
        (TOPIC, "u", "retention.ms", "7", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
        (BROKER, "", "log.retention.ms", "7", ErrorCode.NONE),
        (BROKER, "", "log.retention.bytes", "seven", ErrorCode.INVALID_CONFIG),
        (BROKER, "1", "num.io.threads", "2", ErrorCode.NONE),
        (BROKER, "1", "min.insync.replicas", "2", ErrorCode.INVALID_CONFIG),
        (BROKER, "9", "num.io.threads", "2", ErrorCode.BROKER_ID_NOT_REGISTERED),
        (BROKER, "one", "num.io.threads", "2", ErrorCode.INVALID_REQUEST),
        (99, "x", "y", "z", ErrorCode.INVALID_REQUEST),
    ],
)
def test_setting_configs(kind, resource, key, value, error) -> None:
    machine = ready()
    machine.create("t")
    assert error_of(machine.set_config(kind, resource, key, value)) is error
    assert (machine.image.config(kind, resource).get(key) == value) == (error is ErrorCode.NONE)


def test_controllers_have_configurations_too() -> None:
    """As in Kafka: where they are no brokers, too, their certificates are renewed in this way."""
    machine = ready()
    key = "listener.name.controller.ssl.keystore.location"
    set_it = c.ConfigOperation(name=key, operation=c.CONFIG_SET, value="k.pem")
    entry = c.ConfigEntry(name=key, value="other.pem")
    for controllers, error in (((), ErrorCode.BROKER_ID_NOT_REGISTERED), ((8, 9), ErrorCode.NONE)):
        change = c.ConfigChange(resource_type=BROKER, resource_name="9", operations=(set_it,))
        assert (
            error_of(machine.run(c.IncrementalAlterConfigs(changes=(change,), controllers=controllers)))
            is error
        )
        assert machine.image.config(BROKER, "9") == ({} if error else {key: "k.pem"})
    for controllers, value in (((), "k.pem"), ((9,), "other.pem")):
        replacement = c.ConfigReplacement(resource_type=BROKER, resource_name="9", configs=(entry,))
        machine.run(c.AlterConfigs(resources=(replacement,), controllers=controllers))
        assert machine.image.config(BROKER, "9") == {key: value}


@pytest.mark.parametrize(
    ("topic", "key", "error"),
    [
        ("not here", "retention.ms", ErrorCode.INVALID_TOPIC_EXCEPTION),
        ("nowhere", "no.such.key", ErrorCode.INVALID_CONFIG),
        ("nowhere", "retention.ms", ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
    ],
)
def test_what_is_told_of_a_topic_that_there_is_not(topic: str, key: str, error: ErrorCode) -> None:
    """As in Kafka: first what nobody could be called, then what nobody could have."""
    machine = ready()
    assert error_of(machine.set_config(TOPIC, topic, key, "5")) is error
    entry = c.ConfigEntry(name=key, value="5")
    replacement = c.ConfigReplacement(resource_type=TOPIC, resource_name=topic, configs=(entry,))
    assert error_of(machine.run(c.AlterConfigs(resources=(replacement,)))) is error


def test_append_subtract_and_delete() -> None:
    machine = ready()
    machine.create("t")

    def change(operation: int, name: str, value: str | None) -> ErrorCode:
        operations = (c.ConfigOperation(name=name, operation=operation, value=value),)
        resource = c.ConfigChange(resource_type=TOPIC, resource_name="t", operations=operations)
        return error_of(machine.run(c.IncrementalAlterConfigs(changes=(resource,))))

    assert change(c.CONFIG_APPEND, "cleanup.policy", "compact") is ErrorCode.NONE
    assert machine.image.config(TOPIC, "t")["cleanup.policy"] == "delete,compact"
    assert change(c.CONFIG_SUBTRACT, "cleanup.policy", "delete") is ErrorCode.NONE
    assert machine.image.config(TOPIC, "t")["cleanup.policy"] == "compact"
    assert change(c.CONFIG_APPEND, "retention.ms", "1") is ErrorCode.INVALID_CONFIG
    assert change(c.CONFIG_SET, "retention.ms", None) is ErrorCode.INVALID_CONFIG
    assert change(c.CONFIG_DELETE, "cleanup.policy", None) is ErrorCode.NONE
    assert not machine.image.config(TOPIC, "t")


def test_replacing_configs_deletes_what_is_not_named() -> None:
    machine = ready()
    machine.create("t", retention_ms="5", flush_ms="6")
    replacement = c.ConfigReplacement(
        resource_type=TOPIC, resource_name="t", configs=entries({"flush_ms": "7", "preallocate": "true"})
    )
    machine.run(c.AlterConfigs(resources=(replacement,)))
    assert machine.image.config(TOPIC, "t") == {"flush.ms": "7", "preallocate": "true"}


def test_every_default_is_a_legal_value() -> None:
    for key in (*TOPIC_CONFIGS.values(), *DYNAMIC_BROKER_CONFIGS.values()):
        if key.default is not None:
            assert key.problem(key.default) is None, key.name


def test_a_number_of_any_length_is_judged() -> None:
    for key in (*TOPIC_CONFIGS.values(), *DYNAMIC_BROKER_CONFIGS.values()):
        if key.type in (ConfigType.INT, ConfigType.SHORT, ConfigType.LONG, ConfigType.DOUBLE):
            assert key.problem("9" * 400) is not None, key.name
            assert key.problem("9" * 5_000) is not None, key.name
