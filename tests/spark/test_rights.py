"""Spark on a cluster of ours that has an authorizer."""

from __future__ import annotations

import shlex
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from pyspark.errors import PySparkException
from pyspark.sql import SparkSession
from typer.testing import CliRunner

from kraft.cli.main import cli
from spark_connector.connections import close_clusters
from spark_connector.errors import SinkError
from tests.spark.micro_batches import Sink
from tests.spark.refusals import check_a_sink_that_may_only_write, check_refusals
from tests.spark.topics import Topics, read
from tests.support.nodes.cluster import running_cluster

pytestmark = pytest.mark.heavy

AUTHORIZER = {
    "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
    "allow.everyone.if.no.acl.found": "true",
}


@pytest.fixture(scope="module")
def guarded(
    tmp_path_factory: pytest.TempPathFactory, free_ports: Callable[[int], list[int]]
) -> Iterator[Topics]:
    with running_cluster(tmp_path_factory.mktemp("guarded"), free_ports(3), AUTHORIZER) as cluster:
        yield Topics(cluster.bootstrap)


@pytest.mark.row("S1", "U4")
def test_no_rights(spark: SparkSession, guarded: Topics, checkpoint: str):
    check_refusals(spark, guarded, guarded.admin, checkpoint)


@pytest.mark.row("S3", "U4")
def test_a_sink_that_may_only_write(guarded: Topics):
    check_a_sink_that_may_only_write(guarded, guarded.admin)


STRICT = (
    "--allow-principal User:nobody --operation describe --topic * --group * --transactional-id *",
    "--allow-principal User:ANONYMOUS --cluster"
    " --operation alter --operation create --operation cluster_action",  # the nodes have no names, too
)
"""As long as a rule is about every resource, who is in none has no rights."""


@pytest.fixture
def strict(guarded: Topics) -> Iterator[Topics]:
    for rule in STRICT:
        _acl(guarded, f"add {rule}")
    yield guarded
    for rule in STRICT:
        _acl(guarded, f"remove {rule}")


def _acl(topics: Topics, command: str) -> None:
    done = CliRunner().invoke(cli, ["acl", *shlex.split(command), "-b", topics.bootstrap], input="y\n")
    assert done.exit_code == 0, done.output


@pytest.mark.long
@pytest.mark.row("S3", "U4")
def test_the_rules_in_the_page_are_enough_and_none_is_too_many(spark: SparkSession, strict: Topics):
    page = (Path(__file__).parents[2] / "docs" / "SPARK.md").read_text()
    source, boards = strict.make(1, "flights"), strict.make(1, "boards")
    rules = [
        line.strip().removeprefix("kraft acl ").replace("flights", source).replace("boards", boards)
        for line in page.replace("User:spark", "User:ANONYMOUS").splitlines()
        if line.strip().startswith("kraft acl ")
    ]
    reads, *writes = rules
    with pytest.raises(PySparkException, match="TOPIC_AUTHORIZATION_FAILED"):
        read(spark, strict.options(source)).count()
    _acl(strict, reads)
    assert read(spark, strict.options(source)).count() == 0
    sink = Sink(strict, boards, partitions=1)
    for rule in writes:
        with pytest.raises(SinkError, match=r"(?i)authorization"):
            sink.writer.commit(sink.tasks(["a"]), 0)
        sink.writer.abort([], 0)
        _acl(strict, rule)
    sink.writer.commit(sink.tasks(["a"]), 0)
    assert sink.open() == set()
    _acl(strict, reads.replace(source, boards))
    assert read(spark, {**strict.options(boards), "kafka.isolation.level": "read_committed"}).count() == 1
    for rule in rules:
        _acl(strict, rule.replace("add", "remove", 1))
    close_clusters()
