"""A client's name, an instance's, a member's may have 32 KB each: what a group remembers of its members is
bounded all the same."""

from __future__ import annotations

from dataclasses import replace

import pytest

from data_plane.coordinator.groups.classic import group_metadata
from data_plane.coordinator.groups.classic.group import ClassicGroup
from data_plane.coordinator.groups.messages import JoinReply
from data_plane.coordinator.groups.service import NAME_IN_ID
from metadata_quorum.foundation.errors import ErrorCode
from tests.unit.groups.classic_steps import stable
from tests.unit.groups.group_driver import GroupDriver, join
from tests.unit.groups.memory_log import MemoryLog
from tests.unit.groups.service_driver import JOIN, run, service

pytestmark = pytest.mark.row("G1", "P7")

LONG = "\N{GRINNING FACE}" * 8_000
"""32 KB in a message."""


def joined(driver: GroupDriver, member_id: str = "", **fields: object) -> ErrorCode:
    """How a join is answered, if it is at once."""
    reply = driver.answers.get(driver.ask("join", join(member_id, **fields)), JoinReply(ErrorCode.NONE, ""))
    assert isinstance(reply, JoinReply)
    return reply.error


def classic(driver: GroupDriver) -> ClassicGroup:
    group = driver.manager.group("g")
    assert isinstance(group, ClassicGroup)
    return group


@pytest.mark.parametrize("named_by", ["client_id", "instance_id"])
def test_a_members_id_has_the_beginning_of_a_long_name(named_by: str) -> None:
    async def test() -> None:
        async with service(MemoryLog()) as groups:
            reply = await groups.join(replace(JOIN, **{named_by: LONG}))  # type: ignore[arg-type]
            assert reply.member_id.startswith(LONG[:NAME_IN_ID] + "-")
            assert len(reply.member_id) == NAME_IN_ID + len("-01234567-89ab-cdef-0123-456789abcdef")

    run(test)


def test_so_many_ids_are_remembered_for_those_who_have_only_asked(monkeypatch: pytest.MonkeyPatch) -> None:
    """The session of each would last half an hour."""
    monkeypatch.setattr(group_metadata, "IDS_GIVEN_OUT", 3)
    driver = GroupDriver()
    timeouts_ms = [1_800_000, 6_000, 1_800_000, 1_800_000, 1_800_000]
    for number, timeout_ms in enumerate(timeouts_ms):
        asked = {"new": f"m{number}", "requires_known_id": True, "session_timeout_ms": timeout_ms}
        assert joined(driver, **asked) is ErrorCode.MEMBER_ID_REQUIRED
        assert len(classic(driver).metadata.pending) == min(number + 1, 3)
    unknown = [ErrorCode.UNKNOWN_MEMBER_ID] * 2
    assert [joined(driver, f"m{n}") for n in range(5)] == [*unknown, *[ErrorCode.NONE] * 3]


def test_names_of_a_classic_groups_members_fit_into_its_record() -> None:
    """With names that do not, the group could not be stored: nobody would ever be assigned anything."""
    driver, _ = stable(2)
    room = classic(driver).metadata.roster.name_bytes + 2 * len(LONG.encode())
    long = {"client_id": LONG, "max_record_bytes": room}
    assert joined(driver, new="m3", **long) is ErrorCode.NONE
    assert joined(driver, new="m4", instance_id="i", **long) is ErrorCode.GROUP_MAX_SIZE_REACHED
    assert joined(driver, "m1", **long) is ErrorCode.NONE  # a member keeps the name that it came with
    assert classic(driver).metadata.roster.name_bytes <= room


def test_names_are_counted_as_members_come_change_and_go() -> None:
    driver = GroupDriver()
    driver.ask("join", join(new="m1", client_id="\N{SNOWMAN}", client_host="h"))
    roster = classic(driver).metadata.roster
    assert roster.name_bytes == len("m1") + 3 + len("h")
    [member] = roster
    roster.rename(member, "m1 again")
    assert roster.name_bytes == len("m1 again") + 3 + len("h")
    roster.replace([member], None)
    roster.remove(member)
    assert roster.name_bytes == 0
