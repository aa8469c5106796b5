"""The JSON API and the console's files, asked of real nodes."""

from __future__ import annotations

import http.client
import json
from collections.abc import Mapping
from typing import Any, NamedTuple

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from kraft.cli.main import cli
from kraft.http.api import ROUTES
from kraft.http.messages import MAX_UNPACKED_BYTES
from kraft.http.writes import ROUTES as WRITE_ROUTES
from kraft.local.local_cluster import LocalCluster
from tests.support.clients.rdkafka import consumer, read, send
from tests.support.clients.transactions import transactional
from tests.support.nodes.forks import run_kraft
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("U5")

TOPIC = "browsed"
TIME_MS = 1_700_000_000_000


class Answer(NamedTuple):
    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


def ask(cluster: LocalCluster, path: str, *, method: str = "GET", node_id: int = 1, **headers: str) -> Answer:
    connection = http.client.HTTPConnection("127.0.0.1", cluster.nodes[node_id].http_port, timeout=60)
    try:
        connection.request(method, path, headers=headers)
        response = connection.getresponse()
        return Answer(response.status, dict(response.getheaders()), response.read())
    finally:
        connection.close()


@pytest.fixture(scope="module")
def used(shared_cluster: LocalCluster) -> LocalCluster:
    """A topic with three records of partition 1, of which the group `viewers` has read one."""
    bootstrap = shared_cluster.bootstrap
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(TOPIC, 2, 3, config={"retention.ms": "-1"})])[TOPIC].result()
    records = [
        {"value": b'{"n": 1}', "key": b"one"},
        {"value": bytes([0xFF, 0xFE]), "headers": [("h", b"x")]},
        {"value": b"v" * 5000},
    ]
    for number, record in enumerate(records):
        send(bootstrap, TOPIC, [{**record, "partition": 1, "timestamp": TIME_MS + number}], acks="all")
    assert len(read(bootstrap, TOPIC, 3, partition=1)) == 3
    with consumer(bootstrap, group_id="viewers") as reading:
        reading.commit(offsets=[TopicPartition(TOPIC, 1, 1)], asynchronous=False)
    return shared_cluster


def test_every_node_tells_the_whole_cluster(used: LocalCluster) -> None:
    def whole(node_id: int) -> Any:
        """Who does not answer in time, on a busy machine, is asked again."""
        view = ask(used, f"/api/v1/cluster?topic={TOPIC}", node_id=node_id).json
        (partition,) = [each for each in view["partitions"] if each["partition"] == 1]
        brokers = [(each["id"], each["answers"], each["fenced"]) for each in view["brokers"]]
        is_whole = brokers == [(each, True, False) for each in used.nodes]
        ends = {each["id"]: each["end"] for each in partition["replicas"]}
        return view if is_whole and ends == dict.fromkeys(used.nodes, 3) and view["quorum"] else None

    for node_id in used.nodes:
        view = wait_until(lambda at=node_id: whole(at), f"all that node {node_id} tells")  # type: ignore[misc]
        assert view["told_by"] == node_id
        assert view["quorum"]["leader"] in used.nodes
        assert {voter["id"] for voter in view["quorum"]["voters"]} == set(used.nodes)
        (partition,) = [each for each in view["partitions"] if each["partition"] == 1]
        assert (partition["start"], partition["high_watermark"], partition["end"]) == (0, 3, 3)
        assert partition["state"] == "in sync"


def test_a_topic_tells_what_was_set_for_it(used: LocalCluster) -> None:
    topic = ask(used, f"/api/v1/topics/{TOPIC}").json
    assert topic["configs"] == {"retention.ms": "-1"}
    assert topic["size"] > 5000
    assert TOPIC in {each["name"] for each in ask(used, "/api/v1/topics").json["topics"]}
    told = ask(used, f"/api/v1/topics?containing={TOPIC[1:]}&limit=1").json
    assert [(each["name"], each["partitions"], each["size"] > 5000) for each in told["topics"]] == [
        (TOPIC, 2, True)
    ]
    assert ask(used, "/api/v1/topics?limit=0").json["more"] > 0


def own_origin(cluster: LocalCluster, node_id: int = 1) -> str:
    return f"http://127.0.0.1:{cluster.nodes[node_id].http_port}"


def messages(cluster: LocalCluster, query: str) -> list[dict[str, Any]]:
    path = f"/api/v1/topics/{TOPIC}/partitions/1/messages?{query}"
    found: list[dict[str, Any]] = ask(cluster, path).json["messages"]
    return found


