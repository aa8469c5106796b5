"""The simulated disk loses what it may lose, and nothing else."""

from __future__ import annotations

import errno
from random import Random

import pytest

from chaos.sim.disk import PAGE, Killed, SimDisk, SimFile
from chaos.sim.disk_tree import SECTOR
from tests.support.may_block import MAY_BLOCK


def _file(disk: SimDisk, name: str = "/d/f") -> SimFile:
    disk.make_dirs("/d")
    file = disk.open(name, create=True)
    disk.sync_dir("/d", MAY_BLOCK)
    return file


def test_a_kill_keeps_the_page_cache_and_severs_handles() -> None:
    disk = SimDisk()
    file = _file(disk)
    file.append([b"unsynced"])
    disk.kill()
    assert disk.read_bytes("/d/f", MAY_BLOCK) == b"unsynced"
    for act in (lambda: file.append([b"x"]), lambda: file.sync(MAY_BLOCK), lambda: file.read(0, 1)):
        with pytest.raises(Killed, match="dead"):
            act()


def test_a_kill_comes_between_any_two_changes_of_names() -> None:
    """Also where one call makes or removes several."""

    def change(disk: SimDisk) -> None:
        disk.make_dirs("/d/new/newer")
        disk.open("/d/new/f", create=True)
        disk.remove_tree("/d/old", MAY_BLOCK)

    seen = []
    for operation in range(7):
        disk = SimDisk()
        disk.make_dirs("/d/old")
        for name in ("a", "b"):
            disk.open(f"/d/old/{name}", create=True)
        disk.kill_before(operation)
        try:
            change(disk)
        except Killed:
            pass
        seen.append(
            [*disk.list("/d", MAY_BLOCK), *disk.list("/d/new", MAY_BLOCK), *disk.list("/d/old", MAY_BLOCK)]
        )
    assert seen == [
        ["old", "a", "b"],
        ["new", "old", "a", "b"],
        ["new", "old", "newer", "a", "b"],
        ["new", "old", "f", "newer", "a", "b"],
        ["new", "old", "f", "newer", "b"],
        ["new", "old", "f", "newer"],
        ["new", "f", "newer"],
    ]


def test_power_loss_keeps_what_was_synced_and_any_part_of_the_rest() -> None:
    outcomes = set()
    for seed in range(120):
        disk = SimDisk()
        file = _file(disk)
        file.append([b"s" * 100])
        file.sync(MAY_BLOCK)
        file.append([b"u" * 3 * PAGE])
        disk.power_loss(Random(seed))
        left = disk.read_bytes("/d/f", MAY_BLOCK)
        assert left[:100] == b"s" * 100
        assert set(left[100:]) <= {0, ord("u")}
        outcomes.add(len(left))
    assert 100 in outcomes  # nothing of it
    assert 100 + 3 * PAGE in outcomes  # its length, at least
    assert len(outcomes) > 5  # and torn ones


def test_a_page_is_torn_at_any_byte_or_by_its_sectors() -> None:
    lengths, holes = set(), 0
    for seed in range(200):
        disk = SimDisk()
        file = _file(disk)
        file.append([b"s" * PAGE])
        file.sync(MAY_BLOCK)
        file.write_at(0, b"u" * PAGE)
        disk.power_loss(Random(seed))
        left = disk.read_bytes("/d/f", MAY_BLOCK)
        assert len(left) == PAGE
        written = left.rstrip(b"s")
        lengths.add(len(written) % SECTOR)
        if b"s" in written:
            holes += 1
            assert all(len(set(left[at : at + SECTOR])) == 1 for at in range(0, PAGE, SECTOR))
    assert len(lengths) > 5
    assert holes > 5


