"""A quorum's directories, left to Apache Kafka's controllers and taken over from them."""

from __future__ import annotations

import errno
import json
import os
import random
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path

import pytest

from kraft.config.node_config import Config
from kraft.config.properties import format_properties
from kraft.storage.formatter import format_storage, lock_storage
from kraft.storage.migration import Migrated, export_quorum, import_quorum
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.metadata_log import MetadataLog, SnapshotId
from metadata_quorum.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    encode,
)
from metadata_quorum.metadata.snapshot import encode_checkpoint
from metadata_quorum.raft.identity import is_formatted, last_term, read_identity
from metadata_quorum.raft.journal import RaftJournal
from metadata_quorum.raft.snapshots import SnapshotStore
from tests.support.metadata_machine import MetadataMachine

DISK = OsDisk()
RNG = random.Random(1)
TERM = 9
"""The voters' newest; the metadata's is 3."""


class Quorum:
    """Voters 1, 2 and 3, with the metadata that each has applied."""

    def __init__(self, root: Path) -> None:
        self.configs = [
            Config.from_properties(
                {
                    "process.roles": "controller",
                    "node.id": str(node_id),
                    "controller.quorum.voters": "1@a:1,2@a:2,3@a:3",
                    "listeners": "CONTROLLER://:9093",
                    "controller.listener.names": "CONTROLLER",
                    "log.dirs": str(root / f"node-{node_id}"),
                }
            )
            for node_id in (1, 2, 3)
        ]
        self.machines = []
        for config in self.configs:
            format_storage(DISK, config, "cluster-1", RNG, new_cluster=True)
            journal = RaftJournal(DISK, config.raft_dir)
            journal.setCurrentTerm(TERM - 3 + config.node_id, None)
            journal.trim_to(2, 3)
            journal.close()
            machine = MetadataMachine(DISK, metadata_dir(config), segment_bytes=2_000)
            machine.claim()
            machine.brokers(1, 2, 3)
            self.machines.append(machine)

    def newest(self) -> MetadataMachine:
        """The second one, which has applied more than the others."""
        machine = self.machines[1]
        machine.create("flights", 40, 3)
        machine.term = 3
        machine.claim(2)
        machine.log.write_checkpoint(
            SnapshotId(machine.image.offset + 1, machine.image.epoch), encode_checkpoint(machine.image)
        )
        machine.set_config(ResourceType.BROKER, "", "log.retention.ms", "1000")
        return machine

    def export(self) -> Migrated:
        return export_quorum(DISK, self.configs)

    def import_(self) -> Migrated:
        return import_quorum(DISK, self.configs, RNG)

    def append(self, *records: MetadataRecord | bytes) -> None:
        """To all logs, as Apache Kafka's controllers would have."""
        for config, machine in zip(self.configs, self.machines, strict=True):
            values = [each if isinstance(each, bytes) else encode(each) for each in records]
            stored = [Record(timestamp=1, value=value) for value in values]
            offset = machine.log.end_offset
            machine.log.append(encode_batch(stored, base_offset=offset, leader_epoch=TERM + 2))
            state = Path(metadata_dir(config)) / "quorum-state"
            state.write_text(json.dumps({"leaderEpoch": TERM + 1 + config.node_id, "data_version": 0}))


@pytest.fixture
def quorum(tmp_path: Path) -> Quorum:
    return Quorum(tmp_path)


def metadata_dir(config: Config) -> str:
    return f"{config.metadata_dir}/__cluster_metadata-0"


def log_bytes(config: Config) -> bytes:
    return b"".join(each.read_bytes() for each in sorted(Path(metadata_dir(config)).glob("*.log")))


def test_all_of_them_get_what_the_newest_has(quorum: Quorum) -> None:
    newest = quorum.newest()
    assert quorum.export() == Migrated("cluster-1", newest.image.offset + 1, TERM)
    assert {log_bytes(config) for config in quorum.configs} == {log_bytes(quorum.configs[1])}
    for config in quorum.configs:
        assert not Path(config.raft_dir).exists()
        state = json.loads((Path(metadata_dir(config)) / "quorum-state").read_text())
        assert (state["leaderEpoch"], state["leaderId"], len(state["currentVoters"])) == (TERM, -1, 3)
    with pytest.raises(FatalError, match="has been exported before"):
        quorum.export()


