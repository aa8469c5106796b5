"""Opening a log after a crash: what is kept, what is truncated, what is refused."""

from __future__ import annotations

import gc
import shutil
import sys
from pathlib import Path

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.dump import verify
from data_plane.log.recovery import LogCorruptError
from data_plane.log.segment import LogSegment
from metadata_quorum.foundation.disk import OsDisk
from tests.support.logs import NOW_MS, batch, lead, open_log, raw_bytes, read_all, truncate
from tests.support.may_block import MAY_BLOCK

SMALL = LogConfig(segment_bytes=600, index_interval_bytes=100)


def filled(directory: Path, config: LogConfig = SMALL, count: int = 30) -> list[tuple[int, bytes | None]]:
    """Write a log as a killed process leaves it; returns its records."""
    log = open_log(directory, config)
    for i in range(count):
        lead(log, b"%d" % i * 10, epoch=i // 10, timestamp=NOW_MS + i)
    records = read_all(log)
    log.close()
    return records


def only_log(directory: Path) -> Path:
    (path,) = directory.glob("*.log")
    return path


@pytest.mark.row("L7")
def test_torn_tail_at_every_byte(tmp_path):
    """Whatever length the last write reached: the whole batches before it stay, the rest goes."""
    records = filled(tmp_path / "whole", LogConfig(), count=4)
    data = only_log(tmp_path / "whole").read_bytes()
    size = len(data) // 4
    for length in range(len(data) + 1):
        directory = tmp_path / "torn"
        shutil.copytree(tmp_path / "whole", directory)
        only_log(directory).write_bytes(data[:length])
        log = open_log(directory)
        assert read_all(log) == records[: length // size]
        assert log.size == length // size * size
        assert lead(log, b"next", epoch=9) == length // size
        log.close()
        shutil.rmtree(directory)


@pytest.mark.row("L7")
def test_bit_flip_in_the_middle_is_never_truncated(tmp_path):
    filled(tmp_path / "whole", LogConfig(), count=4)
    data = only_log(tmp_path / "whole").read_bytes()
    size = len(data) // 4
    for position in range(size, 2 * size):
        if position - size in range(12, 16):
            continue  # the leader epoch lies outside the CRC
        directory = tmp_path / "flipped"
        shutil.copytree(tmp_path / "whole", directory)
        damaged = bytearray(data)
        damaged[position] ^= 0x10
        only_log(directory).write_bytes(damaged)
        with pytest.raises(LogCorruptError, match="nothing was truncated") as caught:
            open_log(directory)
        assert caught.value.offset == 1 or position - size < 8, "reported at the damage, or just behind it"
        assert only_log(directory).read_bytes() == bytes(damaged)
        shutil.rmtree(directory)


@pytest.mark.row("L7")
def test_damage_in_an_old_segment_is_never_truncated(tmp_path):
    filled(tmp_path)
    first = min(tmp_path.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    before = {p.name: p.read_bytes() for p in tmp_path.glob("*.log")}
    with pytest.raises(LogCorruptError, match="corrupt at byte"):
        open_log(tmp_path, SMALL)
    assert {p.name: p.read_bytes() for p in tmp_path.glob("*.log")} == before


def test_zeroes_behind_the_last_batch_are_truncated(tmp_path):
    """A file grew, its pages never reached the device."""
    records = filled(tmp_path, LogConfig(), count=4)
    with only_log(tmp_path).open("ab") as file:
        file.write(bytes(5000))
    assert read_all(open_log(tmp_path)) == records


def test_a_torn_batch_that_holds_a_batch_is_still_torn(tmp_path):
    """A producer's value may be a copy of another log: it is no good data behind damage."""
    log = open_log(tmp_path)
    lead(log, b"a")
    lead(log, bytes(batch(b"inner", base_offset=1)) * 3)
    log.close()
    path = only_log(tmp_path)
    path.write_bytes(path.read_bytes()[:-10])
    assert read_all(open_log(tmp_path)) == [(0, b"a")]


def test_segments_below_the_recovery_point_are_trusted(tmp_path):
    filled(tmp_path)
    first = min(tmp_path.glob("*.log"))
    data = bytearray(first.read_bytes())
    data[-1] ^= 1
    first.write_bytes(data)
    last = max(int(p.stem) for p in tmp_path.glob("*.log"))
    log = open_log(tmp_path, SMALL, recovery_point=last)
    assert log.log_end_offset == 30
    assert log.recovery_point == last


@pytest.mark.row("L7")
@pytest.mark.parametrize("behind", [False, True])
def test_a_recovery_point_beyond_the_end_vouches_for_nothing(tmp_path, behind: bool):
    """The machine died while records below it were truncated and others written: the newest segments are
    gone, and in one that was below it half of a new batch lies over an old one."""
    records = filled(tmp_path)
    paths = sorted(tmp_path.glob("*.log"))
    for path in paths[2 + behind :]:
        path.unlink()
    torn = paths[1]
    whole = torn.read_bytes()
    torn.write_bytes(whole[:-1] + b"?")
    if behind:
        with pytest.raises(LogCorruptError, match="the CRC does not match"):
            open_log(tmp_path, SMALL, recovery_point=30)
        return
    log = open_log(tmp_path, SMALL, recovery_point=30)
    assert read_all(log) == records[: log.log_end_offset]
    assert paths[0].stat().st_size < log.size < paths[0].stat().st_size + len(whole)
    assert log.recovery_point == 0, "all of it is synced again"


@pytest.mark.row("L7")
def test_whole_segments_that_end_before_the_recovery_point_are_synced_again(tmp_path):
    records = filled(tmp_path)
    for path in sorted(tmp_path.glob("*.log"))[3:]:
        path.unlink()
    log = open_log(tmp_path, SMALL, recovery_point=30)
    assert len(log.segments) == 3
    assert read_all(log) == records[: log.log_end_offset]
    assert log.recovery_point == 0


@pytest.mark.row("L7")
def test_indexes_are_rebuilt(tmp_path):
    records = filled(tmp_path)
    for path in [*tmp_path.glob("*.index"), *tmp_path.glob("*.timeindex")]:
        path.write_bytes(b"rubbish and more of it..")
    log = open_log(tmp_path, SMALL)
    assert read_all(log) == records
    log.close()
    for path in tmp_path.iterdir():
        if path.suffix in (".index", ".timeindex", ".log"):
            assert verify(OsDisk(), str(path)) == []
    assert any(p.stat().st_size for p in tmp_path.glob("*.index"))


def test_an_index_torn_in_its_only_entry_starts_over(tmp_path):
    filled(tmp_path, count=2)
    (index,) = tmp_path.glob("*.index")
    index.write_bytes(b"\0\0\1")
    log = open_log(tmp_path, SMALL)
    for i in range(10):
        lead(log, b"%d" % i * 10)
    log.close()
    assert verify(OsDisk(), str(index)) == []


def open_files(directory: Path) -> list[str]:
    return [
        path.name
        for path in map(Path.resolve, Path("/proc/self/fd").iterdir())
        if path.is_relative_to(directory)
    ]


def test_of_a_quiet_log_only_the_last_segment_is_open(tmp_path):
    filled(tmp_path)
    log = open_log(tmp_path, SMALL)
    read_all(log)
    assert open_files(tmp_path) == [Path(log.segments[-1].path).name]


def test_a_storm_of_small_segments_opens_no_more_than_a_few_files(tmp_path):
    log = open_log(tmp_path)
    for i in range(100):
        lead(log, b"%d" % i)
        log.roll(NOW_MS)
    assert len(open_files(tmp_path)) < 20, "though nothing is flushed"
    held = log.read(0, 1000)
    assert len(read_all(log)) == 100
    work = log.prepare_flush()
    assert work is not None
    work.run(MAY_BLOCK)
    log.flush_done(work)
    del work
    assert len(open_files(tmp_path)) == 2, "the last segment's, and the slice's"
    log.truncate_fully_and_start_at(0)
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    assert len(held.read(MAY_BLOCK)) == held.length, "a slice keeps its file open"


def test_a_sealed_segment_remembers_no_batches(tmp_path):
    log = open_log(tmp_path)
    for i in range(2000):
        lead(log, b"%d" % i)
    log.roll(NOW_MS)
    assert asizeof(log.segments[0]) < 4096
    assert len(read_all(log)) == 2000


def asizeof(segment: LogSegment) -> int:
    """Bytes of the lists that it keeps."""
    return sum(sys.getsizeof(each) for each in gc.get_referents(segment) if isinstance(each, list))


def test_a_missing_index_of_an_old_segment_is_made_again(tmp_path):
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        lead(log, b"%d" % i * 10)
    log.close_clean(MAY_BLOCK)
    lost = min(tmp_path.glob("*.index"))
    expected = lost.read_bytes()
    lost.unlink()
    open_log(tmp_path, SMALL, clean=True, recovery_point=30).close()
    assert lost.read_bytes() == expected


@pytest.mark.parametrize("clean", [True, False])
def test_a_clean_close_needs_no_recovery(tmp_path, clean: bool):
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        lead(log, b"%d" % i, epoch=i // 10, producer_id=7, producer_epoch=0, base_sequence=i)
    records, states, epochs = read_all(log), log.producers.states, log.epochs.entries
    log.close_clean(MAY_BLOCK)
    assert log.recovery_point == 30
    before = raw_bytes(log)
    again = open_log(tmp_path, SMALL, clean=clean, recovery_point=30)
    assert read_all(again) == records
    assert raw_bytes(again) == before
    assert again.epochs.entries == epochs
    assert again.producers.states[7].last_sequence == states[7].last_sequence == 29
    assert lead(again, b"v", epoch=9, producer_id=7, producer_epoch=0, base_sequence=30) == 30


def test_epochs_are_rebuilt_without_their_file(tmp_path):
    filled(tmp_path)
    assert not (tmp_path / "leader-epoch-checkpoint").exists(), "a killed process had not written it"
    expected = [(0, 0), (1, 10), (2, 20)]
    assert open_log(tmp_path, SMALL).epochs.entries == expected
    (tmp_path / "leader-epoch-checkpoint").write_text("no checkpoint")
    assert open_log(tmp_path, SMALL, clean=True).epochs.entries == expected


def test_epochs_behind_the_end_are_dropped(tmp_path):
    filled(tmp_path, LogConfig(), count=3)
    (tmp_path / "leader-epoch-checkpoint").write_text("0\n2\n0 0\n7 50\n")
    assert open_log(tmp_path, clean=True).epochs.entries == [(0, 0)]


def test_leftovers_are_removed(tmp_path):
    records = filled(tmp_path)
    for name in ("00000000000000000099.index", "00000000000000000000.log.deleted", "x.tmp"):
        (tmp_path / name).write_bytes(b"x")
    log = open_log(tmp_path, SMALL)
    assert read_all(log) == records
    assert (
        not list(tmp_path.glob("*.deleted")) + list(tmp_path.glob("*99.index")) + list(tmp_path.glob("*.tmp"))
    )


def test_a_damaged_producer_snapshot_is_passed_over(tmp_path):
    log = open_log(tmp_path, SMALL)
    for i in range(30):
        lead(log, b"%d" % i * 10, producer_id=7, producer_epoch=0, base_sequence=i)
    log.close()
    for path in tmp_path.glob("*.snapshot"):
        path.write_bytes(path.read_bytes()[:-1] + b"\xff")
    assert open_log(tmp_path, SMALL).producers.states[7].last_sequence == 29


def test_a_start_offset_ahead_of_the_end_starts_over(tmp_path):
    filled(tmp_path)
    log = open_log(tmp_path, SMALL, log_start_offset=500)
    assert (log.log_start_offset, log.log_end_offset) == (500, 500)
    assert lead(log, b"v", epoch=9) == 500


def test_an_empty_last_segment(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"a")
    log.roll(NOW_MS)
    log.close()
    log = open_log(tmp_path)
    assert log.log_end_offset == 1
    assert lead(log, b"b") == 1
    assert read_all(log) == [(0, b"a"), (1, b"b")]


def test_a_snapshot_of_what_was_truncated_is_not_used_when_its_removal_was_lost(tmp_path):
    log = open_log(tmp_path)
    lead(log, b"0")
    log.roll(NOW_MS)
    lead(log, b"1", producer_id=7, producer_epoch=0, base_sequence=0, transactional=True)
    log.roll(NOW_MS)
    snapshot = tmp_path / f"{2:020}.snapshot"
    truncated = snapshot.read_bytes()
    truncate(log, 1)
    for value in (b"1", b"2", b"3"):
        lead(log, value)
    log.close()
    snapshot.write_bytes(truncated)
    log = open_log(tmp_path, machine_restarted=True)
    truncate(log, 3)
    assert log.producers.states == {}
    assert log.first_unstable_offset(3) is None


def test_clean_closes_leave_one_producer_snapshot_not_many(tmp_path):
    for _ in range(4):
        log = open_log(tmp_path, recovery_point=1 << 30, clean=True)
        lead(log, b"a")
        log.close_clean(MAY_BLOCK)
    open_log(tmp_path, recovery_point=1 << 30, clean=True).close()
    assert [path.name for path in sorted(tmp_path.glob("*.snapshot"))] == [f"{4:020d}.snapshot"]
