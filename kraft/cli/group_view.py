"""What a consumer group looks like from outside: its members, its offsets, and the logs it reads.

group_of     -> its coordinator: a group of the consumer protocol, or else a classic one
committed    -> its coordinator
offsets_at   -> the leaders of the partitions
lags         -> the leaders of the partitions
"""

from __future__ import annotations

from collections.abc import Collection, Container, Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

from data_plane.coordinator.groups.classic.consumer_protocol import read_assignment
from kraft.cli.bootstrap import TIMEOUT_S, Address
from kraft.cli.confluent_client import require_partitions
from kraft.cli.errors import CliError
from kraft.cli.wire_client import (
    BrokerAnswers,
    NotAnswered,
    at_coordinator,
    metadata,
    of_each_broker,
    raise_for,
    request,
)
from kraft.wire.api_keys import ApiKey
from kraft.wire.coordinator_type import CoordinatorType
from kraft.wire.malformed import only
from kraft.wire.record_counts import VERSION, Left, decode_counts, encode_offsets
from metadata_quorum.foundation.errors import ErrorCode
from metadata_quorum.foundation.model import TopicPartition, by_topic

if TYPE_CHECKING:
    from kraft.wire.bridge import Message


CLASSIC: Final = "classic"
CONSUMER: Final = "consumer"
EMPTY: Final = "Empty"
PARTITIONS_PER_REQUEST: Final = 5_000
"""Whose records are asked for."""


@dataclass(frozen=True, slots=True)
class GroupMember:
    member_id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: tuple[TopicPartition, ...]


@dataclass(frozen=True, slots=True)
class GroupView:
    group_id: str
    coordinator: Address
    kind: str
    state: str
    assignor: str
    members: tuple[GroupMember, ...]


def list_groups(bootstrap: str) -> tuple[list[tuple[str, str, str]], BrokerAnswers]:
    """Id, protocol and state of every group, and the brokers' answers that they are from."""
    answers = of_each_broker(bootstrap, ApiKey.LIST_GROUPS, (4, 5), {"states_filter": []})
    groups = {
        (each.group_id, getattr(each, "group_type", CLASSIC), each.group_state)
        for answer in answers.by_id.values()
        for each in answer.groups
    }
    return sorted(groups), answers


def group_of(bootstrap: str, group_id: str) -> GroupView | None:
    """None where there is no such group."""
    return at_coordinator(
        bootstrap, group_id, CoordinatorType.GROUP, lambda address: group_at(address, group_id)
    )


def group_at(address: Address, group_id: str) -> GroupView | None:
    """The group as its coordinator knows it; None if there is none. Raises `CliError`, `BrokerError`."""
    described = _consumer_group(address, group_id)
    if described is not None:
        members = tuple(
            GroupMember(
                each.member_id, each.client_id, each.client_host, each.instance_id, _places(each.assignment)
            )
            for each in described.members
        )
        return GroupView(group_id, address, CONSUMER, described.group_state, described.assignor_name, members)
    described = only(request(address, ApiKey.DESCRIBE_GROUPS, (5, 6), {"groups": [group_id]}).groups)
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND or described.group_state == "Dead":
        return None
    raise_for(described.error_code, group_id)
    members = tuple(
        GroupMember(
            each.member_id, each.client_id, each.client_host, each.group_instance_id,
            _assigned(described.protocol_type, each.member_assignment),
        )
        for each in described.members
    )  # fmt: skip
    return GroupView(group_id, address, CLASSIC, described.group_state, described.protocol_data, members)


def require_group(bootstrap: str, group_id: str) -> GroupView:
    """Raises CliError where there is no such group."""
    group = group_of(bootstrap, group_id)
    if group is None:
        raise CliError(f"{group_id}: there is no such group; `kraft group list` shows those that are")
    return group


def _consumer_group(address: Address, group_id: str) -> Message | None:
    try:
        answer = request(address, ApiKey.CONSUMER_GROUP_DESCRIBE, (0, 1), {"group_ids": [group_id]})
    except NotAnswered:
        return None
    described: Message = only(answer.groups)
    if described.error_code == ErrorCode.GROUP_ID_NOT_FOUND:
        return None
    raise_for(described.error_code, group_id)
    return described


def _places(assignment: Message) -> tuple[TopicPartition, ...]:
    topics = assignment.topic_partitions
    return tuple(sorted(TopicPartition(each.topic_name, n) for each in topics for n in each.partitions))


def _assigned(protocol_type: str, assignment: bytes) -> tuple[TopicPartition, ...]:
    if protocol_type != CONSUMER:
        return ()  # not a consumer group (Connect's workers, for example): the bytes have another format
    try:
        partitions_by_topic = read_assignment(bytes(assignment))
    except ValueError:
        return ()
    return tuple(
        sorted(TopicPartition(topic, n) for topic, numbers in partitions_by_topic.items() for n in numbers)
    )


