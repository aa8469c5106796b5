"""Topics as a coordinator's view of the cluster has them, changed by metadata records."""

from __future__ import annotations

from uuid import UUID

from data_plane.coordinator.groups.assignment import TopicIdPartition
from data_plane.coordinator.groups.consumer.cluster_view import ClusterView
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.records import (
    ConfigRecord,
    MetadataRecord,
    PartitionRecord,
    RemoveTopicRecord,
    TopicRecord,
)


class Topics:
    """`view` is what groups are given."""

    def __init__(self) -> None:
        self.view = ClusterView()
        self._created = 0

    def create(self, name: str, partitions: int) -> UUID:
        self._created += 1
        topic_id = UUID(int=self._created)
        self._take(TopicRecord(name=name, topic_id=topic_id), *_partitions(topic_id, range(partitions)))
        return topic_id

    def grow(self, name: str, partitions: int) -> None:
        self._take(*_partitions(self.id(name), range(self.size(name), partitions)))

    def delete(self, name: str) -> None:
        self._take(RemoveTopicRecord(topic_id=self.id(name)))

    def set_group(self, group_id: str, **config: str) -> None:
        for name, value in config.items():
            self._take(
                ConfigRecord(
                    resource_type=ResourceType.GROUP,
                    resource_name=group_id,
                    name=name.replace("_", "."),
                    value=value,
                )
            )

    def id(self, name: str) -> UUID:
        topic_id = self.view.topic_id(name)
        assert topic_id is not None
        return topic_id

    def size(self, name: str) -> int:
        """How many partitions it has."""
        return sum(self.view.there(frozenset({name})).sizes.values())

    def partitions(self) -> dict[str, set[TopicIdPartition]]:
        return {
            name: {(topic.id, number) for number in topic.partitions}
            for name, topic in self.view.image.topics_by_name.items()
        }

    def named(self, partition: TopicIdPartition) -> str:
        return f"{self.view.topic_name(partition[0]) or 'gone'}-{partition[1]}"

    def _take(self, *records: MetadataRecord) -> None:
        delta = MetadataDelta(self.view.image)
        for record in records:
            delta.replay(record)
        self.view.take(delta, delta.apply())


def _partitions(topic_id: UUID, numbers: range) -> list[PartitionRecord]:
    return [
        PartitionRecord(
            partition_id=number,
            topic_id=topic_id,
            replicas=(1,),
            isr=(1,),
            leader=1,
            leader_epoch=0,
            partition_epoch=0,
        )
        for number in numbers
    ]
