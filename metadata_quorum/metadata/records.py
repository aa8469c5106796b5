"""The records of `__cluster_metadata`, in Apache Kafka's own encoding.

Names, keys, versions, fields, tags and defaults are those of Kafka 4.1's message schemas; a
record is always written in the version named in its row and read in any version up to it.

    frame of a metadata record's value:
        uvarint 1            frame version
        uvarint api key      which record
        uvarint version      of its fields
        struct               flexible encoding, see foundation/codec.py

On the path of the data: a decision yields these dataclasses, metadata_log.py stores their bytes,
delta.py replays them.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Annotated, Final, cast

from metadata_quorum.foundation.codec import (
    Bool,
    Bytes,
    Float64,
    Int8,
    Int16,
    Int32,
    Int32s,
    Int64,
    NullableInt32s,
    NullableString,
    NullableUuids,
    SchemaRegistry,
    Since,
    String,
    Tag,
    UInt16,
    Uuid,
    Uuids,
    decode_with,
)
from metadata_quorum.foundation.model import Endpoint, FeatureRange
from metadata_quorum.foundation.primitives import Buffer, Reader, uvarint

FRAME_VERSION: Final = 1
NO_LEADER_CHANGE: Final = -2
"""PartitionChangeRecord.leader where the leader stays (and with it the leader epoch)."""


PASSED_OVER: Final = {
    10: "DelegationTokenRecord",
    21: "ZkMigrationStateRecord",
    26: "RemoveDelegationTokenRecord",
}
"""Apache Kafka's controllers write them; our brokers have neither delegation tokens nor ZooKeeper."""

RECORDS: Final = SchemaRegistry("metadata record")
"""Record types by Kafka's api key, in the version that is written."""


class MetadataRecord:
    """Anything that `__cluster_metadata` may hold as a data record."""

    __slots__ = ()


# -- brokers and controllers --------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class EndpointField:
    """One listener in a registration."""

    name: String
    host: String
    port: UInt16
    security_protocol: Int16


@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureField:
    """Levels of a feature that a node supports."""

    name: String
    min_supported_version: Int16
    max_supported_version: Int16


def endpoint_fields(endpoints: Sequence[Endpoint]) -> tuple[EndpointField, ...]:
    """A node's listeners as records and commands carry them."""
    return tuple(
        EndpointField(name=e.name, host=e.host, port=e.port, security_protocol=e.security_protocol)
        for e in endpoints
    )


def feature_fields(features: Sequence[FeatureRange]) -> tuple[FeatureField, ...]:
    """A node's features, likewise."""
    return tuple(
        FeatureField(
            name=f.name,
            min_supported_version=f.min_supported_version,
            max_supported_version=f.max_supported_version,
        )
        for f in features
    )


def endpoints_of(fields: Sequence[EndpointField]) -> tuple[Endpoint, ...]:
    """What `endpoint_fields` was made of."""
    return tuple(Endpoint(e.name, e.host, e.port, e.security_protocol) for e in fields)


def features_of(fields: Sequence[FeatureField]) -> tuple[FeatureRange, ...]:
    """What `feature_fields` was made of."""
    return tuple(FeatureRange(f.name, f.min_supported_version, f.max_supported_version) for f in fields)


@RECORDS.enter(0, version=3)
@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterBrokerRecord(MetadataRecord):
    """A new incarnation of a broker, or (in a snapshot) its current state."""

    broker_id: Int32
    is_migrating_zk_broker: Annotated[Bool, Since(2)] = False
    incarnation_id: Uuid
    broker_epoch: Int64
    end_points: tuple[EndpointField, ...] = ()
    features: tuple[FeatureField, ...] = ()
    rack: NullableString = None
    fenced: Bool = True
    in_controlled_shutdown: Annotated[Bool, Since(1)] = False
    log_dirs: Annotated[Uuids, Since(3), Tag(0)] = ()


@RECORDS.enter(1)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnregisterBrokerRecord(MetadataRecord):
    """The broker is removed from the metadata."""

    broker_id: Int32
    broker_epoch: Int64


