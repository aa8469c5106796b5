"""A group as it would be: a decision writes its records here, one by one, and reads on from the outcome.

Nothing of it is true before the records are in the log; then the group itself replays them, and if
they could not be appended the draft is dropped. Who reads on after the first record pays for a copy of the
group; most heartbeats write none, or the one record that ends the decision.

    membership, rebalance, classic_members -> Draft -> records of a decision
"""

from __future__ import annotations

from dataclasses import replace
from typing import Final

from data_plane.coordinator.groups.assignment import Assignment, as_stored
from data_plane.coordinator.groups.consumer.state import ConsumerGroupMember, ConsumerGroupState
from data_plane.coordinator.groups.consumer_records import (
    ConsumerGroupRecord,
    ConsumerGroupRecordType,
    CurrentAssignment,
    GroupEpoch,
    MemberMetadata,
    ResolvedRegex,
    TargetAssignment,
    TargetAssignmentEpoch,
    Value,
)

_OF_MEMBER: Final = (
    ConsumerGroupRecordType.CURRENT,
    ConsumerGroupRecordType.TARGET,
    ConsumerGroupRecordType.MEMBER,
)
_RECORD_BYTES: Final = 40
"""What a tombstone takes besides the names in its key, at most."""


def removal_bytes(group_id: str, member_id: str) -> int:
    """What `erase_member` takes in a batch."""
    return len(_OF_MEMBER) * (_RECORD_BYTES + len(group_id.encode()) + len(member_id.encode()))


class Draft:
    """See the module."""

    def __init__(self, group_id: str, state: ConsumerGroupState) -> None:
        self.group_id = group_id
        self.records: list[ConsumerGroupRecord] = []
        self._state = state
        self._replayed = 0
        """How many of the records `_state` has."""

    @property
    def state(self) -> ConsumerGroupState:
        """With all that has been written; for reading."""
        if self._replayed < len(self.records):
            if not self._replayed:
                self._state = self._state.copy()
            for record in self.records[self._replayed :]:
                self._state.replay(record)
            self._replayed = len(self.records)
        return self._state

    def write_group(self, epoch: int, metadata_hash: int) -> None:
        self._write(ConsumerGroupRecordType.GROUP, "", GroupEpoch(epoch, metadata_hash))

    def write_member(self, member_id: str, metadata: MemberMetadata) -> None:
        self._write(ConsumerGroupRecordType.MEMBER, member_id, metadata)

    def write_target_epoch(self, epoch: int) -> None:
        self._write(ConsumerGroupRecordType.TARGET_EPOCH, "", TargetAssignmentEpoch(epoch))

    def write_target(self, member_id: str, target: Assignment) -> None:
        self._write(ConsumerGroupRecordType.TARGET, member_id, TargetAssignment(as_stored(target)))

    def write_current(self, member: ConsumerGroupMember) -> None:
        """The member's epochs, state and partitions."""
        self._write(
            ConsumerGroupRecordType.CURRENT,
            member.member_id,
            CurrentAssignment(
                member.epoch,
                member.previous_epoch,
                member.state,
                as_stored(member.assigned),
                as_stored(member.pending_revocation),
            ),
        )

    def write_regex(self, regex: str, resolved: ResolvedRegex) -> None:
        self._write(ConsumerGroupRecordType.REGEX, regex, resolved)

    def erase_regex(self, regex: str) -> None:
        self._write(ConsumerGroupRecordType.REGEX, regex, None)

    def erase_member(self, member_id: str) -> None:
        for kind in _OF_MEMBER:
            self._write(kind, member_id, None)

    def replace_member(self, old: ConsumerGroupMember, new_id: str) -> ConsumerGroupMember:
        """A static member takes its place again under another id, as a joining member."""
        target = self.state.target_of(old.member_id)
        self.erase_member(old.member_id)
        self.write_member(new_id, old.metadata)
        self.write_target(new_id, target)
        self.write_current(replace(old, member_id=new_id, epoch=0, previous_epoch=0))
        return self.state.members[new_id]

    def _write(self, kind: ConsumerGroupRecordType, name: str, value: Value | None) -> None:
        self.records.append(ConsumerGroupRecord(kind, self.group_id, name, value))
