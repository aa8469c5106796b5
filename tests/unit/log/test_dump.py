"""`dump` and `verify` on a log's files."""

from __future__ import annotations

from pathlib import Path

import pytest

from data_plane.log.config import LogConfig
from data_plane.log.dump import dump, verify
from metadata_quorum.foundation.disk import OsDisk
from tests.support.logs import NOW_MS, lead, open_log
from tests.support.may_block import MAY_BLOCK

DISK = OsDisk()


@pytest.fixture
def directory(tmp_path) -> Path:
    log = open_log(tmp_path, LogConfig(index_interval_bytes=100))
    for i in range(10):
        lead(log, b"%d" % i * 20, timestamp=NOW_MS + i, producer_id=7, producer_epoch=0, base_sequence=i)
    log.close_clean(MAY_BLOCK)
    return tmp_path


def lines(path: Path, **arguments) -> list[str]:
    return list(dump(DISK, str(path), **arguments))


@pytest.mark.row("L2")
def test_batches_and_records(directory: Path):
    path = next(directory.glob("*.log"))
    printed = lines(path, print_records=True)
    assert printed[:2] == [f"Dumping {path}", "Log starting offset: 0"]
    assert printed[2].startswith(
        "baseOffset: 0 lastOffset: 0 count: 1 baseSequence: 0 lastSequence: 0 producerId: 7 producerEpoch: 0"
    )
    assert printed[2].endswith("isvalid: true")
    assert printed[3] == (
        f"| offset: 0 CreateTime: {NOW_MS} keySize: -1 valueSize: 20 sequence: 0 headerKeys: [] "
        f"payload: {'0' * 20}"
    )
    assert len(printed) == 2 + 10 * 2
    assert len(lines(path)) == 2 + 10
    decoded = lines(path, decoder=lambda record: f" {record.offset}!")
    assert decoded[3].endswith("headerKeys: [] 0!")


@pytest.mark.row("L2")
def test_indexes_snapshot_and_epochs(directory: Path):
    index = lines(next(directory.glob("*.index")))
    assert index[1] == "offset: 2 position: 176"
    times = lines(next(directory.glob("*.timeindex")))
    assert times[1] == f"timestamp: {NOW_MS + 2} offset: 2"
    assert times[-1] == f"timestamp: {NOW_MS + 9} offset: 9"
    (producer,) = lines(next(directory.glob("*.snapshot")))[1:]
    assert producer.startswith("producerId: 7 producerEpoch: 0 coordinatorEpoch: -1 ")
    assert producer.endswith(
        f"firstSequence: 9 lastSequence: 9 lastOffset: 9 offsetDelta: 0 timestamp: {NOW_MS + 9}"
    )
    assert lines(directory / "leader-epoch-checkpoint")[1:] == ["epoch: 0 startOffset: 0"]


@pytest.mark.row("L2")
def test_sound_files_verify(directory: Path):
    for path in directory.iterdir():
        if path.name != "partition.metadata":
            assert verify(DISK, str(path)) == []


@pytest.mark.row("L2")
@pytest.mark.parametrize("suffix", [".log", ".index", ".timeindex", ".snapshot"])
def test_damage_is_found(directory: Path, suffix: str):
    path = next(directory.glob("*" + suffix))
    data = bytearray(path.read_bytes())
    data[-2] ^= 1
    path.write_bytes(data)
    (problem,) = verify(DISK, str(path))
    assert str(path) in problem


def test_damaged_and_torn_logs_print_what_is_there(directory: Path):
    path = next(directory.glob("*.log"))
    data = bytearray(path.read_bytes())
    data[70] ^= 1
    path.write_bytes(data + b"abc")
    printed = lines(path, print_records=True)
    assert printed[2].endswith("isvalid: false")
    assert printed[-1] == f"Found 3 invalid bytes at the end of {path.name}"
    assert len(verify(DISK, str(path))) == 2


def test_an_index_in_use_by_kafka_has_zeroed_places(directory: Path):
    path = next(directory.glob("*.index"))
    path.write_bytes(path.read_bytes() + bytes(80))
    assert verify(DISK, str(path)) == []


def test_other_files_are_refused(tmp_path):
    with pytest.raises(ValueError, match="not a file of a log"):
        lines(tmp_path / "readme")
    assert verify(DISK, str(tmp_path / "readme")) != []
