"""What the `LeaderEndpoint` port promises to a fetcher: the one over a socket, to a broker's own server and
handlers, and the one by function call that tests of replication stand on pass the same suite."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from types import SimpleNamespace
from typing import Protocol
from uuid import UUID

import pytest

from fetch.leader_endpoint import LeaderEndpoint
from fetch.messages import FetchPartition, FetchRequest, FetchResponse
from kraft.api.dispatch import Dispatcher
from kraft.api.request_context import Role
from kraft.api.table import ROWS
from kraft.net.client import Address
from kraft.net.server import Server
from kraft.peers.leader_endpoint import SocketLeaderEndpoint
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.contexts import broker_context, node_context
from tests.unit.replication.cluster import Broker, Cluster, MemoryLeader, until

LEADER, FOLLOWER = 1, 2
LONG_MS = 60_000


class Rig(Protocol):
    """A cluster in which broker 1 leads t-0, and its endpoint as broker 2 sees it."""

    cluster: Cluster
    topic_id: UUID
    endpoint: LeaderEndpoint

    async def cut(self) -> None:
        """Break connections, and refuse new ones."""

    async def mend(self) -> None: ...


class MemoryRig:
    def __init__(self, cluster: Cluster, topic_id: UUID) -> None:
        self.cluster, self.topic_id = cluster, topic_id
        self.endpoint = MemoryLeader(cluster, FOLLOWER, LEADER)

    async def cut(self) -> None:
        self.cluster.cuts.add((FOLLOWER, LEADER))
        self.endpoint.break_off()

    async def mend(self) -> None:
        self.cluster.cuts.clear()


class SocketRig:
    def __init__(self, cluster: Cluster, topic_id: UUID) -> None:
        self.cluster, self.topic_id = cluster, topic_id
        self._server: Server | None = None
        self._port = 0
        self.endpoint = SocketLeaderEndpoint(
            cluster.loop,
            FOLLOWER,
            lambda: Address("127.0.0.1", self._port),
            client_id="test",
            timeout_s=30.0,
            on_lost=lambda: None,
        )

    async def cut(self) -> None:
        assert self._server is not None
        await self._server.close()

    async def mend(self) -> None:
        leader: Broker = self.cluster.brokers[LEADER]
        config = SimpleNamespace(auto_create_topics_enable=False, max_request_partition_size_limit=2000)
        node = node_context(self.cluster.loop, config=config, image=self.cluster.image)
        broker = broker_context(
            node,
            replica_manager=leader.partitions,
            fetch_service=leader.fetches,
            fetch_piece_bytes=lambda: 1024 * 1024,
        )
        dispatcher = Dispatcher(node, ROWS, {"PLAINTEXT": Role.BROKER}, broker=broker)
        self._server = Server(
            self.cluster.loop,
            dispatcher.serve,
            dispatcher.is_exclusive,
            on_overtaken=lambda peer: leader.sessions.overtaken(peer.state.fetch_session_id),
        )
        self._port = await self._server.listen("PLAINTEXT", "127.0.0.1", self._port)


@asynccontextmanager
async def by_call() -> AsyncIterator[Rig]:
    async with followed_by_nobody() as (cluster, topic_id):
        yield MemoryRig(cluster, topic_id)
        cluster.cuts.add((FOLLOWER, LEADER))


@asynccontextmanager
async def over_a_socket() -> AsyncIterator[Rig]:
    async with followed_by_nobody() as (cluster, topic_id):
        rig = SocketRig(cluster, topic_id)
        await rig.mend()
        try:
            yield rig
        finally:
            rig.endpoint.close()
            await rig.cut()


@asynccontextmanager
async def followed_by_nobody() -> AsyncIterator[tuple[Cluster, UUID]]:
    """Three records on the leader; the follower hears of nothing, so that nobody fetches but the test."""
    async with Cluster(2) as cluster:
        cluster.held_back.add(FOLLOWER)
        topic_id = cluster.create_topic("t", [[LEADER, FOLLOWER]])
        for _ in range(3):
            cluster.produce(b"x", acks=1)
        yield cluster, topic_id


def contract(test: Callable[[Rig], Awaitable[None]]) -> Callable[..., None]:
    @pytest.mark.parametrize("rigged", [by_call, over_a_socket])
    def run(rigged: Callable[[], AbstractAsyncContextManager[Rig]]) -> None:
        async def main() -> None:
            async with asyncio.timeout(30), rigged() as rig:
                await test(rig)

        asyncio.run(main())

    run.__name__ = test.__name__
    return run


def request(rig: Rig, offset: int, *, max_wait_ms: int = 0) -> FetchRequest:
    wanted = FetchPartition(rig.topic_id, "t", 0, offset, 1 << 20, 0, -1, 0)
    epoch = rig.cluster.image.brokers[FOLLOWER].broker_epoch
    return FetchRequest([wanted], replica_id=FOLLOWER, replica_epoch=epoch, max_wait_ms=max_wait_ms)


def records_of(response: FetchResponse) -> bytes:
    (partition,) = response.partitions
    assert partition.error is ErrorCode.NONE
    return bytes(partition.records or b"")


@contract
async def test_a_fetch_brings_the_leaders_records_and_gives_it_the_offset(rig):
    first = records_of(await rig.endpoint.fetch(request(rig, 0)))
    assert first.count(b"x") >= 3
    assert records_of(await rig.endpoint.fetch(request(rig, 2))) == first[-len(first) // 3 :]
    assert records_of(await rig.endpoint.fetch(request(rig, 3))) == b""
    assert rig.cluster.leader().high_watermark == 3


@contract
async def test_answers_come_in_the_order_of_the_requests(rig):
    await rig.endpoint.fetch(request(rig, 0))  # connects
    order: list[int] = []

    async def note(number: int, answer: Awaitable[FetchResponse]) -> None:
        await answer
        order.append(number)

    asked = [rig.endpoint.fetch(request(rig, offset)) for offset in (0, 1, 2)]
    await asyncio.gather(*(note(number, answer) for number, answer in enumerate(asked)))
    assert order == [0, 1, 2]


@contract
async def test_a_newer_fetch_of_a_session_ends_the_one_that_waits(rig):
    """What is new for the leader does not wait for the end of a wait that knows nothing of it."""
    opening = request(rig, 3)
    opening.session_epoch = 0
    session_id = (await rig.endpoint.fetch(opening)).session_id
    assert session_id

    def ask(session_epoch: int, rack_id: str = "") -> asyncio.Future[FetchResponse]:
        each = request(rig, 3, max_wait_ms=LONG_MS)
        each.session_id, each.session_epoch, each.rack_id = session_id, session_epoch, rack_id
        return asyncio.ensure_future(rig.endpoint.fetch(each))

    fetches = rig.cluster.brokers[LEADER].fetches
    waiting = ask(1)
    await until(lambda: fetches.parked)
    long = ask(2, "a name that makes it so long that it is decoded elsewhere" * 200)
    newer = ask(3)
    assert (await waiting).partitions == (await long).partitions == []
    await until(lambda: fetches.parked)
    rig.cluster.produce(b"x", acks=1)
    assert records_of(await newer).count(b"x") == 1


def test_a_connection_has_one_session() -> None:
    """Who opens one after another, without a word about the one before, leaves none behind."""

    async def main() -> None:
        async with asyncio.timeout(30), over_a_socket() as rig:
            for _ in range(3):
                opening = request(rig, 3)
                opening.session_epoch = 0
                answer = await rig.endpoint.fetch(opening)
                assert answer.session_id
                assert len(rig.cluster.brokers[LEADER].sessions) == 1

    asyncio.run(main())


@contract
async def test_the_bounds_of_the_leaders_log_or_its_refusal(rig):
    rig.cluster.leader().high_watermark = 3
    rig.cluster.leader().delete_records(1)
    bounds = await rig.endpoint.log_bounds("t", 0, 0)
    assert (bounds.start, bounds.end) == (1, 3)
    with pytest.raises(BrokerError) as refused:
        await rig.endpoint.log_bounds("t", 0, 5)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


@contract
async def test_a_fetch_that_waits_does_not_hold_up_what_was_asked_before_it(rig):
    """Behind it the answer would be as old as the fetch waits long: a log whose beginning moves on is another
    by then."""
    await rig.endpoint.fetch(request(rig, 3))  # connects
    bounds = asyncio.ensure_future(rig.endpoint.log_bounds("t", 0, 0))
    waiting = asyncio.ensure_future(rig.endpoint.fetch(request(rig, 3, max_wait_ms=LONG_MS)))
    assert ((await bounds).start, (await bounds).end) == (0, 3)
    assert not waiting.done()
    rig.endpoint.close()
    with pytest.raises(OSError):
        await waiting


@contract
async def test_trouble_with_the_connection_is_an_os_error_and_the_next_call_connects(rig):
    waiting = asyncio.ensure_future(rig.endpoint.fetch(request(rig, 3, max_wait_ms=LONG_MS)))
    await until(lambda: rig.cluster.brokers[LEADER].fetches.parked)
    await rig.cut()
    with pytest.raises(OSError):
        await waiting
    with pytest.raises(OSError):
        await rig.endpoint.fetch(request(rig, 3))
    await rig.mend()
    assert records_of(await rig.endpoint.fetch(request(rig, 0)))


@contract
async def test_closing_it_ends_what_waits(rig):
    waiting = asyncio.ensure_future(rig.endpoint.fetch(request(rig, 3, max_wait_ms=LONG_MS)))
    await until(lambda: rig.cluster.brokers[LEADER].fetches.parked)
    rig.endpoint.close()
    with pytest.raises(OSError):
        await waiting
