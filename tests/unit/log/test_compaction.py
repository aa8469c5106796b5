"""Compaction of a log on a real disk: what stays, what goes when, and a crash at any of its steps."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from crc32c import crc32c

from data_plane.log.cleaner import UncleanableError, batches_of
from data_plane.log.compact_log import cleanable, plan_cleaning, replace_segments
from data_plane.log.config import LogConfig
from data_plane.log.dump import verify
from data_plane.log.log import UnifiedLog
from data_plane.log.segment import LogSegment
from metadata_quorum.foundation.batch import (
    BATCH_OVERHEAD,
    CRC_START,
    Record,
    encode_batch,
    iter_headers,
)
from metadata_quorum.foundation.disk import OsDisk
from tests.support.logs import NOW_MS, open_log, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import COMPACT, DAY_MS, clean, contents, put
from tests.unit.log.transactional_log import end_transaction

pytestmark = pytest.mark.row("L4")


def filled(directory: Path, config: LogConfig = COMPACT, rounds: int = 12) -> UnifiedLog:
    log = open_log(directory, config)
    for i in range(rounds):
        put(log, (b"a", b"%d" % i), (b"b", b"x" * 50), (b"once-%d" % i, b"%d" % i))
    return log


def latest_below(log: UnifiedLog, end: int) -> set[bytes]:
    """Keys that stand below `end` more than once."""
    keys = [key for offset, key, _ in contents(log) if offset < end]
    return {key for key in keys if keys.count(key) > 1}


def test_only_the_newest_value_of_a_key_stays_and_offsets_stay_as_they_are(tmp_path):
    log = filled(tmp_path)
    before = contents(log)
    active = log.segments[-1].base_offset
    work = clean(log)
    after = contents(log)
    assert work.cleaned_to == log.cleaned_to == active
    assert set(after) < set(before)
    assert latest_below(log, active) == set()
    newest = {key: (offset, value) for offset, key, value in before if offset < active}
    assert {(offset, key, value) for offset, key, value in after if offset < active} == {
        (offset, key, value) for key, (offset, value) in newest.items()
    }
    assert [r for r in after if r[0] >= active] == [r for r in before if r[0] >= active]
    assert (
        not list(tmp_path.glob("*.swap"))
        + list(tmp_path.glob("*.cleaned"))
        + list(tmp_path.glob("*.deleted"))
    )


def test_small_segments_become_one(tmp_path):
    log = filled(tmp_path, rounds=30)
    many = len(log.segments)
    clean(log)  # makes them smaller
    put(log, (b"a", b"x" * 300))
    log.roll(NOW_MS)
    clean(log)
    assert len(log.segments) < many
    assert all(segment.size <= COMPACT.segment_bytes for segment in log.segments)
    assert [problem for s in log.segments for path in s.paths[:3] for problem in verify(OsDisk(), path)] == []


def test_a_cleaned_log_is_found_as_it_was(tmp_path):
    log = filled(tmp_path)
    clean(log)
    kept, end = contents(log), log.log_end_offset
    log.close()
    again = open_log(tmp_path, COMPACT)
    assert (contents(again), again.log_end_offset) == (kept, end)


def test_a_follower_takes_a_cleaned_log_over_its_gaps(tmp_path):
    log = filled(tmp_path / "leader")
    clean(log)
    follower = open_log(tmp_path / "follower", COMPACT)
    while follower.log_end_offset < log.log_end_offset:
        follower.append_as_follower(
            log.read(follower.log_end_offset, 1 << 20, at_least_one_batch=True).read(MAY_BLOCK)
        )
    assert contents(follower) == contents(log)


def test_a_tombstone_stays_until_its_horizon_is_over(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"a", None))
    put(log, (b"fill", b"x" * 300))
    log.roll(NOW_MS)
    put(log, (b"c", b"1"))
    clean(log, now_ms=NOW_MS)
    assert (2, b"a", None) in contents(log)
    assert (0, b"a", b"1") not in contents(log)
    put(log, (b"d", b"x" * 300))
    log.roll(NOW_MS)
    clean(log, now_ms=NOW_MS + 999)
    assert (2, b"a", None) in contents(log)
    put(log, (b"e", b"x" * 300))
    log.roll(NOW_MS)
    clean(log, now_ms=NOW_MS + 1000)
    assert (2, b"a", None) not in contents(log)
    assert (1, b"b", b"1") in contents(log)


def test_what_is_written_where_a_cleaned_log_was_truncated_is_dirty(tmp_path):
    """After an unclean election. Otherwise the tombstone would go first, and what it deletes would stay."""
    log = open_log(tmp_path, COMPACT)
    for key in (b"a", b"b", b"c", b"d", b"e", b"f"):
        put(log, (key, b"x" * 300))
    clean(log)
    assert log.cleaned_to == 5
    truncate(log, 2)
    put(log, (b"a", None))
    for late_ms in (0, 0, 1000):
        put(log, (b"fill", b"x" * 300))
        log.roll(NOW_MS)
        clean(log, now_ms=NOW_MS + late_ms)
    assert b"a" not in {key for _, key, _ in contents(log)}


def test_a_producers_last_batch_stays_though_empty(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"), (b"fill", b"x" * 300))
    log.roll(NOW_MS)
    put(log, (b"z", b"1"))
    clean(log)
    _, first = next(batches_of(log.segments[0]))
    assert (first.producer_id, first.base_sequence, first.record_count) == (7, 0, 0)
    assert open_log(tmp_path, COMPACT).producers.states[7].last_sequence == 0


def two_batches_of_a_producer(directory: Path) -> UnifiedLog:
    """In two segments, with a snapshot between them; a newer value lies behind the second."""
    log = open_log(directory, COMPACT)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    log.roll(NOW_MS)
    put(log, (b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=1)
    put(log, (b"b", b"2"), (b"fill", b"x" * 300))
    log.roll(NOW_MS)
    return log


def test_a_producer_whose_records_were_deleted_does_not_come_back_older_than_it_was(tmp_path):
    log = two_batches_of_a_producer(tmp_path)
    log.advance_log_start(2)
    for _ in range(2):
        log.close()
        log = open_log(tmp_path, COMPACT, log_start_offset=2, recovery_point=1)
        assert log.producers.states[7].last_sequence == 1
        clean(log)


def test_a_forgotten_producers_newest_batch_stays_as_long_as_an_older_one(tmp_path):
    log = two_batches_of_a_producer(tmp_path)
    log.producers.states.clear()  # expired
    clean(log)
    log.close()
    log = open_log(tmp_path, COMPACT)
    assert log.producers.states[7].last_sequence == 1
    log.producers.states.clear()
    put(log, (b"a", b"2"), (b"fill", b"x" * 300))
    log.roll(NOW_MS)
    clean(log)
    log.close()
    assert 7 not in open_log(tmp_path, COMPACT).producers.states


def test_an_old_snapshot_does_not_tell_of_a_producer_whose_newest_batch_is_gone(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (b"fill", b"x" * 200))
    log.roll(NOW_MS)
    put(log, (b"b", b"1"), producer_id=7, producer_epoch=0, base_sequence=1)
    put(log, (b"a", b"2"), (b"b", b"2"), (b"other", b"x" * 200))
    log.roll(NOW_MS)
    log.producers.states.clear()  # expired
    clean(log)
    assert [segment.base_offset for segment in log.segments] == [0, 2, 6]
    log.close()
    (tmp_path / f"{6:020}.snapshot").unlink()
    assert 7 not in open_log(tmp_path, COMPACT, clean=True).producers.states


def test_a_live_producers_newest_marker_stays(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    end_transaction(log, 7, commit=True, producer_epoch=1)
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2000):
        put(log, (b"a", b"2"), (b"fill", b"x" * 300))
        log.roll(NOW_MS)
        clean(log, now_ms=now_ms)
    before = log.producers.states[7]
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    after = open_log(tmp_path, COMPACT).producers.states[7]
    assert (after.epoch, after.coordinator_epoch, after.last_sequence) == (1, 1, -1)
    assert after == before


def test_an_emptied_batch_keeps_its_producers_age(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"), producer_id=7, producer_epoch=0, base_sequence=0)
    put(log, (b"a", b"2"), (b"fill", b"x" * 300))
    log.roll(NOW_MS)
    put(log, (b"z", b"1"))
    clean(log)
    for path in tmp_path.glob("*.snapshot"):
        path.unlink()
    again = open_log(tmp_path, COMPACT)
    assert again.producers.states[7].last_timestamp == NOW_MS
    for _ in range(2):  # the first call spares all
        assert again.producers.expire(NOW_MS + 1000) == 0


def test_the_greatest_timestamp_is_found_after_its_batch_was_rewritten(tmp_path):
    def put_at(*triples: tuple[bytes, bytes, int]) -> None:
        data = bytearray(encode_batch([Record(-1, time, key, value) for key, value, time in triples]))
        log.append_as_leader(data, leader_epoch=0, now_ms=NOW_MS)

    log = open_log(tmp_path, COMPACT)
    put_at((b"a", b"1", NOW_MS + 500), (b"b", b"1", NOW_MS))
    put_at((b"a", b"2", NOW_MS + 10))
    log.roll(NOW_MS)
    put_at((b"c", b"1", NOW_MS - 5))
    assert log.search_time(None).run(MAY_BLOCK) == (0, NOW_MS + 500, 0)
    clean(log)
    assert log.search_time(None).run(MAY_BLOCK) == (2, NOW_MS + 10, 0)
    assert open_log(tmp_path, COMPACT).search_time(None).run(MAY_BLOCK) == (2, NOW_MS + 10, 0)


def test_the_greatest_timestamp_is_not_that_of_a_batch_that_is_empty_now(tmp_path):
    """It stays for its producer, with the time of what was in it."""
    log = open_log(tmp_path, COMPACT)
    newest = encode_batch(
        [Record(-1, NOW_MS + 500, b"a", b"1")], producer_id=7, producer_epoch=0, base_sequence=0
    )
    log.append_as_leader(bytearray(newest), leader_epoch=0, now_ms=NOW_MS)
    put(log, (b"a", b"2"))
    log.roll(NOW_MS)
    put(log, (b"z", b"1"))
    clean(log)
    assert log.search_time(None).run(MAY_BLOCK)[1] == NOW_MS
    log.close_clean(MAY_BLOCK)
    assert open_log(tmp_path, COMPACT, clean=True).search_time(None).run(MAY_BLOCK)[1] == NOW_MS


@pytest.mark.pure("a cleaner as it was is planted in Python")
def test_a_reader_of_a_gap_gets_the_aborted_transactions_of_what_is_behind_it(tmp_path, monkeypatch):
    """As Apache Kafka's cleaner leaves it, and ours did: a segment that ends before the next one begins."""
    monkeypatch.setattr(LogSegment, "fill_to", lambda *_: None)
    log = open_log(tmp_path, COMPACT)
    transaction = {"producer_epoch": 0, "base_sequence": 0, "transactional": True}
    put(log, (b"a", b"1"), (b"b", b"1"))
    put(log, (b"t", b"aborted"), producer_id=8, **transaction)
    log.roll(NOW_MS)
    end_transaction(log, 8, commit=False)
    for _ in range(2):  # it has written nothing since the first one
        log.producers.expire(NOW_MS + 10 * DAY_MS)  # else an empty batch stays for it
    put(log, (b"t", b"aborted too"), producer_id=9, **transaction)
    end_transaction(log, 9, commit=False)
    clean(log)
    for offset in (2, 3):
        piece = log.read(offset, 1 << 20, at_least_one_batch=True)
        delivered = [header.base_offset for _, header in iter_headers(piece.read(MAY_BLOCK))]
        assert delivered == [3, 4, 5]
        assert (9, 4) in log.aborted_in(piece)


