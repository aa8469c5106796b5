"""Options: what they mean, and one error that names the option for everything that cannot be meant."""

from __future__ import annotations

import pickle

import pytest

from metadata_quorum.foundation.model import TopicPartition
from spark_connector import librdkafka
from spark_connector.client_properties import unknown_property
from spark_connector.client_settings import client_settings
from spark_connector.errors import OptionError
from spark_connector.librdkafka import producer_config
from spark_connector.offsets import (
    AtOffsets,
    AtTime,
    AtTimes,
    Edge,
)
from spark_connector.options import (
    REDACTED,
    Assign,
    Subscribe,
    SubscribePattern,
    sink_options,
    source_options,
)
from spark_connector.producing import new_producer

CLUSTER = {"kafka.bootstrap.servers": "a:1,b:2"}
FLIGHTS = {**CLUSTER, "subscribe": "flights"}


def test_defaults_are_those_of_spark():
    stream = source_options(FLIGHTS, streaming=True)
    batch = source_options(FLIGHTS, streaming=False)
    assert stream.starting is Edge.LATEST
    assert (batch.starting, batch.ending) == (Edge.EARLIEST, Edge.LATEST)
    assert stream.fail_on_data_loss
    assert not stream.include_headers
    assert stream.max_trigger_delay_ms == 15 * 60 * 1000
    assert stream.max_offsets_per_trigger is stream.min_partitions is None


def test_every_option_is_read_whatever_its_case():
    options = source_options(
        {
            "KAFKA.Bootstrap.Servers": "a:1",
            "SUBSCRIBE": " a , b ,",
            "startingoffsets": '{"a":{"0":23,"1":-1,"2":-2}}',
            "StartingOffsetsByTimestampStrategy": "LATEST",
            "failondataloss": "False",
            "KAFKACONSUMER.POLLTIMEOUTMS": "512",
            "fetchOffset.numRetries": "7",
            "fetchOffset.retryIntervalMs": "0",
            "maxOffsetsPerTrigger": "100",
            "minOffsetsPerTrigger": "10",
            "maxTriggerDelay": "2m",
            "minPartitions": "8",
            "maxRecordsPerPartition": "1000",
            "groupIdPrefix": "mine",
            "includeHeaders": "TRUE",
            "kafka.isolation.level": "read_committed",
        },
        streaming=True,
    )
    assert options.topics == Subscribe(frozenset({"a", "b"}))
    assert options.starting == AtOffsets(
        {TopicPartition("a", 0): 23, TopicPartition("a", 1): -1, TopicPartition("a", 2): -2}
    )
    assert options.latest_if_unmatched
    assert not options.fail_on_data_loss
    assert (options.poll_timeout_ms, options.fetch_offset_retries) == (512, 7)
    assert options.fetch_offset_retry_interval_ms == 0
    assert (options.max_offsets_per_trigger, options.min_offsets_per_trigger) == (100, 10)
    assert options.max_trigger_delay_ms == 120_000
    assert (options.min_partitions, options.max_records_per_partition) == (8, 1000)
    assert options.client_id == "mine"
    assert options.include_headers
    assert dict(options.connection) == {
        "bootstrap.servers": "a:1",
        "isolation.level": "read_committed",
        "client.id": "mine",
    }
    assert pickle.loads(pickle.dumps(options)) == options


@pytest.mark.parametrize(
    ("option", "topics"),
    [
        ({"assign": '{"t":[0,2]}'}, Assign(frozenset({TopicPartition("t", 0), TopicPartition("t", 2)}))),
        ({"subscribePattern": "fl.*s"}, SubscribePattern("fl.*s")),
    ],
)
def test_which_partitions(option, topics):
    assert source_options({**CLUSTER, **option}, streaming=True).topics == topics


def test_a_pattern_is_found_anywhere_in_the_name():
    assert SubscribePattern("light").matches("flights")
    assert not SubscribePattern("^light").matches("flights")


