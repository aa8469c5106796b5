"""Apache Kafka's own tools read our metadata log and our snapshots."""

from __future__ import annotations

import json
from pathlib import Path
from uuid import UUID

import pytest

from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.disk import OsDisk
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.records import (
    AccessControlEntryRecord,
    ClientQuotaRecord,
    MetadataRecord,
    QuotaEntity,
    RegisterControllerRecord,
    RemoveAccessControlEntryRecord,
    RemoveUserScramCredentialRecord,
    UserScramCredentialRecord,
    encode,
)
from metadata_quorum.protocol import commands as c
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.may_block import MAY_BLOCK
from tests.support.metadata_machine import MetadataMachine
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.row("Q3")]

OTHERS: tuple[MetadataRecord, ...] = (
    ClientQuotaRecord(
        entity=(QuotaEntity(entity_type="user", entity_name="alice"), QuotaEntity(entity_type="client-id")),
        key="producer_byte_rate",
        value=1024.5,
    ),
    UserScramCredentialRecord(
        name="alice", mechanism=1, salt=b"salt", stored_key=b"stored", server_key=b"server", iterations=4096
    ),
    RemoveUserScramCredentialRecord(name="alice", mechanism=1),
    AccessControlEntryRecord(
        id=UUID(int=5),
        resource_type=2,
        resource_name="t",
        pattern_type=3,
        principal="User:alice",
        host="*",
        operation=3,
        permission_type=3,
    ),
    RemoveAccessControlEntryRecord(id=UUID(int=5)),
    RegisterControllerRecord(controller_id=1, incarnation_id=UUID(int=6)),
)


@pytest.fixture
def machine(tmp_path: Path) -> MetadataMachine:
    """A little history with every kind of record that our decisions write."""
    machine = MetadataMachine(OsDisk(), str(tmp_path / "__cluster_metadata-0"))
    machine.claim()
    machine.run(c.RegisterController(controller_id=1, incarnation_id=UUID(int=9)))
    machine.brokers(1, 2, 3)
    machine.create_assigned("flights", [[1, 2, 3], [2, 3, 1]], min_insync_replicas="2")
    machine.create("gone")
    machine.run(c.DeleteTopics(topic_ids=(machine.image.topics_by_name["gone"].id,)))
    machine.term = 3
    machine.claim(2)
    machine.fence(1)
    machine.fence(2)
    machine.shut_down(3)
    machine.unfence(2)
    machine.set_config(ResourceType.BROKER, "", "log.retention.ms", "1000")
    machine.set_config(ResourceType.BROKER, "", "log.retention.ms", None)
    machine.run(c.AllocateProducerIds(broker_id=2, broker_epoch=machine.epoch(2)))
    machine.run(c.UnregisterBroker(broker_id=3))
    return machine


def dump(jars: Path, file: Path) -> str:
    dump_log = "kafka.tools.DumpLogSegments"
    return KafkaTools(jars).plain(dump_log, "--cluster-metadata-decoder", "--files", str(file))


def payloads(output: str) -> list[dict]:
    return [json.loads(line.partition("payload: ")[2]) for line in output.splitlines() if "payload: " in line]


def test_dump_log_reads_our_metadata_log(machine: MetadataMachine, kafka_jars: Path) -> None:
    output = dump(kafka_jars, Path(machine.directory) / "00000000000000000000.log")
    assert "isvalid: false" not in output
    assert '"leaderId":2' in output
    assert "partitionLeaderEpoch: 3" in output
    found = payloads(output)
    assert {record["type"] for record in found} >= {
        "FEATURE_LEVEL_RECORD",
        "CONFIG_RECORD",
        "REGISTER_CONTROLLER_RECORD",
        "REGISTER_BROKER_RECORD",
        "BROKER_REGISTRATION_CHANGE_RECORD",
        "TOPIC_RECORD",
        "PARTITION_RECORD",
        "REMOVE_TOPIC_RECORD",
        "PARTITION_CHANGE_RECORD",
        "PRODUCER_IDS_RECORD",
        "UNREGISTER_BROKER_RECORD",
    }
    changes = [r["data"] for r in found if r["type"] == "PARTITION_CHANGE_RECORD"]
    assert any(change.get("eligibleLeaderReplicas") for change in changes)


def test_dump_log_reads_the_other_records(tmp_path: Path, kafka_jars: Path) -> None:
    file = tmp_path / "00000000000000000000.log"
    file.write_bytes(encode_batch([Record(timestamp=1, value=encode(r)) for r in OTHERS], leader_epoch=1))
    found = payloads(dump(kafka_jars, file))
    assert [record["type"] for record in found] == [
        "CLIENT_QUOTA_RECORD",
        "USER_SCRAM_CREDENTIAL_RECORD",
        "REMOVE_USER_SCRAM_CREDENTIAL_RECORD",
        "ACCESS_CONTROL_ENTRY_RECORD",
        "REMOVE_ACCESS_CONTROL_ENTRY_RECORD",
        "REGISTER_CONTROLLER_RECORD",
    ]
    assert found[0]["data"]["value"] == 1024.5
    assert found[3]["data"]["principal"] == "User:alice"


def test_metadata_shell_reads_our_snapshot(machine: MetadataMachine, kafka_jars: Path) -> None:
    machine.machine.snapshot()()
    (name,) = [f for f in machine.disk.list(machine.directory, MAY_BLOCK) if f.endswith(".checkpoint")]
    snapshot = Path(machine.directory) / name
    assert "isvalid: false" not in dump(kafka_jars, snapshot)

    def shell(*command: str) -> str:
        main = "org.apache.kafka.shell.MetadataShell"
        return KafkaTools(kafka_jars).plain(main, "--snapshot", str(snapshot), *command)

    now = machine.partition("flights", 1)

    def partition() -> str:
        """The shell does not wait until its loader has published the image."""
        text = shell("cat", "/image/topics/byName/flights/1")
        return text if "No such file" not in text else ""

    seen = wait_until(partition, "the shell to load the snapshot")
    assert f"isr={list(now.isr)}" in seen
    assert f"elr={list(now.elr)}" in seen
    assert f"leaderEpoch={now.leader_epoch}, partitionEpoch={now.partition_epoch}" in seen
    # Without a terminal the shell's `ls` now and then ends before it has printed anything.
    listed = wait_until(lambda: shell("ls", "/image/cluster/brokers").split(), "the shell to list brokers")
    assert listed == ["1", "2"]
