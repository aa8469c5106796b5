"""Topic configs: Kafka's names and defaults, typed, with errors that say what is wrong."""

from __future__ import annotations

import dataclasses

import pytest

from data_plane.log.config import TOPIC_CONFIGS, LogConfig
from metadata_quorum.errors import BrokerError, ErrorCode


def test_every_field_has_its_row():
    assert {key.field for key in TOPIC_CONFIGS.values()} == {f.name for f in dataclasses.fields(LogConfig)}


def test_overrides_over_the_brokers_defaults():
    base = LogConfig(retention_ms=1, segment_bytes=2_000_000)
    config = LogConfig.from_map({"retention.ms": "5", "cleanup.policy": "compact, delete"}, base)
    assert (config.retention_ms, config.segment_bytes) == (5, 2_000_000)
    assert config.compact
    assert config.delete


def test_to_map_and_back():
    assert LogConfig.from_map(LogConfig().to_map()) == LogConfig()
    assert LogConfig().to_map()["unclean.leader.election.enable"] == "false"


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("retention.mss", "1"),
        ("retention.ms", "-2"),
        ("retention.ms", "soon"),
        ("segment.bytes", "1000"),
        ("segment.bytes", str(2**31)),
        ("cleanup.policy", "forget"),
        ("cleanup.policy", ""),
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
