"""Who tells which event in its log, and how such a line reads."""

from __future__ import annotations

import logging
from dataclasses import replace

import pytest

from kraft.monitoring import event_log
from kraft.monitoring.cluster_events import ClusterEvents
from kraft.monitoring.event_log import EventLog
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE
from tests.unit.monitoring.images import ALL_IN_SYNC, image

ELECTED = replace(ALL_IN_SYNC, isr=(2, 3), leader=2, leader_epoch=1, partition_epoch=1)


@pytest.fixture(autouse=True)
def without_limits(monkeypatch: pytest.MonkeyPatch) -> None:
    """The limits are the process's: other tests of this worker may have used them up."""
    for name in ("cluster_log", "partition_log"):
        monkeypatch.setattr(event_log, name, logging.getLogger(f"kraft.events.unlimited.{name}"))


def lines_of(
    caplog: pytest.LogCaptureFixture, node_id: int, *, controls: bool = False
) -> list[tuple[str, str]]:
    """Level and line of what a node writes when broker 1 dies, which led."""
    events = ClusterEvents()
    events.listeners[EventLog(events, node_id, lambda: controls)] = None
    caplog.clear()
    with caplog.at_level(logging.INFO, "kraft.events"):
        first, second = image(), image(ELECTED, fenced=(1,), offset=17)
        events.take(MetadataDelta.between(EMPTY_IMAGE, first), first)
        events.take(MetadataDelta.between(first, second), second)
    return [(each.levelname, each.getMessage()) for each in caplog.records]


def test_the_controller_tells_all(caplog: pytest.LogCaptureFixture) -> None:
    fence, election, shrink = lines_of(caplog, 3, controls=True)
    assert fence[0] == "WARNING"
    assert fence[1].startswith("broker 1: broker fenced: its process ended")
    assert fence[1].endswith("(metadata offset 17)")
    assert election == (
        "INFO",
        "t-0: election: 1 → 2, leader epoch 1: broker 1 is fenced or shutting down, 2 was in the ISR "
        "(leader epoch 1, partition epoch 1, metadata offset 17)",
    )
    assert shrink[0] == "WARNING"
    assert shrink[1].startswith("t-0: ISR shrink: 1 left, ISR [2, 3]: ")


def test_others_tell_what_concerns_them(caplog: pytest.LogCaptureFixture) -> None:
    assert [line.split(": ")[1] for _, line in lines_of(caplog, 1)] == [
        "broker fenced",
        "election",
        "ISR shrink",
    ]
    assert [line.split(": ")[1] for _, line in lines_of(caplog, 2)] == ["election", "ISR shrink"]
    assert lines_of(caplog, 3) == []