def committed(address: Address, group_id: str) -> dict[TopicPartition, int]:
    """All that the group has committed."""
    fields = {"group_id": group_id, "topics": None, "require_stable": False}
    answer = request(address, ApiKey.OFFSET_FETCH, (6, 7), fields)
    raise_for(answer.error_code, group_id)
    return {
        TopicPartition(topic.name, each.partition_index): int(each.committed_offset)
        for topic in answer.topics
        for each in topic.partitions
        if each.committed_offset >= 0
    }


def partitions_of(bootstrap: str, selection: Mapping[str, Collection[int]]) -> list[TopicPartition]:
    """The named partitions of each topic, or all of a topic where none is named. Raises CliError where one
    does not exist."""
    partitions: list[TopicPartition] = []
    for topic in metadata(bootstrap, list(selection)).topics:
        if topic.error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION:
            raise CliError(f"{topic.name}: there is no such topic")
        raise_for(topic.error_code, topic.name)
        numbers = sorted(selection[topic.name]) or range(len(topic.partitions))
        require_partitions(topic.name, len(topic.partitions), list(numbers))
        partitions += (TopicPartition(topic.name, number) for number in numbers)
    return partitions


def offsets_at(
    bootstrap: str, partitions: Iterable[TopicPartition], timestamp_ms: int, *, committed_only: bool = False
) -> dict[TopicPartition, int]:
    """The first offset that is not older, or an end, with `committed_only` the last stable offset; none for
    partitions that are deleted, have no leader or no such record."""
    offsets: dict[TopicPartition, int] = {}
    for leader, its in by_leader(bootstrap, partitions).items():
        fields = _list_offsets(by_topic(its), timestamp_ms, int(committed_only))
        answer = request(leader, ApiKey.LIST_OFFSETS, (4, 7), fields)
        offsets |= {
            TopicPartition(topic.name, each.partition_index): int(each.offset)
            for topic in answer.topics
            for each in topic.partitions
            if each.error_code == ErrorCode.NONE and each.offset >= 0
        }
    return offsets


def lags(
    bootstrap: str, offsets: Mapping[TopicPartition, int], ends: Mapping[TopicPartition, int]
) -> dict[TopicPartition, Left]:
    """Records from each offset to its end: as the leaders count them; where they do not, as brokers of Apache
    Kafka, at most as many as there are offsets."""
    from kraft.net.client import Address as NodeAddress
    from kraft.net.client import UnsupportedVersion
    from kraft.peers.blocking_client import exchange
    from kraft.wire.bridge import MalformedMessage

    behind = {place: offset for place, offset in offsets.items() if offset < ends.get(place, -1)}
    found = dict.fromkeys(offsets.keys() & ends.keys() - behind.keys(), (0, True))
    requests = [
        (leader, places[start : start + PARTITIONS_PER_REQUEST])
        for leader, places in (by_leader(bootstrap, behind).items() if behind else ())
        for start in range(0, len(places), PARTITIONS_PER_REQUEST)
    ]
    for leader, places in requests:
        asked = encode_offsets({place: [behind[place]] for place in places})
        try:
            answer = exchange(NodeAddress(*leader), ApiKey.RECORD_COUNTS, VERSION, asked, TIMEOUT_S)
            found |= {place: count.left[0] for place, count in decode_counts(answer).items() if count.left}
        except (OSError, UnsupportedVersion, MalformedMessage, ValueError):
            continue
    return {**{place: (ends[place] - offset, False) for place, offset in behind.items()}, **found}


def by_leader(
    bootstrap: str, partitions: Iterable[TopicPartition], *, leave_out: Container[Address] = ()
) -> dict[Address, list[TopicPartition]]:
    """The partitions by their leader, if that is up and not left out."""
    requested = set(partitions)
    known = metadata(bootstrap, sorted({place.topic for place in requested}))
    address = {broker.node_id: (broker.host, broker.port) for broker in known.brokers}
    address = {node_id: each for node_id, each in address.items() if each not in leave_out}
    found: dict[Address, list[TopicPartition]] = {}
    for topic in known.topics:
        for each in topic.partitions:
            place = TopicPartition(topic.name, each.partition_index)
            if place in requested and each.leader_id in address:
                found.setdefault(address[each.leader_id], []).append(place)
    return found


def _list_offsets(
    topics: Mapping[str, Iterable[int]], timestamp_ms: int, isolation_level: int
) -> dict[str, Any]:
    return {
        "replica_id": -1,
        "isolation_level": isolation_level,
        "topics": [
            {
                "name": name,
                "partitions": [
                    {"partition_index": n, "current_leader_epoch": -1, "timestamp": timestamp_ms}
                    for n in numbers
                ],
            }
            for name, numbers in topics.items()
        ],
    }
