"""A node as handlers see it, for tests that call them without a node."""

from __future__ import annotations

import asyncio
import random
from types import SimpleNamespace
from typing import Any

from kraft.api.context import NodeContext
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
        random=random.Random(1),
        now_ms=lambda: now_ms,
        metadata_cache=MetadataCache(image),
        controller_channel=more.pop("controller_channel", None),
        **more,
    )
