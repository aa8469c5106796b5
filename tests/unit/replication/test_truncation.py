"""Truncations of a follower's log, beside all that may happen to the replica meanwhile."""

from __future__ import annotations

import asyncio
import contextlib
import copy
import errno
import random
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.truncation import TruncationWork
from data_plane.replication.partition import Partition
from data_plane.replication.replica_moves import ReplicaMove
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError
from tests.support.logs import open_log, read_all
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, batch, boundary_of, in_loop, turns, until
from tests.unit.replication.durable_follower import follower_with_three_durable_records
from tests.unit.replication.held_executor import HeldExecutor

CLEAN = "/data/.kafka_cleanshutdown"


@pytest.mark.parametrize("steps", [0, 1, 2, 3, 4, 5])
@in_loop
async def test_a_clean_stop_ends_wherever_a_truncation_has_got_to(steps):
    cluster = Cluster(2)
    follower = await follower_with_three_durable_records(cluster)
    broker = cluster.brokers[2]
    executor = HeldExecutor()
    broker.executor = executor
    follower.truncate_to(2, lambda done: None)
    for _ in range(steps):
        await executor.run_next()
    stop = asyncio.ensure_future(broker.close())
    await turns()
    executor.release()
    try:
        async with asyncio.timeout(60):
            await stop
    finally:
        await cluster.brokers[1].close()
    assert cluster.disks[2].exists(CLEAN)


@pytest.mark.parametrize("flush_messages", ["1", str(2**63 - 1)])
@pytest.mark.parametrize("operation", ["append", "sync"])
@in_loop
async def test_what_lies_in_a_failed_directory_is_followed_no_longer(operation, flush_messages):
    """Not the replica whose disk has failed, nor its neighbour: acks=all is not answered on their word."""
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        configs = {"min_insync_replicas": "2", "flush_messages": flush_messages}
        cluster.create_topic("t", [[1, 2], [1, 2]], **configs)
        followers = [cluster.replica(2, number=number) for number in (0, 1)]
        for number in (0, 1):
            cluster.produce(b"x", number=number)
        await until(lambda: [f.log.log_end_offset for f in followers] == [1, 1])
        await until(lambda: [cluster.leader(number=n).high_watermark for n in (0, 1)] == [1, 1])
        cluster.disks[2].fail(operation, errno.EIO, path_part="t-0", count=1)
        cluster.produce(b"y")
        if operation == "sync":
            await until(lambda: followers[0].log.log_end_offset == 2)
            cluster.brokers[2].partitions.executor.flush(followers[0])
        await until(lambda: followers[0].offline and followers[1].offline)
        assert len(cluster.brokers[2].fetchers) == 0
        ends = [f.log.log_end_offset for f in followers]
        for _ in range(3):
            for number in (0, 1):
                cluster.produce(b"z", number=number)
            await asyncio.sleep(0.02)
        assert [f.log.log_end_offset for f in followers] == ends
        assert cluster.leader(number=1).high_watermark == 1
        if flush_messages == "1":
            assert cluster.leader().high_watermark == 1


@in_loop
async def test_a_replica_that_is_offline_takes_nothing_from_its_leader():
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        follower = await follower_with_three_durable_records(cluster)
        broker = cluster.brokers[2]
        broker.partitions.log_dir_failures.fail(broker.dirs[0], OSError(errno.EIO, "broken"))
        outcomes: list[bool] = []
        follower.truncate_to(1, outcomes.append)
        follower.truncate_to(7, outcomes.append, restart=True)
        assert outcomes == [False, False]
        with pytest.raises(BrokerError):
            follower.append_as_follower(memoryview(batch(b"z")), 3, 0, cluster.now_ms)
        assert follower.log.log_end_offset == 3


def value(name: str) -> bytes:
    return name.encode().ljust(953, b".")


