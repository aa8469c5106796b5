"""What followers, and clients that know epochs, are answered: fences, diverging epochs, sessions, order.

The stock clients cannot be made to ask these questions on purpose; our own can ask anything.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any
from uuid import UUID

import pytest

from kraft.local.local_cluster import LocalCluster
from kraft.wire.api_keys import ApiKey
from kraft.wire.bridge import Message, decode_response, encode_request
from metadata_quorum.foundation.batch import Record, encode_batch, iter_headers
from metadata_quorum.foundation.errors import ErrorCode
from tests.compat.placed_topics import FETCH_VERSION, FOLLOWER, LEADER, Topic, error, make_placed, values_of
from tests.support.clients.wire_client import Wire
from tests.support.waiting import wait_until

MakePlaced = Callable[..., Topic]


@pytest.fixture
def place(shared_cluster: LocalCluster, wire: Wire, request: pytest.FixtureRequest) -> MakePlaced:
    """`place([1, 2, 3], [1, 2, 3])`: a topic with two partitions, led by node 1."""

    def make(*replicas: list[int], **configs: str) -> Topic:
        name = request.node.originalname.removeprefix("test_")
        return make_placed(wire, shared_cluster, name, *replicas, **configs)

    return make


# ---- leader epochs -----------------------------------------------------------------------------------


@dataclass
class Aged:
    """A partition whose leader moved away and came back: three epochs, ends 3, 5 and 6."""

    topic: Topic
    epochs: list[int]


@pytest.fixture(scope="module")
def aged(shared_cluster: LocalCluster) -> Iterator[Aged]:
    with Wire() as wire:
        topic = make_placed(wire, shared_cluster, "aged", [1, 2, 3])
        epochs = [topic.partition().leader_epoch]
        assert error(topic.produce(b"a", b"b", b"c")) is ErrorCode.NONE
        shared_cluster.stop(1)
        try:
            moved = topic.wait_for(lambda now: now.leader_id == 2, "node 2 leads", seen_by=2)
            epochs.append(moved.leader_epoch)
            assert error(topic.produce(b"d", b"e", to=2)) is ErrorCode.NONE
        finally:
            shared_cluster.start_node(1)
        topic.wait_for(lambda now: 1 in now.isr_nodes, "node 1 is in the ISR", seen_by=2)
        elected = wire.ask(
            topic.port(2), ApiKey.ELECT_LEADERS, 2, election_type=0, timeout_ms=30_000,
            topic_partitions=[{"topic": "aged", "partitions": [0]}],
        )  # fmt: skip
        assert elected.replica_election_results[0].partition_result[0].error_code == 0
        back = topic.wait_for(lambda now: now.leader_id == 1, "node 1 leads again")
        epochs.append(back.leader_epoch)
        topic.wait_for(lambda now: now.leader_id == 1, "node 2 knows it", seen_by=2)
        wait_until(lambda: error(topic.produce(b"f")) is ErrorCode.NONE, "node 1 takes records")
        yield Aged(topic, epochs)


@pytest.mark.row("R5")
def test_offset_for_leader_epoch(aged: Aged) -> None:
    def ask(epoch: int, *, of: int = LEADER, current: int = -1) -> tuple[ErrorCode, int, int]:
        partition = {"partition": 0, "leader_epoch": epoch, "current_leader_epoch": current}
        topics = [{"topic": aged.topic.name, "partitions": [partition]}]
        answer = aged.topic.wire.ask(
            aged.topic.port(of), ApiKey.OFFSET_FOR_LEADER_EPOCH, 4, replica_id=-1, topics=topics
        )
        found = answer.topics[0].partitions[0]
        return error(found), found.leader_epoch, found.end_offset

    first, second, third = aged.epochs
    assert first < second < third
    assert ask(first) == (ErrorCode.NONE, first, 3)
    assert ask(second) == (ErrorCode.NONE, second, 5)
    assert ask(third) == (ErrorCode.NONE, third, 6)
    assert ask(third + 1) == (ErrorCode.NONE, -1, -1)
    assert ask(first, current=second)[0] is ErrorCode.FENCED_LEADER_EPOCH
    assert ask(first, current=third + 1)[0] is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert ask(first, of=FOLLOWER)[0] is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.row("R9")
def test_epochs_in_a_fetch(aged: Aged) -> None:
    first, second, third = aged.epochs
    topic = aged.topic
    assert values_of(topic.fetch(current_leader_epoch=third)) == [b"a", b"b", b"c", b"d", b"e", b"f"]
    assert error(topic.fetch(current_leader_epoch=second)) is ErrorCode.FENCED_LEADER_EPOCH
    assert error(topic.fetch(current_leader_epoch=first)) is ErrorCode.FENCED_LEADER_EPOCH
    assert error(topic.fetch(current_leader_epoch=third + 1)) is ErrorCode.UNKNOWN_LEADER_EPOCH


@pytest.mark.row("R5")
def test_a_diverging_epoch_is_reported(aged: Aged) -> None:
    first, _, third = aged.epochs
    found = aged.topic.fetch(fetch_offset=4, last_fetched_epoch=first)
    assert error(found) is ErrorCode.NONE
    assert (found.diverging_epoch.epoch, found.diverging_epoch.end_offset) == (first, 3)
    assert not found.records
    same = aged.topic.fetch(fetch_offset=6, last_fetched_epoch=third)
    assert same.diverging_epoch.end_offset == -1


@pytest.mark.row("R9")
def test_epochs_in_list_offsets(aged: Aged) -> None:
    def ask(current: int, of: int = LEADER) -> Message:
        partition = {"partition_index": 0, "timestamp": -1, "current_leader_epoch": current}
        topics = [{"name": aged.topic.name, "partitions": [partition]}]
        answer = aged.topic.wire.ask(
            aged.topic.port(of), ApiKey.LIST_OFFSETS, 9, replica_id=-1, topics=topics
        )
        return answer.topics[0].partitions[0]

    _, second, third = aged.epochs
    assert (ask(third).offset, ask(third).leader_epoch) == (6, third)
    assert error(ask(second)) is ErrorCode.FENCED_LEADER_EPOCH
    assert error(ask(third + 1)) is ErrorCode.UNKNOWN_LEADER_EPOCH
    assert error(ask(-1, of=FOLLOWER)) is ErrorCode.NOT_LEADER_OR_FOLLOWER


@pytest.mark.row("R9")
def test_the_wrong_broker_names_the_right_one(place: MakePlaced) -> None:
    """KIP-951: with the error comes who leads, in which epoch, and where."""
    topic = place([1])
    answer = topic.fetch_all([topic.wanted()], of=2)
    refused = answer.responses[0].partitions[0]
    assert error(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, 0)
    assert [(each.node_id, each.port) for each in answer.node_endpoints] == [(1, topic.port(1))]
    refused = topic.produce(b"x", to=2)
    assert error(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, 0)


def test_a_consumer_may_read_from_a_follower(aged: Aged) -> None:
    """Since version 11, up to the high watermark that the follower knows of; a producer may not write."""
    assert values_of(aged.topic.fetch(of=FOLLOWER))[:5] == [b"a", b"b", b"c", b"d", b"e"]
    refused = aged.topic.produce(b"x", to=FOLLOWER)
    assert error(refused) is ErrorCode.NOT_LEADER_OR_FOLLOWER
    assert (refused.current_leader.leader_id, refused.current_leader.leader_epoch) == (1, aged.epochs[2])


@pytest.mark.row("R9")
def test_other_refusals_of_a_fetch(aged: Aged) -> None:
    topic = aged.topic
    assert error(topic.fetch(fetch_offset=100)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error(topic.fetch(fetch_offset=-5)) is ErrorCode.OFFSET_OUT_OF_RANGE
    assert error(topic.fetch(partition=9)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    stranger = Topic(topic.wire, topic.cluster, "stranger", UUID(int=7))
    assert error(stranger.fetch()) is ErrorCode.UNKNOWN_TOPIC_ID
    no_replica = topic.fetch_all([topic.wanted()], replica_state={"replica_id": 9, "replica_epoch": 1})
    assert error(no_replica.responses[0].partitions[0]) in (
        ErrorCode.NOT_LEADER_OR_FOLLOWER, ErrorCode.UNKNOWN_LEADER_EPOCH
    )  # fmt: skip


# ---- sessions, limits, order -------------------------------------------------------------------------


def test_a_session_ends_with_its_connection(place: MakePlaced) -> None:
    """What nobody comes back for would be woken by every append."""
    topic = place([1, 2, 3])
    with Wire() as first:
        session = replace(topic, wire=first).fetch_all([topic.wanted()], session_epoch=0).session_id
    assert session != 0
    gone = ErrorCode.FETCH_SESSION_ID_NOT_FOUND

    def is_gone() -> bool:
        return topic.fetch_all([], session_id=session, session_epoch=9).error_code == gone

    wait_until(is_gone, "the session to end")


@pytest.mark.row("R1")
def test_incremental_sessions(place: MakePlaced) -> None:
    topic = place([1, 2, 3], [1, 2, 3])
    both = [topic.wanted(0), topic.wanted(1)]
    full = topic.fetch_all(both, session_epoch=0)
    session = full.session_id
    assert session != 0
    assert [each.partition_index for each in full.responses[0].partitions] == [0, 1]

    def resume(epoch: int, *changed: dict[str, Any], **fields: Any) -> Message:
        return topic.fetch_all(list(changed), session_id=session, session_epoch=epoch, **fields)

    assert resume(1).responses == []  # nothing is new
    topic.produce(b"v", partition=1)
    news = resume(2)
    (partition,) = news.responses[0].partitions
    assert (news.session_id, partition.partition_index, values_of(partition)) == (session, 1, [b"v"])
    assert resume(3, topic.wanted(1, fetch_offset=1)).responses == []
    assert error(resume(3)) is ErrorCode.INVALID_FETCH_SESSION_EPOCH
    forget = [{"topic_id": topic.id, "partitions": [1]}]
    assert error(resume(4, forgotten_topics_data=forget)) is ErrorCode.NONE
    topic.produce(b"unheard", partition=1)
    topic.produce(b"heard", partition=0)
    (partition,) = resume(5).responses[0].partitions
    assert (partition.partition_index, values_of(partition)) == (0, [b"heard"])
    assert error(resume(-1)) is ErrorCode.NONE  # ends the session
    assert error(resume(6)) is ErrorCode.FETCH_SESSION_ID_NOT_FOUND


@pytest.mark.row("R7")
def test_partitions_take_turns(place: MakePlaced) -> None:
    """Each answer has room for one partition; every one gets its turn."""
    topic = place(*[[1, 2, 3]] * 4)
    for number in range(4):
        for _ in range(5):
            assert error(topic.produce(b"x" * 1_000, partition=number)) is ErrorCode.NONE
    offsets = dict.fromkeys(range(4), 0)
    answer = topic.fetch_all([topic.wanted(number) for number in offsets], session_epoch=0, max_bytes=900)
    served: list[int] = []
    changed: list[dict[str, Any]] = []
    for epoch in range(1, 9):
        changed = []
        for partition in answer.responses[0].partitions if answer.responses else []:
            if partition.records:
                records = bytes(partition.records)
                number = partition.partition_index
                offsets[number] = max(header.next_offset for _, header in iter_headers(records))
                served.append(number)
                changed.append(topic.wanted(number, fetch_offset=offsets[number]))
        answer = topic.fetch_all(changed, session_id=answer.session_id, session_epoch=epoch, max_bytes=900)
    assert len(served) == 8
    assert sorted(served[:4]) == sorted(served[4:]) == [0, 1, 2, 3]


@pytest.mark.row("R7")
def test_a_fetch_answers_in_the_order_asked_for_and_within_its_limits(place: MakePlaced) -> None:
    """As Apache Kafka's own FetchRequestTest has it: a last batch may be cut, a first one never."""
    topic = place([1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3], [1, 2, 3])
    for number in range(6):
        for _ in range(3):
            topic.produce(b"v" * 20, partition=number)
    assert error(topic.produce(b"large" * 40, partition=5)) is ErrorCode.NONE
    order = [3, 0, 4, 1, 2, 5]
    wanted = [topic.wanted(number, partition_max_bytes=190) for number in order]
    found = topic.fetch_all(wanted, max_bytes=800).responses[0].partitions
    assert [each.partition_index for each in found] == order
    sizes = [len(each.records or b"") for each in found]
    assert sizes == [190, 190, 190, 190, 0, 0]  # 40 bytes are left, too few for a batch
    large = [topic.wanted(5, fetch_offset=3, partition_max_bytes=190), *wanted[:5]]
    found = topic.fetch_all(large, max_bytes=800).responses[0].partitions
    assert [each.partition_index for each in found] == [5, *order[:5]]
    assert len(found[0].records) > 190  # whole, since it is the first of the answer
    assert sum(len(each.records or b"") for each in found) <= 800
    behind = [wanted[0], topic.wanted(5, fetch_offset=3, partition_max_bytes=190)]
    found = topic.fetch_all(behind, max_bytes=800).responses[0].partitions
    assert [len(each.records or b"") for each in found] == [190, 0]


