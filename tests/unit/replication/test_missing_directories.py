"""A broker that starts without a log directory of its last run has lost what was in it, whatever that was."""

from __future__ import annotations

import errno
from uuid import UUID

import pytest

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import EMPTY_IMAGE
from metadata_quorum.metadata.records import PartitionChangeRecord
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Broker, Cluster, in_loop, produce_outcome, until

pytestmark = pytest.mark.row("R8", "L8")


@pytest.mark.parametrize("end", ["stopped", "killed"])
@pytest.mark.parametrize("second", ["taken away", "replaced", "failed before", "elsewhere"])
@in_loop
async def test_a_run_whose_directory_is_gone_has_lost_something(second: str, end: str):
    """The controller need not know what was in it: of a replica that was given up it knows only that."""
    async with Cluster(1, directories=("/data", "/more")) as cluster:
        broker = cluster.brokers[1]
        broker.partitions.logs.mark_running(7)
        if second == "failed before":
            broker.partitions.log_dir_failures.fail(broker.dirs[1], OSError(errno.EIO, "a failed fsync"))
        if end == "stopped":
            await cluster.brokers.pop(1).partitions.close(broker_epoch=7)
        else:
            await cluster.crash(1)
        if second == "replaced":  # and the new one formatted: it has another id
            cluster.disks[1].remove_tree("/more", MAY_BLOCK)
            cluster.directory_ids = (0, 9)
        elif second == "elsewhere":  # mounted under another path, it is the same
            cluster.disks[1].rename("/more", "/moved")
            cluster.directories = ("/data", "/moved")
        else:
            cluster.directories = ("/data",)
        whole = second == "elsewhere"
        assert cluster.start(1).partitions.logs.previous_broker_epoch == (7 if whole else -1)


@in_loop
async def test_a_directory_that_is_missing_until_the_broker_registers_is_not_missed():
    async with Cluster(1, directories=("/data", "/more")) as cluster:
        await cluster.brokers.pop(1).partitions.close(broker_epoch=7)
        cluster.directories = ("/data",)
        for _ in range(2):  # it is stopped before it was registered
            assert cluster.start(1).partitions.logs.previous_broker_epoch == -1
            await cluster.brokers.pop(1).partitions.close()
        cluster.directories = ("/data", "/more")
        assert cluster.start(1).partitions.logs.previous_broker_epoch == 7
        await cluster.brokers.pop(1).partitions.close(broker_epoch=9)
        cluster.directories = ("/data",)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == -1
        await cluster.brokers.pop(1).partitions.close(broker_epoch=11)
        cluster.directories = ("/data", "/more")  # what is there is older than what was made anew meanwhile
        assert cluster.start(1).partitions.logs.previous_broker_epoch == -1


@in_loop
async def test_who_stopped_an_older_version_has_not_said_which_directories_there_were():
    async with Cluster(1) as cluster:
        await cluster.brokers.pop(1).partitions.close(broker_epoch=7)
        marker = b'{"version":0,"brokerEpoch":7}'
        cluster.disks[1].write_atomic("/data/.kafka_cleanshutdown", marker, MAY_BLOCK)
        assert cluster.start(1).partitions.logs.previous_broker_epoch == 7


@in_loop
async def test_a_directory_that_fails_before_its_logs_are_claimed_serves_none_of_them():
    """A broker waits long for its registration where an earlier process of it may be alive."""
    async with Cluster(1, directories=("/data", "/more")) as cluster:
        first, second = cluster.create_topic("first", [[1]]), cluster.create_topic("second", [[1]])
        dirs = cluster.brokers[1].partitions.logs
        assert dirs.dir_of(cluster.replica(1, "second")).path == "/more"
        await cluster.brokers.pop(1).partitions.close()
        cluster.start(
            1,
            loaded=lambda broker: broker.partitions.log_dir_failures.fail(
                broker.dirs[1], OSError(errno.EIO, "a failed write")
            ),
        )
        cluster.produce(b"x", topic="first")
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1, "second")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        for topic_id in (first, second):
            cluster.delete_topic(topic_id)
        assert cluster.disks[1].exists("/more/second-0"), "a disk that has failed is left alone"
        cluster.create_topic("second", [[1]])
        assert cluster.brokers[1].partitions.logs.dir_of(cluster.replica(1, "second")).path == "/data"


