"""Whatever stops a change of the log: it goes on whole, or not at all."""

from __future__ import annotations

import contextlib
import errno
import os
from functools import partialmethod
from pathlib import Path

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.compact_log import cleanable, finish_replacing, plan_cleaning, replace_segments
from data_plane.log.config import LogConfig
from data_plane.log.consistency import InconsistentLogError
from data_plane.log.index import OffsetIndex, TimeIndex
from data_plane.log.log import UnifiedLog
from data_plane.log.producers import ProducerStateManager
from data_plane.log.segment import LogSegment
from data_plane.log.validation import AppendOrigin
from metadata_quorum.foundation.batch import encode_end_txn_marker
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from tests.support.logs import NOW_MS, batch, lead, open_log, read_all, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import COMPACT, put

INDEX_EACH = LogConfig(index_interval_bytes=1, segment_bytes=9_000)
DIRECTORY = Path("/data/t-0")


def entry_of(i: int) -> bytearray:
    """Transactions of three batches, each aborted by the fourth."""
    if i % 4 == 3:
        return bytearray(
            encode_end_txn_marker(
                commit=False, coordinator_epoch=1, producer_id=7, producer_epoch=0, timestamp=NOW_MS
            )
        )
    return batch(b"v%d" % i, producer_id=7, producer_epoch=0, base_sequence=i - i // 4, transactional=True)


def append(log: UnifiedLog, i: int) -> None:
    origin = AppendOrigin.COORDINATOR if i % 4 == 3 else AppendOrigin.CLIENT
    info = log.append_as_leader(entry_of(i), leader_epoch=i // 50, now_ms=NOW_MS, origin=origin)
    assert info.first_offset == i


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO])
@pytest.mark.parametrize("operation", ["open", "append"])
def test_a_file_that_fails_anywhere_in_an_append_gives_no_offset_twice(operation, code):
    for after in range(0, 40, 1 if operation == "open" else 7):
        disk = SimDisk()
        log = open_log(DIRECTORY, INDEX_EACH, disk=disk)
        disk.fail(operation, code, path_part="/t-0/", after=after)
        i = failed = 0
        while i < 700 and not log.inconsistent:
            try:
                append(log, i)
            except (OSError, InconsistentLogError):
                failed += 1
                assert failed < 3
            else:
                i += 1
        if log.inconsistent:
            with pytest.raises(InconsistentLogError):
                append(log, i)
        else:
            assert log.log_end_offset == i
        disk.heal()
        again = open_log(DIRECTORY, INDEX_EACH, disk=disk)
        offsets = [offset for offset, _ in read_all(again)]
        assert offsets == list(range(len(offsets)))
        assert len(offsets) in (i, i + 1)


def test_no_file_to_be_had_for_an_index_refuses_no_append(monkeypatch, tmp_path):
    log = open_log(tmp_path / "t-0", LogConfig(index_interval_bytes=1))
    full = [True]

    def opened(self, kept):
        if full[0]:
            raise OSError(errno.EMFILE, "Too many open files")
        return kept(self)

    for index in (OffsetIndex, TimeIndex):
        monkeypatch.setattr(index, "open", partialmethod(opened, index.open))
    for i in range(1200):
        assert lead(log, b"v%d" % i) == i
    full[0] = False
    assert lead(log, b"last") == 1200
    assert len(log.segments[0].offset_index.entries()) == 1200
    assert read_all(log, 700)[0] == (700, b"v700")


def test_a_log_without_records_needs_no_file_behind_its_writes():
    disk = SimDisk()
    config = LogConfig(index_interval_bytes=1)
    open_log(DIRECTORY, config, disk=disk)
    log = open_log(DIRECTORY, config, disk=disk)  # its files are not looked at
    assert lead(log, b"0") == 0
    disk.fail("open", errno.EMFILE, count=99)
    assert [lead(log, b"x") for _ in range(3)] == [1, 2, 3]
    assert not log.inconsistent


FAR = 5_000_000_000


