"""What every `Disk` promises: the operating system's, the simulator's, and the faulty one's while nothing is
wrong with it, pass the same suite."""

from __future__ import annotations

import errno
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.live.disk_faults import FaultyDisk
from chaos.sim.disk import SimDisk
from metadata_quorum.foundation.disk import UNKNOWN_BYTES, Disk, OsDisk
from tests.support.may_block import MAY_BLOCK


def _sim(tmp_path: Path) -> Disk:
    disk = SimDisk()
    disk.make_dirs(str(tmp_path))
    return disk


def _faulty(tmp_path: Path) -> Disk:
    return FaultyDisk(OsDisk())


@pytest.fixture(params=[lambda _: OsDisk(), _sim, _faulty], ids=["os", "sim", "faulty"])
def disk(request: pytest.FixtureRequest, tmp_path: Path) -> Disk:
    make: Callable[[Path], Disk] = request.param
    return make(tmp_path)


@pytest.fixture
def path(tmp_path: Path) -> str:
    return f"{tmp_path}/file"


def test_what_the_operating_system_keeps_is_its_owners_alone(tmp_path: Path) -> None:
    os_disk = OsDisk()
    before = os.umask(0)
    try:
        os_disk.make_dirs(f"{tmp_path}/a/b/c")
        os_disk.make_dirs(f"{tmp_path}/a/b/c")
        os_disk.open(f"{tmp_path}/a/b/c/f", create=True).close()
        os_disk.write_atomic(f"{tmp_path}/a/g", b"x", MAY_BLOCK)
        with pytest.raises(FileExistsError):
            os_disk.make_dirs(f"{tmp_path}/a/g")
    finally:
        os.umask(before)
    made = {path.name: stat.S_IMODE(path.stat().st_mode) for path in tmp_path.rglob("*")}
    assert made == {"a": 0o700, "b": 0o700, "c": 0o700, "f": 0o600, "g": 0o600}


def test_appends_lie_one_after_another(disk: Disk, path: str) -> None:
    file = disk.open(path, create=True)
    assert file.size() == 0
    assert file.append([b"ab", bytearray(b"cd"), memoryview(b"ef")]) == 6
    assert file.append([b"g"]) == 1
    assert file.size() == 7
    assert file.read(0, 100) == b"abcdefg"
    assert file.read(2, 3) == b"cde"
    assert file.read(7, 1) == b""
    assert file.read_cached(2, 3) in (b"cde", None)
    file.close()


def test_writing_in_place_keeps_the_rest(disk: Disk, path: str) -> None:
    file = disk.open(path, create=True)
    file.append([b"0123456789"])
    file.write_at(3, b"xyz")
    assert file.read(0, 10) == b"012xyz6789"
    file.write_at(9, b"end")
    assert file.size() == 12
    file.append([b"!"])
    assert file.read(0, 20) == b"012xyz678end!"
    file.write_at(20, b"far")
    assert file.read(13, 7) == bytes(7)
    file.close()


def test_a_truncated_file_grows_again_from_its_new_end(disk: Disk, path: str) -> None:
    file = disk.open(path, create=True)
    file.append([b"0123456789"])
    file.truncate(4)
    assert file.size() == 4
    file.append([b"ab"])
    file.sync(MAY_BLOCK)
    assert file.read(0, 10) == b"0123ab"
    file.close()
    assert disk.read_bytes(path, MAY_BLOCK) == b"0123ab"


def test_two_handles_see_one_file(disk: Disk, path: str) -> None:
    writer = disk.open(path, create=True)
    writer.append([b"hello"])
    reader = disk.open(path)
    assert reader.read(0, 5) == b"hello"
    assert reader.size() == 5
    writer.close()
    reader.close()


def test_opening_keeps_what_is_there_and_missing_files_are_missed(disk: Disk, path: str) -> None:
    with pytest.raises(FileNotFoundError):
        disk.open(path)
    with pytest.raises(FileNotFoundError):
        disk.read_bytes(path, MAY_BLOCK)
    with pytest.raises(FileNotFoundError):
        disk.open(f"{path}-directory/file", create=True)
    disk.write_atomic(path, b"kept", MAY_BLOCK)
    file = disk.open(path, create=True)
    assert file.read(0, 4) == b"kept"
    file.close()


