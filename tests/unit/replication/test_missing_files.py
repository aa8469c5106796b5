"""A file that cannot be had refuses one request and fails no directory; what is made is durable later."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Sequence
from typing import Any
from uuid import UUID

import pytest

from data_plane.log import checkpoints
from data_plane.log.config import LogConfig
from data_plane.log.flush import FlushWork
from data_plane.log.partition_directory import SPARE_FILES
from data_plane.replication import delta_applier
from data_plane.replication.delta_applier import LocalReplicaChanges
from data_plane.replication.directory_assignments import ReplicaAssignment
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import LOST_DIR, TopicPartition
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.records import ConfigRecord, PartitionChangeRecord
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, boundary_of, in_loop, in_virtual_time, turns, until

SMALL_SEGMENTS = LogConfig(segment_bytes=300)


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENFILE, errno.ENAMETOOLONG, errno.EINVAL])
@in_loop
async def test_a_file_that_cannot_be_opened_refuses_one_produce_and_no_directory_fails(code):
    async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
        boundary = boundary_of(cluster)
        cluster.create_topic("t", [[1]])
        cluster.produce(b"x" * 150)
        cluster.disks[1].fail("open", code, path_part="/t-0/")
        with pytest.raises(BrokerError) as refused:
            cluster.produce(b"y" * 150)
        assert refused.value.code == ErrorCode.KAFKA_STORAGE_ERROR
        assert cluster.brokers[1].partitions.logs.dirs[0].online
        assert cluster.produce(b"y" * 150) == 2
        assert boundary.faults


@in_loop
async def test_a_sweep_that_can_have_no_new_segment_drops_nothing_and_comes_again():
    async with Cluster(1, log_defaults=LogConfig(segment_bytes=300, retention_ms=1_000)) as cluster:
        boundary = boundary_of(cluster)
        cluster.create_topic("t", [[1]])
        cluster.produce(b"x" * 150)
        cluster.now_ms += 60_000
        cluster.disks[1].fail("open", errno.EMFILE, path_part="/t-0/")
        cluster.brokers[1].partitions.sweeps.apply_retention()
        assert boundary.faults
        assert not cluster.leader().offline
        cluster.brokers[1].partitions.sweeps.apply_retention()
        assert cluster.leader().log.log_start_offset == 1


@in_loop
async def test_a_follower_without_files_comes_again():
    async with Cluster(2, log_defaults=SMALL_SEGMENTS) as cluster:
        boundary_of(cluster)
        cluster.create_topic("t", [[1, 2]])
        cluster.produce(b"x" * 150)
        await until(lambda: cluster.leader().high_watermark == 1)
        cluster.disks[2].fail("open", errno.EMFILE, path_part="/t-0/")
        cluster.produce(b"y" * 150)
        await until(lambda: cluster.leader().high_watermark == 2)
        assert cluster.brokers[2].partitions.logs.dirs[0].online


@in_loop
async def test_a_log_that_a_truncation_has_left_in_doubt_is_taken_offline_alone():
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        cluster.create_topic("bad", [[1, 2]])
        cluster.create_topic("good", [[1, 2]])
        cluster.produce(b"x", topic="bad")
        bad = cluster.replica(2, "bad")
        await until(lambda: bad.log.log_end_offset == 1)
        cluster.disks[2].fail("open", errno.EMFILE, path_part="/bad-0/", after=SPARE_FILES, count=99)
        outcomes: list[bool] = []
        bad.truncate_to(100, outcomes.append, restart=True)
        await until(lambda: outcomes == [False])
        assert bad.offline
        assert cluster.brokers[2].partitions.logs.dirs[0].online
        cluster.produce(b"x", topic="good")
        await until(lambda: cluster.replica(2, "good").log.log_end_offset == 1)


@in_loop
async def test_making_and_removing_partitions_never_waits_for_the_device_on_the_loop():
    async with Cluster(1) as cluster:
        disk = cluster.disks[1]
        waited: list[str] = []
        inside = [False]

        async def blocking(work: Any) -> None:
            await asyncio.sleep(0)
            inside[0] = True
            work(MAY_BLOCK)
            inside[0] = False

        cluster.brokers[1].executor = blocking
        for name in ("sync_dir", "write_atomic"):
            kept = getattr(disk, name)

            def noted(*args: Any, kept: Any = kept, name: str = name) -> Any:
                if not inside[0]:
                    waited.append(name)
                return kept(*args)

            setattr(disk, name, noted)
        topic_id = cluster.create_topic("t", [[1]] * 20)
        await until(lambda: disk.exists("/data/t-19/partition.metadata"))
        cluster.delete_topic(topic_id)
        await until(lambda: cluster.brokers[1].partitions.background.idle)
        assert waited == []
        assert not disk.durable_clone().exists("/data/t-0")


@in_loop
async def test_the_logs_of_many_new_partitions_are_made_ahead_and_claimed():
    async with Cluster(1) as cluster:
        partitions = cluster.brokers[1].partitions
        seen: list[int] = []
        kept = partitions.applier.apply

        def ahead(delta: MetadataDelta, image: MetadataImage) -> LocalReplicaChanges:
            made = partitions.applier.logs_to_create(delta, image)
            if made is not None:
                made.run(MAY_BLOCK)
                seen.append(len(made.logs))
                partitions.applier.add_created(made)
            return kept(delta, image)

        partitions.applier.apply = ahead  # type: ignore[method-assign]
        cluster.disks[1].fail("open", errno.EMFILE, path_part="/t-7/")  # that one is made by `apply`
        cluster.create_topic("t", [[1]] * 20)
        cluster.create_topic("few", [[1]])
        assert seen == [19]
        for number in range(20):
            cluster.produce(b"x", number=number)
        await until(lambda: cluster.disks[1].exists("/data/t-19/partition.metadata"))


@in_loop
async def test_many_changes_of_one_turn_make_few_logs_on_the_loop():
    """A hundred clients have a topic created each: as many changes of one partition."""
    async with Cluster(1) as cluster:
        partitions = cluster.brokers[1].partitions
        kept, ahead = partitions.applier.apply, 0

        def counted(delta: MetadataDelta, image: MetadataImage) -> LocalReplicaChanges:
            nonlocal ahead
            ahead += partitions.applier.logs_to_create(delta, image) is not None
            return kept(delta, image)

        partitions.applier.apply = counted  # type: ignore[method-assign]
        for number in range(20):
            cluster.create_topic(f"t{number}", [[1]])
        assert ahead == 20 - delta_applier.CREATED_ON_LOOP
        await asyncio.sleep(0)
        cluster.create_topic("later", [[1]])
        assert ahead == 20 - delta_applier.CREATED_ON_LOOP


@pytest.mark.parametrize("operation", ["open", "sync", "sync_dir"])
@in_loop
async def test_a_flush_that_could_have_no_file_is_done_later_and_nobody_stops_leading(operation):
    async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
        boundary = boundary_of(cluster)
        cluster.create_topic("t", [[1]])
        cluster.produce(b"x" * 200)
        cluster.produce(b"y" * 200)
        log = cluster.leader().log
        await until(lambda: log.recovery_point == 2 or not log.unflushed_records)
        cluster.produce(b"z" * 200)  # rolls
        cluster.disks[1].heal()
        cluster.disks[1].fail(operation, errno.EMFILE, path_part="/t-0")
        flushed: list[ErrorCode] = []
        cluster.leader().when_flushed(flushed.append)
        await until(lambda: bool(boundary.faults))
        assert not cluster.leader().offline
        await until(lambda: bool(flushed))
        assert flushed == [ErrorCode.NONE]
        assert log.recovery_point == log.log_end_offset == 3
        assert cluster.produce(b"y") == 4


def append_keyed(cluster: Cluster) -> int:
    data = bytearray(encode_batch([Record(key=b"k", value=b"v" * 150, timestamp=cluster.now_ms)]))
    info = cluster.leader().append_as_leader(data, acks=1, now=cluster.loop.time(), now_ms=cluster.now_ms)
    return info.first_offset


@pytest.mark.parametrize("operation", ["open", "sync_dir"])
@in_loop
async def test_a_cleaning_that_could_have_no_file_goes_on_later_and_nobody_stops_leading(operation):
    struck = 0
    for after in range(60):
        async with Cluster(1, log_defaults=SMALL_SEGMENTS) as cluster:
            boundary_of(cluster)
            partitions = cluster.brokers[1].partitions
            cluster.create_topic("t", [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
            log = cluster.leader().log
            for _ in range(6):
                append_keyed(cluster)
            await until(lambda idle=partitions.background: idle.idle)
            size = log.size
            cluster.disks[1].fail(operation, errno.EMFILE, path_part="/t-0", after=after)
            await partitions.cleaner.sweep()
            assert not cluster.leader().offline
            struck += not cluster.disks[1].has_faults
            if cluster.disks[1].has_faults:
                break
            await partitions.cleaner.sweep()
            assert log.size < size
            names = cluster.disks[1].list("/data/t-0", MAY_BLOCK)
            assert not [name for name in names if name.endswith((".cleaned", ".swap"))]
            assert append_keyed(cluster) == 6
    assert struck > 1


@in_loop
async def test_a_topic_that_is_deleted_under_a_flush_is_no_fault(monkeypatch):
    """Its files are closed, and a descriptor that is -1 is no error of the disk."""
    async with Cluster(1, log_defaults=LogConfig(flush_messages=1)) as cluster:
        boundary = boundary_of(cluster)
        topic_id = cluster.create_topic("t", [[1]])
        begun, closed, failed = asyncio.Event(), asyncio.Event(), asyncio.Event()
        others = cluster.brokers[1].executor

        async def blocking(work: Any) -> Any:
            if not isinstance(getattr(work, "__self__", None), FlushWork):
                return await others(work)
            begun.set()
            await closed.wait()
            failed.set()
            raise ValueError("file descriptor cannot be a negative integer (-1)")

        monkeypatch.setattr(cluster.brokers[1], "executor", blocking)
        cluster.produce(b"x")
        await begun.wait()
        cluster.delete_topic(topic_id)
        closed.set()
        await failed.wait()
        await turns()
        monkeypatch.undo()
        assert not boundary.faults


@in_loop
async def test_a_log_that_cannot_be_identified_is_its_own_affair_and_is_tried_again(monkeypatch):
    async with Cluster(1) as cluster:
        boundary = boundary_of(cluster)
        kept, left = checkpoints.write_partition_metadata, [1]

        def once(*args: Any) -> None:
            if left and left.pop():
                raise OSError(errno.EMFILE, "Too many open files")
            kept(*args)

        monkeypatch.setattr(checkpoints, "write_partition_metadata", once)
        cluster.create_topic("t", [[1], [1]])
        logs = [cluster.replica(1, "t", number).log for number in (0, 1)]
        await until(lambda: not logs[1].unidentified)
        await until(lambda: not logs[0].unidentified)
        assert boundary.faults


class RecordingDirectoryChannel:
    """A controller that hears where replicas lie."""

    def __init__(self) -> None:
        self.places: list[ReplicaAssignment] = []

    async def assign_replicas(self, places: Sequence[ReplicaAssignment]) -> None:
        self.places += places


@in_loop
async def test_the_controller_hears_of_a_replica_that_was_given_up():
    """Else it would stay the leader that serves nobody."""
    directories = RecordingDirectoryChannel()
    async with Cluster(1, directory_channel=directories) as cluster:
        boundary_of(cluster)
        partitions = cluster.brokers[1].partitions
        cluster.create_topic("bad", [[1]])
        replica = cluster.replica(1, "bad")
        partitions.failures.give_up(replica, "the log", KeyError("a bug"))
        await until(lambda: bool(directories.places))
        cluster.commit(ConfigRecord(resource_type=2, resource_name="bad", name="retention.ms", value="7"))
        cluster.disks[1].fail("open", errno.EMFILE, path_part="/other-0/")
        cluster.create_topic("other", [[1]])
        await until(lambda: len(directories.places) == 2)
        assert [place.directory for place in directories.places] == [LOST_DIR] * 2


@pytest.mark.parametrize("why", ["its log is damaged", "it may lie in a directory that cannot be read"])
@in_loop
async def test_the_controller_hears_of_a_replica_that_cannot_be_opened(why):
    """Until the next start: it would be elected as the last one of its ISR, serve nobody, and nobody could
    take its place, by an unclean election either."""
    directories = RecordingDirectoryChannel()
    async with Cluster(1, directories=("/a", "/b"), directory_channel=directories) as cluster:
        topic_id = cluster.create_topic("t", [[1]])
        cluster.produce(b"x", acks=1)
        cluster.produce(b"y", acks=1)
        await until(lambda: bool(directories.places))
        cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(1,)))  # new no longer
        await until(lambda: len(directories.places) == 2)
        place = cluster.brokers[1].dirs[0].path
        await cluster.crash(1)
        if why == "its log is damaged":
            cluster.disks[1].flip_bit(f"{place}/t-0/{0:020}.log", 20)
        else:
            cluster.disks[1].lose_device(place)
        directories.places.clear()
        cluster.start(1)
        with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
            cluster.replica(1)
        await until(lambda: bool(directories.places))
        assert {place.directory for place in directories.places} == {LOST_DIR}
        await cluster.crash(1)
        directories.places.clear()
        if why == "its log is damaged":
            cluster.disks[1].flip_bit(f"{place}/t-0/{0:020}.log", 20)
        else:
            cluster.disks[1].replace_device(place, is_empty=False)
        cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, directories=(LOST_DIR,)))
        broker = cluster.start(1)
        await until(lambda: bool(directories.places))
        assert {place.directory for place in directories.places} == {broker.dirs[0].directory_id}


@in_loop
async def test_a_recreated_topic_is_not_offline_for_what_its_forerunner_could_not():
    async with Cluster(1) as cluster:
        boundary_of(cluster)
        cluster.disks[1].fail("open", errno.EMFILE, path_part="/t-0/")
        topic_id = cluster.create_topic("t", [[1]])
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1, "t")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.delete_topic(topic_id)
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1, "t")
        assert refused.value.code is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        cluster.create_topic("t", [[1]])
        assert cluster.produce(b"x") == 1


@in_loop
async def test_a_partition_for_which_there_was_no_file_is_made_again():
    async with Cluster(1) as cluster:
        boundary_of(cluster)
        partitions = cluster.brokers[1].partitions
        cluster.disks[1].fail("open", errno.EMFILE, path_part="/t-0/")
        cluster.create_topic("t", [[1], [1]])
        assert partitions.applier.needs_retry
        delta = partitions.applier.retry_delta(cluster.image)
        assert not partitions.applier.needs_retry
        changes = partitions.applier.apply(delta, cluster.image)
        assert [str(partition.tp) for partition in changes.leading] == ["t-0"]
        cluster.produce(b"x")


@in_loop
async def test_what_could_not_be_made_is_of_one_topic_and_not_of_its_name():
    async with Cluster(1) as cluster:
        boundary_of(cluster)
        partitions = cluster.brokers[1].partitions
        cluster.disks[1].fail("open", errno.EMFILE, path_part="/t-0/")
        topic_id = cluster.create_topic("t", [[1]])
        tp = TopicPartition("t", 0)
        assert partitions.logs.unclaimed.is_offline(tp, topic_id)
        assert not partitions.logs.unclaimed.is_offline(tp, UUID(int=77))


@pytest.mark.parametrize("code", [errno.EMFILE, errno.ENOTEMPTY])
@in_virtual_time
async def test_a_deleted_topics_files_that_could_not_be_removed_are_removed_later(code):
    """Without a file descriptor, or beside something that still wrote into them. They stayed until the next
    start."""
    async with Cluster(1) as cluster:
        boundary = boundary_of(cluster)
        disk = cluster.disks[1]
        topic_id = cluster.create_topic("t", [[1]])
        cluster.produce(b"x", acks=1)
        disk.fail("rmdir", code, path_part="-delete", count=3)
        cluster.delete_topic(topic_id)
        assert [name for name in disk.list("/data", MAY_BLOCK) if name.startswith("t-")]
        await asyncio.sleep(300)
        assert not [name for name in disk.list("/data", MAY_BLOCK) if name.startswith("t-")]
        assert sum(boundary.faults.values()) == 3


@pytest.mark.parametrize("operation", ["open", "create"])
@in_virtual_time
async def test_a_move_that_cannot_begin_for_want_of_file_descriptors_leaves_nothing(operation):
    """Each attempt left a directory, and the next start went on with one of them; who had asked for it was
    told that it goes on."""
    dirs = ("/data/a", "/data/b")
    async with Cluster(1, directories=dirs) as cluster:
        boundary_of(cluster)
        cluster.create_topic("t", [[1]])
        partitions, disk = cluster.brokers[1].partitions, cluster.disks[1]
        here = partitions.logs.dir_of(cluster.leader()).path
        (there,) = {*dirs} - {here}
        for after in range(4):
            disk.fail(operation, errno.EMFILE, path_part="-future", after=after)
            with pytest.raises(BrokerError, match="KAFKA_STORAGE_ERROR"):
                partitions.move(TopicPartition("t", 0), there)
            assert partitions.moves.of(cluster.leader()) is None
            await asyncio.sleep(2)
            assert not [name for name in disk.list(there, MAY_BLOCK) if name.startswith("t-")]
