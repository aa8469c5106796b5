"""server.properties: Kafka's keys, typed; one plain sentence for everything that is wrong."""

from __future__ import annotations

import contextlib
import logging

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kraft.config.docs import markdown
from kraft.config.key import Required
from kraft.config.keys import NO_EFFECT, TOPIC_KEYS
from kraft.config.node_config import (
    ROWS,
    Config,
    NodeAddress,
    format_value,
    parse_value,
)
from kraft.config.properties import format_properties, parse_properties
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.model import Endpoint, SecurityProtocol

COMBINED = {
    "process.roles": "broker,controller",
    "node.id": "1",
    "controller.quorum.voters": "1@localhost:9093,3@127.0.0.1:9293,2@[::1]:9193",
    "listeners": "PLAINTEXT://127.0.0.1:9092,CONTROLLER://:9093",
    "controller.listener.names": "CONTROLLER",
    "log.dirs": "/data/a,/data/b",
}
BROKER = COMBINED | {
    "process.roles": "broker",
    "node.id": "4",
    "listeners": "IN://:9092,OUT://:9094",
    "inter.broker.listener.name": "IN",
    "listener.security.protocol.map": "IN:PLAINTEXT,OUT:PLAINTEXT,CONTROLLER:PLAINTEXT",
    "advertised.listeners": "IN://inside:9092,OUT://outside:19094",
}


def test_directories_are_spelled_as_java_spells_them():
    config = Config.from_properties(COMBINED | {"log.dirs": "/a/,/b//c", "metadata.log.dir": "/a//"})
    assert config.data_dirs == ("/a", "/b/c")
    assert config.metadata_dir == "/a"


def test_a_combined_node():
    config = Config.from_properties(COMBINED)
    assert config.is_broker
    assert config.is_controller
    assert config.voters == (
        NodeAddress(1, "localhost", 9093),
        NodeAddress(2, "::1", 9193),
        NodeAddress(3, "127.0.0.1", 9293),
    )  # fmt: skip
    assert config.broker_listeners == (Endpoint("PLAINTEXT", "127.0.0.1", 9092, SecurityProtocol.PLAINTEXT),)
    assert config.controller_listeners == (Endpoint("CONTROLLER", "", 9093, SecurityProtocol.PLAINTEXT),)
    assert config.inter_broker_listener == "PLAINTEXT"
    assert config.data_dirs == ("/data/a", "/data/b")
    assert config.metadata_dir == "/data/a"
    assert config.advertised_endpoints == config.broker_listeners
    assert config.replica_lag_time_max_ms == 30_000  # Kafka's default
    assert config.given == COMBINED


def test_a_broker_with_two_listeners():
    config = Config.from_properties(BROKER)
    assert not config.is_controller
    assert [e.host for e in config.advertised_endpoints] == ["inside", "outside"]
    assert config.inter_broker_listener == "IN"


def test_a_broker_that_knows_the_quorum_by_bootstrap_servers():
    servers = {"controller.quorum.voters": "", "controller.quorum.bootstrap.servers": "a:1, [::1]:2"}
    config = Config.from_properties(BROKER | servers)
    assert config.voters == ()
    assert config.quorum_entries == (NodeAddress(-2, "a", 1), NodeAddress(-3, "::1", 2))
    named = Config.from_properties(COMBINED | {"controller.quorum.bootstrap.servers": "a:1"})
    assert named.quorum_entries == named.voters


BOOTSTRAP_ALONE = {"controller.quorum.voters": None, "controller.quorum.bootstrap.servers": "a:1"}


