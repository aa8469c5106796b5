"""What concerns every partition is done in pieces: no turn of the loop grows with their number."""

from __future__ import annotations

import asyncio
import errno
from collections.abc import Callable, Sequence
from functools import partial
from itertools import pairwise
from typing import Any
from uuid import UUID

import pytest

from data_plane.log import checkpoints, retention
from data_plane.log.producers import ProducerStateEntry
from data_plane.log_manager import background_work, checkpoint_writer, log_sweeps
from data_plane.replication import isr_requests
from data_plane.replication.isr_requests import AlterPartitionManager
from data_plane.replication.leader_state import AlterPartitionResult, IsrOutcome
from data_plane.replication.partition import Partition
from fetch import delayed_fetch, fetcher_manager, follower_session, sessions
from fetch.messages import SESSIONLESS_EPOCH, FetchRequest
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import ResourceType, TopicPartition
from metadata_quorum.metadata.records import ConfigRecord
from tests.support.logs import NOW_MS, batch
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import (
    Broker,
    Cluster,
    boundary_of,
    in_loop,
    in_virtual_time,
    run_in_next_turn,
    until,
)
from tests.unit.replication.fetch_session import Consumer, got, want

PARTITIONS, PIECE = 25, 10


@pytest.fixture(autouse=True)
def small_pieces(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(background_work, "VISITED_PER_TURN", PIECE)
    monkeypatch.setattr(checkpoint_writer, "VISITED_PER_TURN", PIECE)
    monkeypatch.setattr(follower_session, "MOST_NAMED", PIECE)
    monkeypatch.setattr(delayed_fetch, "LOOKS_PER_TURN", PIECE)
    monkeypatch.setattr(sessions, "CHANGES_AT_ONCE", PIECE)
    monkeypatch.setattr(isr_requests, "MOST_IN_REQUEST", PIECE)
    monkeypatch.setattr(fetcher_manager, "MOVED_PER_TURN", PIECE)


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("R7")
@in_loop
async def test_a_follower_names_its_partitions_in_several_requests():
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * PARTITIONS)
        needed = [cluster.produce(b"x", number=number) for number in range(PARTITIONS)]
        for number, offset in enumerate(needed):
            await until(lambda n=number, o=offset: cluster.leader("t", n).high_watermark == o)
        (endpoint,) = cluster.brokers[2].endpoints
        assert {p.partition for r in endpoint.requests for p in r.partitions} == set(range(PARTITIONS))
        assert max(len(r.partitions) for r in endpoint.requests) == PIECE


@in_loop
async def test_partitions_move_to_more_fetchers_in_several_turns():
    async with Cluster(2) as cluster:
        cluster.create_topic("t", [[1, 2]] * PARTITIONS)
        fetchers = cluster.brokers[2].fetchers
        await until(lambda: len(fetchers) == PARTITIONS)
        (first,) = fetchers
        fetchers.resize(PARTITIONS)
        assert len(first) >= PARTITIONS - PIECE
        fetchers.unfollow(cluster.replica(2, "t", PARTITIONS - 1))
        await until(lambda: len(list(fetchers)) == PARTITIONS - 1)
        assert [len(each) for each in fetchers] == [1] * (PARTITIONS - 1)
        needed = [cluster.produce(b"x", number=number) for number in range(PARTITIONS - 1)]
        for number, offset in enumerate(needed):
            await until(lambda n=number, o=offset: cluster.replica(2, "t", n).log.log_end_offset == o)


@in_loop
async def test_a_sweep_takes_several_turns():
    async with Cluster(1) as cluster:
        visited: list[int] = []
        cluster.brokers[1].partitions.background.sweep(range(PARTITIONS), visited.append)
        assert len(visited) == PIECE
        await until(lambda: len(visited) == PARTITIONS)
        assert visited == list(range(PARTITIONS))


@in_virtual_time
async def test_of_very_many_deletions_that_are_due_at_once_one_is_handed_over_at_a_time():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        broker = cluster.brokers[1]
        await until(lambda: broker.partitions.background.idle)
        cluster.delete_topic(topic_id)
        await asyncio.sleep(broker.partitions.logs.configs.defaults.file_delete_delay_ms / 1000 - 1)
        assert len(_set_aside(broker)) == PARTITIONS
        most = _most_at_once(broker)
        await until(lambda: not _set_aside(broker))
        assert most() == 1


