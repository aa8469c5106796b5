"""Every kind of record of Apache Kafka's own topics, as its own code writes it: read, and written again.

A Java program beside tests/compat (`SOURCE`) has printed them; each line:

    topic kind version fields key value      (hexadecimal; fields: "defaults", or all of them "set")
"""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Final, NamedTuple

import pytest

from data_plane.coordinator.groups import records as group_records
from data_plane.coordinator.transactions import records as transaction_records
from metadata_quorum.metadata import records as metadata_records
from metadata_quorum.metadata.records import PASSED_OVER, RECORDS, NoOpRecord

MEASURED_BY: Final = "4.1.0"
NEWER: Final = "4.3.1"
GOLDEN: Final = Path(__file__).parent / "kafka_records"
SOURCE: Final = Path(__file__).parents[1] / "compat" / "java" / "KafkaRecords.java"

OTHER_GROUPS: Final = ("share_", "streams_", "consumer_group_partition_metadata")
"""Of groups that only Apache Kafka has, and what Kafka itself no longer writes."""
NEWEST_WRITTEN: Final = {"offset_commit": 4, "legacy_offset_commit": None, "group_metadata": 3}
"""As Kafka 4.1's group coordinator writes them (and not a legacy key); others in their only version."""


class Golden(NamedTuple):
    topic: str
    kind: str
    version: int
    fields: str
    key: bytes
    value: bytes

    @property
    def name(self) -> str:
        return f"{self.kind}-{self.version}-{self.fields}"


def golden(topic: str, kafka_version: str = MEASURED_BY) -> list[Golden]:
    found = []
    for line in (GOLDEN / f"{kafka_version}.txt").read_text().splitlines():
        of, kind, version, fields, key, value = line.split()
        if of == topic:
            bytes_of = [b"" if each == "-" else bytes.fromhex(each) for each in (key, value)]
            found.append(Golden(of, kind, int(version), fields, bytes_of[0], bytes_of[1]))
    return found


def name(record: Golden) -> str:
    return record.name


@pytest.mark.parametrize("record", golden("__cluster_metadata"), ids=name)
def test_cluster_metadata(record: Golden) -> None:
    found = metadata_records.decode(record.value)
    class_name = "".join(word.capitalize() for word in record.kind.split("_"))
    if class_name in PASSED_OVER.values():
        assert found == NoOpRecord()
        return
    assert type(found).__name__ == class_name
    if record.version == RECORDS.version(type(found)):
        assert metadata_records.encode(found) == record.value


@pytest.mark.parametrize("record", golden("__consumer_offsets"), ids=name)
def test_consumer_offsets(record: Golden) -> None:
    found = group_records.decode(record.key, record.value)
    if record.kind.startswith(OTHER_GROUPS):
        assert found is None
        return
    assert found is not None
    again = group_records.encode(found)
    assert group_records.decode(*again) == found
    if record.version == NEWEST_WRITTEN.get(record.kind, record.version):
        assert again == (record.key, record.value)


@pytest.mark.parametrize("record", golden("__transaction_state"), ids=name)
def test_transaction_state(record: Golden) -> None:
    found = transaction_records.decode(record.key, record.value)
    assert found is not None
    again = transaction_records.encode(found)
    assert transaction_records.decode(*again) == found
    if record.version == 1 and record.fields == "set":  # where there are no partitions, Kafka's list is null
        assert again == (record.key, record.value)


BEFORE: Final = {each.name: each for each in golden("__consumer_offsets")}


@pytest.mark.parametrize("record", golden("__consumer_offsets", NEWER), ids=name)
def test_what_a_newer_apache_kafka_adds_is_passed_over(record: Golden) -> None:
    before = BEFORE[record.name]
    assert group_records.decode(record.key, record.value) == group_records.decode(before.key, before.value)


@pytest.mark.long
@pytest.mark.kafka
@pytest.mark.parametrize("kafka_version", [MEASURED_BY, NEWER], indirect=True, scope="session")
def test_apache_kafka_still_writes_them_so(kafka_version: str, kafka_jars: Path) -> None:
    if not list(kafka_jars.glob(f"kafka-clients-{kafka_version}.jar")):
        pytest.skip(f"the jars are not those of Apache Kafka {kafka_version}")
    command = ["java", "-cp", f"{kafka_jars}/*", str(SOURCE)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600, check=True)
    assert done.stdout == (GOLDEN / f"{kafka_version}.txt").read_text()
