"""Whether directories are made anew: where the disk has failed, once, whatever else has happened since."""

from __future__ import annotations

import contextlib
import errno
from random import Random

import pytest

from chaos.sim.disk import SimDisk
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.failed_disk import PLAIN, RUN, check, checkpoint, created, failed, log_dir, opened

pytestmark = pytest.mark.row("L7")


@pytest.mark.parametrize(("registered", "clean"), [(True, False), (True, True), (False, True)])
def test_what_there_was_no_room_for_is_made_anew_at_the_next_start(registered: bool, clean: bool) -> None:
    """Though another run has closed its logs meanwhile. (It is one of an earlier version: where this is still
    to be done none says so any more.)"""
    disk, owed = failed()
    disk.fail("mkdir", errno.ENOSPC, path_part="renewed.")
    directory, logs = opened(disk, "a boot")
    if registered:
        directory.mark_running(RUN)
    if clean:
        for log in logs.values():
            log.close_clean(MAY_BLOCK)
        directory.mark_clean(RUN, MAY_BLOCK)
    disk.kill()
    for _ in range(2):
        disk.fail("mkdir", errno.EIO, path_part="renewed.")
        with pytest.raises(OSError, match="error"):
            opened(disk, "a boot")
        log_dir(disk, "a boot").mark_lost()
        disk.kill()
    directory, logs = opened(disk, "a boot")
    check(logs, owed)
    directory.mark_running(RUN)
    disk.kill()
    renewed = disk.fail("mkdir", errno.EIO, path_part="renewed.")
    opened(disk, "a boot")
    assert renewed.count == 1


def is_made_anew(disk: SimDisk, boot_id: str) -> bool:
    """By the next start."""
    fault = disk.fail("mkdir", errno.EIO, path_part="renewed.")
    with contextlib.suppress(OSError):
        opened(disk, boot_id)
    return fault.count == 0


def test_it_is_made_anew_once_though_no_start_is_registered() -> None:
    disk, _ = failed()
    directory, logs = opened(disk, "a boot")
    for log in logs.values():
        log.close_clean(MAY_BLOCK)
    directory.mark_clean(directory.last_run, MAY_BLOCK)
    disk.kill()
    assert not is_made_anew(disk, "a boot")


@pytest.mark.parametrize("seed", range(8))
def test_a_loss_of_power_after_a_clean_shutdown_is_no_failed_disk(seed: int) -> None:
    """It emptied what was noted of the run, as a failure does."""
    disk = SimDisk()
    disk.make_dirs("/data")
    directory, _ = opened(disk, "a boot")
    directory.mark_running(RUN)
    (log,) = created(directory, PLAIN)
    log.close_clean(MAY_BLOCK)
    checkpoint(directory, {PLAIN: log})
    directory.mark_clean(RUN, MAY_BLOCK)
    disk.power_loss(Random(seed), names_in_order=seed % 2 == 0)
    assert not is_made_anew(disk, "another boot")


def test_where_nobody_knows_the_boot_what_is_noted_of_one_says_nothing() -> None:
    """Nor would it ever be noted anew: each start made all directories anew."""
    disk, _ = failed()
    assert not is_made_anew(disk, "")
