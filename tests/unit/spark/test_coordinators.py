"""A coordinator that answers about something else is asked again, and believed in nothing."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any

import pytest

from spark_connector.coordinators import OpenTransaction, ended_before
from spark_connector.errors import Retry

MINE = OpenTransaction("t", 7, 1)
OPEN = SimpleNamespace(error_code=0, transaction_state="Ongoing", producer_id=7, producer_epoch=1)


class Cluster:
    """One broker, which answers with the next of these."""

    def __init__(self, *answers: list[Any]) -> None:
        self._answers = iter(answers)
        self.settings = SimpleNamespace(request_timeout_s=1, api_timeout_s=1)
        self.run = asyncio.run
        self.retries = 0

    def version_of(self, *_: Any) -> int:
        return 0

    async def ask_any_broker(self, *_: Any) -> Any:
        return SimpleNamespace(error_code=0, host="h", port=1)

    async def connected(self, _: Any) -> Any:
        return self

    async def request(self, *_: Any, timeout_s: float) -> Any:
        return SimpleNamespace(transaction_states=next(self._answers))

    async def within(self, _: float, attempt: Any) -> Any:
        while True:
            try:
                return await attempt()
            except Retry:
                self.retries += 1


@pytest.mark.parametrize("wrong", [[], [OPEN, OPEN]])
def test_an_answer_about_something_else_is_none(wrong: list[Any]) -> None:
    cluster: Any = Cluster(wrong, [OPEN])
    assert ended_before(cluster, [MINE]) == []
    assert cluster.retries == 1
