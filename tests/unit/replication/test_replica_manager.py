"""A broker's partitions and their directories: starting, stopping, and what metadata does to them."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any

import pytest

from chaos.sim.replication_checks import check_offsets
from data_plane.log.config import LogConfig
from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult
from data_plane.replication.replica_manager import ReplicaManagerConfig
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE
from metadata_quorum.metadata.records import ConfigRecord, PartitionChangeRecord, RemoveTopicRecord
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Broker, Cluster, boundary_of, in_loop, produce_outcome, until
from tests.unit.replication.durable_follower import (
    checkpointed,
    follower_with_three_durable_records,
)

OFFSETS = ("replication-offset", "recovery-point-offset", "log-start-offset")


@pytest.mark.row("R8")
@in_loop
async def test_a_clean_stop_leaves_checkpoints_and_a_mark_and_the_next_start_takes_them():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        for _ in range(3):
            await produce_outcome(cluster, b"x")
        await cluster.brokers[1].close()
        disk = cluster.disks[1]
        assert disk.exists("/data/.kafka_cleanshutdown")
        for name in ("replication-offset", "recovery-point-offset"):
            assert disk.read_bytes(f"/data/{name}-checkpoint", MAY_BLOCK).decode().splitlines()[2] == "t 0 3"
        cluster.brokers.clear()
        cluster.start(1)
        assert not disk.exists("/data/.kafka_cleanshutdown")
        assert cluster.replica(1).high_watermark == 3


@pytest.mark.row("R8")
@pytest.mark.parametrize("stops", [True, False])
@in_loop
async def test_a_node_that_is_stopped_before_it_has_opened_its_logs_says_nothing_of_them(stops: bool):
    """As in KAFKA-15375. The signal comes while the node is being made."""
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        for _ in range(3):
            await produce_outcome(cluster, b"x")
        cluster.leader().delete_records(2)
        await cluster.brokers[1].partitions.checkpoints.write(everything=True)
        await until(lambda: not cluster.leader().log.unidentified)
        if stops:
            await cluster.brokers.pop(1).close()
        else:
            await cluster.crash(1)
        disk = cluster.disks[1]
        names = [".kafka_cleanshutdown", *(f"{kind}-checkpoint" for kind in OFFSETS)]
        before = [disk.exists(f"/data/{n}") and disk.read_bytes(f"/data/{n}", MAY_BLOCK) for n in names]
        await Broker(cluster, 1, disk).close()
        assert [
            disk.exists(f"/data/{n}") and disk.read_bytes(f"/data/{n}", MAY_BLOCK) for n in names
        ] == before
        cluster.start(1)
        assert cluster.replica(1).log.log_start_offset == 2


@in_loop
async def test_what_metadata_does_not_place_here_is_set_aside_not_deleted():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        await produce_outcome(cluster, b"x")
        await cluster.crash(1)
        cluster.image = EMPTY_IMAGE
        broker = cluster.start(1)
        broker.partitions.applier.remove_stray_replicas(cluster.image)
        (name,) = [n for n in cluster.disks[1].list("/data", MAY_BLOCK) if n.startswith("t-0")]
        assert name.endswith("-stray")


@in_loop
async def test_a_name_as_long_as_the_limit_is_set_aside_and_deleted():
    name = "n" * 249
    async with Cluster(1, log_defaults=replace(LogConfig(), file_delete_delay_ms=60_000)) as cluster:
        cluster.create_topic("stray" + "s" * 244, [[1]])
        topic_id = cluster.create_topic(name, [[1] for _ in range(11)])
        cluster.delete_topic(topic_id)
        left = [n for n in cluster.disks[1].list("/data", MAY_BLOCK) if n.startswith("nnn")]
        assert len(left) == 11
        assert all(n.endswith("-delete") and len(n) == 255 for n in left)
        assert cluster.brokers[1].dirs[0].online
        await cluster.crash(1)
        cluster.image = EMPTY_IMAGE
        broker = cluster.start(1)
        assert not [n for n in cluster.disks[1].list("/data", MAY_BLOCK) if n.startswith("nnn")]
        broker.partitions.applier.remove_stray_replicas(cluster.image)
        assert broker.dirs[0].online
        (stray,) = [n for n in cluster.disks[1].list("/data", MAY_BLOCK) if n.startswith("stray")]
        assert stray.endswith("-stray")


@in_loop
async def test_a_partition_whose_name_no_directory_can_have_harms_no_other():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        tp = TopicPartition("n" * 249, 100_000)
        with pytest.raises(BrokerError):
            cluster.brokers[1].dirs[0].open_log(tp, None, LogConfig(), cluster.now_ms, MAY_BLOCK)
        assert await produce_outcome(cluster, b"x") == ErrorCode.NONE


@in_loop
async def test_a_log_is_truncated_once_the_checkpoint_no_longer_vouches_for_what_is_cut_off():
    async with Cluster(2) as cluster:
        follower = await follower_with_three_durable_records(cluster)
        outcomes: list[tuple[bool, int, str]] = []
        follower.truncate_to(
            2, lambda done: outcomes.append((done, follower.log.log_end_offset, checkpointed(cluster)))
        )
        assert follower.log.log_end_offset == 3
        await until(lambda: outcomes)
        assert outcomes == [(True, 2, "t 0 0")]


@in_loop
async def test_a_flush_vouches_for_nothing_that_is_going_to_be_truncated():
    async with Cluster(2) as cluster:
        follower = await follower_with_three_durable_records(cluster)
        outcomes: list[bool] = []
        follower.truncate_to(2, outcomes.append)
        work = follower.log.prepare_flush()
        assert work is not None
        work.run(MAY_BLOCK)
        follower.log.flush_done(work)
        assert follower.log.recovery_point == 0
        await until(lambda: outcomes == [True])


@in_loop
async def test_whoever_leads_meanwhile_truncates_nothing():
    async with Cluster(2) as cluster:
        follower = await follower_with_three_durable_records(cluster)
        outcomes: list[bool] = []
        follower.truncate_to(2, outcomes.append)
        cluster.elect("t", 0, 2)
        await until(lambda: outcomes == [False])
        assert follower.leader is not None
        assert follower.log.log_end_offset == 3
        cluster.brokers[2].partitions.executor.flush(follower)
        await until(lambda: follower.log.recovery_point == 3)


@in_loop
async def test_without_the_checkpoint_nothing_is_truncated():
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        follower = await follower_with_three_durable_records(cluster)
        outcomes: list[bool] = []
        cluster.disks[2].fail("open", errno.EMFILE, path_part="recovery-point")
        follower.truncate_to(2, outcomes.append)
        await until(lambda: outcomes == [False])
        assert follower.log.log_end_offset == 3
        follower.truncate_to(2, outcomes.append)
        await until(lambda: outcomes == [False, True])
        assert follower.log.log_end_offset == 2


@in_loop
async def test_what_an_earlier_process_wrote_is_synced_again_before_flush_messages_one_counts_it():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]], flush_messages="1")
        for _ in range(3):
            assert await produce_outcome(cluster, b"x") == ErrorCode.NONE
        await cluster.crash(1)
        cluster.start(1)
        partition = cluster.replica(1)
        assert partition.high_watermark < 3, "what the page cache shows is not durable"
        await until(lambda: partition.high_watermark == 3)


@in_loop
async def test_a_follower_asks_for_more_only_when_what_it_has_is_durable_where_flush_messages_is_one():
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]], flush_messages="1")
        for _ in range(3):
            assert await produce_outcome(cluster, b"x") == ErrorCode.NONE
        await cluster.crash(2)
        broker = cluster.start(2)
        log = cluster.replica(2).log
        assert (log.recovery_point, log.log_end_offset) == (0, 3)
        assert len(broker.fetchers) == 0
        await until(lambda: len(broker.fetchers) == 1)
        assert log.recovery_point == 3


@in_loop
async def test_records_deleted_inside_an_open_transaction_leave_the_stable_offset_at_the_start():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        partition = cluster.leader()
        begun = encode_batch(
            [Record(value=b"x", timestamp=cluster.now_ms)],
            producer_id=7, producer_epoch=0, base_sequence=0, transactional=True,
        )  # fmt: skip
        partition.append_as_leader(bytearray(begun), acks=1, now=0.0, now_ms=cluster.now_ms)
        for _ in range(2):
            await produce_outcome(cluster, b"y")
        assert partition.last_stable_offset == 0
        assert partition.delete_records(2) == 2
        assert partition.last_stable_offset == 2
        check_offsets(partition)


@in_loop
async def test_a_replica_moved_away_is_removed():
    async with Cluster(2, log_defaults=replace(LogConfig(), file_delete_delay_ms=0)) as cluster:
        topic_id = cluster.create_topic("t", [[1, 2]])
        await produce_outcome(cluster, b"x")
        cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1,), replicas=(1,)))
        with pytest.raises(BrokerError) as refused:
            cluster.replica(2)
        assert refused.value.code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        await until(lambda: not [n for n in cluster.disks[2].list("/data", MAY_BLOCK) if n.startswith("t-0")])
        assert await produce_outcome(cluster, b"y") == ErrorCode.NONE


@in_loop
async def test_topic_and_broker_wide_configs_reach_the_logs():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]], retention_ms="5000")
        cluster.create_topic("u", [[1]])
        assert cluster.replica(1).log.config.retention_ms == 5000
        cluster.commit(
            ConfigRecord(resource_type=4, resource_name="", name="min.insync.replicas", value="2"),
            ConfigRecord(resource_type=2, resource_name="u", name="segment.bytes", value="2000000"),
        )
        assert cluster.replica(1).log.config.min_insync_replicas == 2
        assert cluster.replica(1).log.config.retention_ms == 5000
        assert cluster.replica(1, "u").log.config.segment_bytes == 2_000_000
        cluster.commit(ConfigRecord(resource_type=2, resource_name="t", name="retention.ms", value=None))
        assert cluster.replica(1).log.config.retention_ms == LogConfig().retention_ms


@pytest.mark.row("L3")
@in_loop
async def test_the_sweep_removes_old_segments_and_notifies_readers():
    async with Cluster(1) as cluster:
        config = {"segment_bytes": "1048576", "retention_ms": "1000", "file_delete_delay_ms": "0"}
        cluster.create_topic("t", [[1]], **config)
        for _ in range(3):
            await produce_outcome(cluster, b"x" * 600_000)
        partition = cluster.replica(1)
        cluster.now_ms += 5000
        cluster.brokers[1].partitions.sweeps.apply_retention()
        assert partition.log.log_start_offset == 3
        await until(lambda: not [n for n in cluster.disks[1].list("/data/t-0", MAY_BLOCK) if "deleted" in n])


@pytest.mark.row("L7")
@in_loop
async def test_a_partition_that_is_corrupt_in_its_middle_stays_offline_alone():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1], [1]])
        for number in (0, 1):
            for _ in range(3):
                cluster.produce(b"x" * 100, number=number)
        await cluster.crash(1)
        cluster.disks[1].flip_bit("/data/t-0/00000000000000000000.log", 250)
        broker = cluster.start(1)
        with pytest.raises(BrokerError) as refused:
            broker.partitions.get("t", 0)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        with pytest.raises(BrokerError) as refused:
            broker.partitions.get_by_id(cluster.image.topics_by_name["t"].id, 0)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert broker.partitions.get("t", 1).log.log_end_offset == 3


@in_loop
async def test_a_log_that_could_not_be_opened_is_checked_again_after_a_clean_stop():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        for _ in range(3):
            await produce_outcome(cluster, b"x" * 50)
        await until(lambda: not cluster.leader().log.unidentified)
        path = cluster.leader().log.segments[0].path
        size = cluster.leader().log.size // 3
        await cluster.crash(1)
        cluster.disks[1].flip_bit(path, size + size // 2)
        for _ in range(2):
            broker = cluster.start(1)
            with pytest.raises(BrokerError) as refused:
                cluster.replica(1)
            assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
            await cluster.brokers.pop(1).partitions.close(broker_epoch=7)
        broker = cluster.start(1)
        assert broker.partitions.logs.previous_broker_epoch == -1


@in_loop
async def test_isr_changes_of_many_partitions_go_in_one_request():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * 20)
        for number in range(20):
            needed = cluster.produce(b"x", number=number)
            await until(lambda n=number, o=needed: cluster.leader("t", n).high_watermark == o)
        await cluster.crash(3)
        cluster.fence(3)
        requests: list[int] = []
        answer = cluster.brokers[1].alter_partitions

        async def counted(items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
            requests.append(len(items))
            return await answer(items)

        cluster.brokers[1].alter_partitions = counted
        cluster.start(3)
        await until(lambda: all(len(cluster.isr("t", n)) == 3 for n in range(20)))
        assert sum(requests) == 20
        assert len(requests) <= 3


@in_loop
async def test_the_same_metadata_twice_changes_nothing():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]])
        await produce_outcome(cluster, b"x")
        for broker in cluster.brokers.values():
            changes = broker.partitions.applier.apply(
                MetadataDelta.between(EMPTY_IMAGE, cluster.image), cluster.image
            )
            assert (changes.leading, changes.following, changes.removed) == ([], [], [])
        assert await asyncio.wait_for(produce_outcome(cluster, b"y"), 60) == ErrorCode.NONE


@in_loop
async def test_checkpoints_are_written_one_after_another():
    """Two that overlap would take each other's temporary file away, and the log dir offline."""
    running = most = 0

    async def slowly(broker: Broker, work: Callable[[Any], Any]) -> Any:
        nonlocal running, most
        running += 1
        most = max(most, running)
        for _ in range(5):
            await asyncio.sleep(0)
        done = work(MAY_BLOCK)
        running -= 1
        return done

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Broker, "blocking", slowly)
        cluster = Cluster(1)
    async with cluster:
        cluster.create_topic("t", [[1]])
        partitions = cluster.brokers[1].partitions
        await until(lambda: most == 1 and running == 0, "the new directory is settled")
        await asyncio.gather(partitions.checkpoints.write(), partitions.checkpoints.write(everything=True))
        assert most == 1


