"""Dropping old segments: by size, by time, by start offset; delayed removal of files."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from pathlib import Path

import pytest

from chaos.sim.disk import SimDisk
from data_plane.log.config import LogConfig
from data_plane.log.log import UnifiedLog
from data_plane.log.retention import delete_old_segments
from metadata_quorum.foundation.blocking import MayBlock, Result
from metadata_quorum.foundation.errors import BrokerError
from tests.support.logs import NOW_MS, lead, open_log, read_all, truncate
from tests.support.may_block import MAY_BLOCK
from tests.unit.replication.cluster import Cluster, in_loop, until


def filled(directory: Path, **settings) -> UnifiedLog:
    """Ten segments of one record, a second apart."""
    log = open_log(directory, LogConfig(segment_bytes=100, **settings))
    for i in range(10):
        lead(log, b"%d" % i, timestamp=NOW_MS + 1000 * i)
    assert len(log.segments) == 10
    return log


@pytest.mark.row("L3")
def test_by_size(tmp_path):
    log = filled(tmp_path, retention_bytes=300)
    record_bytes = log.size // 10
    delete_old_segments(log, NOW_MS, 10)
    assert 300 <= log.size < 300 + record_bytes
    assert log.log_start_offset == 10 - log.size // record_bytes
    assert read_all(log)[0][0] == log.log_start_offset


@pytest.mark.row("L3")
def test_by_time(tmp_path):
    log = filled(tmp_path, retention_ms=5000)
    delete_old_segments(log, NOW_MS + 9000, 10)
    assert log.log_start_offset == 4
    with pytest.raises(BrokerError, match="OFFSET_OUT_OF_RANGE"):
        log.read(3, 100)


@pytest.mark.row("L3")
def test_all_of_it_by_time(tmp_path):
    log = filled(tmp_path, retention_ms=5000)
    delete_old_segments(log, NOW_MS + 60_000, 10)
    assert (log.log_start_offset, log.log_end_offset, log.size) == (10, 10, 0)
    assert delete_old_segments(log, NOW_MS + 60_000, 10) == []
    assert lead(log, b"v") == 10


def test_nothing_above_the_high_watermark(tmp_path):
    log = filled(tmp_path, retention_ms=5000)
    delete_old_segments(log, NOW_MS + 60_000, 3)
    assert log.log_start_offset == 3


def test_unlimited(tmp_path):
    log = filled(tmp_path, retention_ms=-1)
    assert delete_old_segments(log, NOW_MS * 2, 10) == []


def test_compacted_topics_keep_their_segments(tmp_path):
    log = filled(tmp_path, retention_ms=5000, retention_bytes=100)
    log.config = LogConfig(segment_bytes=100, retention_ms=5000, cleanup_policy=("compact",))
    assert delete_old_segments(log, NOW_MS * 2, 10) == []


@pytest.mark.row("L3")
def test_by_start_offset(tmp_path):
    log = filled(tmp_path)
    assert log.advance_log_start(5)
    assert not log.advance_log_start(4)
    delete_old_segments(log, NOW_MS, 10)
    assert log.segments[0].base_offset == 5
    assert log.epochs.entries == [(0, 5)]


@pytest.mark.row("L3")
def test_files_go_later(tmp_path):
    log = filled(tmp_path, retention_ms=5000, file_delete_delay_ms=60_000)
    held = log.read(0, 1000)
    deletions = delete_old_segments(log, NOW_MS + 9000, 10)
    assert {deletion.delay_ms for deletion in deletions} == {60_000}
    assert len(list(tmp_path.glob("*.log"))) == 6
    assert len(list(tmp_path.glob("*.log.deleted"))) == 4
    assert len(held.read(MAY_BLOCK)) == held.length
    for deletion in deletions:
        deletion.run(MAY_BLOCK)
    assert not list(tmp_path.glob("*.deleted"))


def test_a_restart_ends_what_the_delay_did_not(tmp_path):
    log = filled(tmp_path, retention_ms=5000)
    delete_old_segments(log, NOW_MS + 9000, 10)
    log.close()
    log = open_log(tmp_path, LogConfig(segment_bytes=100))
    assert log.log_start_offset == 4
    assert not list(tmp_path.glob("*.deleted"))


def test_a_truncation_whose_segment_retention_takes_meanwhile_is_prepared_again(tmp_path):
    """After an unclean election a follower is truncated below its high watermark."""
    log = filled(tmp_path, retention_bytes=300)
    work = log.prepare_truncation(2)
    assert work is not None
    work.run(MAY_BLOCK)
    delete_old_segments(log, NOW_MS, 10)
    assert log.log_start_offset > 2
    assert not log.truncate_to(work)
    assert not log.inconsistent
    assert truncate(log, 2)
    assert (log.log_start_offset, log.log_end_offset) == (2, 2)


class Watched(SimDisk):
    """Notes what is read outside of the executor."""

    def __init__(self) -> None:
        super().__init__()
        self.in_executor = True
        self.read_on_loop: list[str] = []

    def strike(self, operation: str, path: str) -> None:
        if operation == "read" and not self.in_executor:
            self.read_on_loop.append(path)
        super().strike(operation, path)

    async def blocking(self, work: Callable[[MayBlock], Result], /) -> Result:
        await asyncio.sleep(0)
        self.in_executor = True
        try:
            return work(MAY_BLOCK)
        finally:
            self.in_executor = False


@in_loop
async def test_after_a_start_nothing_is_read_on_the_loop_to_learn_what_is_old():
    """The indexes of old segments are in no cache then."""
    small = LogConfig(segment_bytes=300, index_interval_bytes=0)
    async with Cluster(1, disk=Watched, log_defaults=small) as cluster:
        cluster.create_topic("t", [[1]], retention_ms="1000")
        for _ in range(5):
            cluster.produce(b"x" * 150)
        await cluster.brokers.pop(1).close()
        broker, disk = cluster.start(1), cluster.disks[1]
        assert isinstance(disk, Watched)
        broker.executor, disk.in_executor = disk.blocking, False
        cluster.now_ms += 5000
        broker.partitions.sweeps.apply_retention()
        await until(lambda: cluster.replica(1).log.log_start_offset == 5)
        assert disk.read_on_loop == []
