"""DescribeCluster, asked of a controller: which controllers there are."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.api.metadata import handle_describe_controllers
from kraft.config.node_config import NodeAddress
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import ControllerRegistration, Endpoint
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.metadata.metadata_cache import MetadataCache
from tests.support.contexts import controller_context, node_context

VOTERS = [NodeAddress(number, f"configured-{number}", 9093) for number in (1, 2, 3)]


def described(**registered: ControllerRegistration) -> list[tuple[int, str]]:
    image = MetadataImage(controllers={each.controller_id: each for each in registered.values()})
    loop = asyncio.new_event_loop()
    try:
        node = node_context(
            loop, config=SimpleNamespace(voters=VOTERS), committed_metadata=MetadataCache(image)
        )
        controller = controller_context(node, raft=SimpleNamespace(leader_id=2))
        ctx: Any = SimpleNamespace(listener="CONTROLLER")
        request: Any = SimpleNamespace(endpoint_type=2, include_cluster_authorized_operations=False)
        answer = handle_describe_controllers(controller, ctx, request)
    finally:
        loop.close()
    assert answer["controller_id"] == 2
    return [(each["broker_id"], each["host"]) for each in answer["brokers"]]


def at(node_id: int, listener: str) -> ControllerRegistration:
    return ControllerRegistration(
        node_id, UUID(int=1), endpoints=(Endpoint(listener, f"registered-{node_id}", 9093),)
    )


def test_those_that_have_registered_that_listener() -> None:
    one, two, four = at(1, "CONTROLLER"), at(2, "ANOTHER"), at(4, "CONTROLLER")
    assert described(one=one, two=two, four=four, three=at(3, "CONTROLLER")) == [
        (1, "registered-1"),
        (3, "registered-3"),
        (4, "registered-4"),
    ]


def test_voters_of_a_version_in_which_controllers_did_not_register() -> None:
    assert described(one=at(1, "CONTROLLER")) == [
        (1, "registered-1"),
        (2, "configured-2"),
        (3, "configured-3"),
    ]


@pytest.mark.parametrize(
    ("version", "code"), [(0, ErrorCode.INVALID_REQUEST), (1, ErrorCode.MISMATCHED_ENDPOINT_TYPE)]
)
def test_who_looks_for_brokers_is_told_so_in_words_that_are_known(version: int, code: ErrorCode) -> None:
    ctx: Any = SimpleNamespace(listener="CONTROLLER", version=version)
    request: Any = SimpleNamespace(endpoint_type=1, include_cluster_authorized_operations=False)
    with pytest.raises(BrokerError) as refused:
        handle_describe_controllers(SimpleNamespace(), ctx, request)  # type: ignore[arg-type]
    assert refused.value.code is code
