"""A broker that answers fetches with what its test has found, and requests for it."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

from fetch.messages import FetchParams, FetchResponse
from kraft.api.request_context import Role
from kraft.net.peer import Peer
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import encode_request
from tests.support.contexts import broker_context, node_context

VERSION = 12


def named(count: int) -> memoryview:
    partitions = [{"partition": number} for number in range(count)]
    return memoryview(
        encode_request(ApiKey.FETCH, VERSION, {"topics": [{"topic": "t", "partitions": partitions}]})
    )


def broker_and_context(response: FetchResponse) -> tuple[Any, Any]:
    """A broker that answers every fetch with that at once."""
    broker: Any = broker_context(
        node_context(asyncio.get_running_loop()),
        replica_manager=(),
        fetch_service=SimpleNamespace(
            params_of=lambda request: FetchParams(request, request.min_bytes, request.max_bytes),
            fetch=lambda params, on_found: on_found(response),
            cold_reads=0,
        ),
        fetch_piece_bytes=lambda: 1000,
    )
    peer = Peer("CLIENTS", "127.0.0.1", 1)
    ctx: Any = SimpleNamespace(
        version=VERSION,
        role=Role.BROKER,
        connection=peer,
        cost=None,
        listener="CLIENTS",
        framed=lambda body: tuple(body),
    )
    return broker, ctx