@pytest.mark.parametrize(
    ("base", "changes", "sentence"),
    [
        (COMBINED, {"node.id": None}, "node.id is not set"),
        (COMBINED, {"node.id": "one"}, "node.id=one: must be a whole number"),
        (COMBINED, {"node.id": "-1"}, "node.id=-1: must be at least 0"),
        (COMBINED, {"process.roles": "king"}, "process.roles=king: must be one of broker, controller"),
        (COMBINED, {"process.roles": "broker,broker"}, "process.roles=broker,broker: name broker"),
        (COMBINED, {"node.id": "7"}, "must name node.id=7"),
        (BROKER, {"node.id": "2"}, "names node.id=2, which is not a controller"),
        (COMBINED, {"controller.quorum.voters": "1:9093"}, "controller.quorum.voters=1:9093: each node is"),
        (COMBINED, {"controller.quorum.voters": "1@a:1,1@b:2"}, "node 1 is named twice"),
        (
            COMBINED,
            {"kraft.peer.addresses": "2=a:1"},
            "kraft.peer.addresses=2=a:1: each node is ID@HOST:PORT",
        ),
        (COMBINED, {"kraft.peer.addresses": "2@a:1,1@b:2"}, "names this node itself"),
        (COMBINED, {"controller.quorum.voters": None}, "controller.quorum.voters is not set"),
        (COMBINED, BOOTSTRAP_ALONE, "controller.quorum.voters is not set"),
        (
            BROKER,
            BOOTSTRAP_ALONE | {"controller.quorum.bootstrap.servers": "1@a:x"},
            "controller.quorum.bootstrap.servers=1@a:x: each server is HOST:PORT",
        ),
        (COMBINED, {"listeners": "PLAINTEXT://:9092"}, "a controller must listen on CONTROLLER"),
        (COMBINED, {"listeners": "CONTROLLER://:9092"}, "a broker needs a listener"),
        (COMBINED, {"listeners": "PLAINTEXT://:1,CONTROLLER://:1"}, "each listener needs a port of its own"),
        (COMBINED, {"listeners": "PLAINTEXT:9092"}, "each listener is NAME://HOST:PORT"),
        (BROKER, {"listeners": "X://:1"}, "does not say how X speaks"),
        (BROKER, {"advertised.listeners": "IN://0.0.0.0:1"}, "clients cannot connect to such an address"),
        (BROKER, {"inter.broker.listener.name": "CONTROLLER"}, "must not be the controllers' listener"),
        (BROKER, {"inter.broker.listener.name": "THERE"}, "is not among the broker's listeners"),
        (COMBINED, {"controller.listener.names": None}, "controller.listener.names is not set"),
        (COMBINED, {"log.dirs": None}, "log.dirs is not set"),
        (COMBINED, {"log.dirs": "/a,/b,/a/"}, "log.dirs=/a,/b,/a/: names a directory twice"),
        (COMBINED, {"auto.create.topics.enable": "yes"}, "auto.create.topics.enable=yes: must be true or"),
        (COMBINED, {"log.segment.bytes": "10"}, "log.segment.bytes=10: must be at least 1048576"),
        (COMBINED, {"compression.zstd.level": "99"}, "compression.zstd.level=99: must be at most 22"),
        (COMBINED, {"log.retention.ms": "0"}, "log.retention.ms=0: must not be 0"),
        (COMBINED, {"log.retention.minutes": "0"}, "log.retention.minutes=0: must not be 0"),
        (COMBINED, {"log.retention.hours": "0"}, "log.retention.hours=0: must not be 0"),
        (COMBINED, {"log.roll.ms": "0"}, "log.roll.ms=0: must be at least 1"),
        (COMBINED, {"log.roll.jitter.ms": "-1"}, "log.roll.jitter.ms=-1: must be at least 0"),
        (COMBINED, {"message.max.bytes": "2147483648"}, "2147483648: must be a number of 32 bits"),
        (COMBINED, {"log.retention.bytes": str(2**63)}, "must be a number of 64 bits"),
        (COMBINED, {"offsets.topic.replication.factor": "32768"}, "must be a number of 16 bits"),
        (COMBINED, {"max.connections.per.ip": "0"}, "max.connections.per.ip=0: nobody could connect"),
        (
            COMBINED,
            {"log.cleaner.max.compaction.lag.ms": "5", "log.cleaner.min.compaction.lag.ms": "6"},
            "log.cleaner.min.compaction.lag.ms=6: must not be above log.cleaner.max.compaction.lag.ms=5",
        ),
        (COMBINED, {"replica.socket.timeout.ms": "499"}, "must not be above replica.socket.timeout.ms=499"),
        (COMBINED, {"replica.fetch.wait.max.ms": "40000"}, "must not be above replica.lag.time.max.ms=30000"),
        (COMBINED, {"broker.heartbeat.interval.ms": "9001"}, "must not be above broker.session.timeout.ms"),
        (
            COMBINED,
            {"group.consumer.session.timeout.ms": "44999"},
            "must not be above group.consumer.session.timeout.ms=44999",
        ),
        (COMBINED, {"group.coordinator.rebalance.protocols": "consumer"}, "must name classic"),
    ],
)
def test_what_is_wrong_stops_the_start_with_one_sentence(base, changes, sentence):
    properties = {k: v for k, v in (base | changes).items() if v is not None}
    with pytest.raises(FatalError) as caught:
        Config.from_properties(properties)
    assert caught.value.exit_code == ExitCode.BAD_CONFIG
    assert sentence in caught.value.reason
    assert "\n" not in caught.value.reason


def test_whole_numbers_are_of_kafkas_types():
    types = {ROWS[name].type for name in ("log.retention.ms", "connections.max.idle.ms", "log.segment.bytes")}
    assert types == {"long", "int"}
    assert ROWS["offsets.topic.replication.factor"].type == "short"
    for row in ROWS.values():
        if row.type in ("short", "int", "long") and row.default not in (None, Required.TOKEN):
            assert parse_value(row, format_value(row.default)) == row.default
    unlimited = Config.from_properties(COMBINED | {"log.retention.ms": "-1", "log.retention.hours": "-2"})
    assert unlimited.topic_defaults["retention.ms"] == "-1"
    nobody = {"max.connections.per.ip": "0", "max.connections.per.ip.overrides": "127.0.0.1:5"}
    assert Config.from_properties(COMBINED | nobody).max_connections_per_ip == 0