def test_messages_are_read_by_offset_by_time_and_the_newest(used: LocalCluster) -> None:
    one, two, three = messages(used, "offset=0")
    assert one["key"] == {"text": "one", "bytes": 3}
    assert one["value"] == {"text": '{"n": 1}', "bytes": 8}
    assert two["key"] is None
    assert two["value"] == {"base64": "//4=", "bytes": 2}
    assert two["headers"] == [["h", {"text": "x", "bytes": 1}]]
    assert three["value"] == {"text": "v" * 4096, "bytes": 5000}
    assert [each["offset"] for each in messages(used, "offset=1&limit=1")] == [1]
    assert [each["offset"] for each in messages(used, "limit=1")] == [2]
    assert [each["offset"] for each in messages(used, f"time_ms={TIME_MS + 1}")] == [1, 2]
    assert messages(used, f"time_ms={TIME_MS + 100}") == []


def test_what_cannot_be_shown_hides_nothing_behind_it(shared_cluster: LocalCluster) -> None:
    bootstrap, topic = shared_cluster.bootstrap, "large-messages"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 1)])[topic].result()
    for value in (bytes(MAX_UNPACKED_BYTES + 1), "é".encode() * 3000):
        most = 2 * MAX_UNPACKED_BYTES
        send(bootstrap, topic, [{"value": value}], compression_type="gzip", message_max_bytes=most)
    path = f"/api/v1/topics/{topic}/partitions/0/messages?offset=0"
    wait_until(lambda: ask(shared_cluster, path).status == 200, "node 1 knows the topic")
    problem, text = ask(shared_cluster, path).json["messages"]
    assert problem["offset"] == 0
    assert "offsets 0 to 0 cannot be shown" in problem["problem"]
    assert (text["offset"], text["problem"]) == (1, None)
    assert text["value"] == {"text": "é" * 2048, "bytes": 6000}


def test_a_group_tells_its_lag(used: LocalCluster) -> None:
    group = ask(used, "/api/v1/groups/viewers").json
    assert (group["type"], group["state"], group["members"], group["lag"]) == ("classic", "Empty", [], 2)
    place = {"topic": TOPIC, "partition": 1, "offset": 1, "end": 3}
    assert group["offsets"] == [{**place, "lag": 2, "lag_exact": True}]


def test_members_tell_what_is_assigned_to_them(used: LocalCluster) -> None:
    with consumer(used.bootstrap, group_id="assigned") as reading:
        reading.subscribe([TOPIC])

        def assigned() -> Any:
            reading.poll(0.1)
            told = ask(used, "/api/v1/groups/assigned")
            members = told.json["members"] if told.status == 200 else []
            return [each["assigned"] for each in members]

        wait_until(lambda: assigned() == [{TOPIC: [0, 1]}], "the assignment is told")


def test_transactions_that_are_open_are_told(used: LocalCluster) -> None:
    producer = transactional(used.bootstrap, "told")
    producer.begin_transaction()
    producer.produce(TOPIC, b"v", partition=0)
    producer.flush(60)

    def told(name: str = "told") -> list[Any]:
        found = ask(used, "/api/v1/transactions").json["transactions"]
        return [each for each in found if each["transactional_id"] == name]

    wait_until(told, "the coordinator tells it")
    (open_one,) = told()
    assert (open_one["state"], open_one["problem"]) == ("Ongoing", None)
    wait_until(
        lambda: told()[0]["partitions"] == [{"topic": TOPIC, "partition": 0, "first_offset": 0}],
        "the leader tells where it begins",
    )
    producer.abort_transaction(60)
    wait_until(lambda: told() == [], "it has ended")


def test_quotas_are_told(used: LocalCluster) -> None:
    done = run_kraft("quota", "set", "producer_byte_rate=1e9", "--client-id", "told", "-b", used.bootstrap)
    assert done.returncode == 0, done.stderr
    wanted = {"entity": [{"type": "client-id", "name": "told"}], "limits": {"producer_byte_rate": 1e9}}
    wait_until(lambda: wanted in ask(used, "/api/v1/quotas").json["quotas"], "the quota is told")
    assert run_kraft("quota", "delete", "--client-id", "told", "-b", used.bootstrap).returncode == 0


def test_the_description_names_every_path_and_every_path_answers(used: LocalCluster) -> None:
    described = ask(used, "/api/openapi.json").json
    assert described["openapi"].startswith("3.1")
    reads = {path for path, operations in described["paths"].items() if "get" in operations}
    assert {route.path for route in ROUTES} | {"/api/v1/live", "/api/v1/writes", "/api/openapi.json"} | {
        "/status", "/ready", "/metrics"
    } == reads  # fmt: skip
    assert {path for path, by in described["paths"].items() if "post" in by} == {
        route.path for route in WRITE_ROUTES
    }
    for path in reads:
        if path != "/api/v1/live":
            filled = path.format(topic=TOPIC, partition=0, group="viewers")
            assert ask(used, filled).status == 200, path