@pytest.mark.parametrize("pattern", ["flights-[a-z&&[^q]]", "flights-[[a-f]x]", r"\p{Alpha}+", "a(?i)b", "("])
def test_a_pattern_that_java_reads_in_another_way_is_refused(pattern: str):
    """Topics would be left out silently."""
    with pytest.raises(OptionError, match=r"'subscribePattern': .* is no regular expression of Python's"):
        source_options({**CLUSTER, "subscribePattern": pattern}, streaming=True)


def test_a_time_for_all_takes_precedence_over_times_and_these_over_offsets():
    three = {
        "endingTimestamp": "1700000000000",
        "endingOffsetsByTimestamp": '{"flights":{"0":5}}',
        "endingOffsets": "latest",
    }
    assert source_options({**FLIGHTS, **three}, streaming=False).ending == AtTime(1700000000000)
    del three["endingTimestamp"]
    assert source_options({**FLIGHTS, **three}, streaming=False).ending == AtTimes(
        {TopicPartition("flights", 0): 5}
    )


@pytest.mark.parametrize(
    ("wrong", "option", "says"),
    [
        ({"startingOffset": "earliest"}, "startingoffset", "did you mean 'startingOffsets'"),
        ({"path": "flights"}, "path", "unknown"),
        ({"subscribePattern": "f.*"}, "subscribePattern", "only one of"),
        ({"subscribe": " , "}, "subscribe", "names no topic"),
        ({"startingOffsets": "newest"}, "startingOffsets", "earliest, latest or"),
        ({"startingOffsets": '{"flights":{"0":"x"}}'}, "startingOffsets", "earliest, latest or"),
        ({"startingOffsets": '{"flights":[0]}'}, "startingOffsets", "earliest, latest or"),
        ({"startingOffsets": '{"flights":{"0":-3}}'}, "startingOffsets", "-3 is no offset"),
        ({"startingOffsets": '{"flights":{"0":9223372036854775808}}'}, "startingOffsets", "is no offset"),
        ({"startingTimestamp": "yesterday"}, "startingTimestamp", "ms since 1970"),
        ({"startingTimestamp": "-1"}, "startingTimestamp", "ms since 1970, not '-1'"),
        ({"startingTimestamp": str(2**63)}, "startingTimestamp", "ms since 1970"),
        ({"startingOffsetsByTimestamp": '{"t":{"0":-2}}'}, "startingOffsetsByTimestamp", "ms since 1970"),
        ({"startingOffsetsByTimestamp": "{"}, "startingOffsetsByTimestamp", "1700000000000"),
        ({"startingOffsetsByTimestampStrategy": "guess"}, "startingOffsetsByTimestampStrategy", "'error'"),
        ({"endingOffsets": "latest"}, "endingOffsets", "a stream has no end"),
        ({"endingTimestamp": "5"}, "endingTimestamp", "a stream has no end"),
        ({"failOnDataLoss": "yes"}, "failOnDataLoss", "'true' or 'false'"),
        ({"minPartitions": "0"}, "minPartitions", "must be positive"),
        ({"maxRecordsPerPartition": "-1"}, "maxRecordsPerPartition", "must be positive"),
        ({"maxOffsetsPerTrigger": "many"}, "maxOffsetsPerTrigger", "a whole number"),
        ({"maxOffsetsPerTrigger": str(2**63)}, "maxOffsetsPerTrigger", "a whole number"),
        ({"startingOffsets": "[" * 100_000}, "startingOffsets", "earliest, latest or"),
        ({"maxOffsetsPerTrigger": "1", "minOffsetsPerTrigger": "2"}, "minOffsetsPerTrigger", "higher"),
        ({"maxTriggerDelay": "soon"}, "maxTriggerDelay", "500ms or 15m"),
        ({"kafka.auto.offset.reset": "earliest"}, "kafka.auto.offset.reset", "startingOffsets"),
        ({"kafka.key.deserializer": "x"}, "kafka.key.deserializer", "cast the column"),
        ({"kafka.enable.auto.commit": "true"}, "kafka.enable.auto.commit", "checkpoint"),
        ({"kafka.interceptor.classes": "x"}, "kafka.interceptor.classes", "not supported"),
        ({"kafka.isolation.levels": "x"}, "kafka.isolation.levels", "did you mean 'kafka.isolation.level'"),
        ({"kafka.max.partition.fetch.byte": "1"}, "kafka.max.partition.fetch.byte", "fetch.bytes'"),
        ({"kafka.zzz": "1"}, "kafka.zzz", "is no property of a Kafka client"),
        ({"kafka.isolation.level": "serializable"}, "kafka.isolation.level", "read_committed"),
        ({"kafka.bootstrap.servers": " "}, "kafka.bootstrap.servers", "HOST:PORT"),
    ],
)
def test_a_mistake_is_reported_by_the_name_of_its_option(wrong, option, says):
    with pytest.raises(OptionError) as caught:
        source_options({**FLIGHTS, **wrong}, streaming=True)
    assert caught.value.option == option
    assert str(caught.value).startswith(f"Option '{option}': ")
    assert says in str(caught.value)