@in_virtual_time
async def test_what_fails_in_a_directory_keeps_nothing_behind_it():
    async with Cluster(1, directories=("/a", "/b")) as cluster:
        boundary = boundary_of(cluster)
        broker = cluster.brokers[1]
        background = broker.partitions.background
        await until(lambda: background.idle)
        done: list[str] = []
        failures: list[Exception] = [ValueError("a bug"), OSError(errno.EMFILE, "no descriptor")]

        def work(name: str, _: MayBlock) -> None:
            if name in ("first", "second") and failures:
                raise failures.pop(0)
            done.append(name)

        most = _most_at_once(broker)
        for name in ("first", "second", "third"):
            background.run_in(broker.dirs[0], partial(work, name))
        background.run_in(broker.dirs[1], partial(work, "elsewhere"))
        await until(lambda: background.idle)
        assert (done, sum(boundary.faults.values())) == (["elsewhere", "third"], 2)
        assert most() == len(broker.dirs)
        await until(lambda: len(done) > 2)
        assert done == ["elsewhere", "third", "second"]


def _most_at_once(broker: Broker) -> Callable[[], int]:
    """From now on: of how much work that was handed over none was done."""
    handed_over = most = 0

    async def run(work: Callable[[MayBlock], Any], /) -> Any:
        nonlocal handed_over, most
        handed_over += 1
        most = max(most, handed_over)
        try:
            return await run_in_next_turn(work)
        finally:
            handed_over -= 1

    broker.executor = run
    return lambda: most


def _set_aside(broker: Broker) -> list[str]:
    return [name for name in broker.disk.list("/data", MAY_BLOCK) if name.endswith("-delete")]


def _set(cluster: Cluster, kind: ResourceType, resource: str, name: str, value: str) -> None:
    cluster.commit(ConfigRecord(resource_type=kind, resource_name=resource, name=name, value=value))


@in_loop
async def test_a_changed_configuration_reaches_many_partitions_in_several_turns():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]] * PARTITIONS)

        def retentions() -> list[int]:
            return [cluster.leader("t", number).log.config.retention_ms for number in range(PARTITIONS)]

        before = cluster.leader("t", 0).log.config.retention_ms
        _set(cluster, ResourceType.TOPIC, "t", "retention.ms", "5")
        assert retentions() == [5] * PIECE + [before] * (PARTITIONS - PIECE)
        _set(cluster, ResourceType.TOPIC, "t", "retention.ms", "6")  # the first one is still under way
        await until(lambda: retentions() == [6] * PARTITIONS)
        await asyncio.sleep(0)
        _set(cluster, ResourceType.BROKER, "", "log.segment.bytes", "2000000")
        segments = [cluster.leader("t", number).log.config.segment_bytes for number in range(PARTITIONS)]
        assert segments.count(2_000_000) == PIECE
        await until(lambda: cluster.leader("t", PARTITIONS - 1).log.config.segment_bytes == 2_000_000)
        assert retentions() == [6] * PARTITIONS
        assert len({id(cluster.leader("t", number).log.config) for number in range(PARTITIONS)}) == 1


@in_loop
async def test_one_long_configuration_is_understood_in_a_turn():
    async with Cluster(1) as cluster:
        names = [f"t{number}" for number in range(PIECE)]
        for name in names:
            cluster.create_topic(name, [[1]] * 2, cleanup_policy=",".join(["delete"] * 200))
        assert cluster.leader("t0").log.config.cleanup_policy == ("delete",)
        _set(cluster, ResourceType.BROKER, "", "log.segment.bytes", "2000000")
        understood = []
        while len(understood) < PIECE or understood[-1] < 2 * PIECE:
            logs = [cluster.leader(name, number).log for name in names for number in range(2)]
            understood.append([log.config.segment_bytes for log in logs].count(2_000_000))
            await asyncio.sleep(0)
        assert understood[0] == 1
        assert max(after - before for before, after in pairwise(understood)) == 2


@in_loop
async def test_what_min_insync_replicas_held_back_goes_on_with_each_configuration():
    """Nothing else would let the high watermark of the last partitions rise."""
    async with Cluster() as cluster:
        cluster.create_topic("t", [[1, 2, 3]] * PARTITIONS, min_insync_replicas="3")
        cluster.fence(3)
        for number in range(PARTITIONS):
            cluster.produce(b"x", number=number, acks=1)
        leaders = [cluster.leader("t", number) for number in range(PARTITIONS)]
        await until(lambda: all(each.leader.followers[2].log_end_offset == 1 for each in leaders))
        assert {each.high_watermark for each in leaders} == {0}
        _set(cluster, ResourceType.TOPIC, "t", "min.insync.replicas", "2")
        await until(lambda: all(each.high_watermark == 1 for each in leaders))


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("L3")
@in_loop
async def test_of_many_old_segments_a_few_are_dropped_in_one_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(retention, "DROPPED_AT_ONCE", 2)
    async with Cluster(1) as cluster:
        for name in ("t", "u"):
            cluster.create_topic(name, [[1]], segment_ms="500", retention_ms="1000")
            for number in range(7):
                records = batch(b"x", timestamp=NOW_MS + 1000 * number)
                cluster.leader(name).append_as_leader(
                    records, acks=1, now=cluster.loop.time(), now_ms=cluster.now_ms
                )
        logs = [cluster.leader(name).log for name in ("t", "u")]
        cluster.now_ms = NOW_MS + 60_000
        cluster.brokers[1].partitions.sweeps.apply_retention()
        starts = [0]
        while sum(log.log_start_offset for log in logs) < 14:
            starts.append(sum(log.log_start_offset for log in logs))
            await asyncio.sleep(0)
        assert max(after - before for before, after in pairwise(starts)) == 2