def test_a_follower_that_has_no_file_to_come_across_a_gap_goes_on_later():
    for after in range(40):
        disk = SimDisk()
        log = open_log(DIRECTORY, INDEX_EACH, disk=disk)
        log.append_as_follower(batch(b"a", base_offset=7))
        disk.fail("open", errno.EMFILE, after=after)
        with contextlib.suppress(OSError):
            log.append_as_follower(batch(b"b", base_offset=FAR))
        assert not log.inconsistent
        spent = not disk.has_faults
        disk.heal()
        assert read_all(open_log(DIRECTORY, INDEX_EACH, disk=disk))[0] == (7, b"a")
        if log.log_end_offset <= FAR:
            log.append_as_follower(batch(b"b", base_offset=FAR))
        assert read_all(log) == [(7, b"a"), (FAR, b"b")]
        if not spent:
            break
    assert after > 0


def test_a_log_that_begins_inside_a_batch_takes_it_later_if_there_is_no_file():
    for after in range(40):
        disk = SimDisk()
        log = open_log(DIRECTORY, disk=disk)
        log.truncate_fully_and_start_at(1)
        disk.fail("open", errno.EMFILE, after=after)
        with contextlib.suppress(OSError):
            log.append_as_follower(batch(b"0", b"1", base_offset=0))
        assert not log.inconsistent
        if log.log_end_offset == 1:
            log.append_as_follower(batch(b"0", b"1", base_offset=0))
        assert (log.log_start_offset, log.log_end_offset) == (1, 2)
        if disk.has_faults:
            break
    assert after > 0


@pytest.mark.pure("a bug is planted in an append")
@pytest.mark.parametrize(("owner", "name"), [(LogSegment, "note"), (ProducerStateManager, "update")])
def test_a_bug_behind_the_write_leaves_the_log_in_doubt(owner, name, monkeypatch, tmp_path):
    log = open_log(tmp_path / "t-0")
    append(log, 0)
    with monkeypatch.context() as patched:
        patched.setattr(owner, name, lambda *_: 1 // 0)
        with pytest.raises(InconsistentLogError):
            append(log, 1)
    for change in (lambda: append(log, 1), lambda: truncate(log, 0), lambda: log.advance_log_start(1)):
        with pytest.raises(InconsistentLogError):
            change()
    again = open_log(tmp_path / "t-0")
    assert [offset for offset, _ in read_all(again)] == [0, 1]


def test_a_run_that_is_refused_has_opened_no_epoch_and_truncated_nothing(tmp_path):
    """The follower starts inside the leader's batch; the second batch of the run is damaged."""
    leader, follower = open_log(tmp_path / "a-0"), open_log(tmp_path / "b-0")
    lead(leader, b"0", b"1", b"2", epoch=3)
    lead(leader, b"3", epoch=4)
    run = bytearray(leader.read(0, 1 << 20).read(MAY_BLOCK))
    run[-1] ^= 1
    follower.truncate_fully_and_start_at(1)
    with pytest.raises(BrokerError) as refused:
        follower.append_as_follower(bytes(run))
    assert refused.value.code is ErrorCode.CORRUPT_MESSAGE
    assert (follower.log_start_offset, follower.log_end_offset) == (1, 1)
    assert not follower.epochs.entries


class CrowdedDisk(SimDisk):
    """Of a process that has all the files open that it may, when it looks at a directory once."""

    crowded = False

    def list(self, path: str, may_block: MayBlock) -> list[str]:
        if self.crowded:
            self.crowded = False
            raise OSError(errno.EMFILE, os.strerror(errno.EMFILE), path)
        return super().list(path, may_block)


def test_a_log_restarts_though_no_file_is_left_to_look_at_its_directory():
    disk = CrowdedDisk()
    log = open_log(DIRECTORY, disk=disk)
    lead(log, b"x")
    disk.crowded = True
    log.truncate_fully_and_start_at(10)
    assert not disk.crowded
    assert not log.inconsistent
    assert lead(log, b"y") == 10


def test_a_compaction_takes_the_logs_place_though_no_file_is_left_to_look_at_its_directory():
    disk = CrowdedDisk()
    log = open_log(DIRECTORY, COMPACT, disk=disk)
    for _ in range(6):
        put(log, (b"k", b"v" * 150))
    work = plan_cleaning(log, cleanable(log, log.log_end_offset, NOW_MS), NOW_MS)
    work.run(MAY_BLOCK)
    work.last_removed = 3  # as if it were the end of a transaction: snapshots from before it go
    disk.crowded = True
    assert replace_segments(log, work)
    assert not disk.crowded
    finish_replacing(log, work)
    assert not log.inconsistent
    assert put(log, (b"k", b"y")) == 6