@pytest.mark.parametrize(
    ("wrong", "option"),
    [
        ({"startingOffsets": "latest"}, "startingOffsets"),
        ({"startingOffsets": '{"flights":{"0":-1}}'}, "startingOffsets"),
        ({"endingOffsets": "earliest"}, "endingOffsets"),
        ({"endingOffsets": '{"flights":{"0":-2}}'}, "endingOffsets"),
        (
            {"startingOffsets": '{"flights":{"0":5}}', "endingOffsets": '{"flights":{"0":4}}'},
            "startingOffsets",
        ),
        ({"startingOffsets": '{"flights":{"0":5}}', "endingOffsets": '{"flights":{"1":9}}'}, "endingOffsets"),
        (
            {
                "startingOffsetsByTimestamp": '{"flights":{"0":5}}',
                "endingOffsetsByTimestamp": '{"flights":{"0":4}}',
            },
            "startingOffsetsByTimestamp",
        ),
    ],
)
def test_what_a_batch_query_cannot_mean(wrong, option):
    with pytest.raises(OptionError) as caught:
        source_options({**FLIGHTS, **wrong}, streaming=False)
    assert caught.value.option == option


def test_no_topic_and_no_cluster():
    with pytest.raises(OptionError, match="one of assign, subscribe, subscribePattern must be set"):
        source_options(CLUSTER, streaming=True)
    with pytest.raises(OptionError, match=r"kafka\.bootstrap\.servers.*must be set"):
        source_options({"subscribe": "flights"}, streaming=True)


def test_what_spark_adds_is_no_mistake():
    options = sink_options({**CLUSTER, "topic": " out ", "checkpointLocation": "x", "queryName": "q"})
    assert options.topic == "out"


@pytest.mark.parametrize("key", ["kafka.value.serializer", "kafka.transactional.id"])
def test_what_the_sink_cannot_do(key):
    with pytest.raises(OptionError, match=key):
        sink_options({**CLUSTER, key: "x"})


def test_secrets_are_never_printed():
    secrets = {
        "kafka.sasl.jaas.config": 'PlainLoginModule required username="u" password="hush-1";',
        "kafka.ssl.keystore.password": "hush-2",
        "kafka.ssl.keystore.key": "hush-3",
        "kafka.sasl.password": "hush-4",
    }
    printed = repr(source_options({**FLIGHTS, **secrets}, streaming=True))
    assert "hush" not in printed
    assert printed.count(REDACTED) == len(secrets)
    assert "a:1,b:2" in printed