def test_there_and_back(quorum: Quorum) -> None:
    newest = quorum.newest()
    image = newest.image
    quorum.export()
    for config in quorum.configs:
        for name in ("leader-epoch-checkpoint", "00000000000000000000.index"):
            (Path(metadata_dir(config)) / name).write_text("")
    done = quorum.import_()
    assert (done.end_offset, done.epoch) == (image.offset + 1, TERM)
    for config in quorum.configs:
        assert read_identity(DISK, config.raft_dir, "cluster-1", config.node_id)
        assert last_term(DISK, config.raft_dir) == TERM
        names = {each.name for each in Path(metadata_dir(config)).iterdir() if each.is_file()}
        assert {Path(name).suffix for name in names} == {".log", ".checkpoint", ".metadata"}
        log = MetadataLog(DISK, metadata_dir(config))
        machine = MetadataStateMachine(log)
        snapshot = SnapshotStore(DISK, config.raft_dir).latest()
        assert snapshot is not None
        machine.restore(snapshot.data, snapshot.index, snapshot.term)()
        assert machine.image == image
        assert (log.end_offset, log.last_epoch) == (image.offset + 1, 3)
        assert log.start_offset < log.end_offset  # followers go on from where they were
    with pytest.raises(FatalError, match="is a directory of ours already"):
        quorum.import_()


def test_an_export_that_breaks_off_is_begun_again(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    renamed: list[str] = []
    rename = OsDisk.rename

    def breaking(disk: OsDisk, source: str, target: str) -> None:
        if source.endswith("/raft"):
            renamed.append(target)
            if len(renamed) == 3:
                raise OSError(errno.EIO, "Input/output error", target)
        rename(disk, source, target)

    monkeypatch.setattr(OsDisk, "rename", breaking)
    quorum.configs.reverse()  # the voter in the newest term is done
    with pytest.raises(FatalError, match="try again"):
        quorum.export()
    assert quorum.export().epoch == TERM


def test_the_newest_epoch_of_apache_kafkas_is_surpassed(quorum: Quorum) -> None:
    quorum.export()
    quorum.append(FeatureLevelRecord(name="metadata.version", feature_level=26))
    assert quorum.import_().epoch == TERM + 4
    assert {last_term(DISK, config.raft_dir) for config in quorum.configs} == {TERM + 4}


def test_an_import_that_breaks_off_is_begun_again(quorum: Quorum, monkeypatch: pytest.MonkeyPatch) -> None:
    newest = quorum.newest()
    quorum.export()
    renamed: list[str] = []
    rename = OsDisk.rename

    def breaking(disk: OsDisk, source: str, target: str) -> None:
        if target.endswith("/raft"):
            renamed.append(target)
            if len(renamed) == 2:
                raise OSError(errno.EIO, "Input/output error", target)
        rename(disk, source, target)

    monkeypatch.setattr(OsDisk, "rename", breaking)
    with pytest.raises(FatalError, match="try again"):
        quorum.import_()
    assert quorum.import_().end_offset == newest.image.offset + 1
    assert all(is_formatted(DISK, config.raft_dir) for config in quorum.configs)


REFUSED: Sequence[tuple[MetadataRecord | bytes, str]] = [
    (BeginTransactionRecord(name="t"), "ends within a metadata transaction"),
    (FeatureLevelRecord(name="metadata.version", feature_level=99), "metadata.version is at level 99"),
    (FeatureLevelRecord(name="share.version", feature_level=1), "share.version is at level 1"),
    (
        ConfigRecord(resource_type=2, resource_name="t", name="remote.storage.enable", value="true"),
        "topic t has",
    ),
    (b"\1\12\0\2a", "there are delegation tokens"),
    (b"\1\77\0\0", "the metadata record at offset"),
]


@pytest.mark.parametrize(("record", "sentence"), REFUSED)
def test_what_cannot_be_carried_is_refused_in_one_sentence(
    quorum: Quorum, record: MetadataRecord | bytes, sentence: str
) -> None:
    quorum.export()
    quorum.append(record)
    with pytest.raises(FatalError, match=sentence):
        quorum.import_()
    for config in quorum.configs:
        assert not is_formatted(DISK, config.raft_dir)
        assert (Path(metadata_dir(config)) / "quorum-state").exists()


def test_all_controllers_are_named(quorum: Quorum) -> None:
    quorum.configs.pop()
    with pytest.raises(FatalError, match="give those of every controller"):
        quorum.export()


def test_logs_that_differ_are_not_exported(quorum: Quorum) -> None:
    quorum.machines[0].create("one")
    quorum.machines[2].create("another", 2)
    with pytest.raises(FatalError, match="differ at offset"):
        quorum.export()
    assert all(is_formatted(DISK, config.raft_dir) for config in quorum.configs)


def test_a_controller_that_runs_is_left_alone(quorum: Quorum, tmp_path: Path) -> None:
    words = []
    for config in quorum.configs:
        path = tmp_path / f"{config.node_id}.properties"
        path.write_text(format_properties(config.given))
        words += ["-c", str(path)]
    held = lock_storage(quorum.configs[1])
    try:
        for command in ("export", "import"):
            arguments = [sys.executable, "-m", "kraft", "storage", command, *words]
            done = subprocess.run(arguments, capture_output=True, text=True, check=False)
            assert (done.returncode, "another node is running on it" in done.stderr) == (12, True), (
                done.stderr
            )
    finally:
        for fd in held:
            os.close(fd)
