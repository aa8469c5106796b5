"""What is no answer of a node is refused before anything is drawn of it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from copy import deepcopy
from io import StringIO
from typing import Any, cast

import pytest
from rich.console import Console

from kraft.cli.errors import CliError
from kraft.cli.node_http import NodeHttp
from kraft.cli.told import Snapshot, parsed
from kraft.cli.top_frame import Choice, Known, Size, frame
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")

WHOLE: Any = {
    "cluster_id": "abc", "told_by": 1, "time_ms": 1, "quorum": {"leader": 2, "term": 7},
    "brokers": [{
        "id": 1, "rack": None, "address": "h:1", "fenced": False, "shutting_down": False, "answers": True,
        "state": "running", "leads": 1, "replicas": 3, "size": 5, "metadata_lag": 0,
        "log_dirs": [{"path": "/d", "online": True}],
    }],
    "totals": {"partitions": 1, "no_leader": 0, "under_min_isr": 0, "under_replicated": 0},
    "partitions": [{
        "topic": "t", "partition": 0, "state": "in sync", "leader": 1, "start": 0, "high_watermark": 3,
        "end": 3, "size": 9, "replicas": [{"id": 1, "in_sync": True, "end": 3, "offline": False}],
    }],
    "more_partitions": 0,
    "groups": [{
        "id": "g", "type": "classic", "state": "Stable", "members": [{}], "offsets": [{}], "lag": 3,
        "lag_exact": True,
    }],
}  # fmt: skip
WRONG = (None, True, -1, 2**70, 10**400, 1.5, float("nan"), "", "text", [], [[]], {}, {"a": 1})


def places(value: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    yield path
    inner = value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ()
    for key, each in inner:
        yield from places(each, (*path, key))


def changed(path: tuple[Any, ...], wrong: Any) -> Any:
    if not path:
        return wrong
    found = deepcopy(WHOLE)
    parent = found
    for key in path[:-1]:
        parent = parent[key]
    if wrong is ...:
        del parent[path[-1]]
    else:
        parent[path[-1]] = wrong
    return found


def draw(view: Snapshot) -> str:
    out = StringIO()
    Console(file=out, width=80, highlight=False).print(frame(Known(view), Choice(), Size(80, 24)))
    return out.getvalue()


def test_whatever_is_taken_can_be_drawn() -> None:
    taken = 0
    for path in places(WHOLE):
        for wrong in (*WRONG, ...):
            if not path and wrong is ...:
                continue
            try:
                view = parsed(Snapshot, json.dumps(changed(path, wrong)))
            except ValueError:
                continue
            taken += 1
            assert draw(view)
    assert taken > 100  # another number, another name


def test_what_a_node_tells_is_taken() -> None:
    assert parsed(Snapshot, json.dumps(WHOLE)) == WHOLE
    assert "term ?" in draw(cast(Snapshot, {**WHOLE, "quorum": {"leader": -1}}))


def test_nesting_beyond_all_sense_is_refused() -> None:
    with pytest.raises(ValueError, match="nested"):
        parsed(Snapshot, "[" * 100_000)


@asynccontextmanager
async def answering(status: bytes, body: bytes) -> AsyncIterator[NodeHttp]:
    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        await reader.readuntil(b"\r\n\r\n")
        writer.write(b"HTTP/1.1 %b\r\nContent-Length: %d\r\n\r\n%b" % (status, len(body), body))
        writer.close()

    server = await asyncio.start_server(answer, "127.0.0.1", 0)
    async with server:
        yield NodeHttp([server.sockets[0].getsockname()], None)


NONSENSE = [b"", b"[]", b"7", b"[[1, 2]]", b'{"error": 1}', b"{}", b"\xff", b"[" * 100_000]


@pytest.mark.parametrize("status", [b"200 OK", b"403 Forbidden", b"500 Oh"])
@pytest.mark.parametrize("body", NONSENSE)
@on_a_loop
async def test_nonsense_is_no_answer(status: bytes, body: bytes) -> None:
    async with answering(status, body) as node:
        with pytest.raises(CliError, match="no node answers over HTTP"):
            await node.snapshot()


@pytest.mark.parametrize(
    "body",
    [
        b"data: 1\n\n",
        b"event: cluster\n\n",
        b"event: cluster\ndata: {}\n\n",
        b"event: events\ndata: [1]\n\n",
        b":\n\n",
    ],
)
@on_a_loop
async def test_a_nonsensical_event_is_none(body: bytes) -> None:
    async with answering(b"200 OK", body) as node:
        news = node.live()
        assert (await anext(news))[0] == "trouble"
        await news.aclose()
