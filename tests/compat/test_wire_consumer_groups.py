"""ConsumerGroupHeartbeat and ConsumerGroupDescribe, request by request: what stock clients do not show."""

from __future__ import annotations

from typing import Any

import pytest

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from tests.compat.conftest import MakeTopic
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("G6")

COMING_UP = {
    ErrorCode.COORDINATOR_LOAD_IN_PROGRESS,
    ErrorCode.COORDINATOR_NOT_AVAILABLE,
    ErrorCode.NOT_COORDINATOR,
}
NO_OPERATIONS_ASKED = -(2**31)

Group = tuple[str, int]
"""Its name, and the port of its coordinator."""


@pytest.fixture
def group(request: pytest.FixtureRequest, wire: Wire, shared_cluster: LocalCluster) -> Group:
    name = request.node.name[:50]

    def ask() -> int:
        port = shared_cluster.node(1).client_port
        answer = wire.ask(port, ApiKey.FIND_COORDINATOR, 2, key=name, key_type=0)
        return 0 if answer.error_code else answer.node_id

    port = shared_cluster.node(wait_until(ask, "a coordinator")).client_port

    def serves() -> bool:
        (described,) = wire.ask(port, ApiKey.DESCRIBE_GROUPS, 5, groups=[name]).groups
        return described.error_code not in COMING_UP

    wait_until(serves, "the coordinator serves")
    return name, port


def beat(wire: Wire, group: Group, member_id: str, epoch: int, version: int = 1, **fields: Any) -> Message:
    name, port = group
    who = {"group_id": name, "member_id": member_id, "member_epoch": epoch}
    return wire.ask(port, ApiKey.CONSUMER_GROUP_HEARTBEAT, version, **who | fields)


def joining(topic: str, **fields: Any) -> dict[str, Any]:
    return {
        "rebalance_timeout_ms": 60_000,
        "subscribed_topic_names": [topic],
        "topic_partitions": [],
    } | fields


@pytest.mark.parametrize(
    ("member_id", "epoch", "fields", "code", "message"),
    [
        ("", 0, joining("t"), ErrorCode.INVALID_REQUEST, "MemberId can't be empty."),
        ("m", 0, joining("t", instance_id=""), ErrorCode.INVALID_REQUEST, "InstanceId can't be empty."),
        ("m", 0, joining("t", rack_id=""), ErrorCode.INVALID_REQUEST, "RackId can't be empty."),
        ("m", 0, joining("t", rebalance_timeout_ms=-1), ErrorCode.INVALID_REQUEST, "RebalanceTimeoutMs must"),
        ("m", 0, joining("t", topic_partitions=None), ErrorCode.INVALID_REQUEST, "TopicPartitions must be"),
        ("m", 0, joining("t", subscribed_topic_names=None), ErrorCode.INVALID_REQUEST, "Either Subscribed"),
        ("m", -2, {}, ErrorCode.INVALID_REQUEST, "InstanceId can't be null."),
        ("m", -3, {}, ErrorCode.INVALID_REQUEST, "MemberEpoch is invalid"),
        (
            "m",
            0,
            joining("t", server_assignor="sticky"),
            ErrorCode.UNSUPPORTED_ASSIGNOR,
            "ServerAssignor sticky is not supported. Supported assignors: uniform, range.",
        ),
        (
            "m",
            0,
            joining("t", subscribed_topic_regex="a("),
            ErrorCode.INVALID_REGULAR_EXPRESSION,
            "SubscribedTopicRegex `a(` is not a valid regular expression",
        ),
    ],
)
def test_what_makes_no_sense_is_refused_with_kafkas_words(
    wire: Wire,
    group: Group,
    member_id: str,
    epoch: int,
    fields: dict[str, Any],
    code: ErrorCode,
    message: str,
) -> None:
    answer = beat(wire, group, member_id, epoch, **fields)
    assert answer.error_code == code
    assert answer.error_message.startswith(message)
    (described,) = wire.ask(group[1], ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[group[0]]).groups
    assert described.error_code == ErrorCode.GROUP_ID_NOT_FOUND


def test_a_member_joins_commits_in_its_epoch_and_is_described(
    wire: Wire, group: Group, make_topic: MakeTopic
) -> None:
    topic, (name, port) = make_topic(2), group
    first = beat(wire, group, "", 0, version=0, **joining(topic, rack_id="r"))
    member_id = first.member_id
    assert len(member_id) == 22  # a uuid as Kafka writes it
    joined = _until_it_has_partitions(wire, group, first)
    epoch = joined.member_epoch
    (assigned,) = joined.assignment.topic_partitions
    assert list(assigned.partitions) == [0, 1]
    assert beat(wire, group, member_id, epoch).assignment is None
    (described,) = wire.ask(port, ApiKey.CONSUMER_GROUP_DESCRIBE, 1, group_ids=[name]).groups
    assert (described.group_state, described.group_epoch, described.assignor_name) == (
        "Stable",
        epoch,
        "uniform",
    )
    (member,) = (m for m in described.members if m.member_id == member_id)
    assert (member.rack_id, member.member_type, member.client_host) == ("r", 1, "/127.0.0.1")
    (owned,) = member.assignment.topic_partitions
    assert (owned.topic_name, list(owned.partitions)) == (topic, [0, 1])
    assert described.authorized_operations == NO_OPERATIONS_ASKED

    (as_classic,) = wire.ask(port, ApiKey.DESCRIBE_GROUPS, 6, groups=[name]).groups
    assert as_classic.error_code == ErrorCode.GROUP_ID_NOT_FOUND
    assert as_classic.error_message == f"Group {name} is not a classic group."

    def commit(version: int, epoch: int) -> int:
        partitions = [{"partition_index": 0, "committed_offset": 3, "committed_metadata": ""}]
        answer = wire.ask(
            port, ApiKey.OFFSET_COMMIT, version, group_id=name, member_id=member_id,
            generation_id_or_member_epoch=epoch, topics=[{"name": topic, "partitions": partitions}],
        )  # fmt: skip
        return int(answer.topics[0].partitions[0].error_code)

    assert commit(9, epoch) == ErrorCode.NONE
    assert commit(9, epoch + 1) == ErrorCode.STALE_MEMBER_EPOCH
    assert commit(8, epoch) == ErrorCode.UNSUPPORTED_VERSION
    for sent_epoch, code in ((epoch, ErrorCode.NONE), (epoch - 1, ErrorCode.STALE_MEMBER_EPOCH)):
        wanted = {"group_id": name, "member_id": member_id, "member_epoch": sent_epoch, "topics": None}
        (answer,) = wire.ask(port, ApiKey.OFFSET_FETCH, 9, groups=[wanted], require_stable=False).groups
        assert answer.error_code == code
    gone = beat(wire, group, member_id, -1)
    assert (gone.error_code, gone.member_epoch, gone.heartbeat_interval_ms) == (0, -1, 0)


def _until_it_has_partitions(wire: Wire, group: Group, first: Message) -> Message:
    """A coordinator may not have heard of a new topic yet."""
    last = first

    def assignment_is_known() -> Message | None:
        nonlocal last
        if last.assignment is not None and last.assignment.topic_partitions:
            return last
        last = beat(wire, group, first.member_id, last.member_epoch)
        assert last.error_code == 0
        return None

    return wait_until(assignment_is_known, "the topic is known")
