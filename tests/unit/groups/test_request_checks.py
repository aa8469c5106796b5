"""Whether a classic group accepts a request, check by check."""

from __future__ import annotations

from typing import Any

import pytest

from data_plane.coordinator.groups.classic.group_metadata import ClassicGroupMetadata
from data_plane.coordinator.groups.classic.members import ClassicGroupMember, member_of
from data_plane.coordinator.groups.classic.request_checks import (
    check_commit,
    check_heartbeat,
    check_join,
    check_sync,
)
from data_plane.coordinator.groups.classic.states import ClassicGroupState
from data_plane.coordinator.groups.messages import (
    CommitOffsets,
    Heartbeat,
    JoinGroup,
    MemberProtocol,
    SyncGroup,
)
from data_plane.coordinator.state_machine import ProducerIdAndEpoch
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.group_driver import join


def group(state: ClassicGroupState = ClassicGroupState.STABLE) -> ClassicGroupMetadata:
    """`m` is a member, `s` a static one with instance id `i`; generation 3."""
    made = ClassicGroupMetadata("g", 0, state, generation=3, protocol_type="consumer", protocol="range")
    made.roster.add(member_of(join(), "m"))
    made.roster.add(member_of(join(instance_id="i"), "s"))
    return made


def test_joins() -> None:
    full = group()
    assert check_join(full, join(), 2) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert check_join(full, join(), 3) is ErrorCode.NONE
    assert check_join(full, join("m"), 2) is ErrorCode.NONE
    assert check_join(full, join(instance_id="i"), 2) is ErrorCode.NONE
    full.pending.set("p", 1.0)
    assert check_join(full, join(), 3) is ErrorCode.NONE  # its client may be gone
    assert check_join(full, join("p"), 3) is ErrorCode.NONE
    assert check_join(full, join("p"), 2) is ErrorCode.GROUP_MAX_SIZE_REACHED
    preparing = group(ClassicGroupState.PREPARING_REBALANCE)
    assert check_join(preparing, join("m"), 1) is ErrorCode.NONE
    assert check_join(preparing, join(), 1) is ErrorCode.NONE
    preparing.roster.park_join(next(iter(preparing.roster)), 1)
    assert check_join(preparing, join("m"), 1) is ErrorCode.NONE
    assert check_join(preparing, join("s"), 1) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert check_join(preparing, join(), 1) is ErrorCode.GROUP_MAX_SIZE_REACHED
    other = join(protocols=(MemberProtocol("sticky", b""),))
    assert check_join(full, other, 9) is ErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert check_join(group(ClassicGroupState.DEAD), join(), 9) is ErrorCode.COORDINATOR_NOT_AVAILABLE


def test_members_say_no_more_together_than_can_be_stored() -> None:
    """What they say is kept in memory, and sent to their leader in one answer."""

    def larger(member_id: str = "", *, metadata_bytes: int = 1000, **fields: Any) -> JoinGroup:
        protocols = (MemberProtocol("range", bytes(metadata_bytes)),)
        return join(member_id, protocols=protocols, max_record_bytes=1000, **fields)

    held = ClassicGroupMetadata("g", 0)
    allowed = []
    for number in range(10):
        allowed.append(check_join(held, larger(), 99) is ErrorCode.NONE)
        if allowed[-1]:
            held.roster.add(member_of(larger(instance_id=f"i{number}"), f"m{number}"))
            held.protocol_type = "consumer"
    assert allowed == [True] * 3 + [False] * 7  # four records, less what a protocol takes beside them
    assert check_join(held, larger("m0"), 99) is ErrorCode.NONE
    assert check_join(held, larger(instance_id="i0"), 99) is ErrorCode.NONE
    assert check_join(held, larger("m0", metadata_bytes=2000), 99) is ErrorCode.GROUP_MAX_SIZE_REACHED
    held.roster.change_protocols(next(iter(held.roster)), (MemberProtocol("range", b""),))
    assert check_join(held, larger(), 99) is ErrorCode.NONE
    held.roster.replace(list(held.roster)[:1], None)
    for each in held.roster:
        held.roster.remove(each)
    assert held.roster.protocol_bytes == 0


@pytest.mark.parametrize(
    ("member_id", "generation", "instance_id", "outcome"),
    [
        ("m", 3, None, None),
        ("m", 2, None, ErrorCode.ILLEGAL_GENERATION),
        ("x", 3, None, ErrorCode.UNKNOWN_MEMBER_ID),
        ("s", 3, "i", None),
        ("m", 3, "i", ErrorCode.FENCED_INSTANCE_ID),
        ("s", 3, "j", ErrorCode.UNKNOWN_MEMBER_ID),
    ],
)
def test_a_member_is_known_by_id_generation_and_instance(
    member_id: str, generation: int, instance_id: str | None, outcome: ErrorCode | None
) -> None:
    beat = check_heartbeat(group(), Heartbeat("g", member_id, generation, instance_id))
    sync = check_sync(group(), SyncGroup("g", member_id, generation, instance_id))
    commit = check_commit(group(), CommitOffsets("g", (), member_id, generation, instance_id))
    for found in (beat, sync, commit):
        assert found is outcome if outcome else isinstance(found, ClassicGroupMember)


def test_states_that_refuse() -> None:
    sync, commit = SyncGroup("g", "m", 3), CommitOffsets("g", (), "m", 3)
    preparing, completing = ClassicGroupState.PREPARING_REBALANCE, ClassicGroupState.COMPLETING_REBALANCE
    assert check_sync(group(preparing), sync) is ErrorCode.REBALANCE_IN_PROGRESS
    assert isinstance(check_sync(group(completing), sync), ClassicGroupMember)
    assert isinstance(check_commit(group(preparing), commit), ClassicGroupMember)
    assert check_commit(group(completing), commit) is ErrorCode.REBALANCE_IN_PROGRESS


def test_commits_from_outside_the_group() -> None:
    outside = CommitOffsets("g", ())
    assert check_commit(group(), outside) is ErrorCode.UNKNOWN_MEMBER_ID
    empty = ClassicGroupMetadata("g", 0)
    assert check_commit(empty, outside) is ErrorCode.NONE
    in_transaction = CommitOffsets("g", (), producer=ProducerIdAndEpoch(1, 0))
    assert check_commit(group(), in_transaction) is ErrorCode.NONE
