"""Answers that no node may give to a simulated client, which would only try again."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from chaos.simulator.clients.answers import accusations_in
from chaos.simulator.clients.cluster_client import ClusterClient
from chaos.simulator.clients.reader import OffsetOutOfRange, fetch
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_response, encode_response
from metadata_quorum.foundation.errors import ErrorCode


def fetched(code: ErrorCode) -> Message:
    """An answer to a fetch of one partition."""
    partition = {"partition_index": 0, "error_code": code, "high_watermark": -1, "records": b""}
    fields = {"error_code": 0, "responses": [{"topic": "t", "partitions": [partition]}]}
    return decode_response(ApiKey.FETCH, 12, encode_response(ApiKey.FETCH, 12, fields))


class Cluster:
    """One broker, 7, that answers everything in the same way; is a connection to itself."""

    def __init__(self, answer: Message, *, is_deposed: bool = False) -> None:
        self.reported: list[str] = []
        self._answer = answer
        self.connected = True
        loop: Any = SimpleNamespace(name="reader0")
        brokers: Any = {7: None}
        chance: Any = None
        self.client = ClusterClient(loop, brokers, chance)
        self.client.report = lambda rule, what: self.reported.append(rule)
        self.client.is_deposed = lambda key, broker: is_deposed
        self.client.connections[7] = self  # type: ignore[assignment]
        self.client.leaders["t-0"] = 7

    async def request(self, *_: object, **__: object) -> Message:
        return self._answer


@pytest.mark.parametrize(
    ("code", "accusations"),
    [
        (ErrorCode.NONE, []),
        (ErrorCode.NOT_LEADER_OR_FOLLOWER, []),
        (ErrorCode.KAFKA_STORAGE_ERROR, []),
        (ErrorCode.INVALID_TIMESTAMP, []),
        (ErrorCode.CORRUPT_MESSAGE, [ErrorCode.CORRUPT_MESSAGE]),
        (ErrorCode.INVALID_REQUEST, [ErrorCode.INVALID_REQUEST]),
    ],
)
def test_who_has_done_nothing_wrong_is_not_accused(code: ErrorCode, accusations: list[ErrorCode]) -> None:
    assert list(accusations_in(fetched(code))) == accusations
    cluster = Cluster(fetched(code))
    asyncio.run(cluster.client.request(7, ApiKey.FETCH, {}))
    assert cluster.reported == ["accused"] * len(accusations)


def test_what_was_shown_is_in_range() -> None:
    """A leader that was deposed and cannot know it may lack it."""
    out_of_range = fetched(ErrorCode.OFFSET_OUT_OF_RANGE)
    for is_deposed in (False, True):
        cluster = Cluster(out_of_range, is_deposed=is_deposed)
        with pytest.raises(OffsetOutOfRange):
            asyncio.run(fetch(cluster.client, "t-0", 5))
        assert cluster.reported == ([] if is_deposed else ["out of range"])
