"""A node as handlers see it, for tests that call them without a node."""

from __future__ import annotations

import asyncio
import random
from dataclasses import MISSING, fields
from types import SimpleNamespace
from typing import Any, Final

from kraft.api.context import BrokerContext, ControllerContext, NodeContext
from kraft.api.long_work import LongWork
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.metadata_cache import MetadataCache


def node_context(
    loop: asyncio.AbstractEventLoop,
    *,
    cluster_id: str = "c",
    image: MetadataImage = EMPTY_IMAGE,
    config: Any = None,
    now_ms: int = 0,
    **more: Any,
) -> NodeContext:
    """Node 1, whose clock stands still. `config`: what stands for its configuration."""
    return NodeContext(
        node_id=1,
        cluster_id=cluster_id,
        config=config if config is not None else SimpleNamespace(),
        loop=loop,
        long_work=LongWork(loop),
        random=random.Random(1),
        now_ms=lambda: now_ms,
        metadata_cache=MetadataCache(image),
        **{"controller_channel": None, "scram_users": None, **more},
    )


def broker_context(node: NodeContext, **parts: Any) -> BrokerContext:
    """Of the broker's parts those that the test needs."""
    return BrokerContext(node=node, **{**dict.fromkeys(_BROKER_PARTS), **parts})


def controller_context(node: NodeContext, **parts: Any) -> ControllerContext:
    """Of the controller's parts those that the test needs."""
    return ControllerContext(node=node, **{**dict.fromkeys(_CONTROLLER_PARTS), **parts})


def _parts(context: type[BrokerContext | ControllerContext]) -> tuple[str, ...]:
    """The fields that have no default."""
    return tuple(
        each.name
        for each in fields(context)
        if each.name != "node" and each.default is MISSING and each.default_factory is MISSING
    )


_BROKER_PARTS: Final = _parts(BrokerContext)
_CONTROLLER_PARTS: Final = _parts(ControllerContext)
