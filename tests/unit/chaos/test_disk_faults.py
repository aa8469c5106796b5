"""Each fault of the disk alone: what it strikes, where, with which error, and what it leaves in peace."""

from __future__ import annotations

import errno
from pathlib import Path

import pytest

from chaos.live.disk_faults import ALL, GROW, READ, SYNC, WRITES, DiskFault, FaultyDisk
from metadata_quorum.foundation.disk import OsDisk
from tests.support.may_block import MAY_BLOCK

FULL = DiskFault((GROW,), code=errno.ENOSPC)
BROKEN = DiskFault((READ, *WRITES), code=errno.EIO)


@pytest.fixture
def disk() -> FaultyDisk:
    return FaultyDisk(OsDisk())


def test_a_full_disk_takes_half_a_write_and_nothing_more(disk: FaultyDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    file = disk.open(path, create=True)
    file.append([b"0123"])
    disk.faults = (FULL,)
    with pytest.raises(OSError, match="No space left") as full:
        file.append([b"abcd", b"ef"])
    assert (full.value.errno, full.value.filename) == (errno.ENOSPC, path)
    assert Path(path).read_bytes() == b"0123abc"
    with pytest.raises(OSError, match="No space left"):
        file.write_at(2, bytes(100))
    with pytest.raises(OSError, match="No space left"):
        disk.write_atomic(f"{tmp_path}/other", b"x", MAY_BLOCK)
    file.write_at(0, b"--")  # needs no room
    file.sync(MAY_BLOCK)
    assert file.read(0, 4) == b"--23"
    disk.remove(path)


def test_reads_and_writes_fail_apart(disk: FaultyDisk, tmp_path: Path) -> None:
    path = f"{tmp_path}/file"
    file = disk.open(path, create=True)
    file.append([b"0123"])
    disk.faults = (DiskFault((READ,), code=errno.EIO),)
    file.append([b"45"])
    assert file.read_cached(0, 4) is None  # whoever asks for more than the cache meets the fault
    for read in (
        lambda: file.read(0, 4),
        lambda: disk.read_bytes(path, MAY_BLOCK),
        lambda: disk.list(str(tmp_path), MAY_BLOCK),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            read()
    disk.faults = (DiskFault(WRITES, code=errno.EIO),)
    assert file.read(0, 6) == b"012345"
    for write in (
        lambda: file.append([b"6"]),
        lambda: file.write_at(0, b"-"),
        lambda: file.truncate(1),
        lambda: file.sync(MAY_BLOCK),
        lambda: disk.rename(path, f"{path}-2"),
        lambda: disk.remove(path),
        lambda: disk.sync_dir(str(tmp_path), MAY_BLOCK),
        lambda: disk.write_atomic(f"{tmp_path}/other", b"x", MAY_BLOCK),
    ):
        with pytest.raises(OSError, match="Input/output error"):
            write()
    disk.faults = ()
    assert disk.read_bytes(path, MAY_BLOCK) == b"012345"


def test_a_fault_stays_below_its_path(disk: FaultyDisk, tmp_path: Path) -> None:
    for name in ("t-1", "t-10"):
        disk.make_dirs(f"{tmp_path}/{name}")
    struck = disk.open(f"{tmp_path}/t-1/log", create=True)
    beside = disk.open(f"{tmp_path}/t-10/log", create=True)
    disk.faults = (DiskFault(BROKEN.operations, f"{tmp_path}/t-1", errno.EIO),)
    beside.append([b"x"])
    with pytest.raises(OSError, match="Input/output error"):
        struck.append([b"x"])
    with pytest.raises(OSError, match="Input/output error"):
        disk.list(f"{tmp_path}/t-1", MAY_BLOCK)
    assert disk.list(f"{tmp_path}/t-10", MAY_BLOCK) == ["log"]


def test_so_many_fsyncs_fail(disk: FaultyDisk, tmp_path: Path) -> None:
    file = disk.open(f"{tmp_path}/file", create=True)
    once = DiskFault((SYNC,), code=errno.EIO, times=1)
    disk.faults = (once,)
    file.append([b"x"])
    with pytest.raises(OSError, match="Input/output error"):
        file.sync(MAY_BLOCK)
    file.sync(MAY_BLOCK)
    # Another fault beside it does not bring it back; the same asked for again does.
    disk.faults = (once, DiskFault((READ,), code=errno.EIO))
    file.sync(MAY_BLOCK)
    disk.faults = (DiskFault((SYNC,), code=errno.EIO, times=1, number=2),)
    with pytest.raises(OSError, match="Input/output error"):
        disk.sync_dir(str(tmp_path), MAY_BLOCK)


def test_a_slow_disk_delays_whoever_calls_but_not_who_reads_the_cache(
    disk: FaultyDisk, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    naps: list[float] = []
    monkeypatch.setattr("chaos.live.disk_faults.time.sleep", naps.append)
    file = disk.open(f"{tmp_path}/file", create=True)
    disk.faults = (DiskFault(ALL, delay_ms=30),)
    file.append([b"x"])
    file.sync(MAY_BLOCK)
    assert naps == [0.03, 0.03]
    assert file.read_cached(0, 1) is None
    assert naps == [0.03, 0.03]
    assert file.read(0, 1) == b"x"
