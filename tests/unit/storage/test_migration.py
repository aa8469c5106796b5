"""A quorum's directories, left to Apache Kafka's controllers and taken over from them."""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from pathlib import Path
from uuid import UUID

import pytest

from kraft.config.properties import format_properties
from kraft.storage.formatter import format_storage, hold_against_kafka, lock_storage
from kraft.storage.migration import Migrated, export_quorum
from kraft.storage.quorum_state import metadata_log_dir
from kraft.storage.stopped_log import read_stopped_log
from metadata_quorum.controller.state_machine import MetadataStateMachine
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.errors import FatalError
from metadata_quorum.metadata.control_records import (
    LeaderChangeMessage,
    RegisteredVoter,
    VersionRange,
    Voter,
    VoterEndpoint,
    VotersRecord,
    encode_control,
)
from metadata_quorum.metadata.metadata_log import MetadataLog
from metadata_quorum.metadata.records import (
    BeginTransactionRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    RegisterControllerRecord,
)
from metadata_quorum.raft.identity import is_formatted, read_identity
from metadata_quorum.raft.snapshots import SnapshotStore
from metadata_quorum.raft.stopped import read_stopped_voter
from tests.support.nodes.forks import run_kraft
from tests.support.stopped_quorum import TERM, VOTERS, StoppedQuorum

DISK = OsDisk()


@pytest.fixture
def quorum(tmp_path: Path) -> StoppedQuorum:
    return StoppedQuorum(DISK, str(tmp_path))


def test_all_of_them_get_what_the_newest_has(quorum: StoppedQuorum) -> None:
    newest = quorum.newest()
    assert quorum.export() == Migrated("cluster-1", newest.image.offset + 1, TERM)
    assert {quorum.log_bytes(config) for config in quorum.configs} == {quorum.log_bytes(quorum.configs[1])}
    for config in quorum.configs:
        assert not Path(config.raft_dir).exists()
        state = json.loads((Path(metadata_log_dir(config)) / "quorum-state").read_text())
        assert (state["leaderEpoch"], state["leaderId"], len(state["currentVoters"])) == (TERM, -1, 3)
    with pytest.raises(FatalError, match="has been exported before"):
        quorum.export()


def test_there_and_back(quorum: StoppedQuorum) -> None:
    newest = quorum.newest()
    image = newest.image
    quorum.export()
    for config in quorum.configs:
        for name in ("leader-epoch-checkpoint", "00000000000000000000.index"):
            (Path(metadata_log_dir(config)) / name).write_text("")
    done = quorum.import_()
    assert (done.end_offset, done.epoch) == (image.offset + 1, TERM)
    for config in quorum.configs:
        assert read_identity(DISK, config.raft_dir, "cluster-1", config.node_id)
        assert read_stopped_voter(DISK, config.raft_dir).term == TERM
        names = {each.name for each in Path(metadata_log_dir(config)).iterdir() if each.is_file()}
        assert {Path(name).suffix for name in names} == {".log", ".checkpoint", ".metadata", ""}
        log = MetadataLog(DISK, metadata_log_dir(config))
        machine = MetadataStateMachine(log)
        snapshot = SnapshotStore(DISK, config.raft_dir).latest()
        assert snapshot is not None
        machine.restore(snapshot.data, snapshot.index, snapshot.term)()
        assert machine.image == image
        assert (log.end_offset, log.last_epoch) == (image.offset + 1, 3)
        assert log.start_offset < log.end_offset  # followers go on from where they were
    with pytest.raises(FatalError, match="is a directory of ours already"):
        quorum.import_()


def test_the_newest_epoch_of_apache_kafkas_is_surpassed(quorum: StoppedQuorum) -> None:
    quorum.export()
    quorum.append(FeatureLevelRecord(name="metadata.version", feature_level=26))
    assert quorum.import_().epoch == TERM + 4
    assert {read_stopped_voter(DISK, config.raft_dir).term for config in quorum.configs} == {TERM + 4}


