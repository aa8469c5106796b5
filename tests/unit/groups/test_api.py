"""The group APIs in every version: request bytes in, response bytes out, over a service in memory."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Mapping
from itertools import product
from types import SimpleNamespace
from typing import Any

import pytest

from data_plane.coordinator.groups.messages import LeaveGroup, LeaveReply
from data_plane.coordinator.topics import OFFSETS_TOPIC
from kraft.api import groups
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_response, encode_response
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import PartitionRegistration
from metadata_quorum.security.acls import OPERATIONS_OMITTED, AclResourceType, operation_bits
from tests.unit.groups.api_driver import ORDERS_ID, ROWS, WITH_TOPIC_IDS, Broker, image, run, versions


def finds(version: int, *keys: str) -> dict[str, Any]:
    return {"coordinator_keys": list(keys)} if version >= 4 else {"key": keys[0]}


@pytest.mark.parametrize("version", versions(ApiKey.FIND_COORDINATOR))
def test_the_coordinator_is_the_leader_of_the_groups_partition(version: int) -> None:
    async def test(broker: Broker) -> None:
        answer = await broker.ask(ApiKey.FIND_COORDINATOR, version, finds(version, "g"))
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id, found.host, found.port) == (0, 1, "host", 9092)
        broker.node.metadata_cache.image = image("orders", OFFSETS_TOPIC)
        number = broker.service.partition_for("g")
        topic = broker.node.image.topics_by_name[OFFSETS_TOPIC]
        leaderless = PartitionRegistration((1,), (1,), -1, 1, 1)
        topic.partitions[number] = leaderless  # type: ignore[index]
        answer = await broker.ask(ApiKey.FIND_COORDINATOR, version, finds(version, "g"))
        found = answer.coordinators[0] if version >= 4 else answer
        assert (found.error_code, found.node_id) == (ErrorCode.COORDINATOR_NOT_AVAILABLE, -1)

    run(test)


@pytest.mark.parametrize("refusal", [ErrorCode.NONE, ErrorCode.INVALID_REPLICATION_FACTOR])
def test_whoever_asks_first_has_the_topic_created_and_waits_for_it(refusal: ErrorCode) -> None:
    async def test(broker: Broker) -> None:
        asked: list[Mapping[str, Any]] = []

        class Controller:
            async def request(self, api_key: ApiKey, version: int, fields: Any) -> Message:
                asked.append(fields)
                made = {"name": OFFSETS_TOPIC, "error_code": int(refusal)}
                if refusal is ErrorCode.NONE:  # the metadata come a moment later
                    newer = image("orders", OFFSETS_TOPIC)
                    broker.node.loop.call_later(0.01, setattr, broker.node.metadata_cache, "image", newer)
                return decode_response(
                    ApiKey.CREATE_TOPICS, 7, encode_response(ApiKey.CREATE_TOPICS, 7, {"topics": [made]})
                )

        broker.node.controller_channel = Controller()
        broker.node.config = SimpleNamespace(
            offsets_topic_num_partitions=50,
            offsets_topic_replication_factor=3,
            offsets_topic_segment_bytes=104857600,
        )
        broker.node.metadata_cache.image = image("orders")
        answers = await asyncio.gather(
            *(broker.ask(ApiKey.FIND_COORDINATOR, 4, finds(4, "g")) for _ in range(2))
        )
        expected = ErrorCode.NONE if refusal is ErrorCode.NONE else ErrorCode.COORDINATOR_NOT_AVAILABLE
        assert [answer.coordinators[0].error_code for answer in answers] == [expected] * 2
        [request] = asked
        [topic] = request["topics"]
        assert (topic["name"], topic["num_partitions"]) == (OFFSETS_TOPIC, 50)

    run(test)


@pytest.mark.row("G1")
@pytest.mark.parametrize("version", versions(ApiKey.JOIN_GROUP))
def test_a_member_comes_in_by_any_version_of_join(version: int) -> None:
    async def test(broker: Broker) -> None:
        answer = await broker.join(version=version)
        assert (answer.error_code, answer.generation_id, answer.protocol_name) == (0, 1, "range")
        assert answer.leader == answer.member_id
        assert answer.member_id.startswith("app-")
        assert [(m.member_id, bytes(m.metadata)) for m in answer.members] == [(answer.member_id, b"mine")]
        stranger = await broker.join(version=version, member_id="stranger")
        assert stranger.error_code == ErrorCode.UNKNOWN_MEMBER_ID
        assert stranger.generation_id == -1
        assert stranger.protocol_name == (None if version >= 7 else "")

    run(test)


def named(version: int) -> dict[str, Any]:
    """What a SyncGroup of that version says of the protocol."""
    return {"protocol_type": "consumer", "protocol_name": "range"} if version >= 5 else {}


@pytest.mark.row("G1")
@pytest.mark.parametrize(
    ("sync", "heartbeat", "leave"),
    [
        *zip(
            versions(ApiKey.SYNC_GROUP),
            [*versions(ApiKey.HEARTBEAT), 4],
            versions(ApiKey.LEAVE_GROUP),
            strict=True,
        )
    ],
)
def test_a_member_syncs_beats_and_leaves(sync: int, heartbeat: int, leave: int) -> None:
    async def test(broker: Broker) -> None:
        member = (await broker.join()).member_id
        whoami = {"group_id": "g", "member_id": member, "generation_id": 1}
        assignments = [{"member_id": member, "assignment": b"all"}]
        syncing = whoami | named(sync) | {"assignments": assignments}
        answer = await broker.ask(ApiKey.SYNC_GROUP, sync, syncing)
        assert (answer.error_code, bytes(answer.assignment)) == (0, b"all")
        assert (await broker.ask(ApiKey.HEARTBEAT, heartbeat, whoami)).error_code == 0
        wrong = await broker.ask(ApiKey.HEARTBEAT, heartbeat, whoami | {"generation_id": 2})
        assert wrong.error_code == ErrorCode.ILLEGAL_GENERATION

        leaving = {"members": [{"member_id": member}]} if leave >= 3 else {"member_id": member}
        for expected in (ErrorCode.NONE, ErrorCode.UNKNOWN_MEMBER_ID):
            answer = await broker.ask(ApiKey.LEAVE_GROUP, leave, {"group_id": "g", **leaving})
            outcome = answer.members[0].error_code if leave >= 3 else answer.error_code
            assert outcome == expected

    run(test)


def test_very_many_members_leave_in_several_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(groups, "MEMBERS_PER_SLICE", 10)

    async def test(broker: Broker) -> None:
        member = (await broker.join()).member_id
        steps: list[int] = []
        leave = broker.service.leave

        async def noted(request: LeaveGroup) -> LeaveReply:
            steps.append(len(request.members))
            return await leave(request)

        monkeypatch.setattr(broker.service, "leave", noted)
        names = [f"m{n}" for n in range(24)] + [member]
        leaving = [{"member_id": name, "group_instance_id": None} for name in names]
        answer = await broker.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": leaving})
        assert steps == [10, 10, 5]
        assert [each.member_id for each in answer.members] == names
        codes = [each.error_code for each in answer.members]
        assert codes == [ErrorCode.UNKNOWN_MEMBER_ID] * 24 + [ErrorCode.NONE]
        assert (await broker.ask(ApiKey.LEAVE_GROUP, 5, {"group_id": "g", "members": []})).members == []

    run(test)


def test_a_member_with_very_many_protocols_is_not_taken_in() -> None:
    async def test(broker: Broker) -> None:
        protocols = [{"name": f"p{n}", "metadata": b""} for n in range(groups.MAX_PROTOCOLS + 1)]
        assert (await broker.join(protocols=protocols)).error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
        assert (await broker.join(protocols=protocols[1:])).error_code == ErrorCode.NONE

    run(test)


def offset_request(version: int, offset: int) -> dict[str, Any]:
    topic = {"topic_id": ORDERS_ID} if version >= WITH_TOPIC_IDS else {"name": "orders"}
    partitions = [{"partition_index": 2, "committed_offset": offset, "committed_metadata": "note"}]
    return {"group_id": "g", "topics": [topic | {"partitions": partitions}]}


def fetch_request(version: int, *, everything: bool = False) -> dict[str, Any]:
    topic = {"topic_id": ORDERS_ID} if version >= WITH_TOPIC_IDS else {"name": "orders"}
    topics = None if everything else [topic | {"partition_indexes": [2, 0]}]
    if version >= 8:
        return {"groups": [{"group_id": "g", "topics": topics}]}
    return {"group_id": "g", "topics": topics}


@pytest.mark.row("G4")
@pytest.mark.parametrize(
    ("commit", "fetch"),
    sorted(
        {
            *product(versions(ApiKey.OFFSET_COMMIT, unstable=1), [9]),
            *product([9], versions(ApiKey.OFFSET_FETCH, unstable=1)),
        }
    ),
)
def test_offsets_are_committed_and_fetched_in_every_version(commit: int, fetch: int) -> None:
    async def test(broker: Broker) -> None:
        answer = await broker.ask(ApiKey.OFFSET_COMMIT, commit, offset_request(commit, 42))
        assert answer.topics[0].partitions[0].error_code == 0
        for everything in (False, True) if fetch >= 2 else (False,):
            answer = await broker.ask(ApiKey.OFFSET_FETCH, fetch, fetch_request(fetch, everything=everything))
            topics = answer.groups[0].topics if fetch >= 8 else answer.topics
            rows = [(p.partition_index, p.committed_offset, p.metadata) for p in topics[0].partitions]
            assert rows == [(2, 42, "note")] + ([] if everything else [(0, -1, "")])

    run(test)


def test_an_offset_that_is_asked_for_many_times_is_answered_once() -> None:
    """What was committed with it may take four kilobytes, and to ask once more takes four bytes."""

    async def test(broker: Broker) -> None:
        await broker.ask(ApiKey.OFFSET_COMMIT, 5, offset_request(5, 42))
        request = fetch_request(5)
        name = request["topics"][0]["name"]
        request["topics"] = [
            {"name": name, "partition_indexes": [2, 2, 0]},
            {"name": name, "partition_indexes": [2, 1, 1]},
        ]
        answer = await broker.ask(ApiKey.OFFSET_FETCH, 5, request)
        rows = [[(p.partition_index, p.committed_offset) for p in each.partitions] for each in answer.topics]
        assert rows == [[(2, 42), (0, -1)], [(1, -1)]]

    run(test)


@pytest.mark.parametrize("version", versions(ApiKey.OFFSET_COMMIT, unstable=1))
def test_offsets_of_an_unknown_topic_are_refused(version: int) -> None:
    async def test(broker: Broker) -> None:
        broker.node.metadata_cache.image = image(OFFSETS_TOPIC)
        answer = await broker.ask(ApiKey.OFFSET_COMMIT, version, offset_request(version, 1))
        unknown = (
            ErrorCode.UNKNOWN_TOPIC_ID if version >= WITH_TOPIC_IDS else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
        )
        assert answer.topics[0].partitions[0].error_code == unknown

    run(test)


EVERY_VERSION = [(key, version) for key in ROWS for version in versions(key)]
ASKED: dict[int, Callable[[int], dict[str, Any]]] = {
    ApiKey.OFFSET_COMMIT: lambda version: offset_request(version, 1),
    ApiKey.OFFSET_FETCH: fetch_request,
    ApiKey.HEARTBEAT: lambda version: {"group_id": "g", "member_id": "m"},
    ApiKey.LEAVE_GROUP: lambda version: {"group_id": "g"} | ({"member_id": "m"} if version < 3 else {}),
    ApiKey.SYNC_GROUP: lambda version: {"group_id": "g", "member_id": "m"} | named(version),
    ApiKey.DESCRIBE_GROUPS: lambda version: {"groups": ["g"]},
    ApiKey.DELETE_GROUPS: lambda version: {"groups_names": ["g"]},
    ApiKey.OFFSET_DELETE: lambda version: {"group_id": "g"},
}


@pytest.mark.parametrize(("key", "version"), [each for each in EVERY_VERSION if each[0] in ASKED])
def test_who_does_not_coordinate_says_so_in_every_version(key: int, version: int) -> None:
    async def test(broker: Broker) -> None:
        answer = await broker.ask(key, version, ASKED[key](version))
        code = {
            ApiKey.OFFSET_COMMIT: lambda: answer.topics[0].partitions[0].error_code,
            ApiKey.OFFSET_FETCH: lambda: (
                answer.groups[0].error_code
                if version >= 8
                else answer.error_code
                if version >= 2
                else answer.topics[0].partitions[0].error_code
            ),
            ApiKey.DESCRIBE_GROUPS: lambda: answer.groups[0].error_code,
            ApiKey.DELETE_GROUPS: lambda: answer.results[0].error_code,
        }.get(key, lambda: answer.error_code)()
        assert code == ErrorCode.NOT_COORDINATOR

    run(test, leads=False)


@pytest.mark.parametrize("missing", ["protocol_type", "protocol_name"])
def test_from_version_5_on_a_sync_says_for_which_protocol(missing: str) -> None:
    async def test(broker: Broker) -> None:
        member = (await broker.join()).member_id
        fields = {"group_id": "g", "member_id": member, "generation_id": 1} | named(5) | {missing: None}
        answer = await broker.ask(ApiKey.SYNC_GROUP, 5, fields | {"assignments": []})
        assert answer.error_code == ErrorCode.INCONSISTENT_GROUP_PROTOCOL

    run(test)


@pytest.mark.parametrize("version", versions(ApiKey.DESCRIBE_GROUPS))
def test_groups_are_described(version: int) -> None:
    async def test(broker: Broker) -> None:
        member = (await broker.join()).member_id
        fields = {"group_id": "g", "member_id": member, "generation_id": 1} | named(5)
        await broker.ask(
            ApiKey.SYNC_GROUP, 5, fields | {"assignments": [{"member_id": member, "assignment": b"all"}]}
        )
        key = ApiKey.DESCRIBE_GROUPS
        answer = await broker.ask(key, version, {"groups": ["g", "nobody"]})
        group, missing = answer.groups
        assert (group.group_state, group.protocol_type, group.protocol_data) == (
            "Stable",
            "consumer",
            "range",
        )
        [row] = group.members
        assert (row.client_id, row.client_host) == ("app", "/10.0.0.9")
        assert (bytes(row.member_metadata), bytes(row.member_assignment)) == (b"mine", b"all")
        expected = ErrorCode.GROUP_ID_NOT_FOUND if version >= 6 else ErrorCode.NONE
        assert (missing.group_state, missing.error_code) == ("Dead", expected)
        if version >= 3:
            every = operation_bits(AclResourceType.GROUP)
            fields = {"groups": ["g", "nobody"], "include_authorized_operations": True}
            operations = [g.authorized_operations for g in (await broker.ask(key, version, fields)).groups]
            assert operations == [every, every if version < 6 else OPERATIONS_OMITTED]

    run(test)


@pytest.mark.parametrize("version", versions(ApiKey.LIST_GROUPS))
def test_groups_are_listed_and_filtered(version: int) -> None:
    async def test(broker: Broker) -> None:
        await broker.ask(ApiKey.OFFSET_COMMIT, 9, offset_request(9, 1))
        await broker.join("other")
        answer = await broker.ask(ApiKey.LIST_GROUPS, version, {})
        assert {g.group_id: g.protocol_type for g in answer.groups} == {"g": "", "other": "consumer"}
        if version >= 4:
            answer = await broker.ask(ApiKey.LIST_GROUPS, version, {"states_filter": ["Empty"]})
            assert [(g.group_id, g.group_state) for g in answer.groups] == [("g", "Empty")]
        if version >= 5:
            answer = await broker.ask(ApiKey.LIST_GROUPS, version, {"types_filter": ["Consumer"]})
            assert answer.groups == []

    run(test)


@pytest.mark.parametrize("version", versions(ApiKey.DELETE_GROUPS))
def test_groups_are_deleted(version: int) -> None:
    async def test(broker: Broker) -> None:
        await broker.ask(ApiKey.OFFSET_COMMIT, 9, offset_request(9, 1))
        await broker.join("busy")
        answer = await broker.ask(ApiKey.DELETE_GROUPS, version, {"groups_names": ["g", "busy", "nobody"]})
        assert {result.group_id: result.error_code for result in answer.results} == {
            "g": ErrorCode.NONE,
            "busy": ErrorCode.NON_EMPTY_GROUP,
            "nobody": ErrorCode.GROUP_ID_NOT_FOUND,
        }
        assert (await broker.ask(ApiKey.LIST_GROUPS, 5, {"states_filter": ["Empty"]})).groups == []

    run(test)


def test_single_offsets_are_deleted() -> None:
    async def test(broker: Broker) -> None:
        await broker.ask(ApiKey.OFFSET_COMMIT, 9, offset_request(9, 1))
        topics = [
            {"name": "orders", "partitions": [{"partition_index": 2}]},
            {"name": "gone", "partitions": [{"partition_index": 0}]},
        ]
        answer = await broker.ask(ApiKey.OFFSET_DELETE, 0, {"group_id": "g", "topics": topics})
        codes = [topic.partitions[0].error_code for topic in answer.topics]
        assert (answer.error_code, codes) == (0, [ErrorCode.NONE, ErrorCode.UNKNOWN_TOPIC_OR_PARTITION])
        assert (await broker.ask(ApiKey.LIST_GROUPS, 5, {})).groups == []

    run(test)