@in_loop
async def test_a_deleted_topics_offsets_do_not_outlive_it_in_the_checkpoints():
    """A new topic of that name would begin, after a crash, at the old one's log start."""
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        for _ in range(5):
            await produce_outcome(cluster, b"x")
        partitions = cluster.brokers[1].partitions
        cluster.replica(1).delete_records(5)
        await partitions.checkpoints.write(everything=True)
        assert b"t 0 5" in cluster.disks[1].read_bytes("/data/log-start-offset-checkpoint", MAY_BLOCK)
        cluster.commit(RemoveTopicRecord(topic_id=topic_id))
        cluster.create_topic("t", [[1]])
        assert await produce_outcome(cluster, b"new") == ErrorCode.NONE
        await until(
            lambda: (
                b"t 0 5" not in cluster.disks[1].read_bytes("/data/log-start-offset-checkpoint", MAY_BLOCK)
            )
        )
        await cluster.crash(1)
        cluster.start(1)
        assert (cluster.replica(1).log.log_start_offset, cluster.replica(1).log.log_end_offset) == (0, 1)


@in_loop
async def test_silent_producers_are_forgotten():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        records = [Record(value=b"x", timestamp=cluster.now_ms)]
        cluster.replica(1).append_as_leader(
            bytearray(encode_batch(records, producer_id=7, producer_epoch=0, base_sequence=0)),
            acks=1, now=0.0, now_ms=cluster.now_ms,
        )  # fmt: skip
        sweep = cluster.brokers[1].partitions.expire_producers
        cluster.now_ms += 86_399_000
        sweep()
        assert list(cluster.replica(1).log.producers.states) == [7]
        cluster.now_ms += 2_000
        sweep()
        assert not cluster.replica(1).log.producers.states


