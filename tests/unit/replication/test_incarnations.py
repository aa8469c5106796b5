"""Work on a partition's directory is late: the partition goes and comes back under the same name before,
within or after it, and then the process dies. Every order, one after another.

A scripted executor holds each piece of work until the test runs it; within the work the test steps in before
every operation on the disk, as a loop does that runs while a thread of the executor waits."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from dataclasses import replace
from typing import Any, Final

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log.partition_directory import PartitionDirectory
from data_plane.replication.replica_manager import ReplicaManager
from metadata_quorum.foundation.batch import Record, decode_batch, encode_batch, iter_headers
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.metadata.records import PartitionChangeRecord
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_loop
from tests.unit.replication.held_executor import HeldExecutor

CONFIG: Final = {
    "cleanup_policy": "compact",
    "min_cleanable_dirty_ratio": "0",
    "segment_bytes": "1048576",
    "file_delete_delay_ms": "0",
}


class SteppedDisk(SimDisk):
    """Lets the test step in before an operation, unless a log's lock is held: a loop would wait then."""

    def __init__(self) -> None:
        super().__init__()
        self.steps_left: int | None = None
        self.step_in: Callable[[], None] = lambda: None
        self.locked = False

    def strike(self, operation: str, path: str) -> None:
        self.step()
        super().strike(operation, path)

    def step(self) -> None:
        if self.steps_left is None or self.locked:
            return
        self.steps_left -= 1
        if self.steps_left < 0:
            self.steps_left = None
            self.step_in()


class SteppedLock:
    def __init__(self, disk: SteppedDisk) -> None:
        self.disk = disk

    def __enter__(self) -> None:
        self.disk.step()
        assert not self.disk.locked, "a deadlock"
        self.disk.locked = True

    def __exit__(self, *error: object) -> None:
        self.disk.locked = False


def keyed(cluster: Cluster, value: bytes = b"old") -> None:
    data = encode_batch([Record(timestamp=cluster.now_ms, key=b"k", value=value)])
    cluster.leader().append_as_leader(bytearray(data), acks=1, now=0.0, now_ms=cluster.now_ms)


# ---- what is late


async def settling(cluster: Cluster, partitions: ReplicaManager, executor: HeldExecutor) -> None:
    """The new directory's identity."""


async def flushing(cluster: Cluster, partitions: ReplicaManager, executor: HeldExecutor) -> None:
    while await executor.run_next():
        pass
    for _ in range(3):
        cluster.elect("t", 0, 1)
        keyed(cluster)
    cluster.replica(1).log.roll(cluster.now_ms)
    partitions.executor.flush(cluster.replica(1))


async def cleaning(cluster: Cluster, partitions: ReplicaManager, executor: HeldExecutor) -> None:
    await flushing(cluster, partitions, executor)
    while await executor.run_next():
        pass
    partitions.background.spawn(partitions.cleaner.sweep())


async def checkpointing(cluster: Cluster, partitions: ReplicaManager, executor: HeldExecutor) -> None:
    await flushing(cluster, partitions, executor)
    while await executor.run_next():
        pass
    cluster.replica(1).delete_records(3)
    partitions.background.spawn(partitions.checkpoints.write(everything=True))
    while await executor.run_next():
        pass
    keyed(cluster)
    cluster.replica(1).delete_records(4)
    partitions.background.spawn(partitions.checkpoints.write(everything=True))


async def moving(cluster: Cluster, partitions: ReplicaManager, executor: HeldExecutor) -> None:
    while await executor.run_next():
        pass
    keyed(cluster)
    there = partitions.logs.dir_of(cluster.replica(1)).path
    other = next(d.path for d in partitions.logs.dirs if d.path != there)
    partitions.move(TopicPartition("t", 0), other)


# ---- what comes between


def recreated(cluster: Cluster) -> None:
    cluster.delete_topic(cluster.image.topics_by_name["t"].id)
    cluster.create_topic("t", [[1]], **CONFIG)


