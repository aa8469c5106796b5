"""What a producer sends of a transaction without waiting is done in the order in which it was sent."""

from __future__ import annotations

import asyncio
from types import SimpleNamespace
from typing import Any, Final
from uuid import UUID

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from kraft.api import add_partitions, transactions
from kraft.api.request_context import RequestContext, Role
from kraft.net.connection_state import ConnectionState
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.model import PartitionRegistration
from metadata_quorum.metadata.image import MetadataImage, TopicImage
from tests.support.contexts import broker_context, node_context

PARTITIONS: Final = 300
"""So many are looked up in several turns of the loop."""


class Coordinator:
    """Notes what it is asked."""

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def add_partitions(self, *_: Any) -> None:
        self.asked.append("add")
        await asyncio.sleep(0)

    async def end(self, transactional_id: str, producer: ProducerIdAndEpoch, **_: Any) -> ProducerIdAndEpoch:
        self.asked.append("end")
        return producer


@pytest.mark.row("P4")
@pytest.mark.parametrize("goes", [False, True], ids=["stays", "goes"])
@pytest.mark.parametrize("others", [False, True], ids=["alone", "behind others"])
def test_the_end_of_a_transaction_comes_behind_very_many_partitions_of_it(goes: bool, others: bool) -> None:
    """It ended before them, and they began another one, which nobody ended."""

    async def test() -> None:
        loop = asyncio.get_running_loop()
        partition = PartitionRegistration((1,), (1,), 1, 0, 0)
        topic = TopicImage("t", UUID(int=1), dict.fromkeys(range(PARTITIONS), partition))
        coordinator: Any = Coordinator()
        node = node_context(loop, image=MetadataImage(topics_by_name={"t": topic}))
        broker = broker_context(node, transaction_coordinator=coordinator)
        peer: Any = SimpleNamespace(
            listener="CLIENTS", client_host="10.0.0.9", state=ConnectionState(), gone=False
        )

        def ctx(key: ApiKey, version: int) -> RequestContext:
            return RequestContext(key, version, 1, "app", Role.BROKER, peer, "User:me", ())

        added: Any = SimpleNamespace(
            v3_and_below_transactional_id="x",
            v3_and_below_producer_id=7,
            v3_and_below_producer_epoch=0,
            v3_and_below_topics=[SimpleNamespace(name="t", partitions=list(range(PARTITIONS)))],
        )
        end: Any = SimpleNamespace(transactional_id="x", producer_id=7, producer_epoch=0, committed=True)

        async def first() -> None:
            """The end comes in the turn in which it lets go."""
            if others:
                async with peer.state.behind_commits():
                    await asyncio.sleep(0)

        before = asyncio.ensure_future(first())
        adding = add_partitions.handle_add_partitions(broker, ctx(ApiKey.ADD_PARTITIONS_TO_TXN, 3), added)
        work = [before, asyncio.ensure_future(adding)]
        if others:
            await asyncio.sleep(0)
        work.append(asyncio.ensure_future(transactions.handle_end(broker, ctx(ApiKey.END_TXN, 4), end)))
        answering = asyncio.gather(*work)
        await asyncio.sleep(0)
        peer.gone = goes
        await answering
        assert coordinator.asked == ([] if goes else ["add", "end"])

    asyncio.run(test())
