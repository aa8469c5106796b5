"""Aborted transactions: what a reader gets, and `.txnindex` files through rolls, truncations and crashes."""

from __future__ import annotations

from pathlib import Path

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.aborted import AbortedTransaction, AbortedTransactions, decode
from data_plane.log.config import LogConfig
from data_plane.log.dump import dump
from data_plane.log.log import UnifiedLog
from data_plane.log.retention import delete_old_segments
from metadata_quorum.foundation.disk import OsDisk
from tests.support.logs import NOW_MS, flush, lead, open_log, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.transactional_log import end_transaction, send

pytestmark = pytest.mark.row("L1")

SMALL = LogConfig(segment_bytes=400, index_interval_bytes=100)


def interleaved(directory: Path) -> UnifiedLog:
    """Offsets 0-1 open by producer 1 and 2, 2 aborts 1, 3 commits 2, then 20 short aborted ones."""
    log = open_log(directory, SMALL)
    send(log, 1, 0)
    send(log, 2, 0)
    end_transaction(log, 1, commit=False)
    end_transaction(log, 2, commit=True)
    for number in range(20):
        send(log, 10 + number, 0, b"x" * 50)
        end_transaction(log, 10 + number, commit=False)
    return log


def files_of(directory: Path) -> dict[str, list[AbortedTransaction]]:
    return {path.name: decode(path.read_bytes()) for path in sorted(directory.glob("*.txnindex"))}


def test_a_reader_gets_the_aborted_transactions_of_what_it_reads_and_not_all(tmp_path):
    log = interleaved(tmp_path)
    assert log.aborted.entries[0] == (1, 0, 2, 1), "producer 2 was still open"
    assert log.aborted.between(0, 2) == ((1, 0),)
    assert log.aborted.between(3, 4) == ()
    assert log.aborted.between(4, 8) == ((10, 4), (11, 6))
    piece = log.read(4, 150, at_least_one_batch=True)
    found = log.aborted_in(piece)
    assert found[0] == (10, 4)
    assert len(found) < 5
    assert log.aborted_in(log.read(3, 10, at_least_one_batch=True)) == ()


def test_each_segment_keeps_those_whose_marker_it_holds(tmp_path):
    log = interleaved(tmp_path)
    assert len(log.segments) > 3
    found = files_of(tmp_path)
    assert [entry for entries in found.values() for entry in entries] == log.aborted.entries
    for name, entries in found.items():
        assert all(entry.last_offset >= int(name.split(".")[0]) for entry in entries)
    first = next(iter(found))
    assert list(dump(OsDisk(), str(tmp_path / first)))[1] == (
        "version: 0 producerId: 1 firstOffset: 0 lastOffset: 2 lastStableOffset: 1"
    )


@pytest.mark.parametrize("clean", [True, False])
def test_they_are_found_again_or_recreated(tmp_path, clean):
    log = interleaved(tmp_path)
    entries, found = log.aborted.entries, files_of(tmp_path)
    if clean:
        log.close_clean(MAY_BLOCK)
    else:
        log.close()
        for path in tmp_path.glob("*.txnindex"):
            path.unlink()
    again = open_log(tmp_path, SMALL, clean=clean)
    assert again.aborted.entries == entries
    assert files_of(tmp_path) == found


def test_only_what_was_flushed_is_trusted_after_a_crash(tmp_path):
    log = interleaved(tmp_path)
    base = log.segments[2].base_offset
    entries = list(log.aborted.entries)
    log.close()
    for path in tmp_path.glob("*.txnindex"):
        if int(path.name.split(".")[0]) >= base:
            path.write_bytes(path.read_bytes()[:-3])
    again = open_log(tmp_path, SMALL, recovery_point=base)
    assert again.aborted.entries == entries


def test_truncating_the_log_forgets_their_markers(tmp_path):
    log = interleaved(tmp_path)
    truncate(log, 7)
    assert [entry.last_offset for entry in log.aborted.entries] == [2, 5]
    assert log.first_unstable_offset(7) == 6, "producer 11 is open again"
    assert [entry for entries in files_of(tmp_path).values() for entry in entries] == log.aborted.entries
    end_transaction(log, 11, commit=False)
    assert log.aborted.between(6, 8) == ((11, 6),)
    log.truncate_fully_and_start_at(50)
    assert log.aborted.entries == []


def test_old_segments_take_theirs_with_them(tmp_path):
    log = interleaved(tmp_path)
    second = log.segments[1].base_offset
    log.advance_log_start(second)
    delete_old_segments(log, NOW_MS, log.log_end_offset)
    assert all(entry.last_offset >= second for entry in log.aborted.entries)
    assert log.aborted.entries


def test_what_a_loss_of_power_left_of_an_unsynced_index_hides_none_of_the_others(tmp_path):
    log = interleaved(tmp_path)
    log.close()
    last = log.segments[-1].base_offset
    before = list(log.aborted.entries)
    (tmp_path / f"{last:020d}.txnindex").write_bytes(bytes(34))
    assert open_log(tmp_path, SMALL, recovery_point=last).aborted.entries == before


class _Watched(list[AbortedTransaction]):
    """Counts what is looked at."""

    looked_at = 0

    def __getitem__(self, place):
        found = super().__getitem__(place)
        self.looked_at += len(found) if isinstance(place, slice) else 1
        return found


def test_a_read_looks_at_few_of_very_many(tmp_path):
    aborted = AbortedTransactions(OsDisk(), str(tmp_path))
    aborted.entries = _Watched(AbortedTransaction(1, 2 * i, 2 * i + 1, 2 * i + 2) for i in range(100_000))
    assert aborted.between(10, 12) == ((1, 10),)
    assert aborted.entries.looked_at < 100


def test_an_index_that_an_abort_has_made_has_a_durable_name_once_the_abort_is_flushed():
    """Without it, read_committed consumers were shown what was aborted: the roll let the recovery point stand
    at the segment's end, and nobody looked for its markers after a loss of power."""
    disk = SimDisk()
    disk.make_dirs("/d")
    log = open_log(Path("/d"), disk=disk)
    lead(log, b"plain")
    flush(log)
    send(log, 5, 0, b"aborted")
    end_transaction(log, 5, commit=False)
    flush(log)
    assert f"{0:020d}.txnindex" in disk.durable_files("/d")
    synced = disk.syncs
    send(log, 5, 1, b"aborted")
    end_transaction(log, 5, commit=False)
    flush(log)
    assert disk.syncs - synced == 4  # the segment's three files and the index: its name is durable already
