"""`kraft txn` on real nodes."""

from __future__ import annotations

import pytest
from confluent_kafka import KafkaException
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.local.local_cluster import LocalCluster
from tests.cli.shell import Shell
from tests.support.clients.transactions import committed, transactional, write
from tests.support.waiting import PATIENCE_S, wait_until


@pytest.mark.row("P4", "U2")
def test_an_open_transaction_is_seen_and_aborted(shared_cluster: LocalCluster) -> None:
    topic = name = "txn-cli"
    shell = Shell(shared_cluster.bootstrap)
    admin = AdminClient({"bootstrap.servers": shared_cluster.bootstrap})
    admin.create_topics([NewTopic(topic, 2, 3)])[topic].result()
    assert shell.refused("txn", "describe", name) == "txn-cli: there is no such transactional id"
    assert shell.refused("txn", "list", "--state", "Idle") == "Idle: there is no such state"
    producer = transactional(shared_cluster.bootstrap, name)
    idle = dict(line.split(": ", 1) for line in shell("txn", "describe", name).splitlines())
    assert (idle["State"], idle["Open"]) == ("Empty", "-")  # nothing has begun, so there is no start time
    producer.begin_transaction()
    write(producer, topic, ["a", "b"], partitions=2)
    assert any(line.split()[0::3] == [name, "Ongoing"] for line in shell("txn", "list").splitlines())
    described = dict(line.split(": ", 1) for line in shell("txn", "describe", name).splitlines())
    assert (described["State"], described["Partitions"]) == ("Ongoing", "txn-cli-0, txn-cli-1")
    assert shell("txn", "abort", name) == "Nothing of txn-cli is open; its producer is fenced.\n"
    assert name not in shell("txn", "list", "--state", "Ongoing")
    with pytest.raises(KafkaException):
        producer.commit_transaction(PATIENCE_S)
    wait_until(lambda: not committed(shared_cluster.bootstrap, topic, 2), "nothing of it is seen")
