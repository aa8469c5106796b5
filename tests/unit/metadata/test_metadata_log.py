"""`__cluster_metadata-0` on disk: reading, rewinding, checkpoints, and what damage does to it."""

from __future__ import annotations

import threading

import pytest

from chaos.sim.disk import SimDisk
from metadata_quorum.foundation.batch import decode_batch, iter_headers
from metadata_quorum.foundation.errors import BrokerError, ErrorCode
from metadata_quorum.foundation.invariants import InvariantViolation
from metadata_quorum.metadata.metadata_log import MetadataLog, SnapshotId
from tests.support.may_block import MAY_BLOCK
from tests.unit.metadata.metadata_batches import DIRECTORY, batch


def filled(disk: SimDisk, batches: int, *, per_batch: int = 1, **options: int) -> MetadataLog:
    log = MetadataLog(disk, DIRECTORY, **options)
    log.rewind(0, -1)
    for i in range(batches):
        log.append(batch(i * per_batch, per_batch))
    return log


def offsets(data: bytes) -> list[int]:
    return [header.base_offset for _, header in iter_headers(data)]


def files(disk: SimDisk, suffix: str) -> list[str]:
    return [name for name in disk.list(DIRECTORY, MAY_BLOCK) if name.endswith(suffix)]


@pytest.mark.row("Q3")
@pytest.mark.parametrize("segment_bytes", [1 << 20, 3000])
def test_every_offset_can_be_read(segment_bytes: int) -> None:
    log = filled(SimDisk(), 500, per_batch=3, segment_bytes=segment_bytes)
    assert log.end_offset == 1500
    for offset in range(1500):
        data = log.read(offset, 400)
        assert data
        assert len(data) <= 400
        first = decode_batch(data)
        assert first[0].offset <= offset <= first[-1].offset
    assert log.read(1500, 400) == b""


def test_a_batch_larger_than_the_limit_still_passes() -> None:
    log = filled(SimDisk(), 3)
    log.append(batch(3, size=100_000))
    log.append(batch(4))
    assert offsets(log.read(3, 1)) == [3]
    assert offsets(log.read(2, 100)) == [2]
    assert offsets(log.read(4, 1)) == [4]


def test_reading_a_fetch_worth_crosses_no_limit() -> None:
    log = filled(SimDisk(), 1000)
    data = log.read(10, 10_000)
    assert offsets(data)[0] == 10
    assert 9_000 < len(data) <= 10_000


def test_outside_is_out_of_range() -> None:
    log = filled(SimDisk(), 3)
    for offset in (-1, 4):
        with pytest.raises(BrokerError) as e:
            log.read(offset, 100)
        assert e.value.code is ErrorCode.OFFSET_OUT_OF_RANGE


def test_a_gap_is_a_bug() -> None:
    log = filled(SimDisk(), 3)
    with pytest.raises(InvariantViolation):
        log.append(batch(4))


@pytest.mark.parametrize("segment_bytes", [1 << 20, 1000])
def test_a_restart_rewinds_to_the_snapshots_end(segment_bytes: int) -> None:
    disk = SimDisk()
    before = filled(disk, 100, segment_bytes=segment_bytes).read(40, 100)
    log = MetadataLog(disk, DIRECTORY, segment_bytes=segment_bytes)
    log.rewind(60, 1)
    assert (log.start_offset, log.end_offset) == (0, 60)
    assert log.read(40, 100) == before
    log.append(batch(60))
    assert offsets(log.read(60, 1000)) == [60]


def test_what_cannot_be_rewound_starts_over() -> None:
    disk = SimDisk()
    filled(disk, 10)
    log = MetadataLog(disk, DIRECTORY)
    log.rewind(60, 3)
    assert (log.start_offset, log.end_offset, log.last_epoch) == (60, 60, 3)
    assert files(disk, ".log") == ["00000000000000000060.log"]


def test_a_torn_or_damaged_log_starts_over() -> None:
    for damage in (70, 200):
        disk = SimDisk()
        log = filled(disk, 10)
        log.close()
        file = disk.open(f"{DIRECTORY}/00000000000000000000.log")
        file.write_at(damage, b"\x12\x34")
        log = MetadataLog(disk, DIRECTORY)
        log.rewind(10, 1)
        assert (log.start_offset, log.end_offset) == (10, 10)