@pytest.mark.parametrize(
    ("path", "status"),
    [
        ("/nowhere", 404),
        ("/api/v1/nowhere", 404),
        ("/api/v1/topics/absent", 404),
        ("/api/v1/groups/absent", 404),
        (f"/api/v1/topics/{TOPIC}/partitions/9/messages", 404),
        (f"/api/v1/topics/{TOPIC}/partitions/{'9' * 5000}/messages", 404),
        (f"/api/v1/topics/{TOPIC}/partitions/{'0' * 5000}/messages", 404),
        (f"/api/v1/topics/{TOPIC}/partitions/%D9%A0/messages", 404),
        (f"/api/v1/topics/{TOPIC}/partitions/1/messages?offset=-1", 400),
        ("/api/v1/events?since=x", 400),
        ("/../../etc/passwd", 404),
    ],
)
def test_what_is_not_there_is_refused(used: LocalCluster, path: str, status: int) -> None:
    answer = ask(used, path)
    assert answer.status == status
    assert answer.json["error"]


def test_nothing_is_changed_by_http(used: LocalCluster) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS"):
        assert ask(used, "/api/v1/topics", method=method).status == 405
    writes = ask(used, "/api/v1/writes").json
    assert writes == {"produce": False, "faults": None, "token": None}
    path = f"/api/v1/topics/{TOPIC}/partitions/0/messages"
    assert ask(used, path, method="POST", Origin=own_origin(used)).status == 405


@pytest.mark.parametrize(
    "path", ["/", "/console.js", "/topics.js", "/console.css", "/api", "/api.js", "/api/v1/topics"]
)
def test_browsers_are_told_to_keep_to_this_site(used: LocalCluster, path: str) -> None:
    answer = ask(used, path, Origin="http://elsewhere.example")
    assert answer.status == 200
    policy = answer.headers["Content-Security-Policy"]
    assert "default-src 'none'" in policy
    assert "unsafe" not in policy
    assert answer.headers["X-Content-Type-Options"] == "nosniff"
    assert not [name for name in answer.headers if name.lower().startswith("access-control")]
    assert b"http://" not in answer.body.replace(b"http://www.w3.org", b"")
    assert b"https://" not in answer.body


def test_a_name_that_was_pointed_at_the_node_gets_nothing(used: LocalCluster) -> None:
    assert ask(used, "/api/v1/topics", Host="evil.example").status == 421
    assert ask(used, "/metrics", Host="evil.example:9292").status == 421
    for host in ("localhost", "localhost:9292", "127.0.0.1:9292", "[::1]:9292"):
        assert ask(used, "/api/v1/topics", Host=host).status == 200


def test_the_stream_tells_the_cluster_and_what_happens(used: LocalCluster) -> None:
    connection = http.client.HTTPConnection("127.0.0.1", used.nodes[2].http_port, timeout=60)
    connection.request("GET", "/api/v1/live")
    response = connection.getresponse()
    assert response.getheader("Content-Type") == "text/event-stream"
    kinds: set[str] = set()
    subjects: set[str] = set()

    def read_on() -> bool:
        line = response.readline().decode().strip()
        if line.startswith("event: "):
            kinds.add(line.removeprefix("event: "))
        elif line.startswith("data: ["):
            subjects.update(event["subject"] for event in json.loads(line.removeprefix("data: ")))
        return "cluster" in kinds and "streamed" in subjects

    wait_until(lambda: read_on() or "cluster" in kinds, "the cluster is sent")
    admin = AdminClient({"bootstrap.servers": used.bootstrap})
    admin.create_topics([NewTopic("streamed", 1, 1)])["streamed"].result()
    wait_until(read_on, "the new topic is sent")
    connection.close()


def test_the_lag_of_a_group_is_what_a_reader_still_gets(shared_cluster: LocalCluster) -> None:
    """Markers and aborted records have offsets, and are no records."""
    bootstrap, topic, group = shared_cluster.bootstrap, "honest-lag", "honest"
    admin = AdminClient({"bootstrap.servers": bootstrap})
    admin.create_topics([NewTopic(topic, 1, 3)])[topic].result()
    producer = transactional(bootstrap, "honest-lag")
    for end in (producer.commit_transaction, producer.abort_transaction):
        producer.begin_transaction()
        for _ in range(3):
            producer.produce(topic, b"x")
        assert producer.flush(60) == 0
        end(60)
    with consumer(bootstrap, group_id=group) as reading:
        reading.commit(offsets=[TopicPartition(topic, 0, 1)], asynchronous=False)

    def told(node_id: int) -> Any:
        groups = ask(shared_cluster, "/api/v1/groups", node_id=node_id).json["groups"]
        return next((each["offsets"] for each in groups if each["id"] == group), None)

    place = {"topic": topic, "partition": 0, "offset": 1, "end": 8, "lag": 2, "lag_exact": True}
    for node_id in shared_cluster.nodes:
        wait_until(lambda at=node_id: told(at) == [place], f"node {node_id} tells 2 of 7 offsets")
    described = CliRunner().invoke(
        cli, ["group", "describe", group, "--output", "json", "--bootstrap-server", bootstrap]
    )
    (row,) = json.loads(described.stdout)
    assert (row["LOG-END-OFFSET"], row["LAG"]) == (8, 2)
