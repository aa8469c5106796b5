"""A leader's run of batches, before a follower writes it: what is taken, and where it must begin."""

from __future__ import annotations

import pytest

from data_plane.log.append import check_leader_run, first_offset_expected
from metadata_quorum.foundation.batch import set_offset_and_epoch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.logs import batch


def run_of(*placed: tuple[int, int, int]) -> bytearray:
    """Batches of (base offset, leader epoch, records)."""
    run = bytearray()
    for offset, epoch, records in placed:
        one = batch(*[b"v"] * records)
        set_offset_and_epoch(one, 0, offset, epoch)
        run += one
    return run


def test_offsets_and_epochs_of_whole_batches() -> None:
    whole = run_of((5, 1, 2), (9, 3, 1))  # compaction has left a gap
    batches, next_offset, size = check_leader_run(whole, 5)
    assert [position for position, _ in batches] == [0, size - len(run_of((9, 3, 1)))]
    assert [(each.base_offset, each.partition_leader_epoch) for _, each in batches] == [(5, 1), (9, 3)]
    assert (next_offset, size) == (10, len(whole))


def test_a_batch_cut_off_at_the_end_is_left_for_the_next_fetch() -> None:
    first = run_of((5, 1, 2))
    batches, next_offset, size = check_leader_run(first + run_of((7, 1, 1))[:-1], 5)
    assert (len(batches), next_offset, size) == (1, 7, len(first))
    assert check_leader_run(first[:-1], 5)[0] == []


def test_offsets_below_the_log_end_are_refused() -> None:
    with pytest.raises(BrokerError) as refused:
        check_leader_run(run_of((4, 1, 1)), 5)
    assert refused.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.row("R5")
def test_what_a_leader_has_written_as_a_follower_of_the_next_epoch_is_left_for_a_later_fetch() -> None:
    """Its answer was still in the file, which was truncated and written meanwhile (KAFKA-18723)."""
    asked, newer = run_of((5, 3, 2)), run_of((7, 4, 1))
    batches, next_offset, size = check_leader_run(asked + newer, 5, leader_epoch=3)
    assert (len(batches), next_offset, size) == (1, 7, len(asked))
    with pytest.raises(BrokerError) as refused:
        check_leader_run(newer, 7, leader_epoch=3)
    assert refused.value.code is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.row("R5")
def test_what_a_leader_has_of_an_older_epoch_than_ours_is_refused() -> None:
    """It has truncated, and taken an older epoch's records from the next leader: what is before them in our
    log is not what is before them in its."""
    older, newer = run_of((5, 3, 2)), run_of((7, 4, 1))
    with pytest.raises(BrokerError) as refused:
        check_leader_run(older + newer, 5, leader_epoch=4, last_epoch=4)
    assert refused.value.code is ErrorCode.FENCED_LEADER_EPOCH
    assert len(check_leader_run(older + newer, 5, leader_epoch=4, last_epoch=3)[0]) == 2
    with pytest.raises(BrokerError):
        check_leader_run(run_of((5, 3, 2), (7, 2, 1)), 5, leader_epoch=4)


@pytest.mark.parametrize(
    ("start", "end", "expected"),
    [
        (7, 7, 5),  # an empty log that starts inside the leader's batch takes the whole batch
        (5, 5, 5),
        (10, 10, 10),
        (0, 7, 7),  # one that has records does not
    ],
)
def test_where_a_run_must_begin(start: int, end: int, expected: int) -> None:
    assert first_offset_expected(run_of((5, 1, 3)), start, end) == expected
