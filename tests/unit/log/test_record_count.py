"""Records left from an offset on, by headers alone, against what a reader of committed records is shown."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_plane.log import record_count
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.record_count import CountWork, RecordCounter, RecordsLeft
from tests.support.logs import lead, open_log, read_committed
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import COMPACT, clean, put
from tests.unit.log.transactional_log import end_transaction, send

pytestmark = pytest.mark.row("U5")

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)
MANY = 1_000


def look(counter: RecordCounter, log: UnifiedLog, end: int, most: int = MANY) -> int:
    work = counter.next_work(log, end, most)
    if work is None:
        return 0
    counted = work.run(MAY_BLOCK)
    counter.add(counted)
    return counted.batches


def counted(log: UnifiedLog, start: int = 0) -> RecordCounter:
    counter = RecordCounter(start)
    look(counter, log, log.log_end_offset)
    return counter


def transactional(directory: Path) -> UnifiedLog:
    """Aborted and committed transactions of several producers among plain records, over many segments."""
    log = open_log(directory, SMALL)
    for number in range(12):
        send(log, number % 3, number // 3)
        send(log, 7, 2 * number)
        lead(log, b"plain", b"batch", b"of three")
        send(log, 7, 2 * number + 1)
        end_transaction(log, 7, commit=number % 2 == 0)
        end_transaction(log, number % 3, commit=number % 4 == 0)
    return log


def assert_as_a_reader_is_shown(log: UnifiedLog, counter: RecordCounter) -> None:
    end = log.log_end_offset
    offsets = [offset for offset, *_ in read_committed(log, counter.start)]
    for offset in range(counter.start, end + 1):
        shown = sum(each >= offset for each in offsets)
        assert counter.left(offset, end) == RecordsLeft(shown, True), offset


def test_markers_and_aborted_records_are_not_counted(tmp_path):
    log = transactional(tmp_path)
    assert len(log.segments) > 3
    assert counted(log).left(0, log.log_end_offset).records < log.log_end_offset
    assert_as_a_reader_is_shown(log, counted(log))
    assert_as_a_reader_is_shown(log, counted(log, 31))


def test_headers_are_looked_at_once_and_not_too_many_at_a_time(tmp_path):
    log = transactional(tmp_path)
    end, counter = log.log_end_offset, RecordCounter(0)
    looks = []
    while counter.end < end:
        before = counter.left(0, end)
        assert not before.exact
        looks.append(look(counter, log, end, most=10))
        assert counter.left(0, end).records <= before.records, "at most so many"
    assert max(looks) == 10
    assert sum(looks) == 12 * 6
    assert look(counter, log, end) == 0
    lead(log, b"one more")
    assert look(counter, log, log.log_end_offset) == 1
    assert_as_a_reader_is_shown(log, counter)


def test_what_is_not_stable_counts_and_is_not_exact(tmp_path):
    log = open_log(tmp_path, SMALL)
    lead(log, b"stable")
    send(log, 1, 0)
    counter = RecordCounter(0)
    look(counter, log, 1)
    assert counter.left(0, 2) == RecordsLeft(2, False)
    assert counter.left(2, 2) == RecordsLeft(0, True)
    end_transaction(log, 1, commit=False)
    look(counter, log, 3)
    assert counter.left(0, 3) == RecordsLeft(1, True)


def test_what_compaction_took_is_not_counted(tmp_path):
    log = open_log(tmp_path, COMPACT)
    for number in range(30):
        put(log, (b"same", b"%d" % number), (b"key %d" % number, b"x"))
    clean(log)
    counter = counted(log)
    left = counter.left(0, log.log_end_offset)
    assert left == RecordsLeft(len(read_committed(log)), True)
    assert left.records < log.log_end_offset
    inside = counter.left(1, log.log_end_offset)
    assert abs(inside.records - len(read_committed(log, 1))) <= 1


def test_a_batch_that_was_read_in_part(tmp_path):
    log = open_log(tmp_path, SMALL)
    lead(log, *(b"%d" % n for n in range(10)))
    assert counted(log, 4).left(4, 10) == RecordsLeft(6, True)
    assert counted(log, 4).left(2, 10) == RecordsLeft(8, False), "below where the look began"


def test_a_counter_that_is_full_serves_nobody_who_is_further(tmp_path, monkeypatch):
    log = transactional(tmp_path)
    monkeypatch.setattr(record_count, "MOST_GAPS", 3)
    counter = counted(log)
    assert counter.serves(0)
    assert not counter.serves(5)
    assert counter.next_work(log, log.log_end_offset + 1, MANY) is None


def test_a_segment_that_is_deleted_meanwhile_ends_the_look(tmp_path):
    log = transactional(tmp_path)
    work = RecordCounter(0).next_work(log, log.log_end_offset, MANY)
    assert isinstance(work, CountWork)
    log.close()
    for path in sorted(tmp_path.glob("*.log"))[1:]:
        path.unlink()
    assert work.run(MAY_BLOCK).end <= log.segments[1].base_offset
