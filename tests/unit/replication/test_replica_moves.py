"""Replicas on their way to another log directory, and nodes that die on the way. In virtual time."""

from __future__ import annotations

import asyncio
import contextlib
import errno
from collections.abc import Coroutine
from dataclasses import replace
from random import Random
from typing import Any
from uuid import UUID

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log.flush import FlushWork
from data_plane.log.log import UnifiedLog
from metadata_quorum.foundation.batch import Record, decode_batch, encode_batch, iter_headers
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.foundation.topic_configs import MOVES_RATE
from metadata_quorum.metadata.records import ConfigRecord, PartitionChangeRecord
from tests.support.may_block import MAY_BLOCK
from tests.support.virtual_loop import run_virtually
from tests.unit.replication.cluster import NOW_MS, Broker, Cluster, produce_outcome, turns, until
from tests.unit.replication.held_executor import HeldExecutor

pytestmark = pytest.mark.row("L8")

A, B = "/data/a", "/data/b"
TP = TopicPartition("t", 0)
SMALL = replace(LogConfig(), segment_bytes=4_000, file_delete_delay_ms=1_000)
VALUE = b"v" * 900


class FreezingDisk(SimDisk):
    """Does nothing any more from one operation on, as for a process that has just died."""

    left: int | None = None

    @property
    def frozen(self) -> bool:
        return self.left is not None and self.left <= 0

    def strike(self, operation: str, path: str) -> None:
        if self.left is not None:
            self.left -= 1
            if self.left <= 0:
                raise OSError(errno.EIO, "frozen")
        super().strike(operation, path)

    def remove_tree(self, path: str, may_block: MayBlock) -> None:
        self.strike("remove_tree", path)
        super().remove_tree(path, may_block)


def _cluster(brokers: int, disk: type[SimDisk] = SimDisk) -> Cluster:
    return Cluster(brokers, directories=(A, B), log_defaults=SMALL, disk=disk)


def _lies_in(cluster: Cluster, broker: int = 1) -> str:
    partitions = cluster.brokers[broker].partitions
    return partitions.logs.dir_of(partitions.get(*TP)).path


def _other(path: str) -> str:
    return B if path == A else A


def _names(cluster: Cluster, broker: int = 1) -> list[str]:
    disk = cluster.disks[broker]
    return [
        f"{path}/{name}" for path in (A, B) for name in disk.list(path, MAY_BLOCK) if name.startswith("t-0")
    ]


def _contents(cluster: Cluster, broker: int) -> bytes:
    segments = cluster.replica(broker).log.segments
    return b"".join(bytes(segment.file.read(0, segment.size)) for segment in segments)


async def _arrived(cluster: Cluster, path: str, broker: int = 1) -> None:
    async with asyncio.timeout(120):
        while _lies_in(cluster, broker) != path:  # noqa: ASYNC110 - in virtual time
            await asyncio.sleep(0.01)


def _run(test: Coroutine[Any, Any, None]) -> None:
    run_virtually(test)


@pytest.mark.parametrize("mover", [1, 2])
def test_leader_and_follower_move_while_writes_go_on(mover: int) -> None:
    async def run() -> None:
        async with _cluster(2) as cluster:
            cluster.create_topic("t", [[1, 2]])
            for _ in range(30):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            target = _other(_lies_in(cluster, mover))
            partitions = cluster.brokers[mover].partitions
            partitions.move(TP, target)
            assert partitions.moves.of(partitions.get(*TP)) is not None
            while _lies_in(cluster, mover) != target:
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            assert _contents(cluster, 1) == _contents(cluster, 2)
            epochs = [cluster.replica(b).log.epochs.entries for b in (1, 2)]
            assert epochs[0] == epochs[1]
            await asyncio.sleep(2)
            assert _names(cluster, mover) == [f"{target}/t-0"]
            end = cluster.replica(mover).log.log_end_offset
            await cluster.crash(mover)
            cluster.start(mover)
            assert _lies_in(cluster, mover) == target
            assert cluster.replica(mover).log.log_end_offset == end

    _run(run())


