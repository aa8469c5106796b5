"""What the metadata of so many partitions costs by itself: a snapshot, its restore, a fence, the difference.

In this process and without a cluster, in CPU time. A node does all of it beside its loop.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import TypeVar
from uuid import UUID

from metadata_quorum.decisions.brokers import fence
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage
from metadata_quorum.metadata.records import PartitionRecord, RegisterBrokerRecord, TopicRecord
from metadata_quorum.metadata.snapshot import decode_checkpoint, encode_checkpoint

T = TypeVar("T")

TOPIC_PARTITIONS = 1000
FENCED = 1
_FIRST_ID = 1 << 64


def image_costs(partitions: int, replication: int, brokers: int) -> dict[str, float]:
    """CPU seconds by step; "bytes" of the snapshot."""
    image = image_of(partitions, replication, brokers)
    encoded_s, checkpoint = _timed(lambda: encode_checkpoint(image))
    decoded_s, _ = _timed(lambda: decode_checkpoint(checkpoint, image.offset + 1, image.epoch))
    between_s, _ = _timed(lambda: MetadataDelta.between(EMPTY_IMAGE, image))
    fenced_s, records = _timed(lambda: len(fence(image, image.brokers[FENCED]).records))
    return {
        "snapshot": encoded_s,
        "restore": decoded_s,
        "difference": between_s,
        "fence": fenced_s,
        "fence.records": records,
        "bytes": len(checkpoint),
    }


def image_of(partitions: int, replication: int, brokers: int) -> MetadataImage:
    """Topics of a thousand partitions, their replicas on the brokers in turn."""
    delta = MetadataDelta(EMPTY_IMAGE)
    for broker in range(1, brokers + 1):
        delta.replay(
            RegisterBrokerRecord(
                broker_id=broker, incarnation_id=_uuid(broker), broker_epoch=broker, fenced=False
            )
        )
    for number in range(partitions):
        topic, partition = divmod(number, TOPIC_PARTITIONS)
        topic_id = _uuid(brokers + 1 + topic)
        if partition == 0:
            delta.replay(TopicRecord(name=f"topic-{topic}", topic_id=topic_id))
        replicas = tuple(1 + (number + i) % brokers for i in range(replication))
        delta.replay(
            PartitionRecord(
                partition_id=partition,
                topic_id=topic_id,
                replicas=replicas,
                isr=replicas,
                leader=replicas[0],
                leader_epoch=0,
                partition_epoch=0,
            )
        )
    delta.offset, delta.epoch = partitions, 1
    return delta.apply()


def _uuid(number: int) -> UUID:
    return UUID(int=_FIRST_ID + number)


def _timed(work: Callable[[], T]) -> tuple[float, T]:
    before = time.process_time()
    result = work()
    return time.process_time() - before, result
