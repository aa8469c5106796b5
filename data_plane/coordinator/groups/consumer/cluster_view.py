"""What a coordinator of groups sees of the cluster: topics and their sizes, and groups' own settings.

The publisher hands over each image (`take`); `topics_version` rises where topics were created, deleted
or have grown: so a group sees at the next heartbeat that its target may be stale.

    metadata_publisher -> GroupCoordinator -> here <- rebalance, group
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cached_property, lru_cache
from hashlib import blake2b
from typing import Final
from uuid import UUID

from data_plane.coordinator.groups.consumer.topic_patterns import TopicMatches
from metadata_quorum.foundation.model import ResourceType
from metadata_quorum.metadata.delta import MetadataDelta
from metadata_quorum.metadata.image import EMPTY_IMAGE, MetadataImage, TopicImage

_HASH_BYTES = 8
SPARE_NAMES: Final = 10_000
"""A member may name so many topics that are not there; what a group reads is gone through on the loop."""
SPARE_SUBSCRIPTIONS: Final = 4
"""So many different ones of a group may."""
SUBSCRIPTIONS: Final = 32
"""So many different ones may name all topics: where topics come and go, members that look for them every few
minutes differ all the time."""

PATTERNS: Final = 8
"""So many different ones of a group may match all topics."""
REMEMBERED: Final = 8
"""Lists of topics that have been looked up. Nearly all members of a group have one list, and groups with long
ones are few."""


class TopicsThere:
    """Those of some topics that exist. An answer takes a millisecond per thousand, once."""

    def __init__(self, topics: Iterable[TopicImage]) -> None:
        self._topics = {topic.name: (topic.id, len(topic.partitions)) for topic in topics}
        """By name; of the topics no more, which are kept for as long as nobody looks again."""

    @cached_property
    def names(self) -> frozenset[str]:
        return frozenset(self._topics)

    @cached_property
    def ids(self) -> frozenset[UUID]:
        return frozenset(self.sizes)

    @cached_property
    def sizes(self) -> Mapping[UUID, int]:
        """How many partitions each one has."""
        return dict(self._topics.values())

    @cached_property
    def metadata_hash(self) -> int:
        """Changes with what a group's target depends on: ids and sizes of its topics. 0 for none."""
        if not self._topics:
            return 0
        digest = blake2b(digest_size=_HASH_BYTES)
        for name, (topic_id, size) in sorted(self._topics.items()):
            digest.update(f"{name}\0{topic_id}\0{size}\0".encode())
        return int.from_bytes(digest.digest(), "big", signed=True)


class ClusterView:
    """The newest image that this broker has acted on."""

    def __init__(self, image: MetadataImage = EMPTY_IMAGE) -> None:
        self.image = image
        self.topics_version = 0
        self.matches = TopicMatches(lambda: self.image.topics_by_name.keys())
        self._there = lru_cache(REMEMBERED)(self._look_up)

    def take(self, delta: MetadataDelta, image: MetadataImage) -> None:
        before, self.image = self.image, image
        touched = [*delta.changed_topics, *delta.deleted_topics]
        if any(_size(before, topic_id) != _size(image, topic_id) for topic_id in touched):
            self.topics_version += 1
            self._there.cache_clear()
            names, names_now = _names(before, touched), _names(image, touched)
            self.matches.changed(created=names_now - names, deleted=names - names_now)

    @property
    def most_names(self) -> int:
        """That one subscription may have."""
        return len(self.image.topics_by_name) + SPARE_NAMES

    @property
    def most_names_together(self) -> int:
        """That the different subscriptions of one group may have."""
        return SUBSCRIPTIONS * len(self.image.topics_by_name) + SPARE_SUBSCRIPTIONS * SPARE_NAMES

    @property
    def most_matches_together(self) -> int:
        """Of all patterns of one group, each counted for itself: all are resolved anew at once."""
        return PATTERNS * len(self.image.topics_by_name) + SPARE_SUBSCRIPTIONS * SPARE_NAMES

    def most_matches(self, regex: str) -> int:
        """As far as is known without looking."""
        known = self.matches.is_known(regex)
        return len(self.matches.matching(regex)) if known else len(self.image.topics_by_name)

    def topic_id(self, name: str) -> UUID | None:
        topic = self.image.topic(name)
        return None if topic is None else topic.id

    def topic_name(self, topic_id: UUID) -> str | None:
        topic = self.image.topic(topic_id)
        return None if topic is None else topic.name

    def there(self, names: frozenset[str]) -> TopicsThere:
        """Equal names are looked up once, until topics change."""
        return self._there(names)

    def _look_up(self, names: frozenset[str]) -> TopicsThere:
        return TopicsThere(filter(None, map(self.image.topic, names)))

    def group_config(self, group_id: str) -> Mapping[str, str]:
        return self.image.config(ResourceType.GROUP, group_id)


def _names(image: MetadataImage, topic_ids: Iterable[UUID]) -> set[str]:
    return {topic.name for topic_id in topic_ids if (topic := image.topic(topic_id)) is not None}


def _size(image: MetadataImage, topic_id: UUID) -> int:
    topic = image.topic(topic_id)
    return 0 if topic is None else len(topic.partitions)
