"""What clients push is kept for a while, and within bounds."""

from __future__ import annotations

from collections.abc import ItemsView, Mapping
from uuid import UUID

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
