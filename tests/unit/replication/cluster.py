"""Several brokers in one event loop, joined by function calls: the data plane and the fetch layer as
they are, with a controller of a few lines and simulated disks."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Awaitable, Callable, Coroutine, Sequence
from dataclasses import replace
from functools import wraps
from typing import Any
from uuid import UUID

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log_manager.log_dirs import LogDir
from data_plane.purgatory.timing_wheel import WheelTimer
from data_plane.quotas.replication import ReplicationQuotas
from data_plane.replication.delayed_produce import await_replication
from data_plane.replication.directory_assignments import DirectoryChannel
from data_plane.replication.leader_state import AlterPartitionItem, AlterPartitionResult
from data_plane.replication.partition import Partition
from data_plane.replication.replica_manager import ReplicaManager, ReplicaManagerConfig
from fetch.delayed_fetch import FetchService
from fetch.fetcher import FetcherContext
from fetch.fetcher_manager import ReplicaFetcherManager
from fetch.follower_session import FetchLimits
from fetch.messages import FetchRequest, FetchResponse, LogBounds
from fetch.sessions import SessionCache
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.blocking import Blocking, MayBlock, Result
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from metadata_quorum.foundation.supervision import ErrorBoundary
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import (
    ConfigRecord,
    FenceBrokerRecord,
    PartitionChangeRecord,
    PartitionRecord,
    RegisterBrokerRecord,
    RemoveTopicRecord,
    TopicRecord,
    UnfenceBrokerRecord,
)
from tests.support.may_block import MAY_BLOCK
from tests.support.virtual_loop import run_virtually

NOW_MS = 1_700_000_000_000


def batch(*values: bytes, timestamp: int = NOW_MS) -> bytearray:
    return bytearray(encode_batch([Record(value=value, timestamp=timestamp) for value in values]))


async def until(condition: Callable[[], object], what: str = "") -> None:
    """Let the loop turn until the condition holds."""
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - anything may be the condition
            await asyncio.sleep(0.001)


class MemoryLeader:
    """A LeaderEndpoint by function call. `cut` breaks it; `fetches` counts."""

    def __init__(self, cluster: Cluster, source: int, target: int) -> None:
        self.cluster, self.source, self.target = cluster, source, target
        self.requests: list[FetchRequest] = []
        self._waiting: set[asyncio.Future[FetchResponse]] = set()

    def fetch(self, request: FetchRequest) -> asyncio.Future[FetchResponse]:
        future: asyncio.Future[FetchResponse] = self.cluster.loop.create_future()
        broker = self.cluster.brokers.get(self.target)
        if broker is None or (self.source, self.target) in self.cluster.cuts:
            future.set_exception(ConnectionRefusedError())
            return future
        self.requests.append(request)
        self._waiting.add(future)

        def reply(response: FetchResponse) -> None:
            self._waiting.discard(future)
            if self.cluster.diverging is not None and response.partitions:
                answer, self.cluster.diverging = self.cluster.diverging, None
                for part in response.partitions:
                    part.diverging_epoch, part.slice = answer, None
            for part in response.partitions:
                if part.slice is not None:
                    part.records = memoryview(bytes(part.slice.read(MAY_BLOCK)))
            if not future.done():
                self.cluster.loop.call_soon(lambda: future.done() or future.set_result(response))

        broker.fetches.fetch(broker.fetches.params_of(request), reply)
        return future

    def break_off(self) -> None:
        for future in list(self._waiting):
            if not future.done():
                future.set_exception(ConnectionResetError())
        self._waiting.clear()

    async def log_bounds(self, topic: str, partition: int, current_leader_epoch: int) -> LogBounds:
        await asyncio.sleep(0)
        found = self.cluster.brokers[self.target].partitions.get(topic, partition)
        found.check_epoch(current_leader_epoch, leader_only=True)
        return LogBounds(found.log.log_start_offset, found.log.log_end_offset)

    def close(self) -> None:
        self.break_off()


async def run_in_next_turn(work: Callable[[MayBlock], Result], /) -> Result:
    """An executor that takes one turn of the loop for anything."""
    await asyncio.sleep(0)
    return work(MAY_BLOCK)


class Broker:
    """`executor` runs its blocking work; a test may put another in its place."""

    def __init__(self, cluster: Cluster, broker_id: int, disk: SimDisk) -> None:
        self.cluster, self.broker_id, self.disk = cluster, broker_id, disk
        loop = cluster.loop
        self.timer = WheelTimer(loop)
        self.dirs = [
            LogDir(disk, path, None if number is None else UUID(int=number), boot_id=cluster.boot_id)
            for number, path in zip(cluster.directory_ids, cluster.directories, strict=False)
        ]
        self.endpoints: list[MemoryLeader] = []
        self.executor: Blocking = run_in_next_turn
        self.quotas = ReplicationQuotas(broker_id)
        self.partitions = ReplicaManager(
            ReplicaManagerConfig(
                broker_id, lag_time_max=cluster.lag_time_max, log_defaults=cluster.log_defaults
            ),
            self.dirs,
            self,
            loop=loop,
            timer=self.timer,
            rng=random.Random(broker_id),
            now_ms=lambda: cluster.now_ms,
            blocking=self.blocking,
            directory_channel=cluster.directory_channel,
            moves_quota=self.quotas.moves,
        )
        self.sessions = SessionCache(cluster.session_slots, random.Random(broker_id))
        self.fetches = FetchService(
            self.partitions, self.sessions, self.timer, loop, quota=self.quotas.leader
        )
        self.fetchers = ReplicaFetcherManager(
            FetcherContext(
                broker_id,
                lambda: cluster.image.brokers[broker_id].broker_epoch,
                lambda: cluster.now_ms,
                loop,
                self.timer,
                random.Random(broker_id),
                cluster.limits,
                retry_last=0.05,
                quota=self.quotas.follower,
            ),
            self.connect,
        )

    def blocking(self, work: Callable[[MayBlock], Result], /) -> Awaitable[Result]:
        return self.executor(work)

    def connect(self, leader_id: int, fetcher_id: int) -> MemoryLeader:
        endpoint = MemoryLeader(self.cluster, self.broker_id, leader_id)
        self.endpoints.append(endpoint)
        return endpoint

    async def alter_partitions(self, items: Sequence[AlterPartitionItem]) -> Sequence[AlterPartitionResult]:
        await asyncio.sleep(0)
        return [self.cluster.alter_partition(self.broker_id, item) for item in items]

    def publish(self, delta: MetadataDelta, image: MetadataImage) -> None:
        self.quotas.take(delta, image)
        changes = self.partitions.applier.apply(delta, image)
        for partition in changes.leading + changes.removed:
            self.fetchers.unfollow(partition)
        for partition in changes.following:
            self.fetchers.follow(partition)

    async def close(self) -> None:
        await self.fetchers.close()
        await self.partitions.close()
        self.timer.close()


class Cluster:
    """Controller and brokers. Metadata reaches all live brokers at once, unless held back."""

    def __init__(
        self,
        brokers: int = 3,
        *,
        lag_time_max: float = 30.0,
        limits: FetchLimits | None = None,
        log_defaults: LogConfig | None = None,
        directories: Sequence[str] = ("/data",),
        disk: Callable[[], SimDisk] = SimDisk,
        directory_channel: DirectoryChannel | None = None,
        session_slots: int = 100,
    ) -> None:
        self.loop = asyncio.get_running_loop()
        self.lag_time_max = lag_time_max
        self.limits = limits or FetchLimits()
        self.log_defaults = log_defaults or LogConfig()
        self.directories = directories
        self.directory_ids: Sequence[int | None] = range(len(directories))
        """None: of one that cannot be read."""
        self.directory_channel = directory_channel
        self.session_slots = session_slots
        self.now_ms = NOW_MS
        self.boot_id = "first boot"
        self.image = EMPTY_IMAGE
        self.cuts: set[tuple[int, int]] = set()
        self.diverging: tuple[int, int] | None = None
        """Epoch and end that the next answer of a leader gives for all its partitions, instead of records."""
        self.held_back: set[int] = set()
        self.refuse_isr: list[ErrorCode] = []
        self.disks = {i: disk() for i in range(1, brokers + 1)}
        self.brokers: dict[int, Broker] = {}
        for broker_id in self.disks:
            self.start(broker_id)

    async def __aenter__(self) -> Cluster:
        return self

    async def __aexit__(self, *error: object) -> None:
        for broker in self.brokers.values():
            await broker.close()

    # --- brokers

    def start(self, broker_id: int, *, loaded: Callable[[Broker], None] = lambda _: None) -> Broker:
        """A new incarnation: it leaves every ISR, gets all metadata, and is unfenced. `loaded` is called when
        its logs are open, and no metadata has claimed them yet."""
        self.fence(broker_id)
        self.brokers[broker_id] = broker = Broker(self, broker_id, self.disks[broker_id])
        broker.partitions.logs.load(MAY_BLOCK)
        loaded(broker)
        epoch = self.image.offset + 100
        self.commit(
            RegisterBrokerRecord(broker_id=broker_id, incarnation_id=UUID(int=epoch), broker_epoch=epoch)
        )
        self.catch_up(broker_id)
        self.commit(UnfenceBrokerRecord(id=broker_id, epoch=epoch))
        self._elect_leaderless()
        return broker

    def catch_up(self, broker_id: int) -> None:
        self.held_back.discard(broker_id)
        self.brokers[broker_id].publish(MetadataDelta.between(EMPTY_IMAGE, self.image), self.image)

    async def crash(self, broker_id: int) -> None:
        broker = self.brokers.pop(broker_id)
        broker.disk.kill()
        for other in self.brokers.values():
            for endpoint in other.endpoints:
                if endpoint.target == broker_id:
                    endpoint.break_off()
        await broker.fetchers.close()
        broker.timer.close()

    def fence(self, broker_id: int) -> None:
        registration = self.image.brokers.get(broker_id)
        if registration is None or registration.fenced:
            return
        self.commit(FenceBrokerRecord(id=broker_id, epoch=registration.broker_epoch))
        changes = []
        for topic, number, reg in self.image.each_partition():
            if broker_id in reg.isr:
                isr = tuple(b for b in reg.isr if b != broker_id) or reg.isr
                leader = next((b for b in isr if self.image.is_active(b)), -1)
                change = PartitionChangeRecord(partition_id=number, topic_id=topic.id, isr=isr)
                if reg.leader == broker_id:
                    change = PartitionChangeRecord(
                        partition_id=number, topic_id=topic.id, isr=isr, leader=leader
                    )
                changes.append(change)
        self.commit(*changes)

    def _elect_leaderless(self) -> None:
        changes = []
        for topic, number, reg in self.image.each_partition():
            leader = next((b for b in reg.isr if self.image.is_active(b)), -1)
            if reg.leader == -1 and leader != -1:
                changes.append(PartitionChangeRecord(partition_id=number, topic_id=topic.id, leader=leader))
        self.commit(*changes)

    # --- controller

    def commit(self, *records: object) -> None:
        if not records:
            return
        delta = MetadataDelta(self.image)
        for record in records:
            delta.replay(record)  # type: ignore[arg-type]
        delta.offset = self.image.offset + len(records)
        self.image = delta.apply()
        for broker_id, broker in list(self.brokers.items()):
            if broker_id not in self.held_back:
                broker.publish(delta, self.image)

    def create_topic(self, name: str, assignment: Sequence[Sequence[int]], **configs: str) -> UUID:
        topic_id = UUID(int=1000 + self.image.offset)
        self.commit(
            *(
                ConfigRecord(resource_type=2, resource_name=name, name=key.replace("_", "."), value=value)
                for key, value in configs.items()
            ),
            TopicRecord(name=name, topic_id=topic_id),
            *(
                PartitionRecord(
                    partition_id=number,
                    topic_id=topic_id,
                    replicas=tuple(replicas),
                    isr=tuple(replicas),
                    leader=replicas[0],
                    leader_epoch=0,
                    partition_epoch=0,
                )
                for number, replicas in enumerate(assignment)
            ),
        )
        return topic_id

    def delete_topic(self, topic_id: UUID) -> None:
        self.commit(RemoveTopicRecord(topic_id=topic_id))

    def elect(self, topic: str, number: int, leader: int) -> None:
        topic_id = self.image.topics_by_name[topic].id
        self.commit(PartitionChangeRecord(partition_id=number, topic_id=topic_id, leader=leader))

    def alter_partition(self, broker_id: int, item: AlterPartitionItem) -> AlterPartitionResult:
        if self.refuse_isr:
            return AlterPartitionResult(self.refuse_isr.pop(0))
        topic = self.image.topics_by_id.get(item.topic_id)
        if topic is None:
            return AlterPartitionResult(ErrorCode.UNKNOWN_TOPIC_ID)
        reg = topic.partitions[item.partition]
        change = item.change
        if change.leader_epoch > reg.leader_epoch or change.partition_epoch > reg.partition_epoch:
            return AlterPartitionResult(ErrorCode.NOT_CONTROLLER)
        if change.leader_epoch < reg.leader_epoch:
            return AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH)
        if broker_id != reg.leader:
            return AlterPartitionResult(ErrorCode.INVALID_REQUEST)
        if change.partition_epoch < reg.partition_epoch:
            return AlterPartitionResult(ErrorCode.INVALID_UPDATE_VERSION)
        for member, epoch in item.isr_with_epochs:
            if not self.image.is_active(member) or self.image.brokers[member].broker_epoch != epoch:
                return AlterPartitionResult(ErrorCode.INELIGIBLE_REPLICA)
        self.commit(
            PartitionChangeRecord(partition_id=item.partition, topic_id=item.topic_id, isr=change.isr)
        )
        reg = self.image.topics_by_id[item.topic_id].partitions[item.partition]
        return AlterPartitionResult(
            ErrorCode.NONE, reg.leader, reg.leader_epoch, reg.isr, reg.partition_epoch
        )

    # --- looking

    def replica(self, broker_id: int, topic: str = "t", number: int = 0) -> Partition:
        return self.brokers[broker_id].partitions.get(topic, number)

    def leader(self, topic: str = "t", number: int = 0) -> Partition:
        reg = self.image.partition(TopicPartition(topic, number))
        assert reg is not None
        return self.replica(reg.leader, topic, number)

    def isr(self, topic: str = "t", number: int = 0) -> tuple[int, ...]:
        reg = self.image.partition(TopicPartition(topic, number))
        assert reg is not None
        return reg.isr

    def produce(self, *values: bytes, topic: str = "t", number: int = 0, acks: int = -1) -> int:
        """Append on the leader; returns the offset after the last record."""
        leader = self.leader(topic, number)
        info = leader.append_as_leader(batch(*values), acks=acks, now=self.loop.time(), now_ms=self.now_ms)
        return info.last_offset + 1

    async def fetch(self, broker_id: int, request: FetchRequest, **served: Any) -> FetchResponse:
        """As a client of that broker; `served`: other FetchParams."""
        future: asyncio.Future[FetchResponse] = self.loop.create_future()
        service = self.brokers[broker_id].fetches
        service.fetch(replace(service.params_of(request), **served), future.set_result)
        async with asyncio.timeout(60):
            return await future


async def turns(count: int = 20) -> None:
    """Of the loop."""
    for _ in range(count):
        await asyncio.sleep(0)


__all__ = ["NOW_MS", "BrokerError", "Cluster", "batch", "until"]


def in_loop(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    @wraps(test)
    def run(*args: object, **more: object) -> None:
        asyncio.run(test(*args, **more), debug=False)

    return run


def in_virtual_time(test: Callable[..., Coroutine[Any, Any, None]]) -> Callable[..., None]:
    """For what depends on how long something takes: here nothing does, however slow the machine is."""

    @wraps(test)
    def run(*args: object, **more: object) -> None:
        run_virtually(test(*args, **more))

    return run


async def produce_outcome(cluster: Cluster, *values: bytes, timeout: float = 60.0) -> ErrorCode:
    """Produce with acks=all to t-0 and wait for the answer."""
    leader = cluster.leader()
    needed = cluster.produce(*values)
    done: asyncio.Future[list[ErrorCode]] = cluster.loop.create_future()
    broker = cluster.brokers[leader.leader_id]
    appended = (leader, needed, leader.leader_epoch)
    await_replication([appended], timer=broker.timer, timeout=timeout, on_done=done.set_result)
    return (await done)[0]


def boundary_of(cluster: Cluster) -> ErrorBoundary:
    def end(error: BaseException) -> None:
        raise AssertionError("the node ends") from error

    boundary = ErrorBoundary(end, cluster.loop.time)
    cluster.loop.set_exception_handler(boundary.loop_error)
    return boundary
