"""Requests with very many strings or numbers, as in a filter: they are taken from it in slices, too, and an
answer that repeats them is encoded beside the loop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping
from types import SimpleNamespace
from typing import Any, Final

import pytest

from kraft.api import config_resources, group_admin, transactions
from kraft.api.slices import MANY, VALUES_AS_ONE, VALUES_PER_SLICE, is_long
from kraft.net.connection_state import ConnectionState
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.contexts import broker_context, node_context

pytestmark = pytest.mark.row("P7")

VALUES: Final = 12_000


class Watched(list[Any]):
    """Knows how many of its values were taken in the busiest turn of the loop."""

    most = now = 0

    def __iter__(self) -> Iterator[Any]:
        for value in super().__iter__():
            self.now += 1
            self.most = max(self.most, self.now)
            yield value


class Coordinator:
    """Of nothing."""

    async def list(self) -> AsyncIterator[Any]:
        for part in ():
            yield part

    list_groups = list

    async def delete_group(self, group_id: str) -> ErrorCode:
        return ErrorCode.GROUP_ID_NOT_FOUND


Handler = Callable[..., Coroutine[Any, Any, Mapping[str, Any]]]
NAMES: Final = tuple(f"n{n}" for n in range(VALUES))
LISTED: Final[Mapping[str, Any]] = {
    "state_filters": [], "producer_id_filters": [], "duration_filter": -1, "transactional_id_pattern": None
}  # fmt: skip
FILTERS: Final[Mapping[str, tuple[Handler, str, tuple[Any, ...], Mapping[str, Any]]]] = {
    "ListGroups, states": (group_admin.handle_list, "states_filter", NAMES, {"types_filter": []}),
    "ListGroups, types": (group_admin.handle_list, "types_filter", NAMES, {"states_filter": []}),
    "ListTransactions, states": (transactions.handle_list, "state_filters", NAMES, LISTED),
    "ListTransactions, producers": (
        transactions.handle_list, "producer_id_filters", tuple(range(VALUES)), LISTED
    ),
    "ListConfigResources": (config_resources.handle, "resource_types", (1,) * VALUES, {}),
    "DeleteGroups": (group_admin.handle_delete, "groups_names", NAMES, {}),
}  # fmt: skip


@pytest.mark.parametrize("name", FILTERS)
def test_a_turn_of_the_loop_takes_so_many_values(name: str) -> None:
    """400,000 states of groups took a tenth of a second, of anybody who may ask for a list."""
    handler, field, values, fields = FILTERS[name]
    watched = Watched(values)

    async def ask() -> None:
        coordinator: Any = Coordinator()
        broker = broker_context(
            node_context(asyncio.get_running_loop()),
            group_coordinator=coordinator,
            transaction_coordinator=coordinator,
        )
        connection = SimpleNamespace(state=ConnectionState())
        ctx = SimpleNamespace(version=5, connection=connection)
        request = SimpleNamespace(**{**fields, field: watched})
        task = asyncio.ensure_future(handler(broker, ctx, request))
        while not task.done():
            watched.now = 0
            await asyncio.sleep(0)
        try:
            answer = await task
        except BrokerError:  # of types of configurations that there are not
            return
        assert answer.get("unknown_state_filters", []) == (list(NAMES) if field == "state_filters" else [])

    asyncio.run(ask())
    assert 0 < watched.most <= VALUES_PER_SLICE + 1


@pytest.mark.parametrize("value", ["state", 7])
def test_an_answer_with_very_many_values_is_long(value: object) -> None:
    assert not is_long({"unknown_state_filters": [value] * (MANY // 2)})
    assert is_long({"unknown_state_filters": [value] * (MANY * VALUES_AS_ONE)})