def test_a_producer_continues_without_a_gap_and_its_repetitions_are_known() -> None:
    def numbered(sequence: int) -> bytearray:
        record = [Record(value=VALUE, timestamp=NOW_MS)]
        return bytearray(encode_batch(record, producer_id=7, producer_epoch=0, base_sequence=sequence))

    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]])
            partition = cluster.replica(1)
            for sequence in range(20):
                partition.append_as_leader(numbered(sequence), acks=1, now=0.0, now_ms=NOW_MS)
            partition.delete_records(10)
            target = _other(_lies_in(cluster))
            cluster.brokers[1].partitions.move(TP, target)
            await _arrived(cluster, target)
            assert partition.log.log_start_offset == 10
            again = partition.append_as_leader(numbered(19), acks=1, now=0.0, now_ms=NOW_MS)
            assert again.duplicate
            assert again.first_offset == 19
            with pytest.raises(BrokerError) as refused:
                partition.append_as_leader(numbered(25), acks=1, now=0.0, now_ms=NOW_MS)
            assert refused.value.code == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER

    _run(run())


def test_a_copy_follows_where_its_log_is_truncated() -> None:
    async def run() -> None:
        async with _cluster(2) as cluster:
            cluster.create_topic("t", [[1, 2]])
            for _ in range(30):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            limit = ConfigRecord(
                resource_type=ResourceType.BROKER, resource_name="2", name=MOVES_RATE, value="8000"
            )
            cluster.commit(limit)
            target = _other(_lies_in(cluster, 2))
            cluster.brokers[2].partitions.move(TP, target)
            await asyncio.sleep(1)
            assert _lies_in(cluster, 2) != target, "the limit holds it back"
            outcomes: list[bool] = []
            cluster.replica(2).truncate_to(5, outcomes.append)
            await until(lambda: outcomes == [True])
            cluster.elect("t", 0, 1)
            await _arrived(cluster, target, 2)
            assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            assert _contents(cluster, 1) == _contents(cluster, 2)

    _run(run())


def test_a_compaction_under_way_does_not_overtake_the_copy() -> None:
    """It removes a tombstone that the copy has not reached, with a value that the copy has: the copy would
    have the value alone. (The tombstone came from a leader whose compaction had seen it before.)"""

    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]], cleanup_policy="compact", min_cleanable_dirty_ratio="0.01")
            partition, partitions = cluster.replica(1), cluster.brokers[1].partitions

            def append(key: bytes, value: bytes | None) -> None:
                log = partition.log
                horizon = NOW_MS - 1 if value is None else None
                record = Record(key=key, value=value, timestamp=NOW_MS)
                log.append_as_follower(
                    encode_batch([record], base_offset=log.log_end_offset, delete_horizon_ms=horizon)
                )

            for key in (b"deleted", *(b"%d" % number for number in range(20))):
                append(key, VALUE)
            append(b"deleted", None)
            for number in range(20, 40):
                append(b"%d" % number, VALUE)
            partition.high_watermark = partition.log.log_end_offset
            held = cluster.brokers[1].executor = HeldExecutor()
            sweep = asyncio.ensure_future(partitions.cleaner.sweep())
            await until(lambda: held.waiting)
            cleaning = held.waiting.pop()
            target = _other(_lies_in(cluster))
            partitions.move(TP, target)
            move = partitions.moves.of(partition)
            assert move is not None
            while move.log.log_end_offset == 0:
                await held.run_next()
            assert move.log.log_end_offset < 20
            held.waiting.insert(0, cleaning)
            held.release()
            await sweep
            await _arrived(cluster, target)
            data, last = _contents(cluster, 1), {}
            for position, _ in iter_headers(data):
                last.update({record.key: record.value for record in decode_batch(data, position)})
            assert len(last) >= 40
            assert last.get(b"deleted") is None

    _run(run())


def test_the_rate_is_kept() -> None:
    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]])
            for _ in range(200):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            limit = ConfigRecord(
                resource_type=ResourceType.BROKER, resource_name="", name=MOVES_RATE, value="20000"
            )
            cluster.commit(limit)
            target = _other(_lies_in(cluster))
            cluster.brokers[1].partitions.move(TP, target)
            began = cluster.loop.time()
            await _arrived(cluster, target)
            assert 7 < cluster.loop.time() - began < 13  # 200 KB

    _run(run())


