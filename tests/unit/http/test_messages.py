"""A page of messages is short, whatever their headers unpack to."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from kraft.http.api import encoded
from kraft.http.messages import MAX_HEADERS, MAX_SHOWN_BYTES, MAX_VALUE_BYTES, messages
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.model import TopicPartition
from tests.unit.net.harness import on_a_loop

pytestmark = pytest.mark.row("U5")

TP = TopicPartition("t", 0)


class Leader:
    """Answers with the same records, whatever it is asked."""

    def __init__(self, records: list[Record]) -> None:
        self._records, self._end = encode_batch(records), len(records)
        image = SimpleNamespace(partition=lambda _: SimpleNamespace(leader=1))
        node = SimpleNamespace(loop=asyncio.get_running_loop(), image=image)
        self.broker = SimpleNamespace(node=node, console_channels=self)

    async def ask(self, _: int, api_key: ApiKey, version: int, fields: Any, timeout_s: float) -> Any:
        if api_key is ApiKey.FETCH:
            row = SimpleNamespace(error_code=0, records=self._records)
            return SimpleNamespace(responses=[SimpleNamespace(partitions=[row])])
        earliest = fields["topics"][0]["partitions"][0]["timestamp"] == -2
        row = SimpleNamespace(error_code=0, offset=0 if earliest else self._end)
        return SimpleNamespace(topics=[SimpleNamespace(partitions=[row])])

    async def page(self, offset: int) -> Any:
        client: Any = self
        return await messages(client, TP, offset, None, 200, asyncio.Lock(), lambda page: page)


@on_a_loop
async def test_a_page_ends_where_it_would_hold_too_much() -> None:
    headers = tuple(("h", bytes(MAX_VALUE_BYTES)) for _ in range(MAX_HEADERS))
    leader = Leader([Record(timestamp=0, key=None, value=b"v", headers=headers)] * 10)
    page = await leader.page(3)
    assert [each["offset"] for each in page["messages"]] == [3, 4]
    assert len(encoded(page)) < 8 * MAX_SHOWN_BYTES


@on_a_loop
async def test_one_message_is_always_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("kraft.http.messages.MAX_SHOWN_BYTES", 10)
    leader = Leader([Record(timestamp=0, key=b"key", value=b"a long value")] * 3)
    for offset in range(3):
        assert [each["offset"] for each in (await leader.page(offset))["messages"]] == [offset]


@on_a_loop
async def test_a_page_of_the_longest_values_is_whole() -> None:
    leader = Leader([Record(timestamp=0, key=None, value=bytes(2 * MAX_VALUE_BYTES))] * 250)
    assert len((await leader.page(0))["messages"]) == 200
