"""What `kraft storage format` writes, and what a start refuses."""

from __future__ import annotations

import errno
import os
import random
import re
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from chaos.sim.disk import Killed, SimDisk
from kraft.config.node_config import Config
from kraft.storage.formatter import (
    check_apart,
    format_storage,
    hold_against_kafka,
    inspect_storage,
    lock_storage,
    read_storage,
    without_read_only,
)
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import ExitCode, FatalError
from metadata_quorum.foundation.uuids import random_uuid, uuid_text
from metadata_quorum.raft.identity import is_formatted, keep_voters, read_identity
from metadata_quorum.raft.journal import RaftJournal

DISK = OsDisk()
RNG = random.Random(1)


def config_for(tmp_path, node_id=1, roles="broker,controller"):
    return Config.from_properties(
        {
            "process.roles": roles,
            "node.id": str(node_id),
            "controller.quorum.voters": "1@127.0.0.1:1001,2@127.0.0.1:1002",
            "listeners": "PLAINTEXT://:9092" + (",CONTROLLER://:9093" if "controller" in roles else ""),
            "controller.listener.names": "CONTROLLER",
            "log.dirs": f"{tmp_path}/a,{tmp_path}/b",
        }
    )


def test_format_then_read(tmp_path):
    config = config_for(tmp_path)
    assert format_storage(DISK, config, "cluster-1", RNG) == [f"{tmp_path}/a", f"{tmp_path}/b"]
    storage = read_storage(DISK, config)
    assert storage.cluster_id == "cluster-1"
    assert storage.directories.keys() == {f"{tmp_path}/a", f"{tmp_path}/b"}
    assert len(set(storage.directories.values())) == 2
    assert read_identity(DISK, config.raft_dir, "cluster-1", 1).node_id == 1
    lines = (tmp_path / "a" / "meta.properties").read_text().splitlines()
    assert {"version=1", "cluster.id=cluster-1", "node.id=1"} <= set(lines)


def test_a_broker_has_no_voters_marker(tmp_path):
    config = config_for(tmp_path, node_id=3, roles="broker")
    format_storage(DISK, config, "cluster-1", RNG)
    assert not is_formatted(DISK, config.raft_dir)


def test_formatting_twice(tmp_path):
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    with pytest.raises(FatalError, match="is formatted already") as refused:
        format_storage(DISK, config, "cluster-1", RNG)
    assert refused.value.exit_code == ExitCode.LOG_DIR_UNUSABLE
    before = read_storage(DISK, config)
    assert format_storage(DISK, config, "cluster-1", RNG, ignore_formatted=True) == []
    assert read_storage(DISK, config) == before
    with pytest.raises(FatalError, match="belongs to cluster cluster-1, not to other"):
        format_storage(DISK, config, "other", RNG, ignore_formatted=True)


def test_a_start_refuses_what_is_not_its_own(tmp_path):
    config = config_for(tmp_path)
    with pytest.raises(FatalError, match="is not formatted"):
        read_storage(DISK, config)
    format_storage(DISK, config, "cluster-1", RNG)
    with pytest.raises(FatalError, match="belongs to node 1, not to node 2") as refused:
        read_storage(DISK, config_for(tmp_path, node_id=2))
    assert refused.value.exit_code == ExitCode.WRONG_CLUSTER
    meta = tmp_path / "b" / "meta.properties"
    meta.write_text(meta.read_text().replace("cluster-1", "cluster-2"))
    with pytest.raises(FatalError, match="/b belongs to cluster cluster-2, not to cluster-1"):
        read_storage(DISK, config)


def test_a_directory_has_one_process(tmp_path):
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    holder = subprocess.Popen(
        [sys.executable, "-c", f"import fcntl; f = open('{tmp_path}/b/.lock', 'w'); "
            "fcntl.lockf(f, fcntl.LOCK_EX); "
         "print('held', flush=True); input()"],
        stdin=subprocess.PIPE, stdout=subprocess.PIPE,
    )  # fmt: skip
    with holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        with pytest.raises(FatalError, match="/b: another node is running on it"):
            lock_storage(config)
        holder.kill()
    for fd in lock_storage(config):
        os.close(fd)


def test_ids_are_kafkas():
    ids = {uuid_text(random_uuid(RNG)) for _ in range(500)}
    assert len(ids) == 500
    assert all(len(text) == 22 and not text.startswith("-") for text in ids)


def test_directories_are_inspected(tmp_path):
    config = config_for(tmp_path)
    assert {each.problem for each in inspect_storage(DISK, config)} == {
        "not formatted: `kraft storage format` does that"
    }
    format_storage(DISK, config, "cluster-1", RNG)
    first, second = inspect_storage(DISK, config)
    assert (first.directory, first.cluster_id, first.node_id, first.problem) == (
        f"{tmp_path}/a", "cluster-1", "1", None,
    )  # fmt: skip
    assert first.directory_id != second.directory_id
    other = config_for(tmp_path, node_id=2)
    assert "node 1" in inspect_storage(DISK, other)[0].problem
    shutil.rmtree(config.raft_dir)
    first, second = inspect_storage(DISK, config)
    assert "lost its disk" in first.problem
    assert second.problem is None