async def cut_and_not_flushed(cluster: Cluster) -> tuple[Partition, HeldExecutor]:
    """Twenty durable records of a quarter of a page each, truncated to ten; the flush of that waits."""
    cluster.create_topic("t", [[1, 2]])
    for number in range(20):
        cluster.produce(value(f"old{number}-"))
    follower, broker = cluster.replica(2), cluster.brokers[2]
    await until(lambda: follower.log.log_end_offset == 20)
    broker.partitions.executor.flush(follower)
    await until(lambda: follower.log.recovery_point == 20)
    await broker.partitions.checkpoints.write(everything=True)
    executor = HeldExecutor()
    broker.executor = executor
    broker.fetchers.unfollow(follower)
    follower.truncate_to(10, lambda done: None)
    while follower.log.log_end_offset == 20:
        assert await executor.run_next()
    return follower, executor


def names_after_power_loss(cluster: Cluster, follower: Partition, seed: int) -> list[str]:
    disk = copy.deepcopy(cluster.disks[2])
    disk.power_loss(random.Random(seed), names_in_order=True)
    point = follower.log.recovery_point
    log = open_log("/data/t-0", follower.log.config, disk=disk, recovery_point=point, machine_restarted=True)
    return [(found or b"").partition(b"-")[0].decode() for _, found in read_all(log)]


def mixed(names: list[str]) -> bool:
    new = [place for place, name in enumerate(names) if name.startswith("new")]
    return bool(new) and any(name.startswith("old") for name in names[new[0] :])


@in_loop
async def test_whoever_leads_before_its_truncation_is_durable_takes_records_once_it_is():
    async with Cluster(2) as cluster:
        follower, executor = await cut_and_not_flushed(cluster)
        cluster.elect("t", 0, 2)
        assert follower.leader is not None
        for number in range(3):
            with contextlib.suppress(BrokerError):
                cluster.produce(value(f"new{number}-"))
        found = [names_after_power_loss(cluster, follower, seed) for seed in range(50)]
        executor.release()
        assert not [names for names in found if mixed(names)]
        await until(lambda: follower.log.unflushed.truncation_is_durable)
        assert cluster.produce(value("new-"), acks=1) == 11


@in_loop
async def test_whoever_follows_again_before_its_truncation_is_durable_appends_once_it_is():
    async with Cluster(2) as cluster:
        follower, executor = await cut_and_not_flushed(cluster)
        cluster.brokers[2].fetchers.follow(follower)
        await asyncio.sleep(0.05)
        end = follower.log.log_end_offset
        executor.release()
        assert end == 10
        await until(lambda: follower.log.log_end_offset == 20)


@in_loop
async def test_a_truncation_that_could_not_be_flushed_is_not_done():
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        follower = await follower_with_three_durable_records(cluster)
        outcomes: list[bool] = []
        manager = cluster.brokers[2].partitions.executor
        flush = manager.flush

        def without_files(partition: Partition) -> None:
            cluster.disks[2].fail("open", errno.EMFILE, path_part="t-0", count=100)
            cluster.disks[2].fail("sync_dir", errno.EMFILE, path_part="t-0", count=100)
            flush(partition)

        manager.flush = without_files
        follower.truncate_to(2, outcomes.append)
        await until(lambda: outcomes)
        assert outcomes == [False]
        assert not follower.offline
        manager.flush = flush
        cluster.disks[2].heal()
        manager.flush(follower)
        await until(lambda: follower.log.unflushed.truncation_is_durable)


@pytest.mark.parametrize("is_truncated", [True, False])
@in_loop
async def test_a_fetcher_that_changes_during_a_truncation_follows_after_it(is_truncated):
    """With flush.messages=1 the new one waits until all is durable, but for what is gone by then."""
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        cluster.create_topic("t", [[1, 2]], flush_messages="1")
        for _ in range(3):
            cluster.produce(b"x")
        follower, broker = cluster.replica(2), cluster.brokers[2]
        await until(lambda: follower.log.recovery_point == 3)
        executor = HeldExecutor()
        broker.executor = executor
        cluster.diverging = (0, 2)
        cluster.produce(b"x")
        await until(lambda: cluster.diverging is None)
        await turns()
        if not is_truncated:
            cluster.disks[2].fail("open", errno.EMFILE, path_part="recovery-point", count=1)
        broker.fetchers.resize(4)
        await turns()
        executor.release()
        await turns(100)
        cluster.disks[2].heal()
        cluster.produce(b"y")
        async with asyncio.timeout(60):
            while follower.log.log_end_offset < 5:  # noqa: ASYNC110 - as `until`, with a shorter limit
                await asyncio.sleep(0.001)


