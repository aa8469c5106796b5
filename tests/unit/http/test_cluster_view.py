"""What a visitor may see of ten thousand topics is looked up beside the loop."""

from __future__ import annotations

import asyncio
import threading
from types import SimpleNamespace
from typing import Any
from uuid import UUID

import pytest

from kraft.http.cluster_view import ClusterView
from kraft.http.login import Visitor
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import node_context
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")


class Authorizer:
    """Hides what is secret."""

    def __init__(self) -> None:
        self.threads: set[int] = set()

    def allows(self, principal: str, host: str, operation: int, resource_type: int, name: str) -> bool:
        self.threads.add(threading.get_ident())
        return name != "secret"


class Nobody:
    async def request(self, *_: Any) -> Any:
        raise BrokerError(ErrorCode.NOT_CONTROLLER)


@on_a_loop
@pytest.mark.parametrize("asked", ["snapshot", "topics", "groups", "transactions"])
async def test_rights_are_looked_up_beside_the_loop(asked: str) -> None:
    authorizer: Any = Authorizer()
    names = ("a", "secret", "b")
    topics = {name: TopicImage(name, UUID(int=n + 1), {}) for n, name in enumerate(names)}
    node = node_context(
        asyncio.get_running_loop(),
        image=MetadataImage(topics_by_name=topics),
        authorizer=authorizer,
        controller_channel=Nobody(),
    )
    sources: Any = SimpleNamespace(node=node, broker=None)
    visitor = Visitor("User:a", "h", node)
    arguments = {"topics": ("",)}.get(asked, ())
    answer = await getattr(ClusterView(sources), asked)(visitor, *arguments)
    assert threading.get_ident() not in authorizer.threads
    if asked == "snapshot":
        assert answer["totals"]["topics"] == 2
    elif asked == "topics":
        assert [each["name"] for each in answer] == ["a", "b"]
    else:
        assert answer == []
