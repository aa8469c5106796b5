"""What clients push is kept for a while, and within bounds."""

from __future__ import annotations

import tracemalloc
from collections.abc import ItemsView, Mapping
from typing import Final
from uuid import UUID

import pytest

from kraft.monitoring import client_telemetry
from kraft.monitoring.client_telemetry import (
    FORGET_S,
    LONGEST_NAME,
    LONGEST_TEXT,
    MAX_ATTRIBUTES,
    MAX_CLIENTS,
    MAX_SERIES,
    ClientTelemetry,
    TelemetryClient,
)
from kraft.wire.otlp import Point
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.image import ConfigResource

MIB: Final = 2**20


def client(number: int) -> TelemetryClient:
    return TelemetryClient(UUID(int=number), f"client-{number}", "librdkafka 2", "127.0.0.1")


def test_differences_are_added_up_and_figures_replaced() -> None:
    telemetry = ClientTelemetry()
    for value in (2.0, 3.0):
        points = [Point("counted", (), value, True), Point("level", (), value, False)]
        telemetry.take(client(1), points, now=0.0)
    (known,) = telemetry.clients(0.0)
    assert known.figures == {("counted", ()): 5.0, ("level", ()): 3.0}
    assert known.pushes == 2


def test_who_is_silent_or_says_goodbye_is_forgotten() -> None:
    telemetry = ClientTelemetry()
    telemetry.take(client(1), [], now=0.0)
    telemetry.take(client(2), [], now=10.0)
    assert [each.client_id for each in telemetry.clients(FORGET_S + 5)] == ["client-2"]
    telemetry.end(UUID(int=2))
    telemetry.end(UUID(int=3))
    assert list(telemetry.clients(FORGET_S + 5)) == []


def test_strangers_take_no_more_memory_than_there_is_room_for() -> None:
    telemetry = ClientTelemetry()
    for number in range(MAX_CLIENTS + 5):
        telemetry.take(client(number), [], now=0.0)
    known = list(telemetry.clients(0.0))
    assert (len(known), known[0].client_id) == (MAX_CLIENTS, "client-5")
    long = "x" * 10_000
    points = [Point(f"{n}{long}", ((long, long),) * 100, 1.0, False) for n in range(MAX_SERIES + 5)]
    telemetry.take(client(5), points, now=0.0)
    figures = list(telemetry.clients(0.0))[-1].figures
    assert len(figures) == MAX_SERIES
    name, attributes = next(iter(figures))
    assert len(name) == LONGEST_NAME
    assert attributes == (("x" * LONGEST_TEXT, "x" * LONGEST_TEXT),) * MAX_ATTRIBUTES


def test_series_take_so_much_memory_and_those_of_silent_clients_none(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those of 200 clients took 113 MB, and three times that of rarer characters, for ever."""
    monkeypatch.setattr(client_telemetry, "MOST_BYTES", 4 * MIB)
    telemetry = ClientTelemetry()
    tracemalloc.start()
    try:
        before, _ = tracemalloc.get_traced_memory()
        for number in range(8):
            push(telemetry, number, texts="\U0001f600" * 100)
            push(telemetry, number, texts="\U0001f600" * 100)
        taken = tracemalloc.get_traced_memory()[0] - before
        assert 2 * MIB < taken < 5 * MIB
        telemetry.take(client(9), [], now=FORGET_S)
        assert tracemalloc.get_traced_memory()[0] - before < MIB / 2
    finally:
        tracemalloc.stop()


def push(telemetry: ClientTelemetry, number: int, *, texts: str, now: float = 0.0) -> None:
    """As many series as a client may have."""
    points = [
        Point(f"{n}{texts}", tuple((f"{n}.{k}{texts}",) * 2 for k in range(MAX_ATTRIBUTES)), 1.0, False)
        for n in range(MAX_SERIES)
    ]
    telemetry.take(client(number), points, now)


def test_all_configs_are_gone_through_only_when_they_have_changed() -> None:
    class Configs(dict[ConfigResource, Mapping[str, str]]):
        walks = 0

        def items(self) -> ItemsView[ConfigResource, Mapping[str, str]]:
            self.walks += 1
            return super().items()

    topics = {(ResourceType.TOPIC, f"t{n}"): {"retention.ms": "1"} for n in range(3)}
    before = Configs({**topics, (ResourceType.CLIENT_METRICS, "all"): {"metrics": "*"}})
    after = Configs({**before, (ResourceType.CLIENT_METRICS, "some"): {"metrics": "org."}})
    telemetry = ClientTelemetry()
    for configs, asked in ((before, ["*"]), (after, ["*", "org."]), (before, ["*"])):
        configs.walks = 0
        for _ in range(3):
            assert [each["metrics"] for each in telemetry.subscriptions(configs)] == asked
        assert configs.walks == 1
