"""librdkafka's transactions: commit, abort, fencing, timeouts, offsets; what read_committed sees."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import pytest
from confluent_kafka import KafkaException

from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import consumer, poll, read, send
from tests.support.clients.transactions import committed, transactional, write
from tests.support.clients.wire_client import Wire
from tests.support.waiting import PATIENCE_S, wait_until


def values(messages: Iterable[Any]) -> list[str]:
    return [message.value().decode() for message in messages]


@pytest.mark.row("P4")
def test_several_partitions_commit_or_abort_together(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic(3)
    producer = transactional(bootstrap, topic)
    for number in range(4):
        producer.begin_transaction()
        write(producer, topic, (f"{number}-{each}" for each in range(6)), partitions=3)
        if number % 2 == 0:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
    wait_until(
        lambda: (
            committed(bootstrap, topic, 3)
            == sorted(f"{number}-{each}" for number in (0, 2) for each in range(6))
        ),
        "the committed ones, and no other",
    )
    assert len(read(bootstrap, topic, 8, isolation_level="read_uncommitted")) == 8


@pytest.mark.row("P4")
def test_what_lies_behind_an_open_transaction_waits_for_its_end(
    bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = transactional(bootstrap, topic)
    producer.begin_transaction()
    write(producer, topic, ["open"])
    send(bootstrap, topic, [{"value": "plain"}])
    assert committed(bootstrap, topic) == []
    producer.abort_transaction(PATIENCE_S)
    wait_until(lambda: committed(bootstrap, topic) == ["plain"], "the end of the transaction")


@pytest.mark.row("P4")
def test_a_zombie_is_fenced(bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    old = transactional(bootstrap, topic)
    old.begin_transaction()
    write(old, topic, ["of the old one"])
    new = transactional(bootstrap, topic)
    with pytest.raises(KafkaException) as fenced:
        old.commit_transaction(PATIENCE_S)
    assert fenced.value.args[0].fatal()
    new.begin_transaction()
    write(new, topic, ["of the new one"])
    new.commit_transaction(PATIENCE_S)
    wait_until(lambda: committed(bootstrap, topic) == ["of the new one"], "only the new one's")


@pytest.mark.row("P4", "G4")
@pytest.mark.parametrize("commits", [True, False])
def test_offsets_commit_with_the_transaction(
    bootstrap: str, make_topic: MakeTopic, commits: bool, wire: Wire
) -> None:
    source, sink = make_topic(), make_topic()
    group = f"{source}-group"
    send(bootstrap, source, ({"value": str(n)} for n in range(5)))
    with consumer(bootstrap, group_id=group, auto_offset_reset="earliest") as reader:
        reader.subscribe([source])
        taken = poll(reader, 5)
        producer = transactional(bootstrap, sink)
        producer.begin_transaction()
        write(producer, sink, values(taken))
        positions = reader.position(reader.assignment())
        producer.send_offsets_to_transaction(positions, reader.consumer_group_metadata(), PATIENCE_S)
        if commits:
            producer.commit_transaction(PATIENCE_S)
        else:
            producer.abort_transaction(PATIENCE_S)
        wanted = (5, values(taken)) if commits else (-1001, [])

        def outcome() -> tuple[int, list[str]]:
            return reader.committed(reader.assignment())[0].offset, committed(bootstrap, sink)

        wait_until(lambda: outcome() == wanted, "offsets and records have one fate")