@RECORDS.enter(7)
@dataclass(frozen=True, slots=True, kw_only=True)
class FenceBrokerRecord(MetadataRecord):
    """Before BrokerRegistrationChangeRecord; read, never written."""

    id: Int32
    epoch: Int64


@RECORDS.enter(8)
@dataclass(frozen=True, slots=True, kw_only=True)
class UnfenceBrokerRecord(MetadataRecord):
    """Before BrokerRegistrationChangeRecord; read, never written."""

    id: Int32
    epoch: Int64


@RECORDS.enter(17, version=2)
@dataclass(frozen=True, slots=True, kw_only=True)
class BrokerRegistrationChangeRecord(MetadataRecord):
    """Fenced: 1 fences, -1 unfences, 0 leaves it; InControlledShutdown: 1 begins it."""

    broker_id: Int32
    broker_epoch: Int64
    fenced: Annotated[Int8, Tag(0)] = 0
    in_controlled_shutdown: Annotated[Int8, Since(1), Tag(1)] = 0
    log_dirs: Annotated[Uuids, Since(2), Tag(2)] = ()


@RECORDS.enter(27)
@dataclass(frozen=True, slots=True, kw_only=True)
class RegisterControllerRecord(MetadataRecord):
    """A controller registers its endpoints and features."""

    controller_id: Int32
    incarnation_id: Uuid
    zk_migration_ready: Bool = False
    end_points: tuple[EndpointField, ...] = ()
    features: tuple[FeatureField, ...] = ()


# -- topics and partitions ----------------------------------------------------


@RECORDS.enter(2)
@dataclass(frozen=True, slots=True, kw_only=True)
class TopicRecord(MetadataRecord):
    """A topic exists; its partitions follow."""

    name: String
    topic_id: Uuid


@RECORDS.enter(9)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveTopicRecord(MetadataRecord):
    """The topic and all its partitions are gone."""

    topic_id: Uuid


@RECORDS.enter(3, version=2)
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionRecord(MetadataRecord):
    """A partition in full: new, or (in a snapshot) its current state."""

    partition_id: Int32
    topic_id: Uuid
    replicas: Int32s
    isr: Int32s
    removing_replicas: Int32s = ()
    adding_replicas: Int32s = ()
    leader: Int32 = -1
    leader_epoch: Int32 = -1
    partition_epoch: Int32 = -1
    directories: Annotated[Uuids, Since(1)] = ()
    leader_recovery_state: Annotated[Int8, Tag(0)] = 0
    eligible_leader_replicas: Annotated[NullableInt32s, Since(2), Tag(1)] = None
    last_known_elr: Annotated[NullableInt32s, Since(2), Tag(2)] = None


@RECORDS.enter(5, version=2)
@dataclass(frozen=True, slots=True, kw_only=True)
class PartitionChangeRecord(MetadataRecord):
    """What changes in a partition; its epoch grows by one each time, and the leader epoch too
    where `leader` is not NO_LEADER_CHANGE (even if it names the same leader again)."""

    partition_id: Int32
    topic_id: Uuid
    isr: Annotated[NullableInt32s, Tag(0)] = None
    leader: Annotated[Int32, Tag(1)] = NO_LEADER_CHANGE
    replicas: Annotated[NullableInt32s, Tag(2)] = None
    removing_replicas: Annotated[NullableInt32s, Tag(3)] = None
    adding_replicas: Annotated[NullableInt32s, Tag(4)] = None
    leader_recovery_state: Annotated[Int8, Tag(5)] = -1
    eligible_leader_replicas: Annotated[NullableInt32s, Since(2), Tag(6)] = None
    last_known_elr: Annotated[NullableInt32s, Since(2), Tag(7)] = None
    directories: Annotated[NullableUuids, Since(1), Tag(8)] = None


@RECORDS.enter(28)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClearElrRecord(MetadataRecord):
    """Clear the eligible leader replicas of one topic, or of all where the name is empty."""

    topic_name: String


# -- configuration, features, producer ids ------------------------------------


@RECORDS.enter(4)
@dataclass(frozen=True, slots=True, kw_only=True)
class ConfigRecord(MetadataRecord):
    """One configuration value; null deletes it."""

    resource_type: Int8
    resource_name: String
    name: String
    value: NullableString


