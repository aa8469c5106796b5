"""What Kafka answers to requests that no stock client sends: the error code, request by request."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Final
from uuid import UUID

import pytest

from data_plane.coordinator.topics import OFFSETS_TOPIC
from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message
from metadata_quorum.foundation.errors import ErrorCode
from tests.compat.conftest import MakeTopic
from tests.support.clients.transactions import LONGEST_MS
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

OF_GROUP, OF_TRANSACTION = 0, 1
UNKNOWN_NEGATIVE: Final = -100

Ask = Callable[..., Message]


@pytest.fixture
def ask(shared_cluster: LocalCluster, wire: Wire) -> Ask:
    def one(api_key: ApiKey, version: int, node_id: int = 1, **fields: Any) -> Message:
        return wire.ask(shared_cluster.node(node_id).client_port, api_key, version, **fields)

    return one


def coordinator(ask: Ask, key: str, kind: int) -> int:
    def find() -> int:
        answer = ask(ApiKey.FIND_COORDINATOR, 2, key=key, key_type=kind)
        return 0 if answer.error_code else answer.node_id

    return wait_until(find, "a coordinator")


def leader(ask: Ask, topic: str) -> int:
    def find() -> int:
        (found,) = ask(ApiKey.METADATA, 12, topics=[{"name": topic}]).topics
        return 0 if found.error_code else max(found.partitions[0].leader_id, 0)

    return wait_until(find, "a leader")


def deletion(ask: Ask, node_id: int, topic: str) -> ErrorCode:
    partitions = [{"partition_index": 0, "offset": 0}]
    wanted = {"topics": [{"name": topic, "partitions": partitions}], "timeout_ms": 10_000}
    return ErrorCode(ask(ApiKey.DELETE_RECORDS, 2, node_id, **wanted).topics[0].partitions[0].error_code)


def test_records_of_internal_topics_are_not_deleted(ask: Ask) -> None:
    coordinator(ask, "anybody", OF_GROUP)  # now there is one
    wait_until(lambda: deletion(ask, 1, OFFSETS_TOPIC) is ErrorCode.INVALID_TOPIC_EXCEPTION, "it is refused")


def test_a_follower_does_not_judge_whether_records_may_be_deleted(ask: Ask, make_topic: MakeTopic) -> None:
    topic = make_topic(**{"cleanup.policy": "compact"})
    leads = leader(ask, topic)
    follows = leads % 3 + 1
    assert deletion(ask, leads, topic) is ErrorCode.POLICY_VIOLATION
    assert deletion(ask, follows, topic) is ErrorCode.NOT_LEADER_OR_FOLLOWER


def test_of_an_id_that_nobody_knows_no_operations_are_told(ask: Ask) -> None:
    wanted = {
        "topics": [{"topic_id": UUID(int=7), "name": None}],
        "include_topic_authorized_operations": True,
    }
    (found,) = ask(ApiKey.METADATA, 12, **wanted).topics
    assert found.error_code == ErrorCode.UNKNOWN_TOPIC_ID
    assert found.topic_authorized_operations == -(2**31)


def test_an_unknown_negative_timestamp_is_not_searched_for(ask: Ask, make_topic: MakeTopic) -> None:
    topic = make_topic()
    partitions = [{"partition_index": 0, "timestamp": UNKNOWN_NEGATIVE, "current_leader_epoch": -1}]
    wanted = {"replica_id": -1, "topics": [{"name": topic, "partitions": partitions}]}
    (found,) = ask(ApiKey.LIST_OFFSETS, 10, leader(ask, topic), **wanted).topics[0].partitions
    assert found.error_code == ErrorCode.UNSUPPORTED_VERSION


def test_half_an_identity_of_a_producer_is_refused(ask: Ask) -> None:
    half = {"transactional_id": None, "transaction_timeout_ms": 1000, "producer_id": 5, "producer_epoch": -1}
    assert ask(ApiKey.INIT_PRODUCER_ID, 5, **half).error_code == ErrorCode.INVALID_REQUEST


def test_producers_of_no_possible_topic(ask: Ask) -> None:
    wanted = [{"name": "a/b", "partition_indexes": [0]}]
    (found,) = ask(ApiKey.DESCRIBE_PRODUCERS, 0, topics=wanted).topics[0].partitions
    assert found.error_code == ErrorCode.INVALID_TOPIC_EXCEPTION


@pytest.mark.parametrize("field", ["group_id", "member_id", "instance_id", "rack_id"])
def test_a_heartbeat_with_blanks_for_a_name(ask: Ask, field: str) -> None:
    names = {"group_id": "g", "member_id": "m"} | {field: " \t"}
    answer = ask(ApiKey.CONSUMER_GROUP_HEARTBEAT, 1, member_epoch=1, **names)
    assert answer.error_code == ErrorCode.INVALID_REQUEST


def test_offsets_of_no_group_are_not_deleted(ask: Ask) -> None:
    coordinator(ask, "", OF_GROUP)
    answer = ask(ApiKey.OFFSET_DELETE, 0, group_id="", topics=[])
    assert answer.error_code == ErrorCode.INVALID_GROUP_ID


def test_a_transaction_is_judged_by_its_producer_before_its_group(ask: Ask) -> None:
    node_id = coordinator(ask, "nobody", OF_TRANSACTION)

    def add() -> ErrorCode:
        who = {"transactional_id": "nobody", "producer_id": 1, "producer_epoch": 0, "group_id": ""}
        return ErrorCode(ask(ApiKey.ADD_OFFSETS_TO_TXN, 3, node_id, **who).error_code)

    wait_until(lambda: add() is ErrorCode.INVALID_PRODUCER_ID_MAPPING, "it serves, and knows no such id")


def test_a_partition_that_is_not_there_is_in_no_transaction(ask: Ask) -> None:
    transaction = {
        "transactional_id": "nobody",
        "producer_id": 1,
        "producer_epoch": 0,
        "verify_only": True,
        "topics": [{"name": "there-is-none", "partitions": [0]}],
    }
    answer = ask(ApiKey.ADD_PARTITIONS_TO_TXN, 4, transactions=[transaction])
    (found,) = answer.results_by_transaction[0].topic_results[0].results_by_partition
    assert found.partition_error_code == ErrorCode.UNKNOWN_TOPIC_OR_PARTITION


def test_transactions_by_duration_include_those_that_are_over(ask: Ask, make_topic: MakeTopic) -> None:
    """As with Kafka, where only the time since the start counts, and what never began has begun at -1."""
    name = make_topic()
    node_id = coordinator(ask, name, OF_TRANSACTION)
    init = {"transactional_id": name, "transaction_timeout_ms": LONGEST_MS}
    wait_until(lambda: not ask(ApiKey.INIT_PRODUCER_ID, 5, node_id, **init).error_code, "a producer id")

    listed = ask(ApiKey.LIST_TRANSACTIONS, 1, node_id, duration_filter=60_000).transaction_states
    assert [each.transaction_state for each in listed if each.transactional_id == name] == ["Empty"]
