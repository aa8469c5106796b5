"""A flush of very many segments, as the first one is where the recovery point was lost."""

from __future__ import annotations

import errno
from pathlib import Path
from random import Random
from typing import Final

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.log_segments import OPENED_BY_A_FLUSH
from metadata_quorum.foundation.disk import Disk, OsDisk
from tests.support.logs import flush, lead, open_log, read_all
from tests.support.may_block import MAY_BLOCK
from tests.support.open_files import open_files

ONE_RECORD: Final = LogConfig(segment_bytes=100)
SEGMENTS: Final = OPENED_BY_A_FLUSH + 20

pytestmark = pytest.mark.row("L7")


def reopened(disk: Disk, path: str) -> UnifiedLog:
    """A log of which nothing is known to be durable."""
    log = open_log(Path(path), ONE_RECORD, disk=disk)
    for number in range(SEGMENTS):
        lead(log, b"%d" % number)
    log.close()
    again = open_log(Path(path), ONE_RECORD, disk=disk)
    assert (len(again.segments), again.recovery_point) == (SEGMENTS, 0)
    return again


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_it_does_not_open_all_their_files(tmp_path: Path) -> None:
    """A process may have no more than a thousand or so."""
    log = reopened(OsDisk(), str(tmp_path / "t-0"))
    work = log.prepare_flush()
    assert work is not None
    assert open_files(tmp_path) < OPENED_BY_A_FLUSH // 2
    work.run(MAY_BLOCK)
    log.flush_done(work)
    assert log.recovery_point == SEGMENTS


@pytest.mark.parametrize("seed", range(5))
def test_all_of_them_are_durable_then(seed: int) -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    log = reopened(disk, "/d/t-0")
    flush(log)
    assert log.recovery_point == SEGMENTS
    disk.power_loss(Random(seed))
    again = open_log(Path("/d/t-0"), ONE_RECORD, disk=disk, recovery_point=SEGMENTS, machine_restarted=True)
    assert read_all(again) == [(number, b"%d" % number) for number in range(SEGMENTS)]


def test_one_that_could_have_no_file_is_done_again_in_full() -> None:
    disk = SimDisk()
    disk.make_dirs("/d")
    log = reopened(disk, "/d/t-0")
    disk.fail("sync_dir", errno.EMFILE, path_part="/t-0")
    work = log.prepare_flush()
    assert work is not None
    with pytest.raises(OSError, match="Too many"):
        work.run(MAY_BLOCK)
    log.flush_failed(work)
    flush(log)
    assert log.recovery_point == SEGMENTS
    durable = [data for name, data in disk.durable_files("/d/t-0").items() if name.endswith(".log")]
    assert len(durable) == SEGMENTS
    assert all(durable)