def test_limits_of_a_fetch(place: MakePlaced) -> None:
    topic = place([1, 2, 3], [1, 2, 3])
    for number in (0, 1):
        for _ in range(4):
            topic.produce(b"y" * 1_000, partition=number)
    both = [topic.wanted(number, partition_max_bytes=2_500) for number in (0, 1)]
    answer = topic.fetch_all(both, max_bytes=1 << 20)
    assert [len(values_of(each)) for each in answer.responses[0].partitions] == [2, 2]
    # The first batch passes whatever its size; after it there is no room.
    answer = topic.fetch_all([topic.wanted(number, partition_max_bytes=1) for number in (0, 1)], max_bytes=1)
    assert [len(values_of(each)) for each in answer.responses[0].partitions] == [1, 0]


@pytest.mark.row("P2", "R1")
def test_a_parked_fetch_is_woken_by_an_append(place: MakePlaced) -> None:
    topic = place([1, 2, 3])
    wire = topic.wire
    fields = {
        "max_wait_ms": 60_000, "min_bytes": 1, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic_id": topic.id, "partitions": [topic.wanted()]}],
    }  # fmt: skip
    parked = wire.client(topic.port()).send(
        ApiKey.FETCH, FETCH_VERSION, (encode_request(ApiKey.FETCH, FETCH_VERSION, fields),)
    )
    with Wire() as other:
        began = time.monotonic()
        writer = Topic(other, topic.cluster, topic.name, topic.id)
        assert error(writer.produce(b"at last")) is ErrorCode.NONE

    async def answer() -> memoryview:
        return await asyncio.wait_for(parked, 60)

    found = decode_response(ApiKey.FETCH, FETCH_VERSION, wire.run(answer()))
    assert time.monotonic() - began < 30
    assert values_of(found.responses[0].partitions[0]) == [b"at last"]