@in_loop
async def test_checkpoints_are_collected_in_several_turns_and_are_whole():
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]] * PARTITIONS)
        for number in range(PARTITIONS):
            cluster.produce(b"x", number=number)
        await cluster.brokers[1].partitions.checkpoints.write(everything=True)
        path = f"/data/{checkpoints.REPLICATION_OFFSETS}"
        written = checkpoints.read_offsets(cluster.disks[1], path, MAY_BLOCK)
        assert written == {TopicPartition("t", number): 1 for number in range(PARTITIONS)}


class Channel:
    def __init__(self) -> None:
        self.asked: list[int] = []

    async def alter_partitions(self, items: Sequence[Any]) -> Sequence[AlterPartitionResult]:
        self.asked.append(len(items))
        await asyncio.sleep(0)
        return [AlterPartitionResult(ErrorCode.FENCED_LEADER_EPOCH)] * len(items)


class Requester:
    removed = False
    tp = TopicPartition("t", 0)

    def awaits(self, item: object) -> bool:
        return True

    def handle_alter_partition_response(self, item: object, answer: object, now: float) -> IsrOutcome:
        return IsrOutcome.IGNORED

    def maybe_expand_isr(self, now: float) -> None: ...


@in_loop
async def test_changes_of_isrs_are_sent_in_several_requests():
    channel = Channel()
    manager = AlterPartitionManager(channel, asyncio.get_running_loop())
    item: Any = object()
    for _ in range(PARTITIONS):
        manager.submit(Requester(), item)
    await until(lambda: sum(channel.asked) == PARTITIONS)
    assert channel.asked == [10, 10, 5]
    await manager.close()


