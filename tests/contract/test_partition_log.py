"""What the `PartitionLog` port promises to a coordinator: an internal topic on replicated partitions, and the
log in memory that tests of coordinators stand on, pass the same suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from functools import wraps
from typing import Protocol

import pytest

from data_plane.coordinator.internal_topic import InternalTopic
from data_plane.coordinator.partition_log import PartitionLog
from metadata_quorum.foundation.batch import Record, decode_batch, encode_batch, iter_headers
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.replication.cluster import NOW_MS, Cluster, until

TOPIC = "__internal"
MAX_BYTES = 10_000


class Rig(Protocol):
    """A log, and the switch of its replication."""

    log: PartitionLog

    @property
    def epoch(self) -> int:
        """The leader epoch of partition 0."""

    def hold(self) -> None:
        """From now on nothing is replicated."""

    def release(self) -> None: ...

    def next_epoch(self) -> None:
        """Another leader epoch begins, of the same leader."""


class MemoryRig:
    def __init__(self) -> None:
        self.epoch = 0
        self.log = MemoryLog()
        self.log.max_bytes = MAX_BYTES

    def hold(self) -> None:
        self.log.replicating = False

    def release(self) -> None:
        self.log.replicating = True
        self.log.replicate(0)

    def next_epoch(self) -> None:
        self.epoch += 1
        self.log.partition(0).epoch = self.epoch


class ReplicatedRig:
    def __init__(self, cluster: Cluster) -> None:
        self._cluster = cluster
        broker = cluster.brokers[1]
        self.log = InternalTopic(
            TOPIC, broker.partitions, cluster.loop, lambda: cluster.now_ms, broker.blocking
        )

    @property
    def epoch(self) -> int:
        return self._cluster.leader(TOPIC).leader_epoch

    def hold(self) -> None:
        self._cluster.cuts.add((2, 1))
        for endpoint in self._cluster.brokers[2].endpoints:
            endpoint.break_off()

    def release(self) -> None:
        self._cluster.cuts.clear()

    def next_epoch(self) -> None:
        self._cluster.elect(TOPIC, 0, 2)
        self._cluster.elect(TOPIC, 0, 1)


@asynccontextmanager
async def in_memory() -> AsyncIterator[Rig]:
    yield MemoryRig()


@asynccontextmanager
async def replicated() -> AsyncIterator[Rig]:
    async with Cluster(2) as cluster:
        cluster.create_topic(TOPIC, [[1, 2]], max_message_bytes=str(MAX_BYTES))
        yield ReplicatedRig(cluster)


def contract(test: Callable[[Rig], Awaitable[None]]) -> Callable[..., None]:
    @pytest.mark.parametrize("rigged", [in_memory, replicated])
    @wraps(test)
    def run(rigged: Callable[[], AbstractAsyncContextManager[Rig]]) -> None:
        async def main() -> None:
            async with rigged() as rig:
                await test(rig)

        asyncio.run(main())

    del run.__wrapped__  # type: ignore[attr-defined]  # pytest would ask for its parameters
    return run


def batch(*values: bytes) -> bytearray:
    return bytearray(encode_batch([Record(value=value, timestamp=NOW_MS) for value in values]))


def values_in(data: bytes) -> list[bytes | None]:
    return [record.value for position, _ in iter_headers(data) for record in decode_batch(data, position)]


@contract
async def test_an_append_returns_the_offset_behind_the_batch(rig):
    assert rig.log.bounds(0) == (0, 0)
    assert rig.log.append(0, rig.epoch, batch(b"a", b"b")) == 2
    assert rig.log.append(0, rig.epoch, batch(b"c")) == 3
    assert rig.log.bounds(0) == (0, 3)


@contract
async def test_an_append_of_an_older_leader_epoch_is_refused(rig):
    epoch = rig.epoch
    rig.next_epoch()
    with pytest.raises(BrokerError):
        rig.log.append(0, epoch, batch(b"a"))
    assert rig.log.bounds(0) == (0, 0)
    assert rig.log.append(0, rig.epoch, batch(b"b")) == 1


@contract
async def test_a_batch_larger_than_it_says_is_refused(rig):
    limit = rig.log.max_batch_bytes(0)
    with pytest.raises(BrokerError) as refused:
        rig.log.append(0, rig.epoch, batch(b"x" * limit))
    assert refused.value.code is ErrorCode.MESSAGE_TOO_LARGE
    assert rig.log.append(0, rig.epoch, batch(b"x" * (limit - 100))) == 1


@contract
async def test_who_waits_is_called_once_when_the_offset_is_replicated(rig):
    rig.hold()
    calls: list[int] = []
    for _ in range(3):
        end = rig.log.append(0, rig.epoch, batch(b"a"))
        rig.log.when_replicated(0, end, lambda replicated, end=end: calls.append(replicated and end))
    await asyncio.sleep(0.01)
    assert calls == []
    rig.release()
    await until(lambda: len(calls) == 3)
    assert calls == [1, 2, 3]
    rig.log.when_replicated(0, 3, lambda replicated: calls.append(replicated and 0))
    assert calls == [1, 2, 3, 0]  # at once


@contract
async def test_a_read_gives_whole_batches_and_at_least_one(rig):
    first = batch(b"a", b"b")
    for each in (first, batch(b"c"), batch(b"d")):
        rig.log.append(0, rig.epoch, each)
    assert values_in(await rig.log.read(0, 0, 1)) == [b"a", b"b"]
    assert values_in(await rig.log.read(0, 1, len(first))) == [b"a", b"b"]  # holds offset 1
    assert values_in(await rig.log.read(0, 2, 1 << 20)) == [b"c", b"d"]


@contract
async def test_a_read_sees_what_is_not_replicated_yet(rig):
    rig.hold()
    rig.log.append(0, rig.epoch, batch(b"a"))
    assert values_in(await rig.log.read(0, 0, 1 << 20)) == [b"a"]