@RECORDS.enter(12)
@dataclass(frozen=True, slots=True, kw_only=True)
class FeatureLevelRecord(MetadataRecord):
    """The finalized level of a feature; 0 takes it away."""

    name: String
    feature_level: Int16


@RECORDS.enter(15)
@dataclass(frozen=True, slots=True, kw_only=True)
class ProducerIdsRecord(MetadataRecord):
    """A block of producer ids was allocated; the next one starts at `next_producer_id`."""

    broker_id: Int32
    broker_epoch: Int64
    next_producer_id: Int64


@RECORDS.enter(20)
@dataclass(frozen=True, slots=True, kw_only=True)
class NoOpRecord(MetadataRecord):
    """Only moves the offset."""


# -- transactions of records (Kafka's own controller writes them at bootstrap) ----


@RECORDS.enter(23)
@dataclass(frozen=True, slots=True, kw_only=True)
class BeginTransactionRecord(MetadataRecord):
    """The records up to the end marker count as one."""

    name: Annotated[NullableString, Tag(0)] = None


@RECORDS.enter(24)
@dataclass(frozen=True, slots=True, kw_only=True)
class EndTransactionRecord(MetadataRecord):
    """All of them count."""


@RECORDS.enter(25)
@dataclass(frozen=True, slots=True, kw_only=True)
class AbortTransactionRecord(MetadataRecord):
    """None of them counts."""

    reason: Annotated[NullableString, Tag(0)] = None


# -- security and quotas --------------------------------------------------------


@dataclass(frozen=True, slots=True, kw_only=True)
class QuotaEntity:
    """One coordinate of a quota, such as ("user", "alice"); a null name is the default."""

    entity_type: String
    entity_name: NullableString = None


@RECORDS.enter(14)
@dataclass(frozen=True, slots=True, kw_only=True)
class ClientQuotaRecord(MetadataRecord):
    """A quota is set or removed."""

    entity: tuple[QuotaEntity, ...]
    key: String
    value: Float64
    remove: Bool = False


@RECORDS.enter(11)
@dataclass(frozen=True, slots=True, kw_only=True)
class UserScramCredentialRecord(MetadataRecord):
    """What is stored of a password."""

    name: String
    mechanism: Int8
    salt: Bytes
    stored_key: Bytes
    server_key: Bytes
    iterations: Int32


@RECORDS.enter(22)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveUserScramCredentialRecord(MetadataRecord):
    """The credential is gone."""

    name: String
    mechanism: Int8


@RECORDS.enter(18)
@dataclass(frozen=True, slots=True, kw_only=True)
class AccessControlEntryRecord(MetadataRecord):
    """An access control entry."""

    id: Uuid
    resource_type: Int8
    resource_name: String
    pattern_type: Int8
    principal: String
    host: String
    operation: Int8
    permission_type: Int8


@RECORDS.enter(19)
@dataclass(frozen=True, slots=True, kw_only=True)
class RemoveAccessControlEntryRecord(MetadataRecord):
    """The entry is gone."""

    id: Uuid


def encode(record: MetadataRecord) -> bytes:
    """The value of a data record in `__cluster_metadata`."""
    out = bytearray(uvarint(FRAME_VERSION))
    row = RECORDS.write_type(out, record)
    row.schema.write(out, record, row.version)
    return bytes(out)


def decode(value: Buffer) -> MetadataRecord:
    """The inverse of `encode`; a record of Apache Kafka's that means nothing here is a NoOpRecord. Raises
    `ValueError` for anything else it could not have come from."""
    return decode_with(_read_framed, value)


def _read_framed(reader: Reader) -> MetadataRecord:
    frame = reader.uvarint()
    if frame != FRAME_VERSION:
        raise ValueError(f"frame version {frame}, only {FRAME_VERSION} is known")
    if reader.remaining and reader.buf[reader.pos] in PASSED_OVER:
        reader.take(reader.remaining)
        return NoOpRecord()
    schema, version = RECORDS.read_type(reader)
    return cast(MetadataRecord, schema.read(reader, version))
