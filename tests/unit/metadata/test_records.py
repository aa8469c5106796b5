"""The bytes of metadata records, against bytes that Apache Kafka 4.1's own controller wrote."""

from __future__ import annotations

from uuid import UUID

import pytest

from metadata_quorum.foundation.batch import Record, decode_batch, encode_batch
from metadata_quorum.metadata import control_records
from metadata_quorum.metadata import records as r

# The first two batches of `__cluster_metadata-0` after `kafka-storage format` and a start (one node).
KAFKA_LEADER_CHANGE = bytes.fromhex(
    "0000000000000000 0000004f 00000001 02 f757a145 0020 00000000 000001a1fc13d809 000001a1fc13d809"
    "ffffffffffffffff ffff ffffffff 00000001 3a 00 00 00 08 00000002 26 0000 00000001 02 00000001 00"
    "02 00000001 00 00 00"
)

KAFKA_VALUES = {
    "011700010012 12426f6f747374726170207265636f726473": r.BeginTransactionRecord(name="Bootstrap records"),
    "010c0011 6d657461646174612e76657273696f6e 001b00": r.FeatureLevelRecord(
        name="metadata.version", feature_level=27
    ),
    "010400 04 01 14 6d696e2e696e73796e632e7265706c69636173 02 31 00": r.ConfigRecord(
        resource_type=4, resource_name="", name="min.insync.replicas", value="1"
    ),
    "01180000": r.EndTransactionRecord(),
    "010e00 02 0575736572 0275 00 1370726f64756365725f627974655f72617465 412e848000000000 00 00": (
        r.ClientQuotaRecord(
            entity=(r.QuotaEntity(entity_type="user", entity_name="u"),), key="producer_byte_rate", value=1e6
        )
    ),
}


@pytest.mark.row("Q3")
@pytest.mark.parametrize("hexed", KAFKA_VALUES)
def test_values_are_kafkas_own(hexed: str) -> None:
    value, record = bytes.fromhex(hexed), KAFKA_VALUES[hexed]
    assert r.decode(value) == record
    assert r.encode(record) == value


@pytest.mark.row("Q3")
def test_the_leader_change_batch_is_kafkas_own() -> None:
    voters = (control_records.Voter(voter_id=1),)
    message = control_records.LeaderChangeMessage(leader_id=1, voters=voters, granting_voters=voters)
    (record,) = decode_batch(KAFKA_LEADER_CHANGE)
    assert control_records.decode_control(record.key or b"", record.value or b"") == message
    key, value = control_records.encode_control(message)
    stamped = [Record(timestamp=record.timestamp, key=key, value=value)]
    assert encode_batch(stamped, leader_epoch=1, control=True) == KAFKA_LEADER_CHANGE


def test_older_versions_are_read_with_defaults() -> None:
    # RegisterBrokerRecord version 0: no migration flag, no shutdown flag, no directories.
    value = (
        bytes.fromhex("01 00 00 00000007")
        + UUID(int=5).bytes
        + bytes.fromhex("0000000000000009 01 01 00 01 00")
    )
    record = r.decode(value)
    assert record == r.RegisterBrokerRecord(broker_id=7, incarnation_id=UUID(int=5), broker_epoch=9)


def test_unknown_tags_are_skipped() -> None:
    fence = r.encode(r.FenceBrokerRecord(id=1, epoch=2))
    tagged = fence[:-1] + bytes.fromhex("01 63 02 aaaa")
    assert r.decode(tagged) == r.FenceBrokerRecord(id=1, epoch=2)


@pytest.mark.parametrize(
    "value",
    [
        b"",
        b"\x02\x0c\x00",  # frame version
        b"\x01\x7f\x00\x00",  # record type
        b"\x01\x0c\x01\x02a\x00\x01\x00",  # version
        b"\x01\x0c\x00\x00\x00\x01\x00",  # null name
        b"\x01\x0c\x00\xff\xff\xff\xff\x0fa",  # longer than what is there
        b"\x01\x0c\x00\x02\xff\x00\x01\x00",  # not UTF-8
        b"\x01\x14\x00\x00\x00",  # something left over
        b"\x01\x03\x00\x00\x00\x00\x00" + bytes(16) + b"\xff\xff\xff\xff\x07",  # an array of two billion
    ],
)
def test_malformed_values_are_value_errors(value: bytes) -> None:
    with pytest.raises(ValueError):
        r.decode(value)


@pytest.mark.parametrize("number", r.PASSED_OVER)
def test_a_record_that_means_nothing_here_only_moves_the_offset(number: int) -> None:
    assert r.decode(bytes([1, number, 0, *range(20)])) == r.NoOpRecord()