@in_loop
async def test_the_epoch_of_a_clean_stop_is_known_until_something_may_be_lost():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        assert cluster.brokers[1].partitions.logs.previous_broker_epoch == -1
        await cluster.brokers.pop(1).partitions.close(broker_epoch=42)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == 42
        await cluster.brokers.pop(1).partitions.close()  # before it was registered
        assert cluster.start(1).partitions.logs.previous_broker_epoch == 42
        await cluster.crash(1)  # as above, and the machine still runs
        assert cluster.start(1).partitions.logs.previous_broker_epoch == 42
        await cluster.crash(1)
        cluster.boot_id = "second boot"
        assert cluster.start(1).partitions.logs.previous_broker_epoch == -1


@pytest.mark.row("R8")
@in_loop
async def test_a_killed_process_has_lost_nothing_as_long_as_the_machine_runs():
    async with Cluster(1) as cluster:
        cluster.brokers[1].partitions.logs.mark_running(7)
        await cluster.crash(1)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == 7
        cluster.brokers[1].partitions.logs.mark_running(9)
        await cluster.crash(1)
        cluster.boot_id = "second boot"
        assert cluster.start(1).partitions.logs.previous_broker_epoch == -1


@in_loop
async def test_a_process_whose_disk_failed_may_have_lost_something():
    async with Cluster(1) as cluster:
        partitions = cluster.brokers[1].partitions
        partitions.logs.mark_running(7)
        partitions.log_dir_failures.fail(cluster.brokers[1].dirs[0], OSError(errno.EIO, "a failed fsync"))
        await cluster.crash(1)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == -1