def test_a_batch_that_cannot_be_opened_ends_the_pass_and_nothing_else(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"1"))
    bad = bytearray(encode_batch([Record(-1, NOW_MS, b"a", b"2" * 40)], base_offset=1, leader_epoch=0))
    bad[BATCH_OVERHEAD:] = b"\xff" * (len(bad) - BATCH_OVERHEAD)
    bad[17:21] = crc32c(bytes(bad[CRC_START:])).to_bytes(4, "big")
    log.append_as_follower(bad)
    put(log, (b"a", b"3"))
    log.roll(NOW_MS)
    files_before = sorted(path.name for path in tmp_path.iterdir())
    work = plan_cleaning(log, cleanable(log, log.log_end_offset, NOW_MS), NOW_MS)
    with pytest.raises(UncleanableError, match="offset 1"):
        work.run(MAY_BLOCK)
    work.discard(MAY_BLOCK)
    assert sorted(path.name for path in tmp_path.iterdir()) == files_before
    assert put(log, (b"a", b"4")) == 3


def test_records_of_an_aborted_transaction_go_and_its_marker_once_it_is_not_needed(tmp_path):
    log = open_log(tmp_path, COMPACT)
    transactional = {"transactional": True, "producer_epoch": 0, "base_sequence": 0}
    put(log, (b"a", b"aborted"), producer_id=1, **transactional)
    put(log, (b"a", b"committed"), producer_id=2, **transactional)
    put(log, (b"a2", b"aborted"), producer_id=1, **{**transactional, "base_sequence": 1})
    end_transaction(log, 1, commit=False)
    end_transaction(log, 2, commit=True)
    log.producers.states.clear()  # expired
    assert log.aborted.between(0, 5) == ((1, 0),)

    def cleaned(now_ms: int) -> list[int]:
        put(log, (b"fill-%d" % log.log_end_offset, b"x" * 300))
        log.roll(NOW_MS)
        clean(log, now_ms=now_ms)
        return [h.base_offset for s in log.segments for _, h in batches_of(s) if h.base_offset < 5]

    assert cleaned(NOW_MS) == [1, 3, 4]
    assert [r for r in contents(log) if r[0] < 5] == [(1, b"a", b"committed")]
    assert log.aborted.between(0, 5) == ((1, 0),)  # a reader may still hold what was there before
    assert cleaned(NOW_MS + 1) == [1, 3, 4]  # the abort marker gets its horizon
    assert log.aborted.entries == []
    assert cleaned(NOW_MS + 2000) == [1, 4]  # the commit marker's data is still there