def test_voters_that_are_not_those_of_the_quorum_are_shown(tmp_path):
    """A node that has voted would not start with them."""
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    identity = read_identity(DISK, config.raft_dir, "cluster-1", 1)
    keep_voters(DISK, config.raft_dir, identity, [2, 1], has_taken_part=False)
    assert inspect_storage(DISK, config)[0].problem is None
    keep_voters(DISK, config.raft_dir, identity, [1, 2, 3], has_taken_part=False)
    assert inspect_storage(DISK, config)[0].problem is None, "it has not voted: the list may be put right"
    journal = RaftJournal(DISK, config.raft_dir)
    journal.setCurrentTerm(1, 1)
    journal.sync()
    journal.close()
    assert "is of a quorum of 1,2,3" in inspect_storage(DISK, config)[0].problem
    (Path(config.raft_dir) / "voter.properties").write_text("version=1\n")
    assert "is damaged" in inspect_storage(DISK, config)[0].problem


def test_no_two_directories_have_one_id(tmp_path):
    """A new disk, made ready with the file of another one. As in Apache Kafka."""
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    shutil.copy(tmp_path / "a" / "meta.properties", tmp_path / "b" / "meta.properties")
    with pytest.raises(FatalError, match=r"/b has the directory\.id of .*/a: ") as refused:
        read_storage(DISK, config)
    assert refused.value.exit_code == ExitCode.LOG_DIR_UNUSABLE


@pytest.mark.parametrize(
    "dirs", [{"log.dirs": "{0}/a,{0}/link"}, {"log.dirs": "{0}/a", "metadata.log.dir": "{0}/link"}]
)
def test_a_directory_has_one_name(tmp_path, dirs):
    """By two, a start finds each log twice, and removes one of the two."""
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    check_apart(config)
    (tmp_path / "link").symlink_to(tmp_path / "a")
    given = {**config.given, **{key: text.format(tmp_path) for key, text in dirs.items()}}
    with pytest.raises(FatalError, match=r"/link is .*/a by another name: name it once") as refused:
        check_apart(Config.from_properties(given))
    assert refused.value.exit_code == ExitCode.LOG_DIR_UNUSABLE


def test_no_directory_is_taken_for_a_partition_of_another(tmp_path):
    """It would be set aside: nobody knows such a topic."""
    config = config_for(tmp_path)
    check_apart(Config.from_properties({**config.given, "log.dirs": f"{tmp_path},{tmp_path}/disk1"}))
    nested = Config.from_properties({**config.given, "log.dirs": f"{tmp_path},{tmp_path}/disk-1"})
    with pytest.raises(FatalError, match="/disk-1 has a name like a partition's in "):
        check_apart(nested)


@pytest.mark.parametrize("line", ["", "directory.id=?\n"])
def test_a_directory_without_an_id_gets_one_and_keeps_what_it_has(tmp_path, line):
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    kept = {path: path.read_bytes() for path in tmp_path.rglob("raft/*")}
    path = Path(config.metadata_dir) / "meta.properties"
    path.write_text(re.sub("directory.id=.*\n", line, path.read_text()))
    with pytest.raises(FatalError, match="`kraft storage format --ignore-formatted` gives it one"):
        read_storage(DISK, config)
    fresh = format_storage(DISK, config, "cluster-1", RNG, ignore_formatted=True)
    assert fresh == [config.metadata_dir]
    assert set(read_storage(DISK, config).directories) == set(config.data_dirs)
    assert all(path.read_bytes() == data for path, data in kept.items())
    assert kept


def test_directories_that_no_node_starts_on_are_neither_formatted_nor_called_good(tmp_path):
    config = config_for(tmp_path)
    nested = Config.from_properties({**config.given, "log.dirs": f"{tmp_path},{tmp_path}/disk-1"})
    with pytest.raises(FatalError, match="/disk-1 has a name like a partition's in "):
        format_storage(DISK, nested, "cluster-1", RNG)
    assert not list(tmp_path.iterdir())
    with pytest.raises(FatalError, match="/disk-1 has a name like a partition's in "):
        inspect_storage(DISK, nested)


def test_a_directory_that_cannot_be_formatted_is_named(tmp_path, monkeypatch):
    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(os, "pwrite", full)
    config = config_for(tmp_path)
    with pytest.raises(FatalError, match=f"cannot format {tmp_path}/.*: No space left on device"):
        format_storage(OsDisk(), config, "cluster-1", RNG)


def test_a_controller_whose_directories_were_put_in_another_order_finds_its_voter(tmp_path):
    """It was to be formatted: a voter that has forgotten what it acknowledged."""
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    swapped = Config.from_properties({**config.given, "log.dirs": f"{tmp_path}/b,{tmp_path}/a"})
    moved = Config.from_properties({**config.given, "metadata.log.dir": f"{tmp_path}/m"})
    for other in (swapped, moved):
        for attempt in (
            lambda other=other: hold_against_kafka(DISK, other),
            lambda other=other: format_storage(DISK, other, "cluster-1", RNG, ignore_formatted=True),
        ):
            with pytest.raises(FatalError, match=r"set metadata\.log\.dir=.*/a$"):
                attempt()
    assert "set metadata.log.dir=" in (inspect_storage(DISK, swapped)[0].problem or "")


