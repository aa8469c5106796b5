"""Apache Kafka's Java clients and tools on our transactions: version 2, and what lies on our disks."""

from __future__ import annotations

import json
from collections import Counter

import pytest

from kraft.local.local_cluster import LocalCluster
from tests.compat.conftest import MakeTopic
from tests.support.clients.rdkafka import send
from tests.support.clients.transactions import committed, transactional, write
from tests.support.kafka.kafka_tools import KafkaTools
from tests.support.waiting import PATIENCE_S, wait_until

pytestmark = [pytest.mark.kafka, pytest.mark.row("P4", "U2")]


def rows(text: str) -> list[dict[str, str]]:
    header, *lines = (
        [cell.strip() for cell in line.split("\t")] for line in text.splitlines() if "\t" in line
    )
    return [dict(zip(header, line, strict=False)) for line in lines]


def test_the_java_client_copies_in_transactions_of_version_2(
    bare: KafkaTools, tools: KafkaTools, bootstrap: str, make_topic: MakeTopic
) -> None:
    """TransactionalMessageCopier, which aborts some transactions on its own."""
    source, sink = make_topic(), make_topic(2)
    values = [str(number) for number in range(60)]
    send(bootstrap, source, ({"value": value} for value in values))
    name = f"{sink}-copier"
    printed = bare.plain(
        "TransactionalMessageCopier", "--broker-list", bootstrap, "--input-topic", source,
        "--input-partition", "0", "--output-topic", sink, "--transactional-id", name,
        "--consumer-group", name, "--transaction-size", "10", "--enable-random-aborts",
    )  # fmt: skip
    assert json.loads(printed.splitlines()[-1])["totalProcessed"] == 60
    wait_until(lambda: len(committed(bootstrap, sink, 2)) == 60, "all is committed")
    assert Counter(committed(bootstrap, sink, 2)) == Counter(values)
    (described,) = rows(tools("TransactionsCommand", "describe", "--transactional-id", name))
    assert described["TransactionState"] == "CompleteCommit"
    assert int(described["ProducerEpoch"]) >= 6  # an epoch for every transaction


def test_the_transactions_tool(tools: KafkaTools, bootstrap: str, make_topic: MakeTopic) -> None:
    topic = make_topic()
    producer = transactional(bootstrap, topic)
    producer.begin_transaction()
    write(producer, topic, ["open"])
    listed = {row["TransactionalId"]: row for row in rows(tools("TransactionsCommand", "list"))}
    assert listed[topic]["TransactionState"] == "Ongoing"
    place = ("--topic", topic, "--partition", "0")
    (active,) = rows(tools("TransactionsCommand", "describe-producers", *place))
    assert active["CurrentTransactionStartOffset"] == "0"
    assert "Exception" not in tools("TransactionsCommand", "find-hanging", "--topic", topic)
    tools("TransactionsCommand", "abort", *place, "--start-offset", "0")
    (aborted,) = rows(tools("TransactionsCommand", "describe-producers", *place))
    assert aborted["CurrentTransactionStartOffset"] == "None"
    tools("TransactionsCommand", "forceTerminateTransaction", "--transactionalId", topic)


@pytest.mark.row("L1")
def test_the_files_are_kafkas(
    bare: KafkaTools, shared_cluster: LocalCluster, bootstrap: str, make_topic: MakeTopic
) -> None:
    topic = make_topic()
    producer = transactional(bootstrap, topic)
    for commit in (True, False):
        producer.begin_transaction()
        write(producer, topic, ["x", "y"])
        (producer.commit_transaction if commit else producer.abort_transaction)(PATIENCE_S)
    wait_until(lambda: len(committed(bootstrap, topic)) == 2, "the markers")
    data = shared_cluster.home(1) / "data"
    dump = "kafka.tools.DumpLogSegments"
    index = data / f"{topic}-0" / f"{0:020}.txnindex"
    wait_until(index.exists, "the aborted one is in the index of a follower too")
    (entry,) = [line for line in bare.plain(dump, "--files", str(index)).splitlines() if "producerId" in line]
    assert "firstOffset: 3" in entry
    assert "lastOffset: 5" in entry
    logs = [str(path / f"{0:020}.log") for path in data.glob("__transaction_state-*")]
    decoded = bare.plain(dump, "--transaction-log-decoder", "--files", ",".join(logs))
    own = [line for line in decoded.splitlines() if topic in line]
    for state in range(6):  # from Empty to CompleteAbort
        assert any(f'"transactionStatus":{state},' in line for line in own), (state, own)