def test_numbers_of_the_client_are_those_of_java():
    assert client_settings({"bootstrap.servers": "a:1", "request.timeout.ms": str(2**31 - 1)})
    for name in ("request.timeout.ms", "default.api.timeout.ms", "max.partition.fetch.bytes"):
        for wrong in ("0", "-1", "x", str(2**31), "9" * 400):
            with pytest.raises(OptionError, match=f"'kafka.{name}'"):
                client_settings({"bootstrap.servers": "a:1", name: wrong})


def settings_of(**given: str):
    properties = {name.replace("_", "."): value for name, value in given.items()}
    return client_settings({"bootstrap.servers": "a:1", "security.protocol": "SSL", **properties})


@pytest.mark.parametrize(
    ("given", "checks"), [("https", True), (" HTTPS ", True), ("", False), (" ", False), ("none", False)]
)
def test_whether_the_hosts_name_is_checked(given: str, checks: bool):
    assert settings_of(ssl_endpoint_identification_algorithm=given).tls.checks_host is checks


def test_a_misspelled_check_of_the_hosts_name_is_not_taken_for_none():
    for wrong in ("htps", "true", "https,none"):
        with pytest.raises(OptionError, match=r"ssl\.endpoint\.identification\.algorithm"):
            settings_of(ssl_endpoint_identification_algorithm=wrong)


@pytest.mark.parametrize("name", ["ssl.crl.location", "ssl.cipher.suites", "ssl.sigalgs.list"])
def test_what_would_make_a_connection_safer_is_not_passed_over(name: str):
    with pytest.raises(OptionError, match=f"'kafka.{name}'"):
        settings_of(**{name: "x"})
    assert producer_config({name: "x"})[name] == "x"


def test_a_protocol_that_is_forbidden_is_not_spoken():
    assert settings_of(ssl_enabled_protocols="TLSv1.3, TLSv1.2").tls is not None
    for config in (settings_of, lambda **_: producer_config({"ssl.enabled.protocols": "TLSv1.3"})):
        with pytest.raises(OptionError, match=r"ssl\.enabled\.protocols"):
            config(ssl_enabled_protocols="TLSv1.3")


# ---- for librdkafka


def test_the_sink_is_idempotent_and_partitions_as_java_does():
    config = producer_config({"bootstrap.servers": "a:1"})
    assert config["enable.idempotence"] is True
    assert config["partitioner"] == "murmur2_random"


def test_fewer_acknowledgements_end_idempotence_as_in_java():
    assert producer_config({"acks": "1"})["enable.idempotence"] is False
    assert producer_config({"acks": "-1"})["enable.idempotence"] is True
    assert producer_config({"retries": "0"})["enable.idempotence"] is False
    assert producer_config({"max.in.flight.requests.per.connection": "6"})["enable.idempotence"] is False
    assert producer_config({"max.in.flight.requests.per.connection": "5"})["enable.idempotence"] is True


@pytest.mark.parametrize(
    "given",
    [
        {"retries": "0"},
        {"max.in.flight.requests.per.connection": "10"},
        {"send.buffer.bytes": "-1", "receive.buffer.bytes": "-1", "connections.max.idle.ms": "-1"},
        {"compression.type": "zstd", "compression.zstd.level": "22", "compression.gzip.level": "9"},
        {"compression.type": "lz4", "compression.lz4.level": "17"},
        {"compression.type": "gzip", "compression.gzip.level": "-1"},
        {"metadata.max.idle.ms": "300000", "socket.connection.setup.timeout.max.ms": "30000"},
        {"sasl.login.refresh.window.factor": "0.8", "sasl.login.retry.backoff.ms": "100"},
        {"key.deserializer": "a consumer's"},
    ],
)
def test_what_javas_producer_takes_librdkafka_takes(given):
    new_producer(producer_config({"bootstrap.servers": "127.0.0.1:1", "log_level": "0", **given}))


