"""Damage to files: what it leaves is what recovery has to deal with."""

from __future__ import annotations

from pathlib import Path
from random import Random

import pytest

from chaos.live.damage import CUT, GARBAGE, WAYS, ZEROS, flip_bit, tear_journal, tear_tail
from data_plane.log.checkpoints import RUNNING
from data_plane.log.config import LogConfig
from data_plane.log.load import load
from data_plane.log.log import UnifiedLog
from data_plane.log.recovery import LogCorruptError
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.raft.journal import RaftJournal
from tests.support.may_block import MAY_BLOCK

BATCHES = 20


def open_log(path: Path) -> UnifiedLog:
    return UnifiedLog(
        load(
            OsDisk(),
            str(path),
            LogConfig(),
            recovery_point=0,
            log_start_offset=0,
            clean=False,
            now_ms=0,
            may_block=MAY_BLOCK,
        )
    )


@pytest.fixture
def partition(tmp_path: Path) -> Path:
    """A log of batches with one record each."""
    (tmp_path / RUNNING).write_text("proof that the page cache was kept")
    path = tmp_path / "t-0"
    log = open_log(path)
    for number in range(BATCHES):
        batch = bytearray(encode_batch([Record(timestamp=0, value=b"value %d" % number)]))
        log.append_as_leader(batch, leader_epoch=0, now_ms=0)
    log.close()
    return path


@pytest.mark.parametrize("way", WAYS)
@pytest.mark.parametrize("seed", range(5))
def test_a_torn_tail_costs_what_was_torn_and_no_more(partition: Path, way: str, seed: int) -> None:
    before = next(partition.glob("*.log")).read_bytes()
    damage = tear_tail(partition, Random(seed), way=way, batches=3)
    after = damage.path.read_bytes()
    assert after[: damage.position] == before[: damage.position]
    assert (len(after) < len(before)) == (way == CUT)
    assert set(after[damage.position :]) <= {0} or way == GARBAGE
    assert way != ZEROS or len(after) == len(before)
    end = open_log(partition).log_end_offset
    assert BATCHES - 3 <= end < BATCHES
    assert not (partition.parent / RUNNING).exists()  # power loss takes the page cache along


def test_the_same_seed_tears_the_same(partition: Path) -> None:
    log = next(partition.glob("*.log"))
    before, found = log.read_bytes(), []
    for _ in range(2):
        log.write_bytes(before)
        found.append((tear_tail(partition, Random(7)), log.read_bytes()))
    assert found[0] == found[1]


def test_a_flipped_bit_is_in_the_batch_of_the_offset(partition: Path) -> None:
    log = next(partition.glob("*.log"))
    before = log.read_bytes()
    damage = flip_bit(partition, 7, Random(1))
    after = log.read_bytes()
    [changed] = [at for at, (a, b) in enumerate(zip(before, after, strict=True)) if a != b]
    assert changed == damage.position
    assert (before[changed] ^ after[changed]).bit_count() == 1
    with pytest.raises(LogCorruptError) as corrupt:
        open_log(partition)
    assert corrupt.value.offset == 7
    with pytest.raises(ValueError, match="offset 99"):
        flip_bit(partition, 99, Random(1))


@pytest.mark.parametrize("seed", range(5))
def test_a_torn_frame_costs_a_journal_nothing(tmp_path: Path, seed: int) -> None:
    disk = OsDisk()
    RaftJournal.create(disk, str(tmp_path), admitted=True)
    RaftJournal(disk, str(tmp_path))  # written again, as every voter that starts does
    before = (tmp_path / "journal").read_bytes()
    tear_journal(tmp_path, Random(seed))
    assert len((tmp_path / "journal").read_bytes()) > len(before)
    RaftJournal(disk, str(tmp_path))
    assert (tmp_path / "journal").read_bytes() == before
