"""The tools against three real nodes: topics, configurations, produce, consume, quorum, dumps, perf."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from kraft.local.local_cluster import LocalCluster
from tests.cli.shell import Shell
from tests.support.nodes.forks import run_kraft

LOST = 2
"""The controller whose disk is replaced."""


@pytest.fixture
def shell(shared_cluster: LocalCluster) -> Shell:
    return Shell(shared_cluster.bootstrap)


@pytest.mark.row("U2")
def test_the_life_of_a_topic(shell):
    create = ("topic", "create", "life", "--partitions", "2", "--replication-factor", "3")
    assert shell(*create, "--config", "retention.ms=100000") == "Created topic life.\n"
    assert shell.refused(*create).startswith("life: the topic exists already")
    assert shell(*create, "--if-not-exists") == "Topic life exists.\n"
    assert "life" in shell("topic", "list").splitlines()
    of_users = json.loads(shell("topic", "list", "--exclude-internal", "--output", "json"))
    assert {"topic": "life"} in of_users
    assert not any(each["topic"].startswith("__") for each in of_users)
    first, header, *rows = shell("topic", "describe", "life").splitlines()
    assert "PartitionCount: 2  ReplicationFactor: 3  Configs: retention.ms=100000" in first
    assert header.split() == ["partition", "leader", "replicas", "isr"]
    assert len(rows) == 2
    for row in rows:
        _, leader, replicas, isr = row.split()
        assert sorted(replicas.split(",")) == sorted(isr.split(",")) == ["1", "2", "3"]
        assert leader == replicas.split(",")[0]
    shell("topic", "alter", "life", "--partitions", "3", "--delete-config", "retention.ms")
    first, _, *rows = shell("topic", "describe", "life").splitlines()
    assert first.endswith("PartitionCount: 3  ReplicationFactor: 3  Configs:")
    assert len(rows) == 3
    assert shell("topic", "delete", "life") == "Deleted topic life.\n"
    assert shell.refused("topic", "describe", "life") == "life: there is no such topic"


@pytest.mark.row("U2")
def test_what_topic_refuses(shell):
    assert "bad/name" in shell.refused("topic", "create", "bad/name")
    assert "REPLICATION" in shell.refused("topic", "create", "many", "--replication-factor", "9").upper()
    assert shell.refused("topic", "delete", "nothere") == "nothere: there is no such topic"
    assert (
        shell.refused("topic", "alter", "nothere", "--partitions", "3") == "nothere: there is no such topic"
    )


@pytest.mark.row("U2")
def test_configurations(shell):
    shell("topic", "create", "tuned")
    shell("config", "set", "topic", "tuned", "max.message.bytes=2000", "retention.ms=5000")
    _, *rows = shell("config", "get", "topic", "tuned").splitlines()
    assert [row.split() for row in rows] == [
        ["max.message.bytes", "2000", "DYNAMIC_TOPIC_CONFIG", "no"],
        ["retention.ms", "5000", "DYNAMIC_TOPIC_CONFIG", "no"],
    ]
    shell("config", "set", "topic", "tuned", "--delete", "retention.ms")
    _, row = shell("config", "get", "topic", "tuned", "retention.ms").splitlines()
    assert row.split()[:2] == ["retention.ms", "604800000"]
    assert "max.message.bytes" in shell.refused("config", "set", "topic", "tuned", "max.message.bytes=-1")
    _, row = shell("config", "get", "broker", "1", "node.id").splitlines()
    assert row.split() == ["node.id", "1", "STATIC_BROKER_CONFIG", "yes"]


@pytest.mark.row("U2", "P5")
def test_produce_and_consume(shell):
    shell("topic", "create", "words", "--partitions", "3")
    shell("produce", "words", "-K", ":", "-H", "x=1", "--null-value", "NONE", stdin="a:1\nb:2\na:3\nc:NONE\n")
    shell("produce", "words", "-p", "2", "--timestamp", "1000", stdin="plain\n")
    read = ("consume", "words", "--from-beginning", "-e")
    lines = shell(*read, "--print-key", "--print-headers", "--print-partition", "-K", "|").splitlines()
    by_key = {line.split("|")[2]: line for line in lines}
    assert len(lines) == 5
    assert by_key["a"].endswith("|x=1|a|3")
    assert by_key["c"].endswith("|x=1|c|null")
    assert [line for line in lines if line.split("|")[2] == "a"] == [
        by_key["a"].removesuffix("3") + "1", by_key["a"]
    ]  # fmt: skip
    assert shell("consume", "words", "-p", "2", "-o", "-1", "-e", "--print-timestamp") == "1000\tplain\n"
    assert shell("consume", "words", "-n", "2", "-g", "readers", "--from-beginning").count("\n") == 2
    assert shell("consume", "words", "-n", "3", "-g", "readers", "--from-beginning").count("\n") == 3
    assert shell.refused("consume", "nothere") == "nothere: there is no such topic"


@pytest.mark.row("Q8")
def test_quorum_status(shell):
    leader, epoch, watermark, header, *rows = shell("quorum", "status").splitlines()
    assert leader.split()[1] in ("1", "2", "3")
    assert int(epoch.split()[1]) >= 1
    assert int(watermark.split()[1]) > 0
    assert header.split() == ["node", "role", "log", "end", "lag", "caught", "up"]
    assert sorted(row.split()[0] for row in rows) == ["1", "2", "3"]
    assert sorted(row.split()[1] for row in rows) == ["leader", "voter", "voter"]


@pytest.mark.row("U5")
def test_the_doctor_of_a_cluster_that_is_whole(shell):
    """Other tests may leave leaders elsewhere, or topics with one copy: warnings, no errors."""
    header, *rows = shell("doctor").splitlines()
    assert header.split("  ")[0] == "check"
    assert [row.split("  ")[0] for row in rows][:3] == ["brokers", "registrations", "metadata quorum"]
    assert "3 voters" in rows[2]


@pytest.mark.row("Q3")
def test_metadata_dump(shell, shared_cluster):
    shell("topic", "create", "seen", "--config", "retention.ms=77")
    lines = shell("metadata", "dump").splitlines()
    records = [line.split(" ", 5) for line in lines if " control: " not in line]
    assert all(words[0] == "offset:" and words[2] == "epoch:" for words in records)
    (topic,) = [
        json.loads(w[5]) for w in records if w[4] == "TopicRecord" and json.loads(w[5])["name"] == "seen"
    ]
    partitions = [json.loads(w[5]) for w in records if w[4] == "PartitionRecord"]
    assert any(p["topic_id"] == topic["topic_id"] for p in partitions)
    assert any(w[4] == "ConfigRecord" and '"retention.ms"' in w[5] for w in records)
    files = shell("metadata", "dump", str(shared_cluster.home(1) / "data" / "__cluster_metadata-0"))
    assert lines[-1] in files.splitlines()


@pytest.mark.row("L2")
def test_log_dump(shell, shared_cluster):
    shell("topic", "create", "dumped", "--partitions", "1", "--replication-factor", "3")
    shell("produce", "dumped", "-K", "=", stdin="k=v\nk=w\n")
    log = shared_cluster.home(1) / "data" / "dumped-0" / "00000000000000000000.log"
    done = run_kraft("log", "dump", str(log), "--records", "--verify")
    assert done.returncode == 0, done.stderr
    assert "baseOffset: 0 lastOffset: 1 count: 2" in done.stdout
    assert "key: k payload: w" in done.stdout


@pytest.mark.row("U2")
def test_perf(shell):
    shell("topic", "create", "fast", "--partitions", "3")
    assert shell("perf", "produce", "fast", "-n", "2000", "-s", "100").startswith("2000 messages sent in ")
    assert shell("perf", "consume", "fast", "-n", "2000").startswith("2000 messages read in ")
    acked, read = shell("perf", "latency", "fast", "-n", "50", "--rate", "200").splitlines()
    assert acked.startswith("acknowledged: p50 ")
    assert read.startswith("end to end:   p50 ")


@pytest.mark.row("Q11")
def test_elect_leaders(shell):
    shell("topic", "create", "elected", "--partitions", "2")
    _, *rows = shell("elect-leaders", "--topic", "elected").splitlines()
    assert [row.split() for row in rows] == [
        ["elected", "0", "ELECTION_NOT_NEEDED"], ["elected", "1", "ELECTION_NOT_NEEDED"]
    ]  # fmt: skip


@pytest.mark.row("Q9")
def test_a_quorum_that_runs_is_not_new(shared_cluster: LocalCluster, tmp_path: Path) -> None:
    """The command of the first day, repeated for a disk that was lost: that controller would have a vote at
    once, and could elect one that lacks what it had acknowledged itself."""
    voters = {node_id: node.controller_port for node_id, node in shared_cluster.nodes.items()}
    properties = {
        "process.roles": "controller",
        "node.id": str(LOST),
        "controller.quorum.voters": ",".join(f"{i}@127.0.0.1:{port}" for i, port in voters.items()),
        "controller.listener.names": "CONTROLLER",
        "listeners": f"CONTROLLER://127.0.0.1:{voters[LOST]}",
        "log.dirs": str(tmp_path / "data"),
    }
    path = tmp_path / "server.properties"
    path.write_text("".join(f"{key}={value}\n" for key, value in properties.items()))
    format_ = ("storage", "format", "--config", str(path), "--new-cluster", "--cluster-id")
    refused = run_kraft(*format_, shared_cluster.cluster_id)
    assert (refused.returncode, refused.stdout) == (1, "")
    assert ": the cluster is not new. Without --new-cluster" in refused.stderr
    assert not (tmp_path / "data").exists()
    another = run_kraft(*format_, "AnotherClusterAAAAAAAA")
    assert (another.returncode, another.stderr) == (0, "")
