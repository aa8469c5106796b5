"""The end of a group of the consumer protocol: it is deleted, or becomes a classic one.

It may have thousands of members, and three records of each. Only the last tombstone is replayed, the group's.

    group, migration -> here
"""

from __future__ import annotations

from collections.abc import Iterable

from data_plane.coordinator.groups.consumer.state import ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import (
    ConsumerGroupRecord,
    ConsumerGroupRecordType,
    keys_of,
)
from data_plane.coordinator.groups.records import CoordinatorRecord, EncodedRecord


def tombstones(group_id: str, state: ConsumerGroupState) -> list[CoordinatorRecord]:
    """For everything."""
    kinds = ConsumerGroupRecordType
    names: dict[ConsumerGroupRecordType, Iterable[str]] = {
        kinds.CURRENT: state.members,
        kinds.TARGET: state.members,
        kinds.TARGET_EPOCH: ("",),
        kinds.MEMBER: state.members,
        kinds.REGEX: state.regexes,
    }
    return [
        *(
            EncodedRecord(group_id, key, None)
            for kind, named in names.items()
            for key in keys_of(kind, group_id, named)
        ),
        ConsumerGroupRecord(kinds.GROUP, group_id, "", None),
    ]
