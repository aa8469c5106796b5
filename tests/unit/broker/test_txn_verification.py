"""A leader's question to the coordinator, while that still ends the transaction before."""

from __future__ import annotations

import asyncio
from collections.abc import Collection, Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from data_plane.coordinator.transactions.verification_guard import VerificationGuard, VerificationGuards
from kraft.broker.txn_verification import RetryPolicy, TransactionVerifier
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.virtual_loop import run_virtually

T0 = TopicPartition("t", 0)
PRODUCER = ProducerIdAndEpoch(7, 3)
HERE = 1


class Coordinator:
    """Says CONCURRENT_TRANSACTIONS so many times; before each further answer the old marker is written."""

    def __init__(self, guards: VerificationGuards, concurrent: int) -> None:
        self._guards = guards
        self._concurrent = concurrent
        self.questions_at_s: list[float] = []
        self.missing: Sequence[TopicPartition] = ()

    async def add_partitions(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition], version: int
    ) -> None:
        self.questions_at_s.append(asyncio.get_running_loop().time())
        if len(self.questions_at_s) <= self._concurrent:
            self._guards.marker_written(T0, PRODUCER.producer_id)
            raise BrokerError(ErrorCode.CONCURRENT_TRANSACTIONS)

    async def verify(
        self, name: str, producer: ProducerIdAndEpoch, partitions: Collection[TopicPartition]
    ) -> Sequence[TopicPartition]:
        await self.add_partitions(name, producer, partitions, 0)
        return self.missing


class LookedThroughOnce(tuple[TopicPartition, ...]):
    """Thousands that are missing, of thousands that are asked for."""

    def __contains__(self, each: object) -> bool:
        raise AssertionError("looked through for each partition")


def ask(
    guards: VerificationGuards,
    *,
    concurrent: int,
    add: bool = True,
    missing: Sequence[TopicPartition] = (),
) -> tuple[dict[TopicPartition, ErrorCode], VerificationGuard, list[float]]:
    coordinator: Any = Coordinator(guards, concurrent)
    coordinator.missing = missing
    topic = SimpleNamespace(partitions=dict.fromkeys(range(50), SimpleNamespace(leader=HERE)))
    metadata_cache: Any = SimpleNamespace(image=SimpleNamespace(topic=lambda name: topic))
    broker_channels: Any = None
    retry = RetryPolicy(every_s=0.02, for_s=0.1)
    verifier = TransactionVerifier(
        HERE, metadata_cache, coordinator, broker_channels, guards, verifies=True, timeout_s=1, retry=retry
    )
    guard = guards.begin(T0, PRODUCER.producer_id)
    outcomes: dict[TopicPartition, ErrorCode] = {}

    async def run() -> None:
        outcomes.update(await verifier.ask("x", PRODUCER, {T0: guard}, add=add))

    run_virtually(run())
    first = coordinator.questions_at_s[0]
    return outcomes, guard, [round(at - first, 3) for at in coordinator.questions_at_s]


@pytest.mark.row("P4")
def test_the_next_transaction_waits_in_the_broker_for_the_end_of_the_last_one() -> None:
    guards = VerificationGuards()
    outcomes, guard, asked = ask(guards, concurrent=2)
    assert outcomes == {T0: ErrorCode.NONE}
    assert asked == [0, 0.02, 0.04]
    assert guard.holds  # the markers that came between were of the last transaction
    guards.marker_written(T0, PRODUCER.producer_id)
    assert not guard.holds


def test_but_not_for_long() -> None:
    outcomes, _, asked = ask(VerificationGuards(), concurrent=99)
    assert outcomes == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert 0.1 <= asked[-1] <= 0.12


def test_a_producer_that_names_its_partitions_is_answered_at_once() -> None:
    outcomes, guard, asked = ask(VerificationGuards(), concurrent=1, add=False)
    assert outcomes == {T0: ErrorCode.CONCURRENT_TRANSACTIONS}
    assert asked == [0]
    assert not guard.holds


def test_what_is_missing_is_not_looked_through_for_each_partition() -> None:
    outcomes, _, _ = ask(VerificationGuards(), concurrent=0, add=False, missing=LookedThroughOnce((T0,)))
    assert outcomes == {T0: ErrorCode.TRANSACTION_ABORTABLE}
