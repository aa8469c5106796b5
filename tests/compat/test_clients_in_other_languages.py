"""Stock clients of other languages, each with the same stories: see tests/support/clients/programs.py and
docs/CLIENTS.md.

The programs check what their client sees; here stands what another client sees of it.
"""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka import TopicPartition
from confluent_kafka.admin import AdminClient

from kraft.local.local_cluster import LocalCluster
from metadata_quorum.foundation.batch import iter_headers
from tests.support.clients.programs import Program, go_program, java_program, node_program
from tests.support.clients.rdkafka import consumer, send
from tests.support.clients.transactions import committed
from tests.support.waiting import wait_until

pytestmark = [pytest.mark.long, pytest.mark.row("U2")]

FRANZ, SARAMA, KAFKAJS, JAVA = "franz-go", "sarama", "kafkajs", "java"
CODECS = {FRANZ: range(5), SARAMA: range(5), KAFKAJS: range(2), JAVA: range(5)}
"""none, gzip, snappy, lz4, zstd."""
clients = pytest.mark.parametrize("client", [FRANZ, SARAMA, KAFKAJS, JAVA], indirect=True)


@pytest.fixture(scope="module")
def client(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Program:
    directory: Path = tmp_path_factory.mktemp(request.param)
    if request.param == KAFKAJS:
        return node_program("kafkajs.js", directory)
    if request.param == JAVA:
        return java_program("JavaClient", directory, request.getfixturevalue("kafka_jars"))
    return go_program("franz" if request.param == FRANZ else "sarama", directory)


@pytest.fixture
def name(request: pytest.FixtureRequest) -> str:
    """Of the topic, the group and the transactional id."""
    return request.node.name.removeprefix("test_").replace("[", "-").rstrip("]")


@clients
@pytest.mark.row("P3", "P5", "L9")
def test_produce(
    client: Program, name: str, bootstrap: str, shared_cluster: LocalCluster, request: pytest.FixtureRequest
) -> None:
    places = client("produce", bootstrap, name)
    assert set(places.values()) == {0, 1, 2}
    # Java's murmur2: librdkafka's sends the same keys to the same partitions.
    messages = ({"key": key, "value": "again"} for key in places)
    for report in send(bootstrap, name, messages, partitioner="murmur2_random"):
        assert places[report.key().decode()] == report.partition()
    logs = [shared_cluster.home(1) / "data" / f"{name}-{number}" / f"{0:020}.log" for number in range(3)]
    wanted = set(CODECS[request.node.callspec.params["client"]])
    wait_until(lambda: codecs_of(logs) == wanted, "batches of all codecs are on node 1")


def codecs_of(logs: list[Path]) -> set[int]:
    return {header.compression for log in logs for _, header in iter_headers(log.read_bytes())}


@clients
@pytest.mark.row("L3", "L5", "Q11")
def test_administer(client: Program, name: str, bootstrap: str, admin: AdminClient) -> None:
    configs = client("administer", bootstrap, name)
    assert configs["cleanup.policy"] == "delete,compact"
    assert configs["min.insync.replicas"] == "1"
    wait_until(lambda: name not in admin.list_topics().topics, "whoever is asked knows that it is gone")


@clients
@pytest.mark.row("G1", "G2")
def test_group(client: Program, name: str, bootstrap: str) -> None:
    assert client("group", bootstrap, name) is None


@pytest.mark.parametrize("story", ["cooperative", "server-side"])
@pytest.mark.parametrize("client", [FRANZ, JAVA], indirect=True)
@pytest.mark.row("G1", "G6")
def test_share(client: Program, name: str, bootstrap: str, story: str) -> None:
    """Two members, of which the first one keeps throughout what it can keep."""
    assert sum(client(story, bootstrap, name).values()) == 20


@clients
@pytest.mark.row("P4")
def test_transactions(client: Program, name: str, bootstrap: str) -> None:
    wanted = ["0-a", "0-b", "2-a", "2-b"]
    assert sorted(client("transactions", bootstrap, name)) == wanted
    assert committed(bootstrap, name, 2) == wanted


@clients
@pytest.mark.row("P4")
def test_copy(client: Program, name: str, bootstrap: str) -> None:
    """Consume, transform, produce: every input in exactly one committed output, in order."""
    wanted = [f"0/{n}" for n in range(30)]
    assert client("copy", bootstrap, name) == wanted
    assert committed(bootstrap, name, 2) == sorted(wanted * 2)
    with consumer(bootstrap, group_id=name) as reader:
        (place,) = reader.committed([TopicPartition(name, 0)])
    assert place.offset == 30


@clients
@pytest.mark.row("P4")
def test_zombie(client: Program, name: str, bootstrap: str) -> None:
    assert client("zombie", bootstrap, name) == ["of its successor"]
    assert committed(bootstrap, name) == ["of its successor"]
