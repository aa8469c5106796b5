"""A disk fails a sync once, whichever; the next start dies at any of its operations; the one after must find
what was flushed, and what is flushed from then on must outlive every later loss of power.

The names in a directory whose sync has failed count as durable, and are not."""

from __future__ import annotations

import contextlib
import errno
from copy import deepcopy
from itertools import pairwise
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import Killed, SimDisk
from data_plane.log.files import PARTITION_METADATA
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.disk import OsDisk, directories_in
from tests.support.logs import NOW_MS, flush, lead, read_all
from tests.support.may_block import MAY_BLOCK
from tests.unit.log.compacted_log import put
from tests.unit.log.failed_disk import (
    CONFIG,
    LATE,
    PLAIN,
    RUN,
    Owed,
    check,
    checkpoint,
    created,
    failed,
    log_dir,
    opened,
    run,
)

pytestmark = pytest.mark.row("L7")


def after_a_failed(operation: str, which: int) -> tuple[SimDisk, Owed] | None:
    """The disk, on which the broker has ended; None if there are not so many."""
    disk, owed = SimDisk(), Owed()
    disk.make_dirs("/data")
    disk.fail(operation, errno.EIO, after=which)
    with contextlib.suppress(OSError):
        run(disk, owed)
        return None
    log_dir(disk, "a boot").mark_lost()
    disk.kill()
    return disk, owed


def survive(disk: SimDisk, owed: Owed, dies_before: int, *, power: bool) -> bool:
    """Whether the start after the failure has died before that operation."""
    disk.kill_before(dies_before)
    boot_id, died = "a boot", False
    try:
        opened(disk, boot_id)
    except Killed:
        died = True
    if power:
        disk.power_loss(Random(dies_before))
        boot_id = "another boot"
    disk.kill()
    directory, logs = opened(disk, boot_id)
    check(logs, owed)
    directory.mark_running(RUN)
    for log in logs.values():
        log.topic_id = UUID(int=9)
    disk.sync_dir("/data", MAY_BLOCK)
    for tp, log in logs.items():
        log.identify(MAY_BLOCK)
        for _ in range(5):
            put(log, (b"later", b"l" * 60))
            flush(log)
        owed[tp] = dict(read_all(log))
    checkpoint(directory, logs)
    left = disk.durable_clone()
    _, last = opened(left, "one more boot")
    check(last, owed)
    for tp, log in logs.items():
        assert read_all(last[tp]) == read_all(log), tp
    assert not any(name.startswith("renewed.") for name in left.list("/data", MAY_BLOCK))
    return died


@pytest.mark.parametrize("operation", ["mkdir", "rename"])
def test_on_a_disk_without_room_for_new_directories_the_old_ones_stay(operation: str) -> None:
    """A disk that was full had failed. Nothing could ever be deleted there: no start came so far."""
    full_at, was_full = 0, True
    while was_full:
        disk, owed = failed()
        fault = disk.fail(operation, errno.ENOSPC, path_part="renewed.", after=full_at)
        _, logs = opened(disk, "a boot")
        check(logs, owed)
        assert not any(name.startswith("renewed.") for name in disk.list("/data", MAY_BLOCK))
        was_full = fault.count == 0
        full_at += 1
    assert full_at > 4


def test_what_cannot_come_home_for_want_of_room_is_not_made_anew_empty() -> None:
    disk, owed = failed()
    disk.fail("mkdir", errno.ENOSPC, path_part="renewed.1/1/")
    disk.fail("rename", errno.ENOSPC, path_part="/data/plain-0")
    with pytest.raises(OSError, match="space"):
        opened(disk, "a boot")
    check(opened(disk, "a boot")[1], owed)


def test_what_was_being_deleted_makes_room_first() -> None:
    disk, _ = failed()
    disk.rename("/data/late-0", f"/data/late-0.{'0' * 32}-delete")
    disk.fail("mkdir", errno.EIO)
    with pytest.raises(OSError, match="error"):
        opened(disk, "a boot")
    assert disk.list(f"/data/late-0.{'0' * 32}-delete", MAY_BLOCK) == [PARTITION_METADATA]


