"""How much each command changes or reads: whether it is decided on the loop, and how many in one turn.

Counted in partitions that change, some 25 microseconds each. What is only looked at weighs a fraction. The
length of a command means little: creating ten thousand partitions takes 38 bytes.
"""

from __future__ import annotations

from typing import Final

from metadata_quorum.decisions.acls import is_wide
from metadata_quorum.foundation.features import ELR_VERSION
from metadata_quorum.metadata.image import MetadataImage
from metadata_quorum.protocol import commands as c

_LOOKED_AT: Final = 16
"""This many names or entries that are read weigh as much as one partition that changes."""
_CHECKED: Final = 128
"""This many bytes of configured values that are checked weigh one: a list's items are looked at each."""
_EACH: Final = 8
"""Reading any command, writing a batch, and telling this node's broker of it."""
_TOPICS_COPIED: Final = 1000
"""The next image copies the map of all topics: this many weigh one."""


def any_command(image: MetadataImage) -> int:
    """What every command weighs, before what it is about."""
    return _EACH + len(image.topics_by_name) // _TOPICS_COPIED


def claim(image: MetadataImage, command: c.ClaimLeadership) -> int:
    return len(command.bootstrap_users)


def nothing_more(image: MetadataImage, command: c.Command[object]) -> int:
    return 0


def all_partitions(image: MetadataImage, command: c.Command[object]) -> int:
    return image.partition_count


def assign_replicas(image: MetadataImage, command: c.AssignReplicasToDirs) -> int:
    return len(command.assignments)


def create_topics(image: MetadataImage, command: c.CreateTopics) -> int:
    made = sum(1 + max(t.partitions, len(t.assignments), 0) + len(t.configs) for t in command.topics)
    blurred = any("." in topic.name or "_" in topic.name for topic in command.topics)
    return made + (len(image.topics_by_name) // _LOOKED_AT if blurred else 0)


def delete_topics(image: MetadataImage, command: c.DeleteTopics) -> int:
    topics = (image.topics_by_id.get(topic_id) for topic_id in command.topic_ids)
    return sum(1 if topic is None else len(topic.partitions) for topic in topics)


def create_partitions(image: MetadataImage, command: c.CreatePartitions) -> int:
    known = ((image.topics_by_name.get(topic.name), topic.count) for topic in command.topics)
    return sum(1 if topic is None else max(1, count - len(topic.partitions)) for topic, count in known)


def alter_partitions(image: MetadataImage, command: c.AlterPartitions) -> int:
    return len(command.changes)


def elect_leaders(image: MetadataImage, command: c.ElectLeaders) -> int:
    return image.partition_count if command.all_partitions else len(command.partitions)


def alter_reassignments(image: MetadataImage, command: c.AlterReassignments) -> int:
    return 2 * len(command.reassignments)


def incremental_alter_configs(image: MetadataImage, command: c.IncrementalAlterConfigs) -> int:
    """All values of a resource are checked, those that stay as they are, too."""
    asked = sum(1 + len(change.operations) for change in command.changes)
    kept = (image.config(change.resource_type, change.resource_name) for change in command.changes)
    checked = sum(len(values) // _LOOKED_AT + sum(map(len, values.values())) // _CHECKED for values in kept)
    return image.partition_count + asked + checked


def alter_configs(image: MetadataImage, command: c.AlterConfigs) -> int:
    return image.partition_count + sum(1 + len(resource.configs) for resource in command.resources)


def alter_client_quotas(image: MetadataImage, command: c.AlterClientQuotas) -> int:
    return sum(1 + len(alteration.operations) for alteration in command.alterations)


def update_features(image: MetadataImage, command: c.UpdateFeatures) -> int:
    levels = len(command.updates) * (1 + len(image.brokers) + len(image.controllers)) + len(image.configs)
    return levels + (image.partition_count if any(u.name == ELR_VERSION for u in command.updates) else 0)


def alter_user_scram(image: MetadataImage, command: c.AlterUserScram) -> int:
    return len(command.deletions) + len(command.upsertions)


def create_acls(image: MetadataImage, command: c.CreateAcls) -> int:
    return len(command.acls) + len(image.acls) // _LOOKED_AT


def delete_acls(image: MetadataImage, command: c.DeleteAcls) -> int:
    wide = sum(map(is_wide, command.filters))
    return len(command.filters) + len(image.acls) * (_LOOKED_AT + wide) // _LOOKED_AT