def test_called_off_and_removed_moves_leave_nothing() -> None:
    async def run() -> None:
        async with _cluster(1) as cluster:
            topic_id = cluster.create_topic("t", [[1]])
            for _ in range(10):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            partitions, here = cluster.brokers[1].partitions, _lies_in(cluster)
            partitions.move(TP, _other(here))
            assert len(_names(cluster)) == 2
            partitions.move(TP, here)
            await asyncio.sleep(0.1)
            assert _names(cluster) == [f"{here}/t-0"]
            partitions.move(TP, _other(here))
            cluster.delete_topic(topic_id)
            await asyncio.sleep(2)
            assert _names(cluster) == []
            for path, code in (
                (A + "/x", ErrorCode.LOG_DIR_NOT_FOUND),
                (A, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION),
            ):
                with pytest.raises(BrokerError) as refused:
                    partitions.move(TP, path)
                assert refused.value.code == code

    _run(run())


def test_a_move_that_is_called_off_does_not_come_back_after_a_kill() -> None:
    """Its files are still there, and not all of them can be removed."""

    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]])
            for _ in range(10):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            partitions, here = cluster.brokers[1].partitions, _lies_in(cluster)
            await until(lambda: partitions.background.idle)
            held = cluster.brokers[1].executor = HeldExecutor()
            partitions.move(TP, _other(here))
            assert await held.run_next()
            partitions.move(TP, here)
            await cluster.crash(1)
            cluster.start(1)
            await asyncio.sleep(5)
            assert _names(cluster) == [f"{here}/t-0"]

    _run(run())


def test_a_copy_whose_name_has_come_back_beside_the_replica_is_removed() -> None:
    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]])
            here = _lies_in(cluster)
            await cluster.crash(1)
            cluster.disks[1].make_dirs(f"{here}/t-0.{UUID(int=5).hex}-future")
            cluster.start(1)
            await asyncio.sleep(5)
            assert _names(cluster) == [f"{here}/t-0"]

    _run(run())


def test_what_an_earlier_copy_has_left_is_removed_beside_the_loop() -> None:
    """It may have hundreds of segments; the broker has only just begun to send heartbeats."""

    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]])
            for _ in range(10):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            partitions, target = cluster.brokers[1].partitions, _other(_lies_in(cluster))
            await until(lambda: partitions.background.idle)
            held = cluster.brokers[1].executor = HeldExecutor()
            partitions.move(TP, target)
            assert await held.run_next()
            await cluster.crash(1)
            disk = cluster.disks[1]
            begun = [name for name in _names(cluster) if name.endswith("-future")]
            files = disk.list(begun[0], MAY_BLOCK)

            def hold(broker: Broker) -> None:
                broker.executor = held

            held.waiting.clear()
            cluster.start(1, loaded=hold)
            await turns()
            left = [name for name in _names(cluster) if name.endswith("-delete")]
            assert [disk.list(name, MAY_BLOCK) for name in left] == [files]
            held.release()
            await _arrived(cluster, target)
            await asyncio.sleep(2)
            assert _names(cluster) == [f"{target}/t-0"]

    _run(run())


@pytest.mark.parametrize("chosen", [A, B])
def test_a_directory_is_chosen_before_the_replica_is_there(chosen: str) -> None:
    async def run() -> None:
        async with _cluster(2) as cluster:
            topic_id = cluster.create_topic("t", [[1]])
            with pytest.raises(BrokerError):
                cluster.brokers[2].partitions.move(TP, chosen)
            cluster.commit(
                PartitionChangeRecord(
                    partition_id=0, topic_id=topic_id, replicas=(1, 2), adding_replicas=(2,),
                    directories=(UUID(int=0), UUID(int=0)),
                )
            )  # fmt: skip
            assert _lies_in(cluster, 2) == chosen

    _run(run())


@pytest.mark.parametrize("fails", [A, B])
def test_a_directory_fails_in_the_middle(fails: str) -> None:
    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]])
            for _ in range(10):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            partitions, here = cluster.brokers[1].partitions, _lies_in(cluster)
            partitions.move(TP, _other(here))
            directory = next(each for each in partitions.logs.dirs if each.path == fails)
            partitions.log_dir_failures.fail(directory, OSError(errno.EIO, "gone"))
            await asyncio.sleep(5)
            assert partitions.moves.of(partitions.get(*TP)) is None
            assert _lies_in(cluster) == here
            assert partitions.get(*TP).offline == (fails == here)

    _run(run())


