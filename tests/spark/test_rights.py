"""Spark on a cluster of ours that has an authorizer."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from pyspark.sql import SparkSession

from tests.cluster import running_cluster
from tests.spark.refusals import check_a_sink_that_may_only_write, check_refusals
from tests.spark.topics import Topics

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
