"""What makes a micro-batch that runs again the same one."""

from __future__ import annotations

import pytest

from spark_connector.coordinators import CommittedMark, OpenTransaction
from spark_connector.errors import SinkError
from spark_connector.micro_batches import MicroBatch, TaskRows
from spark_connector.transactions import IDS_PER_TASK, Rows, transactional_id_of


def micro_batch(number: int, *digests: int) -> MicroBatch:
    """With a task for each digest, and a row in it where it is not 0."""
    written = [
        TaskRows(task, Rows(1, each, "t", OpenTransaction(f"q-{task}-0", task, 0)) if each else Rows())
        for task, each in enumerate(digests)
    ]
    return MicroBatch("q", "q-", number, written)


FIRST = micro_batch(5, 11, 0, 13)


@pytest.mark.parametrize(
    ("again", "says"),
    [
        (micro_batch(4, 11, 0, 13), "KAFKA_TRANSACTION_ROLLED_BACK.*micro-batch 4 .*micro-batch 5 of this"),
        (micro_batch(5, 11, 0, 14), "KAFKA_TRANSACTION_OTHER_ROWS.*tasks=3 rows=2"),
        (micro_batch(5, 13, 0, 11), "KAFKA_TRANSACTION_OTHER_ROWS"),
        (micro_batch(5, 11, 13, 0), "KAFKA_TRANSACTION_OTHER_ROWS"),
        (micro_batch(5, 11, 0, 0), "KAFKA_TRANSACTION_OTHER_ROWS.*rows=1"),
        (micro_batch(5, 0, 0, 0), "KAFKA_TRANSACTION_OTHER_ROWS.*rows=0"),
        (micro_batch(5, 11, 0, 13, 0), "KAFKA_TRANSACTION_OTHER_ROWS.*tasks=4"),
    ],
)
def test_another_one_of_that_number(again: MicroBatch, says: str) -> None:
    mark = CommittedMark(6, FIRST.manifest)
    FIRST.check(mark)
    with pytest.raises(SinkError, match=says):
        again.check(mark)


def test_the_first_transaction_decides_for_all() -> None:
    """The others' marks tell only that they have followed."""
    first, second = FIRST.pending_marks()
    assert (first.group, first.mark) == ("q", CommittedMark(6, FIRST.manifest))
    assert (second.group, second.mark) == ("q-2", CommittedMark(6, ""))
    assert first.topic == "t"
    elsewhere = MicroBatch("q", "q-", 5, FIRST.written, mark_topic="u")
    assert {each.topic for each in elsewhere.pending_marks()} == {"u"}


def test_attempts_have_names_of_their_own_as_often_as_spark_tries() -> None:
    ids = [transactional_id_of("p", 3, attempt) for attempt in range(IDS_PER_TASK)]
    assert len(set(ids)) == IDS_PER_TASK
    assert transactional_id_of("p", 3, IDS_PER_TASK) == ids[0]