def test_a_disk_that_fails_under_what_has_left_it_takes_only_its_own_directory_offline() -> None:
    """Replicas are moved away from a disk that is failing, and work on their old logs may end later."""

    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]])
            for _ in range(12):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            partitions, partition = cluster.brokers[1].partitions, cluster.replica(1)
            await until(lambda: partitions.background.idle)
            here, target = _lies_in(cluster), _other(_lies_in(cluster))
            held = cluster.brokers[1].executor = HeldExecutor()
            cluster.produce(VALUE)
            partitions.executor.flush(partition)
            await until(lambda: held.waiting)
            late = held.waiting.pop()
            partitions.move(TP, target)
            while _lies_in(cluster) != target:
                assert await held.run_next()
            cluster.disks[1].fail("sync", errno.EIO, path_part=f"{here}/t-0")
            held.waiting.insert(0, late)
            held.run()
            await turns()
            assert {each.path: each.online for each in partitions.logs.dirs} == {here: False, target: True}
            assert not partition.offline
            held.release()
            await until(lambda: partition.log.recovery_point == 13)

    _run(run())


def _die_after(operations: int, *, power: bool = False) -> bool:
    """Let the node die so many disk operations after the move began; False where it ended before. With
    `power` the machine dies: then what was acknowledged was durable."""
    died = True

    async def run() -> None:
        nonlocal died
        async with _cluster(1, FreezingDisk) as cluster:
            disk = cluster.disks[1]
            assert isinstance(disk, FreezingDisk)
            cluster.create_topic("t", [[1]], **({"flush_messages": "1"} if power else {}))
            written = 12
            for _ in range(written):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            target = _other(_lies_in(cluster))
            disk.left = operations
            with contextlib.suppress(BrokerError):  # where it dies as the move begins
                cluster.brokers[1].partitions.move(TP, target)
            for _ in range(200):
                await asyncio.sleep(0.01)
            died = disk.frozen
            disk.left = None
            await cluster.crash(1)
            if power:
                disk.power_loss(Random(operations))
                cluster.boot_id = "second boot"
            cluster.start(1)
            assert cluster.replica(1).log.log_end_offset == written
            if any(name.endswith("-future") for name in _names(cluster)):
                await _arrived(cluster, target)
            assert _contents(cluster, 1).count(VALUE) == written
            assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            await asyncio.sleep(2)
            assert _names(cluster) == [f"{_lies_in(cluster)}/t-0"]

    _run(run())
    return died


@pytest.mark.heavy
@pytest.mark.row("L2")
def test_a_node_that_dies_on_the_way_loses_nothing_and_ends_the_move() -> None:
    operations = 1
    while _die_after(operations):
        operations += 1
    assert operations > 20


@pytest.mark.heavy
@pytest.mark.row("L2")
def test_a_machine_that_dies_on_the_way_loses_nothing_and_ends_the_move() -> None:
    operations = 1
    while _die_after(operations, power=True):
        operations += 1
    assert operations > 20


@pytest.mark.row("L2")
def test_what_is_acknowledged_while_the_copy_is_being_flushed_is_durable_in_its_new_place() -> None:
    """With flush.messages=1. From then on nothing else remembers it: the old directory loses its name."""

    async def run() -> None:
        async with _cluster(1) as cluster:
            cluster.create_topic("t", [[1]], flush_messages="1")
            written = 12
            for _ in range(written):
                assert await produce_outcome(cluster, VALUE) == ErrorCode.NONE
            await until(lambda: cluster.brokers[1].partitions.background.idle)
            target = _other(_lies_in(cluster))
            held = cluster.brokers[1].executor = HeldExecutor()
            partitions, partition = cluster.brokers[1].partitions, cluster.replica(1)
            partitions.move(TP, target)
            move = partitions.moves.of(partition)
            assert move is not None

            def waits(log: UnifiedLog) -> bool:
                flushes = [getattr(work, "__self__", None) for work, _ in held.waiting]
                return any(isinstance(each, FlushWork) and each.disk is log.disk for each in flushes)

            while move.lag or not waits(move.log):
                assert await held.run_next()
            flush_of_copy = held.waiting.pop()
            cluster.produce(VALUE)
            await until(lambda: waits(partition.log))
            await held.run_next()
            assert partition.high_watermark == written + 1
            held.waiting.append(flush_of_copy)
            held.run()
            await turns()
            assert _lies_in(cluster) == target
            durable = cluster.disks[1].durable_files(f"{target}/t-0")
            assert b"".join(durable.values()).count(VALUE) == written + 1
            assert partition.log.recovery_point == written + 1
            held.release()

    _run(run())
