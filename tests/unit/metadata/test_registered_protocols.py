"""A security protocol that there is not comes into no record: Apache Kafka's brokers and tools stop at it."""

from __future__ import annotations

from uuid import UUID

import pytest

from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import Endpoint, SecurityProtocol
from metadata_quorum.protocol.requests import RegisterBrokerRequest
from tests.unit.metadata.controller_node import CLUSTER, Node, virtual

PROCESS = UUID(int=1)


def speaking(*protocols: int) -> tuple[Endpoint, ...]:
    return tuple(Endpoint(f"L{number}", "h", 1, number) for number in protocols)


@virtual
async def test_of_a_broker() -> None:
    node = Node()
    await node.lead()
    for unknown in (-1, 4, 32_767):
        with pytest.raises(BrokerError) as refused:
            await node.controller.register_broker(
                RegisterBrokerRequest(1, CLUSTER, PROCESS, speaking(SecurityProtocol.SSL, unknown))
            )
        assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    assert not node.controller.image.brokers
    known = speaking(*SecurityProtocol)
    await node.controller.register_broker(RegisterBrokerRequest(1, CLUSTER, PROCESS, known))
    assert node.controller.image.brokers[1].endpoints == known


@virtual
async def test_of_a_controller() -> None:
    node = Node()
    await node.lead()
    with pytest.raises(BrokerError) as refused:
        await node.controller.register_controller(2, PROCESS, speaking(4))
    assert refused.value.code is ErrorCode.INVALID_REGISTRATION
    assert 2 not in node.controller.image.controllers
    await node.controller.register_controller(2, PROCESS, speaking(*SecurityProtocol))
    assert 2 in node.controller.image.controllers