@pytest.mark.row("P7")
def test_answers_come_in_the_order_of_the_requests(place: MakePlaced) -> None:
    """Slow ones and quick ones mixed: an acks=all produce, a fetch that waits, then what needs no time."""
    topic = place([1, 2, 3])
    client = topic.wire.client(topic.port())
    done: list[int] = []
    batch = encode_batch([Record(timestamp=1, value=b"v")])
    produce = {
        "acks": -1, "timeout_ms": 30_000,
        "topic_data": [{"name": topic.name, "partition_data": [{"index": 0, "records": batch}]}],
    }  # fmt: skip
    fetch = {
        "max_wait_ms": 300, "min_bytes": 1 << 20, "max_bytes": 1 << 20, "session_id": 0, "session_epoch": -1,
        "topics": [{"topic_id": topic.id, "partitions": [topic.wanted()]}],
    }  # fmt: skip
    requests: list[tuple[int, int, dict[str, Any]]] = [(18, 0, {}), (ApiKey.PRODUCE, 10, produce)] * 10
    requests += [
        (ApiKey.FETCH, FETCH_VERSION, fetch),
        (ApiKey.METADATA, 12, {"topics": None}),
        (ApiKey.PRODUCE, 10, produce),
    ]
    requests += [(18, 0, {})] * 5

    async def run() -> list[Message]:
        futures = []
        for number, (key, version, fields) in enumerate(requests):
            future = client.send(key, version, (encode_request(key, version, fields),))
            future.add_done_callback(lambda _, number=number: done.append(number))
            futures.append(future)
        bodies = await asyncio.wait_for(asyncio.gather(*futures), 60)
        return [
            decode_response(key, version, body)
            for (key, version, _), body in zip(requests, bodies, strict=True)
        ]

    answers = topic.wire.run(run())
    assert done == list(range(len(requests)))
    produced = [
        answer.responses[0].partition_responses[0]
        for (key, _, _), answer in zip(requests, answers, strict=True)
        if key == ApiKey.PRODUCE
    ]
    assert [each.base_offset for each in produced] == list(range(11))