def test_an_unknown_key_is_answered_with_the_nearest(caplog):
    with caplog.at_level(logging.WARNING):
        Config.from_properties(COMBINED | {"replica.lag.time.max": "1", "num.io.threads": "8"})
    assert [r.getMessage() for r in caplog.records] == [
        "unknown key replica.lag.time.max is ignored; did you mean replica.lag.time.max.ms?"
    ]


@pytest.mark.row("U4")
def test_a_key_of_a_listener_that_nothing_reads_is_named(caplog, tmp_path):
    """The listener stayed open to everybody, without a word."""
    prefix = "listener.name."
    read = {
        "in.ssl.keystore.location": "k.pem",
        "controller.ssl.client.auth": "required",
        "out.max.connections": "9",
        "in.plain.sasl.jaas.config": "M;",
        "in.scram-sha-512.sasl.jaas.config": "M;",
        "in.num.network.threads": "2",
        "in.plain.sasl.server.callback.handler.class": "C",
        "in.ssl.allow.dn.changes": "true",
    }
    unread = {
        "OUT.ssl.client.auth": "required",
        "outt.ssl.client.auth": "required",
        "in.ssl.keystore.loaction": "k.pem",
        "in.plain.sasl.jaas.confg": "M;",
    }
    path = tmp_path / "server.properties"
    path.write_text(
        format_properties(BROKER | {prefix + key: value for key, value in (read | unread).items()})
    )
    with caplog.at_level(logging.WARNING):
        config = Config.load(str(path))
    assert [r.getMessage() for r in caplog.records] == [
        "listener.name.OUT.ssl.client.auth is ignored: no listener is called OUT; "
        "did you mean listener.name.out.ssl.client.auth?",
        "listener.name.outt.ssl.client.auth is ignored: no listener is called outt",
        "unknown key listener.name.in.ssl.keystore.loaction is ignored; "
        "did you mean listener.name.in.ssl.keystore.location?",
        "unknown key listener.name.in.plain.sasl.jaas.confg is ignored; "
        "did you mean listener.name.in.plain.sasl.jaas.config?",
    ]
    caplog.clear()
    config.with_dynamic({"num.replica.fetchers": "2"})
    assert not caplog.records


def test_properties_as_java_writes_them():
    text = "# comment\n! too\n\n a.b = 1\nlist=x,\\\n   y\nurl: http://host=1\nempty=\n"
    assert parse_properties(text) == {"a.b": "1", "list": "x,y", "url": "http://host=1", "empty": ""}
    with pytest.raises(FatalError, match="each line is key=value"):
        parse_properties("nonsense")


def test_a_key_that_the_end_of_the_file_cuts_off_is_not_lost():
    assert parse_properties("a=1\nb=x,\\\n  y\\") == {"a": "1", "b": "x,y"}
    assert parse_properties("b=x\\\n") == {"b": "x"}


def test_a_file_that_is_not_there(tmp_path):
    with pytest.raises(FatalError, match=r"cannot read .*No such file"):
        Config.load(str(tmp_path / "missing.properties"))
    path = tmp_path / "server.properties"
    path.write_text(format_properties(COMBINED))
    assert Config.load(str(path), {"num.partitions": "7"}).num_partitions == 7


def test_topics_fall_back_to_the_brokers_values():
    config = Config.from_properties(
        COMBINED | {"log.retention.minutes": "2", "log.roll.ms": "5", "log.cleanup.policy": "compact"}
    )
    defaults = config.topic_defaults
    assert defaults.keys() == TOPIC_KEYS.keys()
    assert defaults["retention.ms"] == "120000"
    assert defaults["segment.ms"] == "5"
    assert defaults["cleanup.policy"] == "compact"
    assert defaults["flush.ms"] == str(2**63 - 1)
    assert Config.from_properties(COMBINED).topic_defaults["retention.ms"] == "604800000"


def test_a_dynamic_change_leaves_the_rest():
    config = Config.from_properties(COMBINED).with_dynamic({"message.max.bytes": "2000"})
    assert config.message_max_bytes == 2000
    assert config.node_id == 1


def test_the_table_is_sound():
    assert not set(ROWS) & set(NO_EFFECT)
    assert set(TOPIC_KEYS.values()) <= set(ROWS)
    assert all(name in markdown(ROWS.values()) for name in ROWS)


@pytest.mark.parametrize("name", [n for n, row in ROWS.items() if row.default is not Required.TOKEN])
def test_every_default_is_a_legal_value(name):
    row = ROWS[name]
    if row.default is not None:
        assert parse_value(row, format_value(row.default)) == row.default


@given(st.text(max_size=60))
def test_no_text_breaks_the_parser(text):
    with contextlib.suppress(FatalError):
        Config.from_properties(COMBINED | parse_properties(text))


@given(st.sampled_from(sorted(ROWS)), st.text(max_size=20))
def test_no_value_breaks_the_node(name, text):
    with contextlib.suppress(FatalError):
        Config.from_properties(COMBINED | {name: text})
