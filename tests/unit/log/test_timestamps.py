"""ListOffsets by time: the first record at or after, the record with the greatest timestamp."""

from __future__ import annotations

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.segment import LogSegment
from tests.support.logs import NOW_MS, lead, open_log
from tests.support.may_block import MAY_BLOCK

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100, message_timestamp_after_max_ms=10**12)


@pytest.mark.row("L5")
@pytest.mark.parametrize("reopen", [None, True, False])
def test_first_at_or_after(tmp_path, reopen: bool | None):
    """Timestamps that also fall back, against the plain search."""
    times = [NOW_MS + step for step in (0, 10, 5, 30, 30, 20, 50, 45, 80, 70, 75, 90, 60, 100, 100) * 3]
    log = open_log(tmp_path, SMALL)
    for i, timestamp in enumerate(times):
        lead(log, b"%d" % i * 10, timestamp=timestamp, epoch=i // 5)
    if reopen is not None:
        log.close_clean(MAY_BLOCK)
        log = open_log(tmp_path, SMALL, clean=reopen)
    for wanted in range(NOW_MS - 1, NOW_MS + 102):
        expected = next((i for i, timestamp in enumerate(times) if timestamp >= wanted), None)
        found = log.search_time(wanted).run(MAY_BLOCK)
        assert (found and found.offset) == expected
        if found is not None:
            assert (found.timestamp, found.leader_epoch) == (times[found.offset], found.offset // 5)


@pytest.mark.row("L5")
def test_inside_a_batch_and_above_the_start(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"a", b"b", b"c")
    assert log.search_time(NOW_MS).run(MAY_BLOCK).offset == 0
    log.advance_log_start(2)
    assert log.search_time(NOW_MS).run(MAY_BLOCK).offset == 2
    assert log.search_time(NOW_MS + 1).run(MAY_BLOCK) is None


@pytest.mark.row("L5")
def test_greatest(tmp_path):
    log = open_log(tmp_path, SMALL)
    assert log.search_time(None).run(MAY_BLOCK) is None
    for i, step in enumerate((0, 10, 99, 20, 99, 30) * 4):
        lead(log, b"%d" % i * 20, timestamp=NOW_MS + step)
    found = log.search_time(None).run(MAY_BLOCK)
    assert (found.offset, found.timestamp) == (2, NOW_MS + 99)


def test_records_without_timestamps(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"a", timestamp=-1)
    assert log.search_time(None).run(MAY_BLOCK) is None
    assert log.search_time(0).run(MAY_BLOCK) is None


@pytest.mark.parametrize("timestamp", [NOW_MS + 300, None])
def test_a_search_beside_the_loop_does_without_what_only_the_loop_may_look_at(
    timestamp, monkeypatch, tmp_path
):
    """Where the latest batches end changes with every append, in two steps."""
    log = open_log(tmp_path / "t-0")
    for i in range(400):
        lead(log, b"x", timestamp=NOW_MS + i)
    monkeypatch.setattr(LogSegment, "locate", None)
    monkeypatch.setattr(LogSegment, "offset_behind", None)
    found = log.search_time(timestamp).run(MAY_BLOCK)
    assert found is not None
    assert found.offset == (399 if timestamp is None else 300)


@pytest.mark.pure("a property of the segment is replaced")
def test_the_greatest_while_the_log_grows(tmp_path, monkeypatch):
    """The search is in another thread: what it asks of the segment first is older than what it asks next."""
    log = open_log(tmp_path)
    for step in range(3):
        lead(log, b"%d" % step, timestamp=NOW_MS + step)
    at_first = LogSegment.offset_of_max_timestamp.fget

    def grown(segment: LogSegment) -> int:
        if log.log_end_offset == 3:
            lead(log, b"newer", timestamp=NOW_MS + 100)
        return at_first(segment)

    monkeypatch.setattr(LogSegment, "offset_of_max_timestamp", property(grown))
    found = log.search_time(None).run(MAY_BLOCK)
    assert (found.offset, found.timestamp) == (3, NOW_MS + 100)