@in_loop
async def test_a_directory_that_fails_while_an_older_log_is_put_away_serves_none_of_its_logs():
    async with Cluster(1, directories=("/data", "/more")) as cluster:
        for topic in ("a", "b", "c", "d"):
            cluster.create_topic(topic, [[1]])
        cluster.produce(b"x", topic="a")
        await cluster.brokers.pop(1).partitions.close()
        disk = cluster.disks[1]
        disk.rename("/data/a-0", "/data/b-0")  # as if it were the log of "b", and the newer one
        identity = disk.read_bytes("/more/b-0/partition.metadata", MAY_BLOCK)
        disk.write_atomic("/data/b-0/partition.metadata", identity, MAY_BLOCK)
        disk.fail("rename", errno.EIO, path_part="/more/b-0")
        broker = cluster.start(1)
        assert [each.online for each in broker.dirs] == [True, False]
        assert cluster.replica(1, "b").log.log_end_offset == 1
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1, "d")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_what_has_failed_is_not_made_anew_where_an_older_topic_of_its_name_was():
    """The disk of one was missing while the topic was deleted, and made again on the other."""
    async with Cluster(1, directories=("/data", "/more")) as cluster:
        cluster.create_topic("first", [[1]])
        cluster.create_topic("second", [[1]])
        await cluster.brokers.pop(1).partitions.close()
        cluster.disks[1].rename("/data/first-0", "/data/second-0")
        failure = OSError(errno.EIO, "a failed write")
        cluster.start(
            1, loaded=lambda broker: broker.partitions.log_dir_failures.fail(broker.dirs[1], failure)
        )
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1, "second")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR


@in_loop
async def test_what_may_lie_in_a_directory_that_cannot_be_read_is_not_made_anew():
    async with Cluster(1, directories=("/data", "/more")) as cluster:
        cluster.create_topic("first", [[1]])
        cluster.create_topic("second", [[1]])
        run = cluster.brokers[1].partitions.logs.run_of(7)
        await cluster.brokers.pop(1).partitions.close(broker_epoch=7)
        cluster.directory_ids = (0, None)
        broker = cluster.start(1)
        logs = broker.partitions.logs
        assert logs.previous_broker_epoch == -1
        assert logs.run_of(9).log_dirs == run.log_dirs - {UUID(int=1)}
        cluster.produce(b"x", topic="first")
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1, "second")
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.create_topic("third", [[1]])
        assert logs.dir_of(cluster.replica(1, "third")).path == "/data"


@in_loop
async def test_a_reassignment_comes_to_its_end_at_a_broker_that_lacks_a_directory():
    async with Cluster(2, directories=("/data", "/more")) as cluster:
        topic_id = cluster.create_topic("t", [[2]])
        cluster.produce(b"x", acks=1)
        await cluster.crash(1)
        cluster.disks[1].lose_device("/more")
        cluster.start(1)
        cluster.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, isr=(2,), replicas=(2, 1), adding_replicas=(1,)
            )
        )
        await until(lambda: cluster.isr() == (2, 1))
        assert cluster.replica(1).log.log_end_offset == 1


@pytest.mark.parametrize("lost", ["missing", "failed", "damaged"])
@in_loop
async def test_a_replica_that_cannot_be_opened_may_be_reassigned_away_and_back(lost: str):
    """It stayed offline until the next start, and the reassignment never ended."""
    async with Cluster(2, directories=("/data", "/more")) as cluster:
        topic_id = cluster.create_topic("t", [[2, 1]])
        cluster.produce(b"x")
        await until(lambda: cluster.replica(1).log.log_end_offset == 1)
        await cluster.crash(1)
        disk = cluster.disks[1]
        if lost == "missing":
            disk.lose_device("/data")
        elif lost == "damaged":
            disk.write_atomic("/data/t-0/partition.metadata", b"version: 0\ntopic_id: damaged", MAY_BLOCK)

        def loaded(broker: Broker) -> None:
            if lost == "failed":
                broker.partitions.log_dir_failures.fail(broker.dirs[0], OSError(errno.EIO, "a failed write"))

        cluster.start(1, loaded=loaded)
        with pytest.raises(BrokerError) as refused:
            cluster.replica(1)
        assert refused.value.code is ErrorCode.KAFKA_STORAGE_ERROR
        cluster.commit(PartitionChangeRecord(partition_id=0, topic_id=topic_id, isr=(2,), replicas=(2,)))
        if lost == "damaged":
            assert any(name.endswith("-stray") for name in disk.list("/data", MAY_BLOCK))
        cluster.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, isr=(2,), replicas=(2, 1), adding_replicas=(1,)
            )
        )
        await until(lambda: cluster.isr() == (2, 1))
        assert cluster.replica(1).log.log_end_offset == 1


@pytest.mark.parametrize("records", [0, 1])
@in_loop
async def test_what_another_topic_of_the_name_has_is_set_aside_not_deleted(records: int):
    """The quorum was begun anew, and a client had the topic created again before the broker started."""
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]])
        for _ in range(records):
            await produce_outcome(cluster, b"x")
        await cluster.crash(1)
        cluster.image = EMPTY_IMAGE
        cluster.create_topic("t", [[1]])
        cluster.start(1)
        assert cluster.replica(1).log.log_end_offset == 0
        left = {n[-6:] for n in cluster.disks[1].list("/data", MAY_BLOCK) if n.startswith("t-0")}
        assert left - {"t-0", "delete"} == ({"-stray"} if records else set())
