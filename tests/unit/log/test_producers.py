"""Idempotent producers: sequences, epochs, duplicates, open transactions, snapshots."""

from __future__ import annotations

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.producer_snapshot import CorruptSnapshotError, decode_snapshot, encode_snapshot
from data_plane.log.producers import MAX_SEQUENCE, ProducerStateManager
from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import (
    Record,
    decode_batch,
    encode_batch,
    encode_end_txn_marker,
    read_header,
)
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.logs import NOW_MS, batch, lead, open_log
from tests.support.may_block import MAY_BLOCK


def header(sequence: int, count: int = 1, *, epoch: int = 0, transactional: bool = False, timestamp: int = 0):
    records = [Record(-1, timestamp, None, b"v")] * count
    data = encode_batch(
        records, producer_id=7, producer_epoch=epoch, base_sequence=sequence, transactional=transactional
    )
    return read_header(data)


def refused(producers: ProducerStateManager, candidate) -> ErrorCode:
    with pytest.raises(BrokerError) as caught:
        producers.check(candidate)
    return caught.value.code


def test_sequences_must_follow_each_other():
    producers = ProducerStateManager()
    producers.update(header(0, 3), 100)
    assert producers.check(header(3)) is None
    assert refused(producers, header(4)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert refused(producers, header(2)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER


def test_sequences_wrap():
    producers = ProducerStateManager()
    producers.update(header(MAX_SEQUENCE - 1, 2), 0)
    assert producers.check(header(0)) is None
    producers.update(header(0, 4), 2)
    wrapped = header(MAX_SEQUENCE - 1, 2)
    assert producers.check(wrapped).first_offset == 0


def test_a_batch_across_the_wrap():
    producers = ProducerStateManager()
    producers.update(header(MAX_SEQUENCE, 3), 10)
    assert producers.states[7].last_sequence == 1
    assert producers.check(header(MAX_SEQUENCE, 3)).first_offset == 10


def test_unknown_producer_may_begin_anywhere():
    assert ProducerStateManager().check(header(55)) is None


def test_epochs():
    producers = ProducerStateManager()
    producers.update(header(0, 5, epoch=2), 0)
    assert refused(producers, header(5, epoch=1)) == ErrorCode.INVALID_PRODUCER_EPOCH
    assert refused(producers, header(5, epoch=3)) == ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    assert producers.check(header(0, epoch=3)) is None
    producers.update(header(0, epoch=3), 5)
    assert len(producers.states[7].batches) == 1


def test_a_snapshot_has_all_that_has_changed_since_the_last_one():
    producers = ProducerStateManager()
    producers.update(header(0), 0)
    producers.update(header(0)._replace(producer_id=8), 1)
    marker = header(-1)._replace(producer_id=9, base_offset=5)
    ends = [
        decode_batch(
            encode_end_txn_marker(
                commit=commit, coordinator_epoch=3, producer_id=9, producer_epoch=0, timestamp=NOW_MS
            )
        )[0]
        for commit in (True, False)
    ]
    changes = [
        lambda: producers.update(header(1, 2, timestamp=NOW_MS), 2),
        lambda: producers.update(header(0, epoch=1), 4),
        lambda: producers.update_control(marker, ends[0]),
        lambda: producers.update(header(0, transactional=True)._replace(producer_id=9), 6),
        lambda: producers.update_control(marker._replace(producer_epoch=1), ends[1]),
        lambda: producers.states.pop(8),
    ]
    encoded = encode_snapshot(producers.states)
    for change in changes:
        change()
        before, encoded = encoded, encode_snapshot(producers.states)
        assert encoded != before
        for state in producers.states.values():
            state.encoded = None
        assert encode_snapshot(producers.states) == encoded
        assert encode_snapshot(decode_snapshot(encoded)) == encoded


@pytest.mark.row("P3")
def test_the_last_five_batches_are_recognised(tmp_path):
    log = open_log(tmp_path)
    for sequence in range(6):
        lead(log, b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
    for sequence in range(1, 6):
        data = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        info = log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)
        assert info.duplicate
        assert info.first_offset == info.last_offset == sequence
    assert log.log_end_offset == 6
    with pytest.raises(BrokerError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        lead(log, b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    with pytest.raises(BrokerError, match="OUT_OF_ORDER_SEQUENCE_NUMBER"):
        lead(log, b"v", producer_id=7, producer_epoch=0, base_sequence=7)


def test_a_batch_that_is_sent_again_has_the_time_of_the_first_time(tmp_path):
    """Which is all that a producer learns of it, where the broker's clock counts."""
    log = open_log(tmp_path, LogConfig(message_timestamp_type="LogAppendTime"))
    data = batch(b"v", producer_id=7, producer_epoch=0, base_sequence=0)
    first = log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW_MS)
    again = log.append_as_leader(bytearray(data), leader_epoch=0, now_ms=NOW_MS + 5_000)
    assert (again.duplicate, again.log_append_time_ms) == (True, NOW_MS)
    assert first.log_append_time_ms == NOW_MS


@pytest.mark.row("P3")
def test_state_after_a_crash_and_on_a_follower_is_the_leaders(tmp_path):
    leader, follower = open_log(tmp_path / "a"), open_log(tmp_path / "b")
    for sequence in range(8):
        lead(leader, b"v", producer_id=7, producer_epoch=0, base_sequence=sequence)
        lead(leader, b"v", producer_id=9, producer_epoch=1, base_sequence=sequence)
    follower.append_as_follower(memoryview(leader.read(0, 1 << 20).read(MAY_BLOCK)))
    assert follower.producers.states == leader.producers.states
    leader.close()
    assert open_log(tmp_path / "a").producers.states == follower.producers.states


def test_transactions_hold_the_stable_offset_back(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"plain")
    lead(log, b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    lead(log, b"plain")
    assert log.first_unstable_offset(3) == 1
    marker = encode_end_txn_marker(
        commit=False, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp=NOW_MS
    )
    log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert log.first_unstable_offset(3) == 1, "the marker is not replicated yet"
    assert log.first_unstable_offset(4) is None
    log.close()
    assert open_log(tmp_path).producers.states[7].coordinator_epoch == 1


@pytest.mark.parametrize("epoch", [0, 1])
def test_nothing_is_written_beside_ones_own_open_transaction(tmp_path, epoch: int):
    """In a newer epoch it would keep the transaction's marker out, which is of the older one: readers of
    committed records would wait for ever. It takes no right to a transactional id to send it."""
    log = open_log(tmp_path)
    lead(log, b"t", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    with pytest.raises(BrokerError, match="INVALID_TXN_STATE"):
        lead(log, b"plain", producer_id=7, producer_epoch=epoch, base_sequence=1 - epoch)
    marker = encode_end_txn_marker(
        commit=True, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp=NOW_MS
    )
    log.append_as_leader(bytearray(marker), leader_epoch=0, now_ms=NOW_MS, origin=AppendOrigin.COORDINATOR)
    assert log.first_unstable_offset(2) is None


def test_open_transaction_survives_a_snapshot():
    producers = ProducerStateManager()
    producers.update(header(0, transactional=True), 40)
    again = ProducerStateManager()
    again.reset(41, decode_snapshot(encode_snapshot(producers.states)))
    assert again.first_unstable_offset(41) == 40
    marker = encode_end_txn_marker(
        commit=False, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp=1
    )
    aborted = again.update_control(read_header(marker)._replace(base_offset=41), decode_batch(marker)[0])
    assert aborted == (7, 40, 41, 42)


def test_silent_producers_expire_unless_in_a_transaction():
    producers = ProducerStateManager()
    producers.update(header(0, timestamp=1000), 0)
    producers.next_offset = 1
    assert producers.expire(1999, 1000) == 0
    assert producers.expire(1999, 1000) == 0
    assert producers.expire(2000, 1000) == 1
    producers.update(header(0, transactional=True, timestamp=1000), 1)
    producers.next_offset = 2
    assert producers.expire(9999, 1000) == producers.expire(9999, 1000) == 0


def test_who_writes_records_of_long_ago_is_not_silent():
    """Nor is anybody when the clock is set: what they send again would be written twice."""
    producers = ProducerStateManager()
    for offset in range(3):
        producers.update(header(offset, timestamp=0), offset)
        producers.next_offset = offset + 1
        assert producers.expire(NOW_MS, 1000) == 0
        assert producers.check(header(offset)) is not None
    assert producers.expire(NOW_MS, 1000) == 1


def test_who_writes_after_a_truncation_is_not_silent():
    producers = ProducerStateManager()
    producers.next_offset = 10
    producers.expire(NOW_MS, 1000)
    producers.reset(0)
    producers.update(header(0, timestamp=0), 0)
    producers.next_offset = 1
    assert producers.expire(NOW_MS, 1000) == 0


@pytest.mark.parametrize("damage", [slice(0, 2), slice(3, 4), slice(8, 9), slice(20, 21), slice(-1, None)])
def test_damaged_snapshot_is_refused(damage: slice):
    producers = ProducerStateManager()
    producers.update(header(0), 0)
    data = bytearray(encode_snapshot(producers.states))
    data[damage] = bytes(b ^ 0x55 for b in data[damage])
    with pytest.raises(CorruptSnapshotError):
        decode_snapshot(bytes(data))


def test_a_marker_of_an_earlier_epoch_ends_nothing():
    producers = ProducerStateManager()
    producers.update(header(0, epoch=3, transactional=True), 10)
    for epoch in (2, 3):
        data = encode_end_txn_marker(
            commit=False, coordinator_epoch=0, producer_id=7, producer_epoch=epoch, timestamp=NOW_MS
        )
        marker = decode_batch(data)[0]
        if epoch == 3:
            producers.check_coordinated(read_header(data), marker)
            continue
        with pytest.raises(BrokerError) as caught:
            producers.check_coordinated(read_header(data), marker)
        assert caught.value.code == ErrorCode.INVALID_PRODUCER_EPOCH


def test_a_batch_of_an_earlier_epoch_changes_nothing():
    """A zombie's, that an old leader let in."""
    producers = ProducerStateManager()
    producers.update(header(0, epoch=3), 10)
    producers.update(header(0, 5, epoch=2), 11)
    assert producers.states[7].epoch == 3
    assert producers.check(header(1, epoch=3)) is None
