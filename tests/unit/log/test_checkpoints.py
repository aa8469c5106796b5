"""Kafka's small text files."""

from __future__ import annotations

from uuid import UUID

import pytest

from data_plane.log import checkpoints
from data_plane.log.checkpoints import UNKNOWN_RUN, BrokerRun, CheckpointError
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.model import TopicPartition
from tests.support.may_block import MAY_BLOCK

DISK = OsDisk()


@pytest.mark.row("R8")
@pytest.mark.row("L1")
def test_offsets_in_kafkas_form(tmp_path):
    path = str(tmp_path / checkpoints.RECOVERY_POINTS)
    offsets = {TopicPartition("flights", 1): 998, TopicPartition("flights", 0): 1234}
    DISK.write_atomic(path, checkpoints.encode_offsets(offsets), MAY_BLOCK)
    assert (tmp_path / checkpoints.RECOVERY_POINTS).read_text() == "0\n2\nflights 0 1234\nflights 1 998\n"
    assert checkpoints.read_offsets(DISK, path, MAY_BLOCK) == offsets


def test_no_file_is_an_empty_checkpoint(tmp_path):
    assert checkpoints.read_offsets(DISK, str(tmp_path / "none"), MAY_BLOCK) == {}
    assert checkpoints.read_epochs(DISK, str(tmp_path / "none"), MAY_BLOCK) == []
    assert checkpoints.read_partition_metadata(DISK, str(tmp_path / "none"), MAY_BLOCK).topic_id is None
    assert checkpoints.read_clean_shutdown(DISK, str(tmp_path), MAY_BLOCK) is None


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("1\n0\n", "version"),
        ("0\n", "count"),
        ("0\n2\nflights 0 1\n", "2 entries announced, 1 found"),
        ("0\n1\nflights 0\n", "line 3"),
        ("0\n1\nflights 0 x\n", "line 3"),
        ("0\n1\nflights x 1\n", "line 3"),
        ("0\n1\nflights 0 --1\n", "line 3"),
        ("0\n1\nflights 0 \u00b2\n", "line 3"),
        ("0\n\u00b2\nflights 0 1\n", "count"),
        (f"0\n{'1' * 5000}\nflights 0 1\n", "count"),
        (f"0\n1\nflights 0 {'1' * 5000}\n", "line 3"),
    ],
)
def test_malformed_checkpoints_say_where(tmp_path, text: str, complaint: str):
    path = tmp_path / "checkpoint"
    path.write_text(text)
    with pytest.raises(CheckpointError, match=complaint):
        checkpoints.read_offsets(DISK, str(path), MAY_BLOCK)


@pytest.mark.row("L1")
def test_partition_metadata(tmp_path):
    path = tmp_path / "partition.metadata"
    topic_id = UUID("6ba7b810-9dad-11d1-80b4-00c04fd430c8")
    checkpoints.write_partition_metadata(DISK, str(path), topic_id, MAY_BLOCK)
    assert path.read_text() == "version: 0\ntopic_id: a6e4EJ2tEdGAtADAT9QwyA"
    assert checkpoints.read_partition_metadata(DISK, str(path), MAY_BLOCK) == (topic_id, True)
    path.write_text("version: 0\n")
    with pytest.raises(CheckpointError):
        checkpoints.read_partition_metadata(DISK, str(path), MAY_BLOCK)


def test_clean_shutdown_marker(tmp_path):
    run = BrokerRun(12, frozenset([UUID(int=1 << 120), UUID(int=2)]))
    checkpoints.write_clean_shutdown(DISK, str(tmp_path), run, MAY_BLOCK)
    marker = tmp_path / ".kafka_cleanshutdown"
    ids = '"AAAAAAAAAAAAAAAAAAAAAg","AQAAAAAAAAAAAAAAAAAAAA"'
    assert marker.read_text() == f'{{"version":0,"brokerEpoch":12,"logDirs":[{ids}]}}'
    assert checkpoints.read_clean_shutdown(DISK, str(tmp_path), MAY_BLOCK) == run
    marker.write_text('{"version":0,"brokerEpoch":12}')  # Kafka's, and that of our older versions
    assert checkpoints.read_clean_shutdown(DISK, str(tmp_path), MAY_BLOCK) == BrokerRun(12, frozenset())
    for damaged in (
        "", "{}", "12", '{"brokerEpoch":12,"logDirs":["?"]}', '{"brokerEpoch":12,"logDirs":3}', "[" * 200_000,
    ):  # fmt: skip
        marker.write_text(damaged)
        assert checkpoints.read_clean_shutdown(DISK, str(tmp_path), MAY_BLOCK) == UNKNOWN_RUN
    checkpoints.remove_clean_shutdown(DISK, str(tmp_path), MAY_BLOCK)
    assert checkpoints.read_clean_shutdown(DISK, str(tmp_path), MAY_BLOCK) is None


def test_a_torn_file_of_epochs_is_not_taken_for_a_whole_one(tmp_path):
    """It is written without a sync at a truncation. An epoch would begin where it does not: 12, of 1234."""
    path = tmp_path / "leader-epoch-checkpoint"
    entries = [(0, 0), (5, 1234)]
    whole = checkpoints.encode_epochs(entries)
    path.write_bytes(whole)
    assert checkpoints.read_epochs(DISK, str(path), MAY_BLOCK) == entries
    for length in range(1, len(whole)):
        path.write_bytes(whole[:length])
        with pytest.raises(CheckpointError):
            checkpoints.read_epochs(DISK, str(path), MAY_BLOCK)


def test_a_run_that_is_nested_beyond_all_sense_is_of_another_boot(tmp_path):
    (tmp_path / checkpoints.RUNNING).write_text("[" * 200_000)
    assert checkpoints.machine_restarted(DISK, str(tmp_path), "this boot", MAY_BLOCK)
    assert checkpoints.read_running(DISK, str(tmp_path), "this boot", MAY_BLOCK) == UNKNOWN_RUN