def test_names_are_durable_after_sync_dir_only() -> None:
    seen = set()
    for seed in range(40):
        disk = SimDisk()
        disk.make_dirs("/d")
        disk.write_atomic("/d/kept", b"1", MAY_BLOCK)
        file = disk.open("/d/new", create=True)
        file.append([b"2"])
        file.sync(MAY_BLOCK)
        disk.write_atomic("/d/sure", b"3", MAY_BLOCK)  # syncs the directory, with all before it
        disk.rename("/d/kept", "/d/moved")
        disk.power_loss(Random(seed))
        names = disk.list("/d", MAY_BLOCK)
        seen.add(tuple(names))
        assert "new" in names
        assert ("kept" in names) != ("moved" in names)
    assert len(seen) == 2


def test_an_unsynced_truncation_may_come_undone() -> None:
    left = set()
    for seed in range(40):
        disk = SimDisk()
        file = _file(disk)
        file.append([b"0123456789"])
        file.sync(MAY_BLOCK)
        file.truncate(4)
        disk.power_loss(Random(seed))
        left.add(disk.read_bytes("/d/f", MAY_BLOCK))
    assert b"0123456789" in left
    file = _file(disk, "/d/g")
    file.append([b"0123456789"])
    file.sync(MAY_BLOCK)
    file.truncate(4)
    file.sync(MAY_BLOCK)
    disk.power_loss(Random(1))
    assert disk.read_bytes("/d/g", MAY_BLOCK) == b"0123"


def test_a_failed_fsync_is_reported_once_and_its_pages_are_gone() -> None:
    disk = SimDisk()
    file = _file(disk)
    file.append([b"lost"])
    disk.fail("sync", errno.EIO)
    with pytest.raises(OSError, match="Input/output"):
        file.sync(MAY_BLOCK)
    file.sync(MAY_BLOCK)
    assert file.read(0, 4) == b"lost"
    disk.power_loss(Random(1))
    assert disk.read_bytes("/d/f", MAY_BLOCK) == b""


def test_planted_faults_hit_their_operation_and_path() -> None:
    disk = SimDisk()
    file = _file(disk)
    other = _file(disk, "/d/other")
    disk.fail("append", errno.EIO, path_part="/f", after=1, count=2)
    file.append([b"1"])
    other.append([b"1"])
    for _ in range(2):
        with pytest.raises(OSError, match="Input/output"):
            file.append([b"2"])
    file.append([b"3"])
    assert file.read(0, 9) == b"13"


def test_a_full_disk_takes_what_fits() -> None:
    disk = SimDisk(capacity=10)
    file = _file(disk)
    file.append([b"12345678"])
    with pytest.raises(OSError, match="No space") as caught:
        file.append([b"abcd"])
    assert caught.value.errno == errno.ENOSPC
    assert file.read(0, 20) == b"12345678ab"
    file.truncate(5)
    file.append([b"xyz"])


def test_what_lies_in_a_directory_is_lost_with_the_directorys_name() -> None:
    kept = set()
    for seed in range(20):
        disk = SimDisk()
        disk.make_dirs("/d/made")
        disk.write_atomic("/d/made/f", b"1", MAY_BLOCK)
        disk.make_dirs("/d/synced")
        disk.sync_dir("/d", MAY_BLOCK)
        disk.make_dirs("/d/late")
        disk.write_atomic("/d/late/f", b"2", MAY_BLOCK)
        assert not disk.durable_clone().exists("/d/late")
        disk.power_loss(Random(seed))
        assert disk.read_bytes("/d/made/f", MAY_BLOCK) == b"1"
        assert disk.exists("/d/synced")
        assert disk.exists("/d/late") == disk.exists("/d/late/f")
        kept.add(disk.exists("/d/late"))
    assert kept == {True, False}


def test_a_directory_that_was_renamed_is_the_same_one() -> None:
    names = set()
    for seed in range(20):
        disk = SimDisk()
        disk.make_dirs("/d/a")
        disk.sync_dir("/d", MAY_BLOCK)
        disk.write_atomic("/d/a/old", b"1", MAY_BLOCK)
        disk.rename("/d/a", "/d/b")
        disk.write_atomic("/d/b/new", b"2", MAY_BLOCK)
        disk.power_loss(Random(seed))
        (name,) = disk.list("/d", MAY_BLOCK)
        assert disk.list(f"/d/{name}", MAY_BLOCK) == ["new", "old"]
        names.add(name)
    assert names == {"a", "b"}


