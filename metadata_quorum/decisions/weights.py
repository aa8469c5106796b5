"""How much a command changes or reads: whether it is decided on the loop, and how many in one turn.

Counted in partitions that change, some 25 microseconds each. What is only looked at weighs a fraction. The
length of a command means little: to create ten thousand partitions takes 38 bytes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any, Final

from metadata_quorum.decisions.acls import is_wide
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol import commands as c

_LOOKED_AT: Final = 16
"""This many names or entries that are read weigh as much as one partition that changes."""
_EACH: Final = 4
"""Reading any command, and writing a batch."""
_TOPICS_COPIED: Final = 1000
"""The next image copies the map of all topics: this many weigh one."""


def weight(image: MetadataImage, command: c.Command[object]) -> int:
    """The weight of `command` when it is decided on `image`; QUICK_WEIGHT takes some 15 ms."""
    every = _EACH + len(image.topics_by_name) // _TOPICS_COPIED
    return every + WEIGHTS[type(command)](image, command)


def _nothing_more(image: MetadataImage, command: c.Command[object]) -> int:
    return 0


def _all_partitions(image: MetadataImage, command: c.Command[object]) -> int:
    return image.partition_count


def _create_topics(image: MetadataImage, command: c.CreateTopics) -> int:
    made = sum(1 + max(t.partitions, len(t.assignments), 0) + len(t.configs) for t in command.topics)
    blurred = any("." in topic.name or "_" in topic.name for topic in command.topics)
    return made + (len(image.topics_by_name) // _LOOKED_AT if blurred else 0)


def _delete_topics(image: MetadataImage, command: c.DeleteTopics) -> int:
    topics = (image.topics_by_id.get(topic_id) for topic_id in command.topic_ids)
    return sum(1 if topic is None else len(topic.partitions) for topic in topics)


def _create_partitions(image: MetadataImage, command: c.CreatePartitions) -> int:
    known = ((image.topics_by_name.get(topic.name), topic.count) for topic in command.topics)
    return sum(1 if topic is None else max(1, count - len(topic.partitions)) for topic, count in known)


def _elect_leaders(image: MetadataImage, command: c.ElectLeaders) -> int:
    return image.partition_count if command.all_partitions else len(command.partitions)


def _incremental_alter_configs(image: MetadataImage, command: c.IncrementalAlterConfigs) -> int:
    return image.partition_count + sum(len(change.operations) for change in command.changes)


def _alter_configs(image: MetadataImage, command: c.AlterConfigs) -> int:
    return image.partition_count + sum(1 + len(resource.configs) for resource in command.resources)


def _update_features(image: MetadataImage, command: c.UpdateFeatures) -> int:
    return len(command.updates) * (1 + len(image.brokers) + len(image.controllers))


def _create_acls(image: MetadataImage, command: c.CreateAcls) -> int:
    return len(command.acls) + len(image.acls) // _LOOKED_AT


def _delete_acls(image: MetadataImage, command: c.DeleteAcls) -> int:
    wide = sum(map(is_wide, command.filters))
    return len(command.filters) + len(image.acls) * (_LOOKED_AT + wide) // _LOOKED_AT


WEIGHTS: Final[Mapping[type[c.Command[object]], Callable[[MetadataImage, Any], int]]] = {
    c.ClaimLeadership: lambda image, command: len(command.bootstrap_users),
    c.RegisterController: _nothing_more,
    c.RegisterBroker: _all_partitions,
    c.UnregisterBroker: _all_partitions,
    c.FenceBroker: _all_partitions,
    c.UnfenceBroker: _all_partitions,
    c.BeginControlledShutdown: _all_partitions,
    c.FailLogDirs: _all_partitions,
    c.AssignReplicasToDirs: lambda image, command: len(command.assignments),
    c.CreateTopics: _create_topics,
    c.DeleteTopics: _delete_topics,
    c.CreatePartitions: _create_partitions,
    c.AlterPartitions: lambda image, command: len(command.changes),
    c.ElectLeaders: _elect_leaders,
    c.AlterReassignments: lambda image, command: len(command.reassignments),
    c.IncrementalAlterConfigs: _incremental_alter_configs,
    c.AlterConfigs: _alter_configs,
    c.AllocateProducerIds: _nothing_more,
    c.AlterClientQuotas: lambda image, command: sum(1 + len(a.operations) for a in command.alterations),
    c.UpdateFeatures: _update_features,
    c.AlterUserScram: lambda image, command: len(command.deletions) + len(command.upsertions),
    c.CreateAcls: _create_acls,
    c.DeleteAcls: _delete_acls,
}
