"""A scrape is made in pieces, and what very many samples are made of is read piece by piece."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator
from dataclasses import replace
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api.long_work import LongWork
from kraft.metrics import exposition as scrape
from kraft.metrics.metric import MBean, Metric, OverManyTurns, Sample, Style
from kraft.metrics.sources import Controller
from kraft.metrics.table import METRICS
from kraft.monitoring.client_telemetry import MAX_SERIES, ClientTelemetry, TelemetryClient
from kraft.wire.otlp import Point
from metadata_quorum.foundation.model import NO_LEADER, PartitionRegistration
from metadata_quorum.foundation.turns import Turns
from metadata_quorum.metadata.image import MetadataImage, TopicImage

pytestmark = pytest.mark.row("U5")

MANY = 2 * scrape.LINES_PER_PIECE + 500


def pieces(monkeypatch: pytest.MonkeyPatch, *metrics: Metric) -> Iterator[str]:
    """One after the other, as they are written."""
    monkeypatch.setattr(scrape, "METRICS", metrics)
    with asyncio.Runner() as runner:
        sources: Any = SimpleNamespace(broker=None, controller=None, turns=Turns(runner.get_loop()))
        answer = scrape.exposition(sources, Style.STRIMZI)
        while True:
            try:
                yield runner.run(anext(answer)).decode()  # type: ignore[arg-type]
            except StopAsyncIteration:
                return


def of_node(name: str, samples: Any) -> Metric:
    return Metric(name=name, help="Of a test.", labels=("n",), node=lambda _: samples)


def test_many_samples_are_read_over_many_turns(monkeypatch):
    taken = 0

    def samples() -> Iterator[Sample]:
        nonlocal taken
        for taken in range(1, MANY + 1):
            yield (str(taken),), taken

    found = []
    for piece in pieces(monkeypatch, of_node("many", OverManyTurns(samples()))):
        found.append(piece)
        assert taken <= len(found) * scrape.LINES_PER_PIECE
    assert len(found) == 3
    text = "".join(found)
    assert text.startswith('# TYPE many gauge\n# HELP many Of a test.\nmany{n="1"} 1\n')
    assert text.endswith(f'many{{n="{MANY}"}} {MANY}\n# EOF\n')
    assert text.count("# TYPE") == 1


def test_where_there_is_nothing_to_say_nothing_is_said(monkeypatch):
    (text,) = pieces(monkeypatch, of_node("none", []), of_node("none_either", OverManyTurns(iter(()))))
    assert text == "# EOF\n"


def test_a_long_name_is_cut_and_stays_one_of_its_own(monkeypatch):
    names = ["g" * 32_000 + end for end in ("1", "2")]
    samples = [((name,), 1) for name in (*names, "g")]
    (text,) = pieces(monkeypatch, of_node("lag", samples))
    lines = text.splitlines()[2:-1]
    assert len(text) < 1000
    assert len(set(lines)) == 3
    assert lines[0].startswith('lag{n="gggg')
    assert lines[2] == 'lag{n="g"} 1'


class CountedPartitions(dict[int, PartitionRegistration]):
    """A topic's partitions; how many are walked over without another turn of the loop, at most."""

    walked = most = 0

    def values(self) -> Any:
        for each in super().values():
            self.walked += 1
            self.most = max(self.most, self.walked)
            yield each


@pytest.mark.parametrize(
    ("name", "expected"),
    [("GlobalPartitionCount", 30_000), ("OfflinePartitionsCount", 2), ("PreferredReplicaImbalanceCount", 3)],
)
def test_a_walk_over_all_partitions_of_the_cluster_takes_many_turns(monkeypatch, name, expected):
    async def test() -> None:
        loop = asyncio.get_running_loop()
        partitions = CountedPartitions(
            dict.fromkeys(range(30_000), PartitionRegistration((1, 2), (1,), 1, 0, 0))
        )
        for number, leader in ((7, NO_LEADER), (8, NO_LEADER), (9, 2)):
            partitions[number] = replace(partitions[number], leader=leader)
        topics = {"t": TopicImage("t", UUID(int=1), partitions)}
        image = MetadataImage(topics_by_name=topics)
        context: Any = SimpleNamespace(
            node=SimpleNamespace(long_work=LongWork(loop)), quorum_controller=SimpleNamespace(image=image)
        )
        unused: Any = None
        sources: Any = SimpleNamespace(
            broker=None, controller=Controller(context, unused, unused), turns=Turns(loop)
        )
        row = next(each for each in METRICS if each.name == MBean("controller", "KafkaController", name))
        monkeypatch.setattr(scrape, "METRICS", (row,))

        def turn() -> None:
            partitions.walked = 0
            if not done:
                loop.call_soon(turn)

        done = False
        turn()
        text = b"".join([piece async for piece in scrape.exposition(sources, Style.STRIMZI)])
        done = True
        assert f"{name.lower()} {expected}\n".encode() in text
        assert partitions.most <= 10_000

    asyncio.run(test())


def test_who_scrapes_at_the_same_time_takes_turns(monkeypatch):
    now = most = 0

    def samples() -> Iterator[Sample]:
        nonlocal now, most
        for number in range(MANY):
            now += 1
            most = max(most, now)
            yield (str(number),), number

    async def scraped(sources: Any) -> int:
        return len([piece async for piece in scrape.exposition(sources, Style.STRIMZI)])

    async def test() -> None:
        nonlocal now
        sources: Any = SimpleNamespace(broker=None, controller=None, turns=Turns(asyncio.get_running_loop()))
        row = Metric(name="many", help="Of a test.", labels=("n",), node=lambda _: OverManyTurns(samples()))
        monkeypatch.setattr(scrape, "METRICS", (row,))
        everyone = asyncio.gather(*(scraped(sources) for _ in range(20)))
        while not everyone.done():
            await asyncio.sleep(0)
            now = 0
        assert await everyone == [3] * 20

    asyncio.run(test())
    assert most <= 2 * scrape.LINES_PER_PIECE


def test_what_clients_push_is_told_over_many_turns_while_they_push_on(monkeypatch):
    telemetry = ClientTelemetry()

    def push(client: int, number: int, value: float = 0.0) -> None:
        point = Point(f"m{number}", (("a", "b"),), value, is_delta=False)
        telemetry.take(TelemetryClient(UUID(int=client + 1), "c", "s", "h"), (point,), 0.0)

    for client in range(20):
        for number in range(MAX_SERIES):
            push(client, number)
    row = next(each for each in METRICS if each.name == "kraft_client_metric")
    monkeypatch.setattr(scrape, "METRICS", (row,))

    async def test() -> list[bytes]:
        loop = asyncio.get_running_loop()
        node = SimpleNamespace(client_telemetry=telemetry, loop=SimpleNamespace(time=lambda: 1.0))
        sources: Any = SimpleNamespace(broker=None, controller=None, node=node, turns=Turns(loop))
        found = []
        async for piece in scrape.exposition(sources, Style.STRIMZI):
            found.append(piece)
            push(19, MAX_SERIES - 1, 12345.0)
            push(1000 + len(found), 0)
        return found

    found = asyncio.run(test())
    assert len(found) == 20 * MAX_SERIES // scrape.LINES_PER_PIECE + 1
    assert b"".join(found).count(b"kraft_client_metric{") == 20 * MAX_SERIES
    assert b" 12345.0\n" in b"".join(found), "it was read when its turn came"