@pytest.mark.parametrize("synced", ["/d/from", "/d/to"])
def test_a_rename_to_another_directory_is_durable_with_either_of_them(synced: str) -> None:
    """Noted under its target alone, it came back over what the source durably had since: a partition's
    directory that had been moved aside, and made anew, was gone."""
    for seed in range(40):
        disk = SimDisk()
        for path in ("/d/from", "/d/to"):
            disk.make_dirs(path)
        disk.sync_dir("/d", MAY_BLOCK)
        disk.open("/d/from/f", create=True)
        disk.rename("/d/from/f", "/d/to/f")
        disk.sync_dir(synced, MAY_BLOCK)
        assert (disk.durable_files("/d/from"), disk.durable_files("/d/to")) == ({}, {"f": b""})
        disk.open("/d/from/f", create=True)
        disk.remove("/d/to/f")
        for path in ("/d/from", "/d/to"):
            disk.sync_dir(path, MAY_BLOCK)
        disk.power_loss(Random(seed))
        assert (disk.list("/d/from", MAY_BLOCK), disk.list("/d/to", MAY_BLOCK)) == (["f"], [])


def test_nothing_comes_back_from_a_directory_that_was_removed() -> None:
    """Its names are never synced; the renames into it are, with the directories that they came from."""
    for seed in range(40):
        disk = SimDisk()
        for path in ("/d/f", "/d/aside"):
            disk.make_dirs(path)
        disk.sync_dir("/d", MAY_BLOCK)
        disk.rename("/d/f", "/d/aside/f")
        disk.remove_tree("/d/aside", MAY_BLOCK)
        disk.make_dirs("/d/f")
        disk.sync_dir("/d", MAY_BLOCK)
        disk.power_loss(Random(seed))
        assert disk.list("/d", MAY_BLOCK) == ["f"]


def test_a_rename_is_not_durable_without_what_was_done_to_its_names_before() -> None:
    for seed in range(40):
        disk = SimDisk()
        for path in ("/d/1", "/d/2", "/d/3"):
            disk.make_dirs(path)
        disk.sync_dir("/d", MAY_BLOCK)
        disk.open("/d/1/f", create=True)
        disk.open("/d/1/other", create=True)
        disk.rename("/d/1/f", "/d/2/f")
        disk.rename("/d/2/f", "/d/3/f")
        disk.sync_dir("/d/3", MAY_BLOCK)
        assert disk.durable_files("/d/1") == {}, "nor is anything else"
        disk.power_loss(Random(seed))
        assert [disk.exists(f"/d/{each}/f") for each in (1, 2, 3)] == [False, False, True]


def _moved() -> SimDisk:
    """With a durable file in /d/from, which lies in /d/to by now; that is not synced yet."""
    disk = SimDisk()
    for path in ("/d/from", "/d/to"):
        disk.make_dirs(path)
    disk.open("/d/from/f", create=True)
    for path in ("/d", "/d/from"):
        disk.sync_dir(path, MAY_BLOCK)
    disk.rename("/d/from/f", "/d/to/f")
    return disk


def test_a_sync_writes_nothing_that_came_later_in_another_directory() -> None:
    disk = _moved()
    disk.open("/d/from/f", create=True)
    disk.sync_dir("/d/to", MAY_BLOCK)
    assert (disk.durable_files("/d/from"), disk.durable_files("/d/to")) == ({}, {"f": b""})


def test_a_rename_that_failed_to_be_synced_is_lost_whole() -> None:
    disk = _moved()
    disk.fail("sync_dir", errno.EIO, path_part="/d/from")
    with pytest.raises(OSError, match="Input/output"):
        disk.sync_dir("/d/from", MAY_BLOCK)
    disk.sync_dir("/d/to", MAY_BLOCK)
    disk.power_loss(Random(1))
    assert (disk.list("/d/from", MAY_BLOCK), disk.list("/d/to", MAY_BLOCK)) == (["f"], [])