@pytest.mark.row("U2")
@in_loop
async def test_the_cleaner_takes_another_interval_while_it_runs():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0")
        partitions = cluster.brokers[1].partitions
        settings = ReplicaManagerConfig(1, lag_time_max=cluster.lag_time_max, cleaner_interval=3600.0)
        partitions.configure(settings)
        partitions.start()
        log = cluster.replica(1).log
        for _ in range(2):
            keyed = encode_batch([Record(timestamp=cluster.now_ms, key=b"k", value=b"v")])
            cluster.leader().append_as_leader(
                bytearray(keyed), acks=1, now=cluster.loop.time(), now_ms=cluster.now_ms
            )
        log.roll(cluster.now_ms)
        assert log.cleaned_to == 0
        partitions.configure(replace(settings, cleaner_interval=0.01))
        await until(lambda: log.cleaned_to > 0, "it is compacted")


@in_loop
async def test_what_is_written_where_a_cleaned_log_was_truncated_counts_as_dirty_after_a_crash():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        log = cluster.replica(1).log
        for number in range(3):
            cluster.produce(b"%d" % number)
        log.cleaned_to = 3  # as a pass leaves it
        partitions = cluster.brokers[1].partitions
        await partitions.checkpoints.write()
        work = log.prepare_truncation(1)
        assert work is not None
        await partitions.checkpoints.write()  # without which it is not truncated
        await cluster.crash(1)
        cluster.start(1)
        assert cluster.replica(1).log.cleaned_to == 1
