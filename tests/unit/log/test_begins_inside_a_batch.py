"""An empty log that begins inside one of its leader's batches (DeleteRecords): the batch is kept whole, with
the transactions and producers that follow from it."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_plane.log.log import UnifiedLog
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.logs import MAY_BLOCK, lead, open_log
from tests.unit.log.transactional_log import end_transaction

PRODUCER = 7
BEGIN = 3


def leader_of(tmp_path: Path) -> UnifiedLog:
    """Records of nobody at 0 and 1, a transaction's batch from 2 to 4."""
    leader = open_log(tmp_path / "a-0")
    lead(leader, b"0", b"1")
    lead(
        leader, b"2", b"3", b"4", producer_id=PRODUCER, producer_epoch=0, base_sequence=0, transactional=True
    )
    return leader


def copied(follower: UnifiedLog, leader: UnifiedLog) -> None:
    follower.append_as_follower(leader.read(follower.log_end_offset, 1 << 20).read(MAY_BLOCK))


@pytest.mark.row("R5", "P4")
@pytest.mark.parametrize("commit", [True, False], ids=["commit", "abort"])
def test_a_transaction_across_the_beginning(tmp_path: Path, commit: bool) -> None:
    leader, follower = leader_of(tmp_path), open_log(tmp_path / "b-0")
    follower.truncate_fully_and_start_at(BEGIN)
    copied(follower, leader)
    assert (follower.log_start_offset, follower.log_end_offset) == (BEGIN, 5)
    assert follower.producers.states == leader.producers.states
    assert follower.first_unstable_offset(5) == BEGIN
    marker = end_transaction(leader, PRODUCER, commit=commit)
    copied(follower, leader)
    assert follower.producers.states == leader.producers.states
    assert follower.first_unstable_offset(marker) == BEGIN  # the marker is not replicated
    assert follower.first_unstable_offset(marker + 1) is None
    read = follower.read(BEGIN, 1 << 20)
    assert follower.aborted_in(read) == (() if commit else ((PRODUCER, 2),))
    follower.close_clean(MAY_BLOCK)
    again = open_log(tmp_path / "b-0", log_start_offset=BEGIN, clean=True)
    assert again.producers.states == leader.producers.states
    assert again.aborted.entries == follower.aborted.entries


@pytest.mark.row("R5")
@pytest.mark.parametrize("at", [0, 1], ids=["first", "second"])
def test_a_marker_that_is_none_changes_nothing(tmp_path: Path, at: int) -> None:
    """It would have no place in the state of producers, once it is written."""
    no_marker = encode_batch(
        [Record(timestamp=0, key=b"\0\0\0\1", value=b"")],
        base_offset=2 if at == 0 else 5,
        last_offset=BEGIN + 1 if at == 0 else 5,
        leader_epoch=0,
        producer_id=PRODUCER,
        producer_epoch=0,
        transactional=True,
        control=True,
    )
    leader, follower = leader_of(tmp_path), open_log(tmp_path / "b-0")
    follower.truncate_fully_and_start_at(BEGIN)
    before = b"" if at == 0 else bytes(leader.read(BEGIN, 1 << 20).read(MAY_BLOCK))
    with pytest.raises(BrokerError) as refused:
        follower.append_as_follower(before + no_marker)
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert not follower.inconsistent
    assert (follower.log_start_offset, follower.log_end_offset) == (BEGIN, BEGIN)
    assert not follower.producers.states
    copied(follower, leader)
    assert follower.log_end_offset == 5