def test_of_the_levels_of_compression_one_is_used():
    levels = {"compression.gzip.level": "9", "compression.zstd.level": "3"}
    assert producer_config({**levels, "compression.type": "zstd"})["compression.level"] == 3
    assert "compression.level" not in producer_config(levels)


def test_javas_names_become_those_of_librdkafka():
    config = producer_config(
        {
            "sasl.mechanism": "SCRAM-SHA-512",
            "sasl.jaas.config": "org.apache.kafka.common.security.scram.ScramLoginModule required\n"
            ' username="an" password="a \\"b\\" ;=";',
            "ssl.truststore.type": "PEM",
            "ssl.truststore.location": "ca.pem",
            "ssl.keystore.location": "me.p12",
            "ssl.keystore.password": "p",
            "ssl.endpoint.identification.algorithm": "",
            "max.request.size": "5000000",
            "group.id": "a consumer's",
            "compression.type": "zstd",
        }
    )
    assert config["sasl.username"] == "an"
    assert config["sasl.password"] == 'a "b" ;='
    assert config["ssl.ca.location"] == "ca.pem"
    assert config["ssl.keystore.location"] == "me.p12"
    assert config["ssl.endpoint.identification.algorithm"] == "none"
    assert config["message.max.bytes"] == "5000000"
    assert config["compression.type"] == "zstd"
    assert not {"sasl.jaas.config", "ssl.truststore.location", "group.id"} & config.keys()


def test_what_waits_to_be_sent_is_bounded_as_in_java():
    assert producer_config({})["queue.buffering.max.kbytes"] == 32 * 1024 + 1
    assert producer_config({"buffer.memory": "2048000"})["queue.buffering.max.kbytes"] == 2001
    assert producer_config({"queue.buffering.max.kbytes": "77"})["queue.buffering.max.kbytes"] == "77"
    largest = producer_config({"buffer.memory": "1024", "max.request.size": "50000000"})
    assert 1024 * int(largest["queue.buffering.max.kbytes"]) >= 50_000_000
    with pytest.raises(OptionError, match=r"'kafka.buffer.memory': is a number of bytes, not 'x'"):
        producer_config({"buffer.memory": "x"})


@pytest.mark.parametrize(
    "wrong",
    [
        {"ssl.truststore.location": "ca.jks"},
        {"ssl.keystore.type": "JKS", "ssl.keystore.location": "me.pem"},
        {"sasl.jaas.config": "com.sun.security.auth.module.Krb5LoginModule required;"},
        {"sasl.jaas.config": 'PlainLoginModule required username="u";'},
        {"sasl.login.callback.handler.class": "com.example.Handler"},
    ],
)
def test_what_would_weaken_security_if_left_out_is_refused(wrong):
    with pytest.raises(OptionError) as caught:
        producer_config(wrong)
    assert caught.value.option.removeprefix("kafka.") in wrong


def test_a_misspelled_property_of_the_sink_is_reported():
    with pytest.raises(OptionError, match=r"'kafka.linger.mss': .*did you mean 'kafka.linger.ms'"):
        sink_options({"kafka.bootstrap.servers": "a:1", "kafka.linger.mss": "5"})


def test_every_property_that_is_dealt_with_is_known():
    for key in (*librdkafka.RENAMED, *librdkafka.LEFT_OUT, *librdkafka.SPECIAL, *librdkafka.DEFAULTS):
        assert unknown_property(key) is None, key


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        ({"transactional": "yes"}, "'transactional': is 'true' or 'false'"),
        ({"kafka.transactional.id": "mine"}, "'kafka.transactional.id': is not supported.*'transactional'"),
        ({"topics": "t"}, "'topics': is unknown.*did you mean 'topic'"),
    ],
)
def test_a_mistake_in_the_sinks_options(wrong, says):
    with pytest.raises(OptionError, match=says):
        sink_options({"kafka.bootstrap.servers": "a:1", **wrong})
