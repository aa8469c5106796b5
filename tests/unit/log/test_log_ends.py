"""Both ends of a log: whoever reads batch by batch comes to its end, whatever compaction or a truncation has
taken away there; and a log that restarts empty, or whose start moves, keeps nothing from before."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from random import Random

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.log import UnifiedLog
from data_plane.log.recovery import LogCorruptError
from metadata_quorum.foundation.batch import iter_headers
from tests.support.logs import NOW_MS, batch, flush, lead, open_log, read_all, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import COMPACT, DAY_MS, clean, contents, put
from tests.unit.log.transactional_log import end_transaction, send

ROOMY = replace(COMPACT, segment_bytes=100_000)


def copied(log: UnifiedLog, directory: Path) -> UnifiedLog:
    """What a new follower gets, fetch by fetch, until it has come to the end."""
    follower = open_log(directory, ROOMY)
    follower.truncate_fully_and_start_at(log.log_start_offset)
    while follower.log_end_offset < log.log_end_offset:
        piece = log.read(follower.log_end_offset, 1 << 20, at_least_one_batch=True)
        assert piece.length, f"nothing to read at {follower.log_end_offset} of {log.log_end_offset}"
        follower.append_as_follower(piece.read(MAY_BLOCK))
    return follower


def without_its_last_record(directory: Path) -> UnifiedLog:
    """Offset 2 was a tombstone that has had its time; the segment behind it is empty."""
    log = open_log(directory, ROOMY)
    put(log, (b"g1", b"offset"), (b"g2", b"offset"))
    put(log, (b"g1", None))
    for now_ms in (NOW_MS, NOW_MS + DAY_MS):
        log.roll(now_ms)
        log.cleaned_to = 0
        clean(log, now_ms=now_ms)
    return log


def test_the_end_can_be_reached_though_its_records_are_gone(tmp_path):
    log = without_its_last_record(tmp_path / "leader")
    assert contents(log) == [(1, b"g2", b"offset")]
    assert log.log_end_offset == 3
    assert contents(copied(log, tmp_path / "follower")) == contents(log)
    again = open_log(tmp_path / "leader", ROOMY)
    assert again.log_end_offset == 3
    assert contents(copied(again, tmp_path / "later")) == contents(log)


def test_no_stand_in_outlives_its_use(tmp_path):
    log = without_its_last_record(tmp_path)
    put(log, (b"g3", b"offset"))
    log.roll(NOW_MS)
    clean(log)
    (data,) = [log.read(0, 1 << 20, at_least_one_batch=True).read(MAY_BLOCK)]
    assert [(h.base_offset, h.record_count) for _, h in iter_headers(data)] == [(0, 1), (3, 1)]


@pytest.mark.parametrize("stop", [UnifiedLog.close, UnifiedLog.close_clean])
def test_a_gap_that_an_older_version_left_is_closed_at_the_start(tmp_path, stop):
    log = without_its_last_record(tmp_path / "leader")
    (_, first), *_ = log.segments[0].headers(0, log.segments[0].size)
    log.segments[0].file.truncate(first.size)  # without its stand-in
    log.segments[0].size = first.size
    stop(log, *([MAY_BLOCK] if stop is UnifiedLog.close_clean else []))
    again = open_log(tmp_path / "leader", ROOMY, clean=stop is UnifiedLog.close_clean, recovery_point=3)
    assert again.log_end_offset == 3
    assert contents(copied(again, tmp_path / "follower")) == [(1, b"g2", b"offset")]


def test_a_truncation_into_a_gap_stays_where_it_was_after_a_restart(tmp_path):
    log = open_log(tmp_path)
    run = batch(b"a") + batch(b"b", base_offset=7)
    log.append_as_follower(run)
    truncate(log, 7)
    assert log.log_end_offset == 7
    assert [offset for offset, _ in read_all(log)] == [0]
    again = open_log(tmp_path)
    assert again.log_end_offset == 7
    assert lead(again, b"c") == 7


# --- a new beginning


def used(directory: Path) -> UnifiedLog:
    """Epochs 1 and 3, an open transaction from offset 3 on, and a snapshot of it at the end."""
    log = open_log(directory)
    lead(log, b"a", b"b", epoch=1)
    lead(log, b"c", epoch=3)
    lead(log, b"x", epoch=3, producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.close_clean(MAY_BLOCK)
    return open_log(directory, clean=True, recovery_point=4)


@pytest.mark.parametrize("how", ["live", "killed"])
def test_a_log_that_restarts_empty_knows_neither_epochs_nor_producers(tmp_path, how):
    log = used(tmp_path)
    assert log.first_unstable_offset(4) == 3
    log.truncate_fully_and_start_at(1000)
    if how == "killed":
        log = open_log(tmp_path, log_start_offset=1000)
    assert log.epochs.entries == []
    assert log.producers.states == {}
    assert log.first_unstable_offset(1000) is None


def test_a_start_ahead_of_all_records_knows_neither_epochs_nor_producers(tmp_path):
    used(tmp_path).close()
    log = open_log(tmp_path, log_start_offset=1000)
    assert (log.log_start_offset, log.log_end_offset) == (1000, 1000)
    assert (log.epochs.entries, log.producers.states) == ([], {})


def test_no_transaction_holds_readers_before_the_logs_start(tmp_path):
    log = open_log(tmp_path)
    send(log, 7, 0)
    lead(log, b"y", b"z")
    assert log.first_unstable_offset(3) == 0
    log.advance_log_start(2)
    assert log.first_unstable_offset(3) == 2
    end_transaction(log, 7, commit=False)
    assert log.first_unstable_offset(4) is None


# --- what the page cache held


def test_epochs_found_after_a_crash_are_durable_before_the_recovery_point_passes_them():
    """They may have been truncated without an fsync by the process that died: then the machine goes down."""
    for seed in range(20):
        disk = SimDisk()
        disk.make_dirs("/d")
        log = open_log("/d/t-0", disk=disk)
        lead(log, b"a", epoch=1)
        lead(log, b"b", epoch=3)
        flush(log)
        truncate(log, 1)
        disk.kill()
        log = open_log("/d/t-0", disk=disk, recovery_point=1)
        lead(log, b"c", epoch=4)
        flush(log)
        log.roll(NOW_MS)
        lead(log, b"d", epoch=4)
        flush(log)
        point = log.recovery_point
        disk.power_loss(Random(seed))
        assert open_log("/d/t-0", disk=disk, recovery_point=point).epochs.entries == [(1, 0), (4, 1)]


def test_an_empty_segment_does_not_vouch_for_records_that_a_loss_of_power_took():
    """Its name was durable and they were not. A log that said it had them would never ask its leader."""
    ends = set()
    for seed in range(40):
        disk = SimDisk()
        disk.make_dirs("/d")
        log = open_log("/d/t-0", disk=disk)
        for i in range(3):
            lead(log, b"%d" % i)
            log.roll(NOW_MS)
        disk.power_loss(Random(seed), names_in_order=True)
        try:
            log = open_log("/d/t-0", disk=disk)
        except LogCorruptError:  # good ones behind those that are lost
            continue
        assert [offset for offset, _ in read_all(log)] == list(range(log.log_end_offset))
        ends.add(log.log_end_offset)
    assert {0, 1} <= ends


@pytest.mark.parametrize("offset", [0, 1, 2])
def test_a_truncation_is_durable_with_the_next_flush(offset):
    for seed in range(20):
        disk = SimDisk()
        disk.make_dirs("/d")
        log = open_log("/d/t-0", disk=disk)
        lead(log, b"a")
        log.roll(NOW_MS)
        lead(log, b"b")
        lead(log, b"c")
        flush(log)
        truncate(log, offset)
        log.roll(NOW_MS)
        flush(log)
        point = log.recovery_point
        disk.power_loss(Random(seed))
        again = open_log("/d/t-0", disk=disk, recovery_point=point)
        assert [place for place, _ in read_all(again)] == list(range(offset))
        assert again.log_end_offset == offset


FAR = 5_000_000_000


def test_a_follower_comes_across_a_gap_that_is_wider_than_an_index_reaches(tmp_path):
    """Of an old `__consumer_offsets`, say, of which Apache Kafka's cleaner has left next to nothing."""
    log = open_log(tmp_path, replace(ROOMY, index_interval_bytes=0))
    log.append_as_follower(batch(b"a", base_offset=7))
    for offset in range(FAR, FAR + 4):
        log.append_as_follower(batch(b"b", base_offset=offset))
    expected = [(7, b"a"), *((offset, b"b") for offset in range(FAR, FAR + 4))]
    assert read_all(log) == expected
    log.close()
    again = open_log(tmp_path, ROOMY)
    assert (again.log_end_offset, read_all(again)) == (FAR + 4, expected)


def test_a_gap_that_is_wider_than_an_index_reaches_is_compacted_and_copied(tmp_path):
    log = open_log(tmp_path / "leader", replace(ROOMY, index_interval_bytes=0))
    for _ in range(3):
        put(log, (b"k", b"old"), (b"l", b"old"))
    log.log_end_offset = log.producers.next_offset = FAR  # as Apache Kafka's cleaner leaves it
    log.roll(NOW_MS)
    put(log, (b"k", b"new"))
    log.roll(NOW_MS)
    clean(log)
    assert contents(log) == [(5, b"l", b"old"), (FAR, b"k", b"new")]
    assert contents(copied(log, tmp_path / "follower")) == contents(log)
