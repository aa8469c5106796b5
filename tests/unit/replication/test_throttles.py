"""Replicas that catch up are held to a rate; what is in sync goes on as fast as ever. In virtual time."""

from __future__ import annotations

import asyncio
import re
from dataclasses import replace
from types import SimpleNamespace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from data_plane.quotas import replication
from data_plane.quotas.rates import QuotaWindow
from data_plane.quotas.replication import ReplicationQuota
from fetch.follower_session import FetchLimits
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.foundation.topic_configs import (
    FOLLOWER_THROTTLED_RATE,
    FOLLOWER_THROTTLED_REPLICAS,
    LEADER_THROTTLED_RATE,
    LEADER_THROTTLED_REPLICAS,
)
from metadata_quorum.metadata.records import ConfigRecord, PartitionChangeRecord
from tests.support.virtual_loop import run_virtually
from tests.unit.replication.cluster import Cluster, produce_outcome

pytestmark = pytest.mark.row("R12")

TP = TopicPartition("t", 0)
RATE = 100_000
BACKLOG = 1_000_000
LIMITS = replace(FetchLimits(), partition_max_bytes=50_000)


def _set(cluster: Cluster, kind: ResourceType, resource: str, name: str, value: str | None) -> None:
    cluster.commit(ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))


async def _joined(cluster: Cluster, broker: int) -> float:
    """Seconds until it is in sync, while acks=all is answered at once."""
    began = cluster.loop.time()
    while broker not in cluster.isr():
        asked = cluster.loop.time()
        assert await produce_outcome(cluster, b"by the way") == ErrorCode.NONE
        assert cluster.loop.time() - asked < 0.1, "a replica in sync was held back"
        await asyncio.sleep(0.5)
    return cluster.loop.time() - began


def _add(cluster: Cluster, broker: int) -> None:
    topic_id = cluster.image.topics_by_name["t"].id
    change = PartitionChangeRecord(
        partition_id=0, topic_id=topic_id, replicas=(1, 2, broker), adding_replicas=(broker,)
    )
    cluster.commit(change)


@pytest.mark.parametrize(
    ("key", "rate", "broker"),
    [
        (LEADER_THROTTLED_REPLICAS, LEADER_THROTTLED_RATE, 1),
        (FOLLOWER_THROTTLED_REPLICAS, FOLLOWER_THROTTLED_RATE, 3),
    ],
)
@pytest.mark.parametrize("replicas", ["named", "*"])
def test_who_catches_up_is_held_to_the_rate(key: str, rate: str, broker: int, replicas: str) -> None:
    async def run() -> None:
        async with Cluster(limits=LIMITS) as cluster:
            cluster.create_topic("t", [[1, 2]])
            for _ in range(20):
                assert await produce_outcome(cluster, b"x" * (BACKLOG // 20)) == ErrorCode.NONE
            _set(cluster, ResourceType.BROKER, str(broker), rate, str(RATE))
            _set(cluster, ResourceType.TOPIC, "t", key, replicas if replicas == "*" else f"0:{broker},7:2")
            _add(cluster, 3)
            assert BACKLOG / RATE - 2 < await _joined(cluster, 3) < BACKLOG / RATE + 5

    run_virtually(run())


def test_unbound_partitions_and_lifted_limits_go_at_full_speed() -> None:
    async def run() -> None:
        async with Cluster(limits=LIMITS) as cluster:
            cluster.create_topic("t", [[1, 2]])
            for _ in range(20):
                assert await produce_outcome(cluster, b"x" * (BACKLOG // 20)) == ErrorCode.NONE
            _set(cluster, ResourceType.BROKER, "", LEADER_THROTTLED_RATE, "1000")
            _set(cluster, ResourceType.TOPIC, "t", LEADER_THROTTLED_REPLICAS, "0:2,1:1")  # not this leader's
            _add(cluster, 3)
            assert await _joined(cluster, 3) < 2

    run_virtually(run())


def test_a_limit_that_is_lifted_binds_no_longer() -> None:
    quota = ReplicationQuota()
    quota.bind("t", "0:7, 1:8", 7)
    assert not quota.binds(TP)
    quota.configure(10.0)
    assert quota.binds(TP)
    assert not quota.binds(TopicPartition("t", 1))
    quota.record(1000, 5.0)
    assert quota.exceeded(5.0)
    quota.configure(None)
    assert not quota.binds(TP)
    assert not quota.exceeded(5.0)
    quota.configure(10.0)
    quota.bind("t", "", 7)
    assert not quota.binds(TP)


@given(
    st.floats(10, 1e6),
    st.lists(st.tuples(st.floats(0, 3), st.floats(0, 3)), min_size=1, max_size=60),
)
def test_who_pauses_as_requested_keeps_the_rate(limit: float, sends: list[tuple[float, float]]) -> None:
    """Whatever comes (sizes are in seconds of the rate): over the whole time it is about the limit."""
    quota = ReplicationQuota(QuotaWindow())
    quota.configure(limit)
    now = began = 100.0
    sent = last = 0
    for seconds, gap in sends:
        now += gap
        while (pause := quota.pause_s(now)) > 0:
            now += pause
        assert sent - last <= limit * (1.1 * (now - began) + 3)
        last = int(seconds * limit)
        quota.record(last, now)
        sent += last


@given(
    st.lists(
        st.tuples(st.integers(0, 30), st.sampled_from([1, 7, 17, 77]), st.sampled_from(["", " ", "0"])),
        min_size=1,
        max_size=30,
    )
)
def test_a_list_binds_the_brokers_own_replicas(replicas: list[tuple[int, int, str]]) -> None:
    quota = ReplicationQuota()
    quota.configure(10.0)
    texts = [f"{pad}{number}:{broker}{pad.strip('0')}" for number, broker, pad in replicas]
    quota.bind("t", ",".join(texts), 7)
    own = {number for number, broker, _ in replicas if broker == 7}
    assert {number for number in range(31) if quota.binds(TopicPartition("t", number))} == own


@pytest.mark.pure("what is counted is called from compiled code")
def test_a_list_is_understood_once_and_where_nothing_is_limited_never(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One of thousands of replicas takes a millisecond or two; and with each change of another key of the
    topic its list is heard of again."""
    understood: list[str] = []

    def findall(pattern: str, text: str) -> list[str]:
        understood.append(text)
        return re.findall(pattern, text)

    monkeypatch.setattr(replication, "re", SimpleNamespace(findall=findall))
    quota = ReplicationQuota()
    quota.bind("t", "0:7,1:8", 7)
    assert not quota.binds(TP)
    assert understood == []
    quota.configure(10.0)
    for _ in range(3):
        quota.bind("t", "0:7,1:8", 7)
        assert quota.binds(TP)
    assert understood == ["0:7,1:8"]
    quota.bind("t", "1:7", 7)
    assert not quota.binds(TP)
    assert understood == ["0:7,1:8", "1:7"]
