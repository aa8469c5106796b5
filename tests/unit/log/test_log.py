"""Appending, reading, rolling, truncating; what a reader gets."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path
from uuid import UUID

import pytest

from data_plane.log.config import LogConfig
from metadata_quorum.foundation.batch import iter_headers, read_header
from metadata_quorum.foundation.disk import OsDisk, OsFile
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.logs import (
    NOW_MS,
    batch,
    lead,
    open_log,
    raw_bytes,
    read_all,
    truncate,
    truncate_unflushed,
)
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.transactional_log import end_transaction, send

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def test_a_reader_of_a_log_that_is_closed_meanwhile_gets_no_other_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    """Its thread is held up just before it reads; the number of its file would be free for another one."""
    log = open_log(tmp_path / "log")
    lead(log, b"its own")
    found = log.read(0, 1 << 20)
    expected = found.read(MAY_BLOCK)
    (tmp_path / "other").write_bytes(b"somebody else's" * 100)
    others: list[OsFile] = []
    read = os.pread

    def held_up(fd: int, length: int, offset: int) -> bytes:
        if not others:
            log.close()
            others.append(OsDisk().open(str(tmp_path / "other")))
        return read(fd, length, offset)

    monkeypatch.setattr(os, "pread", held_up)
    assert found.read(MAY_BLOCK) == expected


def test_a_leader_gives_offsets_and_epoch(tmp_path):
    log = open_log(tmp_path)
    assert lead(log, b"a", b"b", epoch=3) == 0
    assert lead(log, b"c", epoch=4) == 2
    headers = [header for _, header in iter_headers(raw_bytes(log))]
    assert [(h.base_offset, h.last_offset, h.partition_leader_epoch) for h in headers] == [
        (0, 1, 3),
        (2, 2, 4),
    ]
    assert log.epochs.entries == [(3, 0), (4, 2)]
    assert log.offset_for_epoch(3) == (3, 2)


def test_a_follower_is_byte_identical(tmp_path):
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    for i in range(20):
        lead(leader, b"%d" % i, b"x" * i, epoch=i // 7)
    info = follower.append_as_follower(memoryview(leader.read(0, 1 << 20).read(MAY_BLOCK)))
    assert info is not None
    assert (info.first_offset, info.last_offset) == (0, 39)
    assert raw_bytes(follower) == raw_bytes(leader)
    assert follower.epochs.entries == leader.epochs.entries


def test_a_follower_leaves_a_torn_batch_for_later(tmp_path):
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    for i in range(3):
        lead(leader, b"%d" % i)
    run = bytes(leader.read(0, 1 << 20).read(MAY_BLOCK))
    follower.append_as_follower(run[:-1])
    assert follower.log_end_offset == 2
    assert raw_bytes(follower) == run[: len(run) // 3 * 2]


def test_an_empty_follower_begins_inside_a_batch(tmp_path):
    """The leader's start offset after DeleteRecords need not be the start of a batch."""
    leader, follower = open_log(tmp_path / "leader"), open_log(tmp_path / "follower")
    lead(leader, b"a", b"b", b"c")
    leader.advance_log_start(1)
    follower.truncate_fully_and_start_at(1)
    follower.append_as_follower(leader.read(1, 1 << 20).read(MAY_BLOCK))
    assert (follower.log_start_offset, follower.log_end_offset) == (1, 3)
    assert read_all(follower) == [(1, b"b"), (2, b"c")]


@pytest.mark.row("L3")
def test_rolling_by_size(tmp_path):
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        lead(log, b"%d" % i * 10)
    assert len(log.segments) > 5
    assert all(segment.size <= 400 for segment in log.segments)
    assert [value for _, value in read_all(log)] == [b"%d" % i * 10 for i in range(30)]
    for segment in log.segments:
        assert Path(segment.path).name == f"{segment.base_offset:020d}.log"


@pytest.mark.row("L3")
def test_rolling_by_time(tmp_path):
    log = open_log(tmp_path, LogConfig(segment_ms=1000))
    lead(log, b"a", timestamp=NOW_MS)
    lead(log, b"b", timestamp=NOW_MS + 1000)
    assert len(log.segments) == 1
    lead(log, b"c", timestamp=NOW_MS + 1001)
    assert [segment.base_offset for segment in log.segments] == [0, 2]
    assert not log.maybe_roll(NOW_MS + 2001)
    assert log.maybe_roll(NOW_MS + 2002)
    assert not log.maybe_roll(NOW_MS + 99_999), "an empty segment is not rolled"


def test_rolling_when_an_index_is_full(tmp_path):
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0, segment_index_bytes=64))
    for i in range(20):
        lead(log, b"v", timestamp=NOW_MS + i)
    assert len(log.segments) >= 3
    assert all(Path(s.offset_index.path).stat().st_size <= 64 for s in log.segments)
    assert all(Path(s.time_index.path).stat().st_size <= 64 for s in log.segments)
    assert len(read_all(log)) == 20


