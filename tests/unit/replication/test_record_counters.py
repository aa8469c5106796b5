"""The counters of many partitions take so much memory together."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.log.record_count import Counted, Gap
from data_plane.replication import record_counters
from data_plane.replication.record_counters import RecordCounters
from metadata_quorum.foundation.model import ZERO_UUID, TopicPartition

TRANSACTIONS = 1_000
END = 10 * TRANSACTIONS


def partition(number: int) -> Any:
    log = SimpleNamespace(log_start_offset=0, cleaned_to=0)
    tp = TopicPartition("t", number)
    return SimpleNamespace(tp=tp, topic_id=ZERO_UUID, leader_epoch=0, high_watermark=END, log=log)


def test_the_gaps_of_those_that_were_used_longest_ago_make_room(monkeypatch: pytest.MonkeyPatch) -> None:
    """Every transaction leaves a gap in each of its partitions. A thousand partitions took 1.5 GB for
    theirs, for ever."""
    monkeypatch.setattr(record_counters, "MOST_GAPS_TOGETHER", 2 * TRANSACTIONS)
    counters = RecordCounters()
    markers = [Gap(10 * number + 9, 10 * number + 10, 1) for number in range(TRANSACTIONS)]
    for number in range(5):
        counters.add(counters.counter_of(partition(number), 0), Counted(0, END, END, markers))
    gaps = [counters.counter_of(partition(number), 0).gaps for number in range(5)]
    assert gaps == [0, 0, 0, TRANSACTIONS, TRANSACTIONS]