# ---- acknowledgements, idempotence -------------------------------------------------------------------


@pytest.mark.row("R4")
def test_bad_produce_requests(place: MakePlaced) -> None:
    topic = place([1, 2, 3])
    assert error(topic.produce(b"v", acks=5)) is ErrorCode.INVALID_REQUIRED_ACKS
    assert error(topic.produce(b"v", partition=3)) is ErrorCode.UNKNOWN_TOPIC_OR_PARTITION
    broken = bytearray(encode_batch([Record(timestamp=1, value=b"v")]))
    broken[-1] ^= 1
    assert error(topic.produce_bytes(bytes(broken))) is ErrorCode.CORRUPT_MESSAGE
    good = topic.produce(b"v", acks=1)
    assert (error(good), good.base_offset) == (ErrorCode.NONE, 0)


@pytest.mark.row("R4")
def test_too_few_replicas_in_sync(place: MakePlaced, shared_cluster: LocalCluster) -> None:
    """min.insync.replicas=2 of two, and one of them is gone."""
    topic = place([1, 2], **{"min.insync.replicas": "2"})
    assert error(topic.produce(b"both")) is ErrorCode.NONE
    shared_cluster.pause(2)
    late = topic.produce(b"unconfirmed", timeout_ms=300)
    assert error(late) is ErrorCode.REQUEST_TIMED_OUT  # it is in the log all the same
    shared_cluster.kill(2)
    try:
        topic.wait_for(lambda now: now.isr_nodes == [1], "the ISR is node 1 alone")
        wait_until(
            lambda: error(topic.produce(b"no")) is ErrorCode.NOT_ENOUGH_REPLICAS, "acks=all is refused"
        )
        alone = topic.produce(b"acks=1", acks=1)
        assert error(alone) is ErrorCode.NONE
        assert alone.base_offset >= 2
    finally:
        shared_cluster.start_node(2)
    topic.wait_for(lambda now: sorted(now.isr_nodes) == [1, 2], "node 2 is in the ISR again")
    again = topic.produce(b"both again")
    assert (error(again), again.base_offset) == (ErrorCode.NONE, alone.base_offset + 1)