def test_read_out_of_range(tmp_path):
    log = open_log(tmp_path, log_start_offset=5)
    lead(log, b"a")
    assert log.read(6, 100).length == 0
    for offset in (4, 7, -1):
        with pytest.raises(BrokerError) as caught:
            log.read(offset, 100)
        assert caught.value.code == ErrorCode.OFFSET_OUT_OF_RANGE


@pytest.mark.row("L6")
@pytest.mark.parametrize("reopen", [False, True])
def test_every_offset_is_found(tmp_path, reopen: bool):
    log = open_log(tmp_path, SMALL)
    for i in range(40):
        lead(log, *[b"%d" % i] * (i % 3 + 1))
    if reopen:
        log.close()
        log = open_log(tmp_path, SMALL)
    for offset in range(log.log_end_offset):
        found = log.read(offset, 1, at_least_one_batch=True)
        header = read_header(found.read(MAY_BLOCK))
        assert header.base_offset <= offset <= header.last_offset
        assert len(found.read(MAY_BLOCK)) == header.size
        assert found.read_cached() in (None, found.read(MAY_BLOCK))


def test_upper_offset_bounds_a_read(tmp_path):
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        lead(log, b"%d" % i, b"second")
    for upper in range(2, 60, 2):
        data = log.read(0, 1 << 20, upper_offset=upper, at_least_one_batch=True).read(MAY_BLOCK)
        assert max(header.last_offset for _, header in iter_headers(data)) < upper
    assert log.read(10, 100, upper_offset=10).length == 0
    assert log.read(10, 1 << 20, upper_offset=13).length > 0
    last = [h.last_offset for _, h in iter_headers(log.read(10, 1 << 20, upper_offset=13).read(MAY_BLOCK))]
    assert last == [11], "a batch that reaches the bound is left out"


def test_max_bytes(tmp_path):
    log = open_log(tmp_path)
    for _ in range(5):
        lead(log, b"x" * 100)
    size = log.size // 5
    assert log.read(0, size + 10, at_least_one_batch=True).length == size + 10
    assert log.read(0, 10).length == 0  # not a whole batch
    assert log.read(0, 10, at_least_one_batch=True).length == size
    assert log.read(0, 0, at_least_one_batch=True).length == size


def test_a_cold_place_is_found_by_read(tmp_path, monkeypatch):
    log = open_log(tmp_path, LogConfig(index_interval_bytes=100))
    for i in range(50):
        lead(log, b"%d" % i * 20)
    log.close()
    log = open_log(tmp_path, clean=True)
    monkeypatch.setattr(type(log.segments[0].file), "read_cached", lambda self, offset, length: None)
    found = log.read(20, 10, at_least_one_batch=True)
    assert found.read_cached() is None
    header = read_header(found.read(MAY_BLOCK))
    assert (header.base_offset, found.length) == (20, header.size)