@pytest.mark.parametrize("topic", [9, 10])
def test_a_topic_that_was_deleted_and_created_again_makes_room(topic: int) -> None:
    """The disk stayed full for ever. Of the same topic it would be what a name that comes back means."""
    disk, _ = failed()
    disk.rename("/data/late-0", f"/data/late-0.{'0' * 32}-delete")
    log = log_dir(disk, "a boot").open_log(LATE, UUID(int=topic), CONFIG, NOW_MS, MAY_BLOCK)
    log.identify(MAY_BLOCK)
    disk.kill()
    disk.fail("mkdir", errno.ENOSPC, path_part="renewed.")
    opened(disk, "a boot")
    left = disk.list(f"/data/late-0.{'0' * 32}-delete", MAY_BLOCK)
    assert PARTITION_METADATA in left
    assert (len(left) == 1) == (topic == 10)
    opened(disk, "another boot")


def left_by_a_start_whose_sync_fails(which: int) -> tuple[SimDisk, Owed] | None:
    """None if it has not so many."""
    disk, owed = failed()
    disk.fail("sync_dir", errno.EIO, after=which)
    with contextlib.suppress(OSError):
        opened(disk, "a boot")
        return None
    log_dir(disk, "a boot").mark_lost()
    disk.kill()
    return disk, owed


def test_a_sync_that_fails_as_logs_come_home_takes_none_of_them() -> None:
    """Nor any other one of that start. On disk they were where they had been on their way, which the next
    start removed."""
    which = 0
    while (left := left_by_a_start_whose_sync_fails(which)) is not None:
        disk, owed = left
        full = deepcopy(disk)
        full.fail("mkdir", errno.ENOSPC, path_part="renewed.")
        unfinished = any(full.exists(f"/data/renewed.1/{age}") for age in "01")
        with pytest.raises(OSError, match="space") if unfinished else contextlib.nullcontext():
            opened(full, "a boot")
        full.power_loss(Random(which), names_in_order=which % 2 == 0)
        check(opened(full, "another boot")[1], owed)
        for dies_before in range(which % 9, 100, 9):
            again = deepcopy(disk)
            again.kill_before(dies_before)
            with contextlib.suppress(Killed):
                opened(again, "a boot")
            check(opened(again.durable_clone(), "another boot")[1], owed)
            again.power_loss(Random(dies_before), names_in_order=dies_before % 2 == 0)
            check(opened(again, "another boot")[1], owed)
        which += 1
    assert which > 9


def left_with(suffix: str, *, sync_fails: bool) -> tuple[SimDisk, set[str]]:
    """The node has died after it had set a log aside; and the files of that."""
    disk, _ = failed()
    directory, logs = opened(disk, "a boot")
    directory.mark_running(RUN)
    directory.set_aside(PLAIN, logs[PLAIN], UUID(int=0), suffix)
    if sync_fails:
        disk.fail("sync_dir", errno.EIO)
        with pytest.raises(OSError, match="error"):
            directory.sync(MAY_BLOCK)
        directory.mark_lost()
    disk.kill()
    return disk, {*disk.list(aside(suffix), MAY_BLOCK)}


def aside(suffix: str) -> str:
    return f"/data/plain-0.{'0' * 32}-{suffix}"


@pytest.mark.parametrize("sync_fails", [False, True])
def test_a_log_has_lost_its_old_name_before_it_is_emptied(sync_fails: bool) -> None:
    """With the name, the next loss of power brought back a part of its files, which could win over all of
    them in another directory."""
    dies_before, died = 0, True
    while died:
        disk, files = left_with("delete", sync_fails=sync_fails)
        disk.kill_before(dies_before)
        try:
            opened(disk, "a boot")
            died = False
        except Killed:
            disk.kill()
        begun = {*disk.list(aside("delete"), MAY_BLOCK)} != files
        assert not (begun and disk.durable_clone().exists("/data/plain-0")), dies_before
        if died:
            opened(disk, "a boot")
        assert not any(name.startswith("plain-0") for name in disk.list("/data", MAY_BLOCK))
        dies_before += 1
    assert dies_before > 20


