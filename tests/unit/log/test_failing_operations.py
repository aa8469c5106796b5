"""One operation of the disk fails, once; the log goes on, or stops. What was acknowledged is there again
after the process's death."""

from __future__ import annotations

import errno
from typing import Final

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.compact_log import cleanable, finish_replacing, plan_cleaning, replace_segments
from data_plane.log.log import UnifiedLog
from metadata_quorum.foundation.blocking import MayBlock
from tests.support.logs import NOW_MS, flush, lead, open_log, read_all, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import COMPACT, put

PATH = "/d/t-0"

pytestmark = pytest.mark.row("L7")


def compactable(disk: SimDisk) -> UnifiedLog:
    disk.make_dirs("/d")
    log = open_log(PATH, COMPACT, disk=disk)
    for i in range(8):
        put(log, (b"k%d" % i, b"old" * 60))
    flush(log)
    return log


def truncated_and_led_again(log: UnifiedLog) -> None:
    truncate(log, 0)
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)
    put(log, (b"new", b"flushed and acknowledged"))
    flush(log)


def test_what_a_cancelled_cleaning_made_does_not_come_back_over_newer_records():
    disk = SimDisk()
    log = compactable(disk)
    work = plan_cleaning(log, cleanable(log, log.log_end_offset, NOW_MS), NOW_MS)
    work.run(MAY_BLOCK)
    truncated_and_led_again(log)
    for left in (disk.durable_clone(), disk):
        left.kill()
        assert read_all(open_log(PATH, COMPACT, disk=left)) == [(0, b"flushed and acknowledged")]


@pytest.mark.parametrize("sync", range(8))
def test_a_log_that_is_truncated_while_new_segments_get_their_names(sync):
    disk = SimDisk()
    log = compactable(disk)
    work = plan_cleaning(log, cleanable(log, log.log_end_offset, NOW_MS), NOW_MS)
    sync_dir, synced = disk.sync_dir, []

    def meanwhile(path: str, may_block: MayBlock) -> None:
        sync_dir(path, may_block)
        synced.append(path)
        if len(synced) == sync + 1:
            truncated_and_led_again(log)

    disk.sync_dir = meanwhile
    work.run(MAY_BLOCK)
    assert len(synced) > sync
    disk.sync_dir = sync_dir
    for left in (disk.durable_clone(), disk):
        left.kill()
        assert read_all(open_log(PATH, COMPACT, disk=left)) == [(0, b"flushed and acknowledged")]


OPERATIONS: Final = ("open", "rename", "append", "remove", "sync", "sync_dir")


def clean_or_discard(log: UnifiedLog) -> None:
    work = plan_cleaning(log, cleanable(log, log.log_end_offset, NOW_MS), NOW_MS)
    try:
        work.run(MAY_BLOCK)
        replace_segments(log, work)
        log.disk.sync_dir(log.directory, MAY_BLOCK)
        finish_replacing(log, work)
    except Exception:
        work.discard(MAY_BLOCK)
        raise
    for deletion in log.take_deletions():
        deletion.run(MAY_BLOCK)


def work_on(log: UnifiedLog, acknowledged: dict[int, bytes], code: int, further: int) -> None:
    """Appends of all sizes with rolls and flushes between them, and a compaction. What a log refuses for want
    of a file it may take later, and the work ends soon after that or late (`further` appends); a fault of the
    disk, or a change that stops half-way, ends it."""
    refused = False
    for i in range(13):
        value = b"%d-" % i + b"x" * (10, 150, 220, 10)[i % 4]
        try:
            acknowledged[put(log, (b"k%d" % i, value))] = value
        except OSError:
            if code == errno.EIO:
                return
            refused = True
        except Exception:  # noqa: BLE001 - a change has stopped half-way
            return
        try:
            if i % 4 == 3 or refused:
                flush(log)
            further -= refused
            if further < 0:
                return
            if i == 9:
                clean_or_discard(log)
        except Exception:  # noqa: BLE001
            return


@pytest.mark.parametrize("code", [errno.EMFILE, errno.EIO], ids=["EMFILE", "EIO"])
@pytest.mark.parametrize("operation", OPERATIONS)
@pytest.mark.parametrize("further", [1, 100])
def test_an_operation_fails_and_the_process_dies(operation: str, code: int, further: int) -> None:
    after = 0
    while True:
        disk = SimDisk()
        disk.make_dirs("/d")
        log = open_log(PATH, COMPACT, disk=disk)
        disk.fail(operation, code, after=after)
        acknowledged: dict[int, bytes] = {}
        work_on(log, acknowledged, code, further)
        spent = not disk.has_faults
        point = log.recovery_point
        disk.kill()
        disk.heal()
        again = open_log(PATH, COMPACT, disk=disk, recovery_point=point)
        found = read_all(again)
        assert found[: len(acknowledged)] == sorted(acknowledged.items()), f"{operation} {after}"
        assert len(found) <= len(acknowledged) + 1  # what was refused may have been written
        assert again.log_end_offset == len(found), f"{operation} {after}"  # no offset is given twice
        after += 1
        if not spent:
            break
    assert after > 3


def test_a_failed_fsync_is_not_tried_again():
    """The pages are clean after it: a second one would succeed, and prove nothing."""
    disk = SimDisk()
    disk.make_dirs("/d")
    log = open_log(PATH, disk=disk)
    lead(log, b"x")
    work = log.prepare_flush()
    assert work is not None
    disk.fail("sync", errno.EIO, path_part=".log")
    with pytest.raises(OSError, match="error"):
        work.run(MAY_BLOCK)
    assert not disk.has_faults