def test_truncation(tmp_path):
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        lead(log, b"%d" % i * 10, epoch=i // 10)
    assert not truncate(log, 30)
    assert truncate(log, 13)
    assert log.log_end_offset == 13
    assert log.epochs.entries == [(0, 0), (1, 10)]
    assert lead(log, b"new", epoch=5) == 13
    assert read_all(log)[-2:] == [(12, b"12" * 10), (13, b"new")]
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    log.close()
    again = open_log(tmp_path, SMALL)
    assert read_all(again)[-1] == (13, b"new")
    assert again.epochs.entries == [(0, 0), (1, 10), (5, 13)]


def test_truncation_inside_a_batch_drops_it_whole(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"a")
    lead(log, b"b", b"c", b"d")
    assert truncate(log, 3)
    assert log.log_end_offset == 1


def test_truncation_rewinds_producers(tmp_path):
    log = open_log(tmp_path, SMALL)
    for sequence in range(10):
        lead(log, b"v" * 50, producer_id=7, producer_epoch=0, base_sequence=sequence)
    truncate(log, 4)
    assert log.producers.states[7].last_sequence == 3
    assert lead(log, b"w", producer_id=7, producer_epoch=0, base_sequence=4) == 4


def test_truncate_fully(tmp_path):
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        lead(log, b"%d" % i * 10)
    log.truncate_fully_and_start_at(1000)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (1000, 1000, 0)
    assert lead(log, b"v") == 1000
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    assert [p.name for p in tmp_path.glob("*.log*")] == [f"{1000:020d}.log"]


def test_truncate_fully_forgets_epochs_and_aborted_transactions(tmp_path):
    log = open_log(tmp_path)
    send(log, producer=7, sequence=0)
    end_transaction(log, 7, commit=False)
    assert log.epochs.entries
    assert log.aborted.entries
    log.truncate_fully_and_start_at(1000)
    assert log.epochs.entries == []
    assert log.aborted.entries == []


def test_a_slice_outlives_its_segment(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"kept")
    held = log.read(0, 1000)
    log.truncate_fully_and_start_at(0)
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    assert len(held.read(MAY_BLOCK)) == held.length


def test_flush_moves_the_recovery_point(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"a")
    work = log.prepare_flush()
    lead(log, b"b")
    work.run(MAY_BLOCK)
    log.flush_done(work)
    assert log.recovery_point == 1
    assert log.unflushed_records == 1
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n1\n0 0\n"


def test_a_flush_overtaken_by_a_truncation_counts_for_nothing(tmp_path):
    log = open_log(tmp_path)
    for _ in range(5):
        lead(log, b"a")
    work = log.prepare_flush()
    truncate_unflushed(log, 2)
    work.run(MAY_BLOCK)
    log.flush_done(work)
    assert log.recovery_point == 0


def test_nothing_to_flush(tmp_path):
    log = open_log(tmp_path)
    work = log.prepare_flush()
    work.run(MAY_BLOCK)
    log.flush_done(work)
    assert log.prepare_flush() is None


def test_topic_id_is_kept(tmp_path):
    one, other = UUID(int=1), UUID(int=2)
    made = open_log(tmp_path, topic_id=one)
    made.identify(MAY_BLOCK)
    made.close()
    assert open_log(tmp_path).topic_id == one
    with pytest.raises(BrokerError) as caught:
        open_log(tmp_path, topic_id=other)
    assert caught.value.code == ErrorCode.INCONSISTENT_TOPIC_ID


def test_a_new_leader_opens_its_epoch_without_a_record(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"a", epoch=1)
    log.assign_epoch(4)
    assert log.offset_for_epoch(4) == (4, 1)
    assert log.offset_for_epoch(1) == (1, 1)


def test_an_append_is_one_write(tmp_path, monkeypatch):
    log = open_log(tmp_path)
    lead(log, b"warm")
    writes = []
    file = type(log.segments[0].file)
    monkeypatch.setattr(file, "append", lambda self, buffers: writes.append(buffers))
    log.append_as_follower(batch(b"a", base_offset=1) + batch(b"b", base_offset=2))
    assert len(writes) == 1
    assert len(writes[0]) == 1


class _Interrupted(OsDisk):
    """Calls `meanwhile` once, when a file whose path ends so has been opened: the loop goes on while a
    flush runs in the executor."""

    def __init__(self, suffix: str, meanwhile: Callable[[], object] = lambda: None) -> None:
        self.suffix = suffix
        self.meanwhile = meanwhile

    def open(self, path: str, *, create: bool = False) -> OsFile:
        file = super().open(path, create=create)
        if path.endswith(self.suffix):
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
        return file

    def exists(self, path: str) -> bool:
        found = super().exists(path)
        if path.endswith(self.suffix):
            meanwhile, self.meanwhile = self.meanwhile, lambda: None
            meanwhile()
        return found


def test_a_truncation_in_the_middle_of_a_flush_disturbs_neither(tmp_path):
    disk = _Interrupted("leader-epoch-checkpoint.tmp")
    log = open_log(tmp_path, disk=disk)
    for epoch in range(5):
        lead(log, b"a", epoch=epoch)
    work = log.prepare_flush()
    disk.meanwhile = lambda: truncate_unflushed(log, 2)
    work.run(MAY_BLOCK)
    log.flush_done(work)
    work = log.prepare_flush()
    work.run(MAY_BLOCK)
    assert (tmp_path / "leader-epoch-checkpoint").read_text() == "0\n2\n0 0\n1 1\n"


def test_a_segment_may_go_in_the_middle_of_a_flush(tmp_path):
    disk = _Interrupted(".snapshot")
    log = open_log(tmp_path, SMALL, disk=disk)
    for _ in range(10):
        lead(log, b"a" * 100)
    work = log.prepare_flush()
    disk.meanwhile = lambda: log.truncate_fully_and_start_at(50)
    work.run(MAY_BLOCK)
    log.flush_done(work)
    assert log.recovery_point == 0


def test_an_index_that_went_with_its_segment_is_not_made_again(tmp_path):
    """By a reader that came late: of an empty file it would read nonsense, and nobody would remove it."""
    log = open_log(tmp_path, LogConfig(index_interval_bytes=0))
    for _ in range(600):
        lead(log, b"x")
    segment = log.segments[0]
    log.roll(NOW_MS)
    for path in segment.paths:
        OsDisk().remove(path)
    with pytest.raises(FileNotFoundError):
        segment.offset_index.lookup(10)
    assert not Path(segment.offset_index.path).exists()
