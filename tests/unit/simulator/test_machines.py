"""Machines that are not alike, a disk that is waited for, records that are not as they were sent."""

from __future__ import annotations

import asyncio
import inspect
from collections.abc import Coroutine
from itertools import combinations

import pytest

from chaos.simulator.clients.record import differences, record_of, value_of
from chaos.simulator.cluster import Cluster
from chaos.simulator.draws import Draws
from chaos.simulator.network import Network
from chaos.simulator.process_loop import ProcessLoop
from chaos.simulator.profile import COMBINED
from chaos.simulator.scheduler import Scheduler
from chaos.simulator.story import Story
from tests.support.may_block import MAY_BLOCK


@pytest.fixture
def cluster() -> Cluster:
    scheduler, draws = Scheduler(), Draws(1)
    return Cluster(COMBINED.shape, scheduler, Network(scheduler, draws), draws, Story())


def test_no_two_machines_count_time_alike(cluster: Cluster) -> None:
    clocks = [machine.clock for machine in cluster.machines.values()]
    for one, other in combinations(clocks, 2):
        assert one.rate != other.rate
        assert one.monotonic_s() != other.monotonic_s()
    for clock in clocks:
        assert clock.simulated(clock.monotonic_s() + 10.0) == pytest.approx(10.0, rel=0.02)


class Listener(asyncio.Protocol):
    def __init__(self, cluster: Cluster) -> None:
        self.cluster = cluster
        self.heard: list[tuple[bytes, float]] = []

    def data_received(self, data: bytes) -> None:
        self.heard.append((data, self.cluster.scheduler.now))


def connected(cluster: Cluster) -> tuple[ProcessLoop, asyncio.Transport, Listener]:
    """Two processes that do nothing else: one that speaks, and what the other hears."""
    speaker, hearer = (cluster.machines[node].start(node) for node in (1, 2))
    listener = Listener(cluster)
    transports: list[asyncio.Transport] = []

    async def connect() -> None:
        await hearer.create_server(lambda: listener, "n2", 9092)
        transport, _ = await speaker.create_connection(asyncio.Protocol, "n2", 9092)
        transports.append(transport)

    speaker.post(lambda: speaker.create_task(connect()))
    cluster.scheduler.run(1.0)
    return speaker, transports[0], listener


def test_what_is_said_behind_an_fsync_leaves_after_it(cluster: Cluster) -> None:
    speaker, transport, listener = connected(cluster)

    def sync_and_speak() -> None:
        transport.write(b"before")
        speaker.hold_for(0.5)
        transport.write(b"behind")

    speaker.post(sync_and_speak)
    cluster.scheduler.run(2.0)
    (before, at_s), (behind, later_s) = listener.heard
    assert (before, behind) == (b"before", b"behind")
    assert at_s < 1.01
    assert 1.5 <= later_s < 1.51


def test_who_dies_before_its_fsync_is_over_has_said_nothing(cluster: Cluster) -> None:
    speaker, transport, listener = connected(cluster)

    def sync_and_speak() -> None:
        speaker.hold_for(0.5)
        transport.write(b"behind")

    speaker.post(sync_and_speak)
    cluster.scheduler.run(1.2)
    cluster.machines[1].lose_power()
    cluster.scheduler.run(2.0)
    assert listener.heard == []


def test_what_was_under_way_when_a_link_was_cut_stays_before_what_is_sent_meanwhile(cluster: Cluster) -> None:
    speaker, transport, listener = connected(cluster)
    scheduler, network = cluster.scheduler, cluster.network
    network.link("n1", "n2").extra_s = 1.0
    speaker.post(transport.write, b"before")
    scheduler.run(1.1)
    network.cut("n1", "n2")
    speaker.post(transport.write, b"meanwhile")
    scheduler.run(4.0)
    assert listener.heard == []
    network.heal("n1", "n2")
    scheduler.run(8.0)
    assert b"".join(data for data, _ in listener.heard) == b"beforemeanwhile"


def test_no_more_passes_a_narrow_link_until_it_is_wide_again(cluster: Cluster) -> None:
    speaker, transport, listener = connected(cluster)
    scheduler, network = cluster.scheduler, cluster.network
    network.narrow("n1", "n2", 1000)
    for letter in (b"a", b"b", b"c", b"d"):
        speaker.post(transport.write, 1000 * letter)
    scheduler.run(3.5)
    assert b"".join(data for data, _ in listener.heard)[:2000] == 1000 * b"a" + 1000 * b"b"
    assert [at_s for _, at_s in listener.heard][-1] == pytest.approx(3.0, abs=0.01)
    network.cut("n1", "n2")
    speaker.post(transport.write, b"e")
    network.widen("n1", "n2", 1000)
    network.heal("n1", "n2")
    scheduler.run(5.0)
    letters = b"".join(data for data, _ in listener.heard)
    assert letters == b"".join(1000 * letter for letter in (b"a", b"b", b"c", b"d")) + b"e"


def test_a_record_shows_what_was_altered() -> None:
    record = record_of(5, 1000)
    assert value_of(record) == 5
    assert list(differences(record)) == []
    assert list(differences(record._replace(key=b"key-6"))) == ["key"]
    assert list(differences(record._replace(timestamp=1001))) == ["timestamp"]
    assert list(differences(record._replace(headers=()))) == ["headers"]
    assert value_of(record._replace(value=None)) == 0


def test_what_a_dead_process_begins_on_its_way_out_is_ended_too(cluster: Cluster) -> None:
    """A coordinator that is cut off in the midst of a request still sees to its transaction."""
    loop = cluster.client("client")
    begun: list[asyncio.Task[None]] = []

    async def on_its_way_out() -> None: ...

    async def works() -> None:
        try:
            await loop.create_future()
        finally:
            begun.append(loop.create_task(on_its_way_out()))  # kept, as supervised ones are

    loop.post(lambda: loop.create_task(works()))
    cluster.scheduler.run(1.0)
    cluster.close()
    coroutine = begun[0].get_coro()
    assert isinstance(coroutine, Coroutine)
    assert inspect.getcoroutinestate(coroutine) == inspect.CORO_CLOSED


def test_a_job_of_a_process_that_died_in_the_midst_of_it_is_freed(cluster: Cluster) -> None:
    """What it holds is the whole simulation."""
    machine = cluster.machines[1]
    process, ended = machine.start(1), list[str]()

    def job() -> None:
        file = machine.disk.open("/n1/file", create=True)
        try:
            while True:
                file.append([b"x"])
                file.sync(MAY_BLOCK)
        finally:
            ended.append(process.name)

    process.post(lambda: process.run_in_executor(None, job))
    cluster.scheduler.run(1.0)
    machine.kill("")
    assert not ended, "others go on, and nothing comes of it"
    process.abandon()
    assert ended == ["n1.1"]