def test_a_transaction_whose_marker_is_gone_does_not_come_back_from_an_old_snapshot(tmp_path):
    log = open_log(tmp_path, COMPACT)
    put(log, (b"a", b"x"), producer_id=1, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(NOW_MS)  # with a snapshot that knows it as open
    end_transaction(log, 1, commit=False)
    log.producers.states.clear()  # expired
    for now_ms in (NOW_MS, NOW_MS + 1, NOW_MS + 2000):
        put(log, (b"fill", b"x" * 300))
        log.roll(NOW_MS)
        clean(log, now_ms=now_ms)
    assert [h.base_offset for _, h in batches_of(log.segments[0]) if h.is_control] == []
    log.close()
    again = open_log(tmp_path, COMPACT)
    assert again.first_unstable_offset(again.log_end_offset) is None


def test_lag_and_ratio_decide_when(tmp_path):
    log = filled(tmp_path)
    assert cleanable(log, log.log_end_offset, NOW_MS).is_due(COMPACT)
    assert not cleanable(log, 0, NOW_MS).is_due(COMPACT)  # nothing is replicated yet
    log.config = LogConfig(cleanup_policy=("compact",), min_compaction_lag_ms=1000)
    assert not cleanable(log, log.log_end_offset, NOW_MS + 999).is_due(log.config)
    assert cleanable(log, log.log_end_offset, NOW_MS + 1000).is_due(log.config)
    log.config = COMPACT
    clean(log)
    patient = LogConfig(cleanup_policy=("compact",), max_compaction_lag_ms=5000)
    put(log, (b"a", b"new"), (b"fill", b"x" * 300))
    log.roll(NOW_MS)
    log.config = patient
    assert cleanable(log, log.log_end_offset, NOW_MS).ratio < 0.9
    assert cleanable(log, log.log_end_offset, NOW_MS + 5001).is_due(
        LogConfig(min_cleanable_dirty_ratio=1, max_compaction_lag_ms=5000)
    )


def test_a_pass_that_runs_out_of_memory_continues_with_the_next(tmp_path):
    log = filled(tmp_path, rounds=20)
    active = log.segments[-1].base_offset
    passes = 0
    while log.cleaned_to < active:
        before = log.cleaned_to
        clean(log, max_map_bytes=700)
        assert log.cleaned_to > before
        passes += 1
    assert passes > 2
    assert latest_below(log, active) == set()


def test_a_log_that_was_truncated_meanwhile_keeps_its_segments(tmp_path):
    log = filled(tmp_path)
    work = plan_cleaning(log, cleanable(log, log.log_end_offset, NOW_MS), NOW_MS)
    work.run(MAY_BLOCK)
    truncate(log, 5)
    expected = contents(log)
    assert not replace_segments(log, work)
    work.discard(MAY_BLOCK)
    assert contents(log) == expected
    assert not list(tmp_path.glob("*.swap"))


class Crash(BaseException):
    pass


class CrashingDisk(OsDisk):
    """Dies at the change of a directory for which nothing is `left`."""

    left = 1_000_000

    def _step(self) -> None:
        self.left -= 1
        if self.left < 0:
            raise Crash

    def rename(self, source: str, target: str) -> None:
        self._step()
        super().rename(source, target)

    def remove(self, path: str) -> None:
        self._step()
        super().remove(path)


def test_a_crash_at_any_step_loses_nothing(tmp_path):
    made = filled(tmp_path / "made")
    before = contents(made)
    active, end = made.segments[-1].base_offset, made.log_end_offset
    made.close()
    newest = {key: (offset, key, value) for offset, key, value in before if offset < active}
    needed = set(newest.values()) | {r for r in before if r[0] >= active}
    outcomes = set()
    for at in range(200):
        directory = tmp_path / str(at)
        shutil.copytree(tmp_path / "made", directory)
        disk = CrashingDisk()
        log = open_log(directory, COMPACT, disk=disk)
        disk.left = at
        try:
            clean(log)
            finished = True
        except Crash:
            finished = False
        log.close()
        again = open_log(directory, COMPACT)
        found = contents(again)
        assert needed <= set(found) <= set(before), at
        assert again.log_end_offset == end
        assert found == sorted(found)
        assert not [p for p in directory.iterdir() if p.suffix in (".swap", ".cleaned", ".deleted")]
        outcomes.add(len(found))
        again.close()
        if finished:
            break
    else:
        pytest.fail("never finished")
    assert {len(before), len(needed)} <= outcomes
