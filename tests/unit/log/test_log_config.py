"""Topic configs: Kafka's names and defaults, typed, with errors that say what is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from data_plane.log.config import LogConfig
from data_plane.log_manager.log_configs import LogConfigs
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.foundation.topic_configs import TOPIC_CONFIGS
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import ConfigRecord

ELSEWHERE = {
    "follower.replication.throttled.replicas",
    "internal.segment.bytes",
    "leader.replication.throttled.replicas",
    "remote.log.copy.disable",
    "remote.log.delete.on.disable",
    "remote.storage.enable",
}
"""Keys that the controller takes and no log has a use for."""


def test_fields_are_the_keys_of_the_one_table():
    fields = {f.name.replace("_", ".") for f in dataclasses.fields(LogConfig)}
    assert fields == TOPIC_CONFIGS.keys() - ELSEWHERE
    for field in dataclasses.fields(LogConfig):
        key = TOPIC_CONFIGS[field.name.replace("_", ".")]
        assert field.default == key.parse(key.default)


def test_overrides_over_the_brokers_defaults():
    base = LogConfig(retention_ms=1, segment_bytes=2_000_000)
    config = LogConfig.from_map({"retention.ms": "5", "cleanup.policy": "compact, delete"}, base)
    assert (config.retention_ms, config.segment_bytes) == (5, 2_000_000)
    assert config.compact
    assert config.delete


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.mss", "1"),
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("segment.bytes", "1000"),
        ("segment.bytes", str(2**31)),
        ("cleanup.policy", "forget"),
        ("compression.type", "brotli"),
        ("min.cleanable.dirty.ratio", "1.5"),
        ("preallocate", "maybe"),
        ("min.compaction.lag.ms", str(2**63)),
    ],
)
def test_bad_values_name_the_key(name: str, value: str):
    with pytest.raises(BrokerError, match=name) as caught:
        LogConfig.from_map({name: value})
    assert caught.value.code == ErrorCode.INVALID_CONFIG


def test_lags_that_contradict():
    with pytest.raises(BrokerError, match="conflict"):
        LogConfig.from_map({"min.compaction.lag.ms": "10", "max.compaction.lag.ms": "5"})


@pytest.mark.parametrize("key", sorted(TOPIC_CONFIGS))
def test_a_key_that_the_log_does_not_know_costs_the_others_nothing(key: str):
    """Whatever the controller takes beside them, a topic keeps its other values."""
    others = {"min.insync.replicas": "2", "cleanup.policy": "compact", "min.compaction.lag.ms": "5"}
    strange = {"from.the.future": "1", "retention.ms": "soon", "max.compaction.lag.ms": "4"}
    row = TOPIC_CONFIGS[key]
    value = {"remote.storage.enable": "true"}.get(key, row.default or "2000000")
    delta = MetadataDelta(EMPTY_IMAGE)
    for name, text in {key: value, **others, **strange}.items():
        delta.replay(
            ConfigRecord(resource_type=int(ResourceType.TOPIC), resource_name="t", name=name, value=text)
        )
    config = LogConfigs(1, LogConfig(retention_ms=7)).of(delta.apply(), "t")
    assert (config.min_insync_replicas, config.cleanup_policy) == (2, ("compact",))
    assert (config.min_compaction_lag_ms, config.retention_ms) == (0, 7)


def test_a_policy_of_another_version_removes_nothing():
    """With the broker's own in its place, a topic that is to be kept would lose its records by their age."""
    said: list[str] = []
    config = LogConfig.understood({"cleanup.policy": "archive"}, LogConfig(), said.append)
    assert not config.delete
    assert not config.compact
    assert len(said) == 1


def test_a_brokers_bad_default_costs_the_others_nothing():
    delta = MetadataDelta(EMPTY_IMAGE)
    for name, text in {"log.retention.ms": "soon", "log.segment.bytes": "2000000"}.items():
        delta.replay(
            ConfigRecord(resource_type=int(ResourceType.BROKER), resource_name="", name=name, value=text)
        )
    configs = LogConfigs(1, LogConfig())
    configs.take_defaults(delta.apply())
    assert configs.defaults == LogConfig(segment_bytes=2_000_000)


def test_topics_without_values_of_their_own_share_the_defaults():
    """Ten thousand that are alike would take the loop 0.1 s to make, at every change of the defaults."""
    configs = LogConfigs(1, LogConfig())
    assert configs.of(EMPTY_IMAGE, "t") is configs.of(EMPTY_IMAGE, "u") is configs.defaults


def _image(base: MetadataImage, topic: str, **values: str | None) -> MetadataImage:
    delta = MetadataDelta(base)
    for name, text in values.items():
        delta.replay(
            ConfigRecord(
                resource_type=int(ResourceType.TOPIC),
                resource_name=topic,
                name=name.replace("_", "."),
                value=text,
            )
        )
    return delta.apply()


def test_a_topics_values_are_understood_once_for_all_its_partitions():
    """With two lists of 32 KiB, once for each of 500 partitions took the loop three seconds."""
    image = _image(EMPTY_IMAGE, "t", retention_ms="5")
    configs = LogConfigs(1, LogConfig())
    first = configs.of(image, "t")
    assert configs.of(_image(image, "u", retention_ms="6"), "t") is first
    changed = configs.of(_image(image, "t", segment_bytes="2000000"), "t")
    assert (changed.retention_ms, changed.segment_bytes) == (5, 2_000_000)
    assert configs.of(image, "t") == first
    assert configs.of(_image(image, "t", retention_ms=None), "t") is configs.defaults


def test_what_a_topic_has_of_the_defaults_changes_with_them():
    image = _image(EMPTY_IMAGE, "t", retention_ms="5")
    configs = LogConfigs(1, LogConfig())
    assert configs.of(image, "t") == LogConfig(retention_ms=5)
    delta = MetadataDelta(image)
    delta.replay(
        ConfigRecord(
            resource_type=int(ResourceType.BROKER),
            resource_name="",
            name="log.segment.bytes",
            value="2000000",
        )
    )
    after = delta.apply()
    assert configs.changed_by(delta, after) is None
    assert configs.of(after, "t") == LogConfig(retention_ms=5, segment_bytes=2_000_000)


def test_lists_of_throttled_replicas_are_no_logs():
    """They are the quotas'; and nothing is said of them."""
    values = dict.fromkeys(
        ("leader.replication.throttled.replicas", "follower.replication.throttled.replicas"), "*"
    )
    said: list[str] = []
    assert LogConfig.understood(values, LogConfig(), said.append) == LogConfig()
    assert said == []