@pytest.mark.row("Q3")
def test_checkpoints_bound_the_log() -> None:
    disk = SimDisk()
    log = filled(disk, 10)
    for n in range(1, 6):
        log.write_checkpoint(SnapshotId(n * 10, 1), b"checkpoint %d" % n)
        for offset in range(n * 10, n * 10 + 10):
            log.append(batch(offset))
    assert files(disk, ".checkpoint") == [
        "00000000000000000040-0000000001.checkpoint",
        "00000000000000000050-0000000001.checkpoint",
    ]
    assert log.start_offset == 40
    assert log.end_offset == 60
    assert len(files(disk, ".log")) == 2
    assert log.latest_checkpoint == SnapshotId(50, 1)
    with pytest.raises(BrokerError) as e:
        log.checkpoint(SnapshotId(30, 1))
    assert e.value.code is ErrorCode.SNAPSHOT_NOT_FOUND


def test_of_a_checkpoint_no_more_is_read_than_asked_for() -> None:
    disk = SimDisk()
    log = filled(disk, 10)
    data = bytes(range(250)) * 400
    log.write_checkpoint(SnapshotId(10, 1), data)
    checkpoint = log.checkpoint(SnapshotId(10, 1))
    before = disk.bytes_read
    pieces = []
    while sum(map(len, pieces)) < len(data):
        size, piece = checkpoint.piece(sum(map(len, pieces)), 4096, MAY_BLOCK)
        assert size == len(data)
        pieces.append(piece)
    assert b"".join(pieces) == data
    assert disk.bytes_read - before == len(data)
    for position in (-1, len(data)):
        with pytest.raises(BrokerError) as e:
            checkpoint.piece(position, 1, MAY_BLOCK)
        assert e.value.code is ErrorCode.POSITION_OUT_OF_RANGE
    for n in (20, 30):
        log.write_checkpoint(SnapshotId(n, 1), b"later")
    assert log.latest_checkpoint == SnapshotId(30, 1)
    with pytest.raises(BrokerError) as e:
        checkpoint.piece(0, 1, MAY_BLOCK)  # removed while it was being read
    assert e.value.code is ErrorCode.SNAPSHOT_NOT_FOUND


def test_checkpoints_are_found_again_and_those_of_another_future_dropped() -> None:
    disk = SimDisk()
    log = filled(disk, 10)
    log.write_checkpoint(SnapshotId(5, 1), b"five")
    log.write_checkpoint(SnapshotId(10, 1), b"ten")
    log = MetadataLog(disk, DIRECTORY)
    assert log.latest_checkpoint == SnapshotId(10, 1)
    log.rewind(5, 1)
    assert log.checkpoints == [SnapshotId(5, 1)]


def test_end_offset_for_epoch() -> None:
    log = filled(SimDisk(), 3)
    log.append(batch(3, epoch=4))
    log.append(batch(4, epoch=7))
    assert log.last_epoch == 7
    assert [log.end_offset_for_epoch(e) for e in (0, 1, 3, 4, 7, 9)] == [
        (-1, -1),
        (1, 3),
        (1, 3),
        (4, 4),
        (7, 5),
        (7, 5),
    ]


def test_what_a_killed_write_left_is_removed_at_the_start() -> None:
    disk = SimDisk()
    MetadataLog(disk, DIRECTORY)
    before = disk.list(DIRECTORY, MAY_BLOCK)
    disk.open(f"{DIRECTORY}/{SnapshotId(9, 1).file_name}.tmp", create=True)
    MetadataLog(disk, DIRECTORY)
    assert disk.list(DIRECTORY, MAY_BLOCK) == before


def test_two_threads_write_one_checkpoint_once() -> None:
    """One's own is being written while a leader's, the same, is taken in."""
    disk = SimDisk()
    log = MetadataLog(disk, DIRECTORY)
    write = disk.write_atomic
    writers: list[str] = []
    other = threading.Thread(target=lambda: log.write_checkpoint(SnapshotId(9, 1), b"state"))

    def slowly(path, data, may_block):
        writers.append(path)
        if len(writers) == 1:
            other.start()
            other.join(0.1)  # it must not come in meanwhile
        write(path, data, may_block)

    disk.write_atomic = slowly
    log.write_checkpoint(SnapshotId(9, 1), b"state")
    other.join()
    assert len(writers) == 1
    assert log.checkpoints == [SnapshotId(9, 1)]