class Turns:
    """Counts how many partitions are looked up in each turn of the loop."""

    def __init__(self, cluster: Cluster, monkeypatch: pytest.MonkeyPatch) -> None:
        self.looked_up: list[int] = [0]
        source, get = cluster.brokers[1].partitions, cluster.brokers[1].partitions.get_by_id

        def noted(topic_id: UUID, number: int) -> Partition:
            if not self.looked_up[-1]:
                cluster.loop.call_soon(self.looked_up.append, 0)
            self.looked_up[-1] += 1
            return get(topic_id, number)

        monkeypatch.setattr(source, "get_by_id", noted)


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("P2")
@pytest.mark.parametrize("fields", [{}, {"max_wait_ms": 60_000}, {"session_epoch": SESSIONLESS_EPOCH}])
@in_loop
async def test_a_first_fetch_is_looked_at_in_several_turns(
    monkeypatch: pytest.MonkeyPatch, fields: dict[str, int]
):
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        cluster.produce(b"a", number=3)
        turns, sessions = Turns(cluster, monkeypatch), cluster.brokers[1].sessions
        request = FetchRequest(
            [want(topic_id, n) for n in range(PARTITIONS)], **{"session_epoch": 0, "max_wait_ms": 0, **fields}
        )
        response = await cluster.fetch(1, request)
        assert got(response) == {n: [b"a"] if n == 3 else [] for n in range(PARTITIONS)}
        assert [each.partition for each in response.partitions] == list(range(PARTITIONS))
        assert sum(turns.looked_up) == PARTITIONS
        assert max(turns.looked_up) == PIECE
        assert cluster.brokers[1].fetches.parked == 0
        assert sessions.partitions == (PARTITIONS if response.session_id else 0)
        sessions.drop(response.session_id)
        assert not sessions.partitions
        assert not any(len(cluster.leader(number=n).watchers) for n in range(PARTITIONS))


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("P2")
@in_loop
async def test_what_comes_while_a_session_is_looked_at_is_in_a_later_answer():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        consumer = Consumer(cluster)
        opening = asyncio.ensure_future(consumer.fetch(*(want(topic_id, n) for n in range(PARTITIONS))))
        watchers = cluster.leader().watchers
        while not len(watchers):  # noqa: ASYNC110 - a turn at a time
            await asyncio.sleep(0)
        assert not len(cluster.leader(number=PARTITIONS - 1).watchers)
        cluster.produce(b"early")
        cluster.produce(b"late", number=PARTITIONS - 1)
        first = got(await opening)
        assert (first[0], first[PARTITIONS - 1]) == ([], [b"late"])
        assert got(await consumer.fetch(want(topic_id, PARTITIONS - 1, 1))) == {0: [b"early"]}
        changed = await consumer.fetch(
            want(topic_id, 0, 1),  # the other one goes on where it was
            forgotten=tuple((topic_id, "", n) for n in range(1, PARTITIONS - 1)),
        )
        assert got(changed) == {}
        assert cluster.brokers[1].sessions.partitions == 2


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("P2")
@in_loop
async def test_a_session_that_is_looked_at_takes_no_other_fetch_and_may_be_dropped():
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        consumer, sessions = Consumer(cluster), cluster.brokers[1].sessions
        await consumer.fetch(want(topic_id))
        wanted = [want(topic_id, n) for n in range(PARTITIONS)]
        adding = asyncio.ensure_future(consumer.fetch(*wanted))
        while sessions.partitions == 1:  # noqa: ASYNC110 - a turn at a time
            await asyncio.sleep(0)
        again = FetchRequest([], session_id=consumer.session_id, session_epoch=2)
        assert (await cluster.fetch(1, again)).error == ErrorCode.INVALID_FETCH_SESSION_EPOCH
        sessions.drop(consumer.session_id)
        assert (await adding).partitions == []
        await asyncio.sleep(0.01)
        assert not sessions.partitions
        assert not any(len(cluster.leader(number=n).watchers) for n in range(PARTITIONS))
        assert cluster.brokers[1].fetches.parked == 0


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("R7")
@in_loop
async def test_a_follower_gets_no_numbers_of_an_epoch_that_began_behind_the_look():
    async with Cluster(2) as cluster:
        cluster.cuts.add((2, 1))
        topic_id = cluster.create_topic("t", [[1, 2]] * PARTITIONS)
        follower = Consumer(cluster, replica_id=2, replica_epoch=cluster.image.brokers[2].broker_epoch)
        wanted = [want(topic_id, n, current_leader_epoch=0) for n in range(PARTITIONS)]
        opening = asyncio.ensure_future(follower.fetch(*wanted))
        watchers = cluster.leader().watchers
        while not len(watchers):  # noqa: ASYNC110 - a turn at a time
            await asyncio.sleep(0)
        assert not len(cluster.leader(number=PARTITIONS - 1).watchers)
        cluster.elect("t", 0, 2)
        first, *others = (await opening).partitions
        assert (first.error, first.high_watermark) == (ErrorCode.FENCED_LEADER_EPOCH, -1)
        assert {(each.error, each.high_watermark) for each in others} == {(ErrorCode.NONE, 0)}
        (again,) = (await follower.fetch(want(topic_id, current_leader_epoch=1))).partitions
        assert again.error == ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.pure("constants are compiled in")
@in_loop
async def test_of_very_many_producers_some_are_looked_at_in_a_turn(monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(log_sweeps, "PRODUCERS_PER_TURN", 5)
    async with Cluster(1) as cluster:
        cluster.create_topic("t", [[1]] * 6)
        states = [cluster.replica(1, number=number).log.producers.states for number in range(6)]
        for each in states:
            each.update((producer_id, ProducerStateEntry(0)) for producer_id in range(3))
        cluster.brokers[1].partitions.sweeps.expire_producers(1000)
        assert [len(each) for each in states] == [0, 0, 3, 3, 3, 3]
        await until(lambda: not any(states))


@pytest.mark.pure("constants are compiled in")
@pytest.mark.row("P7")
@in_loop
async def test_a_session_that_grows_too_large_in_pieces_is_refused(monkeypatch: pytest.MonkeyPatch):
    async with Cluster(1) as cluster:
        topic_id = cluster.create_topic("t", [[1]] * PARTITIONS)
        consumer, sessions = Consumer(cluster), cluster.brokers[1].sessions
        monkeypatch.setattr(sessions, "max_request_partitions", lambda: PARTITIONS - 1)
        await consumer.fetch(want(topic_id))
        refused = await consumer.fetch(*(want(topic_id, n) for n in range(PARTITIONS)))
        assert (refused.error, refused.session_id) == (ErrorCode.FETCH_SESSION_ID_NOT_FOUND, 0)
        assert not len(sessions)
        assert not sessions.partitions
        assert cluster.brokers[1].fetches.parked == 0