@pytest.mark.pure("calls are noted in Python")
@in_loop
async def test_of_many_truncations_a_few_go_on_in_one_turn_of_the_loop(monkeypatch):
    """One answer finds all logs of a leader diverged, and one checkpoint lets all of them be truncated."""
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]] * 90)
        broker = cluster.brokers[2]
        followers = list(broker.partitions)
        for number in range(90):
            cluster.produce(b"x", number=number)
        await until(lambda: all(follower.log.log_end_offset == 1 for follower in followers))
        turn = 0
        begun: list[int] = []
        truncated: list[int] = []

        async def count_turns() -> None:
            nonlocal turn
            while True:
                turn += 1
                await asyncio.sleep(0)

        def noted(owner: type, name: str, turns_of: list[int]) -> None:
            before = getattr(owner, name)

            def wrapped(*args: Any, **more: Any) -> Any:
                turns_of.append(turn)
                return before(*args, **more)

            monkeypatch.setattr(owner, name, wrapped)

        noted(UnifiedLog, "prepare_truncation", begun)
        noted(UnifiedLog, "truncate_to", truncated)
        counting = asyncio.ensure_future(count_turns())
        cluster.diverging = (0, 0)
        for number in range(90):
            cluster.produce(b"y", number=number)
        await until(lambda: len(truncated) == 90)
        counting.cancel()
        assert max(Counter(begun).values()) <= 20
        assert max(Counter(truncated).values()) <= 20
        await until(lambda: all(follower.log.log_end_offset == 2 for follower in followers), "followed again")


@in_loop
async def test_a_truncation_waits_for_some_new_logs_and_not_for_all(monkeypatch):
    async with Cluster(2) as cluster:
        follower = await follower_with_three_durable_records(cluster)
        identified = 0
        identify = UnifiedLog.identify

        def counted(log: UnifiedLog, may_block: MayBlock) -> None:
            nonlocal identified
            identified += 1
            identify(log, may_block)

        monkeypatch.setattr(UnifiedLog, "identify", counted)
        cluster.create_topic("big", [[2]] * 300)
        await turns(1)
        while not identified:
            await turns(1)
        outcomes: list[tuple[bool, int]] = []
        follower.truncate_to(2, lambda done: outcomes.append((done, identified)))
        await until(lambda: outcomes)
        [(done, at_the_truncation)] = outcomes
        assert done
        assert at_the_truncation <= 200
        new = [partition.log for partition in cluster.brokers[2].partitions]
        await until(lambda: not any(log.unidentified for log in new))
        assert identified == 300


@in_loop
async def test_a_checkpoint_that_fails_holds_up_no_truncation_in_another_directory():
    async with Cluster(2, directories=("/data/a", "/data/b")) as cluster:
        boundary_of(cluster)
        cluster.create_topic("t", [[1, 2]] * 2)
        broker = cluster.brokers[2]
        followers = {broker.partitions.logs.dir_of(f).path: f for f in broker.partitions}
        assert len(followers) == 2
        for number in (0, 1):
            cluster.produce(b"x", number=number)
        await until(lambda: all(f.log.log_end_offset == 1 for f in followers.values()))
        await broker.fetchers.close()
        cluster.disks[2].fail("open", errno.EMFILE, path_part="/data/a/recovery-point")
        outcomes: dict[str, bool] = {}
        for path, follower in followers.items():
            follower.truncate_to(0, partial(outcomes.__setitem__, path))
        await until(lambda: len(outcomes) == 2)
        assert outcomes == {"/data/a": False, "/data/b": True}


async def run(work: Callable[[MayBlock], Any]) -> Any:
    return work(MAY_BLOCK)


@in_loop
async def test_a_copy_whose_truncation_failed_is_truncated_at_the_next_step(monkeypatch):
    disk = SimDisk()
    log, copied = (open_log(f"/data/{name}/t-0", LogConfig(), disk=disk) for name in ("a", "b"))
    for number in range(5):
        for each in (log, copied):
            each.append_as_follower(_at(number))
    move = ReplicaMove(SimpleNamespace(), SimpleNamespace(log=log), SimpleNamespace(), copied)
    with monkeypatch.context() as patch:
        patch.setattr(TruncationWork, "run", lambda *_: None)  # a segment has gone meanwhile: not ready
        move.truncate(2)
        await move.align(run)
        assert copied.log_end_offset == 5
    assert move.truncation_pending
    await move.align(run)
    assert copied.log_end_offset == 2
    assert not move.truncation_pending
    copied.append_as_follower(_at(2))


