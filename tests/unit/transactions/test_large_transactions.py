"""What it costs to write down a transaction of very many partitions, as is done with each that is added."""

from __future__ import annotations

from functools import partial

import pytest

from data_plane.coordinator.state_machine import CoordinatorResult, Instant, ProducerIdAndEpoch
from data_plane.coordinator.transactions.records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    decode,
    encode,
)
from data_plane.coordinator.transactions.transaction_state_manager import (
    MOST_PARTITIONS,
    TransactionLimits,
    TransactionStateManager,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.model import TopicPartition
from tests.support.bytecodes import cost

PARTITIONS = 2_000


@pytest.mark.row("P4")
@pytest.mark.parametrize(("topics", "to_write", "to_read"), [(10, 30, 30), (PARTITIONS, 120, 330)])
def test_a_transaction_of_very_many_partitions(topics: int, to_write: int, to_read: int) -> None:
    """In bytecodes, for each partition."""
    every = frozenset(TopicPartition(f"topic-{n % topics}", n // topics) for n in range(PARTITIONS))
    known = TransactionMetadata(7, 0, 60_000, TransactionState.ONGOING, every)
    record = TransactionRecord("x", known)
    encode(record)  # what is made once
    assert cost(partial(encode, record)) <= to_write * PARTITIONS
    key, value = encode(record)
    assert decode(key, value) == record
    assert cost(partial(decode, key, value)) <= to_read * PARTITIONS


@pytest.mark.row("P4", "P7")
@pytest.mark.parametrize(
    ("topics", "each", "fit"),
    [
        (1, MOST_PARTITIONS - 3, True),
        (1, MOST_PARTITIONS - 2, False),
        (MOST_PARTITIONS // 4, 1, True),
        (MOST_PARTITIONS // 4 + 1, 1, False),
    ],
)
def test_a_transaction_has_no_more_partitions_than_are_written_in_a_turn_of_the_loop(
    topics: int, each: int, fit: bool
) -> None:
    """However they come."""
    manager, at = TransactionStateManager(TransactionLimits()), Instant(0.0, 0)
    manager.replay(TransactionRecord("x", TransactionMetadata(7, 0, 60_000)), at)

    def add(partitions: list[TopicPartition]) -> CoordinatorResult[TransactionRecord]:
        return manager.add_partitions("x", ProducerIdAndEpoch(7, 0), partitions, 2, 1, at)

    first, *others = [TopicPartition(f"t{topic}", n) for topic in range(topics) for n in range(each)]
    manager.replay(add([first]).records[0], at)
    if fit:
        assert len(add(others).records[0].value.partitions) == topics * each  # type: ignore[union-attr]
    else:
        with pytest.raises(BrokerError) as refused:
            add(others)
        assert refused.value.code is ErrorCode.INVALID_REQUEST
        assert manager.partitions_of("x") == 1
