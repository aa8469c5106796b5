"""ELR that was turned off leaves eligible leaders behind, and these count on one min.insync.replicas."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.api.config_validation import outcomes
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.foundation.model import NO_LEADER, ResourceType
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol import commands as c
from metadata_quorum.protocol.replies import ConfigResult
from tests.support.contexts import node_context
from tests.support.metadata_machine import MetadataMachine
from tests.support.virtual_loop import run_virtually

pytestmark = pytest.mark.row("Q5")

OFF = c.FeatureUpdate(name=ELR_VERSION, level=0, upgrade_type=2)


def left_behind() -> MetadataMachine:
    """1 alone in sync, 2 and 3 eligible by the cluster's min.insync.replicas=3; then ELR is turned off."""
    machine = MetadataMachine()
    machine.claim(min_insync=3)
    machine.brokers(1, 2, 3)
    machine.create_assigned("t", [(1, 2, 3)])
    machine.fence(3)
    machine.fence(2)
    machine.run(c.UpdateFeatures(controller_id=1, updates=(OFF,), supported=()))
    assert (machine.partition("t").isr, machine.partition("t").elr) == ((1,), (2, 3))
    return machine


def judged(image: MetadataImage, *resources: tuple[ResourceType, str, str]) -> list[ErrorCode]:
    found: list[ConfigResult | None] = []
    wanted: list[Any] = [
        SimpleNamespace(
            resource_type=kind,
            resource_name=name,
            configs=[SimpleNamespace(name=key, value="1", config_operation=c.CONFIG_SET)],
        )
        for kind, name, key in resources
    ]

    async def test() -> None:
        node = node_context(asyncio.get_running_loop(), image=image)
        found.extend(await outcomes(node, wanted, incremental=True))

    run_virtually(test())
    return [ErrorCode.NONE if each is None else each.error for each in found]


def test_no_broker_gets_a_value_of_its_own_meanwhile(monkeypatch: pytest.MonkeyPatch) -> None:
    """By which it would acknowledge what 2 and 3 do not have, and either would lead cleanly after it."""
    machine = left_behind()
    key = "min.insync.replicas"
    brokers = [(ResourceType.BROKER, str(n), key) for n in range(1000)]
    looks = []
    every = MetadataImage.partitions
    monkeypatch.setattr(MetadataImage, "partitions", lambda image: [looks.append(1), *every(image)][1:])
    assert judged(machine.image, *brokers) == [ErrorCode.INVALID_CONFIG] * 1000
    assert len(looks) == 1
    others = [
        (ResourceType.BROKER, "", key),
        (ResourceType.TOPIC, "t", key),
        (ResourceType.BROKER, "1", "num.replica.fetchers"),
    ]
    assert judged(machine.image, *others) == [ErrorCode.NONE] * 3
    assert len(looks) == 1


def test_a_value_of_the_cluster_or_the_topic_ends_it() -> None:
    machine = left_behind()
    machine.set_config(ResourceType.BROKER, "", "min.insync.replicas", "1")
    assert machine.partition("t").elr == ()
    assert judged(machine.image, (ResourceType.BROKER, "1", "min.insync.replicas")) == [ErrorCode.NONE]
    machine.fence(1)
    machine.unfence(2)
    assert machine.partition("t").leader == NO_LEADER