def _at(offset: int) -> bytearray:
    return bytearray(encode_batch([Record(value=b"x")], base_offset=offset))


@pytest.mark.parametrize("offset", [0, 2])
@pytest.mark.parametrize("after", range(8))
@pytest.mark.parametrize("count", [1, 2])
@in_loop
async def test_a_truncation_without_files_is_made_or_refused_as_a_whole(monkeypatch, offset, after, count):
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        follower = await follower_with_three_durable_records(cluster)
        disk = cluster.disks[2]
        truncate_to = UnifiedLog.truncate_to

        def without_files(log: UnifiedLog, work: TruncationWork) -> bool:
            disk.fail("open", errno.EMFILE, path_part="t-0", after=after, count=count)
            try:
                return truncate_to(log, work)
            finally:
                disk.heal()

        monkeypatch.setattr(UnifiedLog, "truncate_to", without_files)
        outcomes: list[bool] = []
        follower.truncate_to(offset, outcomes.append)
        await until(lambda: outcomes)
        assert not follower.offline
        assert follower.log.log_end_offset == (offset if outcomes[0] else 3)


@pytest.mark.parametrize("after", range(8))
@in_loop
async def test_a_log_without_files_restarts_empty_or_not_at_all(after):
    async with Cluster(2) as cluster:
        boundary_of(cluster)
        follower = await follower_with_three_durable_records(cluster)
        cluster.disks[2].fail("open", errno.EMFILE, path_part="t-0", after=after, count=1)
        outcomes: list[bool] = []
        follower.truncate_to(9, outcomes.append, restart=True)
        await until(lambda: outcomes)
        cluster.disks[2].heal()
        assert not follower.offline
        assert follower.log.log_end_offset in ({9} if outcomes[0] else {3, 9})
        assert follower.log.log_start_offset in (0, 9)


@in_loop
async def test_a_log_that_is_truncated_during_a_flush_is_flushed_again():
    """That flush does not say that the truncation is durable; without another one it never would be."""
    async with Cluster(2) as cluster:
        follower = await follower_with_three_durable_records(cluster)
        cluster.produce(b"y")
        await until(lambda: follower.log.log_end_offset == 4)
        broker = cluster.brokers[2]
        broker.executor = executor = HeldExecutor()
        broker.partitions.executor.flush(follower)
        await turns()
        flush = executor.waiting.pop(0)
        outcomes: list[bool] = []
        follower.truncate_to(3, outcomes.append)
        while follower.log.log_end_offset == 4:
            assert await executor.run_next()
        executor.waiting.insert(0, flush)
        executor.release()
        await until(lambda: outcomes)
        assert outcomes == [True]
        assert follower.log.unflushed.truncation_is_durable


@in_loop
async def test_a_log_that_restarts_while_its_truncation_is_flushed_takes_appends_again():
    async with Cluster(2) as cluster:
        follower = await follower_with_three_durable_records(cluster)
        cluster.produce(b"y")
        await until(lambda: follower.log.log_end_offset == 4)
        broker = cluster.brokers[2]
        broker.executor = executor = HeldExecutor()
        broker.partitions.executor.flush(follower)
        await turns()
        follower.truncate_to(3, lambda done: None)
        await turns()
        flush = executor.waiting.pop(0)  # takes longer than what comes now
        while follower.log.log_end_offset == 4:
            assert await executor.run_next()
        executor.waiting.insert(0, flush)
        await executor.run_next()
        too_early = follower.log.unflushed.truncation_is_durable
        outcomes: list[bool] = []
        follower.truncate_to(
            7, outcomes.append, restart=True
        )  # under the next leader, whose log begins there
        executor.release()
        await until(lambda: outcomes)
        assert outcomes == [True]
        assert not too_early
        records = memoryview(encode_batch([Record(value=b"z")], base_offset=7))
        assert follower.append_as_follower(records, 0, 0, cluster.now_ms) == 8