def test_where_there_is_no_room_to_lose_a_name_nothing_is_emptied() -> None:
    disk, files = left_with("delete", sync_fails=True)
    disk.fail("create", errno.ENOSPC, path_part="/data/plain-0")
    directory, _ = opened(disk, "a boot")
    directory.mark_running(RUN)
    assert {*disk.list(aside("delete"), MAY_BLOCK)} == files
    opened(disk, "a boot")
    assert not disk.exists(aside("delete"))
    assert not disk.durable_clone().exists("/data/plain-0")


def test_a_stray_log_is_durable_and_has_lost_its_old_name_once_the_disk_has_failed() -> None:
    """A person may remove it."""
    disk, files = left_with("stray", sync_fails=True)
    opened(disk, "a boot")
    left = disk.durable_clone()
    assert {*left.list(aside("stray"), MAY_BLOCK)} == files
    assert not left.exists("/data/plain-0")


def test_a_name_that_was_being_lost_is_in_no_partitions_way() -> None:
    """The node has died between the two steps, and then the power was lost."""
    disk, _ = left_with("delete", sync_fails=True)
    disk.open("/data/plain-0", create=True)
    disk.remove_tree(aside("delete"), MAY_BLOCK)
    disk.sync_dir("/data", MAY_BLOCK)
    disk.power_loss(Random(1))
    directory, _ = opened(disk, "another boot")
    assert [log.log_end_offset for log in created(directory, PLAIN)] == [0]


def directories(disk: SimDisk, path: str) -> int:
    """With those below them."""
    return sum(1 + directories(disk, f"{path}/{name}") for name in directories_in(disk, path, MAY_BLOCK))


def test_starts_that_end_on_the_way_do_not_double_what_they_leave() -> None:
    """Nor does any take longer than the one before: each synced once more what all those before had left."""
    disk, owed = failed()
    counts, syncs = [], []
    for _ in range(12):
        before = disk.syncs
        disk.fail("sync", errno.EIO, path_part="renewed.")
        with pytest.raises(OSError, match="error"):
            opened(disk, "a boot")
        disk.kill()
        counts.append(directories(disk, "/data"))
        syncs.append(disk.syncs - before)
    assert len({after - before for before, after in pairwise(counts)}) == 1, "not twice as many each time"
    assert len(set(syncs[1:])) == 1
    _, logs = opened(disk, "a boot")
    check(logs, owed)


def test_what_is_not_ours_stays_where_it_lies() -> None:
    disk, owed = failed()
    disk.make_dirs("/data/renewed.1/2024/trip-1")
    disk.make_dirs("/data/renewed.2/0/their own")
    disk.open("/data/renewed.2/note", create=True)
    disk.open("/data/renewed.2/0/note", create=True)
    _, logs = opened(disk, "a boot")
    check(logs, owed)
    assert disk.exists("/data/renewed.1/2024/trip-1")
    assert disk.list("/data/renewed.2", MAY_BLOCK) == ["note"]


@pytest.mark.parametrize("relative", [True, False])
def test_a_partition_that_is_a_link_stays_one(tmp_path: Path, relative: bool) -> None:
    """Two levels deeper a relative one led nowhere, which was taken for an empty log."""
    data, volume = tmp_path / "data", tmp_path / "volume"
    volume.mkdir()
    directory = LogDir(OsDisk(), str(data), UUID(int=1), boot_id="a boot")
    directory.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
    for log in created(directory, PLAIN, LATE):
        lead(log, b"v")
        log.close()
    (data / "plain-0").rename(volume / "plain-0")
    (data / "plain-0").symlink_to("../volume/plain-0" if relative else volume / "plain-0")
    inode = (data / "late-0").stat().st_ino
    directory.mark_lost()
    again = LogDir(OsDisk(), str(data), UUID(int=1), boot_id="a boot")
    logs, offline = again.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
    assert ({tp: log.log_end_offset for tp, (log, _) in logs.items()}, offline) == ({PLAIN: 1, LATE: 1}, {})
    assert (data / "plain-0").resolve() == volume / "plain-0"
    assert (data / "late-0").stat().st_ino != inode


