"""Requests of a megabyte, of one client that means harm: the loop that serves them stands still for nobody.

Each names as much as it can: partitions that are there and that are not, members, protocols, topics. The
limit is CPU time of one turn of the loop, half of what other tests allow.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any, Final
from uuid import UUID

import pytest

from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.errors import ErrorCode
from tests.robustness.live_node import LiveNode
from tests.support.clients.transactions import LONGEST_MS
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.heavy, pytest.mark.row("P7"), pytest.mark.stall_ms(50)]

PARTITIONS: Final = 500
WIDE: Final = "wide"
MANY: Final = 60_000
"""Items of ten bytes and more; four times as many of numbers."""

Fields = dict[str, Any]


@pytest.fixture(scope="module")
def wire() -> Iterator[Wire]:
    with Wire() as wire:
        yield wire


@pytest.fixture(scope="module")
def producer(live: LiveNode, wire: Wire) -> Fields:
    """A transactional producer, and its coordinators; the topic is there."""
    topic = {"name": WIDE, "num_partitions": PARTITIONS, "replication_factor": 1}
    wire.ask(live.port, ApiKey.CREATE_TOPICS, 5, topics=[topic], timeout_ms=60_000)
    wait_until(
        lambda: wire.ask(live.port, ApiKey.METADATA, 12, topics=[{"name": WIDE}]).topics[0].partitions,
        "the topic is there",
    )
    for kind, key in ((0, "g"), (1, "x")):
        wait_until(
            lambda kind=kind, key=key: (
                not wire.ask(live.port, ApiKey.FIND_COORDINATOR, 4, key_type=kind, coordinator_keys=[key])
                .coordinators[0]
                .error_code
            ),
            "there is a coordinator",
        )

    def begun() -> Fields | None:
        fields = {"transactional_id": "x", "transaction_timeout_ms": LONGEST_MS}
        answer = wire.ask(live.port, ApiKey.INIT_PRODUCER_ID, 4, **fields)
        if answer.error_code:
            return None
        return {"producer_id": answer.producer_id, "producer_epoch": answer.producer_epoch}

    found = wait_until(begun, "the producer has an id")
    assert found is not None
    return found


def _offsets(count: int) -> list[Fields]:
    partitions = [{"partition_index": n % PARTITIONS, "committed_offset": 1} for n in range(count)]
    return [{"name": WIDE, "partitions": partitions}]


def _adding(producer: Fields, topics: list[Fields]) -> Fields:
    fields: Fields = {f"v3_and_below_{name}": value for name, value in producer.items()}
    return {**fields, "v3_and_below_transactional_id": "x", "v3_and_below_topics": topics}


@pytest.mark.parametrize("partitions", ["there", "not there"])
def test_partitions_of_a_transaction(live: LiveNode, wire: Wire, producer: Fields, partitions: str):
    first = 0 if partitions == "there" else PARTITIONS
    numbers = [first + n % PARTITIONS for n in range(4 * MANY)]
    fields = _adding(producer, [{"name": WIDE, "partitions": numbers}])
    answer = wire.ask(live.port, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **fields)
    (topic,) = answer.results_by_topic_v3_and_below
    expected = ErrorCode.NONE if partitions == "there" else ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    assert {each.partition_error_code for each in topic.results_by_partition} == {expected}


def test_topics_of_a_transaction_that_are_not_there(live: LiveNode, wire: Wire, producer: Fields):
    topics = [{"name": f"none{n}", "partitions": [0]} for n in range(MANY)]
    wire.ask(live.port, ApiKey.ADD_PARTITIONS_TO_TXN, 3, **_adding(producer, topics))


def test_transactions_of_a_broker(live: LiveNode, wire: Wire, producer: Fields):
    each = {"transactional_id": "x", "verify_only": True, "topics": [], **producer}
    wire.ask(live.port, ApiKey.ADD_PARTITIONS_TO_TXN, 4, transactions=[each] * MANY)


def test_offsets_committed_in_a_transaction_and_without(live: LiveNode, wire: Wire, producer: Fields):
    fields = {"group_id": "g", "generation_id": -1, "member_id": "", "topics": _offsets(MANY)}
    transaction = {"transactional_id": "x", **producer}
    added = wire.ask(live.port, ApiKey.ADD_OFFSETS_TO_TXN, 3, **transaction, group_id="g")
    assert added.error_code == ErrorCode.NONE
    answer = wire.ask(live.port, ApiKey.TXN_OFFSET_COMMIT, 3, **fields, **transaction)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    del fields["generation_id"]
    answer = wire.ask(live.port, ApiKey.OFFSET_COMMIT, 8, **fields, generation_id_or_member_epoch=-1)
    assert {each.error_code for each in answer.topics[0].partitions} == {0}
    end = {"transactional_id": "x", "committed": False, **producer}
    assert wire.ask(live.port, ApiKey.END_TXN, 3, **end).error_code == 0


def test_offsets_that_are_deleted(live: LiveNode, wire: Wire, producer: Fields):
    one = {"group_id": "deleted", "generation_id_or_member_epoch": -1, "member_id": ""}
    wire.ask(live.port, ApiKey.OFFSET_COMMIT, 8, **one, topics=_offsets(1))
    partitions = [{"partition_index": n % PARTITIONS} for n in range(4 * MANY)]
    topics = [{"name": WIDE, "partitions": partitions}]
    answer = wire.ask(live.port, ApiKey.OFFSET_DELETE, 0, group_id="deleted", topics=topics)
    assert answer.error_code == ErrorCode.NONE


def test_protocols_and_members_of_a_group(live: LiveNode, wire: Wire, producer: Fields):
    fields = {"session_timeout_ms": LONGEST_MS, "rebalance_timeout_ms": LONGEST_MS, "member_id": ""}
    protocols = [{"name": f"p{n}", "metadata": b""} for n in range(MANY)]
    joining = {**fields, "group_id": "joined", "protocol_type": "consumer", "protocols": protocols}
    answer = wire.ask(live.port, ApiKey.JOIN_GROUP, 3, **joining)
    assert answer.error_code == ErrorCode.GROUP_MAX_SIZE_REACHED
    answer = wire.ask(live.port, ApiKey.JOIN_GROUP, 3, **{**joining, "protocols": protocols[:1000]})
    assert answer.error_code == ErrorCode.NONE
    member = {"group_id": "joined", "generation_id": answer.generation_id, "member_id": answer.member_id}
    assignments = [{"member_id": f"m{n}", "assignment": b""} for n in range(MANY)]
    answer = wire.ask(live.port, ApiKey.SYNC_GROUP, 3, **member, assignments=assignments)
    assert answer.error_code == ErrorCode.NONE
    leaving = [{"member_id": f"m{n}", "group_instance_id": None} for n in range(MANY)]
    answer = wire.ask(live.port, ApiKey.LEAVE_GROUP, 4, group_id="joined", members=leaving)
    assert len(answer.members) == MANY


def test_topics_of_a_member_of_the_consumer_protocol(live: LiveNode, wire: Wire, producer: Fields):
    fields = {"group_id": "modern", "member_id": "", "member_epoch": 0, "rebalance_timeout_ms": 10_000}
    names = [f"none{n}" for n in range(MANY)]

    def refusal(**more: Any) -> int:
        answer = wire.ask(live.port, ApiKey.CONSUMER_GROUP_HEARTBEAT, 0, **{**fields, **more})
        return int(answer.error_code)

    joining: Fields = {"topic_partitions": []}
    assert refusal(**joining, subscribed_topic_names=names) == ErrorCode.GROUP_MAX_SIZE_REACHED
    assert refusal(**joining, subscribed_topic_names=names[:10_000]) == ErrorCode.NONE
    owned = [{"topic_id": UUID(int=n + 1), "partitions": [0]} for n in range(MANY // 2)]
    stranger = {"member_id": "m", "member_epoch": 1, "topic_partitions": owned}
    assert refusal(**stranger) == ErrorCode.UNKNOWN_MEMBER_ID