def test_what_no_controller_has_applied_is_exported(quorum: StoppedQuorum) -> None:
    """All lost power, or were stopped while they started: the metadata logs end before Raft's."""
    newest = quorum.newest()
    quorum.write_journals()
    whole = quorum.log_bytes(quorum.configs[1])
    for config in quorum.configs:
        for segment in Path(metadata_log_dir(config)).glob("*.log"):
            segment.write_bytes(b"")
        for checkpoint in Path(metadata_log_dir(config)).glob("*.checkpoint"):
            checkpoint.unlink()
    assert quorum.export().end_offset == newest.image.offset + 1
    (found,) = {quorum.log_bytes(config) for config in quorum.configs}
    assert whole.endswith(found)
    for config in quorum.configs:
        assert read_stopped_log(DISK, metadata_log_dir(config)).image() == newest.image


def test_a_directory_of_apache_kafkas_is_neither_started_nor_formatted(quorum: StoppedQuorum) -> None:
    quorum.export()
    for config in quorum.configs:
        with pytest.raises(FatalError, match="import` takes it over"):
            format_storage(DISK, config, "cluster-1", quorum.rng, new_cluster=True)
        with pytest.raises(FatalError, match="import` takes it over"):
            hold_against_kafka(DISK, config)
    quorum.import_()
    for config in quorum.configs:
        hold_against_kafka(DISK, config)
        with pytest.raises(FatalError, match="is a directory of ours already"):
            quorum.import_()


def test_damage_that_no_other_controller_makes_good_is_told(quorum: StoppedQuorum) -> None:
    quorum.export()
    quorum.append(FeatureLevelRecord(name="metadata.version", feature_level=26))
    offset = quorum.machines[0].log.end_offset
    quorum.append(FeatureLevelRecord(name="metadata.version", feature_level=27))

    segments = [max(Path(metadata_log_dir(config)).glob("*.log")) for config in quorum.configs]
    whole = segments[0].read_bytes()
    place = whole.rindex(b"metadata.version", 0, whole.rindex(b"metadata.version"))
    for segment in segments:
        segment.write_bytes(whole[:place] + b"M" + whole[place + 1 :])
    with pytest.raises(FatalError, match=f"is damaged at offset {offset - 1}, and no other"):
        quorum.import_()
    segments[2].write_bytes(whole)
    assert quorum.import_().end_offset == offset + 1


def test_controllers_of_apache_kafka_are_registered_no_longer(quorum: StoppedQuorum) -> None:
    """A level that they can run might be raised before ours have said what they can; and one that has gone
    for good would keep every level as it is."""
    quorum.export()
    quorum.append(
        RegisterControllerRecord(controller_id=2, incarnation_id=UUID(int=1)),
        RegisterControllerRecord(controller_id=9, incarnation_id=UUID(int=2)),
    )
    quorum.import_()
    machine = MetadataStateMachine(MetadataLog(DISK, metadata_log_dir(quorum.configs[0])))
    snapshot = SnapshotStore(DISK, quorum.configs[0].raft_dir).latest()
    assert snapshot is not None
    machine.restore(snapshot.data, snapshot.index, snapshot.term)()
    assert machine.image.brokers.keys() == {1, 2, 3}
    assert machine.image.controllers == {}


OTHER_VOTERS = (*VOTERS, 4)


def _registered(voter: int) -> RegisteredVoter:
    return RegisteredVoter(
        voter_id=voter, voter_directory_id=UUID(int=voter),
        endpoints=(VoterEndpoint(name="CONTROLLER", host="h", port=9),),
        kraft_version_feature=VersionRange(min_supported_version=0, max_supported_version=1),
    )  # fmt: skip


def _append(quorum: StoppedQuorum, record: VotersRecord | LeaderChangeMessage) -> None:
    key, value = encode_control(record)
    stored = [Record(timestamp=1, key=key, value=value)]
    for machine in quorum.machines:
        offset = machine.log.end_offset
        machine.log.append(encode_batch(stored, base_offset=offset, leader_epoch=TERM + 3, control=True))


