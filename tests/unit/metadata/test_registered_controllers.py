"""KIP-919: controllers register, and no level of a feature is raised past what one of them can run, or may be
unable to run because it has not registered."""

from __future__ import annotations

import pytest

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.features import BOOTSTRAP_FEATURES, METADATA_VERSION, SUPPORTED_FEATURES
from metadata_quorum.foundation.model import FeatureRange
from metadata_quorum.protocol.commands import FeatureUpdate
from tests.unit.metadata.controller_node import Node, virtual

RUNS = [FeatureRange(name, low, high) for name, (low, high) in SUPPORTED_FEATURES.items()]
REFUSED = (
    "INVALID_UPDATE_VERSION: The update failed for all features since the following feature had an error:"
)
OLDER = {**SUPPORTED_FEATURES, METADATA_VERSION: (7, 25)}
"""Of an older voter."""


def begun_with(level: int) -> Node:
    return Node(features={**BOOTSTRAP_FEATURES, METADATA_VERSION: level})


async def raised(node: Node, level: int = 27, *, validate_only: bool = False) -> str:
    """What is wrong with it; nothing if nothing is."""
    update = FeatureUpdate(name=METADATA_VERSION, level=level)
    try:
        await node.controller.update_features([update], RUNS, validate_only=validate_only)
    except BrokerError as error:
        refused = f"{error.code.name}: {error.message}"
        return refused.removeprefix(
            f"{REFUSED} Invalid update version {level} for feature metadata.version. "
        )
    return ""


@pytest.mark.row("Q13")
@virtual
async def test_a_voter_that_has_not_registered_is_in_the_way() -> None:
    node = begun_with(25)
    await node.lead()
    await node.brokers(4)
    missing = "controller {} has not registered, and may not support this feature"
    assert await raised(node) == await raised(node, validate_only=True) == missing.format(2)
    await node.controllers(2)
    assert await raised(node) == missing.format(3)
    assert await raised(node, 28) == "Local controller 1 only supports versions 7-27"
    await node.controllers(3)
    assert await raised(node, validate_only=True) == ""
    assert node.controller.image.features[METADATA_VERSION] == 25
    assert await raised(node) == ""
    assert node.controller.image.features[METADATA_VERSION] == 27


@virtual
async def test_an_older_voter_is_in_the_way_until_it_is_replaced() -> None:
    node = begun_with(25)
    await node.lead()
    await node.controllers(2)
    await node.controllers(3, features=OLDER)
    assert await raised(node) == "Controller 3 only supports versions 7-25"
    await node.controllers(3, incarnation=2)
    assert await raised(node) == ""


@virtual
async def test_a_voter_that_registers_without_features_may_run_nothing() -> None:
    node = begun_with(25)
    await node.lead()
    await node.controllers(2)
    await node.controllers(3, features={})
    assert "controller 3" in await raised(node)


@virtual
async def test_it_is_registered_once_for_each_process() -> None:
    node = Node()
    await node.lead()
    await node.controllers(2)
    before = node.controller.image
    await node.controllers(2)
    assert node.controller.image is before
    await node.controllers(2, incarnation=2)
    assert node.controller.image.offset == before.offset + 1
    assert node.controller.image.controllers[2].incarnation_id != before.controllers[2].incarnation_id


@virtual
async def test_below_3_7_none_can_register_and_none_is_asked_for() -> None:
    node = begun_with(14)
    await node.lead()
    with pytest.raises(BrokerError) as refused:
        await node.controllers(2)
    assert refused.value.code is ErrorCode.UNSUPPORTED_VERSION
    assert await raised(node, 15) == ""
    assert "controller 2" in await raised(node, 27)


@virtual
async def test_only_the_active_one_registers_others() -> None:
    node = Node()
    with pytest.raises(BrokerError) as refused:
        await node.controllers(2)
    assert refused.value.code is ErrorCode.NOT_CONTROLLER
