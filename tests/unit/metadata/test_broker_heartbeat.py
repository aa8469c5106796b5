"""What heartbeats of a broker that shuts down lead to, twenty of them in a second."""

from __future__ import annotations

import pytest

from metadata_quorum.controller.broker_heartbeat import next_step
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol.commands import FenceBroker
from metadata_quorum.protocol.requests import BrokerHeartbeatRequest
from tests.support.metadata_machine import MetadataMachine

pytestmark = pytest.mark.row("Q6")


@pytest.mark.parametrize("seen", [False, True])
def test_partitions_are_looked_at_only_once_the_others_know_their_leaders(
    seen: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    machine = MetadataMachine()
    machine.claim()
    machine.brokers(1, 2)
    machine.create("t", 10, 2)
    machine.shut_down(1)
    looks = []
    for way in ("partitions", "each_partition"):
        look = getattr(MetadataImage, way)
        monkeypatch.setattr(MetadataImage, way, lambda image, look=look: [looks.append(1), *look(image)][1:])
    request = BrokerHeartbeatRequest(
        broker_id=1, broker_epoch=machine.epoch(1), current_metadata_offset=machine.image.offset,
        want_fence=False, want_shut_down=True,
    )  # fmt: skip
    step = next_step(machine.image, machine.image.brokers[1], request, caught_up=True, shutdown_seen=seen)
    assert isinstance(step, FenceBroker) == seen
    assert len(looks) == seen