def test_voters_that_stood_in_the_log_do_not_count_when_it_is_exported_again(quorum: StoppedQuorum) -> None:
    """From its newest checkpoint on Apache Kafka finds none, and takes those of the properties."""
    quorum.export()
    quorum.append(FeatureLevelRecord(name="metadata.version", feature_level=26))
    _append(quorum, VotersRecord(voters=tuple(map(_registered, VOTERS))))
    end = quorum.machines[0].log.end_offset
    quorum.import_()
    export_quorum(DISK, quorum.configs)
    for config in quorum.configs:
        log = read_stopped_log(DISK, metadata_log_dir(config))
        assert log.checkpoint is not None
        assert log.checkpoint.end_offset >= end


@pytest.mark.parametrize(
    "record",
    [
        VotersRecord(voters=tuple(map(_registered, OTHER_VOTERS))),
        LeaderChangeMessage(
            version=1,
            leader_id=4,
            voters=tuple(Voter(voter_id=each, voter_directory_id=UUID(int=9)) for each in OTHER_VOTERS),
            granting_voters=(),
        ),
        None,
    ],
    ids=["dynamic", "leader", "static"],
)
def test_a_quorum_of_more_controllers_is_refused(
    quorum: StoppedQuorum, record: VotersRecord | LeaderChangeMessage | None
) -> None:
    quorum.export()
    quorum.append(FeatureLevelRecord(name="metadata.version", feature_level=26))
    if record is None:
        for config in quorum.configs:
            quorum.write_quorum_state(config, TERM + 5, OTHER_VOTERS)
    else:
        _append(quorum, record)
    with pytest.raises(FatalError, match=r"voters of this quorum are \[1, 2, 3, 4\], and \[1, 2, 3\] were"):
        quorum.import_()


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
    quorum: StoppedQuorum, record: MetadataRecord | bytes, sentence: str
) -> None:
    quorum.export()
    quorum.append(record)
    with pytest.raises(FatalError, match=sentence):
        quorum.import_()
    for config in quorum.configs:
        assert not is_formatted(DISK, config.raft_dir)
        assert (Path(metadata_log_dir(config)) / "quorum-state").exists()


def test_all_controllers_are_named(quorum: StoppedQuorum) -> None:
    quorum.configs.pop()
    quorum.machines.pop()
    with pytest.raises(FatalError, match="give those of every controller"):
        quorum.export()


def test_what_is_another_clusters_is_not_taken_along(quorum: StoppedQuorum) -> None:
    voter, directory = quorum.configs[1], Path(quorum.configs[2].metadata_dir)
    marker = Path(voter.raft_dir) / "voter.properties"
    whole = marker.read_text()
    marker.write_text(whole.replace("cluster-1", "cluster-2"))
    with pytest.raises(FatalError, match="belongs to voter 2 of cluster cluster-2"):
        quorum.export()
    marker.write_text(whole)
    properties = directory / "meta.properties"
    properties.write_text(properties.read_text().replace("cluster-1", "cluster-2"))
    for command in (quorum.export, quorum.import_):
        with pytest.raises(FatalError, match="of several clusters: cluster-1, cluster-2"):
            command()


def test_logs_that_differ_are_not_exported(quorum: StoppedQuorum) -> None:
    quorum.machines[0].create("one")
    quorum.machines[2].create("another", 2)
    with pytest.raises(FatalError, match="differ at offset"):
        quorum.export()
    assert all(is_formatted(DISK, config.raft_dir) for config in quorum.configs)


def test_a_controller_that_runs_is_left_alone(quorum: StoppedQuorum, tmp_path: Path) -> None:
    words = []
    for config in quorum.configs:
        path = tmp_path / f"{config.node_id}.properties"
        path.write_text(format_properties(config.given))
        words += ["-c", str(path)]
    held = lock_storage(quorum.configs[1])
    try:
        for command in ("export", "import"):
            done = run_kraft("storage", command, *words)
            assert (done.returncode, "another node is running on it" in done.stderr) == (12, True), (
                done.stderr
            )
    finally:
        for fd in held:
            os.close(fd)
