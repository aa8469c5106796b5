"""What is done from time to time looks at the replicas that have changed: many that rest cost nothing."""

from __future__ import annotations

import errno
from collections.abc import Mapping

import pytest

from data_plane.log import checkpoints
from data_plane.replication.leader_state import FetchClock
from data_plane.replication.partition import Partition
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import NO_EPOCH
from metadata_quorum.metadata.records import RemoveTopicRecord
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, boundary_of, in_loop, produce_outcome, until

PARTITIONS = 5


def checked(cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The partitions of broker 1 whose ISRs a check looks at."""
    numbers: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(Partition, "maybe_shrink_isr", lambda self, now: numbers.append(self.tp.partition))
        cluster.brokers[1].partitions.maybe_shrink_isr()
    return sorted(numbers)


async def settled(cluster: Cluster) -> None:
    """Every follower has told that it has all."""
    replicas = [cluster.leader("t", number) for number in range(PARTITIONS)]
    await until(lambda: all(replica.is_settled for replica in replicas))
    cluster.brokers[1].partitions.maybe_shrink_isr()


@pytest.mark.row("R3")
@in_loop
async def test_isrs_are_checked_where_something_was_appended(monkeypatch):
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * PARTITIONS)
        assert checked(cluster, monkeypatch) == [0, 1, 2, 3, 4]  # new leaders
        await settled(cluster)
        assert checked(cluster, monkeypatch) == []
        needed = cluster.produce(b"x", number=3)
        await until(lambda: cluster.leader("t", 3).high_watermark == needed)
        assert checked(cluster, monkeypatch) == [3]
        assert checked(cluster, monkeypatch) == []  # its followers have that record


@pytest.mark.row("R3")
@in_loop
async def test_isrs_are_checked_where_a_follower_is_missing_or_lags(monkeypatch):
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * PARTITIONS)
        await settled(cluster)
        cluster.cuts.add((3, 1))
        for endpoint in cluster.brokers[3].endpoints:
            endpoint.break_off()
        cluster.produce(b"x", number=2)
        for _ in range(2):
            assert checked(cluster, monkeypatch) == [2]
        cluster.fence(3)  # it leaves every ISR
        for _ in range(2):
            assert checked(cluster, monkeypatch) == [0, 1, 2, 3, 4]


@pytest.mark.row("R3")
@in_loop
async def test_an_isr_is_checked_whose_follower_has_fallen_back(monkeypatch):
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * PARTITIONS)
        assert await produce_outcome(cluster, b"x") == ErrorCode.NONE
        await settled(cluster)
        leader = cluster.leader()
        leader.follower_fetched(2, NO_EPOCH, 0, 0, FetchClock(0.0), 0.0)
        assert checked(cluster, monkeypatch) == [0]


def offsets(cluster: Cluster, name: str) -> Mapping[int, int]:
    """Of a checkpoint, by partition."""
    found = checkpoints.read_offsets(cluster.disks[1], f"/data/{name}", MAY_BLOCK)
    return {tp.partition: offset for tp, offset in found.items()}


@pytest.mark.row("R8")
@in_loop
async def test_checkpoints_take_what_has_moved_and_keep_the_rest():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]] * PARTITIONS)
        partitions = cluster.brokers[1].partitions
        for number in range(PARTITIONS):
            cluster.produce(b"x", number=number)
        await partitions.checkpoints.write_uncheckpointed()
        assert offsets(cluster, checkpoints.REPLICATION_OFFSETS) == dict.fromkeys(range(PARTITIONS), 1)
        assert offsets(cluster, checkpoints.LOG_START_OFFSETS) == {}
        cluster.produce(b"y", number=3)
        cluster.replica(1, number=2).delete_records(1)
        await partitions.checkpoints.write_uncheckpointed()
        assert offsets(cluster, checkpoints.REPLICATION_OFFSETS) == {0: 1, 1: 1, 2: 1, 3: 2, 4: 1}
        assert offsets(cluster, checkpoints.LOG_START_OFFSETS) == {2: 1}
        cluster.replica(1, number=2).log.truncate_fully_and_start_at(0)
        cluster.replica(1, number=2).after_truncation()
        await partitions.checkpoints.write_uncheckpointed()
        assert offsets(cluster, checkpoints.LOG_START_OFFSETS) == {}
        cluster.create_topic("u", [[1]])
        cluster.produce(b"z", topic="u")
        await partitions.checkpoints.write_uncheckpointed()
        assert (
            len(checkpoints.read_offsets(cluster.disks[1], "/data/replication-offset-checkpoint", MAY_BLOCK))
            == 6
        )


@pytest.mark.row("R8")
@in_loop
async def test_recovery_points_are_written_when_a_flush_has_raised_one():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]] * PARTITIONS)
        partitions = cluster.brokers[1].partitions
        cluster.produce(b"x", number=1)
        await partitions.checkpoints.write(everything=True)
        assert offsets(cluster, checkpoints.RECOVERY_POINTS)[1] == 0
        partitions.executor.flush(cluster.replica(1, number=1))
        await until(lambda: cluster.replica(1, number=1).log.recovery_point == 1)
        partitions.checkpoints.write_all_soon()
        await until(lambda: offsets(cluster, checkpoints.RECOVERY_POINTS)[1] == 1)


@pytest.mark.parametrize("path", ["replication-offset", "log-start-offset", "cleaner-offset"])
@pytest.mark.parametrize("writes_before", range(2))
@in_loop
async def test_what_could_not_be_written_is_written_the_next_time(path: str, writes_before: int):
    async with Cluster(1) as cluster:
        boundary_of(cluster)
        cluster.create_topic("t", [[1]] * PARTITIONS)
        partitions = cluster.brokers[1].partitions
        for _ in range(writes_before):
            await partitions.checkpoints.write_uncheckpointed()
        cluster.produce(b"x", number=3)
        log = cluster.replica(1, number=3).log
        cluster.replica(1, number=3).delete_records(1)
        log.cleaned_to = 1
        cluster.disks[1].fail("open", errno.EMFILE, path_part=path, count=1)
        await partitions.checkpoints.write_uncheckpointed()
        cluster.disks[1].heal()
        partitions.checkpoints.write_soon()
        await until(lambda: offsets(cluster, checkpoints.CLEANED_TO) == {3: 1})
        assert offsets(cluster, checkpoints.REPLICATION_OFFSETS)[3] == 1
        assert offsets(cluster, checkpoints.LOG_START_OFFSETS) == {3: 1}


@in_loop
async def test_nothing_is_written_while_nothing_moves():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        partitions = cluster.brokers[1].partitions
        await partitions.checkpoints.write(everything=True)
        await until(lambda: partitions.background.idle)
        partitions.checkpoints.write_soon()
        partitions.checkpoints.write_all_soon()
        assert partitions.background.idle
        cluster.commit(RemoveTopicRecord(topic_id=topic_id))
        assert not partitions.background.idle
        await until(lambda: offsets(cluster, checkpoints.REPLICATION_OFFSETS) == {})