def test_names(disk: Disk, tmp_path: Path) -> None:
    root = str(tmp_path)
    disk.make_dirs(f"{root}/a/b")
    disk.make_dirs(f"{root}/a/b")
    disk.write_atomic(f"{root}/z", b"1", MAY_BLOCK)
    disk.write_atomic(f"{root}/a/one", b"2", MAY_BLOCK)
    assert disk.list(root, MAY_BLOCK) == ["a", "z"]
    assert disk.list(f"{root}/a", MAY_BLOCK) == ["b", "one"]
    assert disk.list(f"{root}/nowhere", MAY_BLOCK) == []
    assert disk.exists(f"{root}/a")
    assert disk.exists(f"{root}/a/one")
    assert not disk.exists(f"{root}/a/two")


def test_rename_replaces_files_and_moves_directories(disk: Disk, tmp_path: Path) -> None:
    root = str(tmp_path)
    disk.write_atomic(f"{root}/old", b"old", MAY_BLOCK)
    disk.write_atomic(f"{root}/new", b"new", MAY_BLOCK)
    disk.rename(f"{root}/new", f"{root}/old")
    assert disk.read_bytes(f"{root}/old", MAY_BLOCK) == b"new"
    assert not disk.exists(f"{root}/new")
    disk.make_dirs(f"{root}/topic-0")
    disk.write_atomic(f"{root}/topic-0/log", b"x", MAY_BLOCK)
    disk.rename(f"{root}/topic-0", f"{root}/topic-0.deleted")
    disk.sync_dir(root, MAY_BLOCK)
    assert disk.list(root, MAY_BLOCK) == ["old", "topic-0.deleted"]
    assert disk.read_bytes(f"{root}/topic-0.deleted/log", MAY_BLOCK) == b"x"
    with pytest.raises(FileNotFoundError):
        disk.rename(f"{root}/absent", f"{root}/other")


def test_an_open_file_keeps_its_bytes_when_its_name_is_removed(disk: Disk, path: str) -> None:
    disk.write_atomic(path, b"still here", MAY_BLOCK)
    file = disk.open(path)
    disk.remove(path)
    disk.remove(path)  # no error where it is already gone
    assert not disk.exists(path)
    assert file.read(0, 10) == b"still here"
    file.close()


def test_remove_tree(disk: Disk, tmp_path: Path) -> None:
    root = str(tmp_path)
    disk.make_dirs(f"{root}/t/u")
    disk.write_atomic(f"{root}/t/u/f", b"x", MAY_BLOCK)
    disk.write_atomic(f"{root}/tail", b"x", MAY_BLOCK)
    disk.remove_tree(f"{root}/t", MAY_BLOCK)
    assert disk.list(root, MAY_BLOCK) == ["tail"]
    disk.remove_tree(f"{root}/t", MAY_BLOCK)


def test_write_atomic_replaces_and_leaves_nothing_beside(disk: Disk, path: str, tmp_path: Path) -> None:
    disk.write_atomic(path, b"first, and longer", MAY_BLOCK)
    disk.write_atomic(path, memoryview(b"second"), MAY_BLOCK)
    assert disk.read_bytes(path, MAY_BLOCK) == b"second"
    assert disk.list(str(tmp_path), MAY_BLOCK) == ["file"]


def test_where_nobody_knows_what_is_cached_the_loop_reads_but_little(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A file system without RWF_NOWAIT."""

    def unknown(*args: object) -> int:
        raise OSError(errno.EOPNOTSUPP, os.strerror(errno.EOPNOTSUPP))

    file = OsDisk().open(f"{tmp_path}/file", create=True)
    file.append([bytes(UNKNOWN_BYTES + 1)])
    monkeypatch.setattr(os, "preadv", unknown)
    assert file.read_cached(0, UNKNOWN_BYTES) == bytes(UNKNOWN_BYTES)
    assert file.read_cached(0, UNKNOWN_BYTES + 1) is None
    file.close()
