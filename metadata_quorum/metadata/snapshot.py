"""An image as a checkpoint in Kafka's format, and back.

    control batch: SnapshotHeaderRecord | data batches: the records that build the image from
    nothing | control batch: SnapshotFooterRecord

Offsets count from 0 within the file; every batch carries the epoch of the snapshot. The order of
the records is fixed (features first, then sorted), so equal images give equal bytes.

Path of the data: state_machine.snapshot() -> bytes here -> Raft's snapshot and metadata_log's
`.checkpoint` file -> restore() or a follower's FetchSnapshot -> image.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Final
from uuid import UUID

from metadata_quorum.foundation.batch import Record, check_crc, decode_batch, encode_batch, iter_headers
from metadata_quorum.foundation.features import METADATA_VERSION, check_supported
from metadata_quorum.foundation.model import BrokerRegistration, ControllerRegistration, PartitionRegistration
from metadata_quorum.foundation.primitives import Buffer
from metadata_quorum.metadata.control_records import (
    SnapshotFooterRecord,
    SnapshotHeaderRecord,
    decode_control,
    encode_control,
)
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import (
    ClientQuotaRecord,
    ConfigRecord,
    FeatureLevelRecord,
    MetadataRecord,
    PartitionRecord,
    ProducerIdsRecord,
    QuotaEntity,
    RegisterBrokerRecord,
    RegisterControllerRecord,
    TopicRecord,
    decode,
    encode,
    endpoint_fields,
    feature_fields,
)

RECORDS_PER_BATCH: Final = 1024


def image_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    """The records that build `image` from nothing, in a fixed order."""
    # metadata.version comes first: Kafka's readers interpret all others by it.
    for name in sorted(image.features, key=lambda n: (n != METADATA_VERSION, n)):
        yield FeatureLevelRecord(name=name, feature_level=image.features[name])
    for broker_id in sorted(image.brokers):
        yield broker_record(image.brokers[broker_id])
    for controller_id in sorted(image.controllers):
        yield controller_record(image.controllers[controller_id])
    for name in sorted(image.topics_by_name):
        topic = image.topics_by_name[name]
        yield TopicRecord(name=name, topic_id=topic.id)
        for partition_id in sorted(topic.partitions):
            yield _partition_record(topic.partitions[partition_id], partition_id, topic.id)
    for kind, resource in sorted(image.configs):
        for key, value in sorted(image.configs[kind, resource].items()):
            yield ConfigRecord(resource_type=kind, resource_name=resource, name=key, value=value)
    yield from _quota_records(image)
    if image.next_producer_id:
        yield ProducerIdsRecord(broker_id=-1, broker_epoch=-1, next_producer_id=image.next_producer_id)
    for acl_id in sorted(image.acls):
        yield image.acls[acl_id]
    for credential in sorted(image.scram):
        yield image.scram[credential]


def broker_record(broker: BrokerRegistration) -> RegisterBrokerRecord:
    """A broker's current state in full."""
    return RegisterBrokerRecord(
        broker_id=broker.broker_id,
        incarnation_id=broker.incarnation_id,
        broker_epoch=broker.broker_epoch,
        end_points=endpoint_fields(broker.endpoints),
        features=feature_fields(broker.features),
        rack=broker.rack,
        fenced=broker.fenced,
        in_controlled_shutdown=broker.in_controlled_shutdown,
        log_dirs=broker.log_dirs,
    )


def controller_record(controller: ControllerRegistration) -> RegisterControllerRecord:
    """A controller in full."""
    return RegisterControllerRecord(
        controller_id=controller.controller_id,
        incarnation_id=controller.incarnation_id,
        zk_migration_ready=controller.zk_migration_ready,
        end_points=endpoint_fields(controller.endpoints),
        features=feature_fields(controller.features),
    )


def _partition_record(partition: PartitionRegistration, partition_id: int, topic_id: UUID) -> PartitionRecord:
    return PartitionRecord(
        partition_id=partition_id,
        topic_id=topic_id,
        replicas=partition.replicas,
        isr=partition.isr,
        removing_replicas=partition.removing_replicas,
        adding_replicas=partition.adding_replicas,
        leader=partition.leader,
        leader_epoch=partition.leader_epoch,
        partition_epoch=partition.partition_epoch,
        directories=partition.directories,
        leader_recovery_state=partition.leader_recovery_state,
        eligible_leader_replicas=partition.elr or None,
        last_known_elr=partition.last_known_elr or None,
    )


def _quota_records(image: MetadataImage) -> Iterator[MetadataRecord]:
    for entity in sorted(image.quotas, key=str):
        coordinates = tuple(QuotaEntity(entity_type=kind, entity_name=name) for kind, name in entity)
        for key, value in sorted(image.quotas[entity].items()):
            yield ClientQuotaRecord(entity=coordinates, key=key, value=value)


def encode_checkpoint(image: MetadataImage) -> bytes:
    """The bytes of a `.checkpoint` file."""
    epoch, stamp = max(image.epoch, 0), max(image.timestamp_ms, 0)
    batches = [_control_batch(SnapshotHeaderRecord(last_contained_log_timestamp=stamp), 0, epoch, stamp)]
    values = [encode(record) for record in image_records(image)]
    offset = 1
    for start in range(0, len(values), RECORDS_PER_BATCH):
        chunk = [Record(timestamp=stamp, value=value) for value in values[start : start + RECORDS_PER_BATCH]]
        batches.append(encode_batch(chunk, base_offset=offset, leader_epoch=epoch))
        offset += len(chunk)
    batches.append(_control_batch(SnapshotFooterRecord(), offset, epoch, stamp))
    return b"".join(batches)


def _control_batch(
    record: SnapshotHeaderRecord | SnapshotFooterRecord, offset: int, epoch: int, stamp: int
) -> bytes:
    key, value = encode_control(record)
    records = [Record(timestamp=stamp, key=key, value=value)]
    return encode_batch(records, base_offset=offset, leader_epoch=epoch, control=True)


def decode_checkpoint(data: Buffer, end_offset: int, epoch: int) -> MetadataImage:
    """The image of a checkpoint that covers everything below `end_offset`.

    Raises `ValueError` where it is torn or damaged: a footer must end it, every CRC must match. `FatalError`
    where it has what only a newer version knows.
    """
    delta = MetadataDelta(EMPTY_IMAGE)
    complete = False
    position = 0
    for pos, header in iter_headers(data):
        if not check_crc(data, pos, header):
            raise ValueError(f"checkpoint: wrong CRC in the batch at byte {pos}")
        for record in decode_batch(data, pos):
            if not header.is_control:
                delta.replay(_record(record.value or b"", delta.changed_features))
                continue
            control = decode_control(record.key or b"", record.value or b"")
            if isinstance(control, SnapshotHeaderRecord):
                delta.timestamp_ms = control.last_contained_log_timestamp
            complete = isinstance(control, SnapshotFooterRecord)
        position = pos + header.size
    if not complete or position != len(data):
        raise ValueError("checkpoint: cut short, its footer is missing")
    delta.offset, delta.epoch = end_offset - 1, epoch
    return delta.apply()


def _record(value: bytes, levels: Mapping[str, int]) -> MetadataRecord:
    """`levels`: of the features, whose records come first."""
    try:
        return decode(value)
    except ValueError:
        check_supported(levels)
        raise