def test_a_partition_that_is_a_link_can_be_deleted(tmp_path: Path) -> None:
    """The link is no directory that could be removed: an error of the disk, at every start again."""
    data, volume = tmp_path / "data", tmp_path / "volume"
    volume.mkdir()
    directory = LogDir(OsDisk(), str(data), UUID(int=1), boot_id="a boot")
    directory.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
    (log,) = created(directory, PLAIN)
    (data / "plain-0").rename(volume / "plain-0")
    (data / "plain-0").symlink_to(volume / "plain-0")
    directory.set_aside(PLAIN, log, UUID(int=0), "delete")
    LogDir(OsDisk(), str(data), UUID(int=1), boot_id="a boot").load(CONFIG, {}, NOW_MS, MAY_BLOCK)
    assert not [path for path in data.iterdir() if path.name.startswith("plain-0")]
    assert not [*(volume / "plain-0").iterdir()]


def test_what_is_mounted_keeps_the_others_from_nothing() -> None:
    disk, owed = failed()
    disk.fail("rename", errno.EBUSY, path_part="0/plain-0")
    made: list[str] = []
    make_dirs = disk.make_dirs
    disk.make_dirs = lambda path: (made.append(path), make_dirs(path))[1]  # type: ignore[method-assign]
    _, logs = opened(disk, "a boot")
    check(logs, owed)
    new = "/data/renewed.1/1/"
    assert [path for path in made if path.startswith(new)] == [f"{new}compacted-0", f"{new}late-0"]


def test_a_real_file_system_takes_it(tmp_path: Path) -> None:
    """What is no partition's stays as it is; what an attempt before has left on its way arrives."""
    theirs = tmp_path / "photos" / "1.jpg"
    theirs.parent.mkdir()
    theirs.touch()
    directory = LogDir(OsDisk(), str(tmp_path), UUID(int=1), boot_id="a boot")
    directory.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
    logs = dict(zip((PLAIN, LATE), created(directory, PLAIN, LATE), strict=True))
    for log in logs.values():
        for i in range(9):
            lead(log, b"%d" % i * 100)
    inode = theirs.parent.stat().st_ino
    (tmp_path / "renewed.1" / "0").mkdir(parents=True)
    (tmp_path / "plain-0").rename(tmp_path / "renewed.1" / "0" / "plain-0")
    directory.mark_lost()
    again = LogDir(OsDisk(), str(tmp_path), UUID(int=1), boot_id="a boot")
    found, offline = again.load(CONFIG, {}, NOW_MS, MAY_BLOCK)
    assert not offline
    assert {tp: read_all(log) for tp, (log, _) in found.items()} == {
        tp: read_all(log) for tp, log in logs.items()
    }
    assert theirs.parent.stat().st_ino == inode
    assert {path.name for path in tmp_path.iterdir() if path.is_dir()} == {"photos", "plain-0", "late-0"}


def sweep(operation: str, *, power: bool, step: int) -> None:
    """Every failure, and deaths of the start after it, `step` operations apart."""
    which = 0
    while after_a_failed(operation, which) is not None:
        dies_before, died = which * 7 % step, True
        while died:
            found = after_a_failed(operation, which)
            assert found is not None
            died = survive(*found, dies_before, power=power)
            dies_before += step
        which += 1
    assert which > 25


@pytest.mark.parametrize("power", [False, True])
def test_what_is_flushed_after_a_failed_sync_outlives_a_loss_of_power(power: bool) -> None:
    sweep("sync_dir", power=power, step=50)


@pytest.mark.long
@pytest.mark.parametrize("power", [False, True])
@pytest.mark.parametrize("operation", ["sync_dir", "sync"])
def test_the_same_at_every_operation(operation: str, power: bool) -> None:
    sweep(operation, power=power, step=1)