@pytest.mark.row("L8")
def test_a_broker_starts_without_a_log_dir_whose_disk_does_not_answer(tmp_path):
    disk = SimDisk()
    config = config_for("", node_id=3, roles="broker")
    format_storage(disk, config, "cluster-1", RNG)
    whole = read_storage(disk, config)
    disk.lose_device("/b")
    storage = read_storage(disk, config)
    assert storage.directories == {"/a": whole.directories["/a"]}
    assert storage.unusable == ("/b",)
    disk.lose_device("/a")  # the metadata is there
    with pytest.raises(FatalError, match="cannot read /a: Input/output error"):
        read_storage(disk, config)


@pytest.mark.row("L8")
def test_a_log_dir_that_cannot_be_read_is_not_locked(tmp_path):
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    shutil.rmtree(tmp_path / "b")
    for fd in lock_storage(config, unusable=(f"{tmp_path}/b",)):
        os.close(fd)
    with pytest.raises(FatalError, match=f"cannot use {tmp_path}/b"):
        lock_storage(config)


@pytest.fixture
def remounted(monkeypatch: pytest.MonkeyPatch) -> set[str]:
    """Directories on disks that Linux has remounted read-only."""
    directories: set[str] = set()
    open_ = os.open

    def refused(path, flags, *more, **others):
        if flags & os.O_RDWR and os.path.dirname(path) in directories:
            raise OSError(errno.EROFS, os.strerror(errno.EROFS), path)
        return open_(path, flags, *more, **others)

    monkeypatch.setattr(os, "open", refused)
    return directories


@pytest.mark.row("L8")
def test_a_broker_starts_without_a_log_dir_whose_disk_takes_nothing(tmp_path, remounted):
    config = config_for(tmp_path)
    format_storage(DISK, config, "cluster-1", RNG)
    storage = read_storage(DISK, config)
    assert without_read_only(config, storage) == storage
    remounted.add(f"{tmp_path}/b")
    rest = without_read_only(config, storage)
    assert rest.directories == {f"{tmp_path}/a": storage.directories[f"{tmp_path}/a"]}
    for fd in lock_storage(config, rest.unusable):
        os.close(fd)
    remounted.add(f"{tmp_path}/a")  # the metadata is there
    with pytest.raises(FatalError, match=r"cannot use .*/a: Read-only file system"):
        lock_storage(config, without_read_only(config, storage).unusable)


@pytest.mark.row("L8")
def test_a_broker_does_not_start_without_any_log_dir(tmp_path, remounted):
    config = config_for(tmp_path, node_id=3, roles="broker")
    apart = Config.from_properties({**config.given, "metadata.log.dir": f"{tmp_path}/m"})
    format_storage(DISK, apart, "cluster-1", RNG)
    remounted.update((f"{tmp_path}/a", f"{tmp_path}/b"))
    with pytest.raises(FatalError, match=r"no log directory can be used: .*/a, .*/b") as refused:
        without_read_only(apart, read_storage(DISK, apart))
    assert refused.value.exit_code == ExitCode.DISK_FAILED


def formatted_at_last(disk: SimDisk) -> bool:
    """Whether it is, and the vote that follows is kept, whatever a loss of power takes; the first format has
    been killed, or has failed. False where that went well."""
    config = config_for("/disk/kraft")
    try:
        format_storage(disk, config, "cluster-1", random.Random(1), new_cluster=True)
        return False
    except (Killed, FatalError):
        disk.kill()
        disk.heal()
    format_storage(disk, config, "cluster-1", random.Random(2), new_cluster=True, ignore_formatted=True)
    journal = RaftJournal(disk, config.raft_dir)
    journal.setCurrentTerm(5, 1)
    journal.sync()
    left = disk.durable_clone()
    assert read_storage(left, config).directories.keys() == {"/disk/kraft/a", "/disk/kraft/b"}
    assert RaftJournal(left, config.raft_dir).getCurrentTerm() == 5
    return True


def mounted() -> SimDisk:
    disk = SimDisk()
    disk.make_dirs("/disk")
    return disk


def test_a_format_that_is_given_again_makes_durable_what_one_that_was_killed_has_made():
    """Those directories were there already, and their names went with the next loss of power, with the vote
    that lay in them."""
    dies_before, disk = 0, mounted()
    disk.kill_before(0)
    while formatted_at_last(disk):
        dies_before, disk = dies_before + 1, mounted()
        disk.kill_before(dies_before)
    assert dies_before > 20


def test_a_format_that_is_given_again_makes_anew_what_a_failed_sync_has_left():
    """No later sync writes such a name."""
    which, disk = 0, mounted()
    disk.fail("sync_dir", errno.EIO)
    while formatted_at_last(disk):
        which, disk = which + 1, mounted()
        disk.fail("sync_dir", errno.EIO, after=which)
    assert which > 8
