"""A node whose console may write: messages are produced by its page, and by nothing else."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from kraft.http.client_requests import CLIENT_ID
from kraft.local.local_cluster import LocalCluster
from kraft.peers.blocking_client import ask as wire_ask
from kraft.wire.api_keys import ApiKey
from metadata_quorum.foundation.batch import Record, encode_batch
from metadata_quorum.foundation.errors import ErrorCode
from tests.cli.shell import Shell
from tests.support.clients.rdkafka import QUIET, read, send
from tests.support.clients.transactions import committed, transactional, write
from tests.support.nodes.cluster import running_cluster
from tests.support.nodes.forks import run_kraft
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("U5")

DOCTOR = ("doctor", "--watch", "0", "--output", "json")
PATH = "/api/v1/topics/written/partitions/0/messages"


@pytest.fixture(scope="module")
def writable(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[LocalCluster]:
    directory = tmp_path_factory.mktemp("writable")
    settings = {
        "kraft.http.writes": "true",
        "kraft.http.faults.dir": str(directory),
        "transaction.partition.verification.enable": "false",
    }
    with running_cluster(directory, free_ports(3), settings) as cluster:
        admin = AdminClient({"bootstrap.servers": cluster.bootstrap, **QUIET})
        for topic, created in admin.create_topics(
            [NewTopic(name, 1, 1) for name in ("written", "haunted", "alive")]
        ).items():
            created.result()
            messages = f"/api/v1/topics/{topic}/partitions/0/messages"
            wait_until(lambda path=messages: ask(cluster, "GET", path)[0] == 200, f"{topic} is led")  # type: ignore[misc]
        yield cluster


def ask(cluster: LocalCluster, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.nodes[1].http_port, timeout=60)
    try:
        connection.request(method, path, None if body is None else json.dumps(body), headers)
        response = connection.getresponse()
        return response.status, json.loads(response.read())
    finally:
        connection.close()


def of_the_page(cluster: LocalCluster) -> dict[str, str]:
    _, allowed = ask(cluster, "GET", "/api/v1/writes")
    assert allowed["produce"]
    assert allowed["faults"] is None, "there are no chaos links"
    origin = f"http://127.0.0.1:{cluster.nodes[1].http_port}"
    return {"Content-Type": "application/json", "X-Kraft-Token": allowed["token"], "Origin": origin}


def test_a_message_is_produced_with_key_value_and_headers(writable: LocalCluster) -> None:
    body = {"key": "k", "value": "é", "headers": {"a": "1", "b": None}}
    status, told = ask(writable, "POST", PATH, body, **of_the_page(writable))
    assert (status, told["offset"]) == (200, 0)
    assert ask(writable, "POST", PATH, {"key": "k", "value": None}, **of_the_page(writable))[1]["offset"] == 1
    first, second = read(writable.bootstrap, "written", 2)
    assert (first.key(), first.value(), first.headers()) == (b"k", "é".encode(), [("a", b"1"), ("b", None)])
    assert second.value() is None


@pytest.mark.parametrize(
    ("path", "body", "status"),
    [
        (PATH, {"value": 1}, 400),
        (PATH, {"value": "\ud800"}, 400),
        (PATH, {"headers": ["a"]}, 400),
        (PATH, {"headers": {"\ud800": None}}, 400),
        (PATH.replace("/0/", "/1/"), {"value": "v"}, 404),
        (PATH.replace("written", "absent"), {"value": "v"}, 404),
        ("/api/v1/topics", {}, 404),
        ("/api/v1/faults", {"action": "kill", "node": 1}, 404),
    ],
)
def test_what_cannot_be_written_is_refused(writable: LocalCluster, path: str, body: Any, status: int) -> None:
    answer, told = ask(writable, "POST", path, body, **of_the_page(writable))
    assert (answer, bool(told["error"])) == (status, True)


def test_a_transaction_that_no_coordinator_knows_hangs(writable: LocalCluster) -> None:
    """As one that was begun before a coordinator verified what leaders append (KIP-890)."""
    minute_ago_ms = int(time.time() * 1000) - 60_000
    batch = encode_batch(
        [Record(timestamp=minute_ago_ms, value=b"ghost")],
        producer_id=77, producer_epoch=0, base_sequence=0, transactional=True,
    )  # fmt: skip
    topic = {"name": "haunted", "partition_data": [{"index": 0, "records": batch}]}
    fields = {"transactional_id": "ghost", "acks": -1, "timeout_ms": 30_000, "topic_data": [topic]}
    answer = wire_ask("127.0.0.1", writable.nodes[1].client_port, ApiKey.PRODUCE, (8, 8), fields)
    assert ErrorCode(answer.responses[0].partition_responses[0].error_code) is ErrorCode.NONE
    wait_until(lambda: ask(writable, "GET", "/api/v1/transactions")[1]["transactions"], "it is told")
    (told,) = ask(writable, "GET", "/api/v1/transactions")[1]["transactions"]
    assert (told["transactional_id"], told["producer_id"]) == (None, 77)
    assert told["problem"].startswith("hangs")
    assert told["partitions"] == [{"topic": "haunted", "partition": 0, "first_offset": 0}]

    shell = Shell(writable.bootstrap)
    findings = {each["check"]: each for each in json.loads(shell.run(*DOCTOR).stdout)}
    assert findings["hanging"]["found"] == "no coordinator knows: producer 77 on haunted-0 from offset 0"
    send(writable.bootstrap, "haunted", [{"value": b"behind it"}])
    assert committed(writable.bootstrap, "haunted") == [], "readers of committed records wait"
    command = findings["hanging"]["what to do"].partition("kraft ")[2].split()
    assert shell.refused(*command[:-1], "7") == "haunted-0: no transaction is open there from offset 7"
    assert shell(*command) == "What producer 77 had open on haunted-0 is aborted.\n"
    assert committed(writable.bootstrap, "haunted") == ["behind it"]
    findings = {each["check"]: each for each in json.loads(shell.run(*DOCTOR).stdout)}
    assert findings["hanging"]["state"] == "ok"
    wait_until(lambda: not ask(writable, "GET", "/api/v1/transactions")[1]["transactions"], "it is gone")


def test_what_a_coordinator_knows_is_not_aborted_behind_its_back(writable: LocalCluster) -> None:
    producer = transactional(writable.bootstrap, "alive")
    producer.begin_transaction()
    write(producer, "alive", ["a"], partitions=1)
    shell = Shell(writable.bootstrap)
    refusal = shell.refused("txn", "abort", "--topic", "alive", "--partition", "0", "--start-offset", "0")
    assert refusal == "it does not hang, its coordinator knows it: kraft txn abort alive"
    assert shell.refused("txn", "abort", "--topic", "alive").startswith("give ID, or --topic, --partition")
    producer.commit_transaction(60)
    wait_until(lambda: committed(writable.bootstrap, "alive") == ["a"], "its marker is written")


def test_another_sites_page_writes_nothing(writable: LocalCluster) -> None:
    page = of_the_page(writable)
    for changed in ({"Origin": "http://evil.example"}, {"X-Kraft-Token": "guessed"}):
        assert ask(writable, "POST", PATH, {"value": "evil"}, **(page | changed))[0] == 403
    assert ask(writable, "OPTIONS", PATH, **page)[0] == 405


def test_what_is_read_counts_for_the_quota_of_whoever_reads(writable: LocalCluster) -> None:
    """As that of any client: a fetch that is over it brings nothing."""
    read_it = PATH + "?offset=0&limit=1"
    assert ask(writable, "POST", PATH, {"value": "v" * 10_000}, **of_the_page(writable))[0] == 200
    assert ask(writable, "GET", read_it)[0] == 200
    of_console = ("--client-id", CLIENT_ID, "-b", writable.bootstrap)
    assert run_kraft("quota", "set", "consumer_byte_rate=100", *of_console).returncode == 0
    wait_until(lambda: ask(writable, "GET", read_it)[0] == 429, "it is over its quota")
    assert ask(writable, "GET", "/api/v1/topics/written")[0] == 200, "what is no fetch is told"
    assert run_kraft("quota", "delete", *of_console).returncode == 0
