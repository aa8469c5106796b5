"""Logs without records, of which a large cluster has very many: they hold no file open, are opened by a look
at their directory, and are synced together.
"""

from __future__ import annotations

import os
from pathlib import Path
from random import Random
from uuid import UUID

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log import files
from data_plane.log.checkpoints import BrokerRun
from data_plane.log.config import LogConfig
from data_plane.log.empty_log import is_as_made
from data_plane.log_manager import log_dirs
from data_plane.log_manager.log_dirs import LogDir
from metadata_quorum.foundation.blocking import MayBlock
from metadata_quorum.foundation.disk import OsDisk, sync_each_below
from metadata_quorum.foundation.model import TopicPartition
from tests.support.logs import NOW_MS, flush, lead, open_log, read_all, truncate_unflushed
from tests.support.may_block import MAY_BLOCK
from tests.support.open_files import open_files

TOPIC_ID = UUID(int=9)
LOGS = 8
EPOCH = 7

pytestmark = pytest.mark.row("L7")


@pytest.mark.skipif(not Path("/proc/self/fd").exists(), reason="counts descriptors in /proc")
def test_a_log_holds_its_file_open_from_its_first_record_on(tmp_path: Path) -> None:
    logs = [open_log(tmp_path / f"t-{number}", topic_id=TOPIC_ID) for number in range(20)]
    again = [open_log(tmp_path / f"t-{number}") for number in range(20)]
    assert open_files(tmp_path) == 0
    assert logs[3].read(0, 1000).read(MAY_BLOCK) == b""
    lead(logs[3], b"x")
    assert open_files(tmp_path) == 1
    assert [value for _, value in read_all(logs[3])] == [b"x"]
    assert again[3].log_end_offset == 0


def test_what_was_made_or_closed_without_a_record_is_as_made_and_nothing_else_is(tmp_path: Path) -> None:
    directory = tmp_path / "t-0"

    def sizes() -> dict[str, int]:
        return OsDisk().sizes(str(directory), MAY_BLOCK)

    assert not is_as_made(sizes())
    log = open_log(directory, topic_id=TOPIC_ID)
    assert is_as_made(sizes())
    log.assign_epoch(5)
    flush(log)
    assert is_as_made(sizes())
    log.close_clean(MAY_BLOCK)
    assert is_as_made(sizes())
    for other in ("00000000000000000000.txnindex", "00000000000000000007.log", "x.tmp"):
        (directory / other).touch()
        assert not is_as_made(sizes())
        (directory / other).unlink()
    (directory / "00000000000000000000.timeindex").write_bytes(bytes(12))
    assert not is_as_made(sizes())


def test_an_empty_log_that_is_closed_writes_nothing_and_takes_records_afterwards(tmp_path: Path) -> None:
    log = open_log(tmp_path / "t-0", topic_id=TOPIC_ID)
    log.assign_epoch(2)
    log.close_clean(MAY_BLOCK)
    assert files.LEADER_EPOCHS not in os.listdir(tmp_path / "t-0")
    again = open_log(tmp_path / "t-0", clean=True, topic_id=TOPIC_ID)
    assert (again.log_start_offset, again.log_end_offset, again.epochs.entries) == (0, 0, [])
    lead(again, b"x", epoch=3)
    again.close_clean(MAY_BLOCK)
    last = open_log(tmp_path / "t-0", clean=True)
    assert [value for _, value in read_all(last)] == [b"x"]
    assert last.epochs.entries == [(3, 0)]


class CountingDisk(SimDisk):
    """How often all below a directory was synced."""

    def __init__(self) -> None:
        super().__init__()
        self.synced_below = 0

    def sync_below(self, path: str, may_block: MayBlock) -> None:
        self.synced_below += 1
        super().sync_below(path, may_block)


@pytest.mark.parametrize("one_by_one", [0, 100])
def test_a_truncation_before_a_kill_is_durable_once_the_logs_are_open(
    one_by_one: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Very many logs are synced at once, few one by one: either way nothing comes back."""
    monkeypatch.setattr(log_dirs, "SYNCED_ONE_BY_ONE", one_by_one)
    disk = CountingDisk()

    def directory() -> LogDir:
        return LogDir(disk, "/data", UUID(int=1), boot_id="this boot")

    first = directory()
    first.load(LogConfig(), {}, NOW_MS, MAY_BLOCK)
    for number in range(LOGS):
        tp = TopicPartition("t", number)
        log = first.open_log(tp, TOPIC_ID, LogConfig(), NOW_MS, MAY_BLOCK)
        log.identify(MAY_BLOCK)
        lead(log, b"before")
        flush(log)
        truncate_unflushed(log, 0)
    disk.sync_dir("/data", MAY_BLOCK)
    first.mark_running(BrokerRun(EPOCH, frozenset([UUID(int=1)])))
    disk.kill()
    opened, offline = directory().load(LogConfig(), {}, NOW_MS, MAY_BLOCK)
    assert not offline
    assert disk.synced_below == (1 if one_by_one == 0 else 0)
    for log, _ in opened.values():
        assert log.log_end_offset == 0
    disk.power_loss(Random(1))
    assert [disk.open(f"/data/t-{n}/00000000000000000000.log").size() for n in range(LOGS)] == [0] * LOGS


def test_everything_below_a_directory_is_synced(tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    (tmp_path / "a" / "b").write_bytes(b"1")
    OsDisk().sync_below(str(tmp_path), MAY_BLOCK)
    sync_each_below(OsDisk(), str(tmp_path), MAY_BLOCK)
    with pytest.raises(FileNotFoundError):
        OsDisk().sync_below(str(tmp_path / "none"), MAY_BLOCK)
    assert OsDisk().sizes(str(tmp_path / "a"), MAY_BLOCK) == {"b": 1}
    assert OsDisk().sizes(str(tmp_path), MAY_BLOCK) == {}
    assert OsDisk().sizes(str(tmp_path / "none"), MAY_BLOCK) == {}
