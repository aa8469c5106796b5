"""ListTransactions by a pattern of the client's: whatever it is, it takes the time that its text takes."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.transactions.records import TransactionState
from kraft.api.transactions import handle_list
from metadata_quorum.foundation.errors import BrokerError
from tests.support.contexts import broker_context, node_context
from tests.support.cpu_time import cpu_s

pytestmark = pytest.mark.row("P7")

NAMES = [f"orders-service-instance-{number}" for number in range(200)]


class Coordinator:
    async def list(self) -> AsyncIterator[list[tuple[str, Any]]]:
        known = SimpleNamespace(producer_id=1, state=TransactionState.EMPTY, started_ms=-1)
        yield [(name, known) for name in NAMES]


def listed(pattern: str) -> list[str]:
    async def ask() -> Any:
        node = node_context(asyncio.get_running_loop())
        broker = broker_context(node, transaction_coordinator=Coordinator())
        request: Any = SimpleNamespace(
            state_filters=[], producer_id_filters=[], duration_filter=-1, transactional_id_pattern=pattern
        )
        return await handle_list(broker, SimpleNamespace(version=2), request)  # type: ignore[arg-type]

    return [each["transactional_id"] for each in asyncio.run(ask())["transaction_states"]]


@pytest.mark.parametrize("pattern", ["(.|.)*!", "(.*)*!", "(o|or|ord|.)+!"])
def test_a_pattern_that_others_would_go_back_and_forth_with(pattern: str) -> None:
    def asked() -> None:
        assert listed(pattern) == []

    assert cpu_s(asked) < 1.0
    assert listed(pattern.replace("!", "1")) == [name for name in NAMES if name.endswith("1")]


def test_what_is_no_pattern() -> None:
    with pytest.raises(BrokerError, match="INVALID_REGULAR_EXPRESSION"):
        listed("(")
