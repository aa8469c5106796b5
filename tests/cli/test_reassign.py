"""`kraft reassign` on real nodes: plan, run, status, cancel."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic
from typer.testing import CliRunner

from kraft.cli import reassign_requests as requests
from kraft.cli.main import cli
from kraft.cli.reassignment_plan import PlacedPartition, encode
from kraft.cli.resource_configs import overrides_of
from kraft.local.local_cluster import LocalCluster
from tests.support.clients.rdkafka import read, send
from tests.support.waiting import wait_until

pytestmark = pytest.mark.row("Q11", "U2")


@pytest.fixture
def bootstrap(shared_cluster: LocalCluster) -> str:
    return shared_cluster.bootstrap


@pytest.fixture
def admin(bootstrap: str) -> AdminClient:
    return AdminClient({"bootstrap.servers": bootstrap, "log_level": 0})


@pytest.fixture
def topic(request: pytest.FixtureRequest, admin: AdminClient) -> Iterator[str]:
    """Two partitions with one replica each, on broker 1; some records."""
    name = request.node.originalname.removeprefix("test_")[:60]
    admin.create_topics([NewTopic(name, 2, replica_assignment=[[1], [1]])])[name].result()
    wait_until(
        lambda: admin.list_topics(name, timeout=60).topics[name].partitions.keys() == {0, 1},
        "whoever is asked knows it",
    )
    yield name
    admin.delete_topics([name])[name].result()


def run(bootstrap: str, *arguments: str, stdin: str = "") -> str:
    done = CliRunner().invoke(cli, ["reassign", *arguments, "-b", bootstrap], input=stdin)
    return str(done.exception) if done.exception is not None else done.output


def test_planned_run_and_taken_back(bootstrap: str, admin: AdminClient, topic: str, tmp_path: Path) -> None:
    send(bootstrap, topic, [{"value": b"%d" % n, "partition": n % 2} for n in range(100)])
    way_back = tmp_path / "before.json"
    planned = run(bootstrap, "plan", topic, "--to", "2,3", "--save-current", str(way_back))
    plan = json.loads(planned)
    assert sorted(p["replicas"] for p in plan["partitions"]) == [[2], [3]]
    file = tmp_path / "plan.json"
    file.write_text(planned)
    said = run(bootstrap, "run", str(file), "--throttle", "50000000")
    assert said.splitlines()[-1] == "2 of 2 partitions moved"
    wait_until(
        lambda: sorted(each.replicas for each in requests.placed(bootstrap, [topic])) == [(2,), (3,)],
        "the broker that is asked knows",
    )
    assert [m.value() for m in read(bootstrap, topic, 50)] == [b"%d" % n for n in range(0, 100, 2)]
    wait_until(lambda: not overrides_of(bootstrap, "topic", topic), "the throttle is gone")
    rate = "leader.replication.throttled.rate"
    wait_until(lambda: rate not in overrides_of(bootstrap, "broker", "2"), "for brokers too")
    assert run(bootstrap, "run", "-", stdin=way_back.read_text()).endswith("2 of 2 partitions moved\n")
    wait_until(
        lambda: [each.replicas for each in requests.placed(bootstrap, [topic])] == [(1,), (1,)], "all is back"
    )


@pytest.mark.row("R12")
def test_throttled_looked_at_and_called_off(bootstrap: str, admin: AdminClient, topic: str) -> None:
    send(bootstrap, topic, [{"value": b"x" * 100_000, "partition": 0} for _ in range(30)])
    plan = encode([PlacedPartition(topic, 0, (2, 3))])
    assert (
        run(bootstrap, "run", "-", "--throttle", "1000", "--no-wait", stdin=plan)
        == "1 partition on the way.\n"
    )
    bound = {
        "follower.replication.throttled.replicas": "0:2,0:3",
        "leader.replication.throttled.replicas": "0:1",
    }
    wait_until(lambda: overrides_of(bootstrap, "topic", topic) == bound, "the topic's replicas are bound")
    rate = "leader.replication.throttled.rate"
    wait_until(lambda: overrides_of(bootstrap, "broker", "1").get(rate) == "1000", "the broker has its rate")
    columns, row = (line.split() for line in run(bootstrap, "status").splitlines())
    assert columns[0] == "topic"
    assert row == [topic, "0", "2,3", "2,3", "1", "2,3"], "3 MB at 1 KB/s are not there yet"
    assert run(bootstrap, "cancel", topic) == "1 partition called off.\n"
    assert requests.ongoing(bootstrap) == []
    assert run(bootstrap, "cancel") == "0 partitions called off.\n"
    wait_until(lambda: not overrides_of(bootstrap, "topic", topic), "the throttle is gone")
    wait_until(
        lambda: [each.replicas for each in requests.placed(bootstrap, [topic])] == [(1,), (1,)],
        "nothing has moved",
    )


def test_what_cannot_be_is_one_sentence(bootstrap: str, topic: str) -> None:
    assert run(bootstrap, "plan", "nowhere") == "nowhere: there is no such topic"
    assert "9: no such broker is up" in run(bootstrap, "plan", topic, "--to", "1,9")
    assert run(bootstrap, "plan", topic, "--to", "one") == "one: brokers are written as 1,2,3"
    few = run(bootstrap, "plan", topic, "--to", "1", "--replication-factor", "2")
    assert few == "2 replicas cannot be placed on 1 brokers"
    assert run(bootstrap, "run", "-", stdin="{").startswith("-: not JSON")
    refused = run(bootstrap, "run", "-", stdin=encode([PlacedPartition(topic, 0, (9,))]))
    assert "no such broker is registered" in refused
    assert run(bootstrap, "cancel", "nowhere") == "nowhere: there is no such topic"
    refused = run(bootstrap, "run", "-", stdin=encode([PlacedPartition(topic, 0, (1,), ("/no/such/dir",))]))
    assert "LOG_DIR_NOT_FOUND" in refused
