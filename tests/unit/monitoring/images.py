"""Metadata of three brokers and a partition, for what is told of its changes."""

from __future__ import annotations

from uuid import UUID

from metadata_quorum.foundation.model import BrokerRegistration, PartitionRegistration
from metadata_quorum.metadata.image import MetadataImage, TopicImage

TOPIC = UUID(int=7)
ALL_IN_SYNC = PartitionRegistration((1, 2, 3), (1, 2, 3), leader=1, leader_epoch=0, partition_epoch=0)


def image(
    partition: PartitionRegistration | None = ALL_IN_SYNC, fenced: tuple[int, ...] = (), offset: int = 10
) -> MetadataImage:
    brokers = {i: BrokerRegistration(i, 1, UUID(int=i), fenced=i in fenced) for i in (1, 2, 3)}
    topics = {} if partition is None else {TOPIC: TopicImage("t", TOPIC, {0: partition})}
    return MetadataImage(
        offset=offset,
        epoch=1,
        timestamp_ms=1_000,
        brokers=brokers,
        topics_by_id=topics,
        topics_by_name={each.name: each for each in topics.values()},
    )