def reassigned(cluster: Cluster) -> None:
    """Away and back: the topic's id is the same."""
    topic_id = cluster.image.topics_by_name["t"].id
    for broker_id in (2, 1):
        only = (broker_id,)
        cluster.commit(
            PartitionChangeRecord(
                partition_id=0, topic_id=topic_id, isr=only, replicas=only, leader=broker_id
            )
        )


async def history(
    late: Callable[..., Any],
    between: Callable[[Cluster], None],
    place: tuple[int, int],
    after: int | None,
    monkeypatch: pytest.MonkeyPatch,
) -> tuple[bool, bool]:
    """`between` steps into the `place[0]`-th piece of late work before its `place[1]`-th operation; `after`
    more pieces are run before the process dies, None: all, and it ends cleanly. Returns whether there was
    such a piece, and such an operation in it."""
    disk = SteppedDisk()
    monkeypatch.setattr(
        PartitionDirectory,
        "lock",
        property(lambda _: SteppedLock(disk), lambda _self, _lock: None),
        raising=False,
    )
    defaults = replace(LogConfig(), file_delete_delay_ms=0)
    executor = HeldExecutor()
    async with Cluster(1, log_defaults=defaults, directories=("/a", "/b"), disk=lambda: disk) as cluster:
        partitions = cluster.brokers[1].partitions
        cluster.brokers[1].executor = executor
        try:
            cluster.create_topic("t", [[1]], **CONFIG)
            await late(cluster, partitions, executor)
            for _ in range(place[0]):
                await executor.run_next()
            for _ in range(10):
                await asyncio.sleep(0)
            if not executor.waiting:
                return False, False
            within = await stepped_in(cluster, executor, disk, between, place[1])
            ran = 0
            while (after is None or ran < after) and await executor.run_next():
                ran += 1
            if after is not None:
                await cluster.crash(1)
        finally:
            executor.release()
        if after is None:
            await cluster.brokers.pop(1).close()
        check(cluster)
        return True, within


async def stepped_in(
    cluster: Cluster,
    executor: HeldExecutor,
    disk: SteppedDisk,
    between: Callable[[Cluster], None],
    operation: int,
) -> bool:
    done: list[int] = []

    def step_in() -> None:
        between(cluster)
        keyed(cluster, b"new")
        done.append(1)

    disk.steps_left, disk.step_in = operation, step_in
    executor.run()
    within, disk.steps_left = bool(done), None
    if not within:
        step_in()
    return within


def check(cluster: Cluster) -> None:
    """The next start finds the new incarnation, and nothing of the old one."""
    broker = cluster.start(1)
    assert [d.online for d in broker.dirs] == [True, True]
    partition = cluster.replica(1)
    log = partition.log
    assert (log.log_start_offset, log.log_end_offset, log.cleaned_to) == (0, 1, 0)
    data = log.read(0, 1 << 20).read(MAY_BLOCK)
    values = [r.value for position, _ in iter_headers(data) for r in decode_batch(data, position)]
    assert values == [b"new"]
    (header,) = [header for _, header in iter_headers(data)]
    assert log.epochs.entries[0] == (header.partition_leader_epoch, 0)
    assert log.epochs.entries[1:] == [(partition.leader_epoch, 1)]


@pytest.mark.parametrize("between", [recreated, reassigned])
@pytest.mark.parametrize("late", [settling, flushing, cleaning, checkpointing, moving])
@in_loop
async def test_late_work_on_a_directory_never_reaches_the_next_one_of_its_name(late, between, monkeypatch):
    orders = 0
    for after in (0, 1, None):
        piece, operation = 0, 0
        while True:
            moment = f"piece {piece}, before operation {operation}, then {after} more"
            try:
                there, within = await history(late, between, (piece, operation), after, monkeypatch)
            except AssertionError as error:
                raise AssertionError(moment) from error
            if not there:
                break
            orders += 1
            piece, operation = (piece, operation + 1) if within else (piece + 1, 0)
    assert orders >= 10
