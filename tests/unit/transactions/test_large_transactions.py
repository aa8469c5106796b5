"""What it costs to write down a transaction of very many partitions, as is done with each that is added."""

from __future__ import annotations

from functools import partial

import pytest

from data_plane.coordinator.transactions.records import (
    TransactionMetadata,
    TransactionRecord,
    TransactionState,
    decode,
    encode,
)
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