@pytest.mark.row("P3")
def test_duplicates_are_known_after_a_failover(place: MakePlaced, shared_cluster: LocalCluster) -> None:
    topic = place([3, 1, 2])
    given = topic.wire.ask(
        topic.port(), ApiKey.INIT_PRODUCER_ID, 4, transactional_id=None, transaction_timeout_ms=1
    )
    producer = {"producer_id": given.producer_id, "producer_epoch": given.producer_epoch}

    def batch(sequence: int, to: int) -> tuple[ErrorCode, int]:
        answer = topic.produce(b"%d" % sequence, to=to, base_sequence=sequence, **producer)
        return error(answer), answer.base_offset

    for sequence in range(7):
        assert batch(sequence, 3) == (ErrorCode.NONE, sequence)
    for sequence in (2, 3, 4, 5, 6):  # the last five are remembered
        assert batch(sequence, 3) == (ErrorCode.NONE, sequence)
    assert batch(9, 3)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
    shared_cluster.kill(3)
    try:
        leader = topic.wait_for(lambda now: now.leader_id in (1, 2), "another node leads").leader_id
        wait_until(lambda: batch(6, leader) == (ErrorCode.NONE, 6), "the duplicate is known there too")
        assert batch(4, leader) == (ErrorCode.NONE, 4)
        assert batch(9, leader)[0] is ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER
        assert batch(7, leader) == (ErrorCode.NONE, 7)
    finally:
        shared_cluster.start_node(3)
    assert values_of(topic.fetch(of=leader)) == [b"%d" % sequence for sequence in range(8)]
